//! `sapwood config`: what is set, and what it means.

use std::path::PathBuf;

use clap::Args;

use crate::config::{Config, render};

/// Print the configuration in effect, with comments.
#[derive(Debug, Args)]
pub(crate) struct PrintConfig {
    /// The configuration file. `sapwood.toml` here, if there is one and none is named.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the defaults instead, to begin a file with.
    #[arg(long, conflicts_with = "config")]
    defaults: bool,
}

impl PrintConfig {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let config = if self.defaults { Config::default() } else { Config::load(self.config.as_deref())? };
        print!("{}", render(&config)?);
        Ok(())
    }
}
