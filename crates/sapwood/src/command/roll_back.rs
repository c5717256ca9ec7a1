//! `sapwood rollback`: roll blocks back by hand.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use sapwood_chain::{Chain, ChainOptions, Events};
use sapwood_ledger::RollbackMode;
use sapwood_pruner::text::counted;
use sapwood_sources::ChainPoint;
use sapwood_types::Height;

use crate::{
    client::is_locked,
    node::{Directory, runtime},
};

/// Roll blocks back, down to a height inside the window. Only where no node runs: a node would apply them again.
#[derive(Debug, Args)]
pub(crate) struct RollBack {
    /// The data directory.
    #[arg(long, value_name = "DIR", env = "SAPWOOD_DATA")]
    data: PathBuf,
    /// The height of the block that will be the last one.
    #[arg(long, value_name = "HEIGHT")]
    to: u32,
    /// Keep the transactions as unmined instead of forgetting them.
    #[arg(long)]
    keep_transactions: bool,
}

impl RollBack {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        runtime()?.block_on(async {
            let offline =
                Directory::new(&self.data).change().await.map_err(|error| match is_locked(&error) {
                    true => error.context("rolling back works only while no node runs on the directory"),
                    false => error,
                });
            let store = offline?.store;
            let (floor, last) = (store.rollback_floor().await?, store.last_applied().await?);
            let rollback = if self.keep_transactions { RollbackMode::Node } else { RollbackMode::Follower };
            let options = ChainOptions { rollback, ..ChainOptions::default() };
            let chain = Chain::new(store, Events::default(), options);
            let height = Height(self.to);
            let (Some(floor), Some(last)) = (floor, last) else { bail!("no block is applied") };
            if height > last.height {
                bail!("cannot roll back to {height}: the last applied block is {}", last.height);
            }
            let Some(hash) = chain.hash_at(height).await? else {
                bail!("cannot roll back to {height}: the lowest height that can be reached is {floor}");
            };
            let done = chain.roll_back(Some(ChainPoint::new(height, hash))).await?;
            println!(
                "{} rolled back; the last one is {height} ({hash})",
                counted(u64::from(done.blocks), "block")
            );
            Ok(())
        })
    }
}
