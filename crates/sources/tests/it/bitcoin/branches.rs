//! Several branches in the files, copies, and bad copies.

use std::{path::PathBuf, sync::Arc};

use sapwood_sources::{
    BlockSource, ChainPoint, ReadAhead, SourceError,
    bitcoin::{BlkOptions, BlkSource, Network, convert::ConvertError},
};
use sapwood_types::{BlockHash, Height};

use crate::bitcoin::data;

/// The files of the small reorganisation, unpacked: 0 to 4, then 3A, 4A, 5A.
fn small_reorganisation(dir: &std::path::Path) -> Vec<Vec<u8>> {
    ["blk_0_to_4", "blk_3A", "blk_4A", "blk_5A"]
        .map(|name| data::read(&dir.join(format!("reorg-small/{name}.dat.bz2"))))
        .into()
}

#[tokio::test]
async fn longer_branch_wins_and_equal_one_does_not() {
    let Some(dir) = data::bitcoin() else { return };
    let parts = small_reorganisation(&dir);
    let files = data::Files::new();
    files.write(0, &parts[0]);
    let source = files.open(Network::Mainnet);
    let old = source.tip().await.unwrap().unwrap();
    assert_eq!(old.height, Height(4));
    let fork = source.hash_at(Height(2)).await.unwrap();

    files.write(1, &parts[1]);
    files.write(2, &parts[2]);
    source.refresh(|_| std::ops::ControlFlow::Continue(())).unwrap();
    assert_eq!(source.tip().await.unwrap(), Some(old), "of two chains with equal work the first seen stays");
    assert_eq!(source.report().beside, 2);

    files.write(3, &parts[3]);
    source.refresh(|_| std::ops::ControlFlow::Continue(())).unwrap();
    let new = source.tip().await.unwrap().unwrap();
    assert_eq!(new.height, Height(5));
    assert_eq!(source.hash_at(Height(2)).await.unwrap(), fork);
    assert_ne!(source.hash_at(Height(4)).await.unwrap(), Some(old.hash));
    // The old branch can still be read, for whoever has to take it back.
    assert!(!source.header(&old.hash).await.unwrap().unwrap().on_best_chain);
    assert_eq!(source.block(&old.hash).await.unwrap().unwrap().point.height, Height(4));

    // Whoever reads from the old branch on learns that it is gone.
    let source = Arc::new(source);
    let mut reader = ReadAhead::new(source.clone(), Some(old.hash), Height(5), Height(5), 4);
    let error = reader.next().await.unwrap_err();
    assert!(
        matches!(error, SourceError::ChainChanged { height: Height(5), before, .. } if before == old.hash)
    );
    assert_eq!(reader.next().await.unwrap(), None);

    // A branch that turns out bad gives way to the old one.
    let bad = source.hash_at(Height(3)).await.unwrap().unwrap();
    assert!(source.reject(&bad).await.unwrap());
    assert_eq!(source.tip().await.unwrap(), Some(old));
    assert!(!source.reject(&Network::Mainnet.genesis()).await.unwrap());
    assert_eq!(source.tip().await.unwrap(), Some(old));
}

#[tokio::test]
async fn files_can_be_given_one_by_one_in_any_order() {
    let Some(dir) = data::bitcoin() else { return };
    let files = data::Files::new();
    let mut places: Vec<PathBuf> = (0..)
        .zip(small_reorganisation(&dir))
        .map(|(number, part)| files.write_as(&format!("part-{number}"), &part))
        .collect();
    places.reverse();
    let source = data::open(Network::Mainnet, places);
    assert_eq!(source.tip().await.unwrap().unwrap().height, Height(5));
    assert_eq!(source.report().unconnected, 0);
}

/// CVE-2012-2459: a block with its last transactions repeated has the same hash as the block itself.
#[tokio::test]
async fn repeated_transactions_are_refused_and_the_good_copy_is_found() {
    let Some(dir) = data::bitcoin() else { return };
    let stale = "stale-blocks/261199-000000000000000b1d220bf1bff1f479bfff9e041785a2a465cfb21649d65959.bin";
    let good: bitcoin::Block = bitcoin::consensus::deserialize(&data::read(&dir.join(stale))).unwrap();
    // Any block whose number of transactions is odd on some level will do.
    let mut repeated = good.clone();
    let count = repeated.txdata.len();
    let tail = 1 << count.trailing_zeros();
    repeated.txdata.extend_from_within(count - tail..);
    assert_eq!(repeated.block_hash(), good.block_hash());
    assert!(repeated.check_merkle_root(), "the library alone does not notice");

    let mut file = Vec::new();
    for block in [&repeated, &good] {
        file.extend(data::record(Network::Mainnet, &bitcoin::consensus::serialize(block)));
    }
    let files = data::Files::of(&file);
    let raw = files.in_order(Network::Mainnet);
    let hash = raw[1].hash();
    let error = raw[0].convert(Height(261_199)).unwrap_err();
    assert!(
        matches!(data::cause(&error), Some(ConvertError::RepeatedTransactions { hash: of }) if of == hash)
    );
    assert!(raw[1].convert(Height(261_199)).is_ok());

    let anchor = Some(ChainPoint::new(Height(261_198), raw[1].parent()));
    let options = BlkOptions { anchor, ..BlkOptions::new(Network::Mainnet, [files.path()]) };
    let source = BlkSource::open(options, |_| std::ops::ControlFlow::Continue(())).unwrap();
    assert_eq!(source.report().copies, 1);
    let block = source.block(&hash).await.unwrap().unwrap().utxo.unwrap();
    assert_eq!(block.txs.len(), count);
}

#[tokio::test]
async fn longer_branch_that_forks_off_in_the_middle_wins() {
    let Some(dir) = data::bitcoin() else { return };
    let branches = data::json(&dir.join("reorg-small/test_reorg.json"));
    let mut file = Vec::new();
    let mut tips = Vec::new();
    for branch in branches.as_array().unwrap() {
        for hex in branch.as_array().unwrap() {
            file.extend(data::record(Network::Regtest, &data::hex(hex.as_str().unwrap())));
        }
        // The first block is in no file: it is known anyway.
        let source = data::Files::of(&file).open(Network::Regtest);
        tips.push(source.tip().await.unwrap().unwrap());
    }
    assert_eq!(tips.iter().map(|tip| tip.height.0).collect::<Vec<_>>(), [10, 16]);
    let files = data::Files::of(&file);
    let source = files.open(Network::Regtest);
    assert!(!source.header(&tips[0].hash).await.unwrap().unwrap().on_best_chain);
    let first = source.block_at(Height(0)).await.unwrap().unwrap().utxo.unwrap();
    assert_eq!((first.hash, first.parent), (Network::Regtest.genesis(), BlockHash::default()));
}
