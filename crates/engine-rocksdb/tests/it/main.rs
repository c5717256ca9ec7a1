//! The integration tests of this crate, in one binary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests: to panic is how they fail"
)]

mod backup;
mod child_check;
mod conformance;
mod crash_loop;
mod damaged_files;
mod disk_full;
mod displaced;
mod dump;
mod engine_options;
mod harness;
mod identity;
mod lost_writes;
mod midst_of_a_write;
mod migrations;
mod open;
mod read_only;
mod space;
mod state_machine;
mod unreadable;
mod utxo_set;
mod verify;
mod write_fixture;
