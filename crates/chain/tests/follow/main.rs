//! Following real chains and made-up ones.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may")]

mod asynchronous;
mod bad_branches;
mod big_block;
mod coins;
mod core_chains;
mod data;
mod events;
mod growing_files;
mod health;
mod no_room;
mod real_blocks;
mod refused_blocks;
#[path = "../../../sources/tests/bitcoin/regtest_maker.rs"]
mod regtest_maker;
mod rivals;
mod rows;
mod scripted;
mod trouble;
mod wedges;
