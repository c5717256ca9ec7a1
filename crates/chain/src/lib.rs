//! Following a chain: planning, applying and taking back blocks, reconciling, reorganising, and telling about it.

pub mod events;

pub use events::{ChainState, Event, Events, Latest, Subscription, Told};
