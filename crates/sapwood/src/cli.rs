//! What can be said on the command line.

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use crate::{
    bench,
    command::{
        config::PrintConfig,
        demo::Demo,
        get::Get,
        import::Import,
        pruning::{Explain, HoldCommand, Prune},
        roll_back::RollBack,
        run::{self, Run},
        status::ShowStatus,
        verify::Verify,
    },
};

/// Sapwood keeps the living part of a blockchain: its UTXO state, and a pruner that never deletes what is still needed.
#[derive(Debug, Parser)]
#[command(name = "sapwood", version, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
    /// How log lines look. What is logged is chosen by RUST_LOG, such as `info` or `sapwood_chain=debug`.
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Follow a chain until stopped, as the configuration says.
    Run(Run),
    /// Show a node at work on a made-up chain, with a status page to look at.
    Demo(Demo),
    /// Print the configuration in effect, with comments.
    Config(PrintConfig),
    /// Take over a chain from files.
    #[command(subcommand)]
    Import(Import),
    /// Show where a data directory stands.
    Status(ShowStatus),
    /// Check every record, every index and the UTXO hash. Fails if anything is broken.
    Verify(Verify),
    /// Look up a transaction, an output or an address.
    #[command(subcommand)]
    Get(Get),
    /// Prune, or see what would be pruned and what holds it back.
    #[command(subcommand)]
    Prune(Prune),
    /// Why something is still here, and when it could go.
    #[command(subcommand)]
    Explain(Explain),
    /// Set, list and release holds, which keep what somebody still needs.
    #[command(subcommand)]
    Hold(HoldCommand),
    /// Take blocks back by hand.
    #[command(name = "rollback")]
    RollBack(RollBack),
    /// Measure Sapwood on this machine.
    #[command(subcommand)]
    Bench(bench::Command),
}

impl Cli {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let Cli { command, log_format } = self;
        if let Command::Run(command) = &command {
            let config = command.load()?;
            log(log_format, &config.log.level);
            run::run(&config)?;
            return Ok(ExitCode::SUCCESS);
        }
        log(log_format, "warn");
        match command {
            Command::Run(_) => {}
            Command::Demo(demo) => demo.run()?,
            Command::Config(config) => config.run()?,
            Command::Import(import) => import.run()?,
            Command::Status(status) => status.run()?,
            Command::Verify(verify) => {
                if !verify.run()? {
                    return Ok(ExitCode::FAILURE);
                }
            }
            Command::Get(get) => get.run()?,
            Command::Prune(prune) => prune.run()?,
            Command::Explain(explain) => explain.run()?,
            Command::Hold(hold) => hold.run()?,
            Command::RollBack(roll_back) => roll_back.run()?,
            Command::Bench(command) => command.run()?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Logs to standard error: what is printed is the answer.
fn log(format: LogFormat, level: &str) {
    use tracing_subscriber::{EnvFilter, fmt};
    let wanted = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let log = fmt().with_env_filter(wanted).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.with_target(false).init(),
        LogFormat::Json => log.json().init(),
    }
}
