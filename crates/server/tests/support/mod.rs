//! A server on an embedded store in a directory of its own, and a client that speaks to it.
#![allow(dead_code, unreachable_pub, reason = "every test file uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::{
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use hyper::{Request, Response, body::Incoming, client::conn::http2::SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use sapwood_chain::{Chain, ChainOptions, Events};
use sapwood_pruner::{Pruner, PrunerHandle, PrunerOptions, SystemClock};
use sapwood_rules::Policy;
use sapwood_server::{
    ListenOptions, Node, NodeParts, Secret, Stop, TlsReload, Tokens,
    address::ChainKind,
    grpc::{
        Feed, GrpcError, GrpcLimits, GrpcServer, GrpcServices,
        proto::{chain_client::ChainClient, pruner_client::PrunerClient, utxo_client::UtxoClient},
    },
};
use sapwood_store::AddressIndexing;
use sapwood_store_embedded::{EmbeddedOptions, EmbeddedStore};
use tempfile::TempDir;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    task::JoinHandle,
};
use tonic::body::Body;

pub const ADMIN: &str = "admin-token-0123456789";

/// How a server is started.
pub struct Setup {
    pub listen: ListenOptions,
    pub tokens: Tokens,
    pub limits: GrpcLimits,
    pub feed: Feed,
    pub with_node: bool,
    pub events_kept: usize,
    pub stop_within: Duration,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            listen: ListenOptions { address: "127.0.0.1:0".parse().unwrap(), ..ListenOptions::grpc() },
            tokens: Tokens { read: None, admin: Secret::new(ADMIN).ok() },
            limits: GrpcLimits::default(),
            feed: Feed::Open,
            with_node: false,
            events_kept: 1024,
            stop_within: Duration::from_secs(5),
        }
    }
}

/// A server that runs.
pub struct Server {
    pub address: SocketAddr,
    pub chain: Chain,
    pub pruner: PrunerHandle,
    pub node: Node,
    pub tls: Option<TlsReload>,
    pub stop: Stop,
    pub task: JoinHandle<()>,
    directory: TempDir,
}

impl Setup {
    pub async fn try_start(self) -> Result<Server, GrpcError> {
        let directory = tempfile::tempdir().unwrap();
        let options = EmbeddedOptions {
            block_cache_bytes: 1 << 20,
            record_cache_bytes: 1 << 20,
            address_index: AddressIndexing { address: true, credential: false },
            utxo_hash: true,
            ..Default::default()
        };
        let store = EmbeddedStore::open(directory.path(), Policy::default(), options).unwrap();
        let events = Events::new(self.events_kept);
        let chain = Chain::new(Arc::new(store), events, ChainOptions::default());
        let options = PrunerOptions { look_every: None, ..PrunerOptions::with_policy(Policy::default()) };
        let clock = Arc::new(SystemClock);
        let (store, events) = (Arc::clone(chain.store()), chain.events().clone());
        let pruner = Pruner::start(store, events, None, options, clock).await.unwrap();
        let node = Node::new(NodeParts {
            name: "test node".into(),
            store: Arc::clone(chain.store()),
            chain: chain.clone(),
            pruner: pruner.clone(),
            kind: ChainKind::Other("test".into()),
            address_index: AddressIndexing { address: true, credential: false },
            progress: None,
            directory: None,
            ready_lag: 10,
            no_block_after: None,
            disk_limit: None,
        });
        let services = GrpcServices {
            chain: chain.clone(),
            pruner: pruner.clone(),
            feed: self.feed,
            node: self.with_node.then(|| node.clone()),
        };
        let stop = Stop::default();
        let server = GrpcServer::bind(services, self.listen, self.tokens, self.limits, stop.clone()).await?;
        let (address, tls) = (server.address(), server.tls());
        let task = tokio::spawn(server.serve(self.stop_within));
        Ok(Server { address, chain, pruner, node, tls, stop, task, directory })
    }

    pub async fn start(self) -> Server {
        self.try_start().await.unwrap()
    }
}

impl Server {
    pub async fn wire(&self) -> Wire {
        Wire::over(TcpStream::connect(self.address).await.unwrap()).await
    }

    /// A connection of an operator.
    pub async fn admin(&self) -> Wire {
        self.wire().await.with_token(ADMIN)
    }

    pub async fn utxo(&self) -> UtxoClient<Wire> {
        UtxoClient::with_origin(self.admin().await, origin())
    }

    pub async fn chain(&self) -> ChainClient<Wire> {
        ChainClient::with_origin(self.admin().await, origin())
    }

    pub async fn pruner(&self) -> PrunerClient<Wire> {
        PrunerClient::with_origin(self.admin().await, origin())
    }

    /// Asks the server to stop and waits for its end.
    pub async fn end(self) {
        self.stop.ask();
        self.task.await.unwrap();
        self.pruner.stop().await;
    }
}

pub fn origin() -> hyper::Uri {
    "http://sapwood".parse().unwrap()
}

/// One HTTP/2 connection, with a token or without.
#[derive(Clone)]
pub struct Wire {
    sender: SendRequest<Body>,
    token: Option<String>,
}

impl Wire {
    pub async fn over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        Self::try_over(stream).await.unwrap()
    }

    pub async fn try_over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> hyper::Result<Self> {
        let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self { sender, token: None })
    }

    pub fn with_token(self, token: &str) -> Self {
        Self { token: Some(token.into()), ..self }
    }
}

impl tower::Service<Request<Body>> for Wire {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = BoxFuture<'static, hyper::Result<Response<Incoming>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.sender.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if let Some(token) = &self.token {
            request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        self.sender.send_request(request).boxed()
    }
}
