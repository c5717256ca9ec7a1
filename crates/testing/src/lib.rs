//! What tests of several crates share. No crate depends on it but for its tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests: to panic is how they fail"
)]

pub mod data;
pub mod fake_node;
pub mod fixture;
pub mod grpc;
pub mod regtest;
