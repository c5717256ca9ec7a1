//! The data these tests need, and stores to follow it with.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use sapwood_chain::{Chain, ChainOptions, ChainState, Events, FollowOptions, Follower, Progress, Stop};
use sapwood_engine_rocksdb::{OpenMode, Options, open_ledger};
use sapwood_ledger::{Ledger, RollbackMode, UtxoSet};
use sapwood_rules::Policy;
use sapwood_sources::{
    BlockSource, ChainPoint,
    bitcoin::{BlkOptions, BlkSource, Network},
};

pub(crate) use sapwood_testing::data::{Files, bitcoin, hex, json, open, open_with, read, record};

/// Files that begin after this block.
pub(crate) fn open_after(files: &Files, network: Network, anchor: ChainPoint) -> BlkSource {
    open_with(BlkOptions { anchor: Some(anchor), ..BlkOptions::new(network, [files.path()]) })
}

/// A store in a directory of its own, and the chain on it.
pub(crate) struct Node {
    pub(crate) store: Ledger,
    pub(crate) chain: Chain,
    pub(crate) events: Events,
    directory: tempfile::TempDir,
}

/// A follower at work.
pub(crate) struct Following {
    pub(crate) follower: Follower,
    stop: Stop,
    task: tokio::task::JoinHandle<Result<(), sapwood_chain::ChainError>>,
}

impl Following {
    /// Waits until its progress is like this.
    pub(crate) async fn until(&self, what: &str, like: impl FnMut(&Progress) -> bool) -> Progress {
        let mut progress = self.follower.progress();
        let waited = tokio::time::timeout(Duration::from_secs(60), progress.wait_for(like)).await;
        let Ok(reached) = waited else { panic!("{what}: still {:?}", *self.follower.progress().borrow()) };
        reached.unwrap().clone()
    }

    /// Waits until this block is the last applied one and the chain is running.
    pub(crate) async fn reaches(&self, node: &Node, hash: &str) {
        let end = tokio::time::Instant::now() + Duration::from_secs(60);
        loop {
            let last = node.store.last_applied().await.unwrap();
            let state = node.events.state();
            if last.is_some_and(|last| last.hash.to_string() == hash) && state == ChainState::Running {
                return;
            }
            assert!(tokio::time::Instant::now() < end, "{hash} is not reached: {last:?}, {state}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn end(self) {
        self.stop.ask();
        self.task.await.unwrap().unwrap();
    }
}

/// Everything can be taken back, and nothing is slow: the caches of tests are small.
pub(crate) fn policy() -> Policy {
    Policy::with_retention(100_000)
}

impl Node {
    pub(crate) fn new(rollback: RollbackMode) -> Self {
        Self::with(ChainOptions { rollback, ..ChainOptions::default() }, policy())
    }

    pub(crate) fn with(options: ChainOptions, policy: Policy) -> Self {
        let store_options = Options::default()
            .ledger(|ledger| {
                ledger.utxo_hash = true;
                ledger.record_cache_bytes = 8 << 20;
            })
            .engine(|engine| engine.block_cache_bytes = 8 << 20);
        Self::in_directory(tempfile::tempdir().unwrap(), options, policy, store_options)
    }

    pub(crate) fn in_directory(
        directory: tempfile::TempDir,
        options: ChainOptions,
        policy: Policy,
        store_options: Options,
    ) -> Self {
        let store = open_ledger(directory.path(), OpenMode::Create, policy, store_options).unwrap();
        let events = Events::default();
        let chain = Chain::new(store.clone(), events.clone(), options);
        Self { store, chain, events, directory }
    }

    pub(crate) fn follow(&self, source: impl BlockSource + 'static) -> Follower {
        self.follow_shared(Arc::new(source))
    }

    pub(crate) fn follow_shared(&self, source: Arc<dyn BlockSource>) -> Follower {
        let options =
            FollowOptions { retry: std::time::Duration::from_millis(1), ..FollowOptions::default() };
        Follower::new(self.chain.clone(), source, options, Stop::default())
    }

    /// Follows a source in the background, with pauses short enough for a test.
    pub(crate) fn start(&self, source: Arc<dyn BlockSource>) -> Following {
        let (wait, retry) = (Duration::from_millis(20), Duration::from_millis(1));
        self.start_with(source, FollowOptions { wait, retry, ..FollowOptions::default() })
    }

    pub(crate) fn start_with(&self, source: Arc<dyn BlockSource>, options: FollowOptions) -> Following {
        let stop = Stop::default();
        let follower = Follower::new(self.chain.clone(), source, options, stop.clone());
        let running = follower.clone();
        Following { follower, stop, task: tokio::spawn(async move { running.follow().await }) }
    }

    /// The UTXO set as it was kept with each block.
    pub(crate) async fn rolling(&self) -> UtxoSet {
        self.store.rolling_utxo_set().await.unwrap().expect("it is kept")
    }

    /// The UTXO set, counted again.
    pub(crate) async fn counted(&self) -> UtxoSet {
        self.store.utxo_set(true, Arc::new(|_, _| ControlFlow::Continue(()))).await.unwrap()
    }

    /// Checks everything, and that the kept set is the counted one.
    pub(crate) async fn sound(self) {
        assert_eq!(self.rolling().await, self.counted().await);
        let report = self.store.verify(Arc::new(|_, _| ())).await.unwrap();
        assert!(report.is_clean(), "{report}");
        drop(self.directory);
    }
}
