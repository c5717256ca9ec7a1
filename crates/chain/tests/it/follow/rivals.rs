//! Two real blocks at one height, and real blocks against made-up ones.

use std::{collections::HashSet, sync::Arc};

use sapwood_conformance::fixtures::{child, coin};
use sapwood_ledger::RollbackMode;
use sapwood_sources::{BlockSource as _, bitcoin::Network};
use sapwood_types::{Block, BlockHash, TxId};

use crate::follow::{
    coins::{self, Ledger, Stretch, inputs},
    data::{self, Files, Node},
};

fn stale(name: &str) -> Option<Vec<u8>> {
    data::bitcoin().map(|dir| data::read(&dir.join(format!("stale-blocks/{name}.bin"))))
}

fn ids(block: &Block) -> HashSet<TxId> {
    block.txs.iter().map(|tx| tx.txid).collect()
}

/// The siblings at 337487 share 339 transactions. Whichever comes first, the set ends as that of the other alone.
#[tokio::test(flavor = "multi_thread")]
async fn siblings_at_337487_take_each_others_place() {
    let names = [
        "337487-00000000000000001210610f61d4661422395cfb10f0946921e80d6825275c07",
        "337487-00000000000000001aad4da61bba2d712f43226c439ce55c8336e659e81aadb4",
    ];
    let [Some(one), Some(other)] = names.map(stale) else { return };
    let siblings = [one, other].map(|raw| Stretch::with_made_up_coins(337_487, vec![raw]));
    let shared = ids(&siblings[0].blocks[0]).intersection(&ids(&siblings[1].blocks[0])).count();
    assert_eq!(shared, 339);
    let mut needed = siblings[0].needed();
    needed.extend(siblings[1].needed());
    let bare = Ledger::of(&needed);

    for (old, new) in [(&siblings[0], &siblings[1]), (&siblings[1], &siblings[0])] {
        for mode in [RollbackMode::Node, RollbackMode::Follower] {
            let node = Node::new(mode);
            coins::preload(&node, &needed, old.anchor().height).await;
            let files = Files::new();
            let source = old.source(&files);
            let follower = node.follow(source.clone());
            follower.catch_up().await.unwrap();
            bare.after(&old.blocks[0], &old.spent).assert_is(&node.rolling().await, "the first");

            // The same work: the one that was there first stays, as with a node, until it is given up.
            files.write(1, &data::record(Network::Mainnet, &new.raw[0]));
            source.refresh(|_| std::ops::ControlFlow::Continue(())).unwrap();
            follower.catch_up().await.unwrap();
            assert_eq!(node.store.last_applied().await.unwrap().unwrap().hash, old.blocks[0].hash);
            source.reject(&old.blocks[0].hash).await.unwrap();
            follower.catch_up().await.unwrap();
            assert_eq!(node.store.last_applied().await.unwrap().unwrap().hash, new.blocks[0].hash);
            bare.after(&new.blocks[0], &new.spent).assert_is(&node.rolling().await, "the second");

            // What only the old one had waits for another block, or is forgotten.
            let counts = node.store.counts().await.unwrap();
            let left_over = if mode == RollbackMode::Node { ids(&old.blocks[0]).len() - shared } else { 0 };
            assert_eq!(counts.unmined as usize, left_over);
            node.sound().await;
        }
    }
}

/// A longer branch spends again what a stale block spent: its transaction loses with all that builds on it, in both blocks.
#[tokio::test(flavor = "multi_thread")]
async fn a_double_spend_on_another_branch_makes_losers_of_a_real_transaction_and_its_descendants() {
    let names = [
        "261198-00000000000000168b0dfa91f97dadddaa7172829e6bc0520af99a56eb3d8706",
        "261199-000000000000000b1d220bf1bff1f479bfff9e041785a2a465cfb21649d65959",
    ];
    let [Some(one), Some(other)] = names.map(stale) else { return };
    let stretch = Stretch::with_made_up_coins(261_198, vec![one, other]);
    let node = Node::new(RollbackMode::Node);
    coins::preload(&node, &stretch.needed(), stretch.anchor().height).await;
    let before = Ledger::of(&stretch.needed());
    for block in &stretch.blocks {
        node.chain.apply(block.clone(), stretch.options(block)).await.unwrap();
    }

    let txs = || stretch.blocks.iter().flat_map(|block| &block.txs);
    let heirs_of = |first: TxId| {
        let mut heirs = HashSet::from([first]);
        for tx in txs() {
            if tx.inputs.iter().any(|input| heirs.contains(&input.outpoint.txid)) {
                heirs.insert(tx.txid);
            }
        }
        heirs
    };
    let needed = stretch.needed();
    let outside = inputs(&stretch.blocks[0]).filter(|(_, _, outpoint)| needed.contains_key(outpoint));
    let (loser, _, contested) = outside.max_by_key(|(txid, ..)| heirs_of(*txid).len()).unwrap();
    let lost = heirs_of(loser);
    assert!(lost.len() > 5, "{}", lost.len());

    node.chain.roll_back(None).await.unwrap();
    before.assert_is(&node.rolling().await, "taken back");
    let mut thief = child("thief", &[(&coin("nothing", 1), 0)], 1);
    thief.inputs[0].outpoint = contested;
    let mut rival = Block::clone(&stretch.blocks[0]);
    rival.hash = BlockHash([7; 32]);
    rival.txs.truncate(1);
    rival.txs.push(thief);
    let applied = node.chain.apply(Arc::new(rival), Default::default()).await.unwrap().unwrap();
    assert_eq!(applied.conflicting.into_iter().collect::<HashSet<_>>(), lost);

    // And back: nothing is left of the thief's block.
    node.chain.roll_back(None).await.unwrap();
    before.assert_is(&node.rolling().await, "taken back again");
    let mut ledger = before;
    for block in &stretch.blocks {
        node.chain.apply(block.clone(), stretch.options(block)).await.unwrap();
        ledger = ledger.after(block, &stretch.spent);
        ledger.assert_is(&node.rolling().await, "the real ones again");
    }
    node.sound().await;
}
