//! HTTP on a real node.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod world;

mod access;
mod agree;
mod blocks;
mod control;
mod documents;
mod events;
mod flood;
mod health;
mod hostile;
mod names;
mod outside;
mod reads;
