//! Taking blocks back.

use sapwood_types::{BlockHash, BlockMark, Height, TxId, Undo};

use super::{conflict::lose, mine::change_blocks, preserve::forget};
use crate::{ConflictError, RollbackError, RollbackMode, StoreError, WorkingSet};

/// What became of the transactions of the blocks taken back.
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

/// Takes back the newest block. On error the working set is half changed and must be dropped.
pub fn undo_block(
    set: &mut WorkingSet,
    undo: &Undo,
    mode: RollbackMode,
    outcome: &mut RollbackOutcome,
) -> Result<(), RollbackError> {
    let height = undo.block.height;
    set.load(undo.created.iter().chain(&undo.mined).copied())?;
    // Everything is unmined before anything loses or is forgotten, so that no transaction of this block stands in the way of
    // another one's. Newest first, because a transaction may spend from an earlier one of its own block.
    for txid in undo.created.iter().rev().chain(undo.mined.iter().rev()) {
        change_blocks(set, *txid, height, |head| {
            head.blocks.retain(|entry| entry.block_id != undo.block.id);
        })?;
    }
    outcome.unmined.extend(undo.mined.iter().rev());
    for txid in undo.created.iter().rev() {
        // A transaction that wrote over an older one makes room for it.
        let replaces = undo.replaced.iter().any(|replaced| replaced.txid == *txid);
        let mode = if replaces { RollbackMode::Follower } else { mode };
        take_back(set, *txid, height, mode, outcome)?;
    }
    for replaced in &undo.replaced {
        set.insert(replaced.txid, replaced.master.clone(), replaced.extras.clone())?;
    }
    Ok(())
}

/// What becomes of a transaction the block brought.
fn take_back(
    set: &mut WorkingSet,
    txid: TxId,
    height: Height,
    mode: RollbackMode,
    outcome: &mut RollbackOutcome,
) -> Result<(), RollbackError> {
    let Some(master) = set.master(txid)? else { return Ok(()) };
    let coinbase = master.head.coinbase;
    let fails = |problem: ConflictError| match problem {
        ConflictError::Store(error) => RollbackError::Store(error),
        problem => RollbackError::Tx { txid, problem: Box::new(problem) },
    };
    match mode {
        RollbackMode::Node if coinbase => {
            outcome.conflicting.extend(lose(set, &[txid], height).map_err(fails)?);
        }
        RollbackMode::Node => outcome.unmined.push(txid),
        RollbackMode::Follower => {
            let children = children(set, txid)?;
            outcome.conflicting.extend(lose(set, &children, height).map_err(fails)?);
            forget(set, txid)?;
            outcome.forgotten.push(txid);
        }
    }
    Ok(())
}

fn children(set: &mut WorkingSet, txid: TxId) -> Result<Vec<TxId>, StoreError> {
    Ok(set.spenders(txid)?.into_iter().map(|(spender, _)| spender.child).collect())
}
