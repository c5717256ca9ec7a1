//! The integration tests of this crate, in one binary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests: to panic is how they fail"
)]

mod door;
mod grpc;
mod http;
mod listen;
mod page;
mod python;
mod security;
mod support;
