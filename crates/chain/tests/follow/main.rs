//! Following real chains and made-up ones.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may")]

mod asynchronous;
mod bad_branches;
mod coins;
mod core_chains;
mod data;
mod real_blocks;
mod refused_blocks;
mod rivals;
mod rows;
mod scripted;
mod trouble;
