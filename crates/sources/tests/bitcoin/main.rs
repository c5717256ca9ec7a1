//! Bitcoin as a source of blocks, tried on real blocks and on damaged ones, in files and from a node.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests: to panic is how they fail"
)]

mod branches;
mod data;
mod fake_node;
mod hostile;
mod live;
mod mainnet;
mod node;
mod node_trouble;
mod regtest;
mod regtest_maker;
mod shuffled;
mod survey;
mod utxo;
