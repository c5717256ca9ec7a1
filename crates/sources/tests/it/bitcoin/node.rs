//! Following a node.

use std::{sync::Arc, time::Duration};

use sapwood_sources::bitcoin::BitcoinError;
use sapwood_sources::{
    BlockSource, ChainPoint, ReadAhead, SourceError,
    bitcoin::{Network, RpcOptions, RpcSource, rpc::RpcError},
    walk_parents,
};
use sapwood_types::{BlockHash, Height};

use sapwood_testing::fake_node::FakeNode;

use crate::bitcoin::{
    data::{self, Files},
    utxo::UtxoSet,
};

/// The small reorganisation: the tips of the branch 3-4, of A at 4, and of A at 5.
fn small_reorganisation() -> Option<(FakeNode, [String; 3])> {
    let dir = data::bitcoin()?.join("reorg-small");
    let file: Vec<u8> = ["blk_0_to_4", "blk_3A", "blk_4A", "blk_5A"]
        .iter()
        .flat_map(|name| data::read(&dir.join(format!("{name}.dat.bz2"))))
        .collect();
    let hashes: Vec<String> =
        Files::of(&file).in_order(Network::Mainnet).iter().map(|raw| raw.hash().to_string()).collect();
    let tips = [4, 6, 7].map(|at| hashes[at].clone());
    Some((FakeNode::new(&file, &tips[0]), tips))
}

/// With waits short enough for a test.
fn quick(node: &FakeNode) -> RpcOptions {
    RpcOptions { poll: Duration::from_millis(20), ..node.options() }
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn first_4313_blocks_from_a_node_give_the_utxo_hash_of_bitcoin_core() {
    let Some(dir) = data::bitcoin() else { return };
    let tip = "00000000a9da635727dce622d78361b153ce3334e6a60d4377fad529abfc7863";
    let node = FakeNode::new(&data::read(&dir.join("chain-mainnet-0-4312/blk00000.dat")), tip);
    let source = RpcSource::connect(node.options()).await.unwrap();
    node.state.lock().unwrap().headers = Some(4315);
    let status = source.status().await.unwrap();
    assert_eq!(status.tip, ChainPoint::new(Height(4312), tip.parse().unwrap()));
    assert_eq!((status.headers, status.catching_up, status.kept_from), (Height(4315), true, None));

    let mut reader = ReadAhead::new(Arc::new(source), None, Height(0), Height(4312), 8);
    let mut set = UtxoSet::default();
    let mut count = 0;
    while let Some(block) = reader.next().await.unwrap() {
        let block = block.utxo.unwrap();
        set.apply(&block);
        count += 1;
    }
    assert_eq!((count, set.count()), (4313, 4149));
    assert_eq!(set.muhash(), "8ddda2747fb03d2bf57e08a23d4cab90f9e062c28bf5822760edc5238128a7e5");
}

#[tokio::test]
async fn what_the_node_does_not_know_is_nothing_and_no_error() {
    let Some((node, tips)) = small_reorganisation() else { return };
    let source = RpcSource::connect(quick(&node)).await.unwrap();
    assert_eq!(source.hash_at(Height(5)).await.unwrap(), None);
    assert_eq!(source.block_at(Height(5)).await.unwrap(), None);
    assert_eq!(source.block(&BlockHash([7; 32])).await.unwrap(), None);
    assert_eq!(source.header(&BlockHash([7; 32])).await.unwrap(), None);
    let tip: BlockHash = tips[0].parse().unwrap();
    assert_eq!(source.block(&tip).await.unwrap(), source.block_at(Height(4)).await.unwrap());
    let first = source.block_at(Height(0)).await.unwrap().unwrap().utxo.unwrap();
    assert_eq!((first.hash, first.parent), (Network::Mainnet.genesis(), BlockHash::default()));
    assert!(!source.reject(&tip).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn reorganisation_is_noticed_while_waiting_and_its_fork_point_found() {
    let Some((node, tips)) = small_reorganisation() else { return };
    let source = Arc::new(RpcSource::connect(quick(&node)).await.unwrap());
    let old = source.tip().await.unwrap().unwrap();

    let waiting = tokio::spawn({
        let source = source.clone();
        async move { source.wait_for_change(Some(&old.hash), LONG).await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished());
    node.go_to(&tips[2]);
    let new = waiting.await.unwrap().unwrap().unwrap();
    assert_eq!((new.height, new.hash.to_string()), (Height(5), tips[2].clone()));

    // From the old tip down, until it lies on the best chain again.
    let walked = walk_parents(&*source, old.hash, |header| !header.on_best_chain).await.unwrap();
    assert_eq!(walked.iter().map(|header| header.height.0).collect::<Vec<_>>(), [4, 3, 2]);
    assert_eq!(source.hash_at(Height(2)).await.unwrap(), Some(walked[2].hash));
    // The old branch is still there to be read.
    assert_eq!(source.block(&old.hash).await.unwrap().unwrap().point.height, Height(4));

    let mut reader = ReadAhead::new(source.clone(), Some(old.hash), Height(5), Height(5), 2);
    assert!(matches!(reader.next().await, Err(SourceError::ChainChanged { height: Height(5), .. })));
    let mut reader = ReadAhead::new(source, Some(walked[2].hash), Height(3), Height(9), 2);
    for height in 3..=5 {
        assert_eq!(reader.next().await.unwrap().unwrap().point.height, Height(height));
    }
    assert_eq!(reader.next().await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn h9_change_to_a_chain_of_equal_or_lower_height_is_noticed() {
    let Some((node, tips)) = small_reorganisation() else { return };
    let source = RpcSource::connect(quick(&node)).await.unwrap();
    let old = source.tip().await.unwrap().unwrap();
    node.go_to(&tips[1]);
    let new = source.wait_for_change(Some(&old.hash), LONG).await.unwrap().unwrap();
    assert_eq!((new.height, new.hash.to_string()), (Height(4), tips[1].clone()));
    // As after `invalidateblock`: the same chain, lower.
    let below = source.header(&new.hash).await.unwrap().unwrap().parent;
    node.go_to(&below.to_string());
    let lower = source.wait_for_change(Some(&new.hash), LONG).await.unwrap().unwrap();
    assert_eq!((lower.height, lower.hash), (Height(3), below));
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_ends_in_time() {
    let Some((node, tips)) = small_reorganisation() else { return };
    let source = Arc::new(RpcSource::connect(quick(&node)).await.unwrap());
    let old = source.tip().await.unwrap().unwrap();
    let start = std::time::Instant::now();
    let waited = source.wait_for_change(Some(&old.hash), Duration::from_millis(300)).await.unwrap();
    assert_eq!(waited, Some(old));
    assert!(start.elapsed() >= Duration::from_millis(300));
    let waiting = tokio::spawn(async move { source.wait_for_change(Some(&old.hash), LONG).await });
    node.go_to(&tips[2]);
    assert_eq!(waiting.await.unwrap().unwrap().unwrap().height, Height(5));
}

#[tokio::test]
async fn c1_survey_has_the_headers_of_blocks_the_node_has_still_to_fetch() {
    let Some((node, _)) = small_reorganisation() else { return };
    let source = RpcSource::connect(quick(&node)).await.unwrap();
    node.state.lock().unwrap().headers = Some(900);
    let view = source.survey().await.unwrap();
    assert_eq!((view.tip, view.best_height), (source.tip().await.unwrap(), Some(Height(900))));
    assert_eq!((view.rejected, view.gap), (None, None));
}

#[tokio::test]
async fn waiting_can_be_dropped() {
    let Some((node, _)) = small_reorganisation() else { return };
    let source = RpcSource::connect(RpcOptions { poll: LONG, ..node.options() }).await.unwrap();
    let old = source.tip().await.unwrap().unwrap();
    let wait = source.wait_for_change(Some(&old.hash), LONG);
    assert!(tokio::time::timeout(Duration::from_millis(100), wait).await.is_err());
    assert_eq!(source.tip().await.unwrap(), Some(old));
}

#[tokio::test]
async fn pruned_block_is_named_with_the_first_height_there_is() {
    let Some((node, _)) = small_reorganisation() else { return };
    let source = RpcSource::connect(quick(&node)).await.unwrap();
    node.state.lock().unwrap().pruned_below = Some(3);
    let error = source.block_at(Height(2)).await.unwrap_err();
    assert!(
        matches!(
            error,
            SourceError::Bitcoin(BitcoinError::Rpc(RpcError::Pruned {
                height: Height(2),
                kept_from: Height(3),
                ..
            }))
        ),
        "{error}"
    );
    assert!(source.block_at(Height(3)).await.unwrap().is_some());
    assert_eq!(source.status().await.unwrap().kept_from, Some(Height(3)));
}
