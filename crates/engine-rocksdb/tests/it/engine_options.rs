//! What the engine is told by its options, and what it says of itself.

use std::{path::Path, sync::Arc, time::Duration};

use crate::harness::{options, verify};
use sapwood_conformance::{
    crash::timeline::{Timeline, Workload},
    fixtures::{block_hash, coin, small},
};
use sapwood_engine_rocksdb::{Durability, OpenMode, Options, open_ledger};
use sapwood_ledger::{ApplyOptions, EngineError, EngineWrites, Ledger, StoreError};
use sapwood_types::{Block, Height};

async fn apply(store: &Ledger, height: u32) {
    let block = Block {
        height: Height(height),
        hash: block_hash(&height.to_string()),
        parent: block_hash(&(height - 1).to_string()),
        time: 0,
        txs: vec![coin(&height.to_string(), 1)],
    };
    store.apply_block(Arc::new(block), ApplyOptions::default()).await.unwrap();
}

async fn writes(store: &Ledger) -> EngineWrites {
    store.engine_writes().await.unwrap().unwrap()
}

/// kill -9 cannot tell these apart: what the operating system has is safe from it. So the syncs are counted.
#[tokio::test]
async fn each_durability_syncs_as_it_says() {
    for durability in [Durability::ProcessCrash, Durability::PowerLoss, Durability::CleanStopOnly] {
        let directory = tempfile::tempdir().unwrap();
        // Buffers that hold all of it: a flush syncs the log, too.
        let options = options().engine(|engine| {
            engine.durability = durability;
            engine.write_buffer_bytes = 8 << 20;
        });
        let store = open_ledger(directory.path(), OpenMode::Create, small(), options).unwrap();
        let before = writes(&store).await;
        for height in 1..=7 {
            apply(&store, height).await;
        }
        // Notes and everything else that is acknowledged go the same way.
        store.put_notes(vec![("name".into(), Some("note".into()))]).await.unwrap();
        store.preserve(vec![coin("1", 1).txid], Height(9)).await.unwrap();
        let after = writes(&store).await;
        let syncs = after.log_syncs - before.log_syncs;
        let logged = after.log_bytes > before.log_bytes;
        assert!(after.applied_bytes > before.applied_bytes, "{durability:?}");
        let expected = match durability {
            Durability::ProcessCrash => (0, true),
            Durability::PowerLoss => (9, true),
            Durability::CleanStopOnly => (0, false),
        };
        assert_eq!((syncs, logged), expected, "{durability:?}: {after:?}");
    }
}

/// A value that cannot be meant is refused by name before anything is made; the engine would abort, or take another without a word.
#[test]
fn m13_options_out_of_range_are_refused_by_name() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("store");
    let refused = |options: Options| match open_ledger(&directory, OpenMode::Create, small(), options).err() {
        Some(error @ StoreError::Engine(EngineError::OptionOutOfRange { option, .. })) => {
            assert!(error.to_string().starts_with(option), "{error}");
            option
        }
        other => panic!("{other:?}"),
    };
    let huge = 99_999_999_999_u64 << 20;
    for block_cache_bytes in [0, (1 << 20) - 1, huge as usize] {
        assert_eq!(
            refused(options().engine(|engine| engine.block_cache_bytes = block_cache_bytes)),
            "block_cache_bytes"
        );
    }
    assert_eq!(refused(options().ledger(|ledger| ledger.record_cache_bytes = huge)), "record_cache_bytes");
    assert_eq!(refused(options().ledger(|ledger| ledger.mined_heights_bytes = huge)), "mined_heights_bytes");
    for write_buffer_bytes in [0, (64 << 10) - 1, huge as usize] {
        assert_eq!(
            refused(options().engine(|engine| engine.write_buffer_bytes = write_buffer_bytes)),
            "write_buffer_bytes"
        );
    }
    for write_buffers in [-1, 0, 1, 65] {
        assert_eq!(refused(options().engine(|engine| engine.write_buffers = write_buffers)), "write_buffers");
    }
    for jobs in [-1, 0, 1025] {
        assert_eq!(
            refused(options().engine(|engine| engine.background_jobs = Some(jobs))),
            "background_jobs"
        );
    }
    for max_open_files in [-2, 0, 15] {
        assert_eq!(
            refused(options().engine(|engine| engine.max_open_files = max_open_files)),
            "max_open_files"
        );
    }
    assert_eq!(
        refused(options().ledger(|ledger| ledger.disk_reserve_bytes = u64::MAX)),
        "disk_reserve_bytes"
    );
    assert!(!directory.exists());
    Options::default().validate().unwrap();
    options().engine(|engine| engine.max_open_files = -1).validate().unwrap();
}

#[test]
fn background_jobs_follow_the_cores_unless_they_are_set() {
    let cores = std::thread::available_parallelism().unwrap().get() as i32;
    assert_eq!(Options::default().engine.effective_background_jobs(), cores.clamp(2, 64));
    let set = options().engine(|engine| engine.background_jobs = Some(1));
    assert_eq!(set.engine.effective_background_jobs(), 1);
}

/// Every option with two values.
fn tuned(option: usize, second: bool, to: &mut Options) {
    match option {
        0 => to.engine.block_cache_bytes = if second { 1 << 20 } else { 8 << 20 },
        1 => to.ledger.record_cache_bytes = if second { 0 } else { 8 << 20 },
        2 => to.ledger.mined_heights_bytes = if second { 0 } else { 1 << 20 },
        3 => to.engine.write_buffer_bytes = if second { 64 << 10 } else { 4 << 20 },
        4 => to.engine.write_buffers = if second { 2 } else { 8 },
        5 => to.ledger.two_cores_from = if second { 0 } else { usize::MAX },
        6 => to.engine.background_jobs = if second { Some(1) } else { Some(4) },
        7 => to.engine.max_open_files = if second { 16 } else { -1 },
        8 => to.engine.compression = second,
        9 => to.ledger.utxo_hash = second,
        10 => to.ledger.callers_thread = second,
        11 => to.engine.durability = if second { Durability::PowerLoss } else { Durability::CleanStopOnly },
        12 => to.ledger.disk_reserve_bytes = if second { 0 } else { 1 << 20 },
        _ => to.engine.deletions_flushed_after = Duration::from_millis(if second { 5 } else { 600_000 }),
    }
}
const OPTIONS: usize = 14;

/// For every two options, some row has each pair of their values. Rows of a Hadamard matrix: row and column agree in an even number of
/// bits, or do not.
fn rows() -> impl Iterator<Item = Options> {
    (0..16_u32).map(|row| {
        let mut changed = options();
        for option in 0..OPTIONS {
            let second = (row & (option as u32 + 1)).count_ones() % 2 == 1;
            tuned(option, second, &mut changed);
        }
        changed
    })
}

#[test]
fn the_rows_have_every_pair() {
    let rows: Vec<Vec<bool>> = (0..16_u32)
        .map(|row| (0..OPTIONS as u32).map(|option| (row & (option + 1)).count_ones() % 2 == 1).collect())
        .collect();
    for one in 0..OPTIONS {
        for other in 0..one {
            for pair in [(false, false), (false, true), (true, false), (true, true)] {
                assert!(rows.iter().any(|row| (row[one], row[other]) == pair), "{one} {other} {pair:?}");
            }
        }
    }
}

async fn go_on(directory: &Path, timeline: &mut Timeline, options: Options) {
    let at = timeline.at();
    let shown = format!("{options:?}");
    let store = open_ledger(directory, OpenMode::Create, timeline.policy(), options).unwrap();
    assert_eq!(store.state_digest().await.unwrap(), timeline.digest_at(at), "{shown}");
    for _ in 0..15 {
        let (op, expected) = timeline.step();
        let outcome = op.on_store(&store).await;
        assert_eq!(outcome.is_ok(), expected.is_ok(), "{}: {outcome:?}: {shown}", op.name());
    }
    let report = verify(&store).await;
    assert!(report.is_clean(), "{report}: {shown}");
}

/// kaspa 833: a cache size, changed on a directory that was there, made the node panic at its start. Every option of this store can be
/// changed together with every other one, on one directory that goes through all of it.
#[tokio::test]
async fn kaspa_833_every_tuning_option_on_an_old_directory() {
    let directory = tempfile::tempdir().unwrap();
    let mut timeline = Timeline::new(Workload::Chain, 833);
    for options in rows() {
        go_on(directory.path(), &mut timeline, options).await;
    }
}

/// bitcoin 35298: a node without anything to do rewrote its database every half hour. Once all is flushed and compacted, reading, counting and
/// copying write nothing, however often; and what was written was not written over and over.
#[tokio::test]
async fn bitcoin_35298_an_idle_hour_writes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut timeline = Timeline::new(Workload::Chain, 35298);
    let store = open_ledger(directory.path(), OpenMode::Create, timeline.policy(), options()).unwrap();
    for _ in 0..120 {
        timeline.step().0.on_store(&store).await;
    }
    store.settle_disk().await.unwrap();
    let before = writes(&store).await;
    assert!(before.total_bytes() > before.applied_bytes, "the case itself: {before:?}");
    let amplification = before.amplification().unwrap();
    assert!(amplification < 40.0, "{amplification} bytes written for each one asked for: {before:?}");
    // An hour of looking, one round a minute.
    for _ in 0..60 {
        store.state_digest().await.unwrap();
        store.engine_stats(None).await.unwrap();
        store.disk_room().await.unwrap();
        store.settle_disk().await.unwrap();
    }
    assert!(verify(&store).await.is_clean());
    assert_eq!(writes(&store).await, before);
}
