//! An engine that calls back around each commit.

use std::{path::Path, sync::Arc};

use sapwood_engine_memory::MemoryEngine;
use sapwood_ledger::engine::{
    Capabilities, Engine, EngineError, EngineStats, Maintenance, Table, View, WriteSet,
};

type Hook = Box<dyn Fn(&WriteSet) -> Result<(), EngineError> + Send + Sync>;

pub(crate) struct HookedEngine {
    pub(crate) inner: Arc<MemoryEngine>,
    pub(crate) before: Hook,
    pub(crate) after: Hook,
}

impl Engine for HookedEngine {
    fn kind(&self) -> &'static str {
        self.inner.kind()
    }

    fn place(&self) -> String {
        self.inner.place()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn position(&self) -> Result<u64, EngineError> {
        self.inner.position()
    }

    fn view(&self) -> Result<Box<dyn View + '_>, EngineError> {
        self.inner.view()
    }

    fn commit(&self, writes: &WriteSet) -> Result<(), EngineError> {
        (self.before)(writes)?;
        self.inner.commit(writes)?;
        (self.after)(writes)
    }

    fn stats(&self, table: Option<Table>) -> Result<EngineStats, EngineError> {
        self.inner.stats(table)
    }

    fn maintain(&self, work: Maintenance) -> Result<(), EngineError> {
        self.inner.maintain(work)
    }

    fn backup(&self, directory: &Path) -> Result<(), EngineError> {
        self.inner.backup(directory)
    }
}
