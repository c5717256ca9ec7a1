//! The JSON-RPC methods.

mod agree;
mod envelope;
mod fees;
mod logs;
mod lookups;
mod real;
mod shapes;
