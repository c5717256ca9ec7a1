//! `sapwood policy`: how long things are kept.

use anyhow::ensure;
use clap::{Args, Subcommand};
use sapwood_pruner::PolicyState;
use sapwood_rules::PolicyChange;

use crate::{
    client::{Access, Target},
    node::runtime,
};

/// What to do about how long things are kept.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Show how long things are kept, and where each number comes from.
    Show(Target),
    /// Change how long things are kept. It stays so after a restart, until the configuration is changed to something else.
    Set(SetPolicy),
}

#[derive(Debug, Args)]
pub(crate) struct SetPolicy {
    #[command(flatten)]
    target: Target,
    /// Blocks a record is kept after it settled. 0: records are never pruned.
    #[arg(long, value_name = "BLOCKS")]
    retention: Option<u32>,
    /// How many blocks can be rolled back. At most the retention, unless that is 0.
    #[arg(long, value_name = "BLOCKS")]
    reorg_window: Option<u32>,
    /// Blocks before a coinbase's outputs may be spent.
    #[arg(long, value_name = "BLOCKS")]
    coinbase_maturity: Option<u32>,
    /// Blocks before a reassigned output may be spent.
    #[arg(long, value_name = "BLOCKS")]
    reassignment_delay: Option<u32>,
    /// Blocks after which an unmined transaction is old. It follows the retention unless set.
    #[arg(long, value_name = "BLOCKS")]
    unmined_retention: Option<u32>,
    /// Blocks for which the parents of old unmined transactions are preserved.
    #[arg(long, value_name = "BLOCKS")]
    parent_preservation: Option<u32>,
    /// Go on although less is kept than before. Without it such a change is refused, with how much it would delete.
    #[arg(long)]
    yes: bool,
}

impl PolicyCommand {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        runtime()?.block_on(async {
            match self {
                PolicyCommand::Show(target) => {
                    let client = target.open(Access::Look).await?;
                    client.show(&client.get::<PolicyState>("/api/v1/policy").await?, PolicyState::to_string)
                }
                PolicyCommand::Set(set) => set.run().await,
            }
        })
    }
}

impl SetPolicy {
    async fn run(self) -> anyhow::Result<()> {
        let change = PolicyChange {
            retention: self.retention,
            reorg_window: self.reorg_window,
            coinbase_maturity: self.coinbase_maturity,
            reassignment_delay: self.reassignment_delay,
            unmined_retention: self.unmined_retention,
            parent_preservation: self.parent_preservation,
        };
        ensure!(!change.is_empty(), "name a number to change, such as --retention 1000");
        let client = self.target.open(Access::Change).await?;
        let path = format!("/api/v1/policy?confirm={}", self.yes);
        let changed = client.patch::<PolicyState>(&path, &serde_json::to_value(change)?).await?;
        client.show(&changed, PolicyState::to_string)?;
        client.close().await;
        Ok(())
    }
}
