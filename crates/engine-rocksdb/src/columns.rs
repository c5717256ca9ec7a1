//! Column families, each tuned for what it does.

use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamilyDescriptor, DBCompressionType, DBRecoveryMode, InfoLogger,
    LogLevel, Options, SliceTransform, statistics::StatsLevel,
};

use sapwood_ledger::engine::Table;

use crate::{Durability, OpenMode, RocksOptions};

/// Of so many entries in a row ...
const DELETION_WINDOW: usize = 4096;
/// ... so many deleted ones make a file worth compacting.
const DELETION_TRIGGER: usize = 2048;

/// A file of which at least this share are deletions is compacted at once. What comes of it is a file again, so deletions move on to where
/// what they delete lies, as long as they are many there: after deleting a tenth of a family or more, no further write is needed to get
/// its space back.
const DELETED_SHARE: f64 = 0.5;

/// The start of an address key that all keys of one owner share.
pub(crate) const ADDRESS_PREFIX: usize = 29;

fn column_options(table: Table, options: &RocksOptions, cache: &Cache) -> Options {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(cache);
    blocks.set_format_version(6);
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    let mut column = Options::default();
    column.set_level_compaction_dynamic_level_bytes(true);
    column.set_max_write_buffer_number(options.write_buffers);
    // The first level below level 0 is as large as what is compacted into it: four buffers.
    column.set_max_bytes_for_level_base(4 * options.write_buffer_bytes as u64);
    match table {
        Table::Tx => {
            blocks.set_block_size(4 << 10);
            blocks.set_bloom_filter(10.0, false);
            column.set_memtable_whole_key_filtering(true);
            column.set_memtable_prefix_bloom_ratio(0.05);
            column.set_write_buffer_size(options.write_buffer_bytes);
            column.add_compact_on_deletion_collector_factory(0, 0, DELETED_SHARE);
        }
        Table::Address => {
            blocks.set_block_size(8 << 10);
            blocks.set_bloom_filter(10.0, false);
            blocks.set_whole_key_filtering(false);
            column.set_prefix_extractor(SliceTransform::create_fixed_prefix(ADDRESS_PREFIX));
            column.set_memtable_prefix_bloom_ratio(0.1);
            column.set_write_buffer_size(options.write_buffer_bytes);
            column.add_compact_on_deletion_collector_factory(0, 0, DELETED_SHARE);
        }
        Table::Due | Table::Pending | Table::Undo => {
            blocks.set_block_size(16 << 10);
            column.set_write_buffer_size(options.write_buffer_bytes / 4);
            // Entries are deleted where the next listing begins. Compact such stretches soon, or it steps over all of them.
            column.add_compact_on_deletion_collector_factory(
                DELETION_WINDOW,
                DELETION_TRIGGER,
                DELETED_SHARE,
            );
        }
        Table::Meta => column.set_write_buffer_size(1 << 20),
    }
    if options.compression {
        // Hashes and keys hardly compress, and every spend of an old output reads a block of records: the better ratio
        // of ZSTD is not worth its time there.
        column.set_compression_type(DBCompressionType::Lz4);
        if table != Table::Tx {
            column.set_bottommost_compression_type(DBCompressionType::Zstd);
        }
    } else {
        column.set_compression_type(DBCompressionType::None);
    }
    column.set_block_based_table_factory(&blocks);
    column
}

/// Options of the whole database.
pub(crate) fn database_options(options: &RocksOptions, mode: OpenMode) -> Options {
    let mut database = Options::default();
    database.create_if_missing(mode == OpenMode::Create);
    database.create_missing_column_families(mode == OpenMode::Create);
    if mode == OpenMode::ReadOnly {
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
    // A slow column family must not keep old logs alive without a bound: this bounds both disk and the replay after a crash.
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
pub(crate) fn descriptors(options: &RocksOptions) -> Vec<ColumnFamilyDescriptor> {
    // Chunks and blocks read at the same time; an LRU cache would have a lock for them to meet at. 0: entries of any size.
    let cache = Cache::new_hyper_clock_cache(options.block_cache_bytes, 0);
    Table::ALL
        .into_iter()
        .map(|table| ColumnFamilyDescriptor::new(table.name(), column_options(table, options, &cache)))
        .collect()
}
