//! `sapwood run` and `sapwood import` and their sources: nodes that stop and change, directories that go away, bad blocks.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may")]

#[path = "../../../sources/tests/bitcoin/fake_node.rs"]
mod fake_node;
mod imports;
mod nodes;
mod process;
#[path = "../../../sources/tests/bitcoin/regtest_maker.rs"]
mod regtest_maker;
