//! What an operator may set.

use std::{path::Path, thread::available_parallelism, time::Duration};

use sapwood_ledger::{
    LedgerOptions, StoreError,
    engine::EngineError,
    options::{check_range, memory_bytes},
};

use crate::OpenMode;

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Durability {
    /// The end of the process, however sudden. After a power failure the store is consistent, but the last second or so of
    /// writes can be missing; following the chain again brings them back. The default.
    #[default]
    ProcessCrash,
    /// A power failure too: every write waits for the device. Costs a device sync a block.
    PowerLoss,
    /// Nothing but a clean stop: no write-ahead log. After any crash the store is as it was at the last flush, which can be
    /// many blocks ago, but still consistent, because all column families are flushed together. For bulk loading.
    CleanStopOnly,
}

/// Everything that can be set. The defaults suit a machine with two cores and a few gigabytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RocksOptions {
    /// Bytes of memory for data read from disk, index and filter blocks included.
    pub block_cache_bytes: usize,
    /// Bytes of a write buffer of the records. Larger means fewer, larger flushes, and a longer replay after a crash.
    pub write_buffer_bytes: usize,
    /// How many write buffers may wait to be flushed before writers have to wait.
    pub write_buffers: i32,
    /// Threads for flushing and compacting. `None`: as many as there are cores, and at least two.
    pub background_jobs: Option<i32>,
    /// Files kept open at most; -1 for all.
    pub max_open_files: i32,
    /// Deletions wait in memory no longer than this, so that the space of what was deleted comes back although nothing more is written.
    /// Each time costs a flush of what is in memory.
    pub deletions_flushed_after: Duration,
    /// A commit that RocksDB has made wait for this long after a failure in the background is ended with an error.
    pub stalled_commit_ended_after: Duration,
    /// Compress with LZ4, and indexes and undo at rest with ZSTD. Off trades disk for time.
    pub compression: bool,
    /// What an acknowledged write survives.
    pub durability: Durability,
}

impl Default for RocksOptions {
    fn default() -> Self {
        Self {
            block_cache_bytes: 256 << 20,
            write_buffer_bytes: 64 << 20,
            write_buffers: 3,
            background_jobs: None,
            max_open_files: 512,
            deletions_flushed_after: Duration::from_secs(600),
            stalled_commit_ended_after: Duration::from_secs(60),
            compression: true,
            durability: Durability::default(),
        }
    }
}

/// Files kept open at least: each column family has several at any time.
const LEAST_OPEN_FILES: i32 = 16;

impl RocksOptions {
    /// Refuses what cannot be meant: RocksDB would end the process, or take another value without a word.
    ///
    /// # Errors
    /// [`EngineError::OptionOutOfRange`] names the first option that is out of its range.
    pub fn validate(&self) -> Result<(), EngineError> {
        const MEMORY: &str = ", the memory of this machine";
        let memory = i128::from(memory_bytes());
        // RocksDB ends the process if there is no room for one block of the cache.
        check_range("block_cache_bytes", self.block_cache_bytes as i128, 1 << 20, memory, MEMORY)?;
        let buffer = i128::from(4_u64 << 30).min(memory);
        check_range("write_buffer_bytes", self.write_buffer_bytes as i128, 64 << 10, buffer, "")?;
        check_range("write_buffers", self.write_buffers.into(), 2, 64, "")?;
        check_range("background_jobs", self.effective_background_jobs().into(), 1, 1024, "")?;
        if self.max_open_files != -1 {
            let (least, most) = (LEAST_OPEN_FILES.into(), i32::MAX.into());
            check_range("max_open_files", self.max_open_files.into(), least, most, ", or -1 for all")?;
        }
        Ok(())
    }

    /// Returns the threads for flushing and compacting, where `background_jobs` leaves it to the machine.
    pub fn effective_background_jobs(&self) -> i32 {
        let cores = || available_parallelism().map_or(1, usize::from).clamp(2, 64) as i32;
        self.background_jobs.unwrap_or_else(cores)
    }

    /// Logs what the database runs with, in one line.
    pub(crate) fn log(&self, directory: &Path, mode: OpenMode) {
        tracing::info!(
            directory = %directory.display(),
            ?mode,
            block_cache_mib = self.block_cache_bytes >> 20,
            write_buffer_mib = self.write_buffer_bytes >> 20,
            write_buffers = self.write_buffers,
            background_jobs = self.effective_background_jobs(),
            max_open_files = self.max_open_files,
            compression = self.compression,
            durability = ?self.durability,
            "the database is open"
        );
    }
}

/// Options of a ledger in a RocksDB database.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Options of the database.
    pub engine: RocksOptions,
    /// Options of the ledger.
    pub ledger: LedgerOptions,
}

impl Options {
    /// Changes options of the database.
    pub fn engine(mut self, change: impl FnOnce(&mut RocksOptions)) -> Self {
        change(&mut self.engine);
        self
    }

    /// Changes options of the ledger.
    pub fn ledger(mut self, change: impl FnOnce(&mut LedgerOptions)) -> Self {
        change(&mut self.ledger);
        self
    }

    /// Refuses what cannot be meant.
    ///
    /// # Errors
    /// [`EngineError::OptionOutOfRange`] names the first option that is out of its range.
    pub fn validate(&self) -> Result<(), StoreError> {
        self.engine.validate()?;
        self.ledger.validate()
    }
}
