//! Pruning: judge without the lock, delete under it what did not change meanwhile.

mod children;
mod stretch;

use std::{
    ops::ControlFlow,
    sync::atomic::{AtomicUsize, Ordering},
};

use sapwood_rules::{KeepReason, PruneContext, Verdict, judge};
use sapwood_types::{DecodeError, Height, RecordHeader, TxId, page::further_pages};

use crate::{
    Cursor, DueRecord, Expired, Judged, Ledger, Page, PruneFrom, PruneOutcome, PruneRequest, PruneWhat,
    StoreError, UndoDropped, Unreadable, WorkingSet,
    changes::{Derived, record_entries},
    check_limit,
    core::{Core, corrupt},
    engine::{Scan, Table, WriteSet},
    keys::{self, Pending},
    recent::TxIds,
    transition::preserve,
    working_set::{Access, Stop},
    writer::{Change, Deleted},
};

use self::stretch::Stretch;

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
            children::check_all(self, &snapshot, &mut cases, context)?;
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

    /// Judges settled records, and deletes those that may go.
    fn prune(&self, request: &PruneRequest) -> Result<PruneOutcome, StoreError> {
        if !request.dry_run {
            self.check_poison()?;
        }
        match &request.what {
            PruneWhat::Records { txids, cursor } => {
                let judged = match request.dry_run {
                    true => self.judged(txids, request)?,
                    false => self.prune_part(request, txids, |change, spared| {
                        if cursor.is_some() && !spared {
                            change.state.prune_cursor.clone_from(cursor);
                        }
                    })?,
                };
                Ok(PruneOutcome { done: judged.len(), judged, next: None, stopped_by: None })
            }
            PruneWhat::Settled { from, up_to, limit, per_write } => {
                check_limit(*per_write)?;
                let start = match from {
                    PruneFrom::Oldest => None,
                    PruneFrom::Cursor => self.published.read().prune_cursor.clone(),
                    PruneFrom::After(cursor) => Some(cursor.clone()),
                };
                let page = self.due(*up_to, start.as_ref(), *limit)?;
                let outcome = if request.dry_run {
                    let txids: Vec<TxId> = page.items.iter().map(|due| due.txid).collect();
                    let judged = self.judged(&txids, request)?;
                    PruneOutcome { done: judged.len(), judged, next: None, stopped_by: None }
                } else {
                    let moves_cursor = !matches!(from, PruneFrom::After(_));
                    self.prune_stretch(request, &Stretch::new(start, &page, *per_write), moves_cursor)?
                };
                Ok(PruneOutcome { next: page.next, ..outcome })
            }
        }
    }

    /// Judges records without deleting any.
    fn judged(&self, txids: &[TxId], request: &PruneRequest) -> Result<Vec<Judged>, StoreError> {
        let cases = self.cases(txids, &request.context, request.check_children)?;
        Ok(cases.into_iter().map(|case| case.judged).collect())
    }

    /// Prunes the parts of a stretch, as many at a time as there are cores.
    fn prune_stretch(
        &self,
        request: &PruneRequest,
        stretch: &Stretch,
        moves_cursor: bool,
    ) -> Result<PruneOutcome, StoreError> {
        let prune = |number: usize| {
            self.prune_part(request, &stretch.parts[number].txids, |change, spared| {
                if !spared {
                    stretch.finish(number);
                }
                if moves_cursor {
                    change.state.prune_cursor = stretch.cursor();
                }
            })
        };
        if stretch.parts.is_empty() && moves_cursor && self.published.read().prune_cursor != stretch.cursor()
        {
            // Nothing is left in front of the old place.
            self.change(|change| {
                change.state.prune_cursor = stretch.cursor();
                Ok::<_, Stop<StoreError>>(())
            })?;
        }
        let pruned = each_on_its_core(self.gate.most_chunks(), stretch.parts.len(), prune);
        let (mut outcome, mut whole) = (PruneOutcome::default(), true);
        for part in pruned {
            match part {
                Ok(judged) => {
                    outcome.judged.extend(judged);
                    outcome.done = if whole { outcome.judged.len() } else { outcome.done };
                }
                Err(error) => {
                    whole = false;
                    // What failed says more than what was told to stop.
                    match &outcome.stopped_by {
                        Some(before) if !matches!(before, StoreError::Stopped { .. }) => {}
                        _ => outcome.stopped_by = Some(error),
                    }
                }
            }
        }
        match outcome.stopped_by.take_if(|_| outcome.judged.is_empty()) {
            Some(error) => Err(error),
            None => Ok(outcome),
        }
    }

    /// Judges records without the lock, then deletes under it, in one write, those that may go. What changed meanwhile is judged again.
    /// `done` is called once in that write, with whether a record was spared.
    fn prune_part(
        &self,
        request: &PruneRequest,
        txids: &[TxId],
        done: impl Fn(&mut Change, bool),
    ) -> Result<Vec<Judged>, StoreError> {
        let pass = self.gate.chunk();
        // Before the first view is taken: every view has this commit.
        let judged_at = self.number();
        let mut cases = Vec::with_capacity(txids.len());
        for part in txids.chunks(JUDGED_AT_A_TIME) {
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
            let changed = self.recent.changed_since(judged_at, &txids.iter().copied().collect());
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
                    verdict => match delete(set, deleted, case) {
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
            done(change, spared);
            Ok::<_, Stop<StoreError>>(judged)
        })
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

/// Deletes a record that may go.
fn delete(set: &mut WorkingSet, deleted: &mut Vec<(TxId, Deleted)>, case: &Case) -> Access<()> {
    let txid = case.judged.txid;
    let Some(header) = &case.plain else { return set.attempt(|set| preserve::prune(set, txid)) };
    let further_pages = further_pages(header.head.output_count);
    deleted.push((txid, Deleted { further_pages, derived: Derived::of(header.view()) }));
    Ok(())
}

/// Does `count` things, up to `cores` of them at a time. Returns what came of each, in order.
fn each_on_its_core<T: Send>(cores: usize, count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let (next, all) = (AtomicUsize::new(0), || (0..count).map(&work).collect());
    if cores.min(count) < 2 {
        return all();
    }
    let worker = || {
        let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        numbers.take_while(|number| *number < count).map(|number| (number, work(number))).collect::<Vec<_>>()
    };
    let mut done = std::thread::scope(|scope| {
        let others: Vec<_> = (1..cores.min(count)).map(|_| scope.spawn(worker)).collect();
        let mut done = worker();
        for other in others {
            done.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        done
    });
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
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
    /// [`KeepReason::Unreadable`] and stands in the way of no other.
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

    /// Judges settled records and deletes those that may go: see [`PruneRequest`]. A record that changes meanwhile is judged again. One
    /// that cannot be read is retained, as by [`judge`](Self::judge).
    ///
    /// # Errors
    /// Whatever kept every write of the call from being done. If some were done, [`PruneOutcome::stopped_by`] says what stopped the others.
    pub async fn prune(&self, request: PruneRequest) -> Result<PruneOutcome, StoreError> {
        self.run(move |core| core.prune(&request)).await?
    }

    /// Where the next [`prune`](Self::prune) goes on, as saved with the last deletions. `None` for the oldest record.
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
