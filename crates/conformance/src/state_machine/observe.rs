//! Everything that can be seen of a state, from the model and from a store, and how the two differ.

use std::{fmt::Debug, ops::ControlFlow, sync::Arc};

use crate::{Store, model::Model};
use sapwood_ledger::{
    AddressQuery, Counts, Cursor, DueRecord, EachResult, Judged, Order, Page, StoreError, UnminedTx, Utxo,
    UtxoSet,
};
use sapwood_rules::SpendStatus;
use sapwood_types::{BlockMark, Height, Slot, TxId, TxRecord, Undo};

use super::look::Look;

/// Everything that can be seen, except the records themselves.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "each is the answer of one call")]
pub struct Observation {
    pub outputs: Vec<Option<Utxo>>,
    pub statuses: Vec<SpendStatus>,
    pub old_unmined: Vec<TxId>,
    pub all_unmined: Vec<TxId>,
    pub unmined: Vec<UnminedTx>,
    /// For each address, oldest first and newest first.
    pub by_address: Vec<[Vec<Utxo>; 2]>,
    pub due: Vec<DueRecord>,
    pub all_due: Vec<DueRecord>,
    pub judged: Vec<Judged>,
    pub judged_with_children: Vec<Judged>,
    pub counts: Counts,
    /// Records that settled up to a height, above it, and at any.
    pub settled: [u64; 3],
    pub last_applied: Option<BlockMark>,
    pub floor: Option<Height>,
    pub undoable_from: Option<Height>,
    pub undo: Vec<Option<Undo>>,
    pub cursor: Option<Cursor>,
    /// Kept with each write, and counted.
    pub utxo_set: [Option<UtxoSet>; 2],
}

/// Follows a listing to its end.
async fn whole<T, F>(limit: usize, mut part: impl FnMut(Option<Cursor>) -> F) -> Result<Vec<T>, String>
where
    F: Future<Output = Result<Page<T>, StoreError>>,
{
    let (mut items, mut after) = (Vec::new(), None);
    loop {
        let page = part(after).await.map_err(|error| error.to_string())?;
        if page.items.len() > limit {
            return Err(format!("a page of at most {limit} entries has {}", page.items.len()));
        }
        if page.items.is_empty() && page.next.is_some() {
            return Err("an empty page that is not the last one".into());
        }
        items.extend(page.items);
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(items),
        }
    }
}

/// All items of a reading, each of which must have succeeded.
fn all<T>(read: EachResult<T>) -> Result<Vec<T>, String> {
    let items = read.and_then(|items| items.into_iter().collect());
    items.map_err(|error| error.to_string())
}

impl Observation {
    /// What the model shows.
    pub fn of_model(model: &Model, look: &Look) -> Self {
        let ids = |found: Vec<(Height, TxId)>| found.into_iter().map(|(_, txid)| txid).collect();
        let mut index = model.address_index();
        let listed = |address: &(_, _)| {
            let oldest_first = index.remove(address).unwrap_or_default();
            let newest_first = oldest_first.iter().rev().cloned().collect();
            [oldest_first, newest_first]
        };
        let utxo_set = Some(model.utxo_set());
        Observation {
            outputs: model.outputs(&look.outpoints),
            statuses: model.spend_status(&look.outpoints, look.at),
            old_unmined: ids(model.old_unmined(look.cutoff)),
            all_unmined: ids(model.old_unmined(Height::MAX)),
            unmined: model.unmined(),
            by_address: look.addresses.iter().map(listed).collect(),
            due: model.due(look.due_up_to),
            all_due: model.due(Height::MAX),
            judged: model.judge(&look.txids, &look.context, false),
            judged_with_children: model.judge(&look.txids, &look.context, true),
            counts: model.counts(),
            settled: settled_ranges(look).map(|(from, to)| model.settled_between(from, to)),
            last_applied: model.last_applied(),
            floor: model.rollback_floor(),
            undoable_from: model.undoable_from(),
            undo: look.heights.iter().map(|height| model.undo(*height)).collect(),
            cursor: model.prune_cursor(),
            utxo_set: [utxo_set.clone(), utxo_set],
        }
    }

    /// What a store shows.
    pub async fn of_store(store: &dyn Store, look: &Look) -> Result<Self, String> {
        let text = |error: StoreError| error.to_string();
        let limits = look.limits;
        let mut by_address = Vec::new();
        for (kind, hash) in look.addresses.iter().copied() {
            let limit = limits.by_address;
            let listed = |order| {
                whole(limit, move |after| store.by_address(AddressQuery { kind, hash, order, after, limit }))
            };
            let (oldest_first, newest_first) =
                tokio::join!(listed(Order::Ascending), listed(Order::Descending));
            by_address.push([oldest_first?, newest_first?]);
        }
        let mut undo = Vec::new();
        for height in &look.heights {
            undo.push(store.block_at(*height).await.map_err(text)?);
        }
        let mut settled = [0; 3];
        for (found, (from, to)) in settled.iter_mut().zip(settled_ranges(look)) {
            *found = store.settled_between(from, to).await.map_err(text)?;
        }
        let old_unmined = |cutoff| {
            whole(limits.old_unmined, move |after| store.old_unmined(cutoff, after, limits.old_unmined))
        };
        let due = |up_to| whole(limits.due, move |after| store.due(up_to, after, limits.due));
        let judged = |check_children| store.judge(look.txids.clone(), look.context, check_children);
        // At the same time: a store answers from threads of its own, and waking one up costs more than what it does.
        let (outputs, statuses, some_unmined, all_unmined, unmined, some_due, all_due) = tokio::join!(
            store.outputs(look.outpoints.clone()),
            store.spend_status(look.outpoints.clone(), look.at),
            old_unmined(look.cutoff),
            old_unmined(Height::MAX),
            whole(limits.unmined, |after| store.unmined(after, limits.unmined)),
            due(look.due_up_to),
            due(Height::MAX),
        );
        let (alone, with_children, counts, last_applied, floor, undoable, cursor, kept, counted) = tokio::join!(
            judged(false),
            judged(true),
            store.counts(),
            store.last_applied(),
            store.rollback_floor(),
            store.undoable_from(),
            store.prune_cursor(),
            store.rolling_utxo_set(),
            store.utxo_set(true, Arc::new(|_, _| ControlFlow::Continue(()))),
        );
        Ok(Observation {
            outputs: all(outputs)?,
            statuses: all(statuses)?,
            old_unmined: some_unmined?,
            all_unmined: all_unmined?,
            unmined: unmined?,
            by_address,
            due: some_due?,
            all_due: all_due?,
            judged: alone.map_err(text)?,
            judged_with_children: with_children.map_err(text)?,
            counts: counts.map_err(text)?,
            settled,
            last_applied: last_applied.map_err(text)?,
            floor: floor.map_err(text)?,
            undoable_from: undoable.map_err(text)?,
            undo,
            cursor: cursor.map_err(text)?,
            utxo_set: [kept.map_err(text)?, Some(counted.map_err(text)?)],
        })
    }

    /// How the model (`self`) and the store differ, in words.
    pub fn differences(&self, theirs: &Observation, look: &Look, model: &Model) -> Vec<String> {
        let mut found = Vec::new();
        let mut lists = Vec::new();
        lists.extend(list("outputs", &look.outpoints, &self.outputs, &theirs.outputs));
        let status = format!("spend status at {}", look.at);
        lists.extend(list(&status, &look.outpoints, &self.statuses, &theirs.statuses));
        lists.extend(list("by address (both orders)", &look.addresses, &self.by_address, &theirs.by_address));
        let judged = format!("judged by {:?}", look.context);
        lists.extend(list(&judged, &look.txids, &self.judged, &theirs.judged));
        let judged = format!("judged with its children by {:?}", look.context);
        lists.extend(list(&judged, &look.txids, &self.judged_with_children, &theirs.judged_with_children));
        found.extend(lists);
        let cutoff = format!("unmined since {} or before", look.cutoff);
        found.extend(one(&cutoff, &self.old_unmined, &theirs.old_unmined));
        found.extend(one("unmined since ever", &self.all_unmined, &theirs.all_unmined));
        found.extend(one("unmined that could be mined", &self.unmined, &theirs.unmined));
        found.extend(one(&format!("due up to {}", look.due_up_to), &self.due, &theirs.due));
        found.extend(one("due at any height", &self.all_due, &theirs.all_due));
        found.extend(one("counts", &self.counts, &theirs.counts));
        let settled = format!("settled up to {}, above it, and at any height", look.due_up_to);
        found.extend(one(&settled, &self.settled, &theirs.settled));
        found.extend(one("last applied block", &self.last_applied, &theirs.last_applied));
        found.extend(one("rollback floor", &self.floor, &theirs.floor));
        found.extend(one("undoable from", &self.undoable_from, &theirs.undoable_from));
        found.extend(one("prune cursor", &self.cursor, &theirs.cursor));
        found.extend(one("UTXO set, kept and counted", &self.utxo_set, &theirs.utxo_set));
        for (height, (ours, theirs)) in look.heights.iter().zip(self.undo.iter().zip(&theirs.undo)) {
            if !same_undo(ours.as_ref(), theirs.as_ref(), model.forget_bound()) {
                found.push(format!("undo of {height}: expected {ours:?}, got {theirs:?}"));
            }
        }
        found
    }
}

/// Up to a height, above it, and all.
fn settled_ranges(look: &Look) -> [(Height, Height); 3] {
    let up_to = look.due_up_to;
    [(Height::GENESIS, up_to), (up_to.next(), Height::MAX), (Height::GENESIS, Height::MAX)]
}

fn one<T: PartialEq + Debug>(what: &str, ours: &T, theirs: &T) -> Option<String> {
    (ours != theirs).then(|| format!("{what}: expected {ours:?}, got {theirs:?}"))
}

fn list<K: Debug, T: PartialEq + Debug>(what: &str, keys: &[K], ours: &[T], theirs: &[T]) -> Vec<String> {
    if ours.len() != theirs.len() {
        return vec![format!("{what}: {} were asked for, {} came back", ours.len(), theirs.len())];
    }
    let pairs = keys.iter().zip(ours.iter().zip(theirs));
    let differing = pairs.filter(|(_, (ours, theirs))| ours != theirs);
    differing
        .map(|(key, (ours, theirs))| format!("{what}, {key:?}: expected {ours:?}, got {theirs:?}"))
        .collect()
}

/// Whether two undo records are the same, but for spenders that may be forgotten.
fn same_undo(ours: Option<&Undo>, theirs: Option<&Undo>, bound: Option<Height>) -> bool {
    let (Some(ours), Some(theirs)) = (ours, theirs) else { return ours.is_none() && theirs.is_none() };
    let plain = |undo: &Undo| Undo { replaced: Vec::new(), ..undo.clone() };
    plain(ours) == plain(theirs)
        && ours.replaced.len() == theirs.replaced.len()
        && ours
            .replaced
            .iter()
            .zip(&theirs.replaced)
            .all(|(our, their)| same_but_forgotten(our, their, bound))
}

fn same_but_forgotten(ours: &TxRecord, theirs: &TxRecord, bound: Option<Height>) -> bool {
    let same_slot = |(our, their): (&Slot, &Slot)| match their {
        Slot::Settled { child_mined_at } => {
            our.child_mined_at() == Some(*child_mined_at) && Some(*child_mined_at) <= bound
        }
        their => our == their,
    };
    ours.slots.len() == theirs.slots.len()
        && ours.slots.iter().zip(&theirs.slots).all(same_slot)
        && *ours == TxRecord { slots: ours.slots.clone(), ..theirs.clone() }
}
