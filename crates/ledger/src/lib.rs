//! The ledger: what a UTXO store does, once, over any storage engine.
//!
//! **What lives here.** The domain: apply, rollback, conflicts, freezing, preservation, judging and pruning, listings, undo, the UTXO set
//! and its hash, counters, `verify`. And the [`engine`] interface that it stores its rows through. **What may not.** Any engine, any
//! network, any chain library.
//!
//! # Layers
//! - [`engine`]: tables, views, commits. What an engine has to do.
//! - [`Ledger`], [`request`], [`answer`], [`error`]: the interface callers use.
//! - [`working_set`], [`transition`], [`changes`]: each operation as a function over the pages it touches, and the rows that follow.
//! - `core`, `writer`, `write`, `rows`, `commit`: the one writer, which turns a transition into one commit.
//! - `read`, `prune`, `verify`, `diagnose`, `rolling`: everything else over a snapshot.
//! - `keys`, `state`, `settled`, `utxo_entry`: how rows are laid out. See `docs/formats.md`.
//! - [`dump`]: a whole ledger as a stream, to move it to another engine.
//! - `open`, `migrate`: what a ledger was made with, and what an older one becomes.
//! - `cache`, `mined`, `recent`, `gate`, `due_start`: what the writer and the pruner remember in memory.
//!
//! # Correctness
//! There is one writer at a time. It runs a transition over a working set, computes index entries and counters from each page before and
//! after, and commits all of it as one write set: after a crash it is there as a whole or not at all. Nothing maintains an index by hand.
//! Caches are updated beside the commit or after it; the published state and what changed only once it is done. If a commit fails, or
//! something panics during one, all further writes are refused, because memory and engine may differ. Blocks in a row are prepared while
//! the one before is committed; what is in flight comes before the cache and the engine. Readers use a snapshot and never the writer's cache.
//!
//! Pruning is optimistic. It reads the write number, judges records in views taken after that without the lock, and under the lock judges
//! again what a later commit changed. A child that stops being mined always changes its parent's page, so it is enough to know which
//! parents changed.
//!
//! Two rules hold at every commit, and `verify` checks them: every spender a slot names is stored, or remembered as mined;
//! and a transaction that lost against another claims no output.

pub mod answer;
mod beside;
mod cache;
pub mod changes;
mod commit;
mod core;
mod diagnose;
pub mod digest;
mod due_start;
pub mod dump;
pub mod engine;
pub mod error;
pub mod formats;
mod gate;
mod keys;
mod migrate;
mod mined;
mod open;
pub mod options;
mod prune;
mod read;
mod recent;
pub mod request;
mod rolling;
mod rows;
mod settled;
mod state;
pub mod transition;
mod utxo_entry;
pub mod utxo_set;
mod verify;
pub mod working_set;
mod write;
mod writer;

use std::sync::Arc;

pub use answer::{
    AddressKind, Applied, AppliedBlocks, Counts, Cursor, DiskRoom, DueRecord, EachResult, Expired, Judged,
    Order, Page, PruneOutcome, RolledBack, UndoDropped, UnminedTx, Unreadable, Utxo, VerifyReport,
};
pub use changes::{AddressIndexing, Changes, IndexChange};
pub use engine::{EngineError, EngineWrites, TableStats};
pub use error::{
    ApplyError, BatchError, BatchResult, ConflictError, CreateError, DeleteError, FreezeError, InputRefusal,
    MineError, PreserveError, ReassignError, RollbackError, SpendError, StoreError, UnspendError,
};
pub use migrate::SCHEMA as SCHEMA_VERSION;
pub use options::{Faults, LedgerOptions};
pub use request::{
    AddressQuery, ApplyOptions, CreateRequest, MineRequest, Permit, PruneFrom, PruneRequest, PruneWhat,
    Reassign, RollbackMode, SpendInput, SpendRequest, Unspend, UtxoProgress, check_limit,
};
use sapwood_rules::Policy;
pub use utxo_set::{UtxoChange, UtxoCounter, UtxoSet};
pub use working_set::WorkingSet;

use crate::{core::Core, engine::Engine};

/// A ledger over an engine. Cheap to clone; the engine is closed with the last clone.
///
/// Every call takes a whole batch. In a batch of independent items those that fail change nothing and are named in
/// [`BatchError::Items`]; the others are written. Blocks are all or nothing.
///
/// A record that cannot be read is the failure of those items that need it, and of no other. Listings name it in
/// [`Page::unreadable`]. A listing with a limit of 0 is refused: see [`check_limit`].
#[derive(Clone)]
pub struct Ledger {
    core: Arc<Core>,
}

impl Ledger {
    /// Opens the ledger whose rows are in `engine`, or makes a new one there.
    ///
    /// # Errors
    /// [`StoreError::OtherIdentity`] if it holds another network, [`StoreError::NewerSchema`] if a newer program wrote it,
    /// [`StoreError::BadOption`] for options that contradict those it was made with, [`EngineError::OptionOutOfRange`] for options that
    /// cannot be.
    pub fn open(engine: Arc<dyn Engine>, policy: Policy, options: LedgerOptions) -> Result<Self, StoreError> {
        Ok(Self { core: Arc::new(Core::open(engine, policy, options)?) })
    }

    /// Opens the ledger whose rows are in `engine` with the address indexes it was made with, whatever `options` say.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_as_made(
        engine: Arc<dyn Engine>,
        policy: Policy,
        options: LedgerOptions,
    ) -> Result<Self, StoreError> {
        let address_index = open::stored_indexing(engine.as_ref())?.unwrap_or(options.address_index);
        Self::open(engine, policy, LedgerOptions { address_index, ..options })
    }

    /// Returns the engine that holds the rows.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.core.engine
    }

    /// Returns the address indexes it was made with.
    pub fn address_index(&self) -> AddressIndexing {
        self.core.options.address_index
    }

    /// Returns the network it holds, as [`LedgerOptions::identity`] named it when the ledger was made or first opened with one. `None` if
    /// it was never named.
    pub fn identity(&self) -> Option<&str> {
        self.core.identity.as_deref()
    }

    /// Runs blocking work on a thread that may block.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Core) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        if self.core.options.callers_thread {
            return Ok(work(&self.core));
        }
        let core = Arc::clone(&self.core);
        tokio::task::spawn_blocking(move || work(&core))
            .await
            .map_err(|error| StoreError::Task { cause: error.to_string() })
    }
}
