//! Full blocks of mainnet on the coins they spend: on, off, and on again.

use std::{collections::BTreeSet, path::Path};

use sapwood_ledger::{Counts, RollbackMode};
use sapwood_sources::{BlockSource as _, ChainPoint};
use sapwood_types::{Block, Slot, Spender, TxId, TxRecord};

use crate::follow::{
    coins::{self, Coin, Ledger, Stretch, inputs},
    data::{self, Files, Node},
};

/// Every output the block spends is there as the undo data have it, and says who spent it and when.
async fn assert_spent(node: &Node, block: &Block, stretch: &Stretch) {
    let outpoints = inputs(block).map(|(_, _, outpoint)| outpoint).collect();
    let found = node.store.outputs(outpoints).await.unwrap();
    for ((child, vin, outpoint), found) in inputs(block).zip(found) {
        let found = found.unwrap().unwrap_or_else(|| panic!("{outpoint} is not there"));
        let coin = Coin {
            value: found.output.value,
            script: found.output.script.to_vec(),
            height: found.mined_at.unwrap(),
            coinbase: found.coinbase,
        };
        assert_eq!(coin, stretch.spent[&outpoint], "{outpoint}");
        let slot = Slot::Spent { spender: Spender::new(child, vin), child_mined_at: Some(block.height) };
        assert_eq!(found.slot, slot, "{outpoint}");
    }
}

/// How much there is, and the records of all that was there before the blocks.
async fn everything(node: &Node, stretch: &Stretch) -> (Counts, Vec<Option<TxRecord>>) {
    let txids: BTreeSet<TxId> = stretch.needed().keys().map(|outpoint| outpoint.txid).collect();
    let records = node.store.get_many(txids.into_iter().collect()).await.unwrap();
    let records = records.into_iter().map(Result::unwrap).collect();
    (node.store.counts().await.unwrap(), records)
}

/// Applies the blocks, takes them back one by one, and applies them again as a follower of block files would. At every step the
/// UTXO set is what blocks and undo data say.
async fn on_off_and_on(stretch: &Stretch, mode: RollbackMode) {
    let node = Node::new(mode);
    let anchor = stretch.anchor();
    coins::preload(&node, &stretch.needed(), anchor.height).await;
    let mut ledgers = vec![Ledger::of(&stretch.needed())];
    ledgers[0].assert_is(&node.counted().await, "before");
    let before = (node.rolling().await, everything(&node, stretch).await);

    for block in &stretch.blocks {
        let applied =
            node.chain.apply(block.clone(), stretch.options(block)).await.unwrap().expect("at once");
        assert_eq!((applied.created, applied.mined), (block.txs.len(), 0));
        let ledger = ledgers[ledgers.len() - 1].after(block, &stretch.spent);
        ledger.assert_is(&node.rolling().await, "applied");
        ledgers.push(ledger);
        assert_spent(&node, block, stretch).await;
    }
    let after = node.counted().await;
    assert_eq!(after, node.rolling().await);

    for number in (0..stretch.blocks.len()).rev() {
        let below = number.checked_sub(1).map(|below| &stretch.blocks[below]);
        let point = below.map(|block| ChainPoint::new(block.height, block.hash));
        assert_eq!(node.chain.roll_back(point).await.unwrap().blocks, 1);
        ledgers[number].assert_is(&node.rolling().await, "taken back");
    }
    assert_eq!(node.rolling().await, before.0);
    assert_eq!(node.counted().await, before.0);
    if mode == RollbackMode::Follower {
        assert_eq!(everything(&node, stretch).await, before.1);
    }

    let files = Files::new();
    let source = stretch.source(&files);
    assert_eq!(source.tip().await.unwrap().unwrap().hash, stretch.blocks.last().unwrap().hash);
    node.follow(source).catch_up().await.unwrap();
    let again = node.counted().await;
    assert_eq!(
        (again.coins, again.transactions, again.amount, again.digest()),
        (after.coins, after.transactions, after.amount, after.digest())
    );
    for block in &stretch.blocks {
        assert_spent(&node, block, stretch).await;
    }
    node.sound().await;
}

async fn in_both_modes(stretch: impl Fn(&Path) -> Stretch) {
    let Some(dir) = data::bitcoin() else { return };
    let stretch = stretch(&dir);
    for mode in [RollbackMode::Follower, RollbackMode::Node] {
        on_off_and_on(&stretch, mode).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_928848_and_928849_spend_what_their_undo_data_say() {
    in_both_modes(coins::of_2025).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn block_277647_spends_what_its_undo_data_say() {
    in_both_modes(|dir| {
        let stretch = coins::of_2014(dir);
        assert_eq!(stretch.spent.values().filter(|coin| coin.coinbase).count(), 5);
        stretch
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_367238_to_367240_hang_together() {
    in_both_modes(coins::of_2015).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_blocks_that_follow_each_other_go_on_and_off() {
    for (height, names) in [
        (
            261_198,
            [
                "261198-00000000000000168b0dfa91f97dadddaa7172829e6bc0520af99a56eb3d8706",
                "261199-000000000000000b1d220bf1bff1f479bfff9e041785a2a465cfb21649d65959",
            ],
        ),
        (
            358_998,
            [
                "358998-0000000000000000090162c2cedda0190d580cd2a554aa1c582f366d5b7cf0bc",
                "358999-00000000000000000e9769320b47364ee6e6c33f3de1fa421de6aefc8d80218b",
            ],
        ),
    ] {
        in_both_modes(|dir| {
            let raw = names.map(|name| data::read(&dir.join(format!("stale-blocks/{name}.bin"))));
            let stretch = Stretch::with_made_up_coins(height, raw.to_vec());
            for (block, name) in stretch.blocks.iter().zip(names) {
                assert!(name.ends_with(&block.hash.to_string()));
            }
            stretch
        })
        .await;
    }
}
