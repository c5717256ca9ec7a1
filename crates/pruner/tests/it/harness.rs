//! A store, a chain and a pruner to try things on.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use parking_lot::Mutex;
use prometheus_client::{encoding::text::encode, registry::Registry};
use sapwood_chain::{ChainState, Events};
use sapwood_conformance::fixtures::{block_hash, burn};
use sapwood_engine_rocksdb::{OpenMode, Options, open_ledger};
use sapwood_ledger::{ApplyOptions, CreateRequest, Faults, Ledger, MineRequest, RollbackMode};
use sapwood_pruner::{Bodies, Job, JobState, ManualClock, Pacing, Pruner, PrunerHandle, PrunerOptions};
use sapwood_rules::Policy;
use sapwood_types::{Block, BlockHash, Height, MinedIn, Tx, TxRecord};
use tempfile::TempDir;

/// What the clock of the tests shows at first.
pub(crate) const NOW: u64 = 1_000_000;

type OnPoint = Arc<dyn Fn(&'static str) -> Result<(), String> + Send + Sync>;

/// Called at the named points of the store's writes.
#[derive(Default)]
pub(crate) struct Hook(Mutex<Option<OnPoint>>);

impl Hook {
    pub(crate) fn set(&self, on_point: impl Fn(&'static str) -> Result<(), String> + Send + Sync + 'static) {
        *self.0.lock() = Some(Arc::new(on_point));
    }

    /// Does something once, when this point is reached for the so-manieth time.
    pub(crate) fn once(
        &self,
        wanted: &'static str,
        number: usize,
        act: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        let times = AtomicUsize::new(0);
        self.set(move |point| {
            let now = point == wanted && times.fetch_add(1, Ordering::Relaxed) + 1 == number;
            if now { act() } else { Ok(()) }
        });
    }

    /// Stops the so-manieth chunk before it deletes anything. Wait for it, then let it go on by dropping what is returned.
    pub(crate) fn hold_chunk(&self, number: usize) -> HeldChunk {
        self.hold("prune-judged", number)
    }

    /// Stops the so-manieth write before it happens.
    pub(crate) fn hold_write(&self, number: usize) -> HeldChunk {
        self.hold("before-write", number)
    }

    fn hold(&self, point: &'static str, number: usize) -> HeldChunk {
        let (arrived, has_arrived) = mpsc::channel();
        let (let_go, go_on) = mpsc::channel::<()>();
        let go_on = Mutex::new(go_on);
        self.once(point, number, move || {
            arrived.send(()).unwrap();
            // Ends when the other side is dropped.
            let _ = go_on.lock().recv();
            Ok(())
        });
        HeldChunk { has_arrived, _let_go: let_go }
    }
}

impl Faults for Hook {
    fn reached(&self, point: &'static str) -> Result<(), String> {
        let on_point = self.0.lock().clone();
        on_point.map_or(Ok(()), |on_point| on_point(point))
    }
}

/// A chunk that waits.
pub(crate) struct HeldChunk {
    has_arrived: mpsc::Receiver<()>,
    _let_go: mpsc::Sender<()>,
}

impl HeldChunk {
    pub(crate) async fn arrived(self) -> impl Sized {
        tokio::task::spawn_blocking(move || {
            self.has_arrived.recv_timeout(Duration::from_secs(60)).expect("the chunk never came");
            self._let_go
        })
        .await
        .unwrap()
    }
}

/// Small caches: every test has a store of its own.
pub(crate) fn store_options() -> Options {
    Options::default().ledger(|ledger| ledger.record_cache_bytes = 1 << 20).engine(|engine| {
        engine.block_cache_bytes = 4 << 20;
        engine.write_buffer_bytes = 4 << 20;
    })
}

/// A pruner that does nothing by itself but once at its start, and never pauses.
pub(crate) fn pruner_options(policy: Policy) -> PrunerOptions {
    let pacing = Pacing { busy_share: 1.0, quiet_after: Duration::ZERO, ..Pacing::default() };
    PrunerOptions { look_every: None, pacing, ..PrunerOptions::with_policy(policy) }
}

/// The database of a store that is closed, to damage it.
pub(crate) struct Raw(rocksdb::DB);

impl Raw {
    fn open(directory: &Path) -> Self {
        let options = rocksdb::Options::default();
        let families = rocksdb::DB::list_cf(&options, directory).unwrap();
        Raw(rocksdb::DB::open_cf(&options, directory, families).unwrap())
    }

    /// Cuts the first page of a record in the middle of its front.
    pub(crate) fn cut(&self, tx: &Tx) {
        let family = self.0.cf_handle("tx").unwrap();
        let page = self.0.get_cf(family, tx.txid.0).unwrap().expect("the record is there");
        self.0.put_cf(family, tx.txid.0, &page[..5]).unwrap();
    }

    /// Gives the first page of a record a version that no program knows.
    pub(crate) fn unknown_version(&self, tx: &Tx) {
        let family = self.0.cf_handle("tx").unwrap();
        let mut page = self.0.get_cf(family, tx.txid.0).unwrap().expect("the record is there");
        page[0] = 0xee;
        self.0.put_cf(family, tx.txid.0, page).unwrap();
    }
}

pub(crate) struct World {
    pub(crate) directory: TempDir,
    pub(crate) store: Ledger,
    pub(crate) events: Events,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) options: PrunerOptions,
    pub(crate) bodies: Option<Bodies>,
    pub(crate) hook: Arc<Hook>,
    pub(crate) pruner: PrunerHandle,
}

fn open(directory: &Path, policy: Policy, hook: &Arc<Hook>) -> Ledger {
    let options = store_options().ledger(|ledger| ledger.faults = Some(Arc::clone(hook) as _));
    open_ledger(directory, OpenMode::Create, policy, options).unwrap()
}

impl World {
    pub(crate) async fn new(policy: Policy) -> Self {
        Self::with(pruner_options(policy), None).await
    }

    pub(crate) async fn with(options: PrunerOptions, bodies: Option<Bodies>) -> Self {
        Self::with_events(options, bodies, Events::default()).await
    }

    pub(crate) async fn with_events(options: PrunerOptions, bodies: Option<Bodies>, events: Events) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let hook = Arc::new(Hook::default());
        let store = open(directory.path(), options.policy, &hook);
        events.enter(ChainState::Running);
        let clock = Arc::new(ManualClock::at(NOW));
        let pruner = start(&store, &events, bodies.clone(), options.clone(), &clock).await;
        World { directory, store, events, clock, options, bodies, hook, pruner }
    }

    /// Stops the pruner, closes the store, opens it again and starts a pruner on it.
    pub(crate) async fn restart(self) -> Self {
        let World { directory, store, clock, options, bodies, pruner, .. } = self;
        pruner.stop().await;
        drop((pruner, store));
        let hook = Arc::new(Hook::default());
        let store = open(directory.path(), options.policy, &hook);
        let events = Events::default();
        events.enter(ChainState::Running);
        let pruner = start(&store, &events, bodies.clone(), options.clone(), &clock).await;
        World { directory, store, events, clock, options, bodies, hook, pruner }
    }

    /// Stops everything, does something to the files of the store, and starts again.
    pub(crate) async fn damage(self, damage: impl FnOnce(&Raw)) -> Self {
        let World { directory, store, clock, options, bodies, pruner, .. } = self;
        pruner.stop().await;
        drop((pruner, store));
        damage(&Raw::open(directory.path()));
        let hook = Arc::new(Hook::default());
        let store = open(directory.path(), options.policy, &hook);
        let events = Events::default();
        events.enter(ChainState::Running);
        let pruner = start(&store, &events, bodies.clone(), options.clone(), &clock).await;
        World { directory, store, events, clock, options, bodies, hook, pruner }
    }

    /// Waits until something is so, for a minute at most.
    pub(crate) async fn until(&self, what: &str, mut so: impl FnMut() -> bool) {
        let poll = async {
            while !so() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), poll).await.expect(what);
    }

    /// Waits until no job is in flight or waits.
    pub(crate) async fn quiet(&self) {
        while let Some(job) = self.pruner.jobs(3).into_iter().find(|job| !job.state.is_over()) {
            self.pruner.wait(job.id).await;
        }
    }

    /// Waits until the job of the start is over, so that what comes next is not joined with it. A store without blocks has none.
    pub(crate) async fn settle(&self) {
        if let Some(first) = self.pruner.jobs(usize::MAX).pop() {
            self.pruner.wait(first.id).await.unwrap();
        }
    }

    pub(crate) async fn tip(&self) -> Height {
        self.store.last_applied().await.unwrap().unwrap().height
    }

    /// Applies the next block; the first one at `height`.
    pub(crate) async fn block_at(&self, height: u32, txs: &[&Tx]) {
        let last = self.store.last_applied().await.unwrap();
        let block = Block {
            height: last.map_or(Height(height), |last| last.height.next()),
            hash: block_hash(&format!("{} after {:?}", self.store.counts().await.unwrap().records, last)),
            parent: last.map_or(BlockHash::default(), |last| last.hash),
            time: 0,
            txs: txs.iter().map(|tx| (*tx).clone()).collect(),
        };
        assert_eq!(block.height, Height(height));
        self.store.apply_block(Arc::new(block), ApplyOptions::default()).await.unwrap();
    }

    /// Applies the next block.
    pub(crate) async fn extend(&self, txs: &[&Tx]) {
        let next = self.tip().await.next();
        self.block_at(next.0, txs).await;
    }

    /// Applies empty blocks up to a height.
    pub(crate) async fn extend_to(&self, height: u32) {
        while self.tip().await < Height(height) {
            self.extend(&[]).await;
        }
    }

    /// Takes back all blocks above a height.
    pub(crate) async fn roll_back_to(&self, height: u32) {
        let hash = self.store.block_at(Height(height + 1)).await.unwrap().unwrap().previous.unwrap().hash;
        self.store.roll_back(Some((Height(height), hash)), RollbackMode::Node).await.unwrap();
    }

    /// An unmined transaction, seen at a height.
    pub(crate) async fn unmined(&self, tx: &Tx, height: u32) {
        self.store.create(vec![CreateRequest::unmined(tx.clone())], Height(height)).await.unwrap();
    }

    /// Mines a stored transaction, or takes that back, without a block of its own.
    pub(crate) async fn set_mined(&self, tx: &Tx, height: u32, unset: bool) {
        let block =
            MinedIn { block_id: 10_000 + height, height: Height(height), subtree: 0, on_longest_chain: true };
        self.store.set_mined(vec![tx.txid], MineRequest { block, unset }, Height(height)).await.unwrap();
    }

    /// Prunes everything that may go at the height of the chain.
    pub(crate) async fn prune(&self) -> Job {
        self.prune_at(None).await
    }

    pub(crate) async fn prune_at(&self, height: Option<u32>) -> Job {
        let job = self.pruner.prune_now(height.map(Height)).unwrap();
        self.pruner.wait(job).await.unwrap()
    }

    /// Prunes, and panics unless that went to its end. Returns how many records went.
    pub(crate) async fn prune_ok(&self) -> u64 {
        let job = self.prune().await;
        assert_eq!((job.state, &job.error, &job.stopped_early), (JobState::Completed, &None, &None), "{job}");
        job.counts.deleted
    }

    /// A block with so many transactions that only its own height keeps.
    pub(crate) async fn burns(&self, label: &str, count: usize) -> Vec<Tx> {
        let txs: Vec<Tx> = (0..count).map(|number| burn(&format!("{label} {number}"), &[])).collect();
        self.extend(&txs.iter().collect::<Vec<_>>()).await;
        txs
    }

    pub(crate) async fn records(&self) -> u64 {
        self.store.counts().await.unwrap().records
    }

    pub(crate) async fn record(&self, tx: &Tx) -> Option<TxRecord> {
        self.store.get(tx.txid).await.unwrap()
    }

    pub(crate) async fn has(&self, tx: &Tx) -> bool {
        self.record(tx).await.is_some()
    }

    pub(crate) async fn preserved_until(&self, tx: &Tx) -> Option<u32> {
        self.record(tx).await.unwrap().head.preserve_until.map(|until| until.0)
    }

    /// Stops the pruner and has the store verify itself.
    pub(crate) async fn sound(self) {
        self.pruner.stop().await;
        let report = self.store.verify(Arc::new(|_, _| {})).await.unwrap();
        assert!(report.is_clean(), "{report}");
    }
}

/// How many jobs a pruner did not begin because it could not run.
pub(crate) fn skipped(pruner: &PrunerHandle) -> u64 {
    let mut registry = Registry::default();
    pruner.metrics().register(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    let skipped = text.lines().filter(|line| line.starts_with("sapwood_prune_skipped_total{"));
    skipped.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

pub(crate) async fn start(
    store: &Ledger,
    events: &Events,
    bodies: Option<Bodies>,
    options: PrunerOptions,
    clock: &Arc<ManualClock>,
) -> PrunerHandle {
    let store = store.clone();
    Pruner::start(store, events.clone(), bodies, options, Arc::clone(clock) as _).await.unwrap()
}
