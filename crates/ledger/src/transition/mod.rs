//! Each operation as a function over a working set.
//!
//! A transition checks everything it can before it changes anything. Those that find out late are run inside
//! [`WorkingSet::attempt`](crate::WorkingSet::attempt), which reverts what they did.
//!
//! Transitions do no I/O. One that touches a page that is not loaded stops with [`Stop::Need`](crate::working_set::Stop::Need) and is run again
//! from its start once the page is loaded. See [`working_set`](crate::working_set).

pub mod block;
pub mod conflict;
pub mod create;
pub mod freeze;
pub mod mine;
pub mod preserve;
pub mod rollback;
pub mod spend;

use sapwood_types::{Height, OutPoint, Slot, Spender, TxId};

use crate::{WorkingSet, working_set::Access};

/// How an output stands to one input of a stored transaction.
enum Hold {
    /// The output's transaction is not stored.
    ParentAbsent,
    /// The input holds the output.
    Held,
    /// It does not.
    NotHeld,
}

/// Whether `spender`, an input of a transaction that is mined at `mined_at` or not mined, holds `outpoint`.
fn hold(
    set: &mut WorkingSet,
    outpoint: OutPoint,
    spender: Spender,
    mined_at: Option<Height>,
) -> Access<Hold> {
    Ok(match set.slot(outpoint)? {
        // A transaction taken on trust, before its parent came, may name an output that the parent turns out not to have.
        None if set.contains(outpoint.txid)? => Hold::NotHeld,
        None => Hold::ParentAbsent,
        Some(Slot::Spent { spender: by, .. }) if by == spender => Hold::Held,
        // Who it was is forgotten. A mined transaction holds what it spends, so at this height it was this one.
        Some(Slot::Settled { child_mined_at }) if mined_at == Some(child_mined_at) => Hold::Held,
        Some(_) => Hold::NotHeld,
    })
}

/// Lists each input of a stored transaction: what it spends, and as whom. Declares what it spends.
fn inputs_of(set: &mut WorkingSet, txid: TxId) -> Access<Vec<(OutPoint, Spender)>> {
    let inputs = set.inputs(txid)?;
    set.want_outputs(inputs.iter().copied());
    let spender = |(vin, outpoint)| (outpoint, Spender::new(txid, vin as u32));
    Ok(inputs.into_iter().enumerate().map(spender).collect())
}

/// Declares what removing a stored transaction or letting it lose takes: all its pages, and what it spends. A page that is missing or
/// damaged stops the transition where it is needed.
fn want_family(set: &mut WorkingSet, txid: TxId) {
    let _ = set.want_pages(txid);
    let _ = inputs_of(set, txid);
}

/// Tells the parents of a transaction that it is now mined at another height, or not mined.
fn tell_parents(set: &mut WorkingSet, txid: TxId, before: Option<Height>, now: Option<Height>) -> Access<()> {
    for (outpoint, spender) in inputs_of(set, txid)? {
        if let Hold::Held = hold(set, outpoint, spender, before)? {
            set.set_slot(outpoint, Slot::spent(spender, now))?;
        }
    }
    Ok(())
}

/// Gives back everything a transaction holds that loses or is forgotten. One whose block is rolled back may still be mined, in a block
/// that a caller named; and then it may have been forgotten who spent what it holds.
fn give_back(set: &mut WorkingSet, txid: TxId) -> Access<()> {
    let mined_at = set.head(txid)?.and_then(|head| head.mined_at());
    for (outpoint, spender) in inputs_of(set, txid)? {
        if let Hold::Held = hold(set, outpoint, spender, mined_at)? {
            set.set_slot(outpoint, Slot::Unspent)?;
        }
    }
    Ok(())
}

/// Adds a transaction to, or takes it off, the list of losers that each of its parents keeps.
fn list_at_parents(set: &mut WorkingSet, txid: TxId, listed: bool) -> Access<()> {
    let mut parents = set.inputs(txid)?;
    parents.sort_unstable();
    parents.dedup_by_key(|outpoint| outpoint.txid);
    set.want(parents.iter().map(|outpoint| outpoint.txid));
    for parent in parents {
        let Some(head) = set.head(parent.txid)? else { continue };
        if head.conflicting_children.contains(&txid) == listed {
            continue;
        }
        let Some(head) = set.head_mut(parent.txid)? else { continue };
        let children = &mut head.conflicting_children;
        if listed { children.push(txid) } else { children.retain(|child| *child != txid) }
    }
    Ok(())
}
