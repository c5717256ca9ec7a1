//! The pruner as a task: hears what happens to the chain, and does one job after the other.
//!
//! - `shared`: what the task and its handles share, and whether pruning may run.
//! - `listen`: events, the chain's state and the timer, which make requests.
//! - `work`: takes the request that waits, and does the job.

mod listen;
mod shared;
mod work;

use std::{sync::Arc, time::Duration};

use sapwood_chain::{ChainState, Events, Subscription};
use sapwood_ledger::{Cursor, Ledger, StoreError};
use tokio::sync::watch;

use crate::{
    bodies::Bodies,
    clock::Clock,
    handle::PrunerHandle,
    jobs::{JobId, JobState, Trigger},
    options::{OptionsError, Pacing, PrunerOptions},
    policy::Shortening,
};

pub use shared::ENABLED_NOTE;
pub(crate) use shared::Shared;

/// Why the pruner could not start, or refuses a request.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PrunerError {
    /// The options cannot be used.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// Pruning is disabled.
    #[error("pruning is disabled: enable it first")]
    Disabled,
    /// Nothing can be due at the first block.
    #[error("height 0 cannot be pruned: give a height of at least 1, or none for the height of the chain")]
    HeightZero,
    /// The pruner has stopped, or is about to.
    #[error("the pruner has stopped")]
    Stopped,
    /// There is no such job, or it is over and forgotten.
    #[error("there is no job {job}")]
    NoSuchJob {
        /// Which.
        job: JobId,
    },
    /// The job is over.
    #[error("job {job} is {} already", .state.name())]
    JobOver {
        /// Which.
        job: JobId,
        /// What became of it.
        state: JobState,
    },
    /// Less would be kept than before, and that was not confirmed.
    #[error("{0}")]
    Shortens(Box<Shortening>),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The pruner. [`Pruner::start`] runs it beside a chain that is followed, [`Pruner::offline`] opens it where none is.
pub struct Pruner;

impl Pruner {
    /// Starts the pruner as a task of the current runtime. What was left in the store (holds, how far the persister is, whether pruning
    /// is enabled, the cursor) counts from the first moment on. The job of the start comes as soon as the chain is followed and has a
    /// block; until then there is no job.
    ///
    /// # Errors
    /// Options that cannot be used, and notes in the store that cannot be read.
    pub async fn start(
        store: Ledger,
        events: Events,
        bodies: Option<Bodies>,
        options: PrunerOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<PrunerHandle, PrunerError> {
        options.validate()?;
        // Before anything is read, so that nothing is missed in between.
        let heard = events.subscribe();
        let (shared, position) = Shared::open(store, events, bodies, options, clock).await?;
        if let Some(persisted) = shared.events.latest().block_persisted {
            shared.persisted(persisted.height).await;
        }
        if shared.store.last_applied().await?.is_some() {
            shared.trigger(Trigger::StartUp, None, false);
        }
        Ok(spawn(shared, position, Some(heard)))
    }

    /// Opens the pruner of a store whose chain is not followed. Nothing makes it prune but [`PrunerHandle::prune_now`], and one such job
    /// works to the end: limits and pauses are there for blocks that come meanwhile, and none does. Plan, explanations, status and holds
    /// change nothing and start no job.
    ///
    /// # Errors
    /// Options that cannot be used, and notes in the store that cannot be read.
    pub async fn offline(
        store: Ledger,
        bodies: Option<Bodies>,
        options: PrunerOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<PrunerHandle, PrunerError> {
        options.validate()?;
        let options = PrunerOptions {
            look_every: None,
            records_per_job: u64::MAX,
            time_per_job: Duration::MAX,
            job_timeout: Duration::MAX,
            pacing: Pacing { busy_share: 1.0, ..options.pacing },
            ..options
        };
        let events = Events::default();
        // No block can come or be rolled back meanwhile.
        events.enter(ChainState::Offline);
        let (shared, position) = Shared::open(store, events, bodies, options, clock).await?;
        Ok(spawn(shared, position, None))
    }
}

/// Runs jobs, and hears events if there are any to hear.
fn spawn(shared: Arc<Shared>, position: Option<Cursor>, heard: Option<Subscription>) -> PrunerHandle {
    let (stopped, task) = (TellStopped(shared.stopped.clone()), Arc::clone(&shared));
    tokio::spawn(async move {
        // Dropped in the opposite order: a caller that is told that the pruner has stopped can open the store again.
        let _stopped = stopped;
        let task = task;
        let listening = async {
            if let Some(heard) = heard {
                listen::listen(&task, heard).await;
            }
        };
        tokio::join!(listening, work::work(&task, position));
    });
    PrunerHandle::new(shared)
}

/// Tells that the task has ended, however it did.
struct TellStopped(watch::Sender<bool>);

impl Drop for TellStopped {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

/// Waits until it is said.
pub(crate) async fn said(flag: &mut watch::Receiver<bool>) {
    // The sender lives as long as its receivers.
    let _ = flag.wait_for(|said| *said).await;
}
