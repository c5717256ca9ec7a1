//! Blocks that wait to be applied, in order.
//!
//! One worker, a bounded queue. When a block fails, those queued behind it cannot be applied either: they are dropped, the failure
//! is remembered, and the next caller is told. From then on blocks are taken again.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

use parking_lot::Mutex;
use sapwood_ledger::ApplyOptions;
use sapwood_types::Block;
use tokio::sync::{mpsc, oneshot};

use crate::{ChainError, LONGEST_RUN, chain::Worker};

/// A block that waits.
pub(crate) struct Queued {
    pub(crate) block: Arc<Block>,
    pub(crate) options: ApplyOptions,
}

enum Work {
    /// A block, and how many failures were known when it was queued.
    Apply(Queued, u64),
    /// Says when everything before it is done.
    Drain(oneshot::Sender<()>),
}

pub(crate) struct Queue {
    sender: mpsc::Sender<Work>,
    shared: Arc<Shared>,
    closed: AtomicBool,
}

#[derive(Default)]
struct Shared {
    waiting: AtomicUsize,
    /// How many blocks have failed so far. A block that was queued before the last failure is stale.
    failures: AtomicU64,
    /// The last failure, until somebody is told.
    failure: Mutex<Option<ChainError>>,
}

impl Shared {
    /// Applies what was queued, but for blocks from before the last failure.
    async fn apply(&self, worker: &Worker, run: Vec<(Queued, u64)>) {
        let taken = run.len();
        let failures = self.failures.load(Ordering::SeqCst);
        let fresh = run.into_iter().filter(|(_, known)| *known == failures);
        let run: Vec<_> = fresh.map(|(Queued { block, options }, _)| (block, options)).collect();
        if !run.is_empty()
            && let Err(error) = worker.apply_run(run).await.result()
        {
            // Remembered before it is counted: see `push`.
            *self.failure.lock() = Some(error);
            self.failures.fetch_add(1, Ordering::SeqCst);
        }
        self.waiting.fetch_sub(taken, Ordering::SeqCst);
    }
}

impl Queue {
    pub(crate) fn start(worker: Arc<Worker>, size: usize) -> Self {
        let size = size.max(1);
        let (sender, mut receiver) = mpsc::channel(size);
        let shared = Arc::new(Shared::default());
        let mine = Arc::clone(&shared);
        tokio::spawn(async move {
            let mut work = Vec::new();
            while receiver.recv_many(&mut work, size.min(LONGEST_RUN)).await > 0 {
                let mut run = Vec::new();
                for work in work.drain(..) {
                    match work {
                        Work::Apply(queued, failures) => run.push((queued, failures)),
                        Work::Drain(done) => {
                            mine.apply(&worker, std::mem::take(&mut run)).await;
                            // Whoever waited may have gone.
                            let _ = done.send(());
                        }
                    }
                }
                mine.apply(&worker, run).await;
            }
        });
        Self { sender, shared, closed: AtomicBool::new(false) }
    }

    pub(crate) fn len(&self) -> usize {
        self.shared.waiting.load(Ordering::SeqCst)
    }

    /// Waits for room and queues a block. If an earlier one failed, tells that instead.
    pub(crate) async fn push(&self, queued: Queued) -> Result<(), ChainError> {
        let height = queued.block.height;
        let earlier = |cause| ChainError::Earlier { height, cause: Box::new(cause) };
        let room = self.sender.reserve().await.map_err(|_| ChainError::Closed)?;
        if self.closed.load(Ordering::SeqCst) {
            return Err(ChainError::Closed);
        }
        // Counted before it is looked for: a failure that happens in between makes this block stale.
        let failures = self.shared.failures.load(Ordering::SeqCst);
        if let Some(cause) = self.shared.failure.lock().take() {
            return Err(earlier(cause));
        }
        self.shared.waiting.fetch_add(1, Ordering::SeqCst);
        room.send(Work::Apply(queued, failures));
        Ok(())
    }

    /// Waits until everything queued so far is done. Tells the failure of one of them.
    pub(crate) async fn drain(&self) -> Result<(), ChainError> {
        let (done, wait) = oneshot::channel();
        self.sender.send(Work::Drain(done)).await.map_err(|_| ChainError::Closed)?;
        wait.await.map_err(|_| ChainError::Closed)?;
        match self.shared.failure.lock().take() {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    /// Takes nothing more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }
}
