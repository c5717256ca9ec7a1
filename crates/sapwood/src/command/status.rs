//! `sapwood status`: where things stand.

use std::{ops::ControlFlow, sync::Arc};

use clap::Args;

use super::DataArg;
use crate::{
    node::{counting_bar, runtime},
    status::Status,
};

/// Show where a data directory stands.
#[derive(Debug, Args)]
pub(crate) struct ShowStatus {
    #[command(flatten)]
    data: DataArg,
    /// Compute the hash of the UTXO set, as Bitcoin Core's `gettxoutsetinfo muhash`. Reads every record.
    #[arg(long)]
    utxo_hash: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl ShowStatus {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        runtime()?.block_on(async {
            let directory = self.data.directory();
            let (node, store) = directory.open_existing()?;
            let (bar, show) = counting_bar("reading the UTXO set");
            let progress = Arc::new(move |done, total| {
                show(done, total);
                ControlFlow::Continue(())
            });
            let status = Status::of(&directory, &node, &store, self.utxo_hash, progress).await;
            bar.finish_and_clear();
            let status = status?;
            if self.json {
                println!("{}", serde_json::to_string_pretty(&status)?);
            } else {
                print!("{status}");
            }
            Ok(())
        })
    }
}
