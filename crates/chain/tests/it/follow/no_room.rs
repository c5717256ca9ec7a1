//! A store whose disk is nearly full takes no blocks. The follower waits, shows how far behind it is, and goes on once there is room.
#![cfg(target_os = "linux")]

use std::{fs, path::Path, sync::Arc, time::Duration};

use sapwood_chain::{ApplyMode, ChainOptions, ChainState};
use sapwood_engine_rocksdb::{OpenMode, Options, open_ledger};
use sapwood_ledger::{ApplyOptions, RollbackMode, StoreError};
use sapwood_types::Height;

use crate::follow::{
    data::{Node, policy},
    scripted::{Scripted, longer},
};

/// In memory, so that nothing else on this machine fills it or makes room meanwhile.
const SHARED_MEMORY: &str = "/dev/shm";
const MIB: u64 = 1 << 20;

/// A node that wants almost all that is free to stay free.
async fn node_short_of(mode: ApplyMode) -> Node {
    let directory = tempfile::tempdir_in(SHARED_MEMORY).unwrap();
    let options = Options::default()
        .ledger(|ledger| ledger.utxo_hash = true)
        .engine(|engine| engine.write_buffer_bytes = 64 << 10);
    let any = options.clone().ledger(|ledger| ledger.disk_reserve_bytes = 0);
    let free = {
        let store = open_ledger(directory.path(), OpenMode::Create, policy(), any).unwrap();
        store.disk_room().await.unwrap().unwrap().free_bytes
    };
    let options = options.ledger(|ledger| ledger.disk_reserve_bytes = free - 16 * MIB);
    let chain = ChainOptions { mode, rollback: RollbackMode::Follower };
    Node::in_directory(directory, chain, policy(), options)
}

/// Takes room until it is deleted.
fn fill(directory: &Path) -> std::path::PathBuf {
    let balloon = directory.join("balloon");
    fs::write(&balloon, vec![1; 32 * MIB as usize]).unwrap();
    balloon
}

async fn waits_and_goes_on(mode: ApplyMode) {
    let node = node_short_of(mode).await;
    let balloon_place = tempfile::tempdir_in(SHARED_MEMORY).unwrap();
    let source = Scripted::new(true);
    let trunk = longer(&[], "trunk", 10);
    source.prefer(&trunk[..5]);
    let following = node.start(source.clone());
    following.reaches(&node, &trunk[4].hash.to_string()).await;

    let balloon = fill(balloon_place.path());
    assert!(node.store.disk_room().await.unwrap().unwrap().is_short());
    source.prefer(&trunk);
    // Read again and again: it is tried, and tried again.
    let end = tokio::time::Instant::now() + Duration::from_secs(60);
    while source.reads(&trunk[5].hash) < 4 {
        assert!(tokio::time::Instant::now() < end, "it does not try again");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let refused = node.store.apply_block(Arc::clone(&trunk[5]), ApplyOptions::default()).await;
    let no_room = matches!(&refused, Err(sapwood_ledger::ApplyError::Store(StoreError::NoRoom { .. })));
    assert!(no_room, "{refused:?}");
    let applied = node.store.last_applied().await.unwrap().unwrap().height;
    assert_eq!(applied, Height(4), "nothing is applied without room");
    let behind = following.until("behind", |progress| progress.source.lag(Some(applied)) == Some(5)).await;
    assert!(behind.source.refused.is_none(), "a full disk is no fault of a block");
    assert!(following.follower.rejected().is_empty());
    assert_ne!(node.events.state(), ChainState::Stopped, "it waits without ending");
    node.store.writable().await.unwrap();

    fs::remove_file(balloon).unwrap();
    following.reaches(&node, &trunk[9].hash.to_string()).await;
    following.end().await;
    node.sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h4_a_disk_without_room_is_waited_for_and_following_goes_on() {
    waits_and_goes_on(ApplyMode::Sync).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h4_a_disk_without_room_is_waited_for_behind_a_queue_too() {
    waits_and_goes_on(ApplyMode::Async { queue: 4 }).await;
}
