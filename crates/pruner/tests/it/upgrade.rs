//! Stores that older versions wrote, under the pruner of this one.

use std::sync::Arc;

use sapwood_chain::{ChainState, Events};
use sapwood_conformance::fixtures::block_hash;
use sapwood_engine_rocksdb::{OpenMode, open_ledger};
use sapwood_ledger::AddressIndexing;
use sapwood_pruner::ManualClock;
use sapwood_rules::{Policy, PolicyChange};
use sapwood_testing::fixture::{Fixture, SCHEMAS};
use sapwood_types::Block;

use crate::harness::{NOW, pruner_options, start, store_options};

/// erigon 23593: an upgrade came with a shorter default, and deleted history that the directory was made to keep. These stores promise 4,000
/// blocks; they are migrated, and a shorter configuration deletes nothing of them.
#[tokio::test]
async fn erigon_23593_an_upgrade_of_an_older_store_deletes_nothing() {
    for schema in SCHEMAS {
        let fixture = Fixture::unpack(schema);
        let shorter = Policy { reorg_window: 6, ..Policy::with_retention(20) };
        let both = AddressIndexing { address: true, credential: true };
        let options = store_options().ledger(|ledger| ledger.address_index = both);
        let store = open_ledger(&fixture.store(), OpenMode::Existing, shorter, options).unwrap();
        let events = Events::default();
        events.enter(ChainState::Running);
        let clock = Arc::new(ManualClock::at(NOW));
        let pruner = start(&store, &events, None, pruner_options(shorter), &clock).await;
        assert_eq!(pruner.policy().retention, 4000, "schema {schema}");
        for number in 0..60 {
            let last = store.last_applied().await.unwrap().unwrap();
            let block = Block {
                height: last.height.next(),
                hash: block_hash(&format!("after the upgrade {number}")),
                parent: last.hash,
                time: 0,
                txs: Vec::new(),
            };
            store.apply_block(Arc::new(block), Default::default()).await.unwrap();
        }
        let deleted = || async { pruner.wait(pruner.prune_now(None).unwrap()).await.unwrap().counts.deleted };
        assert_eq!(deleted().await, 0, "schema {schema}");
        assert_eq!(store.counts().await.unwrap().records, fixture.number("records"), "schema {schema}");
        // With the shorter policy some would have gone.
        pruner.change_policy(PolicyChange::to(shorter), "operator", true).await.unwrap();
        assert!(deleted().await > 0, "schema {schema}: the case itself");
        pruner.stop().await;
    }
}
