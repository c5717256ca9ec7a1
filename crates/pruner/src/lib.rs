//! The pruner service: when to prune, what holds it back, and what it did.
//!
//! **What lives here.** Triggers, holds, jobs and their phases, external bodies, and the answers to "why is this still there?" and "what
//! would go now?". **What may not.** Which backend the store has, and any rule about when a record is useless: that is `sapwood-rules`.
//!
//! # Layers
//! - [`options`]: what can be set. [`clock`]: the time of day, as an argument.
//! - [`policy`]: how long things are kept, kept in the store. [`holds`]: who still needs the past, kept in the store. `safety`: the safe height that follows.
//! - `requests`, [`jobs`]: the one request that waits, and what became of each.
//! - `blocked`: what retains records, as the store counts it. `retained`: what a job found retained, and what cannot be read.
//! - `run`: the phases of a job. `pace`: making way for blocks. [`bodies`]: bodies in an object store.
//! - `service`: the task that hears events and does jobs. `handle`: what others do with it.
//! - [`explain`], [`plan`], [`status`], [`metrics`]: what it shows.
//!
//! # Correctness
//! The pruner decides *when* and *up to where*; the store judges each record again in the write that deletes it, with the rules and
//! the safe height of that moment. A mistake here can delete too late, or ask for something the store then keeps. What it has to get
//! right by itself is the safe height (never above what the chain, the persister and every hold let go), the order of body
//! and record, and that nothing is deleted before all parents of old unmined transactions are preserved.

mod blocked;
pub mod bodies;
pub mod clock;
pub mod explain;
mod handle;
pub mod holds;
pub mod jobs;
pub mod metrics;
pub mod options;
mod pace;
pub mod plan;
pub mod policy;
mod requests;
mod retained;
mod run;
mod safety;
mod service;
#[cfg(feature = "serde")]
pub mod span;
pub mod status;
pub mod text;
mod totals;

pub use blocked::BLOCKED_REASONS;
pub use bodies::{Bodies, BodyError, BodyLocation, S3Config, S3Credentials};
pub use clock::{Clock, ManualClock, SystemClock};
pub use explain::{Explanation, Guard};
pub use handle::PrunerHandle;
pub use holds::{Consumer, HoldError, HoldKind, HoldStatus, Holds};
pub use jobs::{Job, JobCounts, JobDurations, JobId, JobState, StopReason, Trigger};
pub use metrics::PrunerMetrics;
pub use options::{OptionsError, Pacing, PrunerOptions};
pub use plan::Plan;
pub use policy::{POLICY_NOTE, PolicyOrigin, PolicyState, Shortening, settle_policy};
pub use run::RunError;
pub use service::{ENABLED_NOTE, Pruner, PrunerError};
pub use status::{JOBS_SHOWN, PrunerStatus, TOTALS_NOTE, Totals};
