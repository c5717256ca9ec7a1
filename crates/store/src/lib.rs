//! What a store is: the interface, and the transitions that every backend with atomic writes shares.
//!
//! **What lives here.** The traits ([`StoreRead`], [`StoreWrite`], [`StorePrune`], [`StoreDiagnose`]), the requests and errors
//! they speak in, and the transitions: what each operation does to the pages it touches. **What may not.** Any engine.
//!
//! # Layers
//! - [`traits`], [`request`], [`answer`], [`error`]: the interface.
//! - [`working_set`]: the pages an operation has read and changed, over any [`PageSource`].
//! - [`transition`]: each operation as a function over a working set. No I/O but reading pages.
//! - [`changes`]: what a working set changed, and the index entries that follow from it.
//! - [`utxo_set`]: the coins of the chain in figures, counted or kept with each write.
//! - [`digest`]: a hash of the whole state, for crash tests and `verify`.
//!
//! # Correctness
//! A backend holds its writer lock, runs one transition over a working set, and writes the resulting [`Changes`] with all index
//! entries in one atomic batch. A transition that fails leaves the working set as it was, so a batch of independent items can
//! go on with the next one. Index entries are computed from the page before and the page after, never kept by hand, so they
//! cannot drift from the records.
//!
//! Two rules hold at every commit, and `verify` checks them: every spender a slot names is stored, or remembered as mined;
//! and a transaction that lost against another claims no output.

pub mod answer;
pub mod changes;
pub mod digest;
pub mod error;
pub mod request;
pub mod traits;
pub mod transition;
pub mod utxo_set;
pub mod working_set;

pub use answer::{
    AddressKind, Applied, AppliedBlocks, Counts, Cursor, DiskRoom, DueRecord, EngineStats, EngineWrites,
    Expired, Judged, Order, Page, RolledBack, UndoDropped, UnminedTx, Unreadable, Utxo, VerifyReport,
};
pub use changes::{AddressIndexing, Changes, IndexChange};
pub use error::{
    ApplyError, BatchError, BatchResult, ConflictError, CreateError, DeleteError, FreezeError, InputRefusal,
    MineError, PreserveError, ReassignError, RollbackError, SpendError, StoreError, UnspendError,
};
pub use request::{
    AddressQuery, ApplyOptions, CreateRequest, DeleteDue, MineRequest, Permit, Reassign, RollbackMode,
    SpendInput, SpendRequest, Unspend,
};
pub use traits::{Store, StoreDiagnose, StorePrune, StoreRead, StoreWrite, UtxoProgress, check_limit};
pub use utxo_set::{UtxoChange, UtxoCounter, UtxoSet};
pub use working_set::{PageSource, WorkingSet};
