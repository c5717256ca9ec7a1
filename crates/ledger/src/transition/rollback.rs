//! Taking blocks back.

use std::collections::HashSet;

use sapwood_types::{BlockHash, BlockMark, Height, Slot, TxId, TxRecord, Undo};

use super::{conflict::lose, mine::change_blocks, preserve::forget, want_family};
use crate::{
    ConflictError, RollbackError, RollbackMode, WorkingSet,
    working_set::{Access, Stop},
};

/// What became of the transactions of the reverted blocks.
#[derive(Default)]
pub struct RollbackOutcome {
    /// Unmined again.
    pub unmined: Vec<TxId>,
    /// Forgotten.
    pub forgotten: Vec<TxId>,
    /// Lost what they spend.
    pub conflicting: Vec<TxId>,
}

/// How far a rollback goes.
#[derive(Debug, PartialEq, Eq)]
pub enum Extent {
    /// The target is the last block: nothing to do.
    Nothing,
    /// Take back every block above this height.
    Above(Height),
    /// Take back every block.
    Everything,
}

/// Checks that a rollback may be done, before anything is read. The hash is checked by [`check_target`].
pub fn check_extent(
    target: Option<(Height, BlockHash)>,
    last: Option<&BlockMark>,
    first: Option<Height>,
    floor: Option<Height>,
) -> Result<Extent, RollbackError> {
    let (Some(last), Some(first), Some(floor)) = (last, first, floor) else {
        return Err(RollbackError::Empty);
    };
    match target {
        Some((height, hash)) if height == last.height && hash == last.hash => Ok(Extent::Nothing),
        Some((height, _)) if height >= last.height => {
            Err(RollbackError::NotBelow { target: height, last: *last })
        }
        Some((height, _)) if height < floor => Err(RollbackError::BelowFloor { target: height, floor }),
        Some((height, _)) => Ok(Extent::Above(height)),
        None if floor > first => Err(RollbackError::BelowFloor { target: Height::GENESIS, floor }),
        None => Ok(Extent::Everything),
    }
}

/// Checks that the block a rollback would end at is the one the caller means.
pub fn check_target(
    target: Option<(Height, BlockHash)>,
    reached: Option<&BlockMark>,
) -> Result<(), RollbackError> {
    match (target, reached) {
        (Some((target, expected)), Some(reached)) if reached.hash != expected => {
            Err(RollbackError::OtherBlock { target, found: reached.hash, expected })
        }
        _ => Ok(()),
    }
}

/// Reverts blocks, the newest first. On error the working set is half changed and must be dropped.
pub fn undo_blocks(
    set: &mut WorkingSet,
    undos: &[Undo],
    mode: RollbackMode,
) -> Result<RollbackOutcome, Stop<RollbackError>> {
    want(set, undos)?;
    let mut outcome = RollbackOutcome::default();
    for undo in undos {
        undo_block(set, undo, mode, &mut outcome)?;
    }
    Ok(outcome)
}

/// Declares what reverting these blocks touches: their transactions first, then all pages of those, what they spend, and what spends from
/// them.
fn want(set: &mut WorkingSet, undos: &[Undo]) -> Access<()> {
    let txids = || undos.iter().flat_map(|undo| undo.created.iter().chain(&undo.mined)).copied();
    set.want(txids());
    for replaced in undos.iter().flat_map(|undo| &undo.replaced) {
        let spenders = replaced.slots.iter().filter_map(Slot::spender).map(|spender| spender.child);
        set.want(spenders.chain(replaced.head.conflicting_children.iter().copied()));
    }
    set.ready()?;
    for txid in txids() {
        want_family(set, txid);
        let _ = set.children(txid);
    }
    set.ready()
}

/// Reverts the newest block.
fn undo_block(
    set: &mut WorkingSet,
    undo: &Undo,
    mode: RollbackMode,
    outcome: &mut RollbackOutcome,
) -> Result<(), Stop<RollbackError>> {
    let height = undo.block.height;
    // Everything is unmined before anything loses or is forgotten, so that no transaction of this block stands in the way of
    // another one's. Newest first, because a transaction may spend from an earlier one of its own block.
    let mut unmined = HashSet::new();
    set.each(undo.created.iter().rev().chain(undo.mined.iter().rev()), |set, txid| {
        unmine(set, *txid, &undo.block, &mut unmined)
    })?;
    let mut replaced: Vec<&TxRecord> = undo.replaced.iter().collect();
    set.each(undo.created.iter().enumerate().rev(), |set, (number, txid)| {
        // A transaction that wrote over an older one makes room for it.
        let older = replaced.iter().rposition(|older| older.txid == *txid);
        let mode = if older.is_some() { RollbackMode::Follower } else { mode };
        take_back(set, *txid, height, mode, &unmined, outcome)?;
        if let Some(place) = older {
            come_back(set, replaced.remove(place))?;
            // The older one can be of this block too, and then it goes as well.
            if undo.created[..number].contains(txid) || undo.mined.contains(txid) {
                unmine(set, *txid, &undo.block, &mut unmined)?;
            }
        }
        Ok::<_, Stop<RollbackError>>(())
    })?;
    outcome.unmined.extend(undo.mined.iter().rev().filter(|txid| unmined.contains(txid)));
    Ok(())
}

/// A transaction is no longer in a block. Notes it if it was mined and is not any more.
fn unmine(set: &mut WorkingSet, txid: TxId, block: &BlockMark, unmined: &mut HashSet<TxId>) -> Access<()> {
    let was_mined = is_mined(set, txid)?;
    change_blocks(set, txid, block.height, |head| head.blocks.retain(|entry| entry.block_id != block.id))?;
    if was_mined && !is_mined(set, txid)? {
        unmined.insert(txid);
    }
    Ok(())
}

fn is_mined(set: &mut WorkingSet, txid: TxId) -> Access<bool> {
    Ok(set.head(txid)?.is_some_and(|head| head.mined_at().is_some()))
}

/// What becomes of a transaction the block brought.
fn take_back(
    set: &mut WorkingSet,
    txid: TxId,
    height: Height,
    mode: RollbackMode,
    unmined: &HashSet<TxId>,
    outcome: &mut RollbackOutcome,
) -> Result<(), Stop<RollbackError>> {
    let Some(head) = set.head(txid)? else { return Ok(()) };
    let (coinbase, lost_before) = (head.coinbase, head.is_conflicting());
    let fails = |stop: Stop<ConflictError>| {
        stop.map(|problem| match problem {
            ConflictError::Store(error) => RollbackError::Store(error),
            problem => RollbackError::Tx { txid, problem: Box::new(problem) },
        })
    };
    match mode {
        // What lost before holds nothing, and cannot lose again.
        RollbackMode::Node if coinbase && lost_before => {}
        RollbackMode::Node if coinbase => {
            outcome.conflicting.extend(lose(set, &[txid], height).map_err(fails)?);
        }
        RollbackMode::Node => outcome.unmined.extend(unmined.get(&txid)),
        RollbackMode::Follower => {
            let children = set.children(txid)?;
            outcome.conflicting.extend(lose(set, &children, height).map_err(fails)?);
            forget(set, txid)?;
            outcome.forgotten.push(txid);
        }
    }
    Ok(())
}

/// A record that was written over is as it was, but for what has become of those that spent from it meanwhile.
fn come_back(set: &mut WorkingSet, replaced: &TxRecord) -> Access<()> {
    let mut record = replaced.clone();
    for slot in &mut record.slots {
        let Slot::Spent { spender, child_mined_at } = *slot else { continue };
        *slot = match set.head(spender.child)? {
            Some(child) if child.is_conflicting() => Slot::Unspent,
            Some(child) => Slot::spent(spender, child.mined_at()),
            None if child_mined_at.is_none() => Slot::Unspent,
            None => *slot,
        };
    }
    let mut lost = Vec::new();
    for child in &record.head.conflicting_children {
        if set.head(*child)?.is_some_and(|child| child.is_conflicting()) {
            lost.push(*child);
        }
    }
    record.head.conflicting_children = lost;
    set.insert(&record)
}
