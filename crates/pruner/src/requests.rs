//! The one request that waits. A cell, not a queue: the greatest height wins, and whoever asks never waits.

use sapwood_types::Height;
use tokio::sync::watch;

use crate::jobs::{JobId, JobState, Jobs, Trigger};

/// What the pruner is asked to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) job: JobId,
    /// Nothing means the height of the chain when it begins, which is above all others.
    pub(crate) asked: Option<Height>,
    /// Look through everything that is due, instead of going on where the last job was.
    pub(crate) whole: bool,
}

pub(crate) struct Requests {
    cell: watch::Sender<Option<Request>>,
}

/// The order of requests: no height is above all heights.
fn rank(asked: Option<Height>) -> u64 {
    asked.map_or(u64::MAX, |height| height.0.into())
}

impl Requests {
    pub(crate) fn new() -> Self {
        Self { cell: watch::channel(None).0 }
    }

    /// Asks for pruning at a height. A request that waits for a lower one is superseded; one for the same or a greater height does
    /// for this one too, and its job is returned.
    pub(crate) fn submit(
        &self,
        jobs: &Jobs,
        trigger: Trigger,
        asked: Option<Height>,
        whole: bool,
        now: u64,
    ) -> JobId {
        let mut job = JobId(0);
        self.cell.send_modify(|cell| {
            if let Some(waiting) = cell
                && rank(waiting.asked) >= rank(asked)
            {
                waiting.whole |= whole;
                job = waiting.job;
                return;
            }
            job = jobs.create(trigger, asked, now);
            let before = cell.replace(Request { job, asked, whole });
            if let (Some(before), Some(cell)) = (before, cell) {
                cell.whole |= before.whole;
                jobs.update(before.job, |old| {
                    old.state = JobState::Superseded;
                    old.superseded_by = Some(job);
                    old.ended_at = Some(now);
                });
            }
        });
        job
    }

    /// Takes the request that waits, or the next one.
    pub(crate) async fn next(&self) -> Request {
        let mut waiting = self.cell.subscribe();
        loop {
            waiting.mark_unchanged();
            if let Some(request) = self.take(|_| true) {
                return request;
            }
            // The sender lives as long as this.
            let _ = waiting.changed().await;
        }
    }

    /// Takes the request that waits, if it is wanted.
    pub(crate) fn take(&self, wanted: impl Fn(&Request) -> bool) -> Option<Request> {
        let mut taken = None;
        self.cell.send_if_modified(|cell| {
            if cell.as_ref().is_some_and(&wanted) {
                taken = cell.take();
            }
            false
        });
        taken
    }

    /// The job that waits.
    pub(crate) fn waiting(&self) -> Option<JobId> {
        self.cell.borrow().as_ref().map(|request| request.job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn submit(requests: &Requests, jobs: &Jobs, height: Option<u32>, whole: bool) -> JobId {
        requests.submit(jobs, Trigger::BlockPersisted, height.map(Height), whole, 0)
    }

    #[tokio::test]
    async fn the_newest_height_wins_and_the_others_are_superseded() {
        let (requests, jobs) = (Requests::new(), Jobs::new(100));
        for height in 1..=50 {
            submit(&requests, &jobs, Some(height), height == 7);
        }
        let request = requests.next().await;
        assert_eq!(request, Request { job: JobId(50), asked: Some(Height(50)), whole: true });
        let superseded = jobs.newest(100).iter().filter(|job| job.state == JobState::Superseded).count();
        assert_eq!(superseded, 49);
        assert_eq!(jobs.get(JobId(3)).unwrap().superseded_by, Some(JobId(4)));
        assert_eq!(requests.waiting(), None);
    }

    #[tokio::test]
    async fn a_lower_height_joins_the_request_that_waits() {
        let (requests, jobs) = (Requests::new(), Jobs::new(100));
        let first = submit(&requests, &jobs, Some(10), false);
        assert_eq!(submit(&requests, &jobs, Some(9), true), first);
        assert_eq!(submit(&requests, &jobs, Some(10), false), first);
        let whatever_the_tip_is = submit(&requests, &jobs, None, false);
        assert_ne!(whatever_the_tip_is, first);
        assert_eq!(submit(&requests, &jobs, Some(u32::MAX), false), whatever_the_tip_is);
        assert_eq!(requests.next().await, Request { job: whatever_the_tip_is, asked: None, whole: true });
    }
}
