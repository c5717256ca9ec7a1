//! Writes the fixture of today's schema.
//!
//! Before the schema is raised, run
//! `SAPWOOD_FIXTURES=$PWD/crates/engine-rocksdb/tests/fixtures cargo nextest run --release --workspace -E 'test(fixture_of_this_schema)'`
//! and list the schema in `sapwood_testing::fixture::SCHEMAS`.

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use sapwood_conformance::crash::timeline::{Timeline, Workload};
use sapwood_engine_rocksdb::{OpenMode, open_ledger};
use sapwood_ledger::{Ledger, SCHEMA_VERSION};
use sapwood_testing::fixture::Fixture;
use sapwood_types::{Height, Slot, TxId};

use crate::{
    harness::{options, verify},
    migrations::{assert_migrated, hex, policy},
};

const OPERATIONS: u64 = 120;

/// The note of a pruner that promised 4,000 blocks. `docs/formats.md` describes it.
fn promise() -> Bytes {
    let number = |value: u32| [&value.to_be_bytes()[..], &value.to_be_bytes(), &[0]].concat();
    let policy = policy();
    let numbers = [
        policy.retention,
        policy.reorg_window,
        policy.coinbase_maturity,
        policy.reassignment_delay,
        policy.unmined_retention,
        policy.parent_preservation,
    ];
    [vec![1], numbers.map(number).concat()].concat().into()
}

/// Makes a store with blocks, reorganisations, pruned records, and records that are locked, preserved and unmined.
async fn make(directory: &Path) {
    let mut timeline = Timeline::new(Workload::Chain, 1);
    let ledger = open_ledger(directory, OpenMode::Create, timeline.policy(), options()).unwrap();
    for _ in 0..OPERATIONS {
        timeline.step().0.on_store(&ledger).await;
    }
    let records = timeline.model().records().values();
    let open: Vec<TxId> =
        records.filter(|record| record.slots.contains(&Slot::Unspent)).map(|record| record.txid).collect();
    ledger.set_locked(open[..3].to_vec(), true).await.unwrap();
    ledger.preserve(open[3..6].to_vec(), Height(100_000)).await.unwrap();
    let notes = [("fixture", Bytes::from_static(b"a note")), ("pruner/policy", promise())]
        .map(|(name, note)| (name.into(), Some(note)));
    ledger.put_notes(notes.into()).await.unwrap();
}

/// What is there, for the file beside the store.
async fn expected(ledger: &Ledger) -> serde_json::Value {
    let set = ledger.utxo_set(true, Arc::new(|_, _| ControlFlow::Continue(()))).await.unwrap();
    let counts = ledger.counts().await.unwrap();
    serde_json::json!({
        "schema": SCHEMA_VERSION,
        "digest": hex(&ledger.state_digest().await.unwrap()),
        "utxo_hash": set.digest(),
        "coins": set.coins,
        "records": counts.records,
        "unspent": counts.unspent,
        "unmined": counts.unmined,
        "last_height": ledger.last_applied().await.unwrap().unwrap().height.0,
    })
}

#[tokio::test]
async fn fixture_of_this_schema_is_written_and_opens() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    make(&store).await;
    let ledger = open_ledger(&store, OpenMode::Existing, policy(), options()).unwrap();
    let expected = expected(&ledger).await;
    let report = verify(&ledger).await;
    assert!(report.is_clean(), "{report}");
    drop(ledger);
    let to =
        std::env::var_os("SAPWOOD_FIXTURES").map_or_else(|| directory.path().join("packed"), PathBuf::from);
    Fixture::pack(SCHEMA_VERSION, &store, &expected, &to);
    let fixture = Fixture::unpack_from(&to, SCHEMA_VERSION);
    let ledger = open_ledger(&fixture.store(), OpenMode::Existing, policy(), options()).unwrap();
    let counts = assert_migrated(&ledger, &fixture).await;
    assert!(counts.locked >= 3 && counts.preserved >= 3 && counts.unmined > 0, "the case itself: {counts:?}");
}
