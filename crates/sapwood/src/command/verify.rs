//! `sapwood verify`: is everything as it should be?

use std::time::Duration;

use anyhow::bail;
use clap::Args;
use sapwood_server::http::verify::VerifyView;
use serde_json::Value;

use crate::{
    client::{Access, Target},
    node::{counting_bar, runtime},
    show,
};

/// How often progress is asked for.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Check every record, every index, every body and the UTXO hash.
#[derive(Debug, Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    target: Target,
}

impl Verify {
    /// Says whether nothing is broken.
    pub(crate) fn run(self) -> anyhow::Result<bool> {
        runtime()?.block_on(async {
            let client = self.target.open(Access::LookAtBodies).await?;
            let (bar, progress) = counting_bar("verifying");
            let mut found = client.post::<VerifyView>("/api/v1/verify", &Value::Null).await?;
            while found.view.state == "running" {
                progress(found.view.done, found.view.total);
                tokio::time::sleep(LOOK_EVERY).await;
                found = client.get("/api/v1/verify").await?;
            }
            bar.finish_and_clear();
            if let Some(error) = &found.view.error {
                bail!("verifying failed: {error}");
            }
            client.show(&found, show::verified)?;
            Ok(found.view.clean == Some(true))
        })
    }
}
