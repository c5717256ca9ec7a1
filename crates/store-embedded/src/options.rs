//! What an operator may set.

use std::{sync::Arc, thread::available_parallelism};

use sapwood_store::{AddressIndexing, StoreError};

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

/// A seam through which tests make writes fail or end the process at a named point. Not for production.
pub trait Faults: Send + Sync {
    /// Called at a named point of a write. An error makes the write fail as if the engine had failed.
    fn reached(&self, point: &'static str) -> Result<(), String>;

    /// Called with each batch as RocksDB encodes it, before it is written. Benchmarks write the same bytes again.
    fn writing(&self, _batch: &[u8]) {}
}

/// Everything that can be set. The defaults suit a machine with two cores and a few gigabytes.
#[derive(Clone)]
pub struct EmbeddedOptions {
    /// Bytes of memory for data read from disk, index and filter blocks included.
    pub block_cache_bytes: usize,
    /// Bytes of memory for decoded records the writer has touched lately. Most outputs die young, and what is found here
    /// needs no read.
    pub record_cache_bytes: u64,
    /// Bytes of memory for the heights at which records are mined, at most. The check of children finds them here if they are among the
    /// youngest; the others it reads from disk, with 0 all. They lie in two tables of a power of two of places, 37 bytes each, of
    /// which an eighth stays free: 75 MiB are used in full and hold the youngest 0.9 to 1.8 million, 149 MiB twice as many.
    pub mined_heights_bytes: u64,
    /// Bytes of a write buffer of the records. Larger means fewer, larger flushes, and a longer replay after a crash.
    pub write_buffer_bytes: usize,
    /// How many write buffers may wait to be flushed before writers have to wait.
    pub write_buffers: i32,
    /// A change of at least so many records is worked on by two cores. Fewer are done sooner than a second one is woken. For tests and
    /// measurements; the default suits every machine.
    pub two_cores_from: usize,
    /// Children whose records the check before a deletion reads in one go, at least 1. More take more memory.
    pub children_per_read: usize,
    /// Threads for flushing and compacting. `None`: as many as there are cores, and at least two.
    pub background_jobs: Option<i32>,
    /// Files kept open at most; -1 for all.
    pub max_open_files: i32,
    /// Compress with LZ4, and indexes and undo at rest with ZSTD. Off trades disk for time.
    pub compression: bool,
    /// What an acknowledged write survives.
    pub durability: Durability,
    /// Which address indexes are kept. Fixed when the store is made.
    pub address_index: AddressIndexing,
    /// Keep number, worth and hash of all coins with each write, so that they can be asked for at any time. Costs about 2 µs for
    /// each coin that comes or goes, shared by all cores. Turned on for a store that exists, they are known once somebody has had
    /// the coins counted; turned off, they are dropped with the first write.
    pub utxo_hash: bool,
    /// The network the store holds, in any words that tell one from another (`bitcoin mainnet`). It lies in the store; opening one that
    /// holds another network is refused, and one that does not say takes this. `None`: not checked.
    pub identity: Option<String>,
    /// Bytes that stay free on the store's disk: with less, no block is applied ([`StoreError::NoRoom`]) until there is more again. Reading
    /// and pruning go on. 0 turns it off.
    pub disk_reserve_bytes: u64,
    /// Do the work of a call on the thread that makes it, instead of one of the runtime's threads that may block. For programs that
    /// give each caller a thread of its own: waking another one costs more than most calls. Others would stop everything else
    /// that their thread does.
    pub callers_thread: bool,
    /// For tests only.
    pub faults: Option<Arc<dyn Faults>>,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self {
            block_cache_bytes: 256 << 20,
            record_cache_bytes: 256 << 20,
            mined_heights_bytes: 75 << 20,
            write_buffer_bytes: 64 << 20,
            write_buffers: 3,
            two_cores_from: 256,
            children_per_read: 10_000,
            background_jobs: None,
            max_open_files: 512,
            compression: true,
            durability: Durability::default(),
            address_index: AddressIndexing::default(),
            utxo_hash: false,
            identity: None,
            disk_reserve_bytes: 512 << 20,
            callers_thread: false,
            faults: None,
        }
    }
}

/// Where the size of the machine's memory is not known.
const ASSUMED_MEMORY: u64 = 64 << 30;
/// Files kept open at least: each column family has several at any time.
const LEAST_OPEN_FILES: i32 = 16;

/// Bytes of memory the machine has.
fn memory_bytes() -> u64 {
    let total = |text: String| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?.trim();
        line.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1 << 10)
    };
    std::fs::read_to_string("/proc/meminfo").ok().and_then(total).unwrap_or(ASSUMED_MEMORY)
}

impl EmbeddedOptions {
    /// Refuses what cannot be meant: the engine would end the process, or take another value without a word.
    ///
    /// # Errors
    /// [`StoreError::OptionOutOfRange`] names the first option that is out of its range.
    pub fn validate(&self) -> Result<(), StoreError> {
        let check = |option, value: i128, least: i128, most: i128, hint| {
            let fits = (least..=most).contains(&value);
            if fits { Ok(()) } else { Err(StoreError::OptionOutOfRange { option, value, least, most, hint }) }
        };
        const MEMORY: &str = ", the memory of this machine";
        let memory = i128::from(memory_bytes());
        // The engine ends the process if there is no room for one block of the cache.
        check("block_cache_bytes", self.block_cache_bytes as i128, 1 << 20, memory, MEMORY)?;
        check("record_cache_bytes", self.record_cache_bytes.into(), 0, memory, MEMORY)?;
        check("mined_heights_bytes", self.mined_heights_bytes.into(), 0, memory, MEMORY)?;
        let buffer = i128::from(4_u64 << 30).min(memory);
        check("write_buffer_bytes", self.write_buffer_bytes as i128, 64 << 10, buffer, "")?;
        check("write_buffers", self.write_buffers.into(), 2, 64, "")?;
        check("background_jobs", self.effective_background_jobs().into(), 1, 1024, "")?;
        if self.max_open_files != -1 {
            let (least, most) = (LEAST_OPEN_FILES.into(), i32::MAX.into());
            check("max_open_files", self.max_open_files.into(), least, most, ", or -1 for all")?;
        }
        check("disk_reserve_bytes", self.disk_reserve_bytes.into(), 0, 1 << 50, "")
    }

    /// Threads for flushing and compacting, where `background_jobs` leaves it to the machine.
    pub fn effective_background_jobs(&self) -> i32 {
        let cores = || available_parallelism().map_or(1, usize::from).clamp(2, 64) as i32;
        self.background_jobs.unwrap_or_else(cores)
    }
}

impl std::fmt::Debug for EmbeddedOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedOptions")
            .field("block_cache_bytes", &self.block_cache_bytes)
            .field("record_cache_bytes", &self.record_cache_bytes)
            .field("mined_heights_bytes", &self.mined_heights_bytes)
            .field("write_buffer_bytes", &self.write_buffer_bytes)
            .field("write_buffers", &self.write_buffers)
            .field("two_cores_from", &self.two_cores_from)
            .field("children_per_read", &self.children_per_read)
            .field("background_jobs", &self.background_jobs)
            .field("max_open_files", &self.max_open_files)
            .field("compression", &self.compression)
            .field("durability", &self.durability)
            .field("address_index", &self.address_index)
            .field("utxo_hash", &self.utxo_hash)
            .field("identity", &self.identity)
            .field("disk_reserve_bytes", &self.disk_reserve_bytes)
            .field("callers_thread", &self.callers_thread)
            .finish_non_exhaustive()
    }
}
