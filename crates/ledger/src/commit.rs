//! One commit on an engine that may be unreachable for a while.
//!
//! # Correctness
//! An engine says whether a failed commit can be attempted again ([`EngineError::retry_after`]). If its outcome is unknown, the engine's position is
//! compared with the number of the write set first: equal, the commit was done and only its answer was lost. In all other cases the engine itself
//! refuses a number that does not follow its position. So a commit is done at most once, and never on top of another process's.

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::engine::{Engine, EngineError, WriteSet};

/// How long a commit is attempted again unless something else is asked for.
pub(crate) const RETRY_COMMITS_FOR: Duration = Duration::from_secs(60);

/// Commits a write set. Attempts it again for up to `retry_for` while the engine cannot be reached.
///
/// # Errors
/// Those of [`Engine::commit`]. After [`EngineError::OutcomeUnknown`] it may have been committed.
pub(crate) fn commit(engine: &dyn Engine, writes: &WriteSet, retry_for: Duration) -> Result<(), EngineError> {
    let start = Instant::now();
    let mut unknown = None;
    let mut outcome = engine.commit(writes);
    loop {
        let Err(error) = outcome else { return Ok(()) };
        let Some(wait) = error.retry_after() else { return Err(error) };
        if matches!(error, EngineError::OutcomeUnknown { .. }) {
            unknown = Some(error.clone());
        }
        if start.elapsed() + wait >= retry_for {
            return Err(unknown.unwrap_or(error));
        }
        tracing::warn!(%error, number = writes.number, ?wait, "a commit is attempted again");
        thread::sleep(wait);
        outcome = match &unknown {
            None => engine.commit(writes),
            Some(_) => engine.position().and_then(|position| {
                if position == writes.number {
                    return Ok(());
                }
                unknown = None;
                engine.commit(writes)
            }),
        };
    }
}
