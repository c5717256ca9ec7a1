//! Pruning: judge without the lock, delete under it what did not change meanwhile.

use std::ops::ControlFlow;

use sapwood_rules::{ChildEvidence, KeepReason, PruneContext, Verdict, judge, verdict::check_child};
use sapwood_types::{DecodeError, FirstPage, Height, RecordHeader, Slot, TxId, page::further_pages};

use crate::{
    Cursor, DeleteDue, DueRecord, Expired, Judged, Ledger, Page, StoreError, UndoDropped, Unreadable,
    WorkingSet,
    changes::{Derived, record_entries},
    check_limit,
    core::{Core, corrupt},
    engine::{Scan, Table, WriteSet},
    gate::ChunkPass,
    keys::{self, Pending},
    read::{Snapshot, each},
    transition::preserve,
    watch::TxIds,
    working_set::{Access, Stop},
    writer::{Change, Deleted},
};

/// Records judged between two looks whether a block has come.
const JUDGED_AT_A_TIME: usize = 125;

/// A record, its verdict, and what deleting it takes.
struct Case {
    judged: Judged,
    /// The record's header, if it can be deleted by itself. A loser has to be taken off its parents' lists too.
    plain: Option<RecordHeader>,
}

impl Case {
    /// A record that is not there.
    fn gone(txid: TxId) -> Self {
        Case { judged: Judged { txid, verdict: Verdict::Gone, external: None, bytes: 0 }, plain: None }
    }

    /// Judges a record by the header of its first page.
    fn of(
        txid: TxId,
        page: &[u8],
        context: &PruneContext,
        undoable_from: Option<Height>,
    ) -> Result<Self, StoreError> {
        let header =
            RecordHeader::decode(page).map_err(|cause| corrupt(format!("transaction {txid}"), cause))?;
        let judged = Judged {
            txid,
            verdict: judge(header.view(), context, undoable_from),
            external: header.head.external,
            // Further pages are not read for this; they are taken to be as large as the first.
            bytes: page.len() as u64 * u64::from(1 + further_pages(header.head.output_count)),
        };
        let plain = (!header.head.is_conflicting()).then_some(header);
        Ok(Case { judged, plain })
    }
}

impl Deleted {
    /// Deletes a record that has no ties: mined, and every output spent by mined transactions.
    pub(crate) fn delete(&self, writes: &mut WriteSet, txid: TxId) {
        writes.delete(Table::Tx, &txid.0);
        for number in 1..=self.further_pages {
            writes.delete(Table::Tx, &keys::page(&txid, number));
        }
        for entry in record_entries(txid, &self.derived).iter().flatten() {
            keys::index(entry, |table, key| writes.delete(table, key));
        }
    }
}

/// Why a record is retained that would take reading another one, or itself, which cannot be read. Any other error ends the call.
fn unreadable(txid: TxId, error: StoreError) -> Result<KeepReason, StoreError> {
    match error {
        StoreError::Corrupt { what, cause } => {
            Ok(KeepReason::Unreadable { txid, error: format!("{what}: {cause}") })
        }
        error => Err(error),
    }
}

/// What was found, or nothing and the record noted as one that cannot be read. Any other error ends the call.
fn readable<T>(txid: TxId, found: Access<T>, noted: &mut Vec<Unreadable>) -> Access<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Stop::Failed(StoreError::Corrupt { what, cause })) => {
            noted.push(Unreadable { txid, error: format!("{what}: {cause}") });
            Ok(None)
        }
        Err(stop) => Err(stop),
    }
}

impl Core {
    /// Judges records as they are in one snapshot.
    fn cases(
        &self,
        txids: &[TxId],
        context: &PruneContext,
        check_children: bool,
    ) -> Result<Vec<Case>, StoreError> {
        let undoable_from = self.published.read().undoable_from();
        let snapshot = self.snapshot()?;
        let mut cases: Vec<Case> = Vec::with_capacity(txids.len());
        snapshot.each_first_page(txids, |txid, bytes| {
            let case = match bytes {
                Ok(None) => Ok(Case::gone(*txid)),
                Ok(Some(bytes)) => Case::of(*txid, bytes, context, undoable_from),
                Err(error) => Err(error),
            };
            cases.push(match case {
                Ok(case) => case,
                Err(error) => {
                    let mut case = Case::gone(*txid);
                    case.judged.verdict = Verdict::Kept(unreadable(*txid, error)?);
                    case
                }
            });
            Ok(())
        })?;
        if check_children {
            check_all_children(self, &snapshot, &mut cases, context)?;
        }
        Ok(cases)
    }

    fn due(
        &self,
        up_to: Height,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<DueRecord>, StoreError> {
        let look = self.due_start.look();
        let snapshot = self.snapshot()?;
        let page = snapshot.by_height(Table::Due, None, look.start()..=up_to, after, limit)?;
        if after.is_none() {
            self.due_start.found(look, page.items.first().map_or(up_to, |(first, _)| *first));
        }
        let record = |(settled_at, txid)| DueRecord { settled_at, txid };
        Ok(Page::new(page.items.into_iter().map(record).collect(), page.next))
    }

    fn delete_due(&self, request: &DeleteDue) -> Result<Vec<Judged>, StoreError> {
        self.check_poison()?;
        let pass = self.gate.chunk();
        let watch = self.watches.begin(&request.txids);
        let result = self.judge_and_delete(request, &pass, || watch.changed());
        self.watches.end(&watch);
        result
    }

    fn judge_and_delete(
        &self,
        request: &DeleteDue,
        pass: &ChunkPass,
        changed: impl Fn() -> TxIds,
    ) -> Result<Vec<Judged>, StoreError> {
        let mut cases = Vec::with_capacity(request.txids.len());
        for part in request.txids.chunks(JUDGED_AT_A_TIME) {
            pass.make_way();
            cases.extend(self.cases(part, &request.context, request.check_children)?);
        }
        pass.make_way();
        self.reached("prune-judged")?;
        // One write, or a crash could leave the cursor behind a record that was not deleted.
        self.change(|change| {
            if request.permit.as_ref().is_some_and(|permit| !permit.is_given()) {
                return Err(StoreError::Stopped { doing: "deleting due records" }.into());
            }
            let changed = changed();
            let losers = cases.iter().filter(|case| case.plain.is_none() && case.judged.verdict.may_go());
            change.set.want(losers.map(|case| case.judged.txid));
            let mut gone = TxIds::with_capacity_and_hasher(cases.len(), Default::default());
            let (mut judged, mut spared) = (Vec::with_capacity(cases.len()), false);
            let Change { set, deleted, .. } = change;
            set.each(&cases, |set, case| {
                let txid = case.judged.txid;
                let again;
                let case = if gone.contains(&txid) {
                    again = Case::gone(txid);
                    &again
                } else if changed.contains(&txid) {
                    let cases = self.cases(&[txid], &request.context, request.check_children)?.pop();
                    again = cases.unwrap_or_else(|| Case::gone(txid));
                    &again
                } else {
                    case
                };
                let verdict = match &case.judged.verdict {
                    verdict if !verdict.may_go() => verdict.clone(),
                    _ if request.spare_external && case.judged.external.is_some() => {
                        spared = true;
                        Verdict::Kept(KeepReason::BodyFirst)
                    }
                    verdict => match self.delete(set, deleted, case) {
                        Ok(()) => {
                            gone.insert(txid);
                            verdict.clone()
                        }
                        Err(Stop::Failed(error)) => Verdict::Kept(unreadable(txid, error)?),
                        Err(Stop::Need) => return Err(Stop::Need),
                    },
                };
                judged.push(Judged { verdict, ..case.judged.clone() });
                Ok(())
            })?;
            if let (Some(cursor), false) = (&request.save_cursor, spared) {
                change.state.prune_cursor = Some(cursor.clone());
            }
            Ok::<_, Stop<StoreError>>(judged)
        })
    }

    /// Deletes a record that may go.
    fn delete(&self, set: &mut WorkingSet, deleted: &mut Vec<(TxId, Deleted)>, case: &Case) -> Access<()> {
        let txid = case.judged.txid;
        let Some(header) = &case.plain else { return set.attempt(|set| preserve::prune(set, txid)) };
        let further_pages = further_pages(header.head.output_count);
        deleted.push((txid, Deleted { further_pages, derived: Derived::of(header.view()) }));
        Ok(())
    }

    /// Works off the first entries of the list of preservations. Each one leaves the list, whatever is behind it: whoever goes on
    /// while there are as many as asked for comes to the end.
    /// An entry whose record cannot be read stays, and is stepped over.
    fn expire_preservations(&self, height: Height, limit: usize) -> Result<Expired, StoreError> {
        check_limit(limit)?;
        self.change(|change| {
            let snapshot = self.snapshot()?;
            let (mut expired, mut after) = (Expired::default(), None);
            let Change { set, stray_preservations, .. } = change;
            while expired.worked_off < limit {
                let (preserved, heights) = (Some(Pending::Preserved), Height(0)..=height);
                let wanted = limit - expired.worked_off;
                let over =
                    snapshot.by_height(Table::Pending, preserved, heights, after.as_ref(), wanted)?;
                set.want(over.items.iter().map(|(_, txid)| *txid));
                set.ready()?;
                for (until, txid) in &over.items {
                    let ended = set.attempt(|set| preserve::end(set, *txid, *until));
                    let Some(ended) = readable(*txid, ended, &mut expired.unreadable)? else { continue };
                    expired.worked_off += 1;
                    if !ended {
                        tracing::warn!(%txid, %until, "a preservation was listed that no record has: the entry is deleted");
                        stray_preservations.push((*until, *txid));
                    }
                }
                after = over.next;
                if after.is_none() {
                    break;
                }
            }
            Ok::<_, Stop<StoreError>>(expired)
        })
    }

    fn end_preservations(&self, preserved: &[(TxId, Height)]) -> Result<usize, StoreError> {
        self.change(|change| {
            change.set.want(preserved.iter().map(|(txid, _)| *txid));
            change.set.ready()?;
            let mut ended = 0;
            for (txid, until) in preserved {
                let end = change.set.attempt(|set| preserve::end(set, *txid, *until));
                ended += usize::from(readable(*txid, end, &mut Vec::new())?.unwrap_or(false));
            }
            Ok::<_, Stop<StoreError>>(ended)
        })
    }

    fn prune_undo(
        &self,
        from: Option<Height>,
        below: Height,
        limit: usize,
    ) -> Result<UndoDropped, StoreError> {
        check_limit(limit)?;
        self.change(|change| {
            let Some(chain) = change.state.chain else { return Ok(UndoDropped::default()) };
            let (start, end) =
                (keys::undo(from.unwrap_or(Height::GENESIS)), keys::undo(below.min(chain.undoable_from())));
            let scan =
                Scan { table: Table::Undo, from: &start, to: Some(&end), reverse: false, fill_cache: true };
            let (mut next, mut bad_key) = (None, false);
            self.snapshot()?.scan(&scan, |key, _| {
                let Some(height) = keys::parse_undo(key) else {
                    bad_key = true;
                    return ControlFlow::Break(());
                };
                if change.undone.len() == limit {
                    next = Some(height);
                    return ControlFlow::Break(());
                }
                change.undone.push(height);
                ControlFlow::Continue(())
            })?;
            if bad_key {
                return Err(corrupt("an undo record", DecodeError::BadNumber { field: "undo key" }).into());
            }
            Ok::<_, Stop<StoreError>>(UndoDropped { dropped: change.undone.len() as u64, next })
        })
    }
}

/// The independent check: what the own record of every child says, of every record that may go. Most children were mined
/// while this process ran, and what was written into their records is still known; the others are read.
fn check_all_children(
    core: &Core,
    snapshot: &Snapshot,
    cases: &mut [Case],
    context: &PruneContext,
) -> Result<(), StoreError> {
    let mut slots: Vec<(usize, Slot)> = Vec::with_capacity(3 * cases.len());
    let mut paged: Vec<(usize, TxId)> = Vec::new();
    for (number, case) in cases.iter_mut().enumerate().filter(|(_, case)| case.judged.verdict.may_go()) {
        match &case.plain {
            Some(header) if header.summaries.is_empty() => {
                slots.extend(header.slots.iter().map(|slot| (number, *slot)));
            }
            _ => paged.push((number, case.judged.txid)),
        }
    }
    let found = snapshot.read(|set| {
        set.want(paged.iter().map(|(_, txid)| *txid));
        each(set, &paged, |set, (_, txid)| set.slots(*txid))
    })?;
    for ((number, txid), found) in paged.into_iter().zip(found) {
        match found {
            Ok(all) => slots.extend(all.into_iter().map(|slot| (number, slot))),
            Err(error) => cases[number].judged.verdict = Verdict::Kept(unreadable(txid, error)?),
        }
    }
    let child = |slot: &Slot| slot.spender().map(|spender| spender.child);
    let mined = core.mined.read();
    let known: Vec<Option<Height>> =
        slots.iter().map(|(_, slot)| child(slot).and_then(|child| mined.get(&child))).collect();
    drop(mined);
    let unknown = slots.iter().zip(&known).filter(|(_, known)| known.is_none());
    let mut to_read: Vec<TxId> = unknown.filter_map(|((_, slot), _)| child(slot)).collect();
    to_read.sort_unstable();
    to_read.dedup();
    let mut found: Vec<Result<ChildEvidence, KeepReason>> = Vec::with_capacity(to_read.len());
    for part in to_read.chunks(core.options.children_per_read.max(1)) {
        core.reached("prune-children")?;
        snapshot.each_first_page(part, |child, bytes| {
            let evidence = bytes.and_then(|bytes| match bytes {
                None => Ok(ChildEvidence::Absent),
                Some(bytes) => match FirstPage::peek_mined_at(bytes) {
                    Ok(mined_at) => Ok(ChildEvidence::Present { mined_at }),
                    Err(cause) => Err(corrupt(format!("transaction {child}"), cause)),
                },
            });
            found.push(match evidence {
                Ok(evidence) => Ok(evidence),
                Err(error) => Err(unreadable(*child, error)?),
            });
            Ok(())
        })?;
    }
    for ((number, slot), known) in slots.iter().zip(known) {
        let verdict = &mut cases[*number].judged.verdict;
        if !verdict.may_go() {
            continue;
        }
        let read = |child: &TxId| to_read.binary_search(child).ok().map(|at| &found[at]);
        if known.is_none()
            && let Some(Err(reason)) = child(slot).as_ref().and_then(read)
        {
            *verdict = Verdict::Kept(reason.clone());
            continue;
        }
        let evidence = |child: &TxId| match known {
            Some(height) => ChildEvidence::Present { mined_at: Some(height) },
            None => match read(child) {
                Some(Ok(evidence)) => *evidence,
                _ => ChildEvidence::Absent,
            },
        };
        if let Err(reason) = check_child(slot, evidence, context) {
            *verdict = Verdict::Kept(reason);
        }
    }
    Ok(())
}

impl Ledger {
    /// Records that settled at or below a height, oldest first.
    pub async fn due(
        &self,
        settled_up_to: Height,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<DueRecord>, StoreError> {
        self.run(move |core| core.due(settled_up_to, after.as_ref(), limit)).await?
    }

    /// Judges records without deleting anything. One that cannot be read is retained with
    /// [`KeepReason::Unreadable`](sapwood_rules::KeepReason::Unreadable) and stands in the way of no other.
    pub async fn judge(
        &self,
        txids: Vec<TxId>,
        context: PruneContext,
        check_children: bool,
    ) -> Result<Vec<Judged>, StoreError> {
        self.run(move |core| {
            let cases = core.cases(&txids, &context, check_children)?;
            Ok(cases.into_iter().map(|case| case.judged).collect())
        })
        .await?
    }

    /// Judges records and deletes those that may go, in one write with the cursor. A record that changes meanwhile is judged
    /// again. One that cannot be read is retained, as by [`judge`](Self::judge).
    pub async fn delete_due(&self, request: DeleteDue) -> Result<Vec<Judged>, StoreError> {
        self.run(move |core| core.delete_due(&request)).await?
    }

    /// The cursor saved with the last deletions.
    pub async fn prune_cursor(&self) -> Result<Option<Cursor>, StoreError> {
        Ok(self.core.published.read().prune_cursor.clone())
    }

    /// Lists records whose preservation ends at or below a height, the earliest first. A damaged list may have entries that no record has.
    pub async fn preserved(
        &self,
        up_to: Height,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<TxId>, StoreError> {
        self.run(move |core| {
            let snapshot = core.snapshot()?;
            let preserved = Some(Pending::Preserved);
            let page =
                snapshot.by_height(Table::Pending, preserved, Height(0)..=up_to, after.as_ref(), limit)?;
            Ok(Page::new(page.items.into_iter().map(|(_, txid)| txid).collect(), page.next))
        })
        .await?
    }

    /// Ends preservations up to a height, at most `limit` of them. What becomes of each record follows from its content alone. A list
    /// that was damaged may have entries that no record has; they are deleted and count too, so that a caller who repeats this comes to
    /// an end. Those of records that cannot be read stay.
    pub async fn expire_preservations(&self, height: Height, limit: usize) -> Result<Expired, StoreError> {
        self.run(move |core| core.expire_preservations(height, limit)).await?
    }

    /// Ends the preservation of each of these that is preserved up to exactly this height, and returns how many were: whoever set one
    /// can take it back once its reason is gone, without ending one that somebody else set. One that cannot be read is not ended. A
    /// store that cannot ends none.
    pub async fn end_preservations(&self, preserved: Vec<(TxId, Height)>) -> Result<usize, StoreError> {
        self.run(move |core| core.end_preservations(&preserved)).await?
    }

    /// Drops undo records from `from` on (`None` for the lowest) and below `below`, at most `limit` of them, but never one that a
    /// rollback could need. Says where to go on.
    pub async fn prune_undo(
        &self,
        from: Option<Height>,
        below: Height,
        limit: usize,
    ) -> Result<UndoDropped, StoreError> {
        self.run(move |core| core.prune_undo(from, below, limit)).await?
    }
}
