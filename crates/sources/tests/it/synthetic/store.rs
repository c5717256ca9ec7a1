//! The chain on a plain model of a store: blocks, reorganisations, unmined transactions and pruning, thousands of blocks long.

use std::{collections::BTreeSet, sync::Arc};

use sapwood_conformance::{Store, model::ModelStore};
use sapwood_ledger::{ApplyOptions, CreateRequest, PruneFrom, PruneRequest, RollbackMode};
use sapwood_rules::{Policy, PruneContext, lifecycle::due_up_to};
use sapwood_sources::synthetic::{Outcome, Step, SyntheticChain, SyntheticOptions};
use sapwood_types::{Block, Height, TxId};

use crate::synthetic::busy;

/// More than any reorganisation takes back, less than late transactions wait.
const RETENTION: u32 = 24;

/// A chain on which few outputs are alive: the model copies itself with each write.
fn small(seed: u64) -> SyntheticOptions {
    SyntheticOptions { first_outputs: 300, most_outputs: 400, ..busy(seed) }
}

fn model(options: &SyntheticOptions) -> ModelStore {
    let coinbase_maturity = options.coinbase_maturity;
    ModelStore::new(Policy { coinbase_maturity, ..Policy::with_retention(RETENTION) })
}

async fn apply(store: &ModelStore, block: &Arc<Block>) -> Vec<TxId> {
    store.apply_block(block.clone(), ApplyOptions::default()).await.unwrap().conflicting
}

/// Tells a store what happened, as a node would: unmined transactions too. Returns who lost.
async fn tell_node(store: &ModelStore, step: &Step, tip: Option<Height>) -> BTreeSet<TxId> {
    store.delete(step.expired.clone()).await.unwrap();
    let requests = step.seen.iter().map(|seen| CreateRequest {
        conflicting: seen.rival_of.is_some(),
        ..CreateRequest::unmined(seen.tx.clone())
    });
    store.create(requests.collect(), tip.unwrap_or_default()).await.unwrap();
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

/// Deletes what is due. Returns how many records went.
async fn prune(store: &ModelStore, current: Height) -> usize {
    let Some(up_to) = due_up_to(current, RETENTION) else { return 0 };
    let context = PruneContext { current, safe: Some(current), retention: RETENTION };
    let request = PruneRequest::settled(PruneFrom::Oldest, up_to, usize::MAX, context);
    let judged = store.prune(request).await.unwrap().judged;
    judged.iter().filter(|judged| judged.verdict.may_go()).count()
}

#[tokio::test]
async fn a_node_takes_all_of_it_agrees_on_who_lost_and_prunes() {
    let options = small(1);
    let store = model(&options);
    let mut chain = SyntheticChain::new(options).unwrap();
    let (mut lost, mut pruned) = (0, 0);
    for number in 0..2_000 {
        let tip = chain.tip().map(|tip| tip.height);
        let step = chain.step();
        let losers = tell_node(&store, &step, tip).await;
        let mut expected: BTreeSet<TxId> = step.losers.iter().copied().collect();
        lost += expected.len();
        if let Outcome::Reorganised { lost, .. } = &step.outcome {
            // A coinbase has no chance without its block.
            expected.extend(lost.iter().map(|block| block.txs[0].txid));
        }
        assert_eq!(losers, expected, "after {tip:?}");
        if number % 10 == 0 {
            pruned += prune(&store, chain.tip().unwrap().height).await;
        }
    }
    assert!(lost > 500, "{lost}");
    assert!(pruned > 20_000, "{pruned}");
    assert!(store.verify(Arc::new(|_, _| {})).await.unwrap().is_clean());
}

#[tokio::test]
async fn a_follower_ends_with_what_the_best_chain_alone_gives() {
    let options = SyntheticOptions { remember: u32::MAX, ..small(2) };
    let (followed, straight) = (model(&options), model(&options));
    let mut chain = SyntheticChain::new(options).unwrap();
    let mut reorganised = 0;
    for _ in 0..400 {
        let step = chain.step();
        if let Outcome::Reorganised { fork, .. } = &step.outcome {
            followed.roll_back(Some((fork.height, fork.hash)), RollbackMode::Follower).await.unwrap();
            reorganised += 1;
        }
        for block in step.blocks() {
            apply(&followed, block).await;
        }
    }
    assert!(reorganised > 20, "{reorganised}");
    let tip = chain.tip().unwrap();
    for height in (0..=tip.height.0).map(Height) {
        let block = chain.block(&chain.hash_at(height).unwrap()).unwrap().unwrap();
        apply(&straight, &block).await;
        for tx in &block.txs {
            assert!(followed.get(tx.txid).await.unwrap().is_some());
        }
    }
    assert_eq!(followed.counts().await.unwrap(), straight.counts().await.unwrap());
    assert_eq!(followed.last_applied().await.unwrap().unwrap().hash, tip.hash);
}
