//! A node at work: the chain on its store, the pruner, and the servers.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context;
use sapwood_chain::{Chain, Progress, Stop};
use sapwood_pruner::{Bodies, Pruner, PrunerHandle, PrunerOptions, SystemClock};
use sapwood_server::{
    Access, Listener, Node, NodeParts, ServerOptions,
    address::ChainKind,
    grpc::{Feed, GrpcServer, GrpcServices},
    http::{HttpOptions, router},
};
use sapwood_store::{AddressIndexing, Store};
use tokio::{sync::watch, task::JoinHandle};

/// What a node is put together from.
pub(crate) struct Parts {
    pub(crate) name: String,
    pub(crate) chain: Chain,
    pub(crate) kind: ChainKind,
    pub(crate) address_index: AddressIndexing,
    pub(crate) progress: watch::Receiver<Progress>,
    pub(crate) directory: PathBuf,
    pub(crate) source: String,
    pub(crate) bodies: Option<Bodies>,
    pub(crate) pruner: PrunerOptions,
    pub(crate) servers: ServerOptions,
    /// Whether gRPC and HTTP are served.
    pub(crate) serve: (bool, bool),
    /// How often the page asks for news, and figures are measured.
    pub(crate) refresh: Duration,
    /// With more blocks to go than this, the node is not ready.
    pub(crate) ready_lag: u64,
    /// Disk use above which there is an alert.
    pub(crate) disk_limit: Option<u64>,
}

/// A node at work.
pub(crate) struct Serving {
    pub(crate) node: Node,
    pub(crate) pruner: PrunerHandle,
    /// Where the status page is, if HTTP is served.
    pub(crate) http: Option<SocketAddr>,
    tasks: Vec<JoinHandle<()>>,
    sampling: JoinHandle<()>,
    stop: Stop,
}

impl Serving {
    /// Starts the pruner and the servers.
    pub(crate) async fn start(parts: Parts) -> anyhow::Result<Self> {
        let store: Arc<dyn Store> = Arc::clone(parts.chain.store());
        let events = parts.chain.events().clone();
        let pruner =
            Pruner::start(Arc::clone(&store), events, parts.bodies, parts.pruner, Arc::new(SystemClock))
                .await?;
        let node = Node::new(NodeParts {
            name: parts.name,
            store,
            chain: parts.chain.clone(),
            pruner: pruner.clone(),
            kind: parts.kind,
            address_index: parts.address_index,
            progress: Some(parts.progress),
            directory: Some(parts.directory),
            ready_lag: parts.ready_lag,
            disk_limit: parts.disk_limit,
        });
        let sampling = node.keep_sampling(parts.refresh);
        let (stop, mut tasks) = (Stop::default(), Vec::new());
        let ServerOptions { grpc, http, tokens, grpc_limits, stop_within } = parts.servers;
        let mut address = None;
        if parts.serve.0 {
            let feed = Feed::Closed { source: parts.source };
            let services = GrpcServices { chain: parts.chain, pruner: pruner.clone(), feed };
            let server = GrpcServer::bind(services, grpc, tokens.clone(), grpc_limits, stop.clone());
            let server = server.await.context("serving gRPC")?;
            tracing::info!(address = %server.address(), "serving gRPC");
            tasks.push(tokio::spawn(server.serve(stop_within)));
        }
        if parts.serve.1 {
            let access = Access::http(tokens, http.address).context("serving HTTP")?;
            let options =
                HttpOptions { refresh: parts.refresh, stop: Some(stop.clone()), ..HttpOptions::new(access) };
            let router = router(node.clone(), options);
            let listener = Listener::bind(http).await.context("serving HTTP")?;
            address = Some(listener.address());
            let asked = stop.clone();
            tasks.push(tokio::spawn(async move { listener.serve(router, asked, stop_within).await }));
        }
        Ok(Self { node, pruner, http: address, tasks, sampling, stop })
    }

    /// Ends everything in order: nobody is let in any more, the pruner comes to the end of a chunk, then the servers go.
    pub(crate) async fn end(self) {
        self.stop.ask();
        self.pruner.stop().await;
        for task in self.tasks {
            if let Err(error) = task.await {
                tracing::warn!(%error, "a server ended abnormally");
            }
        }
        self.sampling.abort();
    }
}
