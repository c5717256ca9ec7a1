//! Transactions that wait for a block.

use sapwood_types::TxId;

use crate::{Archive, draft::Draft, error::ArchiveError, keys, rows};

impl Archive {
    /// Queues transactions: until they are in a block, a lookup says that they are pending. Those that are queued
    /// already stay. Returns how many were added.
    ///
    /// # Errors
    /// [`ArchiveError::TooMany`] if the queue would grow past its limit; then nothing was changed.
    pub fn queue(&self, txids: &[TxId], now: u64) -> Result<u64, ArchiveError> {
        let core = &*self.core;
        let mut writer = core.writer.lock();
        let mut draft = Draft::new(core, &mut writer)?;
        let new = sorted(&draft, txids, false)?;
        let (count, limit) = (new.len() as u64, core.options.queue_limit);
        if draft.state.totals.queued + count > limit {
            let hint = "Remove transactions that were dropped, or raise queue_limit";
            return Err(ArchiveError::TooMany { what: "queued transactions", limit, hint });
        }
        new.iter().for_each(|key| draft.writes.put(keys::POINTS, key, &now.to_be_bytes()));
        draft.state.totals.queued += count;
        draft.commit_if_changed()?;
        Ok(count)
    }

    /// Takes transactions out of the queue that will be in no block. Returns how many were there.
    ///
    /// # Errors
    /// Those of a commit.
    pub fn unqueue(&self, txids: &[TxId]) -> Result<u64, ArchiveError> {
        let core = &*self.core;
        let mut writer = core.writer.lock();
        let mut draft = Draft::new(core, &mut writer)?;
        let queued = sorted(&draft, txids, true)?;
        queued.iter().for_each(|key| draft.writes.delete(keys::POINTS, key));
        let count = queued.len() as u64;
        draft.state.totals.queued = draft.state.totals.queued.saturating_sub(count);
        draft.commit_if_changed()?;
        Ok(count)
    }
}

/// The keys of those transactions that are queued, or of those that are not, each once.
fn sorted(draft: &Draft<'_>, txids: &[TxId], queued: bool) -> Result<Vec<keys::Key>, ArchiveError> {
    let mut txids = txids.to_vec();
    txids.sort_unstable();
    txids.dedup();
    let all: Vec<_> = txids.iter().map(keys::queued).collect();
    let refs: Vec<&[u8]> = all.iter().map(|key| &**key).collect();
    let found = rows::get_many(&*draft.view, keys::POINTS, &refs)?;
    let mut wanted = Vec::with_capacity(all.len());
    for (key, row) in all.into_iter().zip(found) {
        if row?.is_some() == queued {
            wanted.push(key);
        }
    }
    Ok(wanted)
}
