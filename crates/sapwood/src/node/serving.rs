//! A node at work: the chain on its store, the pruner, and the servers.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use sapwood_chain::{Chain, Follower, Progress, Stop};
use sapwood_ledger::AddressIndexing;
use sapwood_pruner::{Bodies, Pruner, PrunerHandle, PrunerOptions, SystemClock};
use sapwood_rules::Policy;
use sapwood_server::{
    Access, ListenOptions, Listener, Node, NodeParts, ServerOptions, SharedTokens, TlsReload,
    address::ChainKind,
    grpc::{Feed, GrpcLimits, GrpcServer, GrpcServices},
    http::{HttpOptions, router},
};
use sapwood_sources::{BlockSource as _, synthetic::SyntheticSource};
use tokio::{
    runtime::{Builder, Runtime},
    sync::watch,
    task::JoinHandle,
};

use super::{
    private::{self, Endpoints, EndpointsFile},
    reload::Doors,
};

/// What a node is put together from.
pub(crate) struct Parts {
    pub(crate) name: String,
    pub(crate) chain: Chain,
    pub(crate) kind: ChainKind,
    pub(crate) address_index: AddressIndexing,
    /// How far the follower is. `None` if the node is fed.
    pub(crate) progress: Option<watch::Receiver<Progress>>,
    pub(crate) directory: PathBuf,
    /// Where blocks come from.
    pub(crate) feed: Feed,
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
    /// Whether to measure what takes more time.
    pub(crate) heavy_statistics: bool,
    /// With more blocks to go than this, the node is not ready.
    pub(crate) ready_lag: u64,
    /// With no block for longer than this there is an alert. `None` for never.
    pub(crate) no_block_after: Option<Duration>,
    /// Disk use above which there is an alert.
    pub(crate) disk_limit: Option<u64>,
}

impl Parts {
    /// A node that follows a made-up chain, with an index of addresses, at the addresses that are usual.
    pub(crate) fn of_synthetic(
        name: &str,
        chain: Chain,
        follower: &Follower,
        source: &SyntheticSource,
        directory: &Path,
        policy: Policy,
    ) -> Self {
        Self {
            name: name.into(),
            chain,
            kind: ChainKind::Bitcoin(sapwood_sources::bitcoin::Network::Regtest.into()),
            address_index: AddressIndexing { address: true, credential: false },
            progress: Some(follower.progress()),
            directory: directory.to_owned(),
            feed: Feed::Closed { source: source.name(), utxo_admin: false },
            bodies: None,
            pruner: PrunerOptions::with_policy(policy),
            servers: ServerOptions::default(),
            serve: (true, true),
            give_way: true,
            host_names: Vec::new(),
            refresh: Duration::from_secs(1),
            heavy_statistics: true,
            ready_lag: 6,
            no_block_after: None,
            disk_limit: None,
        }
    }
}

/// A node at work.
pub(crate) struct Serving {
    pub(crate) node: Node,
    pub(crate) pruner: PrunerHandle,
    /// Where the status page is, if HTTP is served.
    pub(crate) http: Option<SocketAddr>,
    doors: Doors,
    endpoints: Option<EndpointsFile>,
    tasks: Vec<JoinHandle<()>>,
    sampling: JoinHandle<()>,
    stop: Stop,
    /// Where requests are answered. Taken when it ends.
    answering: Option<Runtime>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        // A runtime that is dropped waits for its threads, which must not be done here.
        if let Some(answering) = self.answering.take() {
            answering.shutdown_background();
        }
    }
}

impl Serving {
    /// Starts the pruner and the servers. If one of them cannot be started, nothing is left running.
    pub(crate) async fn start(parts: Parts) -> anyhow::Result<Self> {
        let ServerOptions { grpc, http, tokens, grpc_limits, stop_within } = parts.servers;
        for (served, listen) in [(parts.serve.0, &grpc), (parts.serve.1, &http)] {
            if served {
                Access::new(tokens.clone(), listen.address)?;
            }
        }
        if let Some(files) = &http.tls {
            private::warn_if_key_is_open(files);
        }
        let tokens = SharedTokens::from(private::tokens(tokens, &parts.directory)?);
        let store = parts.chain.store().clone();
        let events = parts.chain.events().clone();
        let pruner =
            Pruner::start(store.clone(), events, parts.bodies, parts.pruner, Arc::new(SystemClock)).await?;
        let directory = parts.directory;
        let node = Node::new(NodeParts {
            name: parts.name,
            store,
            chain: parts.chain.clone(),
            pruner: pruner.clone(),
            kind: parts.kind,
            address_index: parts.address_index,
            progress: parts.progress,
            directory: Some(directory.clone()),
            ready_lag: parts.ready_lag,
            no_block_after: parts.no_block_after,
            disk_limit: parts.disk_limit,
        });
        node.set_heavy_statistics(parts.heavy_statistics);
        // From here on a failure has to end what runs, so it is part of what is ended.
        let mut serving = Self {
            node: node.clone(),
            pruner: pruner.clone(),
            http: None,
            doors: Doors { tokens: tokens.clone(), tls: Vec::new(), directory: directory.clone() },
            endpoints: None,
            tasks: Vec::new(),
            sampling: node.keep_sampling(parts.refresh),
            stop: Stop::default(),
            answering: None,
        };
        let services = parts.serve.0.then(|| {
            let (node, feed) = (Some(node.clone()), parts.feed);
            (GrpcServices { chain: parts.chain, pruner, feed, node }, grpc_limits, grpc)
        });
        let http = parts.serve.1.then(|| {
            let stop = Some(serving.stop.clone());
            (http, move |access| HttpOptions {
                refresh: parts.refresh,
                host_names: parts.host_names,
                stop,
                ..HttpOptions::new(access)
            })
        });
        match serving.open_doors(parts.give_way, tokens, services, http, stop_within).await {
            Ok(()) => Ok(serving),
            Err(error) => {
                serving.end().await;
                Err(error)
            }
        }
    }

    /// Begins to listen at both doors, and then to answer at both.
    async fn open_doors(
        &mut self,
        give_way: bool,
        tokens: SharedTokens,
        grpc: Option<(GrpcServices, GrpcLimits, ListenOptions)>,
        http: Option<(ListenOptions, impl FnOnce(Arc<Access>) -> HttpOptions)>,
        stop_within: Duration,
    ) -> anyhow::Result<()> {
        let answering = answering(give_way)?;
        let handle = answering.handle().clone();
        self.answering = Some(answering);
        let mut endpoints = Endpoints { http: None, grpc: None, pid: std::process::id() };
        let grpc = match grpc {
            None => None,
            Some((services, limits, options)) => {
                let server = GrpcServer::bind(services, options, tokens.clone(), limits, self.stop.clone());
                let server = handle.spawn(server).await?.context("serving gRPC")?;
                endpoints.grpc = Some(self.door(server.address(), server.tls()));
                Some(server)
            }
        };
        let http = match http {
            None => None,
            Some((listen, options)) => {
                let access = Arc::new(Access::new(tokens, listen.address).context("serving HTTP")?);
                let listener = handle.spawn(Listener::bind(listen)).await?.context("serving HTTP")?;
                self.http = Some(listener.address());
                endpoints.http = Some(self.door(listener.address(), listener.tls()));
                let router = router(self.node.clone(), options(Arc::clone(&access)));
                Some((listener.with_access(access), router))
            }
        };
        if let Some(server) = grpc {
            tracing::info!(address = endpoints.grpc, "serving gRPC");
            self.tasks.push(handle.spawn(server.serve(stop_within)));
        }
        if let Some((listener, router)) = http {
            tracing::info!(address = endpoints.http, "serving HTTP");
            self.tasks.push(handle.spawn(listener.serve(router, self.stop.clone(), stop_within)));
        }
        self.endpoints = Some(EndpointsFile::write(&self.doors.directory, endpoints)?);
        Ok(())
    }

    /// Notes a door, and says under which address a client on this machine finds it.
    fn door(&mut self, mut address: SocketAddr, tls: Option<TlsReload>) -> String {
        if address.ip().is_unspecified() {
            address.set_ip(match address.ip() {
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        let scheme = if tls.is_some() { "https" } else { "http" };
        self.doors.tls.extend(tls);
        format!("{scheme}://{address}")
    }

    /// The address of the status page for a browser. `None` if HTTP is not served.
    pub(crate) fn page(&self) -> Option<String> {
        let address = self.endpoints.as_ref()?.endpoints().http.as_ref()?;
        Some(format!("{address}/"))
    }

    /// The address of gRPC. `None` if it is not served.
    pub(crate) fn grpc(&self) -> Option<&str> {
        self.endpoints.as_ref()?.endpoints().grpc.as_deref()
    }

    /// What can be changed about the doors while the node runs.
    pub(crate) fn doors(&self) -> Doors {
        self.doors.clone()
    }

    /// Ends everything in order: no new connections, the pruner comes to the end of a chunk, then the servers go, and their threads.
    pub(crate) async fn end(mut self) {
        drop(self.endpoints.take());
        self.stop.ask();
        self.pruner.stop().await;
        for task in std::mem::take(&mut self.tasks) {
            if let Err(error) = task.await {
                tracing::warn!(%error, "a server ended abnormally");
            }
        }
        self.sampling.abort();
        if let Some(answering) = self.answering.take() {
            // Waits, which must not be done on a thread that others work on.
            let ended = tokio::task::spawn_blocking(move || answering.shutdown_timeout(LAST_ANSWERS)).await;
            if let Err(error) = ended {
                tracing::warn!(%error, "the threads that answer requests ended abnormally");
            }
        }
    }
}

/// How long threads that answer requests get to end after the last answer.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

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
