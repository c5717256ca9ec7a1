//! Blocks that come, and blocks that are replaced.

use std::{ops::ControlFlow, sync::atomic::Ordering};

use sapwood_ledger::engine::{Scan, Table};
use sapwood_types::Height;

use crate::{
    Archive,
    block::{BlockMeta, BlockPoint, Identities, NewBlock, Segment},
    core::{Core, block_row},
    draft::Draft,
    error::{AppendError, ArchiveError},
    export::consumers,
    journal::Removal,
    keys,
    options::Finality,
    rows,
    state::{Oldest, State},
    view::height_of,
};

/// Whether a block has to follow the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continuity {
    /// It has the next height and the right parent.
    Strict,
    /// It may lie higher: the blocks in between are not in the archive and never will be. If it has the next height,
    /// its parent is checked.
    AllowGap,
}

/// What was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The newest block. `None` if the archive is empty.
    pub head: Option<BlockPoint>,
    /// How many blocks were removed before.
    pub replaced: u64,
    /// Region bytes that the new blocks take.
    pub region_bytes: u64,
    /// Whether pruning is due, because enough blocks have come or because the archive is above its hard limit.
    pub tick_due: bool,
}

impl Archive {
    /// Adds blocks behind the last one, all in one commit. When this returns they are as durable as
    /// [`ArchiveOptions::durability`](crate::ArchiveOptions::durability) says.
    ///
    /// # Errors
    /// [`AppendError`]. Nothing was changed.
    pub fn append(&self, blocks: &[NewBlock], continuity: Continuity) -> Result<Appended, AppendError> {
        self.apply(None, blocks, continuity)
    }

    /// Replaces all blocks above `fork` by others, all in one commit. Without blocks it only removes.
    ///
    /// # Errors
    /// [`AppendError::BelowFloor`] if blocks would be replaced that are final, and as [`append`](Self::append).
    pub fn replace_above(&self, fork: Height, blocks: &[NewBlock]) -> Result<Appended, AppendError> {
        self.apply(Some(fork), blocks, Continuity::Strict)
    }

    /// Reports the highest block that the chain says is final. A lower one than before is ignored. Has an effect with
    /// [`Finality::Reported`] only.
    ///
    /// # Errors
    /// Those of a commit.
    pub fn set_finalized(&self, height: Height) -> Result<(), ArchiveError> {
        let core = &*self.core;
        let mut writer = core.writer.lock();
        let mut draft = Draft::new(core, &mut writer)?;
        draft.state.finalized = draft.state.finalized.max(Some(height));
        raise_floor(core, &mut draft.state);
        draft.commit_if_changed()
    }

    fn apply(
        &self,
        fork: Option<Height>,
        blocks: &[NewBlock],
        continuity: Continuity,
    ) -> Result<Appended, AppendError> {
        let core = &*self.core;
        blocks.iter().try_for_each(|block| check_content(core, block))?;
        check_room(core, blocks)?;
        let mut writer = core.writer.lock();
        if !writer.waiting.is_empty() {
            core.release(&mut writer)?;
        }
        let mut draft = Draft::new(core, &mut writer)?;
        let written = draft.state.totals.written_bytes;
        let replaced = fork.map_or(Ok(0), |fork| remove_above(&mut draft, fork))?;
        for block in blocks {
            check_link(&draft, block, continuity, fork)?;
            add(&mut draft, block)?;
            raise_floor(core, &mut draft.state);
        }
        let region_bytes = draft.state.totals.written_bytes - written;
        draft.commit_if_changed()?;
        let since_tick = core.since_tick.load(Ordering::Relaxed).saturating_add(blocks.len() as u64);
        core.since_tick.store(since_tick, Ordering::Relaxed);
        let head = writer.state.head;
        drop(writer);
        Ok(Appended { head, replaced, region_bytes, tick_due: self.tick_is_due() })
    }
}

/// Refuses a block that could never be stored.
fn check_content(core: &Core, block: &NewBlock) -> Result<(), AppendError> {
    let limit = core.options.max_segment_bytes;
    for segment in Segment::ALL {
        let len = block.segments[usize::from(segment.number())].len() as u64;
        if len > limit.into() {
            return Err(AppendError::SegmentTooLarge { height: block.height, segment, len, limit });
        }
    }
    let mut sorted = block.txs.clone();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(AppendError::DuplicateTx { height: block.height, txid: pair[0] }),
        None => Ok(()),
    }
}

/// Refuses blocks while the disk is almost full.
fn check_room(core: &Core, blocks: &[NewBlock]) -> Result<(), AppendError> {
    let reserve = core.options.min_free_bytes;
    if reserve == 0 || blocks.is_empty() {
        return Ok(());
    }
    let space = core.file.disk_space().map_err(core.io("measuring the disk"))?;
    match space.map(|space| space.free_bytes) {
        Some(free) if free < reserve => Err(AppendError::NoRoom { free, reserve }),
        _ => Ok(()),
    }
}

fn check_link(
    draft: &Draft<'_>,
    block: &NewBlock,
    continuity: Continuity,
    fork: Option<Height>,
) -> Result<(), AppendError> {
    if let Some(head) = draft.state.head {
        let is_next = block.height > head.height && block.height == head.height.next();
        let is_later = continuity == Continuity::AllowGap && block.height > head.height;
        if !is_next && !is_later {
            return Err(AppendError::WrongHeight { head: head.height, found: block.height });
        }
        if is_next && block.parent != head.hash {
            return Err(AppendError::WrongParent {
                height: block.height,
                expected: head.hash,
                found: block.parent,
            });
        }
    }
    match height_of(&*draft.view, &block.hash)? {
        // It is being replaced, perhaps by itself.
        Some(archived) if fork.is_some_and(|fork| archived > fork) => Ok(()),
        Some(archived) => {
            Err(AppendError::DuplicateHash { height: block.height, hash: block.hash, archived })
        }
        None => Ok(()),
    }
}

/// Adds one block to a draft.
fn add(draft: &mut Draft<'_>, block: &NewBlock) -> Result<(), ArchiveError> {
    let NewBlock { height, hash, parent, time, txs, segments } = block;
    let mut stored = <[Vec<_>; 3]>::default();
    for (pieces, payload) in stored.iter_mut().zip(segments) {
        *pieces = draft.store(payload)?;
    }
    let meta = BlockMeta {
        height: *height,
        hash: *hash,
        parent: *parent,
        time: *time,
        txs: txs.len() as u32,
        segments: stored,
    };
    dequeue(draft, block)?;
    let writes = &mut draft.writes;
    writes.put(keys::BLOCKS, &keys::block(*height), &meta.encode());
    writes.put(keys::IDS, &keys::ids(*height), &Identities { hash: *hash, txs: txs.clone() }.encode());
    writes.put(keys::POINTS, &keys::hash(hash), &height.0.to_be_bytes());
    for (index, txid) in txs.iter().enumerate() {
        writes.put(keys::POINTS, &keys::location(txid, *height), &(index as u32).to_be_bytes());
    }
    let state = &mut draft.state;
    state.head = Some(meta.point());
    state.oldest.get_or_insert(Oldest { height: *height, time: *time });
    state.totals.blocks += 1;
    state.totals.payload_bytes += meta.payload_bytes();
    if state.keep_genesis && *height == Height::GENESIS {
        state.pinned = meta.region_bytes();
    }
    Ok(())
}

/// Takes the transactions of a block out of the queue.
fn dequeue(draft: &mut Draft<'_>, block: &NewBlock) -> Result<(), ArchiveError> {
    if draft.state.totals.queued == 0 {
        return Ok(());
    }
    let queued: Vec<_> = block.txs.iter().map(keys::queued).collect();
    let refs: Vec<&[u8]> = queued.iter().map(|key| &**key).collect();
    for (key, row) in refs.iter().zip(rows::get_many(&*draft.view, keys::POINTS, &refs)?) {
        if row?.is_some() && draft.dequeued.insert(key.to_vec()) {
            draft.writes.delete(keys::POINTS, key);
            draft.state.totals.queued = draft.state.totals.queued.saturating_sub(1);
        }
    }
    Ok(())
}

/// Removes all blocks above a height. Returns how many there were.
fn remove_above(draft: &mut Draft<'_>, fork: Height) -> Result<u64, AppendError> {
    let Some(head) = draft.state.head.filter(|head| head.height > fork) else { return Ok(0) };
    let least = draft.state.floor.max(draft.state.boundary.map(Height::next)).unwrap_or_default();
    if fork < least {
        return Err(AppendError::BelowFloor { fork, floor: least });
    }
    let mut above = Vec::new();
    crate::view::blocks_from(&*draft.view, fork.next(), |_, block| {
        above.push(block?);
        Ok(ControlFlow::Continue(()))
    })?;
    let left = last_at_or_below(draft, fork)?;
    if left.is_none() && draft.state.boundary.is_some() {
        return Err(AppendError::BelowFloor { fork, floor: head.height });
    }
    for block in above.iter().rev() {
        draft.remove_block(block, Removal::Replaced)?;
    }
    draft.state.head = left;
    if left.is_none() {
        draft.state.oldest = None;
    }
    consumers::lower(draft, left.map(|left| left.height))?;
    Ok(above.len() as u64)
}

/// The last block at or below a height and above the boundary. `None` if there is none.
fn last_at_or_below(draft: &Draft<'_>, height: Height) -> Result<Option<BlockPoint>, ArchiveError> {
    const TABLE: Table = keys::BLOCKS;
    let from = keys::block(draft.state.boundary.map_or(Height::GENESIS, Height::next));
    let to = [&keys::block(height)[..], &[0]].concat();
    let range = Scan { table: TABLE, from: &from, to: Some(&to), reverse: true, fill_cache: true };
    let mut last = None;
    rows::scan(&*draft.view, &range, |key, value| {
        let height = keys::height_in(key).unwrap_or_default();
        last = Some(block_row(height, value)?.point());
        Ok(ControlFlow::Break(()))
    })?;
    Ok(last)
}

/// Moves the floor up to the lowest block that a reorg can return to.
pub(crate) fn raise_floor(core: &Core, state: &mut State) {
    let Some(head) = state.head else { return };
    let window = head.height.0.checked_sub(core.options.reorg_window).map(Height);
    let floor = match core.options.finality {
        Finality::Depth => window,
        Finality::Reported => state.finalized.min(window),
    };
    state.floor = state.floor.max(floor);
}
