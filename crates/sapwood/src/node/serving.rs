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
use tokio::{
    runtime::{Builder, Runtime},
    sync::watch,
    task::JoinHandle,
};

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
    /// Whether threads that answer requests have a lower priority than those that apply blocks.
    pub(crate) give_way: bool,
    /// Names besides `localhost` under which HTTP may be asked for without a token.
    pub(crate) host_names: Vec<String>,
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
    /// Where requests are answered. Taken when it ends.
    answering: Option<Runtime>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        // A runtime that is dropped waits for its threads, which nobody may do here.
        if let Some(answering) = self.answering.take() {
            answering.shutdown_background();
        }
    }
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
        // From here on a failure has to end the runtime as well, so it is part of what is returned.
        let answering = answering(parts.give_way)?;
        let handle = answering.handle().clone();
        let mut serving = Self {
            node: node.clone(),
            pruner: pruner.clone(),
            http: None,
            tasks: Vec::new(),
            sampling,
            stop: Stop::default(),
            answering: Some(answering),
        };
        let stop = serving.stop.clone();
        let ServerOptions { grpc, http, tokens, grpc_limits, stop_within } = parts.servers;
        if parts.serve.0 {
            let feed = Feed::Closed { source: parts.source };
            let services = GrpcServices { chain: parts.chain, pruner: pruner.clone(), feed };
            let server = GrpcServer::bind(services, grpc, tokens.clone(), grpc_limits, stop.clone());
            let server = handle.spawn(server).await?.context("serving gRPC")?;
            tracing::info!(address = %server.address(), "serving gRPC");
            serving.tasks.push(handle.spawn(server.serve(stop_within)));
        }
        if parts.serve.1 {
            let access = Access::http(tokens, http.address).context("serving HTTP")?;
            let options = HttpOptions {
                refresh: parts.refresh,
                host_names: parts.host_names,
                stop: Some(stop.clone()),
                ..HttpOptions::new(access)
            };
            let router = router(node, options);
            let listener = handle.spawn(Listener::bind(http)).await?.context("serving HTTP")?;
            serving.http = Some(listener.address());
            serving.tasks.push(handle.spawn(listener.serve(router, stop, stop_within)));
        }
        Ok(serving)
    }

    /// Ends everything in order: nobody is let in any more, the pruner comes to the end of a chunk, then the servers go.
    pub(crate) async fn end(mut self) {
        self.stop.ask();
        self.pruner.stop().await;
        for task in std::mem::take(&mut self.tasks) {
            if let Err(error) = task.await {
                tracing::warn!(%error, "a server ended abnormally");
            }
        }
        self.sampling.abort();
    }
}

/// How much lower the priority of threads that answer requests is: where they compete for a processor, one of them gets about a
/// thirtieth of what a thread that applies blocks gets.
#[cfg(target_os = "linux")]
const NICE: i32 = 15;

/// Threads of their own for those who ask, so that however much they ask, a block finds a processor.
///
/// Few threads, for reading too: a priority belongs to a thread, and many of a low one weigh as much as one of a high one.
fn answering(give_way: bool) -> anyhow::Result<Runtime> {
    let threads = std::thread::available_parallelism().map_or(2, |cores| cores.get().max(2));
    let mut builder = Builder::new_multi_thread();
    builder.enable_all().thread_name("sapwood-answers").worker_threads(threads);
    if give_way {
        builder.max_blocking_threads(threads);
        // On Linux this is about the calling thread alone. Elsewhere it would be about the whole process, which would help nobody.
        #[cfg(target_os = "linux")]
        builder.on_thread_start(|| {
            if let Err(error) = rustix::process::nice(NICE) {
                tracing::debug!(%error, "a thread keeps its priority");
            }
        });
    }
    builder.build().context("starting the threads that answer requests")
}
