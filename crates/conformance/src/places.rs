//! Where the rows of engines under test are, and ledgers over them.

use std::sync::Arc;

use async_trait::async_trait;
use sapwood_ledger::{
    Ledger, LedgerOptions,
    engine::{Engine, EngineError, Table},
};
use sapwood_rules::Policy;

use crate::{Store, StoreFactory, StorePlace};

/// Makes places for rows.
pub trait EngineFactory: Send + Sync {
    /// Makes a place without rows. What it needs, for example a temporary directory, is removed with it.
    fn place(&self) -> Box<dyn Place>;
}

/// A place for rows. It outlives the engine that is opened on it.
pub trait Place: Send + Sync {
    /// Opens the rows that are there. An engine that was opened before is closed by then.
    fn open(&self) -> Opened;

    /// Opens the rows for reading only. `None` if this engine cannot.
    fn open_read_only(&self) -> Option<Opened> {
        None
    }

    /// Damages a row so that the engine itself notices, while none is open. `false` if that cannot be done. Other rows may suffer, too.
    fn damage(&self, _: Table, _: &[u8]) -> bool {
        false
    }
}

/// Places of one kind, by how they are made and opened.
///
/// ```ignore
/// let memory = Places::new(MemoryEngine::new, |engine| Ok(Arc::new(engine.reopen())));
/// ```
pub struct Places<T> {
    make: fn() -> T,
    how: How<T>,
}

/// How a place is opened and damaged.
struct How<T> {
    open: fn(&T) -> Opened,
    open_read_only: Option<fn(&T) -> Opened>,
    damage: Option<fn(&T, Table, &[u8])>,
}

impl<T> Clone for How<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for How<T> {}

/// An open engine, or why there is none.
pub type Opened = Result<Arc<dyn Engine>, EngineError>;

impl<T> Places<T> {
    /// Makes places with `make`, and opens the rows there with `open`.
    pub fn new(make: fn() -> T, open: fn(&T) -> Opened) -> Self {
        Self { make, how: How { open, open_read_only: None, damage: None } }
    }

    /// Opens the rows for reading only.
    #[must_use]
    pub fn read_only(mut self, open: fn(&T) -> Opened) -> Self {
        self.how.open_read_only = Some(open);
        self
    }

    /// Damages a row so that the engine itself notices.
    #[must_use]
    pub fn damage(mut self, damage: fn(&T, Table, &[u8])) -> Self {
        self.how.damage = Some(damage);
        self
    }
}

/// One place of [`Places`].
struct PlaceOf<T> {
    at: T,
    how: How<T>,
}

impl<T: Send + Sync + 'static> EngineFactory for Places<T> {
    fn place(&self) -> Box<dyn Place> {
        Box::new(PlaceOf { at: (self.make)(), how: self.how })
    }
}

impl<T: Send + Sync> Place for PlaceOf<T> {
    fn open(&self) -> Opened {
        (self.how.open)(&self.at)
    }

    fn open_read_only(&self) -> Option<Opened> {
        self.how.open_read_only.map(|open| open(&self.at))
    }

    fn damage(&self, table: Table, key: &[u8]) -> bool {
        self.how.damage.map(|damage| damage(&self.at, table, key)).is_some()
    }
}

/// Stores for the suite and the state machine: ledgers over any engine.
pub struct Ledgers<F> {
    engines: F,
    options: OptionsOf,
}

/// Makes options for a policy, so that many cases try both ways of a choice.
type OptionsOf = fn(&Policy) -> LedgerOptions;

impl<F: EngineFactory> Ledgers<F> {
    /// Makes ledgers with these options over engines of a factory.
    pub fn new(engines: F, options: OptionsOf) -> Self {
        Self { engines, options }
    }
}

impl<F: EngineFactory> StoreFactory for Ledgers<F> {
    fn place(&self) -> Box<dyn StorePlace> {
        Box::new(LedgerPlace { place: self.engines.place(), options: self.options })
    }
}

struct LedgerPlace {
    place: Box<dyn Place>,
    options: OptionsOf,
}

#[async_trait]
impl StorePlace for LedgerPlace {
    async fn open(&self, policy: Policy) -> Arc<dyn Store> {
        let engine = self.place.open().expect("an engine");
        Arc::new(Ledger::open(engine, policy, (self.options)(&policy)).expect("a ledger"))
    }
}
