//! Locking, freezing, and giving frozen outputs to other owners.

use sapwood_rules::Policy;
use sapwood_types::{Height, OutPoint, Output, Reassignment, Slot, TxId};

use crate::{FreezeError, Reassign, ReassignError, WorkingSet, working_set::Stop};

/// Locks or unlocks all outputs of a transaction.
pub fn set_locked(set: &mut WorkingSet, txid: TxId, on: bool) -> Result<(), Stop<FreezeError>> {
    match set.head(txid)?.map(|head| head.locked) {
        None => Err(FreezeError::NotFound { txid }.into()),
        Some(locked) if locked == on => Ok(()),
        Some(_) => {
            if let Some(head) = set.head_mut(txid)? {
                head.locked = on;
            }
            Ok(())
        }
    }
}

fn slot_of(set: &mut WorkingSet, outpoint: OutPoint) -> Result<Slot, Stop<FreezeError>> {
    if !set.contains(outpoint.txid)? {
        return Err(FreezeError::NotFound { txid: outpoint.txid }.into());
    }
    set.slot(outpoint)?.ok_or(FreezeError::NoSuchOutput { outpoint }.into())
}

/// Freezes an unspent output.
pub fn freeze(set: &mut WorkingSet, outpoint: OutPoint) -> Result<(), Stop<FreezeError>> {
    match slot_of(set, outpoint)? {
        Slot::Unspent => Ok(set.set_slot(outpoint, Slot::Frozen)?),
        _ => Err(FreezeError::NotUnspent { outpoint }.into()),
    }
}

/// Unfreezes an output.
pub fn unfreeze(set: &mut WorkingSet, outpoint: OutPoint) -> Result<(), Stop<FreezeError>> {
    match slot_of(set, outpoint)? {
        Slot::Frozen => Ok(set.set_slot(outpoint, Slot::Unspent)?),
        _ => Err(FreezeError::NotFrozen { outpoint }.into()),
    }
}

/// Gives a frozen output to another owner.
pub fn reassign(
    set: &mut WorkingSet,
    request: &Reassign,
    height: Height,
    policy: &Policy,
) -> Result<(), Stop<ReassignError>> {
    let outpoint = request.outpoint;
    let slot = set.slot(outpoint)?;
    let Some(output) = set.output(outpoint)? else {
        return Err(ReassignError::NotFound { outpoint }.into());
    };
    if slot != Some(Slot::Frozen) {
        return Err(ReassignError::NotFrozen { outpoint }.into());
    }
    let old = output.utxo_hash(outpoint);
    if old != request.expected {
        let (actual, expected) = (old, request.expected);
        return Err(ReassignError::HashMismatch { outpoint, actual, expected }.into());
    }
    let output = Output { script: request.script.clone(), credential: request.credential, ..output };
    let new = output.utxo_hash(outpoint);
    set.set_output(outpoint, output)?;
    set.set_slot(outpoint, Slot::Unspent)?;
    if let Some(head) = set.head_mut(outpoint.txid)? {
        let spendable_from = height.plus(policy.reassignment_delay);
        let entry = Reassignment { vout: outpoint.vout, old, new, at: height, spendable_from };
        head.reassignments.push(entry);
    }
    Ok(())
}
