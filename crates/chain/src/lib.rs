//! Following a chain: applying and taking back blocks, reconciling, reorganising, and telling about it.
//!
//! - [`Chain`] puts blocks onto a store and takes them back, one after the other, at once or through a queue.
//! - [`BodyKeeper`] keeps bodies of large transactions outside the store; the chain has them put there before it writes records.
//! - [`Follower`] keeps a chain where its source is: it reconciles at start, catches up, changes branches, and goes back if the
//!   new one turns out bad. [`Progress`] says how far it is, and [`SourceHealth`] what keeps it from going on.
//! - [`Events`] tells everybody, and waits for nobody. [`block_times`] is when blocks were made.

pub mod block_times;
mod bodies;
mod chain;
mod error;
pub mod events;
mod follow;
mod health;
mod progress;
mod queue;
mod reorg;
mod timing;

pub use bodies::{Body, BodyClaim, BodyFailure, BodyKeeper};
pub use chain::{ApplyMode, Chain, ChainFigures, ChainOptions, DEFAULT_QUEUE};
pub use error::ChainError;
pub use events::{ChainState, Event, Events, Latest, Subscription, Told};
pub use follow::{FollowOptions, Follower, LONGEST_PAUSE, LONGEST_REFUSAL, Rejected, Stop};
pub use health::{BelowFloor, Failing, RefusedBlock, SourceHealth, SourceState};
pub use progress::Progress;
pub use timing::{Timing, TimingSummary};

/// How many blocks are handed to the store in one go while catching up. Whoever else wants to write waits for all of them, and
/// they are told of when all are applied.
pub const LONGEST_RUN: usize = 8;
