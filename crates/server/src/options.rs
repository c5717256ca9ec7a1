//! What an operator may set.

use std::time::Duration;

use crate::{Tokens, grpc::GrpcLimits, listen::ListenOptions};

/// Everything that can be set about the servers.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Where gRPC is served: 127.0.0.1:8096 by default.
    pub grpc: ListenOptions,
    /// Where HTTP is served: 127.0.0.1:8097 by default.
    pub http: ListenOptions,
    /// Who may do what: no tokens by default, which is enough for reading on loopback. See [`crate::access`].
    pub tokens: Tokens,
    /// How much one gRPC call may carry.
    pub grpc_limits: GrpcLimits,
    /// How long requests that are in flight get when the server stops: 8 s by default. Then their connections are dropped.
    pub stop_within: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            grpc: ListenOptions::grpc(),
            http: ListenOptions::http(),
            tokens: Tokens::default(),
            grpc_limits: GrpcLimits::default(),
            stop_within: Duration::from_secs(8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_addresses_are_the_defaults() {
        let options = ServerOptions::default();
        let addresses = [options.grpc.address, options.http.address].map(|address| address.to_string());
        assert_eq!(addresses, ["127.0.0.1:8096", "127.0.0.1:8097"]);
    }
}
