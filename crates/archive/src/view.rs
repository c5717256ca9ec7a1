//! Reading: one view of the archive, and everything that is looked up in it.
//!
//! # Correctness
//! A view registers as a reader before it takes its snapshot of the rows, and stays one until it is dropped. So a
//! region that a row of the snapshot refers to is not written over while the view lives. Each blob is compared with its
//! checksum, so damage is an error and never handed out.

use std::ops::ControlFlow;

use bytes::{Bytes, BytesMut};
use sapwood_ledger::engine::{Scan, View};
use sapwood_types::{BlockHash, Height, TxId};

use crate::{
    Archive,
    arena::{Piece, readers::Guard},
    block::{BlockMeta, BlockPoint, Identities, Segment},
    core::{Core, block_row},
    draft::region,
    error::ArchiveError,
    keys, rows,
    state::State,
};

/// What became of something that was looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup<T> {
    /// It is there.
    Found(T),
    /// The transaction is queued and in no block yet.
    Pending,
    /// It was there and is pruned.
    Pruned(Pruned),
    /// It is not there. It may have been and be pruned: it is no longer remembered what was.
    PossiblyPruned(Pruned),
    /// It is not there, and never was.
    NotFound,
}

/// What was pruned, and how far pruning got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Pruned {
    /// The block that was looked up, or the one that the transaction was in. `None` if that is not known any more.
    pub requested: Option<Height>,
    /// Blocks at or below it are pruned.
    pub boundary: Height,
    /// The oldest block that is kept. `None` if there is none.
    pub earliest: Option<Height>,
}

impl<T> Lookup<T> {
    /// Returns what was found. `None` if nothing was.
    pub fn found(self) -> Option<T> {
        match self {
            Lookup::Found(found) => Some(found),
            _ => None,
        }
    }

    /// Applies a function to what was found.
    pub fn and_then<U, E>(self, next: impl FnOnce(T) -> Result<Lookup<U>, E>) -> Result<Lookup<U>, E> {
        Ok(match self {
            Lookup::Found(found) => next(found)?,
            Lookup::Pending => Lookup::Pending,
            Lookup::Pruned(pruned) => Lookup::Pruned(pruned),
            Lookup::PossiblyPruned(pruned) => Lookup::PossiblyPruned(pruned),
            Lookup::NotFound => Lookup::NotFound,
        })
    }
}

/// Where a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TxLocation {
    /// The block it is in.
    pub height: Height,
    /// Its number in the block, from 0.
    pub index: u32,
}

/// The archive as of one commit. While it lives, nothing that it can read is written over; hold it for one request, not
/// longer.
pub struct ArchiveView<'a> {
    core: &'a Core,
    /// After the snapshot: fields are dropped in order.
    rows: Box<dyn View + 'a>,
    pub(crate) state: State,
    _guard: Guard<'a>,
}

impl Archive {
    /// Takes a view of the archive.
    ///
    /// # Errors
    /// Those of the engine, and [`ArchiveError::DamagedRow`] if the state cannot be read.
    pub fn view(&self) -> Result<ArchiveView<'_>, ArchiveError> {
        let core = &*self.core;
        let guard = core.readers.enter();
        let view = core.engine.view()?;
        let state = rows::get(&*view, keys::META, keys::STATE_KEY)?;
        let state = state.ok_or_else(|| ArchiveError::Absent { place: core.engine.place() })?;
        let state = State::decode(&state).map_err(ArchiveError::damaged("the state of the archive"))?;
        Ok(ArchiveView { core, rows: view, state, _guard: guard })
    }

    /// Looks up a block by height. See [`ArchiveView::block`].
    ///
    /// # Errors
    /// As there.
    pub fn block(&self, height: Height) -> Result<Lookup<BlockMeta>, ArchiveError> {
        self.view()?.block(height)
    }

    /// Reads a payload of a block. See [`ArchiveView::segment`].
    ///
    /// # Errors
    /// As there.
    pub fn segment(&self, height: Height, segment: Segment) -> Result<Lookup<Bytes>, ArchiveError> {
        self.view()?.segment(height, segment)
    }

    /// Looks up a transaction. See [`ArchiveView::tx`].
    ///
    /// # Errors
    /// As there.
    pub fn tx(&self, txid: &TxId) -> Result<Lookup<TxLocation>, ArchiveError> {
        self.view()?.tx(txid)
    }
}

impl ArchiveView<'_> {
    /// Returns the newest block. `None` if there is none.
    pub fn head(&self) -> Option<BlockPoint> {
        self.state.head
    }

    /// Returns the height up to which blocks are pruned, included. `None` before the first prune.
    pub fn boundary(&self) -> Option<Height> {
        self.state.boundary
    }

    /// Returns the oldest block that is kept, without a block 0 that is never pruned. `None` if there is none.
    pub fn earliest(&self) -> Option<Height> {
        self.state.oldest.map(|oldest| oldest.height)
    }

    /// Returns the lowest block that a reorg can return to. `None` if that could be any.
    pub fn floor(&self) -> Option<Height> {
        self.state.floor
    }

    /// Returns the highest block that the chain reported as final. `None` if it reported none.
    pub fn finalized(&self) -> Option<Height> {
        self.state.finalized
    }

    /// Looks up a block by height: [`Lookup::Pruned`] at or below the boundary, else [`Lookup::NotFound`] if it is
    /// absent.
    ///
    /// # Errors
    /// [`ArchiveError::DamagedRow`] if its row cannot be read, and those of the engine.
    pub fn block(&self, height: Height) -> Result<Lookup<BlockMeta>, ArchiveError> {
        if let Some(pruned) = self.pruned(Some(height)).filter(|_| self.state.is_pruned(height)) {
            return Ok(Lookup::Pruned(pruned));
        }
        let row = rows::get(&*self.rows, keys::BLOCKS, &keys::block(height))?;
        Ok(match row {
            Some(row) => Lookup::Found(block_row(height, &row)?),
            None => Lookup::NotFound,
        })
    }

    /// Looks up a block by hash. [`Lookup::PossiblyPruned`] if it is absent and pruned blocks were forgotten.
    ///
    /// # Errors
    /// As [`block`](Self::block).
    pub fn block_by_hash(&self, hash: &BlockHash) -> Result<Lookup<BlockMeta>, ArchiveError> {
        match height_of(&*self.rows, hash)? {
            Some(height) => self.block(height),
            None => Ok(self.unknown()),
        }
    }

    /// Reads a payload of a block.
    ///
    /// # Errors
    /// [`ArchiveError::DamagedBlob`] if its bytes are not those that were written, and as [`block`](Self::block).
    pub fn segment(&self, height: Height, segment: Segment) -> Result<Lookup<Bytes>, ArchiveError> {
        self.block(height)?.and_then(|block| self.payload(&block, segment).map(Lookup::Found))
    }

    /// Reads a payload of a block that was looked up in this view.
    ///
    /// # Errors
    /// [`ArchiveError::DamagedBlob`], and [`ArchiveError::StalePointer`] if the block was looked up in another view.
    pub fn payload(&self, block: &BlockMeta, segment: Segment) -> Result<Bytes, ArchiveError> {
        match block.pieces(segment) {
            [piece] => self.blob(piece),
            pieces => {
                let mut payload = BytesMut::with_capacity(block.len(segment) as usize);
                pieces
                    .iter()
                    .try_for_each(|piece| self.blob(piece).map(|blob| payload.extend_from_slice(&blob)))?;
                Ok(payload.freeze())
            }
        }
    }

    /// Reads `len` bytes of a payload from `offset` on, or as many as there are. Pieces outside of the range are not
    /// read.
    ///
    /// # Errors
    /// As [`payload`](Self::payload).
    pub fn payload_range(
        &self,
        block: &BlockMeta,
        segment: Segment,
        offset: u64,
        len: u64,
    ) -> Result<Bytes, ArchiveError> {
        let end = offset.saturating_add(len).min(block.len(segment));
        let mut range = BytesMut::with_capacity(end.saturating_sub(offset) as usize);
        let mut begin = 0;
        for piece in block.pieces(segment) {
            let next = begin + u64::from(piece.pointer.len);
            if begin < end && offset < next {
                let (from, to) = (offset.max(begin) - begin, end.min(next) - begin);
                range.extend_from_slice(&self.blob(piece)?[from as usize..to as usize]);
            }
            begin = next;
        }
        Ok(range.freeze())
    }

    /// Reads a blob and compares it with its checksum. A region that has another owner, or none, is not read.
    pub(crate) fn blob(&self, piece: &Piece) -> Result<Bytes, ArchiveError> {
        let Piece { pointer, checksum } = *piece;
        let stale = |found: String| ArchiveError::StalePointer { pointer, found };
        match region(&*self.rows, pointer.offset)? {
            Some(region) if (region.class, region.generation) != (pointer.class, pointer.generation) => {
                let found = format!("class {}, generation {}", region.class, region.generation);
                return Err(stale(found));
            }
            Some(region) if region.is_free() => return Err(stale("the region is free".into())),
            Some(_) => {}
            None => return Err(stale("there is no such region".into())),
        }
        let mut bytes = vec![0; pointer.len as usize];
        self.core.file.read_at(pointer.offset, &mut bytes).map_err(self.core.io("reading a block"))?;
        match crc32c::crc32c(&bytes) {
            found if found == checksum => Ok(bytes.into()),
            found => Err(ArchiveError::DamagedBlob { pointer, expected: checksum, found }),
        }
    }

    /// Returns the ids of a block's transactions, in order.
    ///
    /// # Errors
    /// As [`block`](Self::block).
    pub fn tx_ids(&self, height: Height) -> Result<Lookup<Vec<TxId>>, ArchiveError> {
        self.block(height)?.and_then(|_| {
            let row = rows::get(&*self.rows, keys::IDS, &keys::ids(height))?;
            let damaged = ArchiveError::damaged(format!("the list of transactions of block {height}"));
            let ids = row.map(|row| Identities::decode(&row)).transpose().map_err(damaged)?;
            Ok(ids.map_or(Lookup::NotFound, |ids| Lookup::Found(ids.txs)))
        })
    }

    /// Looks up a transaction: where it is included last, [`Lookup::Pending`] if it is queued, [`Lookup::Pruned`] if
    /// its block is pruned and this is remembered. [`Lookup::PossiblyPruned`] if it is absent and pruned transactions
    /// were forgotten.
    ///
    /// # Errors
    /// [`ArchiveError::DamagedRow`] if its row cannot be read, and those of the engine.
    pub fn tx(&self, txid: &TxId) -> Result<Lookup<TxLocation>, ArchiveError> {
        let (from, to) = keys::locations(txid);
        let range = Scan { table: keys::POINTS, from: &from, to: Some(&to), reverse: true, fill_cache: true };
        let mut last = None;
        rows::scan(&*self.rows, &range, |key, value| {
            last = Some(location(key, value)?);
            Ok(ControlFlow::Break(()))
        })?;
        if let Some(location) = last.filter(|location| !self.state.is_pruned(location.height)) {
            return Ok(Lookup::Found(location));
        }
        if self.state.totals.queued > 0
            && rows::get(&*self.rows, keys::POINTS, &keys::queued(txid))?.is_some()
        {
            return Ok(Lookup::Pending);
        }
        Ok(match (last, self.pruned(last.map(|location| location.height))) {
            (Some(_), Some(pruned)) => Lookup::Pruned(pruned),
            _ => self.unknown(),
        })
    }

    fn pruned(&self, requested: Option<Height>) -> Option<Pruned> {
        self.state.boundary.map(|boundary| Pruned { requested, boundary, earliest: self.earliest() })
    }

    /// What is to be said of a hash or transaction that no row has.
    fn unknown<T>(&self) -> Lookup<T> {
        match self.pruned(None).filter(|_| self.state.forgotten.is_some()) {
            Some(pruned) => Lookup::PossiblyPruned(pruned),
            None => Lookup::NotFound,
        }
    }

    /// Calls `each` with every block from `from` on, upwards, until it breaks. A block whose row is damaged is an error
    /// for its height.
    pub(crate) fn blocks_from(
        &self,
        from: Height,
        each: impl FnMut(Height, Result<BlockMeta, ArchiveError>) -> Result<ControlFlow<()>, ArchiveError>,
    ) -> Result<(), ArchiveError> {
        blocks_from(&*self.rows, from, each)
    }

    pub(crate) fn rows(&self) -> &dyn View {
        &*self.rows
    }
}

/// The height of the block with a hash, pruned or not. `None` if it is not known.
pub(crate) fn height_of(view: &dyn View, hash: &BlockHash) -> Result<Option<Height>, ArchiveError> {
    let Some(row) = rows::get(view, keys::POINTS, &keys::hash(hash))? else { return Ok(None) };
    match <[u8; 4]>::try_from(&row[..]) {
        Ok(height) => Ok(Some(Height(u32::from_be_bytes(height)))),
        Err(_) => Err(ArchiveError::DamagedRow {
            row: format!("the height of block {hash}"),
            cause: format!("{} bytes instead of 4", row.len()),
        }),
    }
}

/// A transaction's location, from its row.
pub(crate) fn location(key: &[u8], value: &[u8]) -> Result<TxLocation, ArchiveError> {
    let height = keys::height_in(key);
    match (height, <[u8; 4]>::try_from(value)) {
        (Some(height), Ok(index)) => Ok(TxLocation { height, index: u32::from_be_bytes(index) }),
        _ => Err(ArchiveError::DamagedRow {
            row: rows::name(keys::POINTS, key),
            cause: format!("{} bytes instead of 4", value.len()),
        }),
    }
}

/// Calls `each` with every block from `from` on, upwards, until it breaks.
pub(crate) fn blocks_from(
    view: &dyn View,
    from: Height,
    mut each: impl FnMut(Height, Result<BlockMeta, ArchiveError>) -> Result<ControlFlow<()>, ArchiveError>,
) -> Result<(), ArchiveError> {
    let from = keys::block(from);
    let range = Scan {
        table: keys::BLOCKS,
        from: &from,
        to: Some(keys::BLOCKS_END),
        reverse: false,
        fill_cache: false,
    };
    rows::scan(view, &range, |key, value| match keys::height_in(key) {
        Some(height) => each(height, block_row(height, value)),
        None => Ok(ControlFlow::Continue(())),
    })
}
