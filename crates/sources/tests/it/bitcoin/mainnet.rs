//! Real blocks of the main network.

use std::{collections::HashSet, fs, ops::ControlFlow, sync::Arc};

use sapwood_sources::{
    BlockSource, ChainPoint, ReadAhead,
    bitcoin::{
        BlkOptions, BlkSource, Network,
        blk::FileOrder,
        convert::{self, ConvertError},
    },
    walk_parents,
};
use sapwood_types::{Block, BlockRules, Height};

use crate::bitcoin::{data, utxo::UtxoSet};

const TIP: &str = "00000000a9da635727dce622d78361b153ce3334e6a60d4377fad529abfc7863";

/// Bitcoin Core prints amounts in coins with eight digits.
fn satoshis(coins: &serde_json::Value) -> u64 {
    (coins.as_f64().unwrap() * 1e8).round() as u64
}

#[tokio::test(flavor = "multi_thread")]
async fn first_4313_blocks_give_the_utxo_hash_of_bitcoin_core_at_every_listed_height() {
    let Some(dir) = data::bitcoin() else { return };
    let source = data::open(Network::Mainnet, [dir.join("chain-mainnet-0-4312")]);
    let report = source.report();
    assert_eq!((report.blocks, report.copies, report.beside, report.unconnected), (4313, 0, 0, 0));
    assert_eq!(report.notes, []);
    let tip = source.tip().await.unwrap().unwrap();
    assert_eq!(tip, ChainPoint::new(Height(4312), TIP.parse().unwrap()));

    let expected = data::json(&dir.join("expected/mainnet-0-4312-muhash-by-height.json"));
    let mut expected = expected.as_array().unwrap().iter().peekable();
    let mut reader = ReadAhead::new(Arc::new(source), None, Height(0), tip.height, 16);
    let mut set = UtxoSet::default();
    let (mut height, mut compared) = (Height(0), 0);
    while let Some(block) = reader.next().await.unwrap() {
        let block = block.utxo.unwrap();
        assert_eq!(block.height, height);
        set.apply(&block);
        if let Some(row) = expected.next_if(|row| row["height"] == height.0) {
            assert_eq!(row["bestblock"], block.hash.to_string(), "at {height}");
            assert_eq!(row["txouts"], set.count(), "at {height}");
            assert_eq!(satoshis(&row["total_amount"]), set.amount, "at {height}");
            assert_eq!(row["muhash"], set.muhash(), "at {height}");
            compared += 1;
        }
        height = height.next();
    }
    assert_eq!(height, Height(4313));
    assert!(expected.next().is_none() && compared >= 44, "{compared} heights compared");
}

#[tokio::test]
async fn blocks_bring_the_bytes_of_their_file_and_the_rules_of_their_height() {
    let Some(dir) = data::bitcoin() else { return };
    let places = [dir.join("chain-mainnet-0-4312")];
    let raw_above = Some(200);
    let options = BlkOptions { raw_above, ..BlkOptions::new(Network::Mainnet, places.to_vec()) };
    let source = BlkSource::open(options, |_| ControlFlow::Continue(())).unwrap();
    let mut large = 0;
    for record in FileOrder::open(Network::Mainnet, &places).unwrap().step_by(61) {
        let record = record.unwrap();
        let block = source.block(&record.hash()).await.unwrap().unwrap();
        assert_eq!(block.raw, record.bytes);
        let height = block.point.height;
        let rules = BlockRules { subsidy: Some(5_000_000_000), ..BlockRules::default() };
        assert_eq!(block.rules, rules, "at {height}");
        for tx in block.utxo.unwrap().txs.iter().filter(|tx| tx.size > 200) {
            assert_eq!(tx.raw.len(), tx.size as usize);
            // A part of the block's bytes, not a copy.
            assert!(block.raw.as_ptr_range().contains(&tx.raw.as_ptr()));
            large += 1;
        }
    }
    assert!(large > 0);
    let overwriting = "00000000000a4d0a398161ffc163c503763b1f4360639393e0e4c8e300e0caec".parse().unwrap();
    assert!(Network::Mainnet.rules(Height(91_842), &overwriting).allow_overwrite);
    assert!(!Network::Mainnet.rules(Height(91_843), &overwriting).allow_overwrite);
    assert_eq!(Network::Mainnet.rules(Height(210_000), &overwriting).subsidy, Some(2_500_000_000));
}

#[tokio::test]
async fn every_block_follows_the_one_before_and_is_found_by_height_and_hash() {
    let Some(dir) = data::bitcoin() else { return };
    let source = data::open(Network::Mainnet, [dir.join("chain-mainnet-0-4312/blk00000.dat")]);
    let mut before = None;
    for height in (0..=4312).map(Height) {
        let hash = source.hash_at(height).await.unwrap().unwrap();
        let header = source.header(&hash).await.unwrap().unwrap();
        assert!(header.on_best_chain);
        assert_eq!((header.height, header.hash), (height, hash));
        assert!(before.is_none_or(|before| before == header.parent));
        if height.0 % 97 == 0 {
            let block = source.block(&hash).await.unwrap().unwrap().utxo.unwrap();
            assert_eq!(source.block_at(height).await.unwrap().unwrap().utxo.unwrap(), block);
            assert_eq!((block.height, block.hash, block.parent), (height, hash, header.parent));
            assert_eq!(block.time, header.time);
        }
        before = Some(hash);
    }
    assert_eq!(source.hash_at(Height(4313)).await.unwrap(), None);
    assert_eq!(source.block_at(Height(4313)).await.unwrap(), None);
    let walked =
        walk_parents(&source, TIP.parse().unwrap(), |header| header.height > Height(4000)).await.unwrap();
    assert_eq!(walked.len(), 313);
    assert_eq!(walked.last().unwrap().height, Height(4000));
}

#[test]
fn the_coinbase_of_the_first_block_is_no_coin() {
    for network in Network::ALL {
        let hash = network.genesis();
        let block = convert::block(&network.genesis_block(), Height(0), Some(&hash)).unwrap();
        assert_eq!((block.hash, block.txs.len()), (hash, 1));
        let coinbase = &block.txs[0];
        assert!(coinbase.coinbase && coinbase.inputs.is_empty());
        assert_eq!(coinbase.outputs[0].value, 50 * 100_000_000);
        assert!(coinbase.outputs.iter().all(|output| !output.spendable));
    }
}

fn convert_file(path: &std::path::Path, height: u32) -> Block {
    let bytes = data::read(path);
    let block =
        convert::block(&bytes, Height(height), None).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    // Sizes add up to the whole: header, number of transactions, transactions.
    let sizes: usize = block.txs.iter().map(|tx| tx.size as usize).sum();
    assert!((81..=85).contains(&(bytes.len() - sizes)), "{}", path.display());
    block
}

#[test]
fn full_blocks_of_2025_convert() {
    let Some(dir) = data::bitcoin() else { return };
    let one = convert_file(&dir.join("blocks-with-undo/block928848.raw"), 928_848);
    let two = convert_file(&dir.join("blocks-with-undo/block928849.raw"), 928_849);
    for block in [&one, &two] {
        assert!(block.txs.len() > 100, "{}", block.txs.len());
        assert!(block.txs[1..].iter().all(|tx| !tx.coinbase && !tx.inputs.is_empty()));
        let data = block.txs.iter().flat_map(|tx| &tx.outputs).filter(|output| !output.spendable);
        assert!(data.clone().count() > 1, "a modern block carries data");
        assert!(data.into_iter().all(|output| output.script[0] == 0x6a));
    }
    // One follows the other.
    assert_eq!(two.parent, one.hash);
    // The record of a block file.
    let file = data::Files::of(&data::read(&dir.join("blocks-with-undo/277647.dat.bz2")));
    let raw = file.in_order(Network::Mainnet);
    assert_eq!(raw.len(), 1);
    assert_eq!(raw[0].convert(Height(277_647)).unwrap().height, Height(277_647));
}

#[tokio::test]
async fn three_blocks_in_a_row_are_a_chain_when_anchored_and_orphans_when_not() {
    let Some(dir) = data::bitcoin() else { return };
    let mut file = Vec::new();
    for height in 367_238..=367_240 {
        let hex = data::json(&dir.join(format!("mainnet-367238-367240/block-{height}.json.zst")));
        file.extend(data::record(Network::Mainnet, &data::hex(hex.as_str().unwrap())));
    }
    let files = data::Files::of(&file);
    let adrift = files.open(Network::Mainnet);
    let report = adrift.report();
    assert_eq!((report.blocks, report.unconnected, report.orphans.len()), (3, 3, 1));
    assert_eq!(report.tip.height, Height(0));
    assert_eq!(adrift.block(&report.orphans[0].hash).await.unwrap(), None);

    let anchor = ChainPoint::new(Height(367_237), report.orphans[0].parent);
    let options = BlkOptions { anchor: Some(anchor), ..BlkOptions::new(Network::Mainnet, [files.path()]) };
    let source = BlkSource::open(options, |_| std::ops::ControlFlow::Continue(())).unwrap();
    assert_eq!(source.report().unconnected, 0);
    assert_eq!(source.tip().await.unwrap().unwrap().height, Height(367_240));
    assert_eq!(source.block_at(Height(367_237)).await.unwrap(), None);
    assert_eq!(source.hash_at(Height(367_236)).await.unwrap(), None);
    let mut txs = 0;
    for height in 367_238..=367_240 {
        txs += source.block_at(Height(height)).await.unwrap().unwrap().utxo.unwrap().txs.len();
    }
    assert_eq!(txs, 5655);
}

#[test]
fn stale_blocks_convert_and_siblings_share_transactions() {
    let Some(dir) = data::bitcoin() else { return };
    let mut siblings = Vec::new();
    let mut seen = 0;
    for entry in fs::read_dir(dir.join("stale-blocks")).unwrap() {
        let path = entry.unwrap().path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".bin")) else {
            continue;
        };
        let (height, hash) = name.split_once('-').unwrap();
        let block = convert_file(&path, height.parse().unwrap());
        assert_eq!(block.hash.to_string(), hash);
        let other = convert::block(&data::read(&path), block.height, Some(&block.parent));
        assert_eq!(other, Err(ConvertError::OtherBlock { expected: block.parent, found: block.hash }));
        if height == "337487" {
            siblings.push(block);
        }
        seen += 1;
    }
    assert_eq!((seen, siblings.len()), (7, 2));
    assert_eq!(siblings[0].parent, siblings[1].parent);
    let ids = |block: &Block| block.txs.iter().map(|tx| tx.txid).collect::<HashSet<_>>();
    assert_eq!(ids(&siblings[0]).intersection(&ids(&siblings[1])).count(), 339);
}

#[test]
fn the_overflow_block_converts_because_amounts_are_not_the_business_of_a_source() {
    let Some(dir) = data::bitcoin() else { return };
    let name = "stale-blocks/74638-0000000000790ab3f22ec756ad43b6ab569abf0bddeb97c67a6f7b1470a7ec1c.bin";
    let block = convert_file(&dir.join(name), 74_638);
    // Two outputs of 92 billion coins each. Bitcoin adds amounts as signed numbers, where the sum is below zero.
    let values: Vec<u64> = block.txs[1].outputs.iter().map(|output| output.value).collect();
    assert_eq!(values, [9_223_372_036_854_275_808; 2]);
    assert!((values[0] as i64).wrapping_add(values[1] as i64) < 0);
    assert!(block.txs[1].outputs.iter().all(|output| output.spendable));
}
