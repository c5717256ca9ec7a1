//! Following real chains and made-up ones.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may")]

mod asynchronous;
mod bad_branches;
mod core_chains;
mod data;
mod scripted;
mod trouble;
