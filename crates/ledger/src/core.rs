//! The open ledger: its engine, its one writer, and the refusal to go on after a failed write.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use parking_lot::{Mutex, RwLock};
use sapwood_rules::Policy;
use sapwood_types::DecodeError;

use crate::{
    LedgerOptions, StoreError, UtxoSet,
    cache::RecordCache,
    commit,
    due_start::DueStart,
    engine::{Engine, EngineError, WriteSet},
    gate::Gate,
    mined::MinedHeights,
    read::Snapshot,
    recent::RecentWrites,
    settled::Settled,
    state::State,
    writer::Writer,
};

pub(crate) struct Core {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) options: LedgerOptions,
    /// The network it holds, as it was named when the ledger was made. `None` if it was never named.
    pub(crate) identity: Option<String>,
    pub(crate) policy: RwLock<Policy>,
    /// Its holder is the one writer.
    pub(crate) writer: Mutex<Writer>,
    /// Held during a commit.
    committing: Mutex<()>,
    /// The number of the last commit. Every view taken after it was read has that commit.
    number: AtomicU64,
    /// Makes pruning wait for blocks.
    pub(crate) gate: Gate,
    /// The state as of the last write, for readers.
    pub(crate) published: RwLock<State>,
    /// The UTXO set as of the last write, for readers.
    pub(crate) published_utxo_set: RwLock<Option<UtxoSet>>,
    /// How many records settled at each height as of the last write. Changed by the writer only.
    pub(crate) settled: RwLock<Settled>,
    pub(crate) recent: RecentWrites,
    pub(crate) due_start: DueStart,
    /// Changed by the writer only.
    pub(crate) mined: RwLock<MinedHeights>,
    poison: RwLock<Option<String>>,
}

pub(crate) fn corrupt(what: impl Into<String>, cause: DecodeError) -> StoreError {
    StoreError::Corrupt { what: what.into(), cause }
}

impl Core {
    pub(crate) fn open(
        engine: Arc<dyn Engine>,
        policy: Policy,
        options: LedgerOptions,
    ) -> Result<Self, StoreError> {
        policy.validate().map_err(|error| StoreError::BadOption { problem: error.to_string() })?;
        options.validate()?;
        let cache = RecordCache::new(options.record_cache_bytes);
        let mined = RwLock::new(MinedHeights::new(options.mined_heights_bytes));
        let number = AtomicU64::new(engine.position()?);
        let mut core = Core {
            engine,
            options,
            identity: None,
            policy: RwLock::new(policy),
            writer: Mutex::new(Writer::new(State::default(), cache)),
            committing: Mutex::default(),
            number,
            gate: Gate::default(),
            published: RwLock::default(),
            published_utxo_set: RwLock::default(),
            settled: RwLock::default(),
            recent: RecentWrites::default(),
            due_start: DueStart::default(),
            mined,
            poison: RwLock::default(),
        };
        let state = core.check_schema()?;
        core.take_identity()?;
        let rolling = core.stored_utxo_set(state.last())?;
        core.publish_utxo_set(&rolling);
        core.writer.get_mut().rolling = rolling;
        core.writer.get_mut().state = state.clone();
        *core.published.get_mut() = state;
        core.log_options();
        Ok(core)
    }

    /// Takes a view of all rows as of the last commit.
    pub(crate) fn snapshot(&self) -> Result<Snapshot<'_>, StoreError> {
        Ok(Snapshot::new(self.engine.view()?))
    }

    /// Takes a view, and returns the number of the last commit that is in it.
    pub(crate) fn numbered_snapshot(&self) -> Result<(u64, Snapshot<'_>), StoreError> {
        let _no_commit = self.committing.lock();
        Ok((self.number(), self.snapshot()?))
    }

    /// Whether a change of this many records is worth a second core.
    pub(crate) fn is_large(&self, records: usize) -> bool {
        records >= self.options.two_cores_from
    }

    pub(crate) fn is_read_only(&self) -> bool {
        !self.engine.capabilities().write.is_yes()
    }

    /// Calls the seam for tests.
    pub(crate) fn reached(&self, point: &'static str) -> Result<(), StoreError> {
        match &self.options.faults {
            None => Ok(()),
            Some(faults) => {
                faults.reached(point).map_err(|cause| EngineError::Failed { doing: point, cause }.into())
            }
        }
    }

    /// Refuses if an earlier write failed, or the engine is open for reading only.
    pub(crate) fn check_poison(&self) -> Result<(), StoreError> {
        if self.is_read_only() {
            return Err(EngineError::ReadOnly { place: self.engine.place() }.into());
        }
        match self.poison.read().clone() {
            None => Ok(()),
            Some(cause) => Err(StoreError::Poisoned { cause }),
        }
    }

    /// Returns the number of the last commit. Every view taken afterwards has it.
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Commits rows: all of them or none. Returns the number of the commit. A failure poisons the ledger, because memory and engine may
    /// differ from then on.
    pub(crate) fn commit_rows(&self, mut writes: WriteSet) -> Result<u64, StoreError> {
        let _one_at_a_time = self.committing.lock();
        self.check_poison()?;
        writes.number = self.number() + 1;
        let written = self
            .reached("before-write")
            .and_then(|()| Ok(commit::commit(&*self.engine, &writes, self.options.retry_commits_for)?))
            .and_then(|()| self.reached("after-write"));
        match &written {
            Ok(()) => self.number.store(writes.number, Ordering::Release),
            Err(error) => self.poison(&error.to_string()),
        }
        written.map(|()| writes.number)
    }

    /// Refuses all further writes.
    pub(crate) fn poison(&self, cause: &str) {
        self.poison.write().get_or_insert_with(|| cause.to_owned());
    }
}
