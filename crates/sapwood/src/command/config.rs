//! `sapwood config`: what is set, what it means, and whether `sapwood run` would take it.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::config::{Config, render};

/// Print the configuration in effect, with comments.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct PrintConfig {
    #[command(subcommand)]
    command: Option<ConfigCommand>,
    /// The configuration file. `sapwood.toml` here, if there is one and none is named.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the defaults instead, to begin a file with.
    #[arg(long, conflicts_with = "config")]
    defaults: bool,
}

/// What to do with a configuration besides printing it.
#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Check a configuration file: refuses all that `sapwood run` refuses, with the reason. The data directory is not looked
    /// at.
    Check {
        /// The configuration file.
        file: PathBuf,
    },
}

impl PrintConfig {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        if let Some(ConfigCommand::Check { file }) = self.command {
            super::run::load(Some(&file))?;
            println!("{} can be run with", file.display());
            return Ok(());
        }
        let config = if self.defaults { Config::default() } else { Config::load(self.config.as_deref())? };
        print!("{}", render(&config)?);
        Ok(())
    }
}
