//! What happens to the chain, told to whoever wants to know.
//!
//! Telling never waits: a subscriber that is too slow loses the oldest events and is told how many ([`Told::Missed`]). The latest
//! event of each kind can be read at any time ([`Events::latest`]), so that whoever missed something, or came late, knows where
//! things stand.

use std::sync::Arc;

use parking_lot::RwLock;
use sapwood_types::{BlockMark, Height, TxId};
use tokio::sync::{broadcast, watch};

/// How many events a subscriber may lag behind before it misses some.
pub const EVENTS_KEPT: usize = 1024;

/// Whether the chain is being followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum ChainState {
    /// It is being compared with its source, before anything else.
    #[default]
    Resetting,
    /// Blocks are applied that others have known for long.
    CatchingUp,
    /// It is at the tip.
    Running,
    /// A branch is being exchanged for another one.
    Reorganising,
    /// It cannot go on for now: its source cannot be reached, lacks blocks, or has a chain that cannot be applied.
    Stalled,
    /// It is not followed any more.
    Stopped,
    /// No source is followed: a command looks at the data directory of a node that does not run.
    Offline,
}

impl ChainState {
    /// Whether records may be deleted in this state. Catching up is as good as running: blocks come in order and are applied one
    /// by one, and a disk must not fill up because there are many of them. Offline no block comes at all. Where blocks may go back at any moment, nothing goes.
    pub fn lets_prune(self) -> bool {
        matches!(self, ChainState::Running | ChainState::CatchingUp | ChainState::Offline)
    }

    /// The name used in messages and interfaces.
    pub fn name(self) -> &'static str {
        match self {
            ChainState::Resetting => "resetting",
            ChainState::CatchingUp => "catching_up",
            ChainState::Running => "running",
            ChainState::Reorganising => "reorganising",
            ChainState::Stalled => "stalled",
            ChainState::Stopped => "stopped",
            ChainState::Offline => "offline",
        }
    }
}

impl std::fmt::Display for ChainState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A block was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockApplied {
    /// The block.
    pub block: BlockMark,
    /// How many transactions it has.
    pub transactions: usize,
    /// Unmined transactions that lost against it, with their descendants.
    pub conflicting: Vec<TxId>,
}

/// Blocks were taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlocksRolledBack {
    /// The last applied block before.
    pub from: BlockMark,
    /// The last applied block now.
    pub to: Option<BlockMark>,
    /// How many blocks were taken back.
    pub blocks: u32,
}

/// A branch is exchanged for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReorgStarted {
    /// The last applied block.
    pub from: BlockMark,
    /// The last block both branches have. Nothing if they have none in common.
    pub fork: Option<Height>,
    /// How many blocks go.
    pub depth: u32,
}

/// A branch was exchanged, or the attempt was given up and the old branch restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReorgFinished {
    /// The last applied block now.
    pub to: Option<BlockMark>,
    /// Whether the new branch is in place. Otherwise it was bad and the old one is back, or the source could not be read further
    /// and the rest follows when it can.
    pub adopted: bool,
}

/// A block was written somewhere safe by the persister.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPersisted {
    /// All blocks up to this height are safe.
    pub height: Height,
}

/// Something happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A block was applied.
    BlockApplied(BlockApplied),
    /// Blocks were taken back.
    RolledBack(BlocksRolledBack),
    /// A reorganisation began.
    ReorgStarted(ReorgStarted),
    /// A reorganisation ended.
    ReorgFinished(ReorgFinished),
    /// All transactions of a block are marked as mined.
    MinedSet(BlockMark),
    /// The persister wrote a block.
    BlockPersisted(BlockPersisted),
    /// The chain is in another state.
    StateChanged(ChainState),
}

/// The latest event of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latest {
    /// The last block that was applied.
    pub block_applied: Option<BlockApplied>,
    /// The last rollback.
    pub rolled_back: Option<BlocksRolledBack>,
    /// The last reorganisation that began.
    pub reorg_started: Option<ReorgStarted>,
    /// The last reorganisation that ended.
    pub reorg_finished: Option<ReorgFinished>,
    /// The last block whose transactions are all marked as mined.
    pub mined_set: Option<BlockMark>,
    /// How far the persister is.
    pub block_persisted: Option<BlockPersisted>,
    /// The state of the chain.
    pub state: ChainState,
}

/// What a subscriber is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// An event.
    Event(Arc<Event>),
    /// The subscriber was too slow for this many events. [`Events::latest`] says where things stand.
    Missed(u64),
}

/// Where events are told and heard. Clones share it.
#[derive(Clone, Debug)]
pub struct Events {
    sender: broadcast::Sender<Arc<Event>>,
    latest: Arc<RwLock<Latest>>,
    /// Apart from the rest, because everybody waits for it.
    state: watch::Sender<ChainState>,
}

impl Default for Events {
    fn default() -> Self {
        Self::new(EVENTS_KEPT)
    }
}

impl Events {
    /// A bus on which a subscriber may lag `kept` events behind.
    pub fn new(kept: usize) -> Self {
        let (sender, _) = broadcast::channel(kept.max(1));
        let (state, _) = watch::channel(ChainState::default());
        Self { sender, latest: Arc::default(), state }
    }

    /// Tells everybody. Never waits.
    pub fn tell(&self, event: Event) {
        {
            let mut latest = self.latest.write();
            match &event {
                Event::BlockApplied(event) => latest.block_applied = Some(event.clone()),
                Event::RolledBack(event) => latest.rolled_back = Some(event.clone()),
                Event::ReorgStarted(event) => latest.reorg_started = Some(*event),
                Event::ReorgFinished(event) => latest.reorg_finished = Some(*event),
                Event::MinedSet(block) => latest.mined_set = Some(*block),
                Event::BlockPersisted(event) => latest.block_persisted = Some(*event),
                Event::StateChanged(state) => latest.state = *state,
            }
        }
        if let Event::StateChanged(state) = event {
            self.state.send_replace(state);
        }
        // Nobody listening is fine.
        let _ = self.sender.send(Arc::new(event));
    }

    /// Says that the chain is in this state, if it was in another one.
    pub fn enter(&self, state: ChainState) {
        if *self.state.borrow() != state {
            self.tell(Event::StateChanged(state));
        }
    }

    /// The latest event of each kind.
    pub fn latest(&self) -> Latest {
        self.latest.read().clone()
    }

    /// The state of the chain.
    pub fn state(&self) -> ChainState {
        *self.state.borrow()
    }

    /// The state of the chain, to wait for changes.
    pub fn watch_state(&self) -> watch::Receiver<ChainState> {
        self.state.subscribe()
    }

    /// Hears everything from now on.
    pub fn subscribe(&self) -> Subscription {
        Subscription(self.sender.subscribe())
    }
}

/// One listener.
#[derive(Debug)]
pub struct Subscription(broadcast::Receiver<Arc<Event>>);

impl Subscription {
    /// What happened next. Nothing once the bus is gone.
    pub async fn next(&mut self) -> Option<Told> {
        match self.0.recv().await {
            Ok(event) => Some(Told::Event(event)),
            Err(broadcast::error::RecvError::Lagged(missed)) => Some(Told::Missed(missed)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn persisted(height: u32) -> Event {
        Event::BlockPersisted(BlockPersisted { height: Height(height) })
    }

    #[tokio::test]
    async fn a_slow_subscriber_learns_how_much_it_missed_and_nobody_waits_for_it() {
        let events = Events::new(4);
        let mut slow = events.subscribe();
        for height in 1..=10 {
            events.tell(persisted(height));
        }
        assert_eq!(slow.next().await, Some(Told::Missed(6)));
        assert_eq!(slow.next().await, Some(Told::Event(Arc::new(persisted(7)))));
        assert_eq!(events.latest().block_persisted, Some(BlockPersisted { height: Height(10) }));
    }

    #[tokio::test]
    async fn a_state_is_told_once() {
        let events = Events::default();
        let mut subscriber = events.subscribe();
        events.enter(ChainState::Running);
        events.enter(ChainState::Running);
        events.enter(ChainState::Stopped);
        for state in [ChainState::Running, ChainState::Stopped] {
            assert_eq!(subscriber.next().await, Some(Told::Event(Arc::new(Event::StateChanged(state)))));
        }
        assert_eq!(events.latest().state, ChainState::Stopped);
        drop(events);
        assert_eq!(subscriber.next().await, None);
    }
}
