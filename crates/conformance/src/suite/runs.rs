//! Blocks in a row. A store may work on one while it writes the one before; nothing of that may be seen.

use std::sync::Arc;

use sapwood_rules::SpendRefusal;
use sapwood_store::{AppliedBlocks, ApplyError, ApplyOptions, InputRefusal, error::TxProblem};
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
        s.roll_back(back_to, sapwood_store::RollbackMode::Node).await.expect("roll back");
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
    assert_eq!(s.undo(blocks[1].height).await, Ok(None));
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
