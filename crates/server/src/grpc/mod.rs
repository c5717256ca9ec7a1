//! The gRPC services of `proto/sapwood/v1`, the standard health service, and reflection.
//!
//! - [`proto`]: what is generated from the `.proto` files. [`codec`]: how its messages are read.
//! - `field`: checking what clients send, and naming the field that is wrong.
//! - `convert`: between the words of the wire and our own.
//! - `utxo`, `chain`, `pruner`: the services. They check, convert, and hand over; they decide nothing.
//! - `door`: who may call what, before any service sees it. `audit`: what was called, for the log.
//!
//! Which methods only read is said in the `.proto` files (`idempotency_level = NO_SIDE_EFFECTS`); all others need the admin token.
//! So a new method that nobody thought about is closed, not open.

mod audit;
mod chain;
pub mod codec;
mod convert;
mod door;
mod field;
pub mod proto;
mod pruner;
mod utxo;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, middleware};
use sapwood_chain::{Chain, Stop};
use sapwood_pruner::PrunerHandle;
use tonic::service::Routes;
use tonic_health::{ServingStatus, server::HealthReporter};

use crate::{
    Access, AccessError, ListenError, ListenOptions, Listener, Node, SharedTokens, TlsReload,
    grpc::{
        chain::ChainService,
        door::Door,
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

/// Whether clients may hand over blocks and write UTXOs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Feed {
    /// They may: the node has no source of its own.
    Open,
    /// They may not: the node follows a source, which would contradict them.
    Closed {
        /// The name of the source, for people.
        source: String,
        /// Whether clients may freeze, unfreeze, reassign, lock and preserve all the same.
        utxo_admin: bool,
    },
}

/// What the services work on.
#[derive(Clone)]
pub struct GrpcServices {
    /// The chain and its store.
    pub chain: Chain,
    /// The pruner of that store.
    pub pruner: PrunerHandle,
    /// Whether clients may hand over blocks and write UTXOs.
    pub feed: Feed,
    /// The node whose readiness `grpc.health.v1` tells. `None`: it serves for as long as the server runs.
    pub node: Option<Node>,
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

/// How often `grpc.health.v1` is brought up to date.
const HEALTH_EVERY: Duration = Duration::from_millis(500);

/// A gRPC server that listens and does not answer yet.
pub struct GrpcServer {
    listener: Listener,
    router: Router,
    health: HealthReporter,
    node: Option<Node>,
    stop: Stop,
}

impl GrpcServer {
    /// Begins to listen.
    pub async fn bind(
        services: GrpcServices,
        options: ListenOptions,
        tokens: impl Into<SharedTokens>,
        limits: GrpcLimits,
        stop: Stop,
    ) -> Result<Self, GrpcError> {
        let access = Arc::new(Access::new(tokens, options.address)?);
        let (health, node) = (HealthReporter::new(), services.node.clone());
        let router = router(services, limits, Arc::clone(&access), &health, &stop)?;
        let listener = Listener::bind(options).await?.with_access(access);
        let first = if node.is_none() { ServingStatus::Serving } else { ServingStatus::NotServing };
        tell(&health, first).await;
        Ok(Self { listener, router, health, node, stop })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// What reads the certificate again. `None` without TLS.
    pub fn tls(&self) -> Option<TlsReload> {
        self.listener.tls()
    }

    /// Answers until asked to stop, then finishes what is in flight within `stop_within`.
    pub async fn serve(self, stop_within: Duration) {
        let Self { listener, router, health, node, stop } = self;
        let telling = async {
            if let Some(node) = &node {
                let _ = stop.or(follow_readiness(node, &health)).await;
            }
            stop.asked().await;
            tell(&health, ServingStatus::NotServing).await;
        };
        tokio::join!(listener.serve(router, stop.clone(), stop_within), telling);
    }
}

/// Tells whether the node is ready, for as long as it is polled.
async fn follow_readiness(node: &Node, health: &HealthReporter) {
    let mut told = None;
    loop {
        let ready = node.readiness().await.ready;
        if told != Some(ready) {
            tell(health, if ready { ServingStatus::Serving } else { ServingStatus::NotServing }).await;
            told = Some(ready);
        }
        tokio::time::sleep(HEALTH_EVERY).await;
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
    let GrpcServices { chain, pruner, feed, node: _ } = services;
    let door = Door { access, feed: feed.clone() };
    let most = limits.max_message_bytes;
    let store = chain.store().clone();
    let utxo = UtxoService { store: store.clone(), chain: chain.clone(), pruner: pruner.clone(), limits };
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
    Ok(routes.into_axum_router().layer(middleware::from_fn_with_state(door, door::enter)))
}
