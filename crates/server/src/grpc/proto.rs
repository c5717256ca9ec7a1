//! What is generated from `proto/sapwood/v1`: messages, servers, and clients for tests and tools.

#![allow(missing_docs, unreachable_pub, clippy::all, reason = "generated code")]

tonic::include_proto!("sapwood.v1");

include!(concat!(env!("OUT_DIR"), "/reads.rs"));

/// The descriptors of all files, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
