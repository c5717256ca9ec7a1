//! The work, in bounded commits.

use std::ops::ControlFlow;

use sapwood_types::Height;

use super::{
    HeightHold, Pruning, Stop,
    policy::Policy,
    walk::{Candidate, Goal, Walk},
};
use crate::{
    Archive,
    block::{BlockMeta, Identities},
    draft::Draft,
    error::ArchiveError,
    journal::Removal,
    keys, rows,
    state::{Oldest, State},
    view::blocks_from,
};

/// Blocks that one commit prunes at most. Between two commits a block can be appended.
const BLOCKS_PER_COMMIT: usize = 32;

/// The next block to be pruned, and whether it could be read.
struct Next {
    candidate: Candidate,
    block: Option<BlockMeta>,
    /// It is passed, not deleted: block 0 where it is never pruned.
    is_kept: bool,
}

impl Next {
    fn of(state: &State, before: Option<Height>, height: Height, block: Option<BlockMeta>) -> Self {
        let is_kept = state.keep_genesis && height == Height::GENESIS;
        // Heights without a block cost a seek, however many they are.
        let gap = u64::from(before.is_some_and(|before| height > before.next()));
        let (ops, region_bytes) = match &block {
            Some(block) if !is_kept => (block.prune_ops(), block.region_bytes()),
            _ => (1, 0),
        };
        let time = block.as_ref().map_or(0, |block| block.time);
        Self { candidate: Candidate { height, time, ops: ops + gap, region_bytes }, block, is_kept }
    }
}

impl Archive {
    /// Prunes blocks but for the newest `retain`, deleting `max_ops` entries at most: see [`BlockMeta::prune_ops`]. A
    /// block is pruned as a whole or not at all, and the first one may have more entries than that. Can be called again
    /// and again: what is pruned is passed. The finality floor and holds are kept; whether pruning is enabled does not
    /// matter.
    ///
    /// # Errors
    /// [`ArchiveError::Busy`] if a prune is running, and those of a commit. Blocks pruned before the error stay pruned.
    pub fn prune_blocks(
        &self,
        retain: u32,
        max_ops: u64,
        now: u64,
        holds: &[HeightHold],
    ) -> Result<Pruning, ArchiveError> {
        let _running = self.begin_pruning().ok_or(ArchiveError::Busy)?;
        let state = self.core.published().state;
        let up_to = state.head.and_then(|head| head.height.0.checked_sub(retain)).map(Height);
        let holds = self.all_holds(holds)?;
        let walk = Walk::new(Goal::UpTo(up_to), state.floor, &holds, state.prunable_used(), max_ops);
        let pruned = self.run(walk, now)?;
        self.release()?;
        Ok(pruned)
    }

    /// Frees the regions that no reader can see any more. Ticks do this; it is needed only where there are none.
    ///
    /// # Errors
    /// Those of a commit.
    pub fn release(&self) -> Result<usize, ArchiveError> {
        self.core.release(&mut self.core.writer.lock())
    }

    /// Prunes until the walk says to stop.
    pub(super) fn run(&self, mut walk: Walk<'_>, now: u64) -> Result<Pruning, ArchiveError> {
        let mut region_bytes = 0;
        let mut unreadable = Vec::new();
        let stopped = loop {
            let mut writer = self.core.writer.lock();
            let mut draft = Draft::new(&self.core, &mut writer)?;
            let mut batch = next_blocks(&draft, BLOCKS_PER_COMMIT + 1)?;
            let mut stopped = batch.is_empty().then_some(Stop::Done);
            let mut pruned = 0;
            for next in batch.iter().take(BLOCKS_PER_COMMIT) {
                if let Err(stop) = walk.next(&next.candidate) {
                    stopped = Some(stop);
                    break;
                }
                remove(&mut draft, next)?;
                if next.block.is_none() {
                    unreadable.push(next.candidate.height);
                }
                region_bytes += next.candidate.region_bytes;
                pruned += 1;
            }
            if pruned > 0 {
                let oldest = batch.drain(pruned..).find_map(|next| next.block);
                draft.state.oldest = oldest.map(|block| Oldest { height: block.height, time: block.time });
                draft.state.last_prune = Some(now);
                let limit = self.core.options.tombstones;
                drop_tombstones(&mut draft, limit, walk.ops())?;
            }
            settle_latch(&mut draft);
            draft.commit_if_changed()?;
            if let Some(stopped) = stopped {
                break stopped;
            }
        };
        Ok(Pruning {
            blocks: walk.blocks(),
            ops: walk.ops(),
            region_bytes,
            boundary: self.core.published().state.boundary,
            stopped,
            unreadable,
            overridden: walk.overridden().to_vec(),
        })
    }

    /// Computes what pruning would do now, without doing it. `policy` takes the place of the one in force. Looks at
    /// `limit` blocks at most.
    ///
    /// # Errors
    /// Those of reading.
    pub fn plan(
        &self,
        policy: Option<Policy>,
        now: u64,
        holds: &[HeightHold],
        limit: u64,
    ) -> Result<Plan, ArchiveError> {
        let policy = policy.unwrap_or(self.policy());
        policy.validate(self.core.options.reorg_window)?;
        let holds = self.holds_under(&policy, holds)?;
        let view = self.view()?;
        let state = &view.state;
        let mut plan =
            Plan { blocks: 0, ops: 0, region_bytes: 0, up_to: state.boundary, stopped: Some(Stop::Done) };
        let Some(head) = state.head else { return Ok(plan) };
        let goal = goal(&policy, state, head.height, now);
        let mut walk = Walk::new(goal, state.floor, &holds, state.prunable_used(), u64::MAX);
        let from = state.boundary.map_or(Height::GENESIS, Height::next);
        view.blocks_from(from, |height, block| {
            if plan.blocks == limit {
                plan.stopped = None;
                return Ok(ControlFlow::Break(()));
            }
            let next = Next::of(state, plan.up_to, height, block.ok());
            if let Err(stop) = walk.next(&next.candidate) {
                plan.stopped = Some(stop);
                return Ok(ControlFlow::Break(()));
            }
            plan.blocks += 1;
            plan.region_bytes += next.candidate.region_bytes;
            plan.up_to = Some(height);
            Ok(ControlFlow::Continue(()))
        })?;
        plan.ops = walk.ops();
        Ok(plan)
    }
}

/// What pruning would do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Plan {
    /// How many blocks it would prune.
    pub blocks: u64,
    /// How many entries they have.
    pub ops: u64,
    /// Region bytes that they have.
    pub region_bytes: u64,
    /// The boundary afterwards.
    pub up_to: Option<Height>,
    /// Why it would end. `None` if the plan was cut short at its limit.
    pub stopped: Option<Stop>,
}

impl Plan {
    /// Returns how many ticks it takes.
    pub fn ticks(&self, policy: &Policy) -> u64 {
        self.ops.div_ceil(policy.max_ops_per_tick.max(1))
    }
}

/// What a policy asks for now.
pub(super) fn goal(policy: &Policy, state: &State, head: Height, now: u64) -> Goal {
    let estimate = state.prunable_estimate();
    let water = policy.water();
    let capacity = water.is_some_and(|water| estimate > water.high || state.latched);
    let emergency = water.is_some_and(|water| estimate > water.hard);
    Goal::Policy { policy: *policy, now, head, capacity, emergency }
}

/// The first blocks above the boundary.
fn next_blocks(draft: &Draft<'_>, limit: usize) -> Result<Vec<Next>, ArchiveError> {
    let mut before = draft.state.boundary;
    let mut next = Vec::new();
    let from = before.map_or(Height::GENESIS, Height::next);
    blocks_from(&*draft.view, from, |height, block| {
        next.push(Next::of(&draft.state, before, height, block.ok()));
        before = Some(height);
        Ok(if next.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    // A block that cannot be read is not taken for older than the one behind it.
    let mut later = 0;
    for next in next.iter_mut().rev() {
        match &next.block {
            Some(block) => later = block.time,
            None => next.candidate.time = later,
        }
    }
    Ok(next)
}

/// Prunes one block in a draft.
fn remove(draft: &mut Draft<'_>, next: &Next) -> Result<(), ArchiveError> {
    match &next.block {
        Some(block) if !next.is_kept => draft.remove_block(block, Removal::Pruned)?,
        Some(_) => {}
        // Its row stays, so that it can be repaired. It must not keep everything above it from being pruned.
        None => draft.state.totals.unreadable += 1,
    }
    draft.state.boundary = Some(next.candidate.height);
    Ok(())
}

/// Forgets the oldest pruned blocks until `limit` entries are left, with about `max_ops` entries at most.
fn drop_tombstones(draft: &mut Draft<'_>, limit: u64, max_ops: u64) -> Result<(), ArchiveError> {
    let Some(boundary) = draft.state.boundary else { return Ok(()) };
    let mut surplus = draft.state.totals.tombstones.saturating_sub(limit);
    let mut dropped = 0;
    while surplus > 0 && dropped <= max_ops {
        let after = draft.state.forgotten.map_or(Height::GENESIS, Height::next);
        let Some(height) = first_ids(draft, after)?.filter(|height| *height <= boundary) else { break };
        let is_kept = draft.state.keep_genesis && height == Height::GENESIS;
        let entries = if is_kept { 0 } else { forget_pruned(draft, height)? };
        draft.state.forgotten = Some(height);
        let totals = &mut draft.state.totals;
        totals.tombstones = totals.tombstones.saturating_sub(entries);
        surplus = surplus.saturating_sub(entries);
        dropped += entries.max(1);
    }
    Ok(())
}

/// Deletes the tombstones of a block. Those of a block whose list is damaged stay.
fn forget_pruned(draft: &mut Draft<'_>, height: Height) -> Result<u64, ArchiveError> {
    match draft.forget(height) {
        Err(error @ ArchiveError::DamagedRow { .. }) => {
            tracing::error!(%error, "tombstones left as they are");
            Ok(Identities::entries(0))
        }
        entries => entries,
    }
}

/// The first height from `after` on that has a list of transactions. `None` if there is none.
fn first_ids(draft: &Draft<'_>, after: Height) -> Result<Option<Height>, ArchiveError> {
    let from = keys::ids(after);
    let range = sapwood_ledger::engine::Scan {
        table: keys::IDS,
        from: &from,
        to: Some(keys::IDS_END),
        reverse: false,
        fill_cache: true,
    };
    let mut first = None;
    rows::scan(&*draft.view, &range, |key, _| {
        first = keys::height_in(key);
        Ok(ControlFlow::Break(()))
    })?;
    Ok(first)
}

/// Sets the latch above high water, and unsets it at low water.
fn settle_latch(draft: &mut Draft<'_>) {
    let water = draft.policy().in_force.water();
    let state = &mut draft.state;
    state.latched = match water {
        None => false,
        Some(water) if state.prunable_used() <= water.low => false,
        Some(water) => state.latched || state.prunable_estimate() > water.high,
    };
}
