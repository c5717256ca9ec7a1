//! Phase 2: delete due records, in chunks.
//!
//! # Correctness
//! A chunk is a page of the due index. Several are under way at a time, and each saves the cursor in the same write as its deletions:
//! the end of its own page if all pages before it are done, else the end of the last page up to which all are. So the saved cursor
//! never lies behind a page that is not done. It may go back when two chunks overtake each other, which costs a second look.
//!
//! What is kept, because its body could not be deleted or a child disagrees, lies before the cursor then. So does a record that
//! becomes due late: its preservation ended, or it was unlocked. They are found by the next job that looks through everything: the first
//! after a start, one on demand, one by timer, and one that ended preservations.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use futures_util::{StreamExt, future::join_all, stream};
use parking_lot::Mutex;
use sapwood_ledger::{Cursor, DeleteDue, Judged, Permit, StoreError};
use sapwood_rules::{KeepReason, PruneContext, Verdict};
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

/// Pages that are worked on at the same time.
struct Wave {
    pages: Vec<Vec<TxId>>,
    /// Where the listing goes on after each page. Only the last page of all has none.
    ends: Vec<Option<Cursor>>,
    done: Mutex<Vec<bool>>,
}

impl Wave {
    /// How many pages are done before the first that is not.
    fn done_first(&self) -> usize {
        self.done.lock().iter().take_while(|done| **done).count()
    }

    /// The end of the last page up to which all are done, if `writing` is done too.
    fn done_up_to(&self, writing: Option<usize>) -> Option<Cursor> {
        let done = self.done.lock();
        let all_done = (0..done.len()).take_while(|page| done[*page] || Some(*page) == writing);
        all_done.filter_map(|page| self.ends[page].clone()).last()
    }
}

/// What became of a chunk, as far as it got.
#[derive(Default)]
struct ChunkDone {
    judged: Vec<Judged>,
    bodies_deleted: u64,
    /// Why it did not come to its end. `None` if it did.
    error: Option<StoreError>,
}

impl Run<'_> {
    pub(super) async fn delete_due(&mut self, sweep: &mut Sweep, pacer: &mut Pacer) -> Result<(), Halt> {
        if self.whole {
            sweep.position = None;
        }
        if sweep.position.is_none() {
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
            let width = if full_speed { self.shared.options.parallel_chunks } else { 1 };
            let started = Instant::now();
            let wave = self.list(up_to, sweep.position.clone(), width).await?;
            let last = wave.ends.last().is_none_or(Option::is_none);
            let (context, permit) = (situation.context(), self.permit());
            let chunks = (0..wave.pages.len())
                .map(|page| chunk(self.shared, &wave, page, &context, &permit, &body_failures));
            let (mut failed, mut stopped) = (None, false);
            let done = join_all(chunks).await;
            let done_first = wave.done_first();
            for (page, mut done) in done.into_iter().enumerate() {
                match done.error.take() {
                    None => {}
                    Some(StoreError::Stopped { .. }) => stopped = true,
                    Some(error) => failed = Some(error),
                }
                // What lies behind a page that is not done is looked at again.
                self.count(done, (page < done_first).then_some(&mut sweep.seen));
            }
            drop(deleting);
            sweep.position = wave.done_up_to(None).or(sweep.position.take());
            *self.shared.position.lock() = sweep.position.clone();
            self.tell();
            if let Some(error) = failed {
                return Err(error.into());
            }
            if stopped {
                // If it may go on again by now, what was not done is looked at again.
                continue;
            }
            sweep.complete |= last;
            if last && sweep.position.is_none() {
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

    /// Up to `width` pages of due records.
    async fn list(&self, up_to: Height, mut after: Option<Cursor>, width: usize) -> Result<Wave, StoreError> {
        let (mut pages, mut ends) = (Vec::new(), Vec::new());
        for _ in 0..width {
            let page = self.shared.store.due(up_to, after, self.shared.options.chunk_records).await?;
            pages.push(page.items.into_iter().map(|record| record.txid).collect());
            ends.push(page.next.clone());
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let done = Mutex::new(vec![false; pages.len()]);
        Ok(Wave { pages, ends, done })
    }

    fn count(&mut self, done: ChunkDone, mut seen: Option<&mut Retained>) {
        let metrics = &self.shared.metrics;
        self.counts.bodies_deleted += done.bodies_deleted;
        metrics.bodies_deleted.inc_by(done.bodies_deleted);
        for judged in done.judged {
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
                    if let Some(seen) = &mut seen {
                        seen.note(&reason);
                    }
                    metrics.kept(reason.label());
                    tracing::debug!(txid = %judged.txid, %reason, "a due record is kept");
                }
            }
        }
    }
}

/// Deletes the records of one page that may go: the bodies first.
async fn chunk(
    shared: &Shared,
    wave: &Wave,
    page: usize,
    context: &PruneContext,
    permit: &Permit,
    body_failures: &AtomicU32,
) -> ChunkDone {
    let started = Instant::now();
    let mut done = ChunkDone::default();
    let txids = &wave.pages[page];
    if !txids.is_empty() {
        let request = DeleteDue {
            txids: txids.clone(),
            context: *context,
            check_children: shared.options.child_check,
            save_cursor: wave.done_up_to(Some(page)),
            spare_external: true,
            permit: Some(permit.clone()),
        };
        if let Err(error) = delete_chunk(shared, request, permit, body_failures, &mut done).await {
            done.error = Some(error);
            return done;
        }
        shared.metrics.batch_took(started.elapsed());
    }
    wave.done.lock()[page] = true;
    done
}

async fn delete_chunk(
    shared: &Shared,
    request: DeleteDue,
    permit: &Permit,
    body_failures: &AtomicU32,
    done: &mut ChunkDone,
) -> Result<(), StoreError> {
    let judged = shared.store.delete_due(request.clone()).await?;
    let waits_for_body = |judged: &Judged| judged.verdict == Verdict::Kept(KeepReason::BodyFirst);
    let (large, judged): (Vec<_>, Vec<_>) = judged.into_iter().partition(waits_for_body);
    done.judged = judged;
    if large.is_empty() {
        return Ok(());
    }
    if !permit.is_given() {
        return Err(StoreError::Stopped { doing: "deleting bodies" });
    }
    let large = large.iter().map(|judged| judged.txid).collect();
    delete_with_bodies(shared, large, request, body_failures, done).await
}

/// Deletes records whose body lives outside: the bodies, then those records whose body is gone.
async fn delete_with_bodies(
    shared: &Shared,
    large: Vec<TxId>,
    chunk: DeleteDue,
    body_failures: &AtomicU32,
    done: &mut ChunkDone,
) -> Result<(), StoreError> {
    // Nothing else touches those bodies while the claim lives.
    let _claim = match &shared.bodies {
        Some(bodies) => Some(bodies.claim_all(large.clone()).await),
        None => None,
    };
    // Judged again under the claim: a block may have mined one of them before.
    let judged = shared.store.judge(large, chunk.context, chunk.check_children).await?;
    let (may_go, retained): (Vec<_>, Vec<_>) = judged.into_iter().partition(|judged| judged.verdict.may_go());
    done.judged.extend(retained);
    let (with_body, without): (Vec<_>, Vec<_>) =
        may_go.into_iter().partition(|judged| judged.external.is_some());
    let (bodies_gone, kept) = delete_bodies(shared, with_body, body_failures).await;
    done.judged.extend(kept);
    done.bodies_deleted += bodies_gone.len() as u64;
    let txids = bodies_gone.iter().copied().chain(without.iter().map(|judged| judged.txid)).collect();
    // Whatever happens to the chain now: without their bodies these records are of no use. The store still judges each.
    let request = DeleteDue { txids, spare_external: false, permit: None, ..chunk };
    let judged = shared.store.delete_due(request).await?;
    for judged in &judged {
        if let (true, Verdict::Kept(reason)) = (bodies_gone.contains(&judged.txid), &judged.verdict) {
            // It was locked or preserved between two looks. It was due, so its body may be found in a persisted block.
            tracing::error!(txid = %judged.txid, %reason, "a record is kept after its external body was deleted");
            shared.metrics.failed("body_of_kept_record");
        }
    }
    done.judged.extend(judged);
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn the_cursor_never_passes_a_page_that_is_not_done() {
        let end = |number: u8| Some(Cursor(Bytes::from(vec![number])));
        let wave = Wave {
            pages: vec![vec![]; 4],
            ends: vec![end(0), end(1), end(2), None],
            done: Mutex::new(vec![false; 4]),
        };
        assert_eq!(wave.done_up_to(Some(2)), None, "pages 0 and 1 are not done");
        wave.done.lock()[2] = true;
        assert_eq!(wave.done_up_to(Some(0)), end(0));
        wave.done.lock()[0] = true;
        assert_eq!(wave.done_up_to(Some(3)), end(0), "page 1 is not done");
        assert_eq!(wave.done_up_to(Some(1)), end(2), "with page 1 all up to 2 are done");
        wave.done.lock()[1] = true;
        wave.done.lock()[3] = true;
        assert_eq!(wave.done_up_to(None), end(2), "the last page has no end to go on from");
    }
}
