//! Blocks in a row. A store may work on one while it writes the one before; nothing of that may be seen.

use std::sync::Arc;

use sapwood_ledger::{AppliedBlocks, ApplyError, ApplyOptions, InputRefusal, error::TxProblem};
use sapwood_rules::SpendRefusal;
use sapwood_types::{Block, Height, Tx};

use super::{StoreFactory, Subject, refused_tx};
use crate::fixtures::*;

/// A block for each list of transactions, each on the one before, the first on the last applied one.
async fn row(s: &Subject, lists: &[&[&Tx]]) -> Vec<Arc<Block>> {
    let mut blocks: Vec<Arc<Block>> = Vec::new();
    for txs in lists {
        let block = match blocks.last() {
            None => s.next_block(txs).await,
            Some(before) => s.block(before.height.0 + 1, before.hash, txs),
        };
        blocks.push(Arc::new(block));
    }
    blocks
}

async fn apply(s: &Subject, blocks: &[Arc<Block>]) -> AppliedBlocks {
    let blocks = blocks.iter().map(|block| (Arc::clone(block), ApplyOptions::default())).collect();
    s.apply_blocks(blocks).await
}

/// Each block builds on the one before in another way: on an output it made, on a page that is not the first, on a record that is all
/// spent but for one output, on a transaction that waited, against one that waits.
pub async fn blocks_in_a_row_do_what_they_do_one_by_one(factory: &dyn StoreFactory) {
    let root = coin("root", 6);
    let wide = child("wide", &[(&root, 0)], 300);
    let waiting = child("waiting", &[(&root, 1)], 1);
    let loser = child("loser", &[(&root, 2)], 1);
    let first = [child("a", &[(&root, 3)], 2), child("b", &[(&wide, 200), (&wide, 1)], 2)];
    let second = [child("c", &[(&first[0], 0), (&first[1], 0)], 1), child("d", &[(&wide, 201)], 1)];
    let third = [burn("e", &[(&second[0], 0), (&first[0], 1)]), child("f", &[(&root, 2)], 1)];
    let lists: [&[&Tx]; 5] = [
        &[&wide],
        &[&first[0], &first[1], &waiting],
        &[&second[0], &second[1], &child("g", &[(&waiting, 0)], 1)],
        &[&third[0], &third[1]],
        &[],
    ];
    let prepared = async || {
        let s = Subject::new(factory, small()).await;
        s.start(1, &[&root]).await;
        s.add(&waiting, 1).await;
        s.add(&loser, 1).await;
        s
    };
    let (together, single) = (prepared().await, prepared().await);
    let blocks = row(&together, &lists).await;
    let done = apply(&together, &blocks).await;
    let mut expected = AppliedBlocks::default();
    for block in &blocks {
        expected.applied.push(single.try_apply(block).await.expect("a good block"));
    }
    assert_eq!(done, expected);
    assert_eq!(done.applied[3].conflicting, [loser.txid], "who waited for the same output lost");
    assert_eq!(together.digest().await, single.digest().await);
    assert_eq!(together.last_applied().await, single.last_applied().await);
    assert_eq!(together.rollback_floor().await, single.rollback_floor().await);
    // And it can be taken back like any other.
    let back_to = Some((blocks[0].height, blocks[0].hash));
    for s in [&together, &single] {
        s.roll_back(back_to, sapwood_ledger::RollbackMode::Node).await.expect("roll back");
    }
    assert_eq!(together.digest().await, single.digest().await);
    together.sound().await;
    single.sound().await;
}

/// What comes before a bad block is applied, the bad one and what comes after it is not, and the error is that of the bad one.
pub async fn a_row_ends_before_the_first_bad_block(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let root = coin("root", 2);
    s.start(1, &[&root]).await;
    let (good, after) = (child("good", &[(&root, 0)], 1), coin("after", 1));
    let bad = child("bad", &[(&root, 0)], 1);
    let blocks = row(&s, &[&[&good], &[&bad], &[&after]]).await;
    let done = apply(&s, &blocks).await;
    let refusal = SpendRefusal::Spent { by: by(&good, 0), mined_at: Some(Height(2)) };
    let input = InputRefusal { vin: 0, outpoint: op(&root, 0), refusal };
    assert_eq!(done.refused, Some(refused_tx(&blocks[1], &bad, TxProblem::Input(input))));
    assert_eq!(done.applied.len(), 1);
    assert_eq!(s.last_applied().await.expect("last").map(|last| last.hash), Some(blocks[0].hash));
    assert_eq!(s.slot(&root, 0).await, spent(&good, 0, Some(2)));
    assert!(!s.has(&bad).await && !s.has(&after).await);
    assert_eq!(s.block_at(blocks[1].height).await, Ok(None));
    s.extend(&[&child("next", &[(&good, 0)], 1)]).await;
    s.sound().await;
}

/// What the block before has spent is spent, on whichever page it lies, and whether or not anything is left of its record.
pub async fn a_row_sees_what_the_block_before_spent(factory: &dyn StoreFactory) {
    let (all_spent, wide) = (coin("all spent", 1), coin("wide", 200));
    for (parent, vout) in [(&all_spent, 0), (&wide, 150)] {
        let s = Subject::new(factory, small()).await;
        s.start(1, &[&all_spent, &wide]).await;
        let (first, again) = (child("first", &[(parent, vout)], 1), child("again", &[(parent, vout)], 1));
        let blocks = row(&s, &[&[&first], &[&again]]).await;
        let done = apply(&s, &blocks).await;
        let refusal = SpendRefusal::Spent { by: by(&first, 0), mined_at: Some(Height(2)) };
        let input = InputRefusal { vin: 0, outpoint: op(parent, vout), refusal };
        assert_eq!(done.refused, Some(refused_tx(&blocks[1], &again, TxProblem::Input(input))));
        s.sound().await;
    }
}

/// The first block of a row has to come next, like any other; and a row of none changes nothing.
pub async fn a_row_begins_where_the_chain_ends(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    s.start(1, &[&coin("root", 1)]).await;
    let before = s.digest().await;
    assert_eq!(apply(&s, &[]).await, AppliedBlocks::default());
    let blocks = row(&s, &[&[&coin("two", 1)], &[&coin("three", 1)]]).await;
    let done = apply(&s, &blocks[1..]).await;
    let (hash, height) = (blocks[1].hash, blocks[1].height);
    assert_eq!(done.refused, Some(ApplyError::NotNext { hash, height, expected: Height(2) }));
    assert_eq!((done.applied, s.digest().await), (vec![], before));
    s.sound().await;
}

/// Blocks in a row that spend from the same further page, and from further pages the row itself made: nothing is lost, whichever of
/// them is being written when the next is worked on.
pub async fn blocks_in_a_row_share_a_page(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let wide = coin("wide", 300);
    s.start(1, &[&wide]).await;
    let new = child("new", &[(&wide, 0)], 300);
    let spenders: Vec<Tx> = (0..5)
        .map(|number| {
            let vout = 128 + number;
            child(&format!("spender {number}"), &[(&wide, vout), (&new, vout), (&wide, 255 + number)], 1)
        })
        .collect();
    let mut lists: Vec<Vec<&Tx>> = vec![vec![&new, &spenders[0]]];
    lists.extend(spenders[1..].iter().map(|tx| vec![tx]));
    let lists: Vec<&[&Tx]> = lists.iter().map(Vec::as_slice).collect();
    let blocks = row(&s, &lists).await;
    let done = apply(&s, &blocks).await;
    assert_eq!((done.applied.len(), done.refused), (5, None));
    for (number, tx) in (0..).zip(&spenders) {
        let at = Some(2 + number);
        assert_eq!(s.slot(&wide, 128 + number).await, spent(tx, 0, at), "block {number}");
        assert_eq!(s.slot(&new, 128 + number).await, spent(tx, 1, at), "block {number}");
        assert_eq!(s.slot(&wide, 255 + number).await, spent(tx, 2, at), "block {number}");
    }
    assert_eq!(s.counts().await.expect("counts").spent, 16);
    // Back into the midst of the row.
    let target = Some((blocks[1].height, blocks[1].hash));
    s.roll_back(target, sapwood_ledger::RollbackMode::Follower).await.expect("roll back");
    for (number, tx) in (0..).zip(&spenders) {
        let expected = if number < 2 { spent(tx, 0, Some(2 + number)) } else { sapwood_types::Slot::Unspent };
        assert_eq!(s.slot(&wide, 128 + number).await, expected, "block {number}");
    }
    s.sound().await;
}

/// A block is refused after it has spent from the pages the block before it spent from: those are as the block before left them, and the
/// right block goes on from there.
pub async fn a_refused_block_leaves_the_pages_of_the_one_before(factory: &dyn StoreFactory) {
    let prepared = async || {
        let s = Subject::new(factory, small()).await;
        s.start(1, &[&coin("wide", 300)]).await;
        s
    };
    let (s, single) = (prepared().await, prepared().await);
    let wide = coin("wide", 300);
    let good = child("good", &[(&wide, 1), (&wide, 130)], 200);
    let bad = child("bad", &[(&wide, 2), (&wide, 131), (&good, 150), (&wide, 130)], 1);
    let never = child("never", &[(&wide, 132)], 1);
    let blocks = row(&s, &[&[&good], &[&bad], &[&never]]).await;
    let done = apply(&s, &blocks).await;
    assert_eq!(done.applied.len(), 1);
    let refusal = SpendRefusal::Spent { by: by(&good, 1), mined_at: Some(Height(2)) };
    let input = InputRefusal { vin: 3, outpoint: op(&wide, 130), refusal };
    assert_eq!(done.refused, Some(refused_tx(&blocks[1], &bad, TxProblem::Input(input))));
    single.try_apply(&blocks[0]).await.expect("a good block");
    assert_eq!(s.digest().await, single.digest().await);
    assert_eq!(s.counts().await, single.counts().await);
    assert_eq!(s.rolling_utxo_set().await, single.rolling_utxo_set().await);
    let right = child("right", &[(&wide, 2), (&wide, 131), (&good, 150)], 1);
    let after = child("after", &[(&wide, 132)], 1);
    let blocks = row(&s, &[&[&right], &[&after]]).await;
    assert_eq!(apply(&s, &blocks).await.refused, None);
    for block in &blocks {
        single.try_apply(block).await.expect("a good block");
    }
    assert_eq!(s.digest().await, single.digest().await);
    s.sound().await;
    single.sound().await;
}

/// Nothing of a branch that was rolled back is left where the next blocks look.
pub async fn a_row_after_a_rollback_sees_what_was_rolled_back(factory: &dyn StoreFactory) {
    for mode in [sapwood_ledger::RollbackMode::Node, sapwood_ledger::RollbackMode::Follower] {
        let s = Subject::new(factory, small()).await;
        let (plain, wide) = (coin("plain", 3), coin("wide", 300));
        let base = s.start(1, &[&plain, &wide]).await.block;
        let old = child("old", &[(&plain, 0), (&wide, 200)], 200);
        let heir = child("heir", &[(&old, 150), (&old, 0)], 1);
        let blocks = row(&s, &[&[&old], &[&heir]]).await;
        assert_eq!(apply(&s, &blocks).await.refused, None);
        s.roll_back(Some((base.height, base.hash)), mode).await.expect("roll back");
        let new = child("new", &[(&plain, 0), (&wide, 200)], 1);
        let next = child("next", &[(&new, 0), (&wide, 201)], 1);
        let blocks = row(&s, &[&[&new], &[&next]]).await;
        let done = apply(&s, &blocks).await;
        assert_eq!(done.refused, None, "{mode:?}");
        let mut lost = done.applied[0].conflicting.clone();
        lost.sort();
        match mode {
            sapwood_ledger::RollbackMode::Node => assert_eq!(lost, ids(&[&old, &heir])),
            sapwood_ledger::RollbackMode::Follower => assert_eq!(lost, []),
        }
        assert_eq!(s.slot(&plain, 0).await, spent(&new, 0, Some(2)));
        assert_eq!(s.slot(&wide, 200).await, spent(&new, 1, Some(2)));
        // The old branch's transactions have nothing left to spend.
        let again = s.next_block(&[&old]).await;
        assert!(s.try_apply(&again).await.is_err(), "{mode:?}");
        s.sound().await;
    }
}
