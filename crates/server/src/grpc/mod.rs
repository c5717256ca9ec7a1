//! The gRPC services of `proto/sapwood/v1`, the standard health service, and reflection.
//!
//! - [`proto`]: what is generated from the `.proto` files.
//! - `field`: checking what clients send, and naming the field that is wrong.
//! - `convert`: between the words of the wire and our own.
//! - `utxo`, `chain`, `pruner`: the services. They check, convert, and hand over; they decide nothing.
//!
//! Which methods only read is said in the `.proto` files (`idempotency_level = NO_SIDE_EFFECTS`); all others need the admin token.
//! So a new method that nobody thought about is closed, not open.

mod chain;
mod convert;
mod field;
pub mod proto;
mod pruner;
mod utxo;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::State,
    http::Request,
    middleware::{self, Next},
    response::Response,
};
use sapwood_chain::{Chain, Stop};
use sapwood_pruner::PrunerHandle;
use tonic::service::Routes;
use tonic_health::{ServingStatus, server::HealthReporter};

use crate::{
    Access, AccessError, ListenError, ListenOptions, Listener, Need, Tokens,
    grpc::{
        chain::ChainService,
        proto::{chain_server::ChainServer, pruner_server::PrunerServer, utxo_server::UtxoServer},
        pruner::PrunerService,
        utxo::UtxoService,
    },
};

/// How much one call may carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrpcLimits {
    /// Bytes of one message from a client, and of an answer: 16 MiB by default.
    pub max_message_bytes: usize,
    /// Items of one batch, and entries of one page: 10,000 by default.
    pub max_items: usize,
}

impl Default for GrpcLimits {
    fn default() -> Self {
        Self { max_message_bytes: 16 << 20, max_items: 10_000 }
    }
}

/// Whether clients may hand over blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Feed {
    /// They may: the node has no source of its own.
    Open,
    /// They may not: the node follows this source.
    Closed {
        /// Its name, for people.
        source: String,
    },
}

/// What the services work on.
#[derive(Clone)]
pub struct GrpcServices {
    /// The chain and its store.
    pub chain: Chain,
    /// The pruner of that store.
    pub pruner: PrunerHandle,
    /// Whether clients may hand over blocks.
    pub feed: Feed,
}

/// Why gRPC cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum GrpcError {
    /// It would be open to everybody.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// It cannot listen.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The descriptors that were compiled in cannot be read.
    #[error("the descriptors of the services are broken: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// A gRPC server that listens and does not answer yet.
pub struct GrpcServer {
    listener: Listener,
    router: Router,
    health: HealthReporter,
    stop: Stop,
}

impl GrpcServer {
    /// Begins to listen.
    pub async fn bind(
        services: GrpcServices,
        options: ListenOptions,
        tokens: Tokens,
        limits: GrpcLimits,
        stop: Stop,
    ) -> Result<Self, GrpcError> {
        let access = Arc::new(Access::grpc(tokens, options.address)?);
        let health = HealthReporter::new();
        let router = router(services, limits, access, &health, &stop)?;
        let listener = Listener::bind(options).await?;
        tell(&health, ServingStatus::Serving).await;
        Ok(Self { listener, router, health, stop })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Answers until asked to stop, then finishes what is under way within `stop_within`.
    pub async fn serve(self, stop_within: Duration) {
        let Self { listener, router, health, stop } = self;
        let stopping = async {
            stop.asked().await;
            tell(&health, ServingStatus::NotServing).await;
        };
        tokio::join!(listener.serve(router, stop.clone(), stop_within), stopping);
    }
}

/// The names under which health is told; the first means all of them.
const SERVICES: [&str; 4] = ["", "sapwood.v1.Utxo", "sapwood.v1.Chain", "sapwood.v1.Pruner"];

async fn tell(health: &HealthReporter, status: ServingStatus) {
    for service in SERVICES {
        health.set_service_status(service, status).await;
    }
}

fn router(
    services: GrpcServices,
    limits: GrpcLimits,
    access: Arc<Access>,
    health: &HealthReporter,
    stop: &Stop,
) -> Result<Router, GrpcError> {
    let GrpcServices { chain, pruner, feed } = services;
    let most = limits.max_message_bytes;
    let store = Arc::clone(chain.store());
    let utxo =
        UtxoService { store: Arc::clone(&store), chain: chain.clone(), pruner: pruner.clone(), limits };
    let chain = ChainService { chain, pruner: pruner.clone(), feed, limits, stop: stop.clone() };
    let stop = stop.clone();
    let pruner = PrunerService { pruner, store, limits, stop };
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let health = tonic_health::server::HealthService::from_health_reporter(health.clone());
    let routes = Routes::default()
        .add_service(UtxoServer::new(utxo).max_decoding_message_size(most))
        .add_service(ChainServer::new(chain).max_decoding_message_size(most))
        .add_service(PrunerServer::new(pruner).max_decoding_message_size(most))
        .add_service(tonic_health::pb::health_server::HealthServer::new(health))
        .add_service(reflection().build_v1()?)
        // Older clients know only this one.
        .add_service(reflection().build_v1alpha()?);
    Ok(routes.into_axum_router().layer(middleware::from_fn_with_state(access, check_access)))
}

async fn check_access(State(access): State<Arc<Access>>, request: Request<Body>, next: Next) -> Response {
    match access.check(request.headers(), need(request.uri().path())) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.answer(request.headers()),
    }
}

/// What a method needs, by its path.
fn need(path: &str) -> Need {
    if path.starts_with("/grpc.health.v1.Health/") {
        Need::Nothing
    } else if path.starts_with("/grpc.reflection.") || proto::READS.contains(&path) {
        Need::Read
    } else {
        Need::Admin
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_something_needs_the_admin_token_and_so_does_what_is_not_known() {
        let need_of = |method: &str| need(&format!("/sapwood.v1.{method}"));
        let reads = ["Utxo/Get", "Chain/GetStatus", "Chain/Subscribe", "Pruner/GetStatus", "Pruner/Explain"];
        for method in reads {
            assert_eq!(need_of(method), Need::Read, "{method}");
        }
        let changes =
            ["Utxo/Create", "Chain/ApplyBlocks", "Pruner/Prune", "Pruner/SetHold", "Utxo/New", "Utxo/get"];
        for method in changes {
            assert_eq!(need_of(method), Need::Admin, "{method}");
        }
        assert_eq!(need("/grpc.health.v1.Health/Check"), Need::Nothing);
        assert_eq!(need("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"), Need::Read);
    }
}
