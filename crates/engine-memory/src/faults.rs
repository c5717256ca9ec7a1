//! Commits that fail on purpose.

use std::time::Duration;

use parking_lot::Mutex;
use sapwood_ledger::engine::EngineError;

/// When a commit fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailPoint {
    /// Before anything is written.
    BeforeCommit,
    /// After everything is written: the caller cannot know.
    AfterCommit,
}

/// One failure that a test asked for.
struct Planned {
    number: u64,
    point: FailPoint,
    error: EngineError,
    /// Attempts that still fail.
    left: u32,
}

/// Which commits fail.
#[derive(Default)]
pub(crate) struct Faults {
    planned: Mutex<Option<Planned>>,
    /// Attempts to commit so far, where the connection to the engine is lost again and again.
    unreliable: Option<Mutex<u64>>,
}

impl Faults {
    /// Loses the connection at three of five attempts: before the commit was sent, before it was done, and before it was answered.
    pub(crate) fn unreliable() -> Self {
        Self { unreliable: Some(Mutex::default()), ..Self::default() }
    }

    /// The same for an engine that is opened again, without the planned failure.
    pub(crate) fn reopened(&self) -> Self {
        match self.unreliable {
            None => Self::default(),
            Some(_) => Self::unreliable(),
        }
    }

    pub(crate) fn plan(&self, number: u64, point: FailPoint, error: EngineError, times: u32) {
        *self.planned.lock() = Some(Planned { number, point, error, left: times });
    }

    /// Begins an attempt to commit. Fails if it is one to fail before anything is written.
    pub(crate) fn before(&self, number: u64) -> Result<Attempt<'_>, EngineError> {
        let cause = || "the connection was lost".to_owned();
        let mut fails_after = None;
        if let Some(attempts) = &self.unreliable {
            let mut attempts = attempts.lock();
            *attempts += 1;
            match *attempts % 5 {
                1 => {
                    let (place, retry_after) = ("memory".into(), Duration::ZERO);
                    return Err(EngineError::Unavailable { place, cause: cause(), retry_after });
                }
                3 => return Err(EngineError::OutcomeUnknown { number, cause: cause() }),
                4 => fails_after = Some(EngineError::OutcomeUnknown { number, cause: cause() }),
                _ => {}
            }
        }
        self.fail(number, FailPoint::BeforeCommit)?;
        Ok(Attempt { faults: self, number, fails_after })
    }

    fn fail(&self, number: u64, at: FailPoint) -> Result<(), EngineError> {
        match &mut *self.planned.lock() {
            Some(planned) if (planned.number, planned.point) == (number, at) && planned.left > 0 => {
                planned.left -= 1;
                Err(planned.error.clone())
            }
            _ => Ok(()),
        }
    }
}

/// An attempt to commit that has not failed before it was done.
pub(crate) struct Attempt<'a> {
    faults: &'a Faults,
    number: u64,
    fails_after: Option<EngineError>,
}

impl Attempt<'_> {
    /// Ends the attempt, once everything is written.
    pub(crate) fn after(self) -> Result<(), EngineError> {
        self.faults.fail(self.number, FailPoint::AfterCommit)?;
        self.fails_after.map_or(Ok(()), Err)
    }
}
