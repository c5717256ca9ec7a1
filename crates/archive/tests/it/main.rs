//! The archive on a file and an engine in memory, and on files on disk.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests: to panic is how they fail"
)]

mod bitcoin;
mod blocks;
mod budget;
mod concurrent;
mod crash;
mod damage;
mod disk_full;
mod export;
mod hooked;
mod measure;
mod model;
mod open;
mod prune;
mod regions;
mod state_machine;
mod world;
