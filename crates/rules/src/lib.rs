//! When a stored transaction has become useless, and why it is still there.
//!
//! **What lives here.** Pure functions over `sapwood-types`: no I/O, no clock, no async. Heights and times are arguments.
//! **What may not.** Storage of any kind. Whoever reads this crate knows everything Sapwood believes about deletion.
//!
//! # Layers
//! - [`policy`]: the numbers an operator chooses, and the values that are refused because they are unsafe.
//! - [`lifecycle`]: when a record is *settled*, and the height at which it may go: settled + retention.
//! - [`spendability`]: may this output be spent, checked in the documented order.
//! - [`holds`]: who still needs the past, and the safe height that follows.
//! - [`verdict`]: may it go, or kept because of what, with the figures; and the independent check of children.
//! - [`readings`]: where the documents disagree, which reading is taken. Each one is a doc test.
//!
//! # Correctness
//! A record is settled only if its own first page proves it: mined on the longest chain, every output that could be spent
//! is spent, and every spender is mined, each of which the slot remembers. All else is "not settled". Nothing here ever
//! concludes "may go" from something it does not know.

pub mod holds;
pub mod lifecycle;
pub mod policy;
pub mod readings;
pub mod spendability;
pub mod verdict;

pub use holds::{Hold, SafeHeight, safe_height};
pub use lifecycle::{delete_at, settled_at};
pub use policy::{Policy, PolicyChange, PolicyError, PolicyField};
pub use spendability::{SpendRefusal, SpendStatus};
pub use verdict::{ChildEvidence, KeepReason, PruneContext, Verdict, judge};
