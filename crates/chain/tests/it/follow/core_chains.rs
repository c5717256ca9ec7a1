//! Chains of which Bitcoin Core has said what their UTXO set is.

use std::{collections::HashMap, path::Path};

use sapwood_chain::{ChainError, ChainOptions};
use sapwood_ledger::{ApplyError, RollbackMode};
use sapwood_rules::Policy;
use sapwood_sources::{BlockSource, bitcoin::Network};
use sapwood_types::{BlockHash, Height};
use serde_json::Value;

use crate::follow::data::{self, Node};

/// What Bitcoin Core says at a height: hash, coins, muhash and amount in whole coins.
#[derive(Debug, PartialEq)]
struct Row {
    hash: String,
    coins: u64,
    muhash: String,
    amount: Option<String>,
}

impl Row {
    fn expected(row: &Value) -> Self {
        let text = |name: &str| row[name].as_str().unwrap().to_owned();
        let amount = row["total_amount"].as_f64().map(|amount| format!("{amount:.8}"));
        let hash = if row["bestblock"].is_string() { text("bestblock") } else { text("tip") };
        Row { hash, coins: row["txouts"].as_u64().unwrap(), muhash: text("muhash"), amount }
    }

    async fn of(node: &Node, with_amount: bool) -> Self {
        let set = node.rolling().await;
        Row {
            hash: set.last.unwrap().hash.to_string(),
            coins: set.coins,
            muhash: set.digest().unwrap(),
            amount: with_amount
                .then(|| format!("{}.{:08}", set.amount / 100_000_000, set.amount % 100_000_000)),
        }
    }
}

/// Imports a chain block by block, takes it back block by block to the first one, and imports it again. At every listed height
/// the set is what Bitcoin Core says, and going down every height has the set it had going up.
async fn up_down_and_up(source: impl BlockSource + 'static, expected: &[Value], mode: RollbackMode) {
    let node = Node::new(mode);
    let tip = source.tip().await.unwrap().unwrap();
    let rows: HashMap<u64, Row> =
        expected.iter().map(|row| (row["height"].as_u64().unwrap(), Row::expected(row))).collect();
    let mut points = Vec::new();
    let mut compared = 0;
    for height in (0..=tip.height.0).map(Height) {
        let block = source.block_at(height).await.unwrap().unwrap();
        let options = sapwood_ledger::ApplyOptions { rules: block.rules, ..Default::default() };
        let point = block.point;
        node.chain.apply(block.utxo.unwrap(), options).await.unwrap();
        let set = node.rolling().await;
        if let Some(row) = rows.get(&u64::from(height.0)) {
            assert_eq!(Row::of(&node, row.amount.is_some()).await, *row, "at {height}");
            compared += 1;
        }
        points.push((point, set.coins, set.amount, set.digest()));
    }
    assert_eq!(compared, rows.len(), "every row was compared");
    assert_eq!(node.counted().await, node.rolling().await);

    while let Some((point, coins, amount, digest)) = points.pop() {
        if node.store.last_applied().await.unwrap().unwrap().height > point.height {
            node.chain.roll_back(Some(point)).await.unwrap();
        }
        let set = node.rolling().await;
        assert_eq!(
            (set.coins, set.amount, set.digest()),
            (coins, amount, digest),
            "going down, at {}",
            point.height
        );
    }
    assert_eq!(node.store.last_applied().await.unwrap().unwrap().height, Height::GENESIS);
    node.chain.roll_back(None).await.unwrap();
    assert_eq!(node.store.last_applied().await.unwrap(), None);

    let follower = node.follow(source);
    follower.catch_up().await.unwrap();
    if let Some(row) = rows.get(&u64::from(tip.height.0)) {
        assert_eq!(Row::of(&node, row.amount.is_some()).await, *row, "the second time");
    }
    assert_eq!(node.store.last_applied().await.unwrap().unwrap().hash, tip.hash);
    node.sound().await;
}

fn rows(path: &Path) -> Vec<Value> {
    data::json(path).as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn mainnet_has_the_hash_of_bitcoin_core_at_every_listed_height_up_down_and_up_again() {
    let Some(dir) = data::bitcoin() else { return };
    let source = data::open(Network::Mainnet, [dir.join("chain-mainnet-0-4312")]);
    let expected = rows(&dir.join("expected/mainnet-0-4312-muhash-by-height.json"));
    up_down_and_up(source, &expected, RollbackMode::Follower).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn set_hash_chain_has_the_hash_of_bitcoin_core_after_every_block() {
    let Some(dir) = data::bitcoin() else { return };
    let source = data::open(Network::Regtest, [dir.join("regtest-core/core-feature_utxo_set_hash.blk.dat")]);
    let expected = data::json(&dir.join("regtest-core/core-feature_utxo_set_hash.expected.json"));
    let expected = expected["events"].as_array().unwrap();
    up_down_and_up(source, expected, RollbackMode::Node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dense_chain_has_the_hash_of_bitcoin_core_at_every_listed_height() {
    let Some(dir) = data::bitcoin() else { return };
    let files = data::Files::of(&data::read(&dir.join("regtest-dense-0-360/blocks.blk.dat.zst")));
    let expected = rows(&dir.join("regtest-dense-0-360/expected.json"));
    up_down_and_up(files.open(Network::Regtest), &expected, RollbackMode::Follower).await;
}

/// Blocks of Bitcoin Core's block test that break no rule of the UTXO set, but one of scripts: another's business. Everything
/// else that Bitcoin Core refuses is refused here, by its own check.
pub(crate) fn is_out_of_scope(submit: &str) -> bool {
    submit.starts_with("block-script-verify-flag-failed") || submit == "bad-blk-sigops"
}

/// Whether a block was refused for the reason Bitcoin Core gives.
fn same_reason(submit: &str, error: &ChainError) -> bool {
    let text = error.to_string();
    match submit {
        "bad-txns-inputs-missingorspent" => {
            text.contains("not found")
                || text.contains("not stored")
                || text.contains("spent")
                || text.contains("later transaction")
                || text.contains("has only")
                || text.contains("is not known")
                || text.contains("neither mined")
        }
        "bad-txns-premature-spend-of-coinbase" => text.contains("matur") || text.contains("coinbase"),
        "bad-txns-in-belowout" => text.contains("more than there is"),
        "bad-cb-amount" => text.contains("the subsidy and the fees"),
        "bad-txns-BIP30" => text.contains("already mined"),
        _ => false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn block_test_of_bitcoin_core_has_its_tip_and_hash_after_every_block() {
    let Some(dir) = data::bitcoin() else { return };
    for mode in [RollbackMode::Follower, RollbackMode::Node] {
        block_test(&dir, mode).await;
    }
}

async fn block_test(dir: &Path, mode: RollbackMode) {
    let bytes = data::read(&dir.join("regtest-core/core-feature_block.blk.dat.zst"));
    let all = data::Files::of(&bytes).in_order(Network::Regtest);
    let expected = data::json(&dir.join("regtest-core/core-feature_block.expected.json"));
    let files = data::Files::new();
    files.write(0, &[]);
    let source = files.open(Network::Regtest);
    let node = Node::new(mode);
    let follower = node.follow(source.clone());
    let (mut refused, mut out_of_scope, mut reorganisations) = (HashMap::new(), 0, 0);
    for ((number, raw), event) in (0..).zip(&all).zip(expected["events"].as_array().unwrap()) {
        files.write(number, &data::record(Network::Regtest, &raw.bytes));
        source.refresh(|_| std::ops::ControlFlow::Continue(())).unwrap();
        let submit = event["submit"].as_str().unwrap();
        let before = node.store.last_applied().await.unwrap();
        if is_out_of_scope(submit) {
            out_of_scope += 1;
            source.reject(&raw.hash()).await.unwrap();
        }
        follower.catch_up().await.unwrap_or_else(|error| panic!("block {number} ({submit}): {error}"));
        for rejected in follower.rejected() {
            refused.entry(rejected.hash).or_insert_with(|| (number, rejected.cause.clone()));
        }
        if submit.starts_with("bad-") && !is_out_of_scope(submit) {
            let (_, cause) =
                refused.get(&raw.hash()).unwrap_or_else(|| panic!("{number} ({submit}) was accepted"));
            assert!(same_reason(submit, cause), "block {number}: {submit}, but here {cause}");
        }
        assert_eq!(Row::of(&node, false).await, Row::expected(event), "after block {number} ({submit})");
        let now = node.store.last_applied().await.unwrap().unwrap();
        let header = source.header(&now.hash).await.unwrap().unwrap();
        reorganisations +=
            usize::from(before.is_some_and(|before| before.hash != now.hash && before.hash != header.parent));
    }
    // 40 invalid blocks in all: those that a submit was told of, and those found bad as part of a longer branch.
    assert_eq!((out_of_scope, refused.len()), (19, 21));
    assert_eq!(reorganisations, 12);
    assert_eq!(node.store.last_applied().await.unwrap().unwrap().height, Height(134));
    assert!(matches!(refused.values().next(), Some((_, ChainError::Apply(ApplyError::Tx { .. })))));
    node.sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn small_double_spend_reorganisation_ends_on_the_longer_branch() {
    let Some(dir) = data::bitcoin() else { return };
    let parts = ["blk_0_to_4", "blk_3A", "blk_4A", "blk_5A"]
        .map(|name| data::read(&dir.join(format!("reorg-small/{name}.dat.bz2"))));
    for mode in [RollbackMode::Follower, RollbackMode::Node] {
        let files = data::Files::of(&parts[0]);
        let source = files.open(Network::Mainnet);
        // The chain was made for a test that lets coinbases be spent in the next block.
        let policy = Policy { coinbase_maturity: 1, ..data::policy() };
        let options = ChainOptions { rollback: mode, ..ChainOptions::default() };
        let node = Node::with(options, policy);
        let follower = node.follow(source.clone());
        follower.reconcile().await.unwrap();
        follower.catch_up().await.unwrap();
        let old: BlockHash = node.store.last_applied().await.unwrap().unwrap().hash;
        for (number, part) in parts.iter().enumerate().skip(1) {
            files.write(number, part);
            source.refresh(|_| std::ops::ControlFlow::Continue(())).unwrap();
            follower.catch_up().await.unwrap();
        }
        let last = node.store.last_applied().await.unwrap().unwrap();
        assert_eq!(last.height, Height(5));
        assert_ne!(last.hash, old);

        // The same as if the old branch had never been there.
        let straight = Node::with(options, policy);
        straight.follow(source).catch_up().await.unwrap();
        let (went, direct) = (node.counted().await, straight.counted().await);
        assert_eq!((went.coins, went.amount, went.digest()), (direct.coins, direct.amount, direct.digest()));
        node.sound().await;
    }
}
