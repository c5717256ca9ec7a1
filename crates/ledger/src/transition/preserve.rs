//! Preservation and forgetting.

use sapwood_rules::lifecycle;
use sapwood_types::{Height, OutPoint, Slot, TxId};

use super::{give_back, list_at_parents, want_family};
use crate::{
    DeleteError, WorkingSet,
    working_set::{Access, Stop},
};

/// Forbids deletion up to a height. Tells whether the transaction is there.
pub fn preserve(set: &mut WorkingSet, txid: TxId, until: Height) -> Access<bool> {
    let Some(head) = set.head(txid)? else { return Ok(false) };
    let before = head.preserve_until;
    let now = Some(lifecycle::preserve_until(before, until));
    if now != before
        && let Some(head) = set.head_mut(txid)?
    {
        head.preserve_until = now;
    }
    Ok(true)
}

/// Ends a preservation up to exactly this height. Tells whether there was one. What becomes of the record follows from its
/// content alone: stamping it for deletion without another look once deleted live coins.
pub fn end(set: &mut WorkingSet, txid: TxId, until: Height) -> Access<bool> {
    let there = set.head(txid)?.is_some_and(|head| head.preserve_until == Some(until));
    if there && let Some(head) = set.head_mut(txid)? {
        head.preserve_until = None;
    }
    Ok(there)
}

/// Forgets an unmined transaction and gives back what it spends.
pub fn delete(set: &mut WorkingSet, txid: TxId) -> Result<(), Stop<DeleteError>> {
    want_family(set, txid);
    let Some(head) = set.head(txid)? else { return Ok(()) };
    if let Some(mined_at) = head.mined_at() {
        return Err(DeleteError::Mined { txid, mined_at }.into());
    }
    for (vout, slot) in set.slots(txid)?.into_iter().enumerate() {
        match slot {
            Slot::Spent { spender, .. } => {
                return Err(DeleteError::HasChild { txid, child: Some(spender.child) }.into());
            }
            Slot::Frozen => {
                return Err(DeleteError::Frozen { outpoint: OutPoint::new(txid, vout as u32) }.into());
            }
            // A mined transaction spends it; which one is forgotten.
            Slot::Settled { .. } => return Err(DeleteError::HasChild { txid, child: None }.into()),
            Slot::Unspent | Slot::Unspendable => {}
        }
    }
    Ok(forget(set, txid)?)
}

/// Removes a record that nothing spends from, gives back what it holds, and takes it off its parents' lists.
pub(super) fn forget(set: &mut WorkingSet, txid: TxId) -> Access<()> {
    set.want_pages(txid)?;
    give_back(set, txid)?;
    list_at_parents(set, txid, false)?;
    set.remove(txid)
}

/// Removes a record that may go. Nothing needs it any more, so nothing is given back: its parents remember that it was mined.
/// A loser is taken off its parents' lists.
pub fn prune(set: &mut WorkingSet, txid: TxId) -> Access<()> {
    set.want_pages(txid)?;
    list_at_parents(set, txid, false)?;
    set.remove(txid)
}
