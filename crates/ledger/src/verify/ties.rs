//! How a record belongs together with its parents and children.

use sapwood_types::{DecodeError, Height, OutPoint, Slot, Spender, TxId, TxRecord};

use crate::{
    StoreError, WorkingSet,
    working_set::{Access, Stop},
};

/// What was found between a record and its parents and children.
#[derive(Default)]
pub(super) struct Ties {
    /// What is wrong.
    pub(super) problems: Vec<String>,
    /// Parents and children that cannot be read.
    pub(super) unreadable: Vec<(TxId, DecodeError)>,
}

impl Ties {
    /// Adds what was found about another record. One that cannot be read must not keep the rest from being checked.
    fn add(&mut self, other: TxId, found: Access<Option<String>>) -> Access<()> {
        match found {
            Ok(problem) => self.problems.extend(problem),
            Err(Stop::Failed(StoreError::Corrupt { cause, .. })) => self.unreadable.push((other, cause)),
            Err(stop) => return Err(stop),
        }
        Ok(())
    }
}

/// Checks that a record agrees with its parents and children.
pub(super) fn ties(set: &mut WorkingSet, record: &TxRecord) -> Access<Ties> {
    let txid = record.txid;
    let mut ties = Ties::default();
    let spenders = || {
        record.slots.iter().enumerate().filter_map(|(vout, slot)| match *slot {
            Slot::Spent { spender, child_mined_at } => Some((vout as u32, spender, child_mined_at)),
            _ => None,
        })
    };
    set.want(spenders().map(|(_, spender, _)| spender.child));
    set.want(record.head.conflicting_children.iter().copied());
    set.want_outputs(record.body.inputs.iter().map(|input| input.outpoint));
    for (vout, spender, remembered) in spenders() {
        ties.add(spender.child, check_child(set, OutPoint::new(txid, vout), spender, remembered))?;
    }
    for (vin, input) in record.body.inputs.iter().enumerate() {
        let spender = Spender::new(txid, vin as u32);
        ties.add(input.outpoint.txid, check_parent(set, record, input.outpoint, spender))?;
    }
    if record.head.is_conflicting() && record.head.mined_at().is_some() {
        ties.problems.push("it lost against another transaction, and is mined".into());
    }
    for child in &record.head.conflicting_children {
        let lost = set.head(*child).map(|child| child.is_some_and(|child| child.is_conflicting()));
        let wrong = || format!("it lists {child} as a loser, which is not one");
        ties.add(*child, lost.map(|lost| (!lost).then(wrong)))?;
    }
    Ok(ties)
}

/// What is wrong between an output and the transaction that spends it.
fn check_child(
    set: &mut WorkingSet,
    outpoint: OutPoint,
    spender: Spender,
    remembered: Option<Height>,
) -> Access<Option<String>> {
    let Some(child) = set.head(spender.child)? else {
        let dangling = remembered.is_none();
        return Ok(
            dangling.then(|| format!("{outpoint} is spent by {spender}, which is neither stored nor mined"))
        );
    };
    let mined_at = child.mined_at();
    if mined_at != remembered {
        return Ok(Some(format!("{outpoint} remembers {spender} at {remembered:?}, it is at {mined_at:?}")));
    }
    if child.is_conflicting() {
        return Ok(Some(format!("{outpoint} is spent by {spender}, which has lost")));
    }
    let inputs = set.inputs(spender.child)?;
    let spends = inputs.get(spender.vin as usize) == Some(&outpoint);
    Ok((!spends).then(|| format!("{outpoint} is spent by {spender}, which does not spend it")))
}

/// What is wrong between an input and the transaction it spends from.
fn check_parent(
    set: &mut WorkingSet,
    record: &TxRecord,
    outpoint: OutPoint,
    spender: Spender,
) -> Access<Option<String>> {
    let Some(parent) = set.head(outpoint.txid)? else { return Ok(None) };
    let lost = record.head.is_conflicting();
    // That a loser is not listed proves nothing: a parent that comes back after it was pruned does not know of it.
    if !lost && parent.conflicting_children.contains(&record.txid) {
        return Ok(Some(format!("it has not lost, but its parent {} lists it as a loser", outpoint.txid)));
    }
    let held = matches!(set.slot(outpoint)?, Some(Slot::Spent { spender: by, .. }) if by == spender);
    Ok((lost && held).then(|| format!("it lost against another transaction, and holds {outpoint}")))
}
