//! Losing and winning against other transactions.

use std::collections::HashSet;

use sapwood_rules::{SpendRefusal, spendability::SpendOverrides};
use sapwood_types::{Height, OutPoint, Slot, Spender, TxId};

use super::{give_back, inputs_of, list_at_parents, spend::hold_all, want_family};
use crate::{
    ConflictError, InputRefusal, SpendInput, WorkingSet,
    working_set::{Access, Stop},
};

type Stopped<T> = Result<T, Stop<ConflictError>>;

/// Makes these transactions and all their descendants lose. Returns those that were not losers before, breadth first.
pub(super) fn lose(set: &mut WorkingSet, roots: &[TxId], height: Height) -> Stopped<Vec<TxId>> {
    let mut losers = with_descendants(set, roots)?;
    for txid in &losers {
        check_may_lose(set, *txid)?;
    }
    let mut already = Vec::new();
    for txid in &losers {
        if set.head(*txid)?.is_some_and(|head| head.is_conflicting()) {
            already.push(*txid);
        }
    }
    losers.retain(|txid| !already.contains(txid));
    for txid in &losers {
        give_back(set, *txid)?;
        set.set_conflicting_since(*txid, Some(height))?;
        list_at_parents(set, *txid, true)?;
    }
    Ok(losers)
}

/// Lists these transactions and all that descend from them, breadth first. One run notes what a whole generation misses, and all that its
/// losing takes.
fn with_descendants(set: &mut WorkingSet, roots: &[TxId]) -> Access<Vec<TxId>> {
    let mut seen: HashSet<TxId> = HashSet::new();
    let (mut found, mut generation) = (Vec::new(), roots.to_vec());
    let mut result = Ok(());
    while !generation.is_empty() {
        let mut next = Vec::new();
        let visited = set.each(generation, |set, txid| {
            if !seen.insert(txid) || !set.contains(txid)? {
                return Ok(());
            }
            found.push(txid);
            want_family(set, txid);
            next.extend(set.children(txid)?);
            Ok(())
        });
        // Behind a miss in one branch the others are followed further.
        result = result.and(visited);
        generation = next;
    }
    result.map(|()| found)
}

fn check_may_lose(set: &mut WorkingSet, txid: TxId) -> Stopped<()> {
    if let Some(mined_at) = set.head(txid)?.and_then(|head| head.mined_at()) {
        return Err(ConflictError::Mined { txid, mined_at }.into());
    }
    match set.slots(txid)?.iter().position(|slot| *slot == Slot::Frozen) {
        Some(vout) => Err(ConflictError::Frozen { outpoint: OutPoint::new(txid, vout as u32) }.into()),
        None => Ok(()),
    }
}

/// Lets a transaction hold all its inputs, and takes the mark of a loser off it.
fn revive(
    set: &mut WorkingSet,
    txid: TxId,
    height: Height,
    overrides: SpendOverrides,
    absent_parents: AbsentParents,
) -> Stopped<()> {
    set.want_pages(txid)?;
    let mined_at = set.head(txid)?.and_then(|head| head.mined_at());
    let mut inputs = Vec::new();
    for (outpoint, spender) in inputs_of(set, txid)? {
        if absent_parents == AbsentParents::Refuse || set.contains(outpoint.txid)? {
            inputs.push(SpendInput { vin: spender.vin, outpoint, expected: None });
        }
    }
    hold_all(set, &inputs, txid, true, mined_at, height, overrides)?
        .map_err(|inputs| ConflictError::Inputs { txid, inputs })?;
    Ok(no_longer_conflicting(set, txid)?)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AbsentParents {
    Refuse,
    Skip,
}

/// Takes the mark of a loser off a transaction.
pub(super) fn no_longer_conflicting(set: &mut WorkingSet, txid: TxId) -> Access<()> {
    if set.head(txid)?.is_some_and(|head| head.is_conflicting()) {
        list_at_parents(set, txid, false)?;
        set.set_conflicting_since(txid, None)?;
    }
    Ok(())
}

/// Marks a transaction as a loser with its descendants, or takes that back for just this one.
pub fn set_conflicting(set: &mut WorkingSet, txid: TxId, on: bool, height: Height) -> Stopped<Vec<TxId>> {
    let Some(head) = set.head(txid)? else { return Err(ConflictError::NotFound { txid }.into()) };
    match (head.is_conflicting(), on) {
        (true, true) | (false, false) => Ok(Vec::new()),
        (false, true) => lose(set, &[txid], height),
        (true, false) => {
            revive(set, txid, height, SpendOverrides::default(), AbsentParents::Refuse)?;
            Ok(vec![txid])
        }
    }
}

/// Makes transactions win, in order, against whatever unmined transactions hold what they spend. Returns the losers. A transaction
/// that spends from a loser in the end cannot win, whenever and against whom that one lost; one that has lost before can win in the same call.
pub fn resolve_all(set: &mut WorkingSet, winners: &[TxId], height: Height) -> Stopped<Vec<TxId>> {
    let mut lost = Vec::new();
    set.want(winners.iter().copied());
    set.each(winners, |set, winner| resolve(set, *winner, height, &mut lost))?;
    for winner in winners {
        let inputs = inputs_of(set, *winner)?;
        let mut parents: Vec<TxId> = inputs.iter().map(|(outpoint, _)| outpoint.txid).collect();
        parents.dedup();
        refuse_heirs_of_losers(set, *winner, inputs, &parents)?;
    }
    Ok(lost)
}

/// Makes a transaction win against whatever unmined transactions hold what it spends. The losers are added to `lost`, which
/// holds those of earlier winners of the same call.
fn resolve(set: &mut WorkingSet, winner: TxId, height: Height, lost: &mut Vec<TxId>) -> Stopped<()> {
    let Some(head) = set.head(winner)? else { return Err(ConflictError::NotFound { txid: winner }.into()) };
    let was_conflicting = head.is_conflicting();
    let inputs = inputs_of(set, winner)?;
    let mut rivals = Vec::new();
    for (outpoint, _) in &inputs {
        if let Some(Slot::Spent { spender, .. }) = set.slot(*outpoint)?
            && spender.child != winner
            && !rivals.contains(&spender.child)
        {
            rivals.push(spender.child);
        }
    }
    lost.extend(lose(set, &rivals, height)?);
    refuse_heirs_of_losers(set, winner, inputs, lost)?;
    let overrides = SpendOverrides { ignore_conflicting: true, ignore_locked: true };
    let absent = if was_conflicting { AbsentParents::Refuse } else { AbsentParents::Skip };
    revive(set, winner, height, overrides, absent)
}

/// Who spends from one of these that has lost cannot win.
fn refuse_heirs_of_losers(
    set: &mut WorkingSet,
    winner: TxId,
    inputs: Vec<(OutPoint, Spender)>,
    lost: &[TxId],
) -> Stopped<()> {
    let mut refused = Vec::new();
    for (outpoint, spender) in inputs.into_iter().filter(|(outpoint, _)| lost.contains(&outpoint.txid)) {
        let since = set.head(outpoint.txid)?.and_then(|parent| parent.conflicting_since);
        let refusal = since.map(|since| SpendRefusal::Conflicting { since });
        refused.extend(refusal.map(|refusal| InputRefusal { vin: spender.vin, outpoint, refusal }));
    }
    if refused.is_empty() {
        return Ok(());
    }
    Err(ConflictError::Inputs { txid: winner, inputs: refused }.into())
}
