//! Fees.

use alloy_consensus::Transaction as _;
use alloy_primitives::{U64, U128};
use serde::Serialize;
use serde_json::Value;

use super::Reply;
use crate::{
    block::{BlockParts, decode_receipt},
    rpc::{
        args::{self, Args, BlockRef, Tag},
        context::{Context, unreadable},
        error::RpcError,
    },
};

/// How many blocks `eth_feeHistory` answers for at most, as in go-ethereum.
const MAX_BLOCKS: u64 = 1024;
/// How many percentiles it takes at most, as in go-ethereum.
const MAX_PERCENTILES: usize = 100;

/// The base fee of the next block.
pub(super) fn base_fee(context: &Context<'_>, args: &Args) -> Reply {
    args.at_most(0)?;
    let head = context.block(BlockRef::Tag(Tag::Latest))?;
    let fee = head.and_then(|parts| context.spec().next_base_fee(&parts.header));
    context.reply(&fee.map(U64::from))
}

/// The blob base fee of the newest block.
pub(super) fn blob_base_fee(context: &Context<'_>, args: &Args) -> Reply {
    args.at_most(0)?;
    let head = context.block(BlockRef::Tag(Tag::Latest))?;
    let fee = head.and_then(|parts| context.spec().blob_fee(&parts.header));
    context.reply(&fee.map(U128::from))
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct History {
    oldest_block: U64,
    base_fee_per_gas: Vec<U64>,
    gas_used_ratio: Vec<f64>,
    base_fee_per_blob_gas: Vec<U128>,
    blob_gas_used_ratio: Vec<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reward: Option<Vec<Vec<U128>>>,
}

/// Base fees, use and tips of a range of blocks, and the base fees of the block after it.
pub(super) fn history(context: &Context<'_>, args: &Args) -> Reply {
    let count = args.at_most(3)?.read(0, count)?;
    let percentiles = match args.optional(2) {
        Some(_) => args.read(2, percentiles)?,
        None => Vec::new(),
    };
    let bounds = context.bounds()?;
    // The block that is being made is not known here.
    let newest = context.number(args.block(1)?)?.unwrap_or(bounds.head.number);
    if newest > bounds.head.number {
        return Err(RpcError::invalid_params(format!(
            "request beyond head block: requested {newest}, head {}",
            bounds.head.number
        )));
    }
    let count = count.min(MAX_BLOCKS).min(newest.saturating_add(1));
    let oldest = newest + 1 - count;
    if count > 0 && oldest < bounds.earliest {
        return Err(RpcError::pruned(Some(oldest), bounds.earliest));
    }
    let mut history = History {
        oldest_block: U64::from(if count == 0 { 0 } else { oldest }),
        base_fee_per_gas: Vec::new(),
        gas_used_ratio: Vec::new(),
        base_fee_per_blob_gas: Vec::new(),
        blob_gas_used_ratio: Vec::new(),
        reward: (!percentiles.is_empty()).then(Vec::new),
    };
    for number in oldest..=newest {
        if count == 0 {
            break;
        }
        history.add(context, number, &percentiles, number == newest)?;
    }
    context.reply(&history)
}

impl History {
    fn add(
        &mut self,
        context: &Context<'_>,
        number: u64,
        percentiles: &[f64],
        newest: bool,
    ) -> Result<(), RpcError> {
        let parts = context.block(BlockRef::Number(number))?;
        let parts =
            parts.ok_or_else(|| unreadable(number, "it was replaced while it was read: ask again"))?;
        let (header, spec) = (&parts.header, context.spec());
        self.base_fee_per_gas.push(U64::from(header.base_fee_per_gas.unwrap_or(0)));
        self.base_fee_per_blob_gas.push(U128::from(spec.blob_fee(header).unwrap_or(0)));
        if newest {
            self.base_fee_per_gas.push(U64::from(spec.next_base_fee(header).unwrap_or(0)));
            self.base_fee_per_blob_gas.push(U128::from(spec.next_blob_fee(header).unwrap_or(0)));
        }
        self.gas_used_ratio.push(ratio(header.gas_used, header.gas_limit));
        let max = spec.blob_params(header.timestamp).map_or(0, |params| params.max_blob_gas_per_block());
        self.blob_gas_used_ratio.push(ratio(header.blob_gas_used.unwrap_or(0), max));
        if let Some(all) = &mut self.reward {
            all.push(rewards(context, &parts, percentiles)?);
        }
        Ok(())
    }
}

/// The tips at percentiles of the gas that a block used, cheapest first. All 0 if it has no transactions.
fn rewards(context: &Context<'_>, parts: &BlockParts, percentiles: &[f64]) -> Result<Vec<U128>, RpcError> {
    let number = parts.header.number;
    let base_fee = parts.header.base_fee_per_gas;
    let mut tips = Vec::new();
    let mut before = 0;
    for (index, receipt) in context.receipts(number)?.iter().enumerate() {
        let receipt = decode_receipt(receipt, index).map_err(|error| unreadable(number, error))?;
        let Some(transaction) = parts.transaction(index) else { break };
        let transaction = transaction.map_err(|error| unreadable(number, error))?;
        let price = transaction.effective_gas_price(base_fee);
        let tip = price.saturating_sub(base_fee.unwrap_or(0).into());
        let gas = receipt.cumulative_gas_used();
        tips.push((tip, gas.saturating_sub(before)));
        before = gas;
    }
    tips.sort_by_key(|(tip, _)| *tip);
    let mut tips = tips.into_iter().peekable();
    let mut current = tips.next().unwrap_or_default();
    let mut used = current.1;
    let at = |percentile: &f64| {
        let wanted = (parts.header.gas_used as f64 * percentile / 100.0) as u64;
        while used < wanted {
            let Some(next) = tips.next() else { break };
            current = next;
            used = used.saturating_add(next.1);
        }
        U128::from(current.0)
    };
    Ok(percentiles.iter().map(at).collect())
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// A number of blocks: a quantity, or a plain number as some clients send it.
fn count(value: &Value) -> Result<u64, String> {
    value.as_u64().map_or_else(|| args::quantity(value), Ok)
}

fn percentiles(value: &Value) -> Result<Vec<f64>, String> {
    let values = value.as_array().ok_or("reward percentiles are not a list")?;
    if values.len() > MAX_PERCENTILES {
        return Err(format!("{} reward percentiles, at most {MAX_PERCENTILES} are taken", values.len()));
    }
    let values: Option<Vec<f64>> = values.iter().map(Value::as_f64).collect();
    let values = values.ok_or("a reward percentile is not a number")?;
    let ascending = values.is_sorted() && values.iter().all(|value| (0.0..=100.0).contains(value));
    if ascending { Ok(values) } else { Err("reward percentiles are not ascending from 0 to 100".to_owned()) }
}
