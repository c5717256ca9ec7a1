//! Pruning: judge without the lock, delete under it what did not change meanwhile.

use async_trait::async_trait;
use rocksdb::{ColumnFamily, Direction, IteratorMode, ReadOptions, WriteBatch};
use sapwood_rules::{ChildEvidence, KeepReason, PruneContext, Verdict, judge_state, verdict::check_child};
use sapwood_store::{
    Cursor, DeleteDue, DueRecord, Expired, Judged, Page, StoreError, StorePrune, UndoDropped, Unreadable,
    WorkingSet,
    changes::{Facts, record_entries},
    check_limit,
    transition::preserve,
};
use sapwood_types::{Height, MasterFront, MasterPage, Slot, TxId, page::extra_pages};

use crate::{
    EmbeddedStore,
    columns::Column,
    engine::{Engine, corrupt, engine_error},
    gate::ChunkPass,
    keys::{self, Pending},
    read::Snapshot,
    watch::TxIds,
    writer::Deleted,
};

/// Records judged between two looks whether a block has come.
const JUDGED_AT_A_TIME: usize = 125;

/// A record, its verdict, and what deleting it takes.
struct Case {
    judged: Judged,
    /// What the record begins with, if it can be deleted by itself. A loser has to be taken off its parents' lists too.
    plain: Option<MasterFront>,
}

impl Case {
    /// A record that is not there.
    fn gone(txid: TxId) -> Self {
        Case { judged: Judged { txid, verdict: Verdict::Gone, external: None, bytes: 0 }, plain: None }
    }

    /// A record by what its first page begins with.
    fn of(
        txid: TxId,
        page: &[u8],
        context: &PruneContext,
        undoable_from: Option<Height>,
    ) -> Result<Self, StoreError> {
        let front =
            MasterFront::decode(page).map_err(|cause| corrupt(format!("transaction {txid}"), cause))?;
        let judged = Judged {
            txid,
            verdict: judge_state(&front.head, front.all_slots(), context, undoable_from),
            external: front.head.external,
            // Further pages are not read for this; they are taken to be as large as the first.
            bytes: page.len() as u64 * u64::from(1 + extra_pages(front.head.output_count)),
        };
        let plain = (!front.head.is_conflicting()).then_some(front);
        Ok(Case { judged, plain })
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
fn readable<T>(
    txid: TxId,
    found: Result<T, StoreError>,
    noted: &mut Vec<Unreadable>,
) -> Result<Option<T>, StoreError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(StoreError::Corrupt { what, cause }) => {
            noted.push(Unreadable { txid, error: format!("{what}: {cause}") });
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

impl Engine {
    /// Judges records as they are in one snapshot.
    fn cases(
        &self,
        txids: &[TxId],
        context: &PruneContext,
        check_children: bool,
    ) -> Result<Vec<Case>, StoreError> {
        let undoable_from = self.published.read().undoable_from();
        let snapshot = Snapshot::new(self);
        let mut cases: Vec<Case> = Vec::with_capacity(txids.len());
        snapshot.each_master(txids, |txid, bytes| {
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
        let snapshot = Snapshot::new(self);
        let page = snapshot.by_height(Column::Due, None, look.start()..=up_to, after, limit)?;
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
        changed: impl FnOnce() -> TxIds,
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
                return Err(StoreError::Stopped { doing: "deleting due records" });
            }
            let changed = changed();
            let mut gone = TxIds::with_capacity_and_hasher(cases.len(), Default::default());
            let mut spared = false;
            for case in &mut cases {
                let txid = case.judged.txid;
                if gone.contains(&txid) {
                    *case = Case::gone(txid);
                } else if changed.contains(&txid) {
                    let again = self.cases(&[txid], &request.context, request.check_children)?.pop();
                    *case = again.unwrap_or_else(|| Case::gone(txid));
                }
                if !case.judged.verdict.may_go() {
                    continue;
                }
                if request.spare_external && case.judged.external.is_some() {
                    case.judged.verdict = Verdict::Kept(KeepReason::BodyFirst);
                    spared = true;
                    continue;
                }
                match case.plain.take() {
                    Some(front) => {
                        let further_pages = extra_pages(front.head.output_count);
                        change.deleted.push((txid, Deleted { further_pages, facts: Facts::of(&front) }));
                    }
                    None => {
                        if let Err(error) = change.set.attempt(|set| preserve::prune(set, txid)) {
                            case.judged.verdict = Verdict::Kept(unreadable(txid, error)?);
                            continue;
                        }
                    }
                }
                gone.insert(txid);
            }
            if let (Some(cursor), false) = (&request.save_cursor, spared) {
                change.state.prune_cursor = Some(cursor.clone());
            }
            Ok::<_, StoreError>(())
        })?;
        Ok(cases.into_iter().map(|case| case.judged).collect())
    }

    /// Deletes a record that has no ties: mined, and every output spent by mined transactions.
    pub(crate) fn delete_plain(
        &self,
        batch: &mut WriteBatch,
        records: &ColumnFamily,
        txid: TxId,
        record: &Deleted,
    ) -> Result<(), StoreError> {
        batch.delete_cf(records, txid.0);
        for number in 1..=record.further_pages {
            batch.delete_cf(records, keys::page(&txid, number));
        }
        for entry in record_entries(txid, &record.facts).iter().flatten() {
            let mut result = Ok(());
            keys::index(entry, |column, key| match self.column(column) {
                Ok(column) => batch.delete_cf(column, key),
                Err(error) => result = Err(error),
            });
            result?;
        }
        Ok(())
    }

    /// Works off the first entries of the list of preservations. Each one leaves the list, whatever is behind it: whoever goes on
    /// while there are as many as asked for comes to the end.
    /// An entry whose record cannot be read stays, and is stepped over.
    fn expire_preservations(&self, height: Height, limit: usize) -> Result<Expired, StoreError> {
        check_limit(limit)?;
        self.change(|change| {
            let snapshot = Snapshot::new(self);
            let (mut expired, mut after) = (Expired::default(), None);
            let mut stray = WriteBatch::default();
            while expired.worked_off < limit {
                let (preserved, heights) = (Some(Pending::Preserved), Height(0)..=height);
                let wanted = limit - expired.worked_off;
                let over =
                    snapshot.by_height(Column::Pending, preserved, heights, after.as_ref(), wanted)?;
                change.set.load_readable(over.items.iter().map(|(_, txid)| *txid))?;
                for (until, txid) in &over.items {
                    let ended = change.set.attempt(|set| preserve::end(set, *txid, *until));
                    let Some(ended) = readable(*txid, ended, &mut expired.unreadable)? else { continue };
                    expired.worked_off += 1;
                    if !ended {
                        tracing::warn!(%txid, %until, "a preservation was listed that no record has: the entry is deleted");
                        let key = keys::pending(Pending::Preserved, *until, txid);
                        stray.delete_cf(self.column(Column::Pending)?, key);
                    }
                }
                after = over.next;
                if after.is_none() {
                    break;
                }
            }
            // By themselves, but under the same lock: no record changes with them, so there is nothing to keep together.
            if !stray.is_empty() {
                self.write(stray)?;
            }
            Ok(expired)
        })
    }

    fn end_preservations(&self, preserved: &[(TxId, Height)]) -> Result<usize, StoreError> {
        self.change(|change| {
            change.set.load_readable(preserved.iter().map(|(txid, _)| *txid))?;
            let mut ended = 0;
            for (txid, until) in preserved {
                let end = change.set.attempt(|set| preserve::end(set, *txid, *until));
                ended += usize::from(readable(*txid, end, &mut Vec::new())?.unwrap_or(false));
            }
            Ok(ended)
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
            let column = self.column(Column::Undo)?;
            let end = below.min(chain.undoable_from());
            let start = keys::undo(from.unwrap_or(Height::GENESIS));
            let mut options = ReadOptions::default();
            options.set_iterate_upper_bound(keys::undo(end).to_vec());
            let mode = IteratorMode::From(&start, Direction::Forward);
            let mut next = None;
            for entry in self.db().iterator_cf_opt(column, options, mode) {
                let (key, _) = entry.map_err(engine_error("listing undo records"))?;
                let height = key.as_ref().try_into().map(u32::from_be_bytes).map_err(|_| {
                    let cause = sapwood_types::DecodeError::BadNumber { field: "undo key" };
                    corrupt("an undo record", cause)
                })?;
                if change.undone.len() == limit {
                    next = Some(Height(height));
                    break;
                }
                change.undone.push(Height(height));
            }
            Ok(UndoDropped { dropped: change.undone.len() as u64, next })
        })
    }
}

/// The independent check: what the own record of every child says, of every record that may go. Most children were mined
/// while this process ran, and what was written into their records is still known; the others are read.
fn check_all_children(
    engine: &Engine,
    snapshot: &Snapshot,
    cases: &mut [Case],
    context: &PruneContext,
) -> Result<(), StoreError> {
    let mut set = WorkingSet::new(snapshot);
    let mut slots: Vec<(usize, Slot)> = Vec::with_capacity(3 * cases.len());
    for (number, case) in cases.iter_mut().enumerate().filter(|(_, case)| case.judged.verdict.may_go()) {
        let txid = case.judged.txid;
        match &case.plain {
            Some(front) if front.summaries.is_empty() => {
                slots.extend(front.slots.iter().map(|slot| (number, *slot)));
            }
            _ => match set.slots(txid) {
                Ok(all) => slots.extend(all.into_iter().map(|slot| (number, slot))),
                Err(error) => case.judged.verdict = Verdict::Kept(unreadable(txid, error)?),
            },
        }
    }
    let child = |slot: &Slot| slot.spender().map(|spender| spender.child);
    let mined = engine.mined.read();
    let known: Vec<Option<Height>> =
        slots.iter().map(|(_, slot)| child(slot).and_then(|child| mined.get(&child))).collect();
    drop(mined);
    let unknown = slots.iter().zip(&known).filter(|(_, known)| known.is_none());
    let mut to_read: Vec<TxId> = unknown.filter_map(|((_, slot), _)| child(slot)).collect();
    to_read.sort_unstable();
    to_read.dedup();
    let mut found: Vec<Result<ChildEvidence, KeepReason>> = Vec::with_capacity(to_read.len());
    for part in to_read.chunks(engine.options.children_per_read.max(1)) {
        snapshot.each_master(part, |child, bytes| {
            let evidence = bytes.and_then(|bytes| match bytes {
                None => Ok(ChildEvidence::Absent),
                Some(bytes) => match MasterPage::peek_mined_at(bytes) {
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

#[async_trait]
impl StorePrune for EmbeddedStore {
    async fn due(
        &self,
        settled_up_to: Height,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<DueRecord>, StoreError> {
        self.run(move |engine| engine.due(settled_up_to, after.as_ref(), limit)).await?
    }

    async fn judge(
        &self,
        txids: Vec<TxId>,
        context: PruneContext,
        check_children: bool,
    ) -> Result<Vec<Judged>, StoreError> {
        self.run(move |engine| {
            let cases = engine.cases(&txids, &context, check_children)?;
            Ok(cases.into_iter().map(|case| case.judged).collect())
        })
        .await?
    }

    async fn delete_due(&self, request: DeleteDue) -> Result<Vec<Judged>, StoreError> {
        self.run(move |engine| engine.delete_due(&request)).await?
    }

    async fn prune_cursor(&self) -> Result<Option<Cursor>, StoreError> {
        Ok(self.engine.published.read().prune_cursor.clone())
    }

    async fn expire_preservations(&self, height: Height, limit: usize) -> Result<Expired, StoreError> {
        self.run(move |engine| engine.expire_preservations(height, limit)).await?
    }

    async fn end_preservations(&self, preserved: Vec<(TxId, Height)>) -> Result<usize, StoreError> {
        self.run(move |engine| engine.end_preservations(&preserved)).await?
    }

    async fn prune_undo(
        &self,
        from: Option<Height>,
        below: Height,
        limit: usize,
    ) -> Result<UndoDropped, StoreError> {
        self.run(move |engine| engine.prune_undo(from, below, limit)).await?
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests: to panic is how they fail")]
mod tests {
    use sapwood_conformance::fixtures::{block_hash, burn, coin, context, small};
    use sapwood_store::ApplyOptions;
    use sapwood_types::{Block, Tx};

    use super::*;
    use crate::{EmbeddedOptions, open::Access};

    fn block(height: u32, tx: &Tx) -> Block {
        Block {
            height: Height(height),
            hash: block_hash(&height.to_string()),
            parent: block_hash(&(height - 1).to_string()),
            time: 0,
            txs: vec![tx.clone()],
        }
    }

    /// A pruner goes on as long as it gets as many as it asks for.
    #[test]
    fn preservations_that_no_record_has_are_worked_off_and_those_behind_them_end() {
        let directory = tempfile::tempdir().unwrap();
        let engine =
            Engine::open(directory.path(), small(), EmbeddedOptions::default(), Access::Create).unwrap();
        let parent = coin("parent", 1);
        engine.apply_block(&block(1, &parent), ApplyOptions::default()).unwrap();
        engine.change(|change| preserve::preserve(&mut change.set, parent.txid, Height(8))).unwrap();
        let mut strays = WriteBatch::default();
        let no_record = [2, 3, 9].map(|until| (until, coin("never stored", 1).txid));
        let other_height = [4, 9].map(|until| (until, parent.txid));
        for (until, txid) in no_record.into_iter().chain(other_height) {
            let key = keys::pending(Pending::Preserved, Height(until), &txid);
            strays.put_cf(engine.column(Column::Pending).unwrap(), key, []);
        }
        engine.write(strays).unwrap();
        assert!(!engine.verify(&|_, _| ()).unwrap().is_clean(), "the case itself");

        let until = || {
            let found = engine.read_masters(&[parent.txid], &ReadOptions::default()).unwrap();
            found[0].as_ref().map(|stored| stored.front().unwrap().head.preserve_until)
        };
        let expire = |height, limit| engine.expire_preservations(Height(height), limit).unwrap().worked_off;
        assert_eq!(expire(4, 2), 2);
        assert_eq!(
            (expire(4, 2), until()),
            (1, Some(Some(Height(8)))),
            "an entry that is not its own ends nothing"
        );
        assert_eq!((expire(10, 2), until()), (2, Some(None)));
        assert_eq!((expire(10, 2), expire(10, 2)), (1, 0));
        assert_eq!(engine.verify(&|_, _| ()).unwrap().problems, Vec::<String>::new());
    }

    #[test]
    fn what_is_known_of_a_child_is_its_own_record_not_its_parents_memory() {
        let directory = tempfile::tempdir().unwrap();
        let engine =
            Engine::open(directory.path(), small(), EmbeddedOptions::default(), Access::Create).unwrap();
        let parent = coin("parent", 1);
        let child = burn("child", &[(&parent, 0)]);
        for (height, tx) in [(1, &parent), (2, &child)] {
            engine.apply_block(&block(height, tx), ApplyOptions::default()).unwrap();
        }
        // Until no rollback can need them any more.
        for height in 3..10 {
            let tx = coin(&height.to_string(), 1);
            engine.apply_block(&block(height, &tx), ApplyOptions::default()).unwrap();
        }
        assert_eq!(engine.mined.read().get(&child.txid), Some(Height(2)));
        let verdict = || {
            let cases = engine.cases(&[parent.txid], &context(30, 10, &[]), true).unwrap();
            cases.into_iter().map(|case| case.judged.verdict).next()
        };
        assert!(verdict().is_some_and(|verdict| verdict.may_go()));
        // As if the child's record had been written with another height, and its parent had not been told.
        engine.mined.write().note(child.txid, Some(Height(2)), Some(Height(7)));
        let found = ChildEvidence::Present { mined_at: Some(Height(7)) };
        let reason = KeepReason::ChildDisagrees { child: child.txid, remembered: Some(Height(2)), found };
        assert_eq!(verdict(), Some(Verdict::Kept(reason)));
        // What was deleted is not known any more.
        let request = DeleteDue {
            txids: vec![child.txid],
            context: context(30, 10, &[]),
            check_children: true,
            save_cursor: None,
            spare_external: false,
            permit: None,
        };
        engine.delete_due(&request).unwrap();
        assert_eq!(engine.mined.read().get(&child.txid), None);
    }
}
