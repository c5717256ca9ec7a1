//! `sapwood verify`: is everything as it should be?

use clap::Args;
use sapwood_store::{StoreDiagnose as _, StoreRead as _};

use super::{BodiesArg, DataArg};
use crate::node::{counting_bar, runtime};

/// Check every record, every index, every body and the UTXO hash.
#[derive(Debug, Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    data: DataArg,
    #[command(flatten)]
    bodies: BodiesArg,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Verify {
    /// Says whether nothing is broken.
    pub(crate) fn run(self) -> anyhow::Result<bool> {
        runtime()?.block_on(async {
            let (node, store) = self.data.directory().open_existing()?;
            let (bar, show) = counting_bar("verifying");
            let report = store.verify(show).await;
            bar.finish_and_clear();
            let mut report = report?;
            let bodies = self.bodies.open(&self.data.directory(), &store).await?;
            let outside = bodies.verify(&store, &node.policy.into()).await?;
            outside.missing.iter().for_each(|problem| report.problem(problem.clone()));
            let last = store.last_applied().await?;
            if self.json {
                let summary = serde_json::json!({
                    "chain": node.chain,
                    "network": node.network,
                    "last_applied": last.map(|block| serde_json::json!({
                        "height": block.height.0, "hash": block.hash.to_string() })),
                    "clean": report.is_clean(),
                    "records": report.records,
                    "index_entries": report.index_entries,
                    "bodies": outside.found,
                    "bodies_without_record": outside.orphans,
                    "bodies_gone_before_their_record": outside.half_deleted,
                    "problems": report.problems,
                    "more_problems": report.more,
                });
                println!("{}", serde_json::to_string_pretty(&summary)?);
            } else {
                println!("{outside}\n{report}");
            }
            Ok(report.is_clean())
        })
    }
}
