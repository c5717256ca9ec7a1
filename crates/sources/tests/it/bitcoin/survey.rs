//! What block files have besides the best chain.

use std::{ops::ControlFlow, time::Duration};

use sapwood_sources::{
    BlockSource,
    bitcoin::{BlkOptions, BlkSource, Network},
};
use sapwood_types::Height;

use sapwood_testing::regtest::{file, hash, longer, spoilt};

use crate::bitcoin::data::Files;

const REGTEST: Network = Network::Regtest;

fn refresh(source: &sapwood_sources::bitcoin::BlkSource) {
    source.refresh(|_| ControlFlow::Continue(())).unwrap();
}

#[tokio::test]
async fn c1_rejected_branch_is_named_while_it_has_more_work_than_the_best_chain() {
    let trunk = longer(&[], "trunk", 6);
    let bad = longer(&spoilt(&trunk, "bad"), "on it", 53);
    let files = Files::of(&file(&bad));
    let source = files.open(REGTEST);
    assert_eq!(source.survey().await.unwrap().rejected, None);
    source.reject(&hash(&bad[6]).parse().unwrap()).await.unwrap();
    let view = source.survey().await.unwrap();
    let branch = view.rejected.unwrap();
    assert_eq!((branch.block.height, branch.block.hash.to_string()), (Height(6), hash(&bad[6])));
    assert_eq!((branch.descendants, view.best_height), (53, Some(Height(59))));
    assert_eq!(view.tip.unwrap().height, Height(5));
    // As much work is not more.
    files.write(1, &file(&longer(&trunk, "good", 54)[6..]));
    refresh(&source);
    let view = source.survey().await.unwrap();
    assert_eq!((view.rejected, view.tip.unwrap().height), (None, Height(59)));
}

#[tokio::test]
async fn c1_gap_in_the_files_is_named_until_the_missing_block_comes() {
    let chain = longer(&[], "block", 27);
    let files = Files::of(&file(&[&chain[..24], &chain[25..]].concat()));
    let source = files.open(REGTEST);
    let view = source.survey().await.unwrap();
    let gap = view.gap.unwrap();
    assert_eq!(
        (gap.missing.to_string(), gap.child.to_string(), gap.waiting),
        (hash(&chain[24]), hash(&chain[25]), 2)
    );
    assert_eq!((view.tip.unwrap().height, view.best_height), (Height(23), Some(Height(26))));
    files.write(1, &file(&chain[24..25]));
    refresh(&source);
    let view = source.survey().await.unwrap();
    assert_eq!((view.gap, view.tip.unwrap().height, view.best_height), (None, Height(26), Some(Height(26))));
}

/// A branch that lost long ago and whose beginning is no longer in the files does not stall the follower.
/// An operator who is told of a gap puts the good file in the place of the damaged one, which has the same length.
#[tokio::test]
async fn c1_gap_of_a_damaged_file_ends_when_the_file_is_repaired_in_place() {
    let chain = longer(&[], "block", 40);
    let good = file(&chain);
    let (from, to) = (file(&chain[..20]).len() - 50, file(&chain[..22]).len() + 50);
    let mut damaged = good.clone();
    damaged[from..to].fill(0xee);
    let files = Files::of(&damaged);
    let source = files.open(REGTEST);
    let view = source.survey().await.unwrap();
    assert!(view.gap.is_some() && view.tip.unwrap().height < Height(20), "{view:?}");
    let blocks = source.report().blocks;
    assert!(blocks < 40, "{blocks} blocks");
    assert_eq!(source.survey().await.unwrap().gap, view.gap);
    assert_eq!(
        (source.report().blocks, source.report().copies),
        (blocks, 0),
        "reading again finds no copies"
    );
    files.write(0, &good);
    let view = source.survey().await.unwrap();
    assert_eq!((view.gap, view.tip.unwrap().hash.to_string()), (None, hash(&chain[39])));
    assert_eq!((source.report().copies, source.report().notes), (0, vec![]));
    // The blocks around the damage can be read.
    for block in &chain[18..24] {
        let hash = hash(block).parse().unwrap();
        assert!(source.block(&hash).await.unwrap().is_some(), "{hash}");
    }
}

/// A damaged block was called missing, although it was there and could be named.
#[tokio::test]
async fn gap_names_the_place_of_the_damaged_block() {
    let chain = longer(&[], "block", 10);
    let good = file(&chain);
    let block = file(&chain[..6]).len() + 8;
    // In the root of the transactions, so that the block has another hash; in its length; in its magic.
    for (at, place) in [(block + 40, block), (block - 1, block - 8), (block - 8, block - 8)] {
        let mut damaged = good.clone();
        damaged[at] ^= 0x40;
        let files = Files::of(&damaged);
        let source = files.open(REGTEST);
        let tip = source.survey().await.unwrap().tip.unwrap();
        // Blocks are looked at when they are read.
        if source.block(&tip.hash).await.is_err() {
            source.reject(&tip.hash).await.unwrap();
        }
        let gap = source.survey().await.unwrap().gap.unwrap();
        assert_eq!((gap.missing.to_string(), gap.waiting), (hash(&chain[6]), 3), "damage at {at}");
        let named = gap.damaged.unwrap_or_default();
        assert!(named.ends_with(&format!("blk00000.dat at byte {place}")), "damage at {at}: {named:?}");
        files.write(0, &good);
        let view = source.survey().await.unwrap();
        assert_eq!((view.gap, view.tip.unwrap().hash.to_string()), (None, hash(&chain[9])), "damage at {at}");
        assert_eq!(source.report().damaged, []);
    }
}

/// The hash is right, and the transactions are not: the block was refused until the next start.
#[tokio::test]
async fn block_that_is_repaired_in_place_is_taken_again() {
    let chain = longer(&[], "block", 10);
    let good = file(&chain);
    let mut damaged = good.clone();
    let transactions = file(&chain[..6]).len() + 8 + 80;
    damaged[transactions + 60] ^= 1;
    let files = Files::of(&damaged);
    let source = files.open(REGTEST);
    let bad = hash(&chain[6]).parse().unwrap();
    assert!(source.block(&bad).await.is_err());
    source.reject(&bad).await.unwrap();
    assert_eq!(source.survey().await.unwrap().tip.unwrap().height, Height(5));
    assert_eq!(source.report().damaged.len(), 1);
    files.write(0, &good);
    assert_eq!(source.survey().await.unwrap().tip.unwrap().hash.to_string(), hash(&chain[9]));
    assert_eq!(source.report().damaged, []);
}

/// The last block of a file may still be written; after a while it is damaged.
#[tokio::test]
async fn last_block_that_never_becomes_whole_is_named() {
    let chain = longer(&[], "block", 5);
    let mut bytes = file(&chain);
    let last = bytes.len() - 1;
    bytes[last - 60] ^= 1;
    let files = Files::of(&bytes);
    let patient = files.open(REGTEST);
    assert_eq!((patient.report().tip.height, patient.report().damaged), (Height(3), vec![]));
    let options = BlkOptions { whole_within: Duration::ZERO, ..BlkOptions::new(REGTEST, [files.path()]) };
    let source = BlkSource::open(options, |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(
        source.report().damaged,
        [(files.path().join("blk00000.dat"), file(&chain[..4]).len() as u64)]
    );
}

#[tokio::test]
async fn c1_blocks_without_a_parent_that_are_older_than_the_tip_are_no_gap() {
    let chain = longer(&[], "block", 20);
    let stale = longer(&chain[..10], "stale", 3);
    let files = Files::of(&file(&[&chain[..], &stale[11..]].concat()));
    let source = files.open(REGTEST);
    assert_eq!((source.report().unconnected, source.survey().await.unwrap().gap), (2, None));
}

/// The copy that was rejected may have been damaged.
#[tokio::test]
async fn m15_another_copy_of_a_rejected_block_is_tried_again() {
    let chain = longer(&[], "block", 5);
    let files = Files::of(&file(&chain));
    let source = files.open(REGTEST);
    source.reject(&hash(&chain[3]).parse().unwrap()).await.unwrap();
    assert_eq!(source.tip().await.unwrap().unwrap().height, Height(2));
    files.write(1, &file(&chain[3..4]));
    refresh(&source);
    assert_eq!(source.tip().await.unwrap().unwrap().height, Height(4));
}

/// A file that does not belong there, with a longer branch from far below, is removed by the operator.
#[tokio::test]
async fn h4_branch_whose_file_is_removed_is_left() {
    let chain = longer(&[], "block", 40);
    let stray = longer(&chain[..5], "stray", 60);
    let files = Files::of(&file(&chain));
    files.write(1, &file(&stray[5..]));
    let source = files.open(REGTEST);
    assert_eq!(source.tip().await.unwrap().unwrap().height, Height(64));
    std::fs::remove_file(files.path().join("blk00001.dat")).unwrap();
    refresh(&source);
    let view = source.survey().await.unwrap();
    assert_eq!((view.tip.unwrap().hash.to_string(), view.best_height), (hash(&chain[39]), Some(Height(39))));
    assert_eq!((view.rejected, view.gap, source.report().blocks), (None, None, 40));
    // It is followed again when it comes back, under another name, too.
    for name in [1, 2] {
        files.write(name, &file(&stray[5..]));
        refresh(&source);
        let tip = source.tip().await.unwrap().unwrap();
        assert_eq!((tip.height, tip.hash.to_string()), (Height(64), hash(&stray[64])));
        assert!(source.block(&tip.hash).await.unwrap().is_some());
    }
    // A copy is enough.
    std::fs::remove_file(files.path().join("blk00001.dat")).unwrap();
    refresh(&source);
    assert_eq!(source.tip().await.unwrap().unwrap().height, Height(64));
    assert!(source.block_at(Height(64)).await.unwrap().is_some());
}

/// A file that was cut ends the chain where it was cut, and is read again when it is whole.
#[tokio::test]
async fn h4_file_that_becomes_shorter_is_read_again() {
    let chain = longer(&[], "block", 40);
    let files = Files::of(&file(&chain));
    let source = files.open(REGTEST);
    files.write(0, &file(&chain[..10]));
    refresh(&source);
    assert_eq!(source.tip().await.unwrap().unwrap().height, Height(9));
    files.write(0, &file(&chain));
    refresh(&source);
    assert_eq!(source.tip().await.unwrap().unwrap().height, Height(39));
    assert!(source.block_at(Height(39)).await.unwrap().is_some());
}

/// In the place of the directory there is a file for a while.
#[tokio::test]
async fn h4_directory_that_was_a_file_for_a_while_is_read_again() {
    let chain = longer(&[], "block", 10);
    let files = Files::of(&file(&chain[..8]));
    let source = files.open(REGTEST);
    let (place, away) = (files.path().to_owned(), files.path().with_extension("away"));
    std::fs::rename(&place, &away).unwrap();
    std::fs::write(&place, "x").unwrap();
    source.refresh(|_| ControlFlow::Continue(())).unwrap_err();
    std::fs::remove_file(&place).unwrap();
    std::fs::rename(&away, &place).unwrap();
    files.write(1, &file(&chain[8..]));
    refresh(&source);
    assert_eq!(source.tip().await.unwrap().unwrap().height, Height(9));
}
