//! What can be said on the command line.

use clap::{Parser, Subcommand};

use crate::bench;

/// Sapwood keeps the living part of a blockchain: its UTXO state, and a pruner that never deletes what is still needed.
#[derive(Debug, Parser)]
#[command(name = "sapwood", version, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure Sapwood on this machine.
    #[command(subcommand)]
    Bench(bench::Command),
}

impl Cli {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Bench(command) => command.run(),
        }
    }
}
