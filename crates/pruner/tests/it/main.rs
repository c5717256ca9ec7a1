//! What the pruner promises, on the embedded store in a temporary directory: one file for each promise.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests: to panic is how they fail"
)]

mod blocked;
mod bodies_in_a_directory;
mod bodies_of_blocks;
mod bodies_on_s3;
mod crash;
mod explain_and_plan;
mod harness;
mod holds;
mod incidents;
mod jobs;
mod long_run;
mod parallel_chunks;
mod pauses;
mod reorganisations;
mod restarts;
mod s3_server;
mod settings;
mod simulation;
mod start;
mod timelines;
mod triggers;
mod two_phases;
mod unreadable;
mod upgrade;
