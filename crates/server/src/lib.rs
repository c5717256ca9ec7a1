//! What the outside sees: gRPC, REST, metrics and the status page.
//!
//! - [`listen`] accepts connections for every server here: TLS, limits, time-outs, an orderly stop.
//! - [`access`] decides who may do what: tokens, and what is open on loopback. `audit` logs every change with who asked for it.
//! - [`refusal`] is the answer to whoever is turned away, in the words of the protocol.
//! - [`grpc`] has the services of `proto/sapwood/v1`.
//! - [`views`] is what goes out as JSON, here and from the command line.
//! - [`Node`] is what the other servers are given. [`status`] is the one place where its figures are put together; [`metrics`] are
//!   the same figures for Prometheus; [`http`] is REST and the status page, which show them.
//!
//! No decision about what is kept or deleted is made here.
//!
//! # Correctness
//! Every figure that HTTP shows anywhere comes from one [`StatusReport`](status::StatusReport), made once a second. REST, metrics and
//! page cannot disagree, because none of them reads anything itself.

pub mod access;
pub mod address;
mod audit;
pub mod cursor;
pub mod grpc;
pub mod http;
pub mod listen;
pub mod listing;
pub mod metrics;
pub mod node;
mod options;
mod places;
pub mod refusal;
mod seldom;
pub mod status;
pub mod views;

pub use access::{Access, AccessError, Caller, Need, Role, Secret, SecretError, SharedTokens, Tokens};
pub use listen::{ListenError, ListenOptions, Listener, TlsError, TlsFiles, TlsReload};
pub use node::{Node, NodeParts};
pub use options::ServerOptions;
pub use refusal::Refusal;
/// Asks servers to stop.
pub use sapwood_chain::Stop;
