//! Real blocks with one thing wrong: the error names block, transaction and outpoint, and nothing is written.

use std::sync::Arc;

use sapwood_chain::ChainError;
use sapwood_ledger::{ApplyError, RollbackMode};
use sapwood_sources::{
    BlockSource as _, SourceError,
    bitcoin::{Network, convert},
};
use sapwood_types::{Block, Height, OutPoint, TxId};

use crate::follow::{
    coins::{self, Coin, Stretch, inputs},
    data::{self, Files, Node},
};

/// Tries a block, and returns the error once it is sure that it names everything and changed nothing.
async fn refused(node: &Node, stretch: &Stretch, block: Block, txid: TxId, outpoint: OutPoint) -> ChainError {
    let before = (node.store.state_digest().await.unwrap(), node.rolling().await);
    let (hash, height) = (block.hash, block.height);
    let error = node.chain.apply(Arc::new(block.clone()), stretch.options(&block)).await.unwrap_err();
    let text = error.to_string();
    for named in [hash.to_string(), height.to_string(), txid.to_string(), outpoint.to_string()] {
        assert!(text.contains(&named), "{named} is not in: {text}");
    }
    assert_eq!(error.bad_block(), Some(hash));
    assert_eq!((node.store.state_digest().await.unwrap(), node.rolling().await), before, "{text}");
    error
}

/// Inputs from all over a block that spend what is not made in it.
fn some_inputs(stretch: &Stretch, block: &Block) -> Vec<(TxId, u32, OutPoint)> {
    let needed = stretch.needed();
    let outside: Vec<_> = inputs(block).filter(|(_, _, outpoint)| needed.contains_key(outpoint)).collect();
    let every = outside.len() / 7;
    outside.into_iter().step_by(every).collect()
}

fn input_mut(block: &mut Block, txid: TxId, vin: u32) -> &mut OutPoint {
    let tx = block.txs.iter_mut().find(|tx| tx.txid == txid).unwrap();
    &mut tx.inputs[vin as usize].outpoint
}

fn is_tx_error(error: &ChainError) -> bool {
    matches!(error, ChainError::Apply(ApplyError::Tx { .. }))
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_that_cannot_be_spent_are_named_and_nothing_is_written() {
    let Some(dir) = data::bitcoin() else { return };
    let stretch = coins::of_2014(&dir);
    let good = &stretch.blocks[0];
    let node = Node::new(RollbackMode::Node);
    coins::preload(&node, &stretch.needed(), stretch.anchor().height).await;
    let chosen = some_inputs(&stretch, good);
    assert!(chosen.len() >= 7);
    for (place, (txid, vin, outpoint)) in chosen.iter().copied().enumerate() {
        // One bit of what an input points to: a transaction that is nowhere, or an output that is not there.
        for bit in [0, 7] {
            let mut bad = Block::clone(good);
            let missing = input_mut(&mut bad, txid, vin);
            missing.txid.0[place] ^= 1 << bit;
            let missing = *missing;
            assert!(is_tx_error(&refused(&node, &stretch, bad, txid, missing).await));
        }
        let mut bad = Block::clone(good);
        let missing = input_mut(&mut bad, txid, vin);
        missing.vout ^= 1 << 20;
        let missing = *missing;
        assert!(is_tx_error(&refused(&node, &stretch, bad, txid, missing).await));

        // Somebody else froze it.
        node.store.freeze(vec![outpoint]).await.unwrap();
        let error = refused(&node, &stretch, Block::clone(good), txid, outpoint).await;
        assert!(error.to_string().contains("frozen"), "{error}");
        node.store.unfreeze(vec![outpoint]).await.unwrap();

        // An input further on spends it too.
        let (again, vin, _) = inputs(good).filter(|(by, ..)| *by != txid).last().unwrap();
        let mut bad = Block::clone(good);
        *input_mut(&mut bad, again, vin) = outpoint;
        let error = refused(&node, &stretch, bad, again, outpoint).await;
        assert!(is_tx_error(&error), "{error}");
    }
    node.chain.apply(good.clone(), stretch.options(good)).await.unwrap();
    node.sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn coins_that_are_not_there_or_too_young_are_named_and_nothing_is_written() {
    let Some(dir) = data::bitcoin() else { return };
    let stretch = coins::of_2014(&dir);
    let good = &stretch.blocks[0];
    for (txid, _, outpoint) in some_inputs(&stretch, good) {
        let node = Node::new(RollbackMode::Follower);
        let mut coins = stretch.needed();
        coins.remove(&outpoint).unwrap();
        coins::preload(&node, &coins, stretch.anchor().height).await;
        assert!(is_tx_error(&refused(&node, &stretch, Block::clone(good), txid, outpoint).await));

        let node = Node::new(RollbackMode::Follower);
        let mut coins = stretch.needed();
        let others = coins.iter_mut().filter(|(coin, _)| coin.txid == outpoint.txid);
        for (_, young) in others {
            *young = Coin { height: Height(good.height.0 - 99), coinbase: true, ..young.clone() };
        }
        coins::preload(&node, &coins, stretch.anchor().height).await;
        // Another input of the same record may come first.
        let (first, _, outpoint) = inputs(good).find(|(_, _, spent)| spent.txid == outpoint.txid).unwrap();
        let error = refused(&node, &stretch, Block::clone(good), first, outpoint).await;
        assert!(error.to_string().contains("coinbase"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_block_before_spent_cannot_be_spent_again() {
    let Some(dir) = data::bitcoin() else { return };
    let stretch = coins::of_2025(&dir);
    let node = Node::new(RollbackMode::Node);
    coins::preload(&node, &stretch.needed(), stretch.anchor().height).await;
    let [one, two] = stretch.blocks.as_slice() else { panic!("two blocks") };
    node.chain.apply(one.clone(), stretch.options(one)).await.unwrap();
    for ((_, _, gone), (txid, vin, _)) in
        some_inputs(&stretch, one).into_iter().zip(some_inputs(&stretch, two))
    {
        let mut bad = Block::clone(two);
        *input_mut(&mut bad, txid, vin) = gone;
        let error = refused(&node, &stretch, bad, txid, gone).await;
        assert!(is_tx_error(&error) && error.to_string().contains("spent"), "{error}");
    }
    node.chain.apply(two.clone(), stretch.options(two)).await.unwrap();
}

/// More is made than there is in 64 bits. Bitcoin Core took it, once.
#[tokio::test(flavor = "multi_thread")]
async fn the_overflow_block_74638_mints_too_much() {
    let Some(dir) = data::bitcoin() else { return };
    let name = "74638-0000000000790ab3f22ec756ad43b6ab569abf0bddeb97c67a6f7b1470a7ec1c";
    let raw = data::read(&dir.join(format!("stale-blocks/{name}.bin")));
    let mut stretch = Stretch::with_made_up_coins(74_638, vec![raw]);
    // What it spends was worth half a coin.
    stretch.spent.values_mut().for_each(|coin| coin.value = 50_000_000);
    let node = Node::new(RollbackMode::Node);
    coins::preload(&node, &stretch.needed(), stretch.anchor().height).await;
    let before = node.store.state_digest().await.unwrap();
    let block = &stretch.blocks[0];
    let error = node.chain.apply(block.clone(), stretch.options(block)).await.unwrap_err();
    let (text, culprit) = (error.to_string(), block.txs[1].txid.to_string());
    assert!(text.contains("more than there is") && text.contains(&culprit), "{text}");
    assert!(text.contains(&block.hash.to_string()), "{text}");
    assert_eq!(node.store.state_digest().await.unwrap(), before);
    node.sound().await;
}

/// Any byte of any transaction: the block is not the one its header says, and the follower stops before it.
#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_byte_in_a_block_file_rejects_the_block_by_name() {
    let Some(dir) = data::bitcoin() else { return };
    let mut stretch = coins::of_2015(&dir);
    let node = Node::new(RollbackMode::Node);
    coins::preload(&node, &stretch.needed(), stretch.anchor().height).await;
    let digest = node.store.state_digest().await.unwrap();
    let good = stretch.raw[0].clone();
    let files = Files::new();
    let expected = stretch.blocks[0].hash;
    for at in (81..good.len()).step_by(good.len() / 40) {
        stretch.raw[0][at] ^= 0x10;
        assert!(convert::block(&stretch.raw[0], Height(367_238), Some(&expected)).is_err(), "byte {at}");
        let source = stretch.source(&files);
        assert_eq!(source.tip().await.unwrap().unwrap().hash, stretch.blocks[2].hash, "headers are fine");
        let follower = node.follow(source);
        follower.catch_up().await.unwrap();
        let error = follower.rejected().pop().unwrap().cause;
        let ChainError::Source(SourceError::BadBlock { hash, .. }) = &error else { panic!("{error}") };
        assert_eq!(*hash, Some(expected), "byte {at}");
        assert!(error.to_string().contains(&expected.to_string()), "{error}");
        stretch.raw[0][at] ^= 0x10;
    }
    assert_eq!(node.store.state_digest().await.unwrap(), digest);
    assert_eq!(node.store.last_applied().await.unwrap(), None);

    // Another copy of the block, and all is well.
    stretch.raw[0][good.len() / 2] ^= 0x10;
    let source = stretch.source(&files);
    let follower = node.follow(source.clone());
    follower.catch_up().await.unwrap();
    assert_eq!(node.store.last_applied().await.unwrap(), None);
    files.write(1, &data::record(Network::Mainnet, &good));
    source.refresh(|_| std::ops::ControlFlow::Continue(())).unwrap();
    follower.catch_up().await.unwrap();
    assert_eq!(node.store.last_applied().await.unwrap().unwrap().hash, stretch.blocks[2].hash);
    node.sound().await;
}
