//! The block store: adding and replacing blocks, and the transactions that wait for one.

mod append;
mod queue;

pub use append::{Appended, Continuity};
