//! A server on an embedded store in a directory of its own, and a client that speaks to it.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use sapwood_chain::{Chain, ChainOptions, Events};
use sapwood_engine_rocksdb::{OpenMode, Options, open_ledger};
use sapwood_ledger::{AddressIndexing, Ledger};
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
use tempfile::TempDir;
use tokio::{net::TcpStream, task::JoinHandle};

pub(crate) use sapwood_testing::grpc::{Wire, origin};

pub(crate) const ADMIN: &str = "admin-token-0123456789";

/// How a server is started.
pub(crate) struct Setup {
    pub(crate) listen: ListenOptions,
    pub(crate) tokens: Tokens,
    pub(crate) limits: GrpcLimits,
    pub(crate) feed: Feed,
    pub(crate) with_node: bool,
    pub(crate) events_kept: usize,
    pub(crate) stop_within: Duration,
    /// The directory of a store that is there already. `None`: a new one.
    pub(crate) directory: Option<TempDir>,
}

/// Opens a store, or makes one.
pub(crate) fn open(directory: &Path) -> Ledger {
    let options = Options::default()
        .ledger(|ledger| {
            ledger.record_cache_bytes = 1 << 20;
            ledger.address_index = AddressIndexing { address: true, credential: false };
            ledger.utxo_hash = true;
        })
        .engine(|engine| engine.block_cache_bytes = 1 << 20);
    open_ledger(directory, OpenMode::Create, Policy::default(), options).unwrap()
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
            directory: None,
        }
    }
}

/// A server that runs.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) chain: Chain,
    pub(crate) pruner: PrunerHandle,
    pub(crate) node: Node,
    pub(crate) tls: Option<TlsReload>,
    pub(crate) stop: Stop,
    pub(crate) task: JoinHandle<()>,
    /// Removed with the server.
    _directory: TempDir,
}

impl Setup {
    pub(crate) async fn try_start(self) -> Result<Server, GrpcError> {
        let directory = self.directory.unwrap_or_else(|| tempfile::tempdir().unwrap());
        let store = open(directory.path());
        let events = Events::new(self.events_kept);
        let chain = Chain::new(store, events, ChainOptions::default());
        let options = PrunerOptions { look_every: None, ..PrunerOptions::with_policy(Policy::default()) };
        let clock = Arc::new(SystemClock);
        let (store, events) = (chain.store().clone(), chain.events().clone());
        let pruner = Pruner::start(store, events, None, options, clock).await.unwrap();
        let node = Node::new(NodeParts {
            name: "test node".into(),
            store: chain.store().clone(),
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
        Ok(Server { address, chain, pruner, node, tls, stop, task, _directory: directory })
    }

    pub(crate) async fn start(self) -> Server {
        self.try_start().await.unwrap()
    }
}

impl Server {
    pub(crate) async fn wire(&self) -> Wire {
        Wire::over(TcpStream::connect(self.address).await.unwrap()).await
    }

    /// A connection of an operator.
    pub(crate) async fn admin(&self) -> Wire {
        self.wire().await.with_token(ADMIN)
    }

    pub(crate) async fn utxo(&self) -> UtxoClient<Wire> {
        UtxoClient::with_origin(self.admin().await, origin())
    }

    pub(crate) async fn chain(&self) -> ChainClient<Wire> {
        ChainClient::with_origin(self.admin().await, origin())
    }

    pub(crate) async fn pruner(&self) -> PrunerClient<Wire> {
        PrunerClient::with_origin(self.admin().await, origin())
    }

    /// Asks the server to stop and waits for its end.
    pub(crate) async fn end(self) {
        self.stop.ask();
        self.task.await.unwrap();
        self.pruner.stop().await;
    }
}
