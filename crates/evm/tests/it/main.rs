//! What the crate promises, with real chains and without.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests: to panic is how they fail"
)]

mod chains;
mod hostile;
mod import;
mod memory;
mod rpc;
mod synthetic;
