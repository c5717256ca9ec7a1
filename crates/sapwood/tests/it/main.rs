//! The integration tests of this crate, in one binary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests: to panic is how they fail"
)]

mod commands;
mod doors;
mod findings;
mod following;
