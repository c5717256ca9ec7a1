//! What the outside sees: gRPC, REST, metrics and the status page.
//!
//! - [`listen`] accepts connections for every server here: TLS, limits, time-outs, an orderly stop.
//! - [`access`] decides who may do what: tokens, and what is open on loopback.
//! - [`refusal`] is the answer to whoever is turned away, in the words of the protocol.
//! - [`grpc`] has the services of `proto/sapwood/v1`.
//!
//! No decision about what is kept or deleted is made here.

pub mod access;
pub mod grpc;
pub mod listen;
mod options;
pub mod refusal;
mod seldom;

pub use access::{Access, AccessError, Need, Secret, SecretError, Tokens};
pub use listen::{ListenError, ListenOptions, Listener, TlsError, TlsFiles};
pub use options::ServerOptions;
pub use refusal::Refusal;
/// Asks servers to stop.
pub use sapwood_chain::Stop;
