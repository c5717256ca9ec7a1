//! Why a transition stopped.

use crate::{
    ApplyError, ConflictError, CreateError, DeleteError, FreezeError, MineError, PreserveError,
    ReassignError, RollbackError, SpendError, StoreError, UnspendError,
};

/// Why a transition stopped before its end. `?` turns the one of an accessor into the one of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop<E> {
    /// It needs pages that are not loaded. The working set has noted which.
    Need,
    /// It failed.
    Failed(E),
}

/// What an accessor of a working set returns: a page may be missing, or damaged.
pub type Access<T> = Result<T, Stop<StoreError>>;

impl<E> Stop<E> {
    /// Turns the error of one operation into the error of another that it is a part of.
    pub fn map<F>(self, error: impl FnOnce(E) -> F) -> Stop<F> {
        match self {
            Stop::Need => Stop::Need,
            Stop::Failed(failed) => Stop::Failed(error(failed)),
        }
    }
}

impl<E> From<E> for Stop<E> {
    fn from(error: E) -> Self {
        Stop::Failed(error)
    }
}

/// For every operation: what stops an accessor stops it.
macro_rules! operations {
    ($($error:ty),* $(,)?) => {$(
        impl From<Stop<StoreError>> for Stop<$error> {
            fn from(stop: Stop<StoreError>) -> Self {
                stop.map(<$error>::from)
            }
        }

        impl From<StoreError> for Stop<$error> {
            fn from(error: StoreError) -> Self {
                Stop::Failed(error.into())
            }
        }
    )*};
}

operations!(
    ApplyError,
    ConflictError,
    CreateError,
    DeleteError,
    FreezeError,
    MineError,
    PreserveError,
    ReassignError,
    RollbackError,
    SpendError,
    UnspendError,
);
