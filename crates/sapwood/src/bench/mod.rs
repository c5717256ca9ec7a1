//! Benchmarks. Machines are noisy, so what counts are ratios measured in one run.

mod apply;
mod baseline;
mod catching_up;
mod chain;
mod cost;
mod counting;
mod following;
mod import;
mod measure;
mod prune;
mod pruning;
mod report;
mod serve;
mod show;
mod workload;

use std::{
    fmt,
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use tempfile::TempDir;

pub(crate) use measure::bytes_on_disk;

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Block apply on the embedded store against the same rows written straight into the engine, what a block costs, and pruning.
    Apply(apply::Apply),
    /// Blocks of real size through the chain, as the follower applies them, against the store alone; with the UTXO hash, the address
    /// index, and through the queue.
    Chain(following::Following),
    /// Import of block files by a process of its own, from its start to its end.
    Import(import::Import),
    /// Pruning on the embedded store: how fast, what the check of children costs, and how much blocks notice of it.
    Prune(prune::Prune),
    /// Read requests over HTTP while blocks are applied and pruned: how many, how fast, and what blocks notice of them. Needs wrk.
    Serve(serve::Serve),
    /// The same work, to look at: blocks are applied and pruned for a while, with a live display.
    Run(show::Show),
    /// Apply blocks until killed. Used by `apply` to measure how long reopening takes after a kill.
    #[command(hide = true)]
    UntilKilled {
        /// The store's directory.
        data: PathBuf,
        /// The workload of the store.
        #[command(flatten)]
        shape: Shape,
    },
}

/// What the blocks look like.
#[derive(Clone, Debug, Args)]
pub(crate) struct Shape {
    /// Transactions in a block.
    #[arg(long, default_value_t = 4000)]
    txs: usize,
    /// Outputs to begin with, before anything is measured.
    #[arg(long, default_value_t = 1_000_000)]
    outputs: u64,
    /// The workload's seed: the same seed gives the same blocks.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Command {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self {
            Command::Apply(apply) => apply.run(),
            Command::Chain(following) => following.run(),
            Command::Import(import) => import.run(),
            Command::Prune(prune) => prune.run(),
            Command::Serve(serve) => serve.run(),
            Command::Run(show) => show.run(),
            Command::UntilKilled { data, shape } => chain::apply_until_killed(&data, &shape),
        }
    }
}

/// The directory to work in: the one asked for, which must be new, or a temporary one.
fn working_directory(asked: Option<&Path>, temporary: &TempDir) -> anyhow::Result<PathBuf> {
    match asked {
        Some(asked) if asked.exists() => {
            anyhow::bail!("{} exists already: name a directory that does not", asked.display())
        }
        Some(asked) => Ok(asked.to_owned()),
        None => Ok(temporary.path().join("bench")),
    }
}

/// Measures something in its own directory, on two threads.
fn run_in_directory<T>(
    asked: Option<&Path>,
    measure: impl AsyncFnOnce(&Path) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let temporary = tempfile::tempdir().context("making a temporary directory")?;
    let directory = working_directory(asked, &temporary)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
    runtime.block_on(measure(&directory))
}

/// A bar over so many blocks.
fn progress(what: &'static str, blocks: usize, quiet: bool) -> anyhow::Result<ProgressBar> {
    let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(blocks as u64) };
    let style = format!("{what} {{wide_bar}} block {{pos}} of {{len}}, {{eta}} left");
    Ok(bar.with_style(ProgressStyle::with_template(&style)?))
}

/// Prints what was measured, for machines or for people.
fn print_report(report: &(impl serde::Serialize + fmt::Display), json: bool) -> anyhow::Result<()> {
    let text = if json { serde_json::to_string_pretty(report)? + "\n" } else { report.to_string() };
    match std::io::stdout().write_all(text.as_bytes()) {
        // Whoever reads has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.context("printing what was measured"),
    }
}

/// Reads `30s`, `2m` or `500ms`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| format!("{text:?} is not a duration like 30s or 2m"))?;
    match &text[digits.len()..] {
        "ms" => Ok(Duration::from_millis(number)),
        "s" | "" => Ok(Duration::from_secs(number)),
        "m" => Ok(Duration::from_secs(60 * number)),
        unit => Err(format!("{unit:?} is not a unit of time: use ms, s or m")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_exists_is_left_alone() {
        let temporary = tempfile::tempdir().unwrap();
        assert!(working_directory(Some(temporary.path()), &temporary).is_err());
        let new = temporary.path().join("new");
        assert_eq!(working_directory(Some(&new), &temporary).unwrap(), new);
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        assert_eq!(parse_duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("7"), Ok(Duration::from_secs(7)));
        assert!(parse_duration("soon").is_err());
        assert!(parse_duration("3h").is_err());
    }
}
