//! Phase 2: delete due records, in chunks.
//!
//! # Correctness
//! The ledger goes through the list of settled records and saves its cursor in the same write as the deletions. The cursor waits before
//! records whose body has to go first, and passes them in the write that deletes them.
//!
//! What is kept, because its body could not be deleted or a child disagrees, lies before the cursor then. So does a record that
//! becomes due late: its preservation ended, or it was unlocked. They are found by the next job that looks through everything: the first
//! after a start, one on demand, one by timer, and one that ended preservations.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use sapwood_ledger::{Cursor, Judged, PruneFrom, PruneRequest, PruneWhat, StoreError};
use sapwood_rules::{KeepReason, Verdict};
use sapwood_types::{External, Height, TxId};
use tokio::time::Instant;

use super::{Halt, Run, Sweep};
use crate::{
    bodies::BodyError,
    jobs::StopReason,
    pace::{LOOK_AGAIN_AFTER, Pacer},
    retained::Retained,
    service::Shared,
};

/// Bodies being deleted at the same time.
const BODIES_AT_A_TIME: usize = 16;
/// After so many failures in a row the object store is not asked again in this job.
const BODY_FAILURES: u32 = 8;

/// What became of a stretch of due records, as far as it got.
#[derive(Default)]
struct Done {
    judged: Vec<Judged>,
    /// How many of them do not come again.
    done: usize,
    bodies_deleted: u64,
    /// Where the list goes on. `None` at its end.
    next: Option<Cursor>,
    /// Why it did not come to its end. `None` if it did.
    error: Option<StoreError>,
}

impl Done {
    /// Adds records that do not come again.
    fn come(&mut self, judged: Vec<Judged>) {
        self.done += judged.len();
        self.judged.splice(0..0, judged);
    }
}

impl Run<'_> {
    pub(super) async fn delete_due(&mut self, sweep: &mut Sweep, pacer: &mut Pacer) -> Result<(), Halt> {
        let position = self.shared.store.prune_cursor().await?;
        let mut from = if self.whole { PruneFrom::Oldest } else { PruneFrom::Cursor };
        if self.whole || position.is_none() {
            sweep.look_back = false;
            (sweep.seen, sweep.complete) = (Retained::default(), false);
        }
        // What looks through everything comes seldom, and counts for itself.
        if self.whole || pacer.wants_backlog() {
            self.count_backlog(pacer).await?;
        }
        let body_failures = AtomicU32::new(0);
        let mut first = true;
        loop {
            self.check()?;
            // However much time the phases before took, or however small the limit is: each job gets further.
            if !std::mem::replace(&mut first, false) {
                self.check_limits()?;
            }
            let deleting = self.shared.holds.deleting().await;
            let situation = self.situation().await?;
            self.note(&situation);
            let Some(up_to) = situation.settled_up_to() else { return Ok(()) };
            let full_speed = pacer.full_speed(&self.shared.store).await?;
            let chunks = if full_speed { self.shared.options.parallel_chunks } else { 1 };
            let started = Instant::now();
            let per_write = self.shared.options.chunk_records;
            let what = PruneWhat::Settled { from: from.clone(), up_to, limit: per_write * chunks, per_write };
            let request = PruneRequest {
                what,
                check_children: self.shared.options.child_check,
                spare_external: true,
                permit: Some(self.permit()),
                ..PruneRequest::records(Vec::new(), situation.context())
            };
            let mut done = prune(self.shared, request, &body_failures).await;
            let (next, error) = (done.next.take(), done.error.take());
            let looked_at = done.judged.len();
            self.count(done, &mut sweep.seen);
            drop(deleting);
            self.tell();
            match error {
                None => {}
                // If it may go on again by now, what was not done is looked at again.
                Some(StoreError::Stopped { .. }) => {
                    // Where nothing was done the cursor has not moved, and the look has not begun.
                    if looked_at > 0 {
                        from = PruneFrom::Cursor;
                    }
                    continue;
                }
                Some(error) => return Err(error.into()),
            }
            from = PruneFrom::Cursor;
            let last = next.is_none();
            sweep.complete |= last;
            if last && self.shared.store.prune_cursor().await?.is_none() {
                *self.shared.looked_up_to.lock() = Some(up_to);
            }
            if sweep.complete {
                self.shared.found.lock().set_due(&sweep.seen);
            }
            if last {
                return Ok(());
            }
            if !full_speed {
                self.rest(pacer, started.elapsed()).await?;
            }
        }
    }

    async fn count_backlog(&self, pacer: &mut Pacer) -> Result<(), Halt> {
        pacer.note_backlog(match self.situation().await?.settled_up_to() {
            Some(up_to) => self.shared.store.settled_between(Height::GENESIS, up_to).await?,
            None => 0,
        });
        Ok(())
    }

    /// Rests after having been busy so long, and looks now and then whether to work all the time after all.
    async fn rest(&self, pacer: &mut Pacer, busy: Duration) -> Result<(), Halt> {
        let mut left = pacer.rest(busy);
        while !left.is_zero() {
            self.check()?;
            let part = left.min(LOOK_AGAIN_AFTER);
            if self.shared.rest(part).await {
                return Ok(());
            }
            left -= part;
            if pacer.wants_backlog() {
                self.count_backlog(pacer).await?;
            }
            if pacer.full_speed(&self.shared.store).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    fn check_limits(&self) -> Result<(), StopReason> {
        if self.counts.looked_at >= self.shared.options.records_per_job {
            return Err(StopReason::RecordLimit);
        }
        self.check_time()
    }

    fn count(&mut self, done: Done, seen: &mut Retained) {
        let metrics = &self.shared.metrics;
        self.counts.bodies_deleted += done.bodies_deleted;
        metrics.bodies_deleted.inc_by(done.bodies_deleted);
        for (number, judged) in done.judged.into_iter().enumerate() {
            self.counts.looked_at += 1;
            match judged.verdict {
                Verdict::MayGo { .. } => {
                    self.counts.deleted += 1;
                    self.counts.bytes_freed += judged.bytes;
                    metrics.processed.inc();
                    metrics.bytes_freed.inc_by(judged.bytes);
                }
                Verdict::Gone => self.counts.gone += 1,
                Verdict::Kept(reason) => {
                    self.counts.keep(reason.label());
                    if number < done.done {
                        seen.note(&reason);
                    }
                    metrics.kept(reason.label());
                    tracing::debug!(txid = %judged.txid, %reason, "a due record is kept");
                }
            }
        }
    }
}

/// Deletes the records of a stretch that may go, those with a body outside after their bodies.
async fn prune(shared: &Shared, request: PruneRequest, body_failures: &AtomicU32) -> Done {
    let started = Instant::now();
    let outcome = match shared.store.prune(request.clone()).await {
        Ok(outcome) => outcome,
        Err(error) => return Done { error: Some(error), ..Done::default() },
    };
    if !outcome.judged.is_empty() {
        shared.metrics.batch_took(started.elapsed());
    }
    let waits_for_body = |judged: &Judged| judged.verdict == Verdict::Kept(KeepReason::BodyFirst);
    let spared: Vec<TxId> =
        outcome.judged.iter().filter(|judged| waits_for_body(judged)).map(|judged| judged.txid).collect();
    let spared_behind = outcome.judged[outcome.done..].iter().filter(|judged| waits_for_body(judged)).count();
    let mut judged = outcome.judged;
    judged.retain(|judged| !waits_for_body(judged));
    let done = outcome.done - (spared.len() - spared_behind);
    let (next, error) = (outcome.next, outcome.stopped_by);
    let mut done = Done { judged, done, bodies_deleted: 0, next, error };
    // After a failed write no body is deleted: the record behind it could not be.
    if spared.is_empty() || done.error.is_some() {
        return done;
    }
    if request.permit.as_ref().is_some_and(|permit| !permit.is_given()) {
        done.error = Some(StoreError::Stopped { doing: "deleting bodies" });
        return done;
    }
    if let Err(error) = delete_with_bodies(shared, spared, request, body_failures, &mut done).await {
        done.error = Some(error);
    }
    done
}

/// Deletes records whose body lives outside: the bodies, then those records whose body is gone.
async fn delete_with_bodies(
    shared: &Shared,
    large: Vec<TxId>,
    request: PruneRequest,
    body_failures: &AtomicU32,
    done: &mut Done,
) -> Result<(), StoreError> {
    // Nothing else touches those bodies while the claim lives.
    let _claim = match &shared.bodies {
        Some(bodies) => Some(bodies.claim_all(large.clone()).await),
        None => None,
    };
    // Judged again under the claim: a block may have mined one of them before.
    let judged = shared.store.judge(large, request.context, request.check_children).await?;
    let (may_go, retained): (Vec<_>, Vec<_>) = judged.into_iter().partition(|judged| judged.verdict.may_go());
    done.come(retained);
    let (with_body, without): (Vec<_>, Vec<_>) =
        may_go.into_iter().partition(|judged| judged.external.is_some());
    let (bodies_gone, kept) = delete_bodies(shared, with_body, body_failures).await;
    done.come(kept);
    done.bodies_deleted += bodies_gone.len() as u64;
    let txids = bodies_gone.iter().copied().chain(without.iter().map(|judged| judged.txid)).collect();
    // Whatever happens to the chain now: without their bodies these records are of no use. The store still judges each. The cursor waited
    // before them and passes them with this write.
    let what = PruneWhat::Records { txids, cursor: done.next.clone() };
    let request = PruneRequest { what, spare_external: false, permit: None, ..request };
    let judged = shared.store.prune(request).await?.judged;
    for judged in &judged {
        if let (true, Verdict::Kept(reason)) = (bodies_gone.contains(&judged.txid), &judged.verdict) {
            // It was locked or preserved between two looks. It was due, so its body may be found in a persisted block.
            tracing::error!(txid = %judged.txid, %reason, "a record is kept after its external body was deleted");
            shared.metrics.failed("body_of_kept_record");
        }
    }
    done.come(judged);
    Ok(())
}

/// Deletes bodies. Returns the records whose body is gone now, and those that stay because theirs is not.
async fn delete_bodies(
    shared: &Shared,
    outside: Vec<Judged>,
    failures: &AtomicU32,
) -> (HashSet<TxId>, Vec<Judged>) {
    let deletions = stream::iter(outside).map(|judged| async move {
        let deleted = match judged.external {
            Some(external) => delete_body(shared, judged.txid, external, failures).await,
            None => Ok(()),
        };
        (judged, deleted)
    });
    let mut deletions = deletions.buffer_unordered(BODIES_AT_A_TIME);
    let (mut gone, mut kept) = (HashSet::new(), Vec::new());
    while let Some((judged, deleted)) = deletions.next().await {
        match deleted {
            Ok(()) => _ = gone.insert(judged.txid),
            Err(error) => {
                let verdict = Verdict::Kept(KeepReason::ExternalBody { error });
                kept.push(Judged { verdict, ..judged });
            }
        }
    }
    (gone, kept)
}

async fn delete_body(
    shared: &Shared,
    txid: TxId,
    external: External,
    failures: &AtomicU32,
) -> Result<(), String> {
    let Some(bodies) = &shared.bodies else {
        return Err("no object store is configured, so its body cannot be deleted".into());
    };
    if failures.load(Ordering::Relaxed) >= BODY_FAILURES {
        return Err("the object store failed too often in this job; the next one tries again".into());
    }
    let error: BodyError = match bodies.delete(txid, external).await {
        Ok(_) => {
            failures.store(0, Ordering::Relaxed);
            return Ok(());
        }
        Err(error) => error,
    };
    failures.fetch_add(1, Ordering::Relaxed);
    shared.metrics.failed("external_body");
    tracing::warn!(%txid, %error, "an external body could not be deleted; its record stays");
    Err(error.to_string())
}
