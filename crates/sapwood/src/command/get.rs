//! `sapwood get`: look things up.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use sapwood_sources::bitcoin::{Network, address};
use sapwood_store::{AddressKind, AddressQuery, Cursor, Order, StoreRead as _, Utxo};
use sapwood_types::{AddressHash, OutPoint, Slot, TxId, TxRecord};
use serde_json::{Value, json};

use super::{BodiesArg, DataArg};
use crate::node::{NodeFile, runtime};

/// What to look up.
#[derive(Debug, Subcommand)]
pub(crate) enum Get {
    /// A transaction: its state, what it spends and what became of its outputs.
    Tx {
        #[command(flatten)]
        data: DataArg,
        /// Its id.
        txid: TxId,
        #[command(flatten)]
        bodies: BodiesArg,
        /// Write its body to this file, if it is kept outside the record.
        #[arg(long, value_name = "FILE")]
        body: Option<PathBuf>,
    },
    /// An output, spent or not.
    Utxo {
        #[command(flatten)]
        data: DataArg,
        /// Which, as TXID:NUMBER.
        outpoint: OutPoint,
    },
    /// The unspent outputs of an address.
    Address(Address),
}

#[derive(Debug, Args)]
pub(crate) struct Address {
    #[command(flatten)]
    data: DataArg,
    /// The address, or a locking script in hex.
    address: String,
    /// Newest first.
    #[arg(long)]
    newest_first: bool,
    /// How many at most.
    #[arg(long, default_value_t = 100)]
    limit: usize,
    /// Go on after this cursor, as the last answer gave it.
    #[arg(long, value_name = "HEX")]
    after: Option<String>,
}

impl Get {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        runtime()?.block_on(async {
            let found = match self {
                Get::Tx { data, txid, bodies, body } => {
                    let (node, store) = data.directory().open_existing()?;
                    let Some(record) = store.get(txid).await? else {
                        bail!("transaction {txid} is not here: it was never seen, or it was pruned");
                    };
                    if let Some(file) = body {
                        let Some(external) = record.head.external else {
                            bail!(
                                "transaction {txid} has no body outside its record: it was not large enough"
                            );
                        };
                        let bodies = bodies.open(&data.directory(), &store).await?;
                        let bytes = bodies.get(txid, external).await?;
                        std::fs::write(&file, bytes)
                            .with_context(|| format!("writing {}", file.display()))?;
                    }
                    record_json(&record, node.bitcoin())
                }
                Get::Utxo { data, outpoint } => {
                    let (node, store) = data.directory().open_existing()?;
                    let Some(utxo) = store.outputs(vec![outpoint]).await?.pop().flatten() else {
                        bail!("{outpoint} is not here: it was never seen, or its transaction was pruned");
                    };
                    utxo_json(&utxo, node.bitcoin())
                }
                Get::Address(query) => query.run().await?,
            };
            println!("{}", serde_json::to_string_pretty(&found)?);
            Ok(())
        })
    }
}

impl Address {
    async fn run(self) -> anyhow::Result<Value> {
        let directory = self.data.directory();
        let node = directory.expect()?;
        if !node.address_index {
            bail!(
                "{} has no address index: import with --address-index into a new directory",
                self.data.data.display()
            );
        }
        let script = script_of(&self.address, &node)?;
        let (_, store) = directory.open_existing()?;
        let after = self.after.as_deref().map(parse_hex).transpose().context("the cursor")?;
        let query = AddressQuery {
            kind: AddressKind::Address,
            hash: AddressHash::of_script(&script),
            order: if self.newest_first { Order::Descending } else { Order::Ascending },
            after: after.map(|bytes| Cursor(bytes.into())),
            limit: self.limit.clamp(1, 10_000),
        };
        let page = store.by_address(query).await?;
        Ok(json!({
            "utxos": page.items.iter().map(|utxo| utxo_json(utxo, node.bitcoin())).collect::<Vec<_>>(),
            "next": page.next.map(|cursor| hex(&cursor.0)),
        }))
    }
}

/// The locking script of an address in the chain's own notation, or of a script in hex.
fn script_of(text: &str, node: &NodeFile) -> anyhow::Result<Vec<u8>> {
    if let Some(network) = node.bitcoin() {
        match address::script_of(text, network) {
            Ok(script) => return Ok(script),
            Err(error) if parse_hex(text).is_err() => return Err(error.into()),
            Err(_) => {}
        }
    }
    parse_hex(text).with_context(|| format!("{text:?} is neither an address nor a script in hex"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse_hex(text: &str) -> anyhow::Result<Vec<u8>> {
    let digit = |letter: u8| char::from(letter).to_digit(16).map(|digit| digit as u8);
    if !text.len().is_multiple_of(2) {
        bail!("an odd number of hex digits");
    }
    let byte = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
    text.as_bytes().chunks(2).map(byte).collect::<Option<_>>().context("not hex digits")
}

fn slot_json(slot: &Slot) -> Value {
    match slot {
        Slot::Unspent => json!({ "state": "unspent" }),
        Slot::Frozen => json!({ "state": "frozen" }),
        Slot::Unspendable => json!({ "state": "unspendable" }),
        Slot::Spent { spender, child_mined_at } => json!({
            "state": "spent",
            "by": spender.child.to_string(),
            "input": spender.vin,
            "mined_at": child_mined_at.map(|height| height.0),
        }),
        Slot::Settled { child_mined_at } => {
            json!({ "state": "spent", "by": null, "mined_at": child_mined_at.0 })
        }
    }
}

fn output_json(output: &sapwood_types::Output, network: Option<Network>) -> Value {
    json!({
        "amount": output.value,
        "script": hex(&output.script),
        "address": network.and_then(|network| address::of_script(&output.script, network)),
        "extra": if output.extra.is_empty() { None } else { Some(hex(&output.extra)) },
    })
}

fn utxo_json(utxo: &Utxo, network: Option<Network>) -> Value {
    json!({
        "txid": utxo.outpoint.txid.to_string(),
        "output": utxo.outpoint.vout,
        "value": output_json(&utxo.output, network),
        "slot": slot_json(&utxo.slot),
        "mined_at": utxo.mined_at.map(|height| height.0),
        "created_at_height": utxo.created_height.0,
        "coinbase": utxo.coinbase,
    })
}

fn record_json(record: &TxRecord, network: Option<Network>) -> Value {
    let head = &record.head;
    let height = |height: Option<sapwood_types::Height>| height.map(|height| height.0);
    let outputs = record.outputs.iter().zip(&record.slots).enumerate().map(|(number, (output, slot))| {
        json!({
            "output": number,
            "value": output.as_ref().map(|output| output_json(output, network)),
            "slot": slot_json(slot),
        })
    });
    json!({
        "txid": record.txid.to_string(),
        "coinbase": head.coinbase,
        "mined_at": height(head.mined_at()),
        "unmined_since": height(head.unmined_since()),
        "conflicting_since": height(head.conflicting_since),
        "locked": head.locked,
        "preserve_until": height(head.preserve_until),
        "spendable_from": height(head.spending_height),
        "created_at_height": head.created_height.0,
        "blocks": head.blocks.iter().map(|block| json!({
            "id": block.block_id, "height": block.height.0, "on_longest_chain": block.on_longest_chain,
        })).collect::<Vec<_>>(),
        "version": record.body.version,
        "locktime": record.body.locktime,
        "fee": record.body.fee,
        "size": record.body.size,
        "body": head.external.map(|external| sapwood_pruner::bodies::key(&record.txid, external).to_string()),
        "inputs": record.body.inputs.iter().map(|input| input.outpoint.to_string()).collect::<Vec<_>>(),
        "outputs": outputs.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_is_read_and_written() {
        assert_eq!(parse_hex("00ffA0").unwrap(), [0, 255, 160]);
        assert_eq!(hex(&[0, 255, 160]), "00ffa0");
        assert!(parse_hex("0").is_err() && parse_hex("zz").is_err() && parse_hex("äö").is_err());
    }
}
