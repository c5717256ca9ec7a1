//! Errors: one enum per operation, with the item it is about.

mod blocks;

use std::fmt;

use sapwood_rules::SpendRefusal;
use sapwood_types::{DecodeError, Height, OutPoint, Spender, TxId, UtxoHash};

use crate::engine::EngineError;

pub use blocks::{ApplyError, RollbackError, TxProblem};

/// The engine failed; the operation itself may have been fine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The engine could not do what was asked.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// An earlier write failed, so nothing more is written until the store is opened again.
    #[error(
        "the store refuses to write because an earlier write failed ({cause}). What was acknowledged before is safe. \
         Fix the cause (a full disk, a failing device, an unreachable server), then restart"
    )]
    Poisoned {
        /// The write that failed.
        cause: String,
    },
    /// Stored bytes are not what they should be.
    #[error("{what} in the store cannot be read: {cause}. Run `sapwood verify` to see what else is damaged")]
    Corrupt {
        /// Which entry.
        what: String,
        /// Why.
        cause: DecodeError,
    },
    /// The store was written by a newer program.
    #[error(
        "{place} has schema version {found}{}, this program knows up to {known}: use the newer program that wrote it, or \
         restore a backup made by this one",
        written_by.as_ref().map(|name| format!(", written by {name}")).unwrap_or_default()
    )]
    NewerSchema {
        /// The directory or URL.
        place: String,
        /// The version found.
        found: u32,
        /// The newest version known.
        known: u32,
        /// The program that wrote it. `None` if it does not say.
        written_by: Option<String>,
    },
    /// The store was written by an older program, or its migration was interrupted, and it is opened for reading only.
    #[error(
        "{place} has schema version {found} and has to be migrated to {known}, and it is open for reading only: open it once for \
         writing, with `sapwood upgrade`"
    )]
    OlderSchema {
        /// The directory or URL.
        place: String,
        /// The version found.
        found: u32,
        /// The version it is migrated to.
        known: u32,
    },
    /// The rows that a migration made contradict those it was made from. The store stays as it is and is refused.
    #[error(
        "{place} cannot be migrated to schema version {version}: {problem}. Restore a backup and check it with the program that \
         wrote it, or import again"
    )]
    Migration {
        /// The directory or URL.
        place: String,
        /// The schema version.
        version: u32,
        /// What is wrong.
        problem: String,
    },
    /// A dump was being loaded and that did not end.
    #[error(
        "{place} holds a dump that was not loaded to its end: load it again with `sapwood load`, which starts over, or delete it"
    )]
    HalfLoaded {
        /// The directory or URL.
        place: String,
    },
    /// The store holds another network than the one it is opened for.
    #[error("{place} holds {found}, not {wanted}: name the directory of {wanted}, or import into a new one")]
    OtherIdentity {
        /// The directory or URL.
        place: String,
        /// The network it holds.
        found: String,
        /// The network asked for.
        wanted: String,
    },
    /// The disk is nearly full. It passes: blocks are applied again once there is room, while reading and pruning go on.
    #[error(
        "only {free_bytes} bytes are free on the disk of {place}, and {reserve_bytes} are kept in reserve: no block is applied \
         until there is more room"
    )]
    NoRoom {
        /// The directory or URL.
        place: String,
        /// Bytes that are free.
        free_bytes: u64,
        /// Bytes that have to stay free.
        reserve_bytes: u64,
    },
    /// An option contradicts what the store was made with, or itself.
    #[error("{problem}")]
    BadOption {
        /// What is wrong and how to fix it.
        problem: String,
    },
    /// The caller asked for work to end before it was done.
    #[error("{doing} was stopped before it was done. Nothing is lost: ask again")]
    Stopped {
        /// What was being done.
        doing: &'static str,
    },
    /// The background task that did the work ended abnormally.
    #[error("the task that worked on the store ended abnormally: {cause}")]
    Task {
        /// What is known of it.
        cause: String,
    },
}

impl StoreError {
    /// Whether it is the error of one record that cannot be read, while others can.
    pub fn is_of_one_record(&self) -> bool {
        matches!(self, StoreError::Corrupt { .. })
    }
}

/// A batch of independent items of which some failed. The others are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchError<E> {
    /// The engine failed: nothing is written.
    Store(StoreError),
    /// These items failed and changed nothing. All others succeeded and are written.
    Items {
        /// The number of each failed item in the batch, and why.
        failed: Vec<(usize, E)>,
        /// How many items the batch had.
        total: usize,
    },
}

/// The result of a batch operation.
pub type BatchResult<T, E> = Result<T, BatchError<E>>;

impl<E> From<StoreError> for BatchError<E> {
    fn from(error: StoreError) -> Self {
        BatchError::Store(error)
    }
}

impl<E: fmt::Display> fmt::Display for BatchError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BatchError::Store(error) => error.fmt(f),
            BatchError::Items { failed, total } => {
                write!(f, "{} of {total} items failed", failed.len())?;
                match failed.first() {
                    Some((item, error)) => write!(f, "; item {item}: {error}"),
                    None => Ok(()),
                }
            }
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for BatchError<E> {}

/// One input that could not spend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputRefusal {
    /// The number of the input.
    pub vin: u32,
    /// The output it wanted.
    pub outpoint: OutPoint,
    /// Why not.
    pub refusal: SpendRefusal,
}

impl fmt::Display for InputRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "input {} ({}): {}", self.vin, self.outpoint, self.refusal)
    }
}

fn child_and_fix(child: &Option<TxId>) -> String {
    match child {
        Some(child) => format!("{child}: delete that one first"),
        None => "a transaction that was mined long ago: only the pruner may delete it".into(),
    }
}

fn list(refusals: &[InputRefusal]) -> String {
    refusals.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Why a transaction could not be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    /// It is stored already.
    #[error("transaction {txid} is already stored")]
    Exists {
        /// Which.
        txid: TxId,
    },
    /// It has no outputs.
    #[error("transaction {txid} has no outputs")]
    NoOutputs {
        /// Which.
        txid: TxId,
    },
    /// Some of its inputs cannot be spent.
    #[error("transaction {txid} cannot spend its inputs: {}", list(.inputs))]
    Inputs {
        /// Which.
        txid: TxId,
        /// Each input that failed.
        inputs: Vec<InputRefusal>,
    },
    /// The engine failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a transaction's inputs could not be spent. All of them, or none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpendError {
    /// The spending transaction is not stored. Create it: that spends its inputs in the same write, so that no output is ever
    /// held by a transaction nobody has.
    #[error("the spending transaction {child} is not stored: create it, which spends its inputs too")]
    UnknownSpender {
        /// The spender.
        child: TxId,
    },
    /// The spending transaction lost against another and may hold nothing.
    #[error("the spending transaction {child} conflicts with another since height {since}")]
    SpenderConflicting {
        /// The spender.
        child: TxId,
        /// Since when.
        since: Height,
    },
    /// The transaction has no such input.
    #[error("input {vin} of {child} does not spend {outpoint}")]
    NotAnInput {
        /// The spender.
        child: TxId,
        /// The input.
        vin: u32,
        /// What it was said to spend.
        outpoint: OutPoint,
    },
    /// Some inputs cannot be spent.
    #[error("transaction {child} cannot spend: {}", list(.inputs))]
    Inputs {
        /// The spender.
        child: TxId,
        /// Each input that failed.
        inputs: Vec<InputRefusal>,
    },
    /// The engine failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a spend could not be taken back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnspendError {
    /// There is no such output.
    #[error("{outpoint} is not stored")]
    NotFound {
        /// Which.
        outpoint: OutPoint,
    },
    /// The output is frozen.
    #[error("{outpoint} is frozen")]
    Frozen {
        /// Which.
        outpoint: OutPoint,
    },
    /// Somebody else spends it. To take that back would erase another transaction's spend.
    #[error("{outpoint} is spent by {by}, not by {wanted}")]
    OtherSpender {
        /// Which.
        outpoint: OutPoint,
        /// Who spends it.
        by: Spender,
        /// Who was said to.
        wanted: Spender,
    },
    /// The spender is mined; only taking back its block undoes that.
    #[error("{outpoint} is spent by a transaction mined at height {mined_at}: roll back its block instead")]
    SpenderMined {
        /// Which.
        outpoint: OutPoint,
        /// When the spender was mined.
        mined_at: Height,
    },
    /// The engine failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a transaction could not be marked mined, unmined, or on the longest chain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MineError {
    /// It is not stored.
    #[error("transaction {txid} is not stored")]
    NotFound {
        /// Which.
        txid: TxId,
    },
    /// It lost against another, which has to be resolved first.
    #[error("transaction {txid} conflicts with another since height {since}: resolve the conflict first")]
    Conflicting {
        /// Which.
        txid: TxId,
        /// Since when.
        since: Height,
    },
    /// It is in no block that could be on the longest chain.
    #[error("transaction {txid} is in no block")]
    NoBlock {
        /// Which.
        txid: TxId,
    },
    /// It does not hold one of its inputs, so mining it would be a double spend.
    #[error("transaction {txid} does not hold its input {outpoint}")]
    InputNotHeld {
        /// Which.
        txid: TxId,
        /// The output it should hold.
        outpoint: OutPoint,
    },
    /// The engine failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a conflict could not be marked or resolved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConflictError {
    /// It is not stored.
    #[error("transaction {txid} is not stored")]
    NotFound {
        /// Which.
        txid: TxId,
    },
    /// A mined transaction cannot lose.
    #[error("transaction {txid} is mined at height {mined_at} and cannot lose: roll back its block first")]
    Mined {
        /// Which.
        txid: TxId,
        /// When.
        mined_at: Height,
    },
    /// An output of a loser is frozen.
    #[error("{outpoint} is frozen: unfreeze it before its transaction can lose")]
    Frozen {
        /// Which.
        outpoint: OutPoint,
    },
    /// A winner cannot spend its inputs.
    #[error("transaction {txid} cannot spend: {}", list(.inputs))]
    Inputs {
        /// The winner.
        txid: TxId,
        /// Each input that failed.
        inputs: Vec<InputRefusal>,
    },
    /// The engine failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why an output could not be frozen or unfrozen, or a transaction not be locked or unlocked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FreezeError {
    /// There is no such transaction.
    #[error("transaction {txid} is not stored")]
    NotFound {
        /// Which.
        txid: TxId,
    },
    /// There is no such output.
    #[error("{outpoint} is not stored")]
    NoSuchOutput {
        /// Which.
        outpoint: OutPoint,
    },
    /// Only unspent outputs can be frozen.
    #[error("{outpoint} is not unspent and cannot be frozen")]
    NotUnspent {
        /// Which.
        outpoint: OutPoint,
    },
    /// Only frozen outputs can be unfrozen.
    #[error("{outpoint} is not frozen")]
    NotFrozen {
        /// Which.
        outpoint: OutPoint,
    },
    /// The engine failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why an output could not be given to another owner.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReassignError {
    /// There is no such output.
    #[error("{outpoint} is not stored")]
    NotFound {
        /// Which.
        outpoint: OutPoint,
    },
    /// It has to be frozen first.
    #[error("{outpoint} has to be frozen before it can be reassigned")]
    NotFrozen {
        /// Which.
        outpoint: OutPoint,
    },
    /// The caller's idea of the output is out of date.
    #[error("{outpoint} has the hash {actual}, the request expects {expected}")]
    HashMismatch {
        /// Which.
        outpoint: OutPoint,
        /// The hash it has.
        actual: UtxoHash,
        /// The hash expected.
        expected: UtxoHash,
    },
    /// The engine failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a transaction could not be preserved. An absent one is not a failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PreserveError {
    /// The engine failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a transaction could not be forgotten. An absent one is not a failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeleteError {
    /// Mined transactions are the pruner's.
    #[error(
        "transaction {txid} is mined at height {mined_at}: only the pruner may delete it, once nobody needs it"
    )]
    Mined {
        /// Which.
        txid: TxId,
        /// When.
        mined_at: Height,
    },
    /// Another transaction spends from it.
    #[error("transaction {txid} is spent from by {}", child_and_fix(.child))]
    HasChild {
        /// Which.
        txid: TxId,
        /// The child. Nothing if it was mined so long ago that it is forgotten.
        child: Option<TxId>,
    },
    /// One of its outputs is frozen.
    #[error("{outpoint} is frozen: unfreeze it first")]
    Frozen {
        /// Which.
        outpoint: OutPoint,
    },
    /// The engine failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
