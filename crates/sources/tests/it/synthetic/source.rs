//! The synthetic chain behind the interface of a source.

use std::{sync::Arc, time::Duration};

use sapwood_sources::{
    BlockSource, ReadAhead, SourceError,
    synthetic::{Outcome, SyntheticOptions, SyntheticSource},
    walk_parents,
};
use sapwood_types::{BlockHash, Height};

use crate::synthetic::busy;

fn source(options: SyntheticOptions) -> SyntheticSource {
    SyntheticSource::new(options).unwrap()
}

#[tokio::test]
async fn nothing_at_all_before_the_first_step() {
    let source = source(busy(1));
    assert_eq!(source.tip().await.unwrap(), None);
    assert_eq!(source.hash_at(Height(0)).await.unwrap(), None);
    assert_eq!(source.wait_for_change(None, Duration::ZERO).await.unwrap(), None);
    source.advance();
    assert_eq!(source.tip().await.unwrap().unwrap().height, Height(0));
    assert_eq!(source.block_at(Height(0)).await.unwrap().unwrap().parent, BlockHash::default());
    assert_eq!(source.hash_at(Height(1)).await.unwrap(), None);
    assert_eq!(source.header(&BlockHash([1; 32])).await.unwrap(), None);
    assert_eq!(source.block(&BlockHash([1; 32])).await.unwrap(), None);
}

#[tokio::test]
async fn chain_can_be_read_ahead_and_walked_back() {
    let source = source(SyntheticOptions { reorg_probability: 0.0, remember: 100, ..busy(1) });
    (0..80).for_each(|_| drop(source.advance()));
    let tip = source.tip().await.unwrap().unwrap();
    let mut reader = ReadAhead::new(Arc::new(source.clone()), None, Height(0), tip.height, 8);
    let mut blocks = 0;
    while let Some(block) = reader.next().await.unwrap() {
        let block = block.utxo.unwrap();
        assert_eq!(block.height, Height(blocks));
        blocks += 1;
    }
    assert_eq!(blocks, 80);
    let walked = walk_parents(&source, tip.hash, |_| true).await.unwrap();
    assert_eq!(walked.len(), 80);
    assert!(walked.iter().all(|header| header.on_best_chain));
}

#[tokio::test]
async fn whoever_waits_is_woken_by_the_next_step() {
    let source = source(busy(1));
    source.advance();
    let known = source.tip().await.unwrap().unwrap();
    let waiting = tokio::spawn({
        let source = source.clone();
        async move { source.wait_for_change(Some(&known.hash), Duration::from_secs(3_600)).await.unwrap() }
    });
    source.advance();
    let tip = waiting.await.unwrap();
    assert_eq!(tip, source.tip().await.unwrap());
    assert_ne!(tip, Some(known));
    // Nobody calls, so nothing changes.
    let same = source.wait_for_change(tip.as_ref().map(|tip| &tip.hash), Duration::from_millis(1)).await;
    assert_eq!(same.unwrap(), tip);
}

#[tokio::test]
async fn old_blocks_are_forgotten_and_that_is_said() {
    let source = source(busy(2));
    (0..400).for_each(|_| drop(source.advance()));
    let tip = source.tip().await.unwrap().unwrap();
    for height in (0..=tip.height.0).map(Height) {
        let hash = source.hash_at(height).await.unwrap().unwrap();
        let header = source.header(&hash).await.unwrap().unwrap();
        assert!(header.on_best_chain && header.height == height);
        let block = source.block(&hash).await;
        if tip.height.above(height) < 20 {
            assert_eq!(block.unwrap().unwrap().point.hash, hash);
        } else {
            let error = block.unwrap_err();
            let SourceError::Forgotten { point, remembered_from } = &error else { panic!("{error}") };
            assert_eq!((point.height, point.hash, *remembered_from), (height, hash, tip.height.minus(19)));
        }
    }
}

#[tokio::test]
async fn losing_branch_can_be_read_for_a_while() {
    let source = source(busy(3));
    let mut lost_once = Vec::new();
    for _ in 0..300 {
        if let Outcome::Reorganised { lost, .. } = source.advance().outcome {
            for block in &lost {
                let header = source.header(&block.hash).await.unwrap().unwrap();
                assert!(!header.on_best_chain && header.parent == block.parent && header.time == block.time);
                assert_eq!(source.block(&block.hash).await.unwrap().unwrap().utxo.as_ref(), Some(block));
                assert!(source.reject(&block.hash).await.unwrap());
            }
            lost_once.extend(lost);
        }
    }
    let tip = source.tip().await.unwrap().unwrap().height;
    let gone = lost_once.iter().filter(|block| tip.above(block.height) >= 20);
    for block in gone.clone() {
        assert_eq!(source.header(&block.hash).await.unwrap(), None);
        assert_eq!(source.block(&block.hash).await.unwrap(), None);
    }
    assert!(gone.count() > 50);
}

#[tokio::test]
async fn a_rejected_block_gives_way_and_wakes_the_waiting() {
    let source = source(SyntheticOptions { reorg_probability: 0.0, ..busy(4) });
    (0..30).for_each(|_| drop(source.advance()));
    let tip = source.tip().await.unwrap().unwrap();
    let bad = source.hash_at(tip.height.minus(3)).await.unwrap().unwrap();
    assert!(source.reject(&bad).await.unwrap());
    let fallen = source.wait_for_change(Some(&tip.hash), Duration::from_secs(3_600)).await.unwrap().unwrap();
    assert_eq!(fallen.height, tip.height.minus(4));
    source.advance();
    assert_ne!(source.hash_at(tip.height.minus(3)).await.unwrap(), Some(bad));
}

#[test]
fn remembered_blocks_are_bounded() {
    let source = source(busy(6));
    for _ in 0..2_000 {
        source.advance();
        let (remembered, unmined) = source.look(|chain| (chain.remembered(), chain.unmined()));
        // Twenty heights, and what lost at them: at worst every one of the last steps was a reorganisation.
        assert!(remembered <= 20 * 13, "{remembered}");
        assert!(unmined < 2_000, "{unmined}");
    }
}
