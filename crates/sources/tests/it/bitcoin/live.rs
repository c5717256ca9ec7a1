//! Files that a node is still writing.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use sapwood_sources::{
    BlockSource, SourceError,
    bitcoin::{BlkOptions, BlkSource, Network},
};
use sapwood_types::Height;

use crate::bitcoin::data::{Files, first_blocks, record};

const MAINNET: Network = Network::Mainnet;

fn refresh(source: &BlkSource) {
    source.refresh(|_| ControlFlow::Continue(())).unwrap();
}

/// A node fills its file with zeros and then writes into them: the length stays, and for a moment a block is half there.
#[tokio::test]
async fn half_written_block_in_a_file_filled_beforehand_counts_only_when_it_is_whole() {
    let Some(blocks) = first_blocks(3) else { return };
    let start: Vec<u8> = blocks[..2].iter().flat_map(|block| record(MAINNET, block)).collect();
    let next = record(MAINNET, &blocks[2]);
    let files = Files::new();
    let write = |written: usize| {
        let mut file = [start.as_slice(), &next[..written]].concat();
        file.resize(10_000, 0);
        files.write(0, &file);
    };
    write(0);
    let source = files.open(MAINNET);
    for written in 1..next.len() {
        // The block ends with four zeros, its lock time: it is whole before they are written.
        if written >= next.len() - 4 {
            break;
        }
        write(written);
        refresh(&source);
        assert_eq!(source.tip().await.unwrap().unwrap().height, Height(1), "{written} bytes written");
    }
    write(next.len());
    refresh(&source);
    assert_eq!(source.tip().await.unwrap().unwrap().height, Height(2));
    assert_eq!(source.report().notes, []);
    assert!(source.block_at(Height(2)).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn new_blocks_and_new_files_are_noticed_while_waiting() {
    let Some(blocks) = first_blocks(6) else { return };
    let files = Files::of(&record(MAINNET, &blocks[0]));
    let poll = Duration::from_millis(20);
    let options = BlkOptions { poll, ..BlkOptions::new(MAINNET, [files.path()]) };
    let source = BlkSource::open(options, |_| ControlFlow::Continue(())).unwrap();
    let first = source.tip().await.unwrap().unwrap();
    let short = Duration::from_millis(60);
    assert_eq!(source.wait_for_change(Some(&first.hash), short).await.unwrap(), Some(first));
    assert_eq!(source.wait_for_change(None, Duration::from_secs(60)).await.unwrap(), Some(first));

    let source = Arc::new(source);
    for (height, block) in (0..).zip(&blocks).skip(1) {
        let waiting = tokio::spawn({
            let source = source.clone();
            async move {
                let tip = source.tip().await.unwrap().unwrap();
                source.wait_for_change(Some(&tip.hash), Duration::from_secs(60)).await.unwrap().unwrap()
            }
        });
        tokio::time::sleep(Duration::from_millis(30)).await;
        files.write(height, &record(MAINNET, block));
        assert_eq!(waiting.await.unwrap().height, Height(height as u32));
    }
    assert_eq!(source.report().files, 6);
}

#[tokio::test]
async fn pruning_node_that_deletes_its_oldest_file_is_followed_on() {
    let Some(blocks) = first_blocks(4) else { return };
    let files = Files::new();
    for (number, block) in blocks[..3].iter().enumerate() {
        files.write(number, &record(MAINNET, block));
    }
    let source = files.open(MAINNET);
    std::fs::remove_file(files.path().join("blk00001.dat")).unwrap();
    files.write(3, &record(MAINNET, &blocks[3]));
    refresh(&source);
    assert_eq!(source.tip().await.unwrap().unwrap().height, Height(3));
    assert!(source.block_at(Height(3)).await.unwrap().is_some());
    let error = source.block_at(Height(1)).await.unwrap_err();
    assert!(matches!(&error, SourceError::File { path, .. } if path.ends_with("blk00001.dat")), "{error}");
}
