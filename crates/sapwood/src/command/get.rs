//! `sapwood get`: look things up.

use std::{fs::File, io::Write as _, path::PathBuf, time::Duration};

use anyhow::{Context, bail, ensure};
use clap::{Args, Subcommand};
use sapwood_server::{
    http::utxo_set::{UtxoSetState, UtxoSetView},
    views::{BlockView, TxView, UtxoPage, UtxoView},
};
use sapwood_types::{AddressHash, OutPoint, TxId};
use serde_json::Value;

use crate::{
    client::{Access, Target, part},
    node::{counting_bar, runtime},
    show,
};

/// How often progress is asked for.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What to look up.
#[derive(Debug, Subcommand)]
pub(crate) enum Get {
    /// A transaction: its state, what it spends and what became of its outputs.
    Tx(GetTx),
    /// An output, spent or not.
    Utxo {
        #[command(flatten)]
        target: Target,
        /// The output, as TXID:VOUT.
        outpoint: OutPoint,
        #[command(flatten)]
        spends: Spends,
    },
    /// A block that can still be rolled back, with the ids of its transactions.
    Block(GetBlock),
    /// The unspent outputs of an address.
    Address(Address),
    /// The unspent outputs of a payment credential. For directories made with `chain.credential_index`.
    Credential(Credential),
    /// The UTXO set as a whole: outputs, value, and the hash as Bitcoin Core's `gettxoutsetinfo muhash` has it. Reads every record,
    /// unless `chain.utxo_hash` keeps it with each block.
    UtxoSet(Target),
}

#[derive(Debug, Args)]
pub(crate) struct GetTx {
    #[command(flatten)]
    target: Target,
    /// Its id.
    txid: TxId,
    #[command(flatten)]
    spends: Spends,
    /// Write its body to this new file, if it is kept outside the record. It is checked against the id.
    #[arg(long, value_name = "FILE")]
    body: Option<PathBuf>,
    /// Write the body over a file that exists.
    #[arg(long, requires = "body")]
    force: bool,
}

/// An output that a transaction is known to spend.
#[derive(Debug, Args)]
pub(crate) struct Spends {
    /// An output that the transaction spends. If the transaction is not stored, this output may remember it: then it is known to have
    /// been pruned.
    #[arg(long, value_name = "TXID:VOUT")]
    spends: Option<OutPoint>,
}

impl Spends {
    /// The path of a transaction, with what is known of it.
    pub(crate) fn after(&self, path: String) -> String {
        match self.spends {
            Some(outpoint) => format!("{path}?spends={}:{}", outpoint.txid, outpoint.vout),
            None => path,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct GetBlock {
    #[command(flatten)]
    target: Target,
    /// Its height on the applied chain, or its hash.
    #[arg(value_name = "HEIGHT|HASH")]
    block: String,
    /// The number of the first transaction to name.
    #[arg(long, default_value_t = 0)]
    from: u32,
    /// How many transactions to name: 1 to 10000.
    #[arg(long, default_value_t = 1000)]
    limit: u64,
}

#[derive(Debug, Args)]
pub(crate) struct Address {
    #[command(flatten)]
    target: Target,
    /// The address, or a locking script as script:HEX.
    address: String,
    #[command(flatten)]
    page: Page,
}

#[derive(Debug, Args)]
pub(crate) struct Credential {
    #[command(flatten)]
    target: Target,
    /// The credential: 28 bytes as hexadecimal digits.
    credential: AddressHash,
    #[command(flatten)]
    page: Page,
}

/// Which part of a list.
#[derive(Debug, Args)]
struct Page {
    /// By the height at which their records were made: asc for the oldest first, desc for the newest first.
    #[arg(long, default_value = "asc", value_parser = ["asc", "desc"])]
    order: String,
    /// How many at most: 1 to 1000.
    #[arg(long, default_value_t = 100)]
    limit: u64,
    /// Go on after this cursor, as the last answer gave it.
    #[arg(long)]
    cursor: Option<String>,
}

impl Get {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        runtime()?.block_on(async {
            match self {
                Get::Tx(get) => get.run().await,
                Get::Utxo { target, outpoint, spends } => {
                    let client = target.open(Access::Look).await?;
                    let path = spends.after(format!("/api/v1/utxos/{}/{}", outpoint.txid, outpoint.vout));
                    client.show(&client.get::<UtxoView>(&path).await?, show::utxo)
                }
                Get::Block(GetBlock { target, block, from, limit }) => {
                    let client = target.open(Access::Look).await?;
                    let path = format!("/api/v1/blocks/{}?from={from}&limit={limit}", part(block)?);
                    client.show(&client.get::<BlockView>(&path).await?, show::block_view)
                }
                Get::Address(Address { target, address, page }) => {
                    ensure!(
                        !address.is_empty(),
                        "the address is empty: give one, or a locking script as script:HEX"
                    );
                    page.show(&target, &format!("addresses/{}", part(address)?)).await
                }
                Get::Credential(Credential { target, credential, page }) => {
                    page.show(&target, &format!("credentials/{credential}")).await
                }
                Get::UtxoSet(target) => utxo_set(&target).await,
            }
        })
    }
}

async fn utxo_set(target: &Target) -> anyhow::Result<()> {
    let client = target.open(Access::Look).await?;
    let mut set = client.get::<UtxoSetView>("/api/v1/utxo-set").await?;
    if set.view.state != UtxoSetState::Kept {
        let (bar, progress) = counting_bar("reading the UTXO set");
        set = client.post("/api/v1/utxo-set", &Value::Null).await?;
        while set.view.state == UtxoSetState::Counting {
            progress(set.view.done, set.view.total);
            tokio::time::sleep(LOOK_EVERY).await;
            set = client.get("/api/v1/utxo-set").await?;
        }
        bar.finish_and_clear();
    }
    if let Some(error) = &set.view.error {
        bail!("the UTXO set could not be counted: {error}");
    }
    client.show(&set, show::utxo_set)
}

impl GetTx {
    async fn run(self) -> anyhow::Result<()> {
        let Self { target, txid, spends, body, force } = self;
        let access = if body.is_some() { Access::LookAtBodies } else { Access::Look };
        let client = target.open(access).await?;
        let tx = client.get::<TxView>(&spends.after(format!("/api/v1/txs/{txid}"))).await?;
        if let Some(path) = body {
            let bytes = client.bytes(&format!("/api/v1/txs/{txid}/body")).await?;
            let file = match force {
                true => File::create(&path),
                false => File::create_new(&path),
            };
            let wrong =
                || format!("writing {}: give --force to write over a file that exists", path.display());
            file.and_then(|mut file| file.write_all(&bytes)).with_context(wrong)?;
        }
        client.show(&tx, show::tx)
    }
}

impl Page {
    /// Shows this part of the unspent outputs of an owner, who is named as in a path of REST.
    async fn show(self, target: &Target, owner: &str) -> anyhow::Result<()> {
        let Self { order, limit, cursor } = self;
        let client = target.open(Access::Look).await?;
        let mut path = format!("/api/v1/{owner}/utxos?limit={limit}&order={order}");
        if let Some(cursor) = cursor {
            path += &format!("&cursor={}", part(cursor)?);
        }
        client.show(&client.get::<UtxoPage>(&path).await?, show::utxos)
    }
}
