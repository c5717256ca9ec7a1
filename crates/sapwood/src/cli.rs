//! What can be said on the command line.

use std::{io::IsTerminal as _, sync::OnceLock};

use anyhow::Context as _;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use tracing::{Event, Subscriber};
use tracing_subscriber::{
    EnvFilter, fmt,
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::{Format, Writer},
    },
    registry::LookupSpan,
    reload,
};

use crate::{
    bench,
    command::{
        config::PrintConfig,
        demo::Demo,
        dump::{Dump, Load, Upgrade},
        explain::Explain,
        get::Get,
        hold::HoldCommand,
        import::Import,
        policy::PolicyCommand,
        prune::Prune,
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
pub(crate) enum LogFormat {
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
    /// Show how a node is doing, or where a data directory stands.
    Status(ShowStatus),
    /// Check every record, every index, every body and the UTXO hash. Fails if anything is broken.
    Verify(Verify),
    /// Look up a transaction, an output, a block, an address, a payment credential or the UTXO set.
    #[command(subcommand)]
    Get(Get),
    /// Prune, or see what would be pruned and what holds it back.
    #[command(subcommand)]
    Prune(Prune),
    /// Show or change how long things are kept.
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Why a record is retained, and when it becomes prunable.
    #[command(subcommand)]
    Explain(Explain),
    /// Set, list and release holds, which keep what a consumer still needs.
    #[command(subcommand)]
    Hold(HoldCommand),
    /// Roll blocks back by hand.
    #[command(name = "rollback")]
    RollBack(RollBack),
    /// Write the store of a stopped node to a file, with checksums, to move it to another machine or engine. Bodies of large
    /// transactions are not in it: copy them.
    Dump(Dump),
    /// Make a new data directory from a dump, or check a dump. A load that was interrupted is started over.
    Load(Load),
    /// Bring a data directory that an older program wrote to the schema of this one. Commands that open it for writing do the same.
    Upgrade(Upgrade),
    /// Measure Sapwood on this machine.
    #[command(subcommand)]
    Bench(bench::Command),
}

impl Cli {
    /// Reads the command line, or ends the process with what is wrong with it.
    pub(crate) fn read() -> Self {
        let matches = with_negative_numbers(Self::command()).get_matches();
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }

    pub(crate) fn log_format(&self) -> LogFormat {
        self.log_format
    }

    pub(crate) fn run(self) -> anyhow::Result<u8> {
        let Cli { command, log_format } = self;
        if let Command::Run(command) = &command {
            let config = command.load()?;
            log(log_format, filter(&config.log.level));
            run::run(&config, command.file())?;
            return Ok(0);
        }
        // Commands that look at a directory ask a router of their own: what they ask for is no change by others.
        let usual = match &command {
            Command::Demo(_) => filter("warn"),
            // Whatever opens an older store for writing says how far its migration is.
            _ => EnvFilter::new("warn,sapwood_ledger::migrate=info"),
        };
        log(log_format, usual);
        match command {
            Command::Run(_) => {}
            Command::Demo(demo) => demo.run()?,
            Command::Config(config) => config.run()?,
            Command::Import(import) => return import.run(),
            Command::Status(status) => status.run()?,
            Command::Verify(verify) => {
                if !verify.run()? {
                    return Ok(1);
                }
            }
            Command::Get(get) => get.run()?,
            Command::Prune(prune) => prune.run()?,
            Command::Policy(policy) => policy.run()?,
            Command::Explain(explain) => explain.run()?,
            Command::Hold(hold) => hold.run()?,
            Command::RollBack(roll_back) => roll_back.run()?,
            Command::Dump(dump) => dump.run()?,
            Command::Load(load) => load.run()?,
            Command::Upgrade(upgrade) => upgrade.run()?,
            Command::Bench(command) => command.run()?,
        }
        Ok(0)
    }
}

/// Takes -1 for a value that is wrong, not for an option that is not known.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let number = |arg: clap::Arg| match arg.get_action().takes_values() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    };
    command.mut_args(number).mut_subcommands(with_negative_numbers)
}

/// Says on standard error why the command failed, in the format of the log.
pub(crate) fn complain(format: LogFormat, error: &anyhow::Error) {
    match format {
        LogFormat::Text => eprintln!("error: {error:#}"),
        LogFormat::Json => {
            let timestamp = humantime::format_rfc3339_micros(std::time::SystemTime::now()).to_string();
            let fields = serde_json::json!({ "message": format!("{error:#}") });
            let line = serde_json::json!({
                "timestamp": timestamp, "level": "ERROR", "fields": fields, "target": "sapwood" });
            eprintln!("{line}");
        }
    }
}

/// What changes the level of the log.
type SetLevel = Box<dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync>;

static SET_LEVEL: OnceLock<SetLevel> = OnceLock::new();

/// What is logged at a level. Changes over REST and gRPC are too, unless it names `audit` itself.
fn filter(level: &str) -> EnvFilter {
    EnvFilter::new(format!("audit=info,{level}"))
}

/// What RUST_LOG says. `None` if it says nothing.
fn rust_log() -> Option<String> {
    std::env::var(EnvFilter::DEFAULT_ENV).ok().filter(|level| !level.trim().is_empty())
}

/// Lines for people. They name their target only if it is `audit`, which there may be others that look for.
struct Lines {
    plain: Format,
    audit: Format,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let format = if event.metadata().target() == "audit" { &self.audit } else { &self.plain };
        format.format_event(context, writer, event)
    }
}

/// Logs to standard error: what is printed is the answer.
fn log(format: LogFormat, usual: EnvFilter) {
    let wanted = rust_log().map_or(usual, |level| filter(&level));
    // A log whose reader has gone is no reason to end.
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let log = fmt()
        .log_internal_errors(false)
        .with_env_filter(wanted)
        .with_writer(std::io::stderr)
        .with_ansi(colours);
    let set_level: SetLevel = match format {
        LogFormat::Text => {
            let lines = Lines { plain: Format::default().with_target(false), audit: Format::default() };
            let log = log.event_format(lines).with_filter_reloading();
            let handle = log.reload_handle();
            log.init();
            Box::new(move |filter| handle.reload(filter))
        }
        LogFormat::Json => {
            let log = log.json().with_filter_reloading();
            let handle = log.reload_handle();
            log.init();
            Box::new(move |filter| handle.reload(filter))
        }
    };
    // Set once: a process has one log.
    let _ = SET_LEVEL.set(set_level);
}

/// Changes the level of the log, unless RUST_LOG decides about it.
pub(crate) fn set_level(level: &str) -> anyhow::Result<()> {
    if let Some(set_level) = SET_LEVEL.get()
        && rust_log().is_none()
    {
        set_level(filter(level)).context("log.level")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::*;

    const HEAD: &str = "# Commands\n\nThis page is made from the code: `SAPWOOD_WRITE_DOCS=1 cargo nextest run --release -p sapwood page_of_commands` \
                        writes it.\n\nEvery command takes `--help`, `--version` and `--log-format text` or `json`. What is logged is chosen by `RUST_LOG`.\n";

    /// A command and those below it, each with its help.
    fn describe(path: &str, command: &Command, page: &mut String) {
        if command.is_hide_set() {
            return;
        }
        let everywhere = |name: &str| matches!(name, "help" | "version" | "log_format");
        let mut shown = command.clone().disable_help_subcommand(true).term_width(110).mut_args(|arg| {
            // What the environment says here says nothing elsewhere.
            let hidden = everywhere(arg.get_id().as_str());
            arg.hide_env_values(true).hide(hidden)
        });
        let help = shown.render_long_help().to_string();
        let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
        *page += &format!("\n## `{path}`\n```\n{}\n```\n", lines.join("\n").trim_end());
        for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
            describe(&format!("{path} {}", below.get_name()), below, page);
        }
    }

    #[test]
    fn the_page_of_commands_is_that_of_the_code() {
        let mut command = Cli::command();
        command.build();
        let mut page = HEAD.to_owned();
        describe("sapwood", &command, &mut page);
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");
        if std::env::var_os("SAPWOOD_WRITE_DOCS").is_some() {
            std::fs::write(path, &page).unwrap();
        }
        let found = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            found == page,
            "docs/cli.md is not what the code says: set SAPWOOD_WRITE_DOCS=1 and run this test"
        );
    }

    /// The commands in a document: in code spans, and the lines of code blocks.
    fn commands(text: &str) -> Vec<Vec<String>> {
        let spans = text.split('`').skip(1).step_by(2).filter(|span| !span.contains('\n'));
        let candidates = text.lines().chain(spans).map(str::trim).filter(|text| text.starts_with("sapwood "));
        let of = |text: &str| {
            let end = [" #", " >", " &&", " | "].iter().filter_map(|mark| text.find(mark)).min();
            let words = text[..end.unwrap_or(text.len())].split_whitespace().map(|word| match word {
                "TXID" => "0".repeat(64),
                "TXID:N" => format!("{}:0", "0".repeat(64)),
                "HEIGHT" | "BLOCKS" => "1".into(),
                word => word.trim_end_matches('…').to_owned(),
            });
            words.collect()
        };
        candidates.filter(|text| !text.contains('`')).map(of).collect()
    }

    /// What a node does for the admin token only.
    fn needs_the_admin_token(words: &[String]) -> bool {
        let words: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
        matches!(
            words.as_slice(),
            ["prune", "now" | "enable" | "disable", ..]
                | ["hold", "set" | "release", ..]
                | ["policy", "set", ..]
                | ["verify", ..]
                | ["get", "utxo-set", ..]
        )
    }

    #[test]
    fn commands_in_the_documents_are_understood_and_find_their_token() {
        use clap::error::ErrorKind::{
            DisplayHelpOnMissingArgumentOrSubcommand, MissingRequiredArgument, MissingSubcommand,
        };
        let mut whole = 0;
        for document in ["README.md", "docs/operations.md"] {
            let path = format!("{}/../../{document}", env!("CARGO_MANIFEST_DIR"));
            for words in commands(&std::fs::read_to_string(path).unwrap()) {
                let line = words.join(" ");
                match Cli::try_parse_from(&words).map_err(|error| error.kind()) {
                    Ok(_) => whole += 1,
                    // Only its name is mentioned.
                    Err(
                        MissingRequiredArgument
                        | MissingSubcommand
                        | DisplayHelpOnMissingArgumentOrSubcommand,
                    ) => continue,
                    Err(kind) => panic!("{document}: {line}: {kind:?}"),
                }
                let named = words.iter().any(|word| word == "--data" || word == "--url");
                assert!(
                    named || !needs_the_admin_token(&words),
                    "{document}: {line} gets a 401: give --data"
                );
            }
        }
        assert!(whole > 20, "{whole} commands were found");
    }

    #[test]
    fn the_command_line_makes_sense() {
        Cli::command().debug_assert();
    }
}
