//! Real chains through a store: the UTXO set it keeps is Bitcoin Core's at every height that is known, and so is the one it
//! counts at the end.

use std::{ops::ControlFlow, path::Path, sync::Arc};

use sapwood_engine_rocksdb::{OpenMode, Options, open_ledger};
use sapwood_ledger::{ApplyOptions, RollbackMode, UtxoSet};
use sapwood_rules::Policy;
use sapwood_sources::{
    BlockSource, ReadAhead,
    bitcoin::{BlkSource, Network},
};
use sapwood_testing::data;
use sapwood_types::{Height, TxId};
use serde_json::Value;

fn rows(path: &Path) -> Vec<Value> {
    data::json(path).as_array().unwrap().clone()
}

#[track_caller]
fn assert_row(row: &Value, set: &UtxoSet) {
    let last = set.last.unwrap();
    assert_eq!(row["bestblock"], last.hash.to_string(), "at {}", last.height);
    assert_eq!(row["txouts"], set.coins, "at {}", last.height);
    // Amounts are printed in coins of eight digits.
    let amount = (row["total_amount"].as_f64().unwrap() * 1e8).round() as u128;
    assert_eq!(amount, set.amount, "at {}", last.height);
    assert_eq!(row["muhash"], set.digest().unwrap(), "at {}", last.height);
}

/// Applies a whole chain, comparing at every listed height; prunes nothing, then rolls some of it back.
async fn follow(source: BlkSource, rows: &[Value]) {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::default().ledger(|ledger| ledger.utxo_hash = true);
    let store = open_ledger(directory.path(), OpenMode::Create, Policy::default(), options).unwrap();
    let tip = source.tip().await.unwrap().unwrap().height;
    let mut reader = ReadAhead::new(Arc::new(source), None, Height(0), tip, 8);
    let mut compared = 0;
    while let Some(block) = reader.next().await.unwrap() {
        store.apply_block(block.utxo.unwrap(), ApplyOptions::default()).await.unwrap();
        if let Some(row) = rows.iter().find(|row| row["height"] == block.point.height.0) {
            assert_row(row, &store.rolling_utxo_set().await.unwrap().unwrap());
            compared += 1;
        }
    }
    assert_eq!(compared, rows.len());
    let kept = store.rolling_utxo_set().await.unwrap();
    let quietly = || Arc::new(|_, _| ControlFlow::Continue(()));
    assert_eq!(Some(store.utxo_set(true, quietly()).await.unwrap()), kept);

    let floor = store.rollback_floor().await.unwrap().unwrap();
    let back = rows.iter().rev().skip(1).find(|row| row["height"].as_u64() >= Some(floor.0.into())).unwrap();
    let height = Height(back["height"].as_u64().unwrap() as u32);
    let target = Some((height, back["bestblock"].as_str().unwrap().parse().unwrap()));
    store.roll_back(target, RollbackMode::Node).await.unwrap();
    assert_row(back, &store.rolling_utxo_set().await.unwrap().unwrap());
    assert_row(back, &store.utxo_set(true, quietly()).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_4313_blocks_of_the_main_network() {
    let Some(dir) = data::bitcoin() else { return };
    let rows = rows(&dir.join("expected/mainnet-0-4312-muhash-by-height.json"));
    assert!(rows.len() > 40);
    follow(data::open(Network::Mainnet, [dir.join("chain-mainnet-0-4312")]), &rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dense_chain_of_127_732_transactions() {
    let Some(dir) = data::bitcoin() else { return };
    let files = data::Files::of(&data::read(&dir.join("regtest-dense-0-360/blocks.blk.dat.zst")));
    let rows = rows(&dir.join("regtest-dense-0-360/expected.json"));
    assert!(rows.len() > 6);
    follow(files.open(Network::Regtest), &rows).await;
}

/// Bitcoin Core never adds the coinbase of the first block to its set. Its record is there; it has no coins.
#[tokio::test]
async fn the_coinbase_of_the_first_block_is_stored_and_no_coin() {
    for network in Network::ALL {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::default().ledger(|ledger| ledger.utxo_hash = true);
        let store = open_ledger(directory.path(), OpenMode::Create, Policy::default(), options).unwrap();
        let block =
            sapwood_sources::bitcoin::convert::block(&network.genesis_block(), Height(0), None).unwrap();
        let txid: TxId = block.txs[0].txid;
        store.apply_block(Arc::new(block), ApplyOptions::default()).await.unwrap();
        assert!(store.get(txid).await.unwrap().is_some());
        let set = store.rolling_utxo_set().await.unwrap().unwrap();
        assert_eq!((set.coins, set.transactions, set.amount), (0, 0, 0));
        let empty = "dd5ad2a105c2d29495f577245c357409002329b9f4d6182c0af3dc2f462555c8";
        assert_eq!(set.digest().unwrap(), empty, "{network:?}");
    }
}
