//! `sapwood explain`: why something is still there.

use clap::{Args, Subcommand};
use sapwood_pruner::Explanation;
use sapwood_types::TxId;

use crate::{
    client::{Access, Target},
    command::get::Spends,
    node::runtime,
};

/// What to explain.
#[derive(Debug, Subcommand)]
pub(crate) enum Explain {
    /// Why a transaction's record is retained, and when it becomes prunable.
    Tx(ExplainTx),
}

#[derive(Debug, Args)]
pub(crate) struct ExplainTx {
    #[command(flatten)]
    target: Target,
    /// Its id.
    txid: TxId,
    #[command(flatten)]
    spends: Spends,
}

impl Explain {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let Explain::Tx(ExplainTx { target, txid, spends }) = self;
        runtime()?.block_on(async {
            let client = target.open(Access::LookAtBodies).await?;
            client.show(
                &client.get::<Explanation>(&spends.after(format!("/api/v1/txs/{txid}/explain"))).await?,
                Explanation::to_string,
            )
        })
    }
}
