//! The order in which blocks lie in files does not matter, as long as no two chains have equal work.

use std::ops::ControlFlow;

use proptest::{prelude::*, sample::Index};
use sapwood_sources::{BlockSource, ChainPoint, bitcoin::Network};
use sapwood_types::Height;

use crate::bitcoin::data::{self, Files, record};

/// Two branches: 10 blocks, and 11 that fork off from the fifth.
fn branches() -> Option<Vec<Vec<u8>>> {
    let json = data::json(&data::bitcoin()?.join("reorg-small/test_reorg.json"));
    let texts = json.as_array().unwrap().iter().flat_map(|branch| branch.as_array().unwrap());
    Some(texts.map(|text| data::hex(text.as_str().unwrap())).collect())
}

async fn chain(source: &dyn BlockSource) -> (ChainPoint, Vec<String>) {
    let tip = source.tip().await.unwrap().unwrap();
    let mut hashes = Vec::new();
    for height in 0..=tip.height.0 {
        let block = source.block_at(Height(height)).await.unwrap().unwrap().utxo.unwrap();
        assert_eq!(block.height, Height(height));
        assert!(hashes.last().is_none_or(|before| *before == block.parent.to_string()));
        hashes.push(block.hash.to_string());
    }
    (tip, hashes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn shuffled_blocks_in_several_files_with_copies_give_the_same_chain(
        order in Just((0..21usize).collect::<Vec<_>>()).prop_shuffle(),
        copies in prop::collection::vec(any::<Index>(), 0..5),
        files in 1..4usize,
        zeros in 0..50usize,
        in_steps in any::<bool>(),
    ) {
        let Some(blocks) = branches() else { return Ok(()) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let straight = Files::of(&blocks.iter().flat_map(|block| record(Network::Regtest, block)).collect::<Vec<_>>());
        let expected = runtime.block_on(chain(&straight.open(Network::Regtest)));
        prop_assert_eq!(expected.0.height, Height(16));

        let order: Vec<usize> = order.into_iter().chain(copies.iter().map(|copy| copy.index(blocks.len()))).collect();
        let directory = Files::new();
        directory.write(0, &[]);
        let early = directory.open(Network::Regtest);
        for (number, part) in order.chunks(order.len().div_ceil(files)).enumerate() {
            let mut file = Vec::new();
            for block in part {
                file.extend(record(Network::Regtest, &blocks[*block]));
                file.extend(vec![0; zeros]);
            }
            directory.write(number, &file);
            if in_steps {
                early.refresh(|_| ControlFlow::Continue(())).unwrap();
            }
        }
        early.refresh(|_| ControlFlow::Continue(())).unwrap();
        for source in [early, directory.open(Network::Regtest)] {
            prop_assert_eq!(runtime.block_on(chain(&source)), expected.clone());
            let report = source.report();
            prop_assert_eq!((report.blocks, report.copies, report.unconnected, report.beside), (21, copies.len(), 0, 5));
        }
    }
}
