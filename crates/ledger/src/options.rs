//! What an operator may set.

use std::{sync::Arc, time::Duration};

use sapwood_types::Undo;

use crate::{AddressIndexing, Changes, StoreError, commit::RETRY_COMMITS_FOR, engine::EngineError};

/// A seam through which tests make writes fail or end the process at a named point. Not for production.
pub trait Faults: Send + Sync {
    /// Called at a named point of a write. An error makes the write fail as if the engine had failed.
    fn reached(&self, point: &'static str) -> Result<(), String>;

    /// Called with what each operation changes before it is written, and with the undo record of a block. Benchmarks write the same pages again.
    fn changing(&self, _changes: &Changes, _undo: Option<&Undo>) {}
}

/// Everything that can be set. The defaults suit a machine with two cores and a few gigabytes.
#[derive(Clone)]
pub struct LedgerOptions {
    /// Whether an engine without rows becomes a new ledger. Otherwise it is refused.
    pub create: bool,
    /// Bytes of memory for records the writer has touched lately. Most outputs are spent young, and what is found here needs no read.
    pub record_cache_bytes: u64,
    /// Bytes of memory for the heights at which records are mined, at most. The check of children finds them here if they are among the
    /// youngest; the others it reads from the engine, with 0 all. They lie in two tables of a power of two of places, 37 bytes each, of
    /// which an eighth stays free: 75 MiB are used in full and hold the youngest 0.9 to 1.8 million, 149 MiB twice as many.
    pub mined_heights_bytes: u64,
    /// A change of at least this many records is worked on by two cores. Fewer are done sooner than a second one is woken. For tests and
    /// measurements; the default suits every machine.
    pub two_cores_from: usize,
    /// Children whose records the check before a deletion reads in one go, at least 1. More take more memory.
    pub children_per_read: usize,
    /// Which address indexes are kept. Fixed when the ledger is made.
    pub address_index: AddressIndexing,
    /// Keep number, worth and hash of all coins with each write, so that they can be asked for at any time. Costs about 2 µs for
    /// each coin that comes or goes, shared by all cores. Turned on for a ledger that exists, they are known once the coins have been
    /// counted; turned off, they are dropped with the first write.
    pub utxo_hash: bool,
    /// The network the ledger holds, in any words that tell one from another (`bitcoin mainnet`). It is stored; opening a ledger of
    /// another network is refused, and one that does not say takes this. `None`: not checked.
    pub identity: Option<String>,
    /// Bytes that stay free on the engine's disk: with less, no block is applied ([`StoreError::NoRoom`]) until there is more again.
    /// Reading and pruning go on. 0 turns it off.
    pub disk_reserve_bytes: u64,
    /// How long a commit is attempted again while the engine cannot be reached. After that the ledger refuses to write until it is opened again.
    pub retry_commits_for: Duration,
    /// Rows that the migration of an older schema reads between two commits, at least 1. More take more memory; an interrupted migration
    /// repeats at most this many. For tests and measurements; the default suits every machine.
    pub migration_part_rows: usize,
    /// Do the work of a call on the thread that makes it, instead of one of the runtime's threads that may block. For programs that
    /// give each caller a thread of its own: waking another one costs more than most calls. Others would stop everything else
    /// that their thread does.
    pub callers_thread: bool,
    /// For tests only.
    pub faults: Option<Arc<dyn Faults>>,
}

impl Default for LedgerOptions {
    fn default() -> Self {
        Self {
            create: true,
            record_cache_bytes: 256 << 20,
            mined_heights_bytes: 75 << 20,
            two_cores_from: 256,
            children_per_read: 10_000,
            address_index: AddressIndexing::default(),
            utxo_hash: false,
            identity: None,
            disk_reserve_bytes: 512 << 20,
            retry_commits_for: RETRY_COMMITS_FOR,
            migration_part_rows: 100_000,
            callers_thread: false,
            faults: None,
        }
    }
}

/// Where the size of the machine's memory is not known.
const ASSUMED_MEMORY: u64 = 64 << 30;

/// Returns the memory of this machine in bytes.
pub fn memory_bytes() -> u64 {
    let total = |text: String| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?.trim();
        line.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1 << 10)
    };
    std::fs::read_to_string("/proc/meminfo").ok().and_then(total).unwrap_or(ASSUMED_MEMORY)
}

/// Refuses an option that is out of its range.
///
/// # Errors
/// [`EngineError::OptionOutOfRange`].
pub fn check_range(
    option: &'static str,
    value: i128,
    least: i128,
    most: i128,
    hint: &'static str,
) -> Result<(), EngineError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(EngineError::OptionOutOfRange { option, value, least, most, hint })
}

impl LedgerOptions {
    /// Refuses what cannot be meant.
    ///
    /// # Errors
    /// [`EngineError::OptionOutOfRange`] names the first option that is out of its range.
    pub fn validate(&self) -> Result<(), StoreError> {
        const MEMORY: &str = ", the memory of this machine";
        let memory = i128::from(memory_bytes());
        check_range("record_cache_bytes", self.record_cache_bytes.into(), 0, memory, MEMORY)?;
        check_range("mined_heights_bytes", self.mined_heights_bytes.into(), 0, memory, MEMORY)?;
        check_range("children_per_read", self.children_per_read as i128, 1, 1_000_000, "")?;
        check_range("migration_part_rows", self.migration_part_rows as i128, 1, 10_000_000, "")?;
        check_range("disk_reserve_bytes", self.disk_reserve_bytes.into(), 0, 1 << 50, "")?;
        Ok(())
    }
}

impl std::fmt::Debug for LedgerOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LedgerOptions")
            .field("create", &self.create)
            .field("record_cache_bytes", &self.record_cache_bytes)
            .field("mined_heights_bytes", &self.mined_heights_bytes)
            .field("two_cores_from", &self.two_cores_from)
            .field("children_per_read", &self.children_per_read)
            .field("address_index", &self.address_index)
            .field("utxo_hash", &self.utxo_hash)
            .field("identity", &self.identity)
            .field("disk_reserve_bytes", &self.disk_reserve_bytes)
            .field("retry_commits_for", &self.retry_commits_for)
            .field("migration_part_rows", &self.migration_part_rows)
            .field("callers_thread", &self.callers_thread)
            .finish_non_exhaustive()
    }
}
