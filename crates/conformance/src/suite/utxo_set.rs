//! The UTXO set in figures. Every look compares what is kept with each write with what is counted anew.

use std::{
    ops::ControlFlow,
    sync::{Arc, Mutex},
};

use sapwood_ledger::{ApplyOptions, CreateRequest, Reassign, RollbackMode, StoreError, UtxoSet};
use sapwood_types::{BlockMark, BlockRules, Height, Output, Tx, TxId};

use super::{StoreFactory, Subject};
use crate::fixtures::*;

const BOTH: [RollbackMode; 2] = [RollbackMode::Node, RollbackMode::Follower];

/// Coins, transactions and amount.
fn figures(set: &UtxoSet) -> (u64, u64, u128) {
    (set.coins, set.transactions, set.amount)
}

/// The same coins, whatever the last block is.
#[track_caller]
fn assert_same(one: &UtxoSet, other: &UtxoSet, what: &str) {
    assert_eq!(UtxoSet { last: None, ..one.clone() }, UtxoSet { last: None, ..other.clone() }, "{what}");
}

async fn back(s: &Subject, mark: BlockMark, mode: RollbackMode) {
    s.roll_back(Some((mark.height, mark.hash)), mode).await.expect("roll back");
}

fn hex(text: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex");
    (0..text.len()).step_by(2).map(byte).collect()
}

/// An empty set has the hash that Bitcoin Core gives it.
pub async fn an_empty_set_has_a_hash(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let empty = s.utxo_set_now().await;
    assert_eq!((empty.last, figures(&empty)), (None, (0, 0, 0)));
    let digest = "dd5ad2a105c2d29495f577245c357409002329b9f4d6182c0af3dc2f462555c8";
    assert_eq!(empty.digest().as_deref(), Some(digest));
    s.sound().await;
}

/// The first blocks of the chain in Bitcoin Core's own test of the hash (`feature_utxo_set_hash.py`), and the hashes that Bitcoin
/// Core 31.1 prints after each. The coinbase of the first block is no coin: its source says that it cannot be spent.
pub async fn known_coins_have_the_hash_of_bitcoin_core(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let commitment = hex("6a24aa21a9ede2f61c3f71d1defd3fa999dfa36953755c690689799962b48bebd836974e8cf9");
    let minted = |txid: &str, script: &str, spendable: bool| {
        let txid: TxId = txid.parse().expect("an id");
        let coin = Output { spendable, ..Output::new(50 * 100_000_000, hex(script)) };
        let outputs = if spendable { vec![coin, Output::data(commitment.clone())] } else { vec![coin] };
        Tx { txid, outputs, ..coinbase("a label for nothing", 0) }
    };
    let first = minted(
        "4a5e1e4baab89f3a32518a88c31bc87f618f76673e2cc77ab2127b7afdeda33b",
        "4104678afdb0fe5548271967f1a67130b7105cd6a828e03909a67962e0ea1f61deb649f6bc3f4cef38c4f35504e51ec112de5c384df7ba0b8d578a4c702b6bf11d5fac",
        false,
    );
    let second = minted(
        "7bd27e7e876f23e61859224bb9904b743efc3beec3d22ea924987f00d9802448",
        "51202913b252fe537830f843bfdc5fa7d20ba48639a87c86ff837b92d083c55ad7c1",
        true,
    );
    let third = minted(
        "d83e30a1da876ab7a3cb952057c8141ccad43c36a7a44eaf36e0bb2dc676f89c",
        "76a9142b4569203694fc997e13f2c0a1383b9e16c77a0d88ac",
        true,
    );
    let mut last = s.start(0, &[&first]).await.block;
    for (coins, tx, digest) in [
        (0, None, "dd5ad2a105c2d29495f577245c357409002329b9f4d6182c0af3dc2f462555c8"),
        (1, Some(second), "37cd4bb145e1511b142d3ca2f0962d03d2e2d10128fe3dce6f8f6ef0b3398b80"),
        (2, Some(third), "f475e4900cb7c3222a53f1e3337807dcabdd41bcc416fea3dbcf426f0c471ac8"),
    ] {
        if let Some(tx) = tx {
            last = s.extend(&[&tx]).await.block;
        }
        let set = s.utxo_set_now().await;
        assert_eq!(
            (set.last, figures(&set)),
            (Some(last), (coins, coins, u128::from(coins) * 5_000_000_000))
        );
        assert_eq!(set.digest().as_deref(), Some(digest), "{coins} coins");
    }
    s.sound().await;
}

/// The same coins have the same hash in whatever order they came, and whatever was made and spent on the way.
pub async fn the_way_to_the_coins_does_not_matter(factory: &dyn StoreFactory) {
    let (a, b, c) = (coin("a", 2), coin("b", 1), coin("c", 1));
    let one = Subject::new(factory, small()).await;
    for tx in [&a, &b, &c] {
        one.add_mined(tx, 7).await;
    }
    let other = Subject::new(factory, small()).await;
    other.start(6, &[]).await;
    let detour = coin("detour", 1);
    other.extend(&[&c, &b, &detour, &a, &burn("end", &[(&detour, 0)])]).await;
    let set = one.utxo_set_now().await;
    assert_eq!(figures(&set), (4, 3, 1000 + 1001 + 1000 + 1000));
    assert_same(&set, &other.utxo_set_now().await, "the same coins");
    one.sound().await;
    other.sound().await;
}

/// Height, coinbase, owner, amount and place of a coin all count; locks, freezes and time do not.
pub async fn what_makes_a_coin_counts_and_nothing_else(factory: &dyn StoreFactory) {
    let plain = coin("plain", 1);
    let mut seen: Vec<UtxoSet> = Vec::new();
    for (tx, height) in [
        (plain.clone(), 5),
        (plain.clone(), 6),
        (Tx { coinbase: true, ..plain.clone() }, 5),
        (Tx { outputs: vec![Output::new(1_001, script("plain"))], ..plain.clone() }, 5),
        (Tx { outputs: vec![Output::new(1_000, script("other"))], ..plain.clone() }, 5),
        (Tx { outputs: vec![data_output(), plain.outputs[0].clone()], ..plain.clone() }, 5),
        (Tx { txid: txid("other"), ..plain.clone() }, 5),
    ] {
        let s = Subject::new(factory, small()).await;
        s.add_mined(&tx, height).await;
        let set = s.utxo_set_now().await;
        assert_eq!((set.coins, set.transactions), (1, 1));
        assert!(seen.iter().all(|earlier| earlier.hash != set.hash), "{tx:?} at {height}");
        seen.push(set);
        s.sound().await;
    }
    let s = Subject::new(factory, small()).await;
    let same = Tx { fee: None, version: 9, ..plain.clone() };
    let request = CreateRequest { created_at: 77, ..CreateRequest::mined(same, 31, Height(5)) };
    s.try_add(request, 9).await.expect("create");
    s.freeze(vec![op(&plain, 0)]).await.expect("freeze");
    s.set_locked(vec![plain.txid], true).await.expect("lock");
    assert_same(&s.utxo_set_now().await, &seen[0], "the same coin");
    s.sound().await;
}

/// What is not mined on the longest chain has no coins: waiting, lost, or in a block of a fork.
pub async fn only_mined_outputs_are_coins(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let (waiting, lost, forked) = (coin("waiting", 2), coin("lost", 2), coin("forked", 2));
    s.add(&waiting, 5).await;
    s.add_loser(&lost, 5).await;
    s.add(&forked, 5).await;
    s.try_mine(&forked, forked_in(5, 5), false, 5).await.expect("a fork");
    assert_eq!(figures(&s.utxo_set_now().await), (0, 0, 0));
    s.try_longest(&forked, true, 6).await.expect("on the longest chain");
    s.mine(&waiting, 6).await;
    let both = s.utxo_set_now().await;
    assert_eq!(figures(&both), (4, 2, 4002));
    s.try_longest(&forked, false, 7).await.expect("off the longest chain");
    s.unmine(&waiting, 6, 7).await;
    assert_eq!(figures(&s.utxo_set_now().await), (0, 0, 0));
    assert_eq!(s.utxo_set_now().await.hash, Some(Default::default()));
    s.sound().await;
}

/// An output that only an unmined transaction spends still is a coin; when that one is mined it is none, and when it is
/// unmined it is one again.
pub async fn spent_by_an_unmined_transaction_is_still_a_coin(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 2);
    s.add_mined(&parent, 5).await;
    let before = s.utxo_set_now().await;
    let tx = child("tx", &[(&parent, 1)], 1);
    s.add(&tx, 6).await;
    assert_same(&s.utxo_set_now().await, &before, "spent by an unmined one");
    s.mine(&tx, 6).await;
    assert_eq!(figures(&s.utxo_set_now().await), (2, 2, 2000));
    s.unmine(&tx, 6, 7).await;
    assert_same(&s.utxo_set_now().await, &before, "unmined again");
    s.delete(vec![tx.txid]).await.expect("delete");
    assert_same(&s.utxo_set_now().await, &before, "forgotten");
    s.sound().await;
}

/// Outputs that can never be spent are no coins, and a transaction without coins does not count.
pub async fn data_outputs_are_no_coins(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let mixed = Tx { outputs: vec![data_output(), Output::new(0, script("a"))], ..coin("mixed", 0) };
    let only_data = Tx { outputs: vec![data_output()], ..coin("data", 0) };
    s.start(5, &[&mixed, &only_data]).await;
    assert_eq!(figures(&s.utxo_set_now().await), (1, 1, 0));
    s.sound().await;
}

/// Two outputs of the block that overflowed (74638 of Bitcoin): their sum does not fit into 64 bits.
pub async fn amounts_beyond_64_bits_are_added_up(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let huge = Tx { outputs: vec![Output::new(u64::MAX, script("a")); 3], ..coin("huge", 0) };
    s.start(5, &[&huge]).await;
    assert_eq!(figures(&s.utxo_set_now().await), (3, 1, 3 * u128::from(u64::MAX)));
    s.extend(&[&burn("end", &[(&huge, 0)])]).await;
    assert_eq!(figures(&s.utxo_set_now().await), (2, 1, 2 * u128::from(u64::MAX)));
    s.sound().await;
}

/// A rollback brings back the set of the block it ends at, also across records of several pages and coinbases.
pub async fn a_rollback_restores_the_set(factory: &dyn StoreFactory) {
    for mode in BOTH {
        let s = Subject::new(factory, small()).await;
        let (wide, minted) = (coin("wide", 300), coinbase("minted", 130));
        let waiting = child("waiting", &[(&wide, 299)], 200);
        let mut marks = vec![s.start(10, &[&wide, &minted]).await.block];
        s.add(&waiting, 10).await;
        let mut sets = vec![s.utxo_set_now().await];
        for txs in [
            vec![child("one", &[(&wide, 0), (&wide, 128)], 140)],
            vec![waiting.clone(), child("two", &[(&waiting, 150)], 1)],
            vec![child("three", &[(&minted, 129), (&minted, 0)], 2)],
        ] {
            marks.push(s.extend(&txs.iter().collect::<Vec<_>>()).await.block);
            sets.push(s.utxo_set_now().await);
        }
        assert_eq!(figures(&sets[3]).0, 298 + 139 + 1 + 199 + 1 + 1 + 128 + 2 - 1 - 2 + 2 - 1);
        for at in [2, 0] {
            back(&s, marks[at], mode).await;
            assert_eq!(s.utxo_set_now().await, sets[at], "{mode:?}: back at block {at}");
        }
        s.sound().await;
    }
}

/// After a reorganisation the set is that of a store which only ever saw the winning branch.
pub async fn a_reorganisation_equals_the_straight_chain(factory: &dyn StoreFactory) {
    let root = coin("root", 200);
    let (a, b) = (child("a", &[(&root, 150)], 2), child("b", &[(&root, 150)], 3));
    let common = child("common", &[(&root, 1)], 1);
    let straight = Subject::new(factory, small()).await;
    straight.start(10, &[&root]).await;
    straight.extend(&[&b]).await;
    straight.extend(&[&common]).await;
    let expected = straight.utxo_set_now().await;
    for mode in BOTH {
        let s = Subject::new(factory, small()).await;
        let base = s.start(10, &[&root]).await.block;
        s.extend(&[&a, &common]).await;
        s.extend(&[&child("heir", &[(&a, 0)], 1)]).await;
        back(&s, base, mode).await;
        s.extend(&[&b]).await;
        s.extend(&[&common]).await;
        assert_same(&s.utxo_set_now().await, &expected, "the winning branch");
        s.sound().await;
    }
    straight.sound().await;
}

/// A record that is written over takes its coins along, and they come back with it.
pub async fn overwritten_coins_go_and_come_back(factory: &dyn StoreFactory) {
    for mode in BOTH {
        let s = Subject::new(factory, small()).await;
        let minted = coinbase("minted", 130);
        let base = s.start(10, &[&minted]).await.block;
        let before = s.utxo_set_now().await;
        let options = ApplyOptions {
            rules: BlockRules { allow_overwrite: true, ..BlockRules::default() },
            ..ApplyOptions::default()
        };
        for outputs in [130, 1, 300] {
            let block = s.next_block(&[&coinbase("minted", outputs)]).await;
            s.apply_block(Arc::new(block), options).await.expect("apply");
            let after = s.utxo_set_now().await;
            assert_eq!((after.coins, after.transactions), (u64::from(outputs), 1));
            assert_ne!(after.hash, before.hash, "made at another height");
        }
        back(&s, base, mode).await;
        assert_eq!(s.utxo_set_now().await, before, "{mode:?}");
        s.sound().await;
    }
}

/// Coins on pages that a write does not touch come and go with their record's block.
pub async fn every_page_follows_the_records_block(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let wide = coin("wide", 600);
    let tx = child("tx", &[(&wide, 300)], 1);
    s.add(&wide, 5).await;
    s.mine(&wide, 6).await;
    let at_6 = s.utxo_set_now().await;
    assert_eq!(figures(&at_6).0, 600);
    s.unmine(&wide, 6, 7).await;
    assert_eq!(figures(&s.utxo_set_now().await), (0, 0, 0));
    s.mine(&wide, 7).await;
    let at_7 = s.utxo_set_now().await;
    assert_eq!(figures(&at_7), figures(&at_6));
    assert_ne!(at_7.hash, at_6.hash, "made at another height");
    s.unmine(&wide, 7, 8).await;
    // One page changes with the block, the others do not.
    s.add(&tx, 8).await;
    s.mine(&wide, 6).await;
    assert_same(&s.utxo_set_now().await, &at_6, "spent by an unmined one");
    s.mine(&tx, 8).await;
    assert_eq!(figures(&s.utxo_set_now().await).0, 600);
    s.try_longest(&wide, false, 9).await.expect("off the longest chain");
    assert_eq!(figures(&s.utxo_set_now().await).0, 1);
    // A block mines what was waiting, with all its pages.
    let block = s.start(20, &[&wide]).await.block;
    assert_eq!(figures(&s.utxo_set_now().await).0, 600);
    assert_eq!(s.utxo_set_now().await.last, Some(block));
    s.sound().await;
}

/// Pruning deletes what has no coins left, so it changes nothing.
pub async fn pruning_does_not_change_it(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let (dead, alive) = (coin("dead", 200), coin("alive", 2));
    s.start(10, &[&dead, &alive]).await;
    let all: Vec<_> = (0..200).map(|vout| (&dead, vout)).collect();
    let end = burn("end", &all);
    s.extend(&[&end]).await;
    s.add_loser(&child("loser", &[(&alive, 0)], 1), 11).await;
    s.extend_to(30).await;
    let before = s.utxo_set_now().await;
    assert_eq!(figures(&before), (2, 1, 2001));
    assert_eq!(s.prune(30).await.len(), 3);
    assert_eq!(s.utxo_set_now().await, before);
    s.sound().await;
}

/// A reassigned output is another coin: its script is another one.
pub async fn a_reassigned_coin_is_another_coin(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let tx = coin("tx", 200);
    s.add_mined(&tx, 5).await;
    let before = s.utxo_set_now().await;
    s.freeze(vec![op(&tx, 150)]).await.expect("freeze");
    assert_same(&s.utxo_set_now().await, &before, "frozen");
    for owner in ["another", "tx"] {
        let expected = s.outputs(vec![op(&tx, 150)]).await.expect("outputs").remove(0).expect("there");
        let expected = expected.output.utxo_hash(op(&tx, 150));
        let request = Reassign { outpoint: op(&tx, 150), expected, script: script(owner), credential: None };
        s.reassign(vec![request], Height(6)).await.expect("reassign");
        let now = s.utxo_set_now().await;
        assert_eq!(figures(&now), figures(&before));
        assert_eq!(now.hash == before.hash, owner == "tx", "owned by {owner}");
        s.freeze(vec![op(&tx, 150)]).await.expect("freeze");
    }
    s.sound().await;
}

/// Progress goes up to the number of records; whoever reports may end the count, and nothing is harmed.
pub async fn counting_shows_progress_and_can_be_stopped(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    for number in 0..20 {
        s.add_mined(&coin(&format!("tx {number}"), 1), 5).await;
    }
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let note = move |done, total| {
        noted.lock().expect("no panic").push((done, total));
        ControlFlow::Continue(())
    };
    let counted = s.utxo_set(true, Arc::new(note)).await.expect("counting");
    assert_eq!(counted.coins, 20);
    let seen = seen.lock().expect("no panic").clone();
    assert!(seen.is_sorted() && seen.last() == Some(&(20, 20)), "{seen:?}");
    let stopped = s.utxo_set(true, Arc::new(|_, _| ControlFlow::Break(()))).await;
    assert!(matches!(stopped, Err(StoreError::Stopped { .. })), "{stopped:?}");
    assert_eq!(s.utxo_set_now().await, counted);
    s.sound().await;
}
