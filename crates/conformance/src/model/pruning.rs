//! What may go, and going.

use sapwood_ledger::{Cursor, DueRecord, Judged, PruneFrom, PruneOutcome, PruneRequest, PruneWhat};
use sapwood_rules::{ChildEvidence, KeepReason, PruneContext, Verdict, judge, verdict::check_child};
use sapwood_types::{Height, PAGE_SIZE, Slot, TxId, TxRecord};

use super::{Model, blocks::is_open};

/// Since when a record counts towards deletion, in plain words: it is not pinned, none of its outputs was ever given to another
/// owner, and either it lost and nothing spends from it, or it is mined and mined transactions spend all of it.
pub fn settled_since(record: &TxRecord) -> Option<Height> {
    let head = &record.head;
    let pinned = head.creating || head.locked || head.preserve_until.is_some();
    let changed_hands = !head.reassignments.is_empty();
    if pinned || changed_hands {
        return None;
    }
    if head.is_conflicting() {
        let untouched = |slot: &Slot| matches!(slot, Slot::Unspent | Slot::Unspendable);
        return head.conflicting_since.filter(|_| record.slots.iter().all(untouched));
    }
    let own = head.blocks.iter().filter(|block| block.on_longest_chain).map(|block| block.height).max()?;
    if record.slots.iter().any(is_open) {
        return None;
    }
    let children = record.slots.iter().filter_map(Slot::child_mined_at);
    children.chain([own]).max()
}

/// What retains a record that has not settled, in plain words and as far as it is counted; the first that applies. An unmined child is the
/// reason only if nothing else is: the record is mined and has no output left to spend. A frozen output beyond the first page passes for
/// one that an unmined child spends.
pub(super) fn retained(record: &TxRecord) -> Option<&'static str> {
    let head = &record.head;
    if head.creating || !head.reassignments.is_empty() {
        None
    } else if head.locked {
        Some("locked")
    } else if head.preserve_until.is_some() {
        Some("preserved")
    } else {
        let is_mined = head.blocks.iter().any(|block| block.on_longest_chain) && !head.is_conflicting();
        let (first_page, further) = record.slots.split_at(record.slots.len().min(PAGE_SIZE as usize));
        let left = |slot: &Slot| matches!(slot, Slot::Unspent | Slot::Frozen);
        let all_spent = !first_page.iter().any(left) && !further.contains(&Slot::Unspent);
        let waits = record.slots.iter().any(is_open);
        (is_mined && all_spent && waits).then_some("child unmined")
    }
}

/// How many outputs of a record are spent.
pub(super) fn spent_outputs(record: &TxRecord) -> u64 {
    let is_spent = |slot: &&Slot| matches!(slot, Slot::Spent { .. } | Slot::Settled { .. });
    record.slots.iter().filter(is_spent).count() as u64
}

impl Model {
    /// All records settled at or below a height, by height and id.
    pub fn due(&self, settled_up_to: Height) -> Vec<DueRecord> {
        let due = |record: &TxRecord| {
            let settled_at = settled_since(record).filter(|at| *at <= settled_up_to)?;
            Some(DueRecord { settled_at, txid: record.txid })
        };
        let mut due: Vec<DueRecord> = self.records.values().filter_map(|record| due(record)).collect();
        due.sort_by_key(|record| (record.settled_at, record.txid));
        due
    }

    /// Judges records.
    pub fn judge(&self, txids: &[TxId], context: &PruneContext, check_children: bool) -> Vec<Judged> {
        txids.iter().map(|txid| self.judge_one(*txid, context, check_children)).collect()
    }

    fn judge_one(&self, txid: TxId, context: &PruneContext, check_children: bool) -> Judged {
        let Some(record) = self.get(txid) else {
            return Judged { txid, verdict: Verdict::Gone, external: None, bytes: 0 };
        };
        let (first, further) = record.to_pages();
        let mut verdict = judge(record.view(), context, self.undoable_from());
        if verdict.may_go() && check_children {
            let evidence = |child: &TxId| match self.record(*child) {
                Some(_) => ChildEvidence::Present { mined_at: self.mined_at(*child) },
                None => ChildEvidence::Absent,
            };
            let checked = record.slots.iter().map(|slot| check_child(slot, evidence, context));
            if let Some(reason) = checked.filter_map(Result::err).next() {
                verdict = Verdict::Kept(reason);
            }
        }
        let bytes = first.bytes().len() + further.iter().map(|page| page.encode().len()).sum::<usize>();
        Judged { txid, verdict, external: record.head.external, bytes: bytes as u64 }
    }

    /// Prunes records, part by part.
    pub fn prune(&mut self, request: &PruneRequest) -> PruneOutcome {
        let (judged, next) = match &request.what {
            PruneWhat::Records { txids, cursor } => {
                let (judged, spared) = self.prune_part(txids, request);
                if cursor.is_some() && !spared && !request.dry_run {
                    self.prune_cursor.clone_from(cursor);
                }
                (judged, None)
            }
            PruneWhat::Settled { from, up_to, limit, per_write } => {
                let start = match from {
                    PruneFrom::Oldest => None,
                    PruneFrom::Cursor => self.prune_cursor.clone(),
                    PruneFrom::After(cursor) => Some(cursor.clone()),
                };
                let place = |due: &DueRecord| {
                    Cursor([&due.settled_at.0.to_be_bytes()[..], &due.txid.0].concat().into())
                };
                let mut due = self.due(*up_to);
                due.retain(|due| Some(place(due)) > start);
                let next = due.get(limit - 1).filter(|_| due.len() > *limit).map(place);
                due.truncate(*limit);
                let moves_cursor = !request.dry_run && !matches!(from, PruneFrom::After(_));
                if moves_cursor {
                    self.prune_cursor = start;
                }
                let (mut judged, mut all_done) = (Vec::new(), moves_cursor);
                for part in due.chunks(*per_write) {
                    let txids: Vec<TxId> = part.iter().map(|due| due.txid).collect();
                    let (part_judged, spared) = self.prune_part(&txids, request);
                    judged.extend(part_judged);
                    all_done &= !spared;
                    // The end of the list is no place to go on from.
                    let goes_on = judged.len() < due.len() || next.is_some();
                    if all_done && goes_on {
                        self.prune_cursor = part.last().map(place);
                    }
                }
                (judged, next)
            }
        };
        PruneOutcome { done: judged.len(), judged, next, stopped_by: None }
    }

    /// Judges records, all in the same state, and deletes those that may go. One that is named twice is gone the second time. Tells whether
    /// one was spared.
    fn prune_part(&mut self, txids: &[TxId], request: &PruneRequest) -> (Vec<Judged>, bool) {
        let mut judged = self.judge(txids, &request.context, request.check_children);
        let mut spared = false;
        if request.dry_run {
            return (judged, spared);
        }
        for judged in &mut judged {
            let txid = judged.txid;
            match self.record(txid) {
                None => *judged = Judged { txid, verdict: Verdict::Gone, external: None, bytes: 0 },
                Some(record)
                    if judged.verdict.may_go()
                        && request.spare_external
                        && record.head.external.is_some() =>
                {
                    judged.verdict = Verdict::Kept(KeepReason::BodyFirst);
                    spared = true;
                }
                Some(record) if judged.verdict.may_go() => {
                    let spent = spent_outputs(record);
                    if record.head.is_conflicting() {
                        self.unlist_with_parents(txid);
                    }
                    self.pruned_outputs += spent;
                    self.remove(txid);
                }
                Some(_) => {}
            }
        }
        (judged, spared)
    }

    /// The cursor saved last.
    pub fn prune_cursor(&self) -> Option<Cursor> {
        self.prune_cursor.clone()
    }
}
