//! The embedded store: records, indexes and undo in one RocksDB database.
//!
//! **What lives here.** How pages and index entries lie in RocksDB, how they are written in one batch, and how readers see
//! them. **What may not.** What an operation does (that is `sapwood_store::transition`), and the network.
//!
//! # Layers
//! - [`options`]: everything an operator may set, and what each setting risks.
//! - `keys`, `columns`, `state`, `utxo_entry`: the layout. See `docs/formats.md`.
//! - `open`: the lock, what a store was made with, migration of an older one.
//! - `engine`: the open database, reading pages, poison after a failed write.
//! - `writer`: the one writer: runs a transition, turns its changes into one `batch`, writes it.
//! - `cache`, `watch`: hot records for the writer; which records changed under a prune that is under way.
//! - `utxo_set`: the coins in figures, kept with each write and counted on demand.
//! - `due_start`: where the list of due records begins.
//! - `mined`: at which height records are mined, for the check of children.
//! - [`floor`]: the same bytes without any of this, to measure against.
//! - `read`, `write`, `prune`, `diagnose`, `verify`: the store's traits.
//!
//! # Correctness
//! There is one writer at a time. A write is one RocksDB batch over all column families, with the write-ahead log on: after a
//! crash it is there as a whole or not at all. Caches are brought up to date beside the write or after it, the state and those who
//! watch records only once it is on disk, and all of it before the lock is given back. If a write fails, or something panics in the midst
//! of one, all further writes are refused: what is in memory then decides nothing. Blocks in a row are prepared while the one before is
//! written; what is being written comes before the cache and the disk. Readers use a snapshot and never the writer's cache.
//!
//! Pruning reads and judges without the lock. It announces the records it looks at before it reads them; every writer tells
//! it which of those it changed; and what changed is judged again under the lock. A child that stops being mined always
//! changes its parent's page, so watching the parents is enough, whether a child is found in `mined` or read.

mod batch;
mod beside;
mod cache;
mod columns;
mod diagnose;
mod due_start;
mod engine;
pub mod floor;
mod gate;
mod keys;
mod mined;
mod open;
pub mod options;
mod prune;
mod read;
mod state;
mod utxo_entry;
mod utxo_set;
mod verify;
mod watch;
mod write;
mod writer;

use std::{path::Path, sync::Arc};

pub use options::{Durability, EmbeddedOptions, Faults};
use sapwood_rules::Policy;
use sapwood_store::StoreError;

use crate::{engine::Engine, open::Access};

/// A store in a directory. Cheap to clone; the last clone to be dropped closes it.
#[derive(Clone)]
pub struct EmbeddedStore {
    engine: Arc<Engine>,
}

impl EmbeddedStore {
    /// Opens the store in `directory`, or makes a new one there.
    ///
    /// # Errors
    /// [`StoreError::Locked`] if another process has it open, [`StoreError::OtherIdentity`] if it holds another network,
    /// [`StoreError::NewerSchema`] if a newer program wrote it, [`StoreError::OptionOutOfRange`] and [`StoreError::BadOption`] for
    /// options that cannot be.
    pub fn open(directory: &Path, policy: Policy, options: EmbeddedOptions) -> Result<Self, StoreError> {
        Self::open_for(directory, policy, options, Access::Create)
    }

    /// Opens the store in `directory` for reading and writing, and makes none.
    ///
    /// # Errors
    /// Those of [`open`](Self::open), and [`StoreError::NoStore`] if there is none.
    pub fn open_existing(
        directory: &Path,
        policy: Policy,
        options: EmbeddedOptions,
    ) -> Result<Self, StoreError> {
        Self::open_for(directory, policy, options, Access::Existing)
    }

    /// Opens the store in `directory` for reading: nothing in the directory changes, and none of it has to be writable, as with copies
    /// and backups on read-only media. Any write is refused with [`StoreError::ReadOnly`]. The address indexes are those the store was
    /// made with, whatever the options say.
    ///
    /// # Errors
    /// Those of [`open`](Self::open), and [`StoreError::NoStore`] if there is none. A store that another process writes to is
    /// [`StoreError::Locked`].
    pub fn open_read_only(
        directory: &Path,
        policy: Policy,
        options: EmbeddedOptions,
    ) -> Result<Self, StoreError> {
        Self::open_for(directory, policy, options, Access::Read)
    }

    fn open_for(
        directory: &Path,
        policy: Policy,
        options: EmbeddedOptions,
        access: Access,
    ) -> Result<Self, StoreError> {
        Ok(Self { engine: Arc::new(Engine::open(directory, policy, options, access)?) })
    }

    /// The address indexes it was made with.
    pub fn address_index(&self) -> sapwood_store::AddressIndexing {
        self.engine.options.address_index
    }

    /// The network it holds, as [`EmbeddedOptions::identity`] named it when the store was made or first opened with one. `None` if it
    /// was never named.
    pub fn identity(&self) -> Option<&str> {
        self.engine.identity.as_deref()
    }

    /// Waits until nothing is left to flush or compact, so that disk use can be measured.
    pub async fn settle_disk(&self) -> Result<(), StoreError> {
        self.run(Engine::settle_disk).await?
    }

    /// Runs blocking work on a thread that may block.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Engine) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        if self.engine.options.callers_thread {
            return Ok(work(&self.engine));
        }
        let engine = Arc::clone(&self.engine);
        tokio::task::spawn_blocking(move || work(&engine))
            .await
            .map_err(|error| StoreError::Task { cause: error.to_string() })
    }
}
