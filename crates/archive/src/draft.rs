//! One commit in the making: rows, and the regions they allocate, quarantine and free.
//!
//! # Correctness
//! A draft works on a copy of the state and takes regions from the free lists. It becomes true as a whole when its
//! commit has succeeded; when it is dropped before, the regions go back and nothing has happened. Bytes of blobs are
//! written while the draft is put together, into regions that no committed row refers to, and are on the device before
//! the commit if that was asked for.

use std::{collections::BTreeSet, io};

use sapwood_ledger::engine::{View, WriteSet};
use sapwood_types::Height;

use crate::{
    arena::{BlobPtr, Piece, Region, RegionState, space::Taken},
    block::{BlockMeta, Identities},
    core::{Core, Published, Waiting, Writer, block_row, io_error},
    error::ArchiveError,
    journal::{Entry, Removal},
    keys,
    options::{Durability, OpenMode, Punch},
    prune::policy::StoredPolicy,
    rows,
    state::State,
};

pub(crate) struct Draft<'a> {
    core: &'a Core,
    writer: &'a mut Writer,
    /// The rows as of the last commit.
    pub(crate) view: Box<dyn View + 'a>,
    /// The state after this commit.
    pub(crate) state: State,
    pub(crate) writes: WriteSet,
    policy: Option<StoredPolicy>,
    taken: Vec<Taken>,
    freed: Vec<(u32, u64)>,
    quarantined: Vec<(u64, Vec<BlobPtr>)>,
    /// Regions that this commit quarantines or frees.
    touched: BTreeSet<u64>,
    /// Keys of queued transactions that this commit takes out of the queue.
    pub(crate) dequeued: BTreeSet<Vec<u8>>,
    /// Journal entries at the front of those waiting that this commit finishes.
    released: usize,
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        // Empty after a commit.
        self.writer.space.put_back(std::mem::take(&mut self.taken));
    }
}

impl<'a> Draft<'a> {
    /// Begins a commit.
    ///
    /// # Errors
    /// [`ArchiveError::ReadOnly`] and [`ArchiveError::Poisoned`].
    pub(crate) fn new(core: &'a Core, writer: &'a mut Writer) -> Result<Self, ArchiveError> {
        if core.options.mode == OpenMode::ReadOnly {
            return Err(ArchiveError::ReadOnly { place: core.file.place() });
        }
        if let Some(cause) = &writer.poisoned {
            return Err(ArchiveError::Poisoned { cause: cause.clone() });
        }
        Ok(Self {
            view: core.engine.view()?,
            state: writer.state.clone(),
            core,
            writer,
            writes: WriteSet::default(),
            policy: None,
            taken: Vec::new(),
            freed: Vec::new(),
            quarantined: Vec::new(),
            touched: BTreeSet::new(),
            dequeued: BTreeSet::new(),
            released: 0,
        })
    }

    pub(crate) fn policy(&self) -> &StoredPolicy {
        self.policy.as_ref().unwrap_or(&self.writer.policy)
    }

    pub(crate) fn set_policy(&mut self, policy: StoredPolicy) {
        self.writes.put(keys::META, keys::POLICY_KEY, &policy.encode());
        self.policy = Some(policy);
    }

    /// Keeps block 0 from now on, unless it is pruned already.
    pub(crate) fn keep_genesis(&mut self) -> Result<(), ArchiveError> {
        if self.state.is_pruned(Height::GENESIS) {
            tracing::warn!("block 0 is pruned already and cannot be kept");
            return Ok(());
        }
        self.state.keep_genesis = true;
        if let Some(row) = rows::get(&*self.view, keys::BLOCKS, &keys::block(Height::GENESIS))? {
            self.state.pinned = block_row(Height::GENESIS, &row)?.region_bytes();
        }
        Ok(())
    }

    /// Writes a payload into regions of its own.
    pub(crate) fn store(&mut self, payload: &[u8]) -> Result<Vec<Piece>, ArchiveError> {
        let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let sizes: Vec<(u32, u32)> = self.core.options.classes.split(len).collect();
        let mut pieces = Vec::with_capacity(sizes.len());
        let mut rest = payload;
        for (len, class) in sizes {
            let (blob, after) = rest.split_at(len as usize);
            rest = after;
            let pointer = self.allocate(len, class)?;
            self.core.file.write_at(pointer.offset, blob).map_err(self.core.io("writing a block"))?;
            pieces.push(Piece { pointer, checksum: crc32c::crc32c(blob) });
        }
        Ok(pieces)
    }

    /// Takes a region: a free one of the class with the lowest offset, or a new one at the end.
    fn allocate(&mut self, len: u32, class: u32) -> Result<BlobPtr, ArchiveError> {
        let (taken, generation, was_punched) = loop {
            let taken = self.writer.space.take(class).ok_or(ArchiveError::NoOffsets)?;
            if !taken.reused {
                break (taken, 1, false);
            }
            // A region that is not known to be free must not be written over. It stays out of the list.
            match self.next_generation(&taken) {
                Ok((generation, punched)) => break (taken, generation, punched),
                Err(problem) => {
                    tracing::error!(problem, offset = taken.offset, "free region left alone");
                    self.writer.trouble.unusable_regions += 1;
                }
            }
        };
        self.taken.push(taken);
        let size = self.writer.space.file_size();
        if size > self.writer.file_size {
            self.core.file.set_size(size).map_err(self.core.io("extending the arena"))?;
            self.writer.file_size = size;
        }
        let class_bytes = u64::from(class);
        let bytes = &mut self.state.bytes;
        bytes.used += class_bytes;
        if taken.reused {
            bytes.free = bytes.free.saturating_sub(class_bytes);
            self.writes.delete(keys::SMALL, &keys::free(class, taken.offset));
        }
        if was_punched {
            bytes.punched = bytes.punched.saturating_sub(class_bytes);
        }
        self.state.totals.written_bytes += class_bytes;
        let region = Region { state: RegionState::Used, class, generation };
        self.writes.put(keys::POINTS, &keys::region(taken.offset), &region.encode());
        Ok(BlobPtr { offset: taken.offset, len, class, generation })
    }

    /// The generation of the next owner of a free region, and whether its disk space was given back.
    fn next_generation(&self, taken: &Taken) -> Result<(u32, bool), String> {
        match self.region(taken.offset).map_err(|error| error.to_string())? {
            Some(Region { state: RegionState::Free { punched }, class, generation })
                if class == taken.class =>
            {
                let next = generation.checked_add(1).ok_or("its generations are exhausted")?;
                Ok((next, punched))
            }
            Some(region) => Err(format!("the allocation table has {region:?}")),
            None => Err("the allocation table does not have it".into()),
        }
    }

    fn region(&self, offset: u64) -> Result<Option<Region>, ArchiveError> {
        region(&*self.view, offset)
    }

    /// Puts regions of a removed block into quarantine, with a journal entry. A pointer that names an earlier owner
    /// changes nothing.
    pub(crate) fn quarantine(
        &mut self,
        removal: Removal,
        height: Height,
        pointers: impl Iterator<Item = BlobPtr>,
    ) -> Result<(), ArchiveError> {
        let mut owned = Vec::new();
        for pointer in pointers {
            let found = match self.region(pointer.offset) {
                // What it says of its owner is not known, so it stays as it is. The block is removed all the same.
                Err(error @ ArchiveError::DamagedRow { .. }) => {
                    tracing::error!(%error, %pointer, "region left alone");
                    self.writer.trouble.unusable_regions += 1;
                    continue;
                }
                found => found?,
            };
            let expected =
                Region { state: RegionState::Used, class: pointer.class, generation: pointer.generation };
            if found != Some(expected) || !self.touched.insert(pointer.offset) {
                tracing::warn!(%pointer, ?found, "stale pointer frees nothing");
                self.writer.trouble.stale_pointers += 1;
                continue;
            }
            let region = Region { state: RegionState::Quarantine, ..expected };
            self.writes.put(keys::POINTS, &keys::region(pointer.offset), &region.encode());
            self.state.bytes.used -= u64::from(pointer.class);
            self.state.bytes.quarantine += u64::from(pointer.class);
            owned.push(pointer);
        }
        if owned.is_empty() {
            return Ok(());
        }
        let number = self.state.next_journal;
        self.state.next_journal += 1;
        let entry = Entry { removal, height, pointers: owned };
        self.writes.put(keys::SMALL, &keys::journal(number), &entry.encode());
        self.quarantined.push((number, entry.pointers));
        Ok(())
    }

    /// Frees the regions of the first `count` journal entries that wait, and drops the entries.
    pub(crate) fn release(&mut self, count: usize) -> Result<(), ArchiveError> {
        let waiting = std::mem::take(&mut self.writer.waiting);
        let outcome = waiting.iter().take(count).try_for_each(|entry| self.release_entry(entry));
        self.writer.waiting = waiting;
        self.released = count;
        outcome
    }

    fn release_entry(&mut self, entry: &Waiting) -> Result<(), ArchiveError> {
        let mut is_stuck = false;
        for pointer in &entry.pointers {
            match self.region(pointer.offset) {
                Ok(Some(region))
                    if is_quarantined(&region, pointer) && self.touched.insert(pointer.offset) =>
                {
                    self.free(pointer);
                }
                // Freed and perhaps used again before the entry was dropped: done.
                Ok(found) => {
                    tracing::debug!(%pointer, ?found, "region of a journal entry is released already")
                }
                Err(error @ ArchiveError::DamagedRow { .. }) => {
                    tracing::error!(%error, %pointer, "region stays in quarantine");
                    is_stuck = true;
                }
                Err(error) => return Err(error),
            }
        }
        if is_stuck {
            self.writer.trouble.stuck_entries += 1;
        } else {
            self.writes.delete(keys::SMALL, &keys::journal(entry.number));
        }
        Ok(())
    }

    fn free(&mut self, pointer: &BlobPtr) {
        let class = u64::from(pointer.class);
        let lies_free = self.state.bytes.free - self.state.bytes.punched;
        let punched = match self.core.options.punch {
            Punch::FreeAbove(most) if lies_free + class > most => self.punch(pointer),
            _ => false,
        };
        let state = RegionState::Free { punched };
        let region = Region { state, class: pointer.class, generation: pointer.generation };
        self.writes.put(keys::POINTS, &keys::region(pointer.offset), &region.encode());
        self.writes.put(keys::SMALL, &keys::free(pointer.class, pointer.offset), &[]);
        self.freed.push((pointer.class, pointer.offset));
        let bytes = &mut self.state.bytes;
        bytes.quarantine = bytes.quarantine.saturating_sub(class);
        bytes.free += class;
        bytes.punched += if punched { class } else { 0 };
    }

    /// Gives the disk space of a region in quarantine back. Returns whether that was possible.
    fn punch(&mut self, pointer: &BlobPtr) -> bool {
        let punched = self.core.file.punch(pointer.offset, pointer.class.into());
        if let Err(error) = &punched {
            let known = self.writer.trouble.punch_error.replace(error.to_string());
            if known.is_none() {
                tracing::warn!(%error, "disk space of freed regions is not given back");
            }
        }
        punched.is_ok()
    }

    /// Deletes a block. What identifies it stays if it is pruned, as its tombstones.
    pub(crate) fn remove_block(&mut self, block: &BlockMeta, removal: Removal) -> Result<(), ArchiveError> {
        self.quarantine(removal, block.height, block.pointers())?;
        self.writes.delete(keys::BLOCKS, &keys::block(block.height));
        let totals = &mut self.state.totals;
        totals.blocks = totals.blocks.saturating_sub(1);
        totals.payload_bytes = totals.payload_bytes.saturating_sub(block.payload_bytes());
        match removal {
            Removal::Pruned => {
                totals.tombstones += Identities::entries(block.txs.into());
                totals.pruned_blocks += 1;
                totals.pruned_bytes += block.region_bytes();
            }
            Removal::Replaced => {
                if block.height == Height::GENESIS {
                    self.state.pinned = 0;
                }
                self.forget(block.height)?;
            }
        }
        Ok(())
    }

    /// Deletes what finds a block and its transactions. Returns how many entries there were.
    pub(crate) fn forget(&mut self, height: Height) -> Result<u64, ArchiveError> {
        let key = keys::ids(height);
        let Some(row) = rows::get(&*self.view, keys::IDS, &key)? else { return Ok(0) };
        let row = Identities::decode(&row);
        let ids =
            row.map_err(ArchiveError::damaged(format!("the list of transactions of block {height}")))?;
        self.writes.delete(keys::IDS, &key);
        self.writes.delete(keys::POINTS, &keys::hash(&ids.hash));
        for txid in &ids.txs {
            self.writes.delete(keys::POINTS, &keys::location(txid, height));
        }
        Ok(Identities::entries(ids.txs.len() as u64))
    }

    /// Commits if there is something to commit.
    pub(crate) fn commit_if_changed(self) -> Result<(), ArchiveError> {
        if self.writes.is_empty() && self.state == self.writer.state { Ok(()) } else { self.commit() }
    }

    /// Makes everything true: bytes first, then rows.
    pub(crate) fn commit(mut self) -> Result<(), ArchiveError> {
        if !self.taken.is_empty() && self.core.options.durability == Durability::PowerLoss {
            self.sync()?;
        }
        self.state.end = self.writer.space.end();
        self.writes.put(keys::META, keys::STATE_KEY, &self.state.encode());
        let number = self.writer.number + 1;
        self.writes.number = number;
        if let Err(error) = self.core.engine.commit(&self.writes) {
            // It is not known what the engine has: memory and rows may differ from now on.
            self.writer.poisoned = Some(error.to_string());
            return Err(error.into());
        }
        let writer = &mut *self.writer;
        writer.number = number;
        writer.state = self.state.clone();
        writer.policy = self.policy.take().unwrap_or_else(|| writer.policy.clone());
        writer.waiting.drain(..self.released);
        for (class, offset) in self.freed.drain(..) {
            writer.space.free(class, offset);
        }
        for (entry, pointers) in self.quarantined.drain(..) {
            writer.waiting.push_back(Waiting { commit: number, number: entry, pointers });
        }
        self.taken.clear();
        self.core.readers.publish(number);
        *self.core.published.write() =
            Published { state: writer.state.clone().into(), policy: writer.policy.clone().into() };
        Ok(())
    }

    /// Waits until the bytes of this commit are on the device.
    fn sync(&mut self) -> Result<(), ArchiveError> {
        let Err(error) = self.core.file.sync() else { return Ok(()) };
        let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        // Bytes that no commit refers to yet are written again by the next one. After any other error it is not known
        // what the device has.
        if !full {
            self.writer.poisoned = Some(error.to_string());
        }
        Err(io_error(&*self.core.file, "syncing the arena", error))
    }
}

/// Reads an entry of the allocation table. `None` if there is none.
pub(crate) fn region(view: &dyn View, offset: u64) -> Result<Option<Region>, ArchiveError> {
    let Some(row) = rows::get(view, keys::POINTS, &keys::region(offset))? else { return Ok(None) };
    Region::decode(&row).map(Some).map_err(ArchiveError::damaged(format!("the region at {offset}")))
}

fn is_quarantined(region: &Region, pointer: &BlobPtr) -> bool {
    let expected = (RegionState::Quarantine, pointer.class, pointer.generation);
    (region.state, region.class, region.generation) == expected
}
