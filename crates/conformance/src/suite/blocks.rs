//! Applying blocks.

use std::sync::Arc;

use sapwood_ledger::{Applied, ApplyOptions, Counts, StoreError};
use sapwood_types::{BlockMark, BlockRules, Height, PrevOutput, Slot, Tx, Undo};

use super::{StoreFactory, Subject};
use crate::fixtures::*;

/// An empty store has no block, and its first block may have any height.
pub async fn the_first_block_may_have_any_height(factory: &dyn StoreFactory) {
    for height in [0, 1, 800_000] {
        let s = Subject::new(factory, small()).await;
        assert_eq!(s.last_applied().await, Ok(None));
        assert_eq!(s.rollback_floor().await, Ok(None));
        let applied = s.start(height, &[&coin("tx", 1)]).await;
        assert_eq!((applied.block.id, applied.block.height), (1, Height(height)), "numbers count from 1");
        assert_eq!(s.last_applied().await, Ok(Some(applied.block)));
        assert_eq!(s.rollback_floor().await, Ok(Some(Height(height))));
        s.sound().await;
    }
}

/// A block brings its transactions as mined, spends their inputs, and says what it did.
pub async fn a_block_brings_mined_transactions(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let (root, minted) = (coin("root", 2), coinbase("minted", 1));
    let first = s.start(10, &[&minted, &root]).await;
    assert_eq!(first, Applied { block: first.block, created: 2, mined: 0, conflicting: vec![] });
    let tx = child("tx", &[(&root, 1)], 1);
    let block = s.next_block(&[&tx]).await;
    let second = s.try_apply(&block).await.expect("apply");
    let mark = BlockMark { id: 2, height: Height(11), hash: block.hash };
    assert_eq!(second, Applied { block: mark, created: 1, mined: 0, conflicting: vec![] });
    assert_eq!(s.record(&root).await.slots, [Slot::Unspent, spent(&tx, 0, Some(11))]);
    let head = s.head(&tx).await;
    assert_eq!(head.blocks.as_slice(), [mined_in(2, 11)]);
    assert_eq!((head.created_height, head.first_unmined, head.locked), (Height(11), None, false));
    assert_eq!(head.created_at, block.time * 1_000, "the time of the block, in milliseconds");
    assert_eq!(s.head(&minted).await.spending_height, Some(Height(13)));
    assert_eq!(
        s.counts().await,
        Ok(Counts { records: 3, unspent: 3, unmined: 0, spent: 1, ..Counts::default() })
    );
    s.sound().await;
}

/// Transactions that were waiting are mined by the block: unlocked, stamped in their parents, and counted apart.
pub async fn a_block_mines_what_was_waiting(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let root = coin("root", 2);
    s.start(1, &[&root]).await;
    let tx = child("tx", &[(&root, 0)], 1);
    s.add(&tx, 1).await;
    s.set_locked(vec![tx.txid], true).await.expect("lock");
    let fresh = child("fresh", &[(&tx, 0)], 1);
    let applied = s.extend(&[&tx, &fresh]).await;
    assert_eq!((applied.created, applied.mined), (1, 1));
    let head = s.head(&tx).await;
    assert!(!head.locked, "mined, so unlocked");
    assert_eq!(head.blocks.as_slice(), [mined_in(2, 2)]);
    assert_eq!((head.first_unmined, head.created_height, head.created_at), (Some(Height(1)), Height(1), 0));
    assert_eq!(s.slot(&root, 0).await, spent(&tx, 0, Some(2)));
    assert_eq!(s.slot(&tx, 0).await, spent(&fresh, 0, Some(2)));
    assert_eq!(s.old_unmined_all(Height::MAX).await, []);
    s.sound().await;
}

/// A waiting transaction that had let go of its inputs, or had lost, holds them again once a block mines it.
pub async fn a_block_makes_its_transactions_hold_their_inputs(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let root = coin("root", 3);
    s.start(1, &[&root]).await;
    let (let_go, lost, fork) =
        (child("let go", &[(&root, 0)], 1), child("lost", &[(&root, 1)], 1), child("fork", &[(&root, 2)], 1));
    s.add(&let_go, 1).await;
    s.give_back(op(&root, 0), by(&let_go, 0)).await.expect("unspend");
    s.add_loser(&lost, 1).await;
    s.add(&fork, 1).await;
    s.try_mine(&fork, forked_in(70, 2), false, 2).await.expect("a fork");
    let applied = s.extend(&[&lost, &let_go, &fork]).await;
    assert_eq!((applied.created, applied.mined, applied.conflicting), (0, 3, vec![]));
    let record = s.record(&root).await;
    assert_eq!(record.slots, [&let_go, &lost, &fork].map(|tx| spent(tx, 0, Some(2))));
    assert_eq!(record.head.conflicting_children, [], "who won is listed no longer");
    assert_eq!(s.head(&lost).await.conflicting_since, None);
    assert_eq!(s.head(&fork).await.blocks.len(), 2, "the fork's block stays noted");
    assert_eq!(s.settled(&root).await, Some(2));
    s.sound().await;
}

/// An output made and spent in one block is never unspent: no coin, no address, no count. A phantom output was left
/// elsewhere, because a missing input passed for "nothing to do".
pub async fn an_output_made_and_spent_in_one_block_is_never_seen(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let root = coin("root", 1);
    let middle = child("middle", &[(&root, 0)], 2);
    let last = burn("last", &[(&middle, 1), (&middle, 0)]);
    let applied = s.start(5, &[&root, &middle, &last]).await;
    assert_eq!(applied.created, 3);
    assert_eq!(s.slot(&root, 0).await, spent(&middle, 0, Some(5)));
    assert_eq!(s.record(&middle).await.slots, [spent(&last, 1, Some(5)), spent(&last, 0, Some(5))]);
    assert_eq!(
        s.counts().await,
        Ok(Counts { records: 3, unspent: 0, unmined: 0, spent: 3, ..Counts::default() })
    );
    for owner in ["root", "middle"] {
        let query = sapwood_ledger::AddressQuery {
            kind: sapwood_ledger::AddressKind::Address,
            hash: address(owner),
            order: sapwood_ledger::Order::Ascending,
            after: None,
            limit: 10,
        };
        assert_eq!(s.by_address(query).await.map(|page| page.items), Ok(vec![]), "{owner}");
    }
    s.extend_to(11).await;
    assert_eq!(s.prune(11).await, ids(&[&root, &middle, &last]));
    s.sound().await;
}

/// Unmined rivals of a block's transactions lose, with their descendants, and the answer names them.
pub async fn unmined_rivals_of_a_block_lose(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let root = coin("root", 3);
    s.start(1, &[&root]).await;
    let rival = child("rival", &[(&root, 0), (&root, 1)], 1);
    let heir = child("heir", &[(&rival, 0), (&root, 2)], 1);
    s.add(&rival, 1).await;
    s.add(&heir, 1).await;
    let winner = child("winner", &[(&root, 0)], 1);
    let applied = s.extend(&[&winner]).await;
    assert_eq!(applied.conflicting, [rival.txid, heir.txid]);
    let record = s.record(&root).await;
    assert_eq!(record.slots, [spent(&winner, 0, Some(2)), Slot::Unspent, Slot::Unspent]);
    let mut listed = record.head.conflicting_children;
    listed.sort();
    assert_eq!(listed, ids(&[&rival, &heir]));
    for tx in [&rival, &heir] {
        assert_eq!(s.head(tx).await.conflicting_since, Some(Height(2)));
        assert_eq!(s.settled(tx).await, Some(2));
    }
    assert_eq!(s.slot(&rival, 0).await, Slot::Unspent);
    s.sound().await;
}

/// In one block a transaction may win against a waiting rival and another spend what that rival gave back.
pub async fn what_a_rival_gave_back_can_be_spent_in_the_same_block(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let root = coin("root", 2);
    s.start(1, &[&root]).await;
    let rival = child("rival", &[(&root, 0), (&root, 1)], 1);
    s.add(&rival, 1).await;
    let (a, b) = (child("a", &[(&root, 0)], 1), child("b", &[(&root, 1)], 1));
    let applied = s.extend(&[&a, &b]).await;
    assert_eq!(applied.conflicting, [rival.txid], "it lost once");
    assert_eq!(s.record(&root).await.slots, [spent(&a, 0, Some(2)), spent(&b, 0, Some(2))]);
    s.sound().await;
}

/// What is needed to take a block back is written with it: which block, which before it, what it brought and what it mined.
pub async fn the_undo_record_says_what_the_block_did(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let root = coin("root", 2);
    let first = s.start(7, &[&root]).await.block;
    let waiting = child("waiting", &[(&root, 0)], 1);
    s.add(&waiting, 7).await;
    let (a, b) = (child("a", &[(&root, 1)], 1), child("b", &[(&waiting, 0)], 1));
    let second = s.extend(&[&a, &waiting, &b]).await.block;
    let undo =
        Undo { block: first, previous: None, created: vec![root.txid], mined: vec![], replaced: vec![] };
    assert_eq!(s.block_at(Height(7)).await, Ok(Some(undo)));
    let undo = Undo {
        block: second,
        previous: Some(first),
        created: vec![a.txid, b.txid],
        mined: vec![waiting.txid],
        replaced: vec![],
    };
    assert_eq!(s.block_at(Height(8)).await, Ok(Some(undo)));
    assert_eq!(s.block_at(Height(9)).await, Ok(None));
    assert_eq!(s.block_at(Height(6)).await, Ok(None));
    s.sound().await;
}

/// Block numbers go up and are never used twice; the caller may give a greater one, and counting goes on from there.
pub async fn block_numbers_are_never_used_twice(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let first = s.start(1, &[]).await.block;
    let second = s.extend(&[]).await.block;
    assert_eq!((first.id, second.id), (1, 2));
    let tx = coin("tx", 1);
    let block = Arc::new(s.next_block(&[&tx]).await);
    let options = ApplyOptions { block_id: Some(40), ..ApplyOptions::default() };
    let given = s.apply_block(block, options).await.expect("apply").block;
    assert_eq!(given.id, 40);
    assert_eq!(s.head(&tx).await.blocks.as_slice(), [mined_in(40, 3)]);
    assert_eq!(s.extend(&[]).await.block.id, 41);
    s.roll_back(Some((second.height, second.hash)), sapwood_ledger::RollbackMode::Node)
        .await
        .expect("roll back");
    assert_eq!(s.extend(&[]).await.block.id, 42, "not 3, and not 40 again");
    s.sound().await;
}

/// A record whose id comes again, as Bitcoin had before BIP 34: allowed where the caller says so, or where nothing of the
/// old one is left. The old record goes into the undo record.
pub async fn a_transaction_may_be_written_over_where_that_is_allowed(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let (live, dead) = (coinbase("live", 2), coin("dead", 1));
    s.start(1, &[&live, &dead]).await;
    let spender = child("spender", &[(&dead, 0)], 1);
    s.extend(&[&spender]).await;
    let old = s.records(&[&live, &dead]).await;
    let block = Arc::new(s.next_block(&[&live, &dead]).await);
    let options = ApplyOptions {
        rules: BlockRules { allow_overwrite: true, ..BlockRules::default() },
        ..ApplyOptions::default()
    };
    let applied = s.apply_block(block, options).await.expect("apply");
    assert_eq!((applied.created, applied.mined), (2, 0));
    for tx in [&live, &dead] {
        let record = s.record(tx).await;
        assert_eq!(record.head.blocks.as_slice(), [mined_in(3, 3)], "as if it had not been there");
        assert_eq!(record.head.created_height, Height(3));
        assert!(record.slots.iter().all(Slot::is_unspent));
    }
    assert_eq!(s.head(&live).await.spending_height, Some(Height(6)));
    let undo = s.block_at(Height(3)).await.expect("undo").expect("an undo record");
    assert_eq!(undo.replaced.into_iter().map(Some).collect::<Vec<_>>(), old);
    s.sound().await;
}

/// A record of which nothing is left may be written over without being asked.
pub async fn a_fully_spent_transaction_may_be_written_over(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let dead = coin("dead", 1);
    s.start(1, &[&dead]).await;
    s.extend(&[&child("spender", &[(&dead, 0)], 1)]).await;
    let applied = s.extend(&[&dead]).await;
    assert_eq!((applied.created, applied.mined), (1, 0));
    assert_eq!(s.record(&dead).await.slots, [Slot::Unspent]);
    s.sound().await;
}

/// The floor follows the last block at the distance of the window, and never goes down.
pub async fn the_floor_follows_at_the_distance_of_the_window(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    s.start(100, &[]).await;
    for (height, floor) in [(104, 100), (105, 100), (106, 101), (112, 107)] {
        s.extend_to(height).await;
        assert_eq!(s.rollback_floor().await, Ok(Some(Height(floor))), "at {height}");
    }
    let undo = s.block_at(Height(110)).await.expect("undo").expect("inside the window");
    s.roll_back(Some((Height(110), undo.block.hash)), sapwood_ledger::RollbackMode::Node)
        .await
        .expect("roll back");
    assert_eq!(s.rollback_floor().await, Ok(Some(Height(107))), "a rollback does not lower it");
    s.sound().await;
}

/// Undo records are dropped below a height, but never one that a rollback could need.
pub async fn undo_records_are_dropped_only_below_the_floor(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    s.start(100, &[]).await;
    s.extend_to(105).await;
    let drop = async |from: Option<u32>, below, limit| {
        let undo = s.prune_undo(from.map(Height), below, limit).await.expect("prune undo");
        (undo.dropped, undo.next.map(|height| height.0))
    };
    assert_eq!(
        drop(None, Height::MAX, 9).await,
        (0, None),
        "the first block itself can still be rolled back"
    );
    s.extend_to(108).await;
    assert_eq!(s.rollback_floor().await, Ok(Some(Height(103))));
    let there = async || {
        let mut heights = Vec::new();
        for height in 99..110 {
            if s.block_at(Height(height)).await.expect("undo").is_some() {
                heights.push(height);
            }
        }
        heights
    };
    assert_eq!(there().await, (100..=108).collect::<Vec<_>>(), "nothing goes by itself");
    assert_eq!(drop(None, Height(102), 2).await, (2, None), "exactly as many as there are");
    assert_eq!(there().await, (102..=108).collect::<Vec<_>>());
    assert_eq!(drop(None, Height::MAX, 9).await, (2, None), "those at or below the floor, no more");
    assert_eq!(there().await, (104..=108).collect::<Vec<_>>());
    assert_eq!(drop(None, Height::MAX, 9).await, (0, None));
    // In steps: each call is bounded and says where to go on.
    s.extend_to(112).await;
    let none = s.prune_undo(None, Height::MAX, 0).await;
    assert!(matches!(none, Err(StoreError::BadOption { .. })), "{none:?}");
    assert_eq!(drop(None, Height::MAX, 3).await, (3, Some(107)));
    assert_eq!(there().await, vec![107, 108, 109], "up to 109 is looked at here");
    assert_eq!(drop(Some(108), Height::MAX, 3).await, (0, None), "what lies before is not looked at");
    assert_eq!(drop(Some(107), Height::MAX, 3).await, (1, None), "the floor is at 107");
    assert_eq!(there().await, vec![108, 109]);
    s.sound().await;
}

/// A block of a thousand transactions that spend from each other and from the past.
pub async fn a_block_of_a_thousand(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let root = coin("root", 1_000);
    s.start(1, &[&root]).await;
    let mut txs: Vec<Tx> = Vec::new();
    for number in 0..1_000u32 {
        let mut of = vec![(&root, number)];
        if let Some(previous) = txs.last() {
            of.push((previous, 0));
        }
        let tx = child(&format!("tx {number}"), &of, 2);
        txs.push(tx);
    }
    let applied = s.extend(&txs.iter().collect::<Vec<_>>()).await;
    assert_eq!((applied.created, applied.mined), (1_000, 0));
    assert_eq!(s.settled(&root).await, Some(2));
    assert_eq!(
        s.counts().await,
        Ok(Counts { records: 1_001, unspent: 1_001, unmined: 0, spent: 1_999, ..Counts::default() })
    );
    assert_eq!(s.record(&txs[500]).await.slots, [spent(&txs[501], 1, Some(2)), Slot::Unspent]);
    s.sound().await;
}

/// Where amounts are checked, a transaction's record keeps what it paid and what each of its inputs was worth, also when its parents are
/// pruned. What its source said itself stays.
pub async fn m17_fee_and_input_values_are_kept(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let (parent, wide) = (coin("parent", 2), coin("wide", 200));
    s.start(1, &[&parent, &wide]).await;
    let checked = ApplyOptions {
        rules: BlockRules { subsidy: Some(1_000_000), ..BlockRules::default() },
        ..ApplyOptions::default()
    };
    let worth = |tx: &Tx, vout: usize| tx.outputs[vout].value;
    let spends = worth(&parent, 0) + worth(&wide, 150);
    let mut tx = child("tx", &[(&parent, 0), (&wide, 150)], 2);
    (tx.fee, tx.outputs[0].value, tx.outputs[1].value) = (None, spends - 7, 0);
    let mut told = child("told", &[(&parent, 1), (&tx, 0)], 1);
    let given = PrevOutput { value: 3, script: Some(script("given")) };
    (told.fee, told.inputs[0].previous) = (Some(12), Some(given.clone()));
    let mut minted = coinbase("minted", 1);
    (minted.fee, minted.outputs[0].value) = (None, 5);
    let mut unchecked = child("unchecked", &[(&wide, 0)], 1);
    unchecked.fee = None;
    let block = s.next_block(&[&minted, &tx, &told]).await;
    s.apply_block(std::sync::Arc::new(block), checked).await.expect("apply");
    s.extend(&[&unchecked]).await;
    let value = |value| Some(PrevOutput { value, script: None });
    let body = async |tx: &Tx| {
        let body = s.record(tx).await.body;
        (body.fee, body.inputs.into_iter().map(|input| input.previous).collect::<Vec<_>>())
    };
    let expected = (Some(7), vec![value(worth(&parent, 0)), value(worth(&wide, 150))]);
    assert_eq!(body(&tx).await, expected);
    let filled = s.with_inputs(s.record(&tx).await).await.expect("inputs");
    let known: Vec<_> = filled.body.inputs.into_iter().map(|input| input.previous).collect();
    let whole = |tx: &Tx, vout: usize| {
        Some(PrevOutput { value: worth(tx, vout), script: Some(tx.outputs[vout].script.clone()) })
    };
    assert_eq!(known, [whole(&parent, 0), whole(&wide, 150)], "the parents are still there");
    assert_eq!(body(&told).await, (Some(12), vec![Some(given), value(spends - 7)]));
    assert_eq!(body(&minted).await, (None, vec![]));
    assert_eq!(body(&unchecked).await, (None, vec![None]), "nobody said what may be minted");
    s.extend_to(12).await;
    assert!(s.prune(12).await.contains(&parent.txid));
    assert_eq!(body(&tx).await, expected, "its parent is gone");
    s.sound().await;
}

/// A block that is rolled back and applied again leaves what it left the first time, fees included.
pub async fn m17_fees_survive_a_rollback(factory: &dyn StoreFactory) {
    for mode in [sapwood_ledger::RollbackMode::Node, sapwood_ledger::RollbackMode::Follower] {
        let s = Subject::new(factory, small()).await;
        let parent = coin("parent", 2);
        let first = s.start(1, &[&parent]).await.block;
        let mut tx = child("tx", &[(&parent, 1)], 1);
        (tx.fee, tx.outputs[0].value) = (None, 0);
        let checked = ApplyOptions {
            rules: BlockRules { subsidy: Some(0), ..BlockRules::default() },
            ..ApplyOptions::default()
        };
        let block = std::sync::Arc::new(s.next_block(&[&tx]).await);
        s.apply_block(block.clone(), checked).await.expect("apply");
        let paid = s.record(&tx).await.body;
        assert_eq!(paid.fee, Some(parent.outputs[1].value));
        s.roll_back(Some((first.height, first.hash)), mode).await.expect("roll back");
        s.apply_block(block, checked).await.expect("apply");
        assert_eq!(s.record(&tx).await.body, paid, "{mode:?}");
        s.sound().await;
    }
}
