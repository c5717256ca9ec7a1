//! The chain on a plain model of a store: blocks, reorganisations and unmined transactions, thousands of blocks long.

use std::{collections::BTreeSet, sync::Arc};

use sapwood_conformance::model::ModelStore;
use sapwood_rules::Policy;
use sapwood_sources::synthetic::{Outcome, Step, SyntheticChain, SyntheticOptions};
use sapwood_store::{ApplyOptions, CreateRequest, RollbackMode, StoreDiagnose, StoreRead, StoreWrite};
use sapwood_types::{Height, TxId};

use crate::busy;

/// Tells a store what happened, as a node would: unmined transactions too.
async fn tell_node(store: &ModelStore, step: &Step, tip: Option<Height>) -> BTreeSet<TxId> {
    store.delete(step.expired.clone()).await.unwrap();
    let requests = step.seen.iter().map(|seen| CreateRequest {
        conflicting: seen.rival_of.is_some(),
        ..CreateRequest::unmined(seen.tx.clone())
    });
    for request in requests {
        store.create(vec![request], tip.unwrap()).await.unwrap();
    }
    let mut losers = BTreeSet::new();
    if let Outcome::Reorganised { fork, .. } = &step.outcome {
        let back = store.roll_back(Some((fork.height, fork.hash)), RollbackMode::Node).await.unwrap();
        losers.extend(back.conflicting);
    }
    for block in step.blocks() {
        losers.extend(apply(store, block).await);
    }
    losers
}

async fn apply(store: &ModelStore, block: &Arc<sapwood_types::Block>) -> Vec<TxId> {
    store.apply_block(block.clone(), ApplyOptions::default()).await.unwrap().conflicting
}

fn policy(options: &SyntheticOptions) -> Policy {
    Policy { coinbase_maturity: options.coinbase_maturity, ..Policy::default() }
}

#[tokio::test]
async fn a_node_takes_all_of_it_and_agrees_on_who_lost() {
    let options = busy(1);
    let store = ModelStore::new(policy(&options));
    let mut chain = SyntheticChain::new(options).unwrap();
    let mut lost = 0;
    for _ in 0..2_000 {
        let tip = chain.tip().map(|tip| tip.height);
        let step = chain.step();
        let losers = tell_node(&store, &step, tip).await;
        assert_eq!(losers, step.losers.iter().copied().collect(), "at {tip:?}");
        lost += losers.len();
    }
    assert!(lost > 500, "{lost}");
    assert!(store.verify(Arc::new(|_, _| {})).await.unwrap().is_clean());
}

#[tokio::test]
async fn a_follower_ends_with_what_the_best_chain_alone_gives() {
    let options = SyntheticOptions { remember: u32::MAX, ..busy(2) };
    let (followed, straight) = (ModelStore::new(policy(&options)), ModelStore::new(policy(&options)));
    let mut chain = SyntheticChain::new(options).unwrap();
    let mut reorganised = 0;
    for _ in 0..1_000 {
        let step = chain.step();
        if let Outcome::Reorganised { fork, .. } = &step.outcome {
            followed.roll_back(Some((fork.height, fork.hash)), RollbackMode::Follower).await.unwrap();
            reorganised += 1;
        }
        for block in step.blocks() {
            apply(&followed, block).await;
        }
    }
    assert!(reorganised > 50, "{reorganised}");
    for height in (0..=chain.tip().unwrap().height.0).map(Height) {
        let block = chain.block(&chain.hash_at(height).unwrap()).unwrap().unwrap();
        apply(&straight, &block).await;
    }
    assert_eq!(followed.counts().await.unwrap(), straight.counts().await.unwrap());
}
