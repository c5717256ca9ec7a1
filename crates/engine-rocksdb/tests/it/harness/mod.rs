//! What the tests of crashes, full disks and damage share: how the ledgers of this crate are opened.
//!
//! [`raw`] has the same database without the ledger, to damage it.

pub(crate) mod raw;

use std::{path::Path, str::FromStr, sync::Arc};

use sapwood_conformance::{
    Places,
    crash::{Durable, ledger_options, timeline::Timeline},
};
use sapwood_engine_rocksdb::{Durability, OpenMode, Options, RocksEngine, open_ledger};
use sapwood_ledger::{Faults, Ledger, StoreError, VerifyReport, engine::EngineError};
use sapwood_rules::Policy;
use tempfile::TempDir;

/// Buffers so small that the engine flushes and compacts all the time, caches so small that records are read back, and two cores for every
/// change, however small.
pub(crate) fn options() -> Options {
    Options { ledger: ledger_options(), ..Options::default() }.engine(|engine| {
        engine.block_cache_bytes = 1 << 20;
        engine.write_buffer_bytes = 64 << 10;
    })
}

/// Has a store check itself.
pub(crate) async fn verify(store: &Ledger) -> VerifyReport {
    store.verify(Arc::new(|_, _| {})).await.unwrap()
}

/// Opens a store to go on with a timeline.
pub(crate) fn open_at(directory: &Path, timeline: &Timeline, durability: Durability) -> Ledger {
    Rocks::new(durability).open(directory, timeline.policy(), None).unwrap()
}

fn open(directory: &TempDir, mode: OpenMode) -> Result<Arc<RocksEngine>, EngineError> {
    RocksEngine::open(directory.path(), mode, &options().engine).map(Arc::new)
}

/// Databases in temporary directories.
pub(crate) fn places() -> Places<TempDir> {
    Places::new(|| tempfile::tempdir().unwrap(), |directory| Ok(open(directory, OpenMode::Create)?))
        .read_only(|directory| Ok(open(directory, OpenMode::ReadOnly)?))
        .damage(|directory, _, key| raw::damage_in_files(directory.path(), key))
}

/// Databases that are killed.
#[derive(Clone, Copy)]
pub(crate) struct Rocks {
    pub(crate) durability: Durability,
    pub(crate) write_buffer_bytes: usize,
}

const DURABILITIES: [Durability; 3] =
    [Durability::ProcessCrash, Durability::PowerLoss, Durability::CleanStopOnly];

impl Rocks {
    pub(crate) fn new(durability: Durability) -> Self {
        Self { durability, write_buffer_bytes: options().engine.write_buffer_bytes }
    }
}

/// Reads what [`Durable::settings`] wrote.
impl FromStr for Rocks {
    type Err = std::convert::Infallible;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (durability, buffer) = text.split_once(' ').unwrap();
        let durability = DURABILITIES.into_iter().find(|known| format!("{known:?}") == durability).unwrap();
        Ok(Self { durability, write_buffer_bytes: buffer.parse().unwrap() })
    }
}

impl Durable for Rocks {
    fn open(
        &self,
        directory: &Path,
        policy: Policy,
        faults: Option<Arc<dyn Faults>>,
    ) -> Result<Ledger, StoreError> {
        let options = options().ledger(|ledger| ledger.faults = faults).engine(|engine| {
            engine.durability = self.durability;
            engine.write_buffer_bytes = self.write_buffer_bytes;
        });
        open_ledger(directory, OpenMode::Create, policy, options)
    }

    fn settings(&self) -> String {
        format!("{:?} {}", self.durability, self.write_buffer_bytes)
    }

    fn keeps_acknowledged(&self) -> bool {
        self.durability != Durability::CleanStopOnly
    }

    fn log_bytes(&self, directory: &Path) -> u64 {
        let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
        let logs = entries.filter(|entry| entry.path().extension().is_some_and(|name| name == "log"));
        logs.map(|log| log.metadata().unwrap().len()).sum()
    }
}

/// The process that is killed, behind an ignored test.
pub(crate) fn work() {
    sapwood_conformance::crash::worker::work(|settings| Box::new(settings.parse::<Rocks>().unwrap()));
}
