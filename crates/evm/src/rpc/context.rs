//! What a method needs to answer one request.

use std::{cell::Cell, io};

use alloy_primitives::B256;
use bytes::Bytes;
use serde::Serialize;

use super::{
    Limits,
    args::{BlockRef, Tag},
    error::RpcError,
};
use crate::{
    block::{BlockParts, split_receipts},
    chain::ChainSpec,
    store::{Bounds, EvmBlocks, Lookup, Segment, StoreError, TxPlace},
    tx_index::TxIndex,
};

/// What one read counts at least, in bytes: the page that a disk reads for it.
const LEAST_READ: u64 = 4096;

/// What a request or a batch may still cost.
pub(crate) struct Budget {
    /// How many bytes the result may have.
    pub(crate) room: usize,
    /// How many bytes may be read.
    reads: Cell<u64>,
}

impl Budget {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { room: limits.response_bytes, reads: Cell::new(limits.read_bytes) }
    }
}

/// The store behind one request, and what the request may cost.
pub(crate) struct Context<'a> {
    pub(crate) blocks: &'a dyn EvmBlocks,
    pub(crate) limits: &'a Limits,
    pub(crate) budget: &'a Budget,
}

impl Context<'_> {
    pub(crate) fn spec(&self) -> &ChainSpec {
        self.blocks.spec()
    }

    pub(crate) fn bounds(&self) -> Result<Bounds, RpcError> {
        let bounds = self.blocks.bounds().map_err(failed)?;
        bounds.ok_or_else(|| RpcError::unavailable("no block has been stored yet"))
    }

    /// Returns the number of a block. `None` if there is no such block yet.
    pub(crate) fn number(&self, block: BlockRef) -> Result<Option<u64>, RpcError> {
        match block {
            BlockRef::Number(number) => Ok(Some(number)),
            BlockRef::Hash(hash) => found(self.blocks.number_of(&hash).map_err(failed)?, None),
            BlockRef::Tag(Tag::Pending) => Ok(None),
            BlockRef::Tag(Tag::Earliest) => Ok(Some(self.bounds()?.earliest)),
            BlockRef::Tag(Tag::Latest) => Ok(Some(self.bounds()?.head.number)),
            BlockRef::Tag(Tag::Safe) => {
                let safe = self.bounds()?.safe;
                safe.map(Some).ok_or_else(|| RpcError::unknown_block("safe block not found"))
            }
            BlockRef::Tag(Tag::Finalized) => {
                let finalized = self.bounds()?.finalized;
                finalized.map(Some).ok_or_else(|| RpcError::unknown_block("finalized block not found"))
            }
        }
    }

    /// Returns a block. `None` if there is no such block.
    pub(crate) fn block(&self, block: BlockRef) -> Result<Option<BlockParts>, RpcError> {
        let Some(number) = self.number(block)? else { return Ok(None) };
        let Some(bytes) = self.segment(number, Segment::Block)? else { return Ok(None) };
        let parts = BlockParts::split(&bytes).map_err(|error| unreadable(number, error))?;
        if parts.header.number != number {
            return Err(unreadable(number, format!("it has the bytes of block {}", parts.header.number)));
        }
        match block {
            // The block was replaced between the two lookups.
            BlockRef::Hash(hash) if hash != parts.hash => Ok(None),
            _ => Ok(Some(parts)),
        }
    }

    /// Returns the transaction index of a block that is there.
    pub(crate) fn tx_index(&self, parts: &BlockParts) -> Result<TxIndex, RpcError> {
        let number = parts.header.number;
        let bytes = self.segment(number, Segment::TxIndex)?;
        let bytes = bytes.ok_or_else(|| unreadable(number, "its transaction index is missing"))?;
        let index = TxIndex::decode(&bytes).map_err(|error| unreadable(number, error))?;
        match index.entries.len() == parts.transactions.len() {
            true => Ok(index),
            false => Err(unreadable(number, "its transaction index has another length")),
        }
    }

    /// Returns the receipts of a block that is there, each as EIP-2718 bytes.
    pub(crate) fn receipts(&self, number: u64) -> Result<Vec<Bytes>, RpcError> {
        let bytes = self.segment(number, Segment::Receipts)?;
        let bytes = bytes.filter(|bytes| !bytes.is_empty()).ok_or_else(|| {
            RpcError::unavailable(format!(
                "the receipts of block {number} are not stored: import it with its receipts"
            ))
        })?;
        split_receipts(&bytes).map_err(|error| unreadable(number, error))
    }

    /// Returns where a transaction is. `None` if it is in no block.
    pub(crate) fn transaction(&self, hash: &B256) -> Result<Option<TxPlace>, RpcError> {
        found(self.blocks.transaction(hash).map_err(failed)?, None)
    }

    fn segment(&self, number: u64, segment: Segment) -> Result<Option<Bytes>, RpcError> {
        let bytes = found(self.blocks.segment(number, segment).map_err(failed)?, Some(number))?;
        let length = bytes.as_ref().map_or(0, |bytes| bytes.len() as u64).max(LEAST_READ);
        let Some(left) = self.budget.reads.get().checked_sub(length) else {
            self.budget.reads.set(0);
            return Err(RpcError::limit(format!(
                "more than {} bytes of blocks to read: ask for fewer blocks (stopped at block {number})",
                self.limits.read_bytes
            )));
        };
        self.budget.reads.set(left);
        Ok(bytes)
    }

    /// Serializes a result, if it is not too long.
    pub(crate) fn reply<T: Serialize>(&self, result: &T) -> Result<Vec<u8>, RpcError> {
        let mut reply = Reply { bytes: Vec::new(), room: self.budget.room };
        match serde_json::to_writer(&mut reply, result) {
            Ok(()) => Ok(reply.bytes),
            Err(error) if error.is_io() => Err(self.too_long()),
            Err(error) => Err(RpcError::internal(error)),
        }
    }

    /// Appends an item to a list that is serialized bit by bit.
    pub(crate) fn append<T: Serialize>(&self, list: &mut Vec<u8>, item: &T) -> Result<(), RpcError> {
        list.push(if list.is_empty() { b'[' } else { b',' });
        serde_json::to_writer(&mut *list, item).map_err(RpcError::internal)?;
        if list.len() > self.budget.room { Err(self.too_long()) } else { Ok(()) }
    }

    fn too_long(&self) -> RpcError {
        RpcError::limit(format!("response too large: at most {} bytes are sent", self.limits.response_bytes))
    }
}

/// Makes an error of what was pruned, and `None` of what is not there.
fn found<T>(lookup: Lookup<T>, number: Option<u64>) -> Result<Option<T>, RpcError> {
    match lookup {
        Lookup::Found(value) => Ok(Some(value)),
        Lookup::Pending | Lookup::NotFound => Ok(None),
        Lookup::Pruned { requested, earliest } => Err(RpcError::pruned(requested.or(number), earliest)),
    }
}

fn failed(error: StoreError) -> RpcError {
    RpcError::internal(format!("the archive cannot be read: {error}"))
}

/// A stored block that cannot be decoded.
pub(crate) fn unreadable(number: u64, problem: impl std::fmt::Display) -> RpcError {
    RpcError::internal(format!("the stored block {number} cannot be read: {problem}"))
}

/// Bytes up to a limit.
struct Reply {
    bytes: Vec<u8>,
    room: usize,
}

impl io::Write for Reply {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.room {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
