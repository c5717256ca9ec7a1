//! The shared data, which is not part of the repository, and stores to follow it with.

use std::{
    env, fs,
    io::Read,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use sapwood_chain::{Chain, ChainOptions, ChainState, Events, FollowOptions, Follower, Progress, Stop};
use sapwood_rules::Policy;
use sapwood_sources::{
    BlockSource, ChainPoint,
    bitcoin::{BlkOptions, BlkSource, Network, blk::FileOrder, blk::RawBlock},
};
use sapwood_store::{RollbackMode, Store, StoreDiagnose as _, StoreRead as _, UtxoSet};
use sapwood_store_embedded::{EmbeddedOptions, EmbeddedStore};

/// The path of shared data. Says so if there is none; the test is skipped then.
pub(crate) fn bitcoin() -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = match env::var_os("SAPWOOD_TEST_DATA") {
        Some(dir) => Some(PathBuf::from(dir)),
        None => here.ancestors().map(|dir| dir.join("shared/data")).find(|dir| dir.is_dir()),
    };
    if found.is_none() {
        // Continuous integration sets it, so that a missing directory does not pass for a test that passed.
        let demanded = env::var_os("SAPWOOD_DEMAND_DATA").is_some_and(|demanded| demanded != "0");
        assert!(!demanded, "SAPWOOD_DEMAND_DATA is set, but there is no shared/data above this crate");
        eprintln!("skipped: no shared/data above this crate; set SAPWOOD_TEST_DATA to its path");
    }
    found.map(|dir| dir.join("bitcoin"))
}

/// A file of the shared data, unpacked.
pub(crate) fn read(path: &Path) -> Vec<u8> {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("zst") => zstd::decode_all(bytes.as_slice()).unwrap(),
        Some("bz2") => {
            let mut unpacked = Vec::new();
            bzip2::read::BzDecoder::new(bytes.as_slice()).read_to_end(&mut unpacked).unwrap();
            unpacked
        }
        _ => bytes,
    }
}

pub(crate) fn json(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&read(path)).unwrap()
}

pub(crate) fn hex(text: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

/// Block files in a directory of their own.
pub(crate) struct Files(tempfile::TempDir);

impl Files {
    pub(crate) fn new() -> Self {
        Files(tempfile::tempdir().unwrap())
    }

    pub(crate) fn of(bytes: &[u8]) -> Self {
        let files = Files::new();
        files.write(0, bytes);
        files
    }

    pub(crate) fn write(&self, number: usize, bytes: &[u8]) {
        fs::write(self.0.path().join(format!("blk{number:05}.dat")), bytes).unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Looked at often enough for a test.
    pub(crate) fn open(&self, network: Network) -> BlkSource {
        open(network, self.0.path())
    }

    /// Files that begin after this block.
    pub(crate) fn open_after(&self, network: Network, anchor: ChainPoint) -> BlkSource {
        let options = BlkOptions { anchor: Some(anchor), ..BlkOptions::new(network, [self.0.path()]) };
        BlkSource::open(options, |_| ControlFlow::Continue(())).unwrap()
    }

    pub(crate) fn in_order(&self, network: Network) -> Vec<RawBlock> {
        FileOrder::open(network, &[self.0.path().to_owned()]).unwrap().collect::<Result<_, _>>().unwrap()
    }
}

pub(crate) fn open(network: Network, place: &Path) -> BlkSource {
    let poll = std::time::Duration::from_millis(10);
    let options = BlkOptions { poll, ..BlkOptions::new(network, [place]) };
    BlkSource::open(options, |_| ControlFlow::Continue(())).unwrap()
}

/// A record of a block file.
pub(crate) fn record(network: Network, block: &[u8]) -> Vec<u8> {
    let length = u32::try_from(block.len()).unwrap();
    [&network.magic(), length.to_le_bytes().as_slice(), block].concat()
}

/// A store in a directory of its own, and the chain on it.
pub(crate) struct Node {
    pub(crate) store: EmbeddedStore,
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
        let store_options = EmbeddedOptions {
            utxo_hash: true,
            record_cache_bytes: 8 << 20,
            block_cache_bytes: 8 << 20,
            ..EmbeddedOptions::default()
        };
        Self::in_directory(tempfile::tempdir().unwrap(), options, policy, store_options)
    }

    pub(crate) fn in_directory(
        directory: tempfile::TempDir,
        options: ChainOptions,
        policy: Policy,
        store_options: EmbeddedOptions,
    ) -> Self {
        let store = EmbeddedStore::open(directory.path(), policy, store_options).unwrap();
        let events = Events::default();
        let chain = Chain::new(Arc::new(store.clone()) as Arc<dyn Store>, events.clone(), options);
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

    /// The UTXO set, counted anew.
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
