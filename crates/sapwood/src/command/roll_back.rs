//! `sapwood rollback`: take blocks back by hand.

use std::sync::Arc;

use anyhow::bail;
use clap::Args;
use sapwood_chain::{Chain, ChainOptions, Events};
use sapwood_sources::ChainPoint;
use sapwood_store::{RollbackMode, Store, StoreRead as _};
use sapwood_types::Height;

use super::DataArg;
use crate::node::runtime;

/// Take blocks back, down to a height inside the window.
#[derive(Debug, Args)]
pub(crate) struct RollBack {
    #[command(flatten)]
    data: DataArg,
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
            let (_, store) = self.data.directory().open_existing()?;
            let floor = store.rollback_floor().await?;
            let rollback = if self.keep_transactions { RollbackMode::Node } else { RollbackMode::Follower };
            let options = ChainOptions { rollback, ..ChainOptions::default() };
            let chain = Chain::new(Arc::new(store) as Arc<dyn Store>, Events::default(), options);
            let height = Height(self.to);
            let Some(hash) = chain.hash_at(height).await? else {
                match floor {
                    Some(floor) => {
                        bail!("cannot go back to {height}: the lowest height that can be reached is {floor}")
                    }
                    None => bail!("nothing is applied"),
                }
            };
            let done = chain.roll_back(Some(ChainPoint::new(height, hash))).await?;
            println!("{} blocks taken back; the last one is {} ({hash})", done.blocks, height);
            Ok(())
        })
    }
}
