//! What the servers are given.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use sapwood_chain::{Chain, Events, Progress};
use sapwood_ledger::{AddressIndexing, Ledger};
use sapwood_pruner::PrunerHandle;
use tokio::{sync::watch, task::JoinHandle};

use crate::{
    address::ChainKind,
    status::{Alert, AlertLevel, History, Readiness, Sampler, StatusReport},
};

/// The parts of a running node that servers look at and work on.
pub struct NodeParts {
    /// What to call it: it is shown on the page.
    pub name: String,
    /// The store.
    pub store: Ledger,
    /// The chain on it.
    pub chain: Chain,
    /// The pruner on it.
    pub pruner: PrunerHandle,
    /// Which chain it is.
    pub kind: ChainKind,
    /// Which address indexes the store keeps.
    pub address_index: AddressIndexing,
    /// How far the follower is, if the node follows a source.
    pub progress: Option<watch::Receiver<Progress>>,
    /// Where the store keeps its files, if that is known: then everything in it counts as disk, not only what the engine tells.
    pub directory: Option<PathBuf>,
    /// With more blocks to go than this, the node is not ready.
    pub ready_lag: u64,
    /// With no block for longer than this there is an alert. `None` for never.
    pub no_block_after: Option<Duration>,
    /// Disk use above which there is an alert.
    pub disk_limit: Option<u64>,
}

/// A running node. Clones are the same one.
#[derive(Clone)]
pub struct Node {
    parts: Arc<NodeParts>,
    sampler: Arc<Sampler>,
}

impl Node {
    /// A node of these parts. Nothing is measured before [`Node::sample`] or [`Node::keep_sampling`].
    pub fn new(parts: NodeParts) -> Self {
        let parts = Arc::new(parts);
        let sampler = Arc::new(Sampler::new(Arc::clone(&parts)));
        Self { parts, sampler }
    }

    /// Its parts.
    pub fn parts(&self) -> &NodeParts {
        &self.parts
    }

    /// Its store.
    pub fn store(&self) -> &Ledger {
        &self.parts.store
    }

    /// Its chain.
    pub fn chain(&self) -> &Chain {
        &self.parts.chain
    }

    /// Where things are told.
    pub fn events(&self) -> &Events {
        self.parts.chain.events()
    }

    /// Its pruner.
    pub fn pruner(&self) -> &PrunerHandle {
        &self.parts.pruner
    }

    /// Measures everything once, now.
    pub async fn sample(&self) -> Arc<StatusReport> {
        self.sampler.sample().await
    }

    /// Whether to measure what takes more time: the hash of the UTXO set, and the engine and the disk every five seconds instead of
    /// once a minute. On unless turned off.
    pub fn set_heavy_statistics(&self, on: bool) {
        self.sampler.set_heavy(on);
    }

    /// Measures everything again and again until the task is ended. Dropping the handle does not end it.
    pub fn keep_sampling(&self, every: Duration) -> JoinHandle<()> {
        let sampler = Arc::clone(&self.sampler);
        tokio::spawn(async move {
            let mut timer = tokio::time::interval(every.max(Duration::from_millis(10)));
            timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
            let mut active = BTreeSet::new();
            loop {
                timer.tick().await;
                log_alerts(&mut active, &sampler.sample().await.alerts);
            }
        })
    }

    /// What was measured last. Measures once if nothing was.
    pub async fn status(&self) -> Arc<StatusReport> {
        match self.sampler.latest() {
            Some(report) => report,
            None => self.sample().await,
        }
    }

    /// Whether the node is ready to be used. Not if nothing has been measured for a minute, whatever was measured last.
    pub async fn readiness(&self) -> Readiness {
        const TOO_LONG: Duration = Duration::from_secs(60);
        let report = self.status().await;
        let mut readiness = report.ready.clone();
        let measured = UNIX_EPOCH + Duration::from_millis(report.at_ms);
        if let Some(age) = SystemTime::now().duration_since(measured).ok().filter(|age| *age > TOO_LONG) {
            readiness.ready = false;
            readiness.reasons.push(format!("nothing has been measured for {} s", age.as_secs()));
        }
        readiness
    }

    /// The last measurement as Prometheus wants it.
    pub async fn metrics_text(&self) -> Arc<str> {
        self.status().await;
        self.sampler.metrics_text()
    }

    /// What was measured over time.
    pub fn history<T>(&self, read: impl FnOnce(&History) -> T) -> T {
        self.sampler.history(read)
    }
}

/// Logs alerts that begin and alerts that are over, so that the log has them, too. `active` has the names of those that were there before.
fn log_alerts(active: &mut BTreeSet<String>, alerts: &[Alert]) {
    let names: BTreeSet<String> = alerts.iter().map(|alert| alert.name.clone()).collect();
    for Alert { level, name, text } in alerts {
        match level {
            _ if active.contains(name) => {}
            AlertLevel::Critical => tracing::error!(alert = name, "{text}"),
            AlertLevel::Warning => tracing::warn!(alert = name, "{text}"),
        }
    }
    for over in active.difference(&names) {
        tracing::info!(alert = over, "the alert is over");
    }
    *active = names;
}
