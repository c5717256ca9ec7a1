//! Reads a report off the store, the chain and the pruner.

use std::{
    collections::VecDeque,
    fmt::Display,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use sapwood_chain::{Progress, block_times};
use sapwood_ledger::{EngineError, EngineWrites, StoreError, TableStats};
use sapwood_pruner::PrunerStatus;
use sapwood_types::BlockMark;

use super::{
    History, StatusReport, alerts, disk,
    report::{
        ChainReport, CountsReport, DiskReport, EngineReport, FeaturesReport, NodeReport, UtxoSetReport,
    },
    source::SourceReport,
};
use crate::{metrics::Metrics, node::NodeParts};

/// Over how long throughput is measured.
const RATE_WINDOW: Duration = Duration::from_secs(10);
/// How often the engine and the directory are asked: both take more time than all else together.
const ENGINE_EVERY: Duration = Duration::from_secs(5);
/// How often they are asked without heavy statistics.
const ENGINE_SELDOM: Duration = Duration::from_secs(60);

/// Measures a node.
pub struct Sampler {
    parts: Arc<NodeParts>,
    metrics: Metrics,
    started: Instant,
    started_at: SystemTime,
    /// Whether to measure what takes more time: the engine, the directory, the hash of the UTXO set.
    heavy: AtomicBool,
    /// Held while measuring, so that reports come one after the other.
    turn: tokio::sync::Mutex<Memory>,
    shown: Mutex<Shown>,
}

/// What has to be remembered from one measurement to the next.
#[derive(Default)]
struct Memory {
    engine: Option<Engine>,
    rates: VecDeque<(Instant, u64, u64)>,
    utxo_set: Option<UtxoSetReport>,
}

/// What the engine and the directory told.
struct Engine {
    asked: Instant,
    stats: Vec<TableStats>,
    writes: Option<EngineWrites>,
    disk: DiskReport,
    problems: Vec<String>,
}

/// What was measured last, for everybody.
#[derive(Default)]
struct Shown {
    report: Option<Arc<StatusReport>>,
    metrics: Arc<str>,
    history: History,
}

/// What could not be read, so that it is told instead of looking like nothing.
#[derive(Default)]
struct Problems(Vec<String>);

impl Problems {
    /// What was read, or nothing and a note.
    fn note<T: Default, E: Display>(&mut self, read: Result<T, E>) -> T {
        read.unwrap_or_else(|error| {
            self.0.push(error.to_string());
            T::default()
        })
    }
}

fn unix_time(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl Sampler {
    pub(crate) fn new(parts: Arc<NodeParts>) -> Self {
        let metrics = Metrics::new(parts.pruner.metrics());
        Self {
            parts,
            metrics,
            started: Instant::now(),
            started_at: SystemTime::now(),
            heavy: AtomicBool::new(true),
            turn: tokio::sync::Mutex::default(),
            shown: Mutex::default(),
        }
    }

    pub(crate) fn set_heavy(&self, on: bool) {
        self.heavy.store(on, Relaxed);
    }

    pub(crate) fn latest(&self) -> Option<Arc<StatusReport>> {
        self.shown.lock().report.clone()
    }

    pub(crate) fn metrics_text(&self) -> Arc<str> {
        Arc::clone(&self.shown.lock().metrics)
    }

    pub(crate) fn history<T>(&self, read: impl FnOnce(&History) -> T) -> T {
        read(&self.shown.lock().history)
    }

    /// Measures everything. What cannot be read is an alert, never an error.
    pub(crate) async fn sample(&self) -> Arc<StatusReport> {
        let mut memory = self.turn.lock().await;
        let mut problems = Problems::default();
        let refuses_writes = match self.parts.store.writable().await {
            // It was opened to be looked at.
            Ok(()) | Err(StoreError::Engine(EngineError::ReadOnly { .. })) => None,
            Err(error) => Some(error.to_string()),
        };
        let no_block_after = self.parts.no_block_after.map(|after| after.as_secs_f64());
        let chain = self.chain(&mut memory, no_block_after, &mut problems).await;
        let counts = problems.note(self.parts.store.counts().await);
        let utxo_set = self.utxo_set(&mut memory, &mut problems).await;
        let prune = self.prune(&mut problems).await;
        let room = problems.note(self.parts.store.disk_room().await);
        let engine = self.engine(&mut memory).await;
        problems.0.extend(engine.problems.iter().cloned());
        let mut disk = engine.disk.clone();
        disk.without_pruning_bytes = disk.total_bytes.saturating_add(prune.totals.bytes_freed);
        disk.limit_bytes = self.parts.disk_limit;
        disk.room = room;
        let ready_lag = self.parts.ready_lag;
        let ready = alerts::readiness(&chain, ready_lag, no_block_after, refuses_writes.as_deref(), room);
        let mut report = StatusReport {
            at_ms: unix_time(SystemTime::now()).as_millis() as u64,
            node: self.node(utxo_set.as_ref()),
            utxo_set,
            chain,
            counts: CountsReport {
                records: counts.records,
                unspent: counts.unspent,
                unmined: counts.unmined,
                spent: counts.spent,
                created: counts.created(),
            },
            disk,
            prune,
            engine: engine.stats.iter().map(EngineReport::new).collect(),
            engine_writes: engine.writes,
            write_amplification: engine.writes.and_then(|writes| writes.amplification()),
            process: disk::process(),
            ready,
            alerts: Vec::new(),
        };
        report.alerts =
            alerts::alerts(&report, ready_lag, no_block_after, refuses_writes.as_deref(), &problems.0);
        let report = Arc::new(report);
        // While nobody else measures: the pruner's own figures in it are of the same moment.
        let metrics = self.metrics.text(&report);
        let mut shown = self.shown.lock();
        shown.history.note(&report);
        shown.metrics = metrics;
        shown.report = Some(Arc::clone(&report));
        report
    }

    fn node(&self, utxo_set: Option<&UtxoSetReport>) -> NodeReport {
        let pruner = &self.parts.pruner;
        NodeReport {
            name: self.parts.name.clone(),
            chain: self.parts.kind.to_string(),
            version: env!("CARGO_PKG_VERSION").into(),
            engine: self.parts.store.engine_kind().into(),
            features: FeaturesReport {
                address_index: self.parts.address_index.address,
                credential_index: self.parts.address_index.credential,
                utxo_hash: utxo_set.is_some(),
                pruning: pruner.is_enabled() && pruner.options().delete_due,
                bodies: pruner.bodies().is_some(),
                child_check: pruner.options().child_check,
                prune_while_catching_up: pruner.options().while_catching_up,
                heavy_statistics: self.heavy.load(Relaxed),
            },
            started_at: unix_time(self.started_at).as_secs(),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
        }
    }

    async fn chain(
        &self,
        memory: &mut Memory,
        no_block_after: Option<f64>,
        problems: &mut Problems,
    ) -> ChainReport {
        let chain = &self.parts.chain;
        let progress = self.parts.progress.as_ref().map(|progress| progress.borrow().clone());
        let left = progress.as_ref().filter(|progress| progress.behind() > 0).and_then(Progress::left);
        let health = progress.as_ref().map(|progress| &progress.source);
        let applied = problems.note(self.parts.store.last_applied().await);
        let floor = problems.note(self.parts.store.rollback_floor().await);
        let last_block_seconds = match health {
            Some(_) => Some(self.last_block_seconds(applied, problems).await),
            None => None,
        };
        let figures = chain.figures();
        let (blocks_per_second, transactions_per_second) =
            memory.rates(figures.apply.count, figures.transactions);
        let silent = no_block_after.is_some_and(|limit| last_block_seconds > Some(limit));
        ChainReport {
            state: chain.events().state(),
            tip: health.and_then(|health| health.tip),
            lag_blocks: health.and_then(|health| health.lag(applied.map(|applied| applied.height))),
            last_block_seconds,
            source: health.map(|health| SourceReport::new(health, silent)),
            applied: applied.map(Into::into),
            catch_up_seconds: left.map(|left| left.as_secs_f64()),
            rollback_floor: floor,
            queued: figures.queued as u64,
            apply: figures.apply,
            rollback: figures.rollback,
            transactions: figures.transactions,
            blocks_per_second,
            transactions_per_second,
        }
    }

    /// Seconds since the last block: since it was applied, or, where an earlier process did that, by the time in it.
    async fn last_block_seconds(&self, applied: Option<BlockMark>, problems: &mut Problems) -> f64 {
        if let Some(at) = self.parts.chain.last_block_at() {
            return at.elapsed().as_secs_f64();
        }
        let made_at = match applied {
            Some(applied) => problems.note(block_times::at(&self.parts.store, applied.height).await),
            None => None,
        };
        match made_at {
            Some(made_at) => unix_time(SystemTime::now()).as_secs_f64() - made_at as f64,
            None => self.started.elapsed().as_secs_f64(),
        }
        .max(0.0)
    }

    /// The UTXO set, if it is kept. Its hash takes a few milliseconds, so it is computed only when the set has changed.
    async fn utxo_set(&self, memory: &mut Memory, problems: &mut Problems) -> Option<UtxoSetReport> {
        let set = problems.note(self.parts.store.rolling_utxo_set().await)?;
        let mut report = UtxoSetReport::without_hash(&set);
        if self.heavy.load(Relaxed) {
            let known = memory.utxo_set.as_ref().filter(|known| {
                (&known.applied, known.outputs, &known.value)
                    == (&report.applied, report.outputs, &report.value)
            });
            report.muhash = match known {
                Some(known) => known.muhash.clone(),
                None => problems.note(tokio::task::spawn_blocking(move || set.digest()).await),
            };
        }
        memory.utxo_set = Some(report.clone());
        Some(report)
    }

    async fn prune(&self, problems: &mut Problems) -> PrunerStatus {
        let pruner = &self.parts.pruner;
        pruner.status().await.unwrap_or_else(|error| {
            problems.0.push(error.to_string());
            let (enabled, policy) = (pruner.is_enabled(), pruner.policy_state());
            PrunerStatus { enabled, policy, ..PrunerStatus::default() }
        })
    }

    async fn engine<'a>(&self, memory: &'a mut Memory) -> &'a Engine {
        let every = if self.heavy.load(Relaxed) { ENGINE_EVERY } else { ENGINE_SELDOM };
        let due = memory.engine.as_ref().is_none_or(|engine| engine.asked.elapsed() >= every);
        if due {
            memory.engine = Some(self.ask_engine().await);
        }
        memory.engine.get_or_insert_with(|| Engine {
            asked: Instant::now(),
            stats: Vec::new(),
            writes: None,
            disk: DiskReport::default(),
            problems: Vec::new(),
        })
    }

    async fn ask_engine(&self) -> Engine {
        let mut problems = Problems::default();
        let stats = problems.note(self.parts.store.engine_stats(None).await);
        let writes = problems.note(self.parts.store.engine_writes().await);
        let directory = match self.parts.directory.clone() {
            None => None,
            Some(directory) => {
                let walk = tokio::task::spawn_blocking(move || disk::bytes_of_data(&directory)).await;
                Some(problems.note(walk.unwrap_or_else(|error| Err(std::io::Error::other(error)))))
            }
        };
        let disk = disk::disk(&stats, directory);
        Engine { asked: Instant::now(), stats, writes, disk, problems: problems.0 }
    }
}

impl Memory {
    /// Blocks and transactions a second, over the last ten seconds.
    fn rates(&mut self, blocks: u64, transactions: u64) -> (f64, f64) {
        let now = Instant::now();
        // The newest point that is old enough is the one to compare with.
        while self.rates.get(1).is_some_and(|(at, ..)| now.duration_since(*at) >= RATE_WINDOW) {
            self.rates.pop_front();
        }
        let rates = self.rates.front().map(|(at, blocks_then, transactions_then)| {
            let seconds = now.duration_since(*at).as_secs_f64().max(1e-3);
            let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
            (rate(blocks, *blocks_then), rate(transactions, *transactions_then))
        });
        self.rates.push_back((now, blocks, transactions));
        rates.unwrap_or_default()
    }
}
