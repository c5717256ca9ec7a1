//! `sapwood status`: how a node is doing.

use clap::Args;
use sapwood_server::views::StatusReport;

use crate::{
    client::{Access, Target},
    node::runtime,
    show,
};

/// Show how a node is doing, or where a data directory stands.
#[derive(Debug, Args)]
pub(crate) struct ShowStatus {
    #[command(flatten)]
    target: Target,
}

impl ShowStatus {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        runtime()?.block_on(async {
            let client = self.target.open(Access::Look).await?;
            client.show(&client.get::<StatusReport>("/api/v1/status").await?, show::status)
        })
    }
}
