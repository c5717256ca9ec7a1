//! The baseline: what the same blocks cost if every row they touch is written straight into RocksDB, one batch a block.
//!
//! The rows are always the same, whatever the ledger itself stores, so that figures stay comparable: one row for each touched page, one for each
//! record that comes onto the list of due records or leaves it, the undo record, the state.

use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use sapwood_engine_rocksdb::{OpenMode, RocksEngine, RocksOptions};
use sapwood_ledger::{
    Changes, Faults,
    changes::PageVersion,
    engine::{Engine, Maintenance, Table, WriteSet},
};
use sapwood_types::{Height, TxId, Undo};

use super::measure::{Times, cpu_time};

/// The bytes of a state row.
const STATE: [u8; 80] = [0; 80];

/// Keeps the rows of blocks that a ledger applies, while they are wanted.
#[derive(Default)]
pub(super) struct Recorder(Mutex<Recorded>);

#[derive(Default)]
struct Recorded {
    wanted: bool,
    sets: Vec<WriteSet>,
}

impl Faults for Recorder {
    fn reached(&self, _: &'static str) -> Result<(), String> {
        Ok(())
    }

    fn changing(&self, changes: &Changes, undo: Option<&Undo>) {
        let mut recorded = self.recorded();
        if let Some(undo) = undo.filter(|_| recorded.wanted) {
            recorded.sets.push(rows(changes, undo));
        }
    }
}

impl Recorder {
    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins or ends to keep rows.
    pub(super) fn want(&self, wanted: bool) {
        *self.recorded() = Recorded { wanted, ..Recorded::default() };
    }

    /// Takes the rows of the blocks applied since they were taken last, one set a block.
    fn take(&self) -> Vec<WriteSet> {
        std::mem::take(&mut self.recorded().sets)
    }
}

/// The rows that a block touches.
fn rows(changes: &Changes, undo: &Undo) -> WriteSet {
    let mut writes = WriteSet::with_capacity(changes.first.len() * 450);
    let due = |height: Height, txid: &TxId| [&height.0.to_be_bytes()[..], &txid.0].concat();
    let settled =
        |version: &Option<PageVersion>| version.as_ref().and_then(|version| version.derived.settled);
    for (txid, change) in &changes.first {
        match &change.now {
            Some(version) => writes.put(Table::Tx, &txid.0, version.page.bytes()),
            None => writes.delete(Table::Tx, &txid.0),
        }
        let (before, now) = (settled(&change.before), settled(&change.now));
        if before != now {
            before.inspect(|height| writes.delete(Table::Due, &due(*height, txid)));
            now.inspect(|height| writes.put(Table::Due, &due(*height, txid), &[]));
        }
    }
    for ((txid, number), change) in &changes.further {
        let key = [&txid.0[..], &number.to_be_bytes()].concat();
        match &change.now {
            Some(page) => writes.put(Table::Tx, &key, &page.encode()),
            None => writes.delete(Table::Tx, &key),
        }
    }
    writes.put(Table::Undo, &undo.block.height.0.to_be_bytes(), &undo.encode());
    writes.put(Table::Meta, b"baseline-state", &STATE);
    writes
}

/// A copy of the store's database that gets the rows of the same blocks.
pub(super) struct Baseline {
    engine: RocksEngine,
    recorder: Arc<Recorder>,
}

impl Baseline {
    pub(super) fn open(directory: &Path, recorder: Arc<Recorder>) -> anyhow::Result<Self> {
        let engine = RocksEngine::open(directory, OpenMode::Existing, &RocksOptions::default())?;
        recorder.want(true);
        Ok(Self { engine, recorder })
    }

    /// Writes what the ledger has applied since the last call, and adds the time of each block.
    pub(super) fn write(&self, times: &mut Times) -> anyhow::Result<()> {
        for mut writes in self.recorder.take() {
            writes.number = self.engine.position()? + 1;
            let started = Instant::now();
            self.engine.commit(&writes)?;
            times.add(started.elapsed());
        }
        Ok(())
    }

    /// Returns the core time of each block that was applied since the last [`write`](Self::write), until nothing is left to flush or compact.
    pub(super) fn core_time(&self) -> anyhow::Result<Duration> {
        self.engine.maintain(Maintenance::Settle)?;
        let (started, mut times) = (cpu_time(), Times::default());
        self.write(&mut times)?;
        self.engine.maintain(Maintenance::Settle)?;
        Ok((cpu_time() - started) / times.count().max(1) as u32)
    }
}

impl Drop for Baseline {
    fn drop(&mut self) {
        self.recorder.want(false);
    }
}
