//! `eth_getLogs`.
//!
//! # Correctness
//! A range is answered whole or not at all. The bloom filter of a receipt says which addresses and topics it cannot have, so a receipt is
//! decoded only if its filter lets every condition pass; what is decoded is compared exactly.

use alloy_primitives::{Address, B256, Bloom, BloomInput, Log};
use serde_json::{Map, Value};

use super::Reply;
use crate::{
    block::{Part, decode_receipt},
    rlp,
    rpc::{
        args::{self, Args, BlockRef, Tag},
        context::{Context, unreadable},
        error::RpcError,
        views::{LogView, Place},
    },
};

/// The logs that match a filter, in the order of the chain.
pub(super) fn logs(context: &Context<'_>, args: &Args) -> Reply {
    let filter = args.at_most(1)?.read(0, Filter::parse)?;
    let (from, to) = filter.range(context)?;
    let mut found = Vec::new();
    for number in from..=to {
        collect(context, &filter, number, &mut found)?;
    }
    found.extend_from_slice(if found.is_empty() { b"[]" } else { b"]" });
    Ok(found)
}

/// Appends the matching logs of one block.
fn collect(context: &Context<'_>, filter: &Filter, number: u64, found: &mut Vec<u8>) -> Result<(), RpcError> {
    let receipts = context.receipts(number)?;
    let bad = |error| unreadable(number, error);
    let mut matching = Vec::new();
    let mut first_log = 0;
    for (index, receipt) in receipts.iter().enumerate() {
        let (bloom, count) = summary(receipt).map_err(|cause| bad(Part::Receipt(index).rlp()(cause)))?;
        if count > 0 && filter.may_match(&bloom) {
            let receipt = decode_receipt(receipt, index).map_err(bad)?;
            let logs = receipt.logs().iter().zip(first_log..);
            let logs = logs.filter(|(log, _)| filter.matches(log));
            matching.extend(logs.map(|(log, at)| (index, at, log.clone())));
        }
        first_log += count;
    }
    if matching.is_empty() {
        return Ok(());
    }
    let parts = context.block(BlockRef::Number(number))?;
    let parts = parts.ok_or_else(|| unreadable(number, "it was replaced while it was read: ask again"))?;
    let entries = context.tx_index(&parts)?.entries;
    for (index, at, log) in matching {
        let entry = entries.get(index);
        let entry = entry.ok_or_else(|| unreadable(number, "it has more receipts than transactions"))?;
        context.append(found, &LogView::new(Place::new(&parts, index, entry), at, &log))?;
    }
    Ok(())
}

/// The bloom filter of a receipt and how many logs it has, without decoding them.
fn summary(receipt: &[u8]) -> Result<(Bloom, usize), alloy_rlp::Error> {
    let bytes = match receipt {
        [..0x80, rest @ ..] => rest,
        _ => receipt,
    };
    let mut fields = rlp::only_list(bytes)?.payload;
    let (_status, _gas) = (rlp::item(&mut fields)?, rlp::item(&mut fields)?);
    let bloom = rlp::item(&mut fields)?.payload;
    let bloom = Bloom::try_from(bloom).map_err(|_| alloy_rlp::Error::UnexpectedLength)?;
    let count = rlp::count(rlp::list(&mut fields)?.payload)?;
    Ok((bloom, count))
}

/// What logs are asked for.
#[derive(Debug, Default)]
struct Filter {
    blocks: Blocks,
    /// Any of these; none means any at all.
    addresses: Vec<Address>,
    /// For each position any of these; none means any at all.
    topics: Vec<Vec<B256>>,
    /// The bloom filters of addresses and topics, of which one in each list has to be in that of a receipt.
    blooms: Vec<Vec<Bloom>>,
}

#[derive(Debug)]
enum Blocks {
    Hash(B256),
    Range(BlockRef, BlockRef),
}

impl Default for Blocks {
    fn default() -> Self {
        Self::Range(BlockRef::Tag(Tag::Latest), BlockRef::Tag(Tag::Latest))
    }
}

/// How many topics a log has at most.
const MAX_TOPICS: usize = 4;

impl Filter {
    fn parse(value: &Value) -> Result<Self, String> {
        let object = value.as_object().ok_or("not a filter object")?;
        let addresses = match present(object, "address") {
            None => Vec::new(),
            Some(value) => one_or_more(value, |value| args::fixed(value).map(Address::new))?,
        };
        let topics = match present(object, "topics") {
            None => Vec::new(),
            Some(Value::Array(positions)) if positions.len() > MAX_TOPICS => {
                return Err(format!("{} topics, where a log has at most {MAX_TOPICS}", positions.len()));
            }
            Some(Value::Array(positions)) => positions.iter().map(topic).collect::<Result<Vec<_>, _>>()?,
            Some(_) => return Err("topics are not a list".to_owned()),
        };
        let blooms = [addresses.iter().map(bloom).collect()].into_iter();
        let blooms = blooms.chain(topics.iter().map(|any| any.iter().map(bloom).collect())).collect();
        Ok(Self { blocks: blocks(object)?, addresses, topics, blooms })
    }

    /// The first and the last block to look at.
    fn range(&self, context: &Context<'_>) -> Result<(u64, u64), RpcError> {
        let (from, to) = match self.blocks {
            Blocks::Hash(hash) => {
                let number = context.number(BlockRef::Hash(hash))?;
                let number = number.ok_or_else(|| RpcError::new(-32000, "unknown block"))?;
                return Ok((number, number));
            }
            Blocks::Range(from, to) => (from, to),
        };
        let number = |block| {
            let number = context.number(block)?;
            number.ok_or_else(|| RpcError::invalid_params("pending logs are not supported"))
        };
        let (from, to) = (number(from)?, number(to)?);
        let bounds = context.bounds()?;
        if from > to {
            return Err(RpcError::invalid_params("invalid block range params"));
        }
        if to > bounds.head.number {
            return Err(RpcError::invalid_params("block range extends beyond current head block"));
        }
        // Block 0 is kept, but the blocks after it are not: a range from there has a hole.
        if from < bounds.earliest {
            return Err(RpcError::pruned(Some(from), bounds.earliest));
        }
        let limit = context.limits.log_blocks;
        if to - from >= limit {
            let message = format!(
                "the range {from}-{to} has more than {limit} blocks: retry with the range {from}-{}",
                from.saturating_add(limit.saturating_sub(1))
            );
            return Err(RpcError::limit(message));
        }
        Ok((from, to))
    }

    /// Whether a bloom filter allows that a log matches.
    fn may_match(&self, bloom: &Bloom) -> bool {
        self.blooms.iter().all(|any| any.is_empty() || any.iter().any(|one| bloom.contains(one)))
    }

    /// Whether a log matches.
    fn matches(&self, log: &Log) -> bool {
        let any_address = self.addresses.is_empty() || self.addresses.contains(&log.address);
        let found = log.topics();
        // A position that may hold anything still has to be there.
        any_address
            && self.topics.len() <= found.len()
            && self
                .topics
                .iter()
                .zip(found)
                .all(|(wanted, topic)| wanted.is_empty() || wanted.contains(topic))
    }
}

fn bloom(input: impl AsRef<[u8]>) -> Bloom {
    Bloom::from(BloomInput::Raw(input.as_ref()))
}

fn blocks(object: &Map<String, Value>) -> Result<Blocks, String> {
    let (from, to) = (present(object, "fromBlock"), present(object, "toBlock"));
    if let Some(hash) = present(object, "blockHash") {
        return match (from, to) {
            (None, None) => args::hash(hash).map(Blocks::Hash),
            _ => {
                Err("cannot specify both blockHash and fromBlock/toBlock, choose one or the other".to_owned())
            }
        };
    }
    let block = |value: Option<&Value>| value.map_or(Ok(BlockRef::Tag(Tag::Latest)), args::block);
    Ok(Blocks::Range(block(from)?, block(to)?))
}

fn present<'a>(object: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    object.get(key).filter(|value| !value.is_null())
}

/// The topics of one position: `null` and an empty list stand for any.
fn topic(value: &Value) -> Result<Vec<B256>, String> {
    match value {
        Value::Null => Ok(Vec::new()),
        // One `null` among several lets any topic pass.
        Value::Array(any) if any.iter().any(Value::is_null) => Ok(Vec::new()),
        value => one_or_more(value, args::hash),
    }
}

fn one_or_more<T>(value: &Value, read: impl Fn(&Value) -> Result<T, String>) -> Result<Vec<T>, String> {
    match value {
        Value::Array(values) => values.iter().map(read).collect(),
        value => Ok(vec![read(value)?]),
    }
}
