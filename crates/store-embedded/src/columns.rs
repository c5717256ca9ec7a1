//! Column families, each tuned for what it does.

use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamilyDescriptor, DBCompressionType, DBRecoveryMode, InfoLogger,
    LogLevel, Options, SliceTransform, statistics::StatsLevel,
};

use crate::{
    keys::ADDRESS_PREFIX,
    open::Access,
    options::{Durability, EmbeddedOptions},
};

/// Of so many entries in a row ...
const DELETION_WINDOW: usize = 4096;
/// ... so many deleted ones make a file worth compacting.
const DELETION_TRIGGER: usize = 2048;

/// One column family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// Records by transaction id: point reads and writes.
    Tx,
    /// Settled records by height: written at one end, read and deleted at the other.
    Due,
    /// Unmined and preserved records by height: small.
    Pending,
    /// Unspent outputs by address or credential: prefix scans.
    Address,
    /// How to take blocks back, by height: sequential.
    Undo,
    /// Schema version and state: a few keys.
    Meta,
}

impl Column {
    pub(crate) const ALL: [Column; 6] =
        [Column::Tx, Column::Due, Column::Pending, Column::Address, Column::Undo, Column::Meta];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Column::Tx => "tx",
            Column::Due => "due",
            Column::Pending => "pending",
            Column::Address => "address",
            Column::Undo => "undo",
            Column::Meta => "meta",
        }
    }

    fn options(self, options: &EmbeddedOptions, cache: &Cache) -> Options {
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(cache);
        table.set_format_version(6);
        table.set_cache_index_and_filter_blocks(true);
        table.set_pin_l0_filter_and_index_blocks_in_cache(true);
        let mut column = Options::default();
        column.set_level_compaction_dynamic_level_bytes(true);
        column.set_max_write_buffer_number(options.write_buffers);
        match self {
            Column::Tx => {
                table.set_block_size(4 << 10);
                table.set_bloom_filter(10.0, false);
                column.set_memtable_whole_key_filtering(true);
                column.set_memtable_prefix_bloom_ratio(0.05);
                column.set_write_buffer_size(options.write_buffer_bytes);
            }
            Column::Address => {
                table.set_block_size(8 << 10);
                table.set_bloom_filter(10.0, false);
                table.set_whole_key_filtering(false);
                column.set_prefix_extractor(SliceTransform::create_fixed_prefix(ADDRESS_PREFIX));
                column.set_memtable_prefix_bloom_ratio(0.1);
                column.set_write_buffer_size(options.write_buffer_bytes);
            }
            Column::Due | Column::Pending | Column::Undo => {
                table.set_block_size(16 << 10);
                column.set_write_buffer_size(options.write_buffer_bytes / 4);
                // Entries are deleted where the next listing begins. Compact such stretches soon, or it steps over all of them.
                column.add_compact_on_deletion_collector_factory(DELETION_WINDOW, DELETION_TRIGGER, 0.5);
            }
            Column::Meta => column.set_write_buffer_size(1 << 20),
        }
        if options.compression {
            // Hashes and keys hardly compress, and every spend of an old output reads a block of records: the better ratio
            // of ZSTD is not worth its time there.
            column.set_compression_type(DBCompressionType::Lz4);
            if self != Column::Tx {
                column.set_bottommost_compression_type(DBCompressionType::Zstd);
            }
        } else {
            column.set_compression_type(DBCompressionType::None);
        }
        column.set_block_based_table_factory(&table);
        column
    }
}

/// Options of the whole database.
pub(crate) fn database_options(options: &EmbeddedOptions, access: Access) -> Options {
    let mut database = Options::default();
    database.create_if_missing(access == Access::Create);
    database.create_missing_column_families(access == Access::Create);
    if access == Access::Read {
        // It would write a log of its own into the directory.
        database.set_info_logger(InfoLogger::new_callback_logger(LogLevel::Fatal, |_, _| {}));
    }
    // Counts only: they are cheap, and what the engine writes shows in nothing else.
    database.enable_statistics();
    database.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
    database.set_max_background_jobs(options.effective_background_jobs());
    database.set_max_open_files(options.max_open_files);
    database.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
    database.set_bytes_per_sync(1 << 20);
    database.set_wal_bytes_per_sync(1 << 20);
    // A slow column family must not keep old logs alive for ever: this bounds both disk and the replay after a crash.
    database.set_max_total_wal_size(4 * options.write_buffer_bytes as u64);
    // What the engine tells about itself would otherwise grow until the next start.
    database.set_keep_log_file_num(4);
    database.set_max_log_file_size(options.write_buffer_bytes.clamp(1 << 20, 16 << 20));
    if options.durability == Durability::CleanStopOnly {
        // Without a log only a flush of all families at once is consistent. It excludes pipelined writes.
        database.set_atomic_flush(true);
    } else {
        database.set_enable_pipelined_write(true);
    }
    database
}

/// All column families, ready to be opened.
pub(crate) fn descriptors(options: &EmbeddedOptions) -> Vec<ColumnFamilyDescriptor> {
    // Chunks and blocks read at the same time; an LRU cache would have a lock for them to meet at. 0: entries of any size.
    let cache = Cache::new_hyper_clock_cache(options.block_cache_bytes, 0);
    Column::ALL
        .into_iter()
        .map(|column| ColumnFamilyDescriptor::new(column.name(), column.options(options, &cache)))
        .collect()
}
