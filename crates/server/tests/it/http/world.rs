//! A real node on a store in a temporary directory, fed with blocks.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    http::{HeaderMap, Request, StatusCode, header},
};
use http_body_util::BodyExt as _;
use sapwood_chain::{
    ApplyMode, Chain, ChainOptions, ChainState, Events, FollowOptions, Follower, Progress, Stop,
};
use sapwood_conformance::fixtures::{block_hash, child, coin, coinbase, small};
use sapwood_engine_rocksdb::{OpenMode, Options, open_ledger};
use sapwood_ledger::{AddressIndexing, ApplyOptions, Ledger};
use sapwood_pruner::{Clock, Pruner, PrunerHandle, PrunerOptions, SystemClock};
use sapwood_server::{
    Access, Node, NodeParts, Secret, Tokens,
    address::ChainKind,
    http::{HttpOptions, router},
};
use sapwood_sources::synthetic::SyntheticSource;
use sapwood_types::{Block, BlockHash, Height, Tx};
use serde_json::Value;
use tokio::sync::watch;
use tower::ServiceExt as _;

pub(crate) const ADMIN: &str = "the-admin-token-of-the-tests";
pub(crate) const READ: &str = "the-read-token-of-the-tests";

/// An answer.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).unwrap()
    }

    /// The answer's JSON, which must come with 200.
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, StatusCode::OK, "{}", self.text());
        self.json()
    }

    /// The answer's detail, which must be a problem of this status and kind.
    pub(crate) fn problem(&self, status: u16, kind: &str) -> String {
        assert_eq!(self.status.as_u16(), status, "{}", self.text());
        assert_eq!(self.headers[header::CONTENT_TYPE], "application/problem+json");
        let problem = self.json();
        assert_eq!(problem["status"], status);
        assert_eq!(problem["type"], format!("urn:sapwood:problem:{kind}"));
        assert!(problem["title"].as_str().is_some_and(|title| !title.is_empty()));
        problem["detail"].as_str().expect("a problem has a detail").to_owned()
    }
}

/// How a world is made.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) tokens: Tokens,
    pub(crate) kind: ChainKind,
    pub(crate) index: AddressIndexing,
    pub(crate) most_body_bytes: usize,
    pub(crate) embedded: Options,
    pub(crate) progress: Option<watch::Receiver<Progress>>,
    /// A source that is followed for as long as the world is there.
    pub(crate) source: Option<SyntheticSource>,
    /// With no block for longer than this the node is not ready.
    pub(crate) no_block_after: Option<Duration>,
    pub(crate) pruner: PrunerOptions,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Default for Plan {
    fn default() -> Self {
        let secret = |text| Some(Secret::new(text).unwrap());
        Plan {
            tokens: Tokens { read: None, admin: secret(ADMIN) },
            kind: ChainKind::Other("test".into()),
            index: AddressIndexing { address: true, credential: true },
            most_body_bytes: 1024,
            embedded: Options::default().ledger(|ledger| ledger.record_cache_bytes = 8 << 20).engine(
                |engine| {
                    engine.block_cache_bytes = 8 << 20;
                    engine.write_buffer_bytes = 4 << 20;
                },
            ),
            progress: None,
            source: None,
            no_block_after: None,
            pruner: PrunerOptions { look_every: None, ..PrunerOptions::with_policy(small()) },
            clock: Arc::new(SystemClock),
        }
    }
}

impl Plan {
    /// Reading needs a token too.
    pub(crate) fn closed() -> Self {
        let mut plan = Self::default();
        plan.tokens.read = Some(Secret::new(READ).unwrap());
        plan
    }
}

pub(crate) struct World {
    pub(crate) store: Ledger,
    pub(crate) chain: Chain,
    pub(crate) pruner: PrunerHandle,
    pub(crate) node: Node,
    pub(crate) router: Router,
    stop: Stop,
    _directory: tempfile::TempDir,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.ask();
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::planned(Plan::default()).await
    }

    pub(crate) async fn planned(plan: Plan) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let embedded = plan.embedded.ledger(|ledger| ledger.address_index = plan.index);
        let store = open_ledger(directory.path(), OpenMode::Create, small(), embedded).unwrap();
        let events = Events::default();
        let options = ChainOptions { mode: ApplyMode::Sync, ..ChainOptions::default() };
        let chain = Chain::new(store.clone(), events.clone(), options);
        let pruner = Pruner::start(store.clone(), events, None, plan.pruner, plan.clock);
        let pruner = pruner.await.unwrap();
        let stop = Stop::default();
        let progress = match plan.source {
            None => plan.progress,
            Some(source) => {
                let wait = FollowOptions { wait: Duration::from_millis(50), ..FollowOptions::default() };
                let follower = Follower::new(chain.clone(), Arc::new(source), wait, stop.clone());
                let progress = follower.progress();
                tokio::spawn(async move { follower.follow().await.unwrap() });
                Some(progress)
            }
        };
        let node = Node::new(NodeParts {
            name: "test node".into(),
            store: store.clone(),
            chain: chain.clone(),
            pruner: pruner.clone(),
            kind: plan.kind,
            address_index: plan.index,
            progress,
            directory: Some(directory.path().to_owned()),
            ready_lag: 10,
            no_block_after: plan.no_block_after,
            disk_limit: None,
        });
        let access = Access::new(plan.tokens, "127.0.0.1:1".parse().unwrap()).unwrap();
        let options = HttpOptions { most_body_bytes: plan.most_body_bytes, ..HttpOptions::new(access) };
        let router = router(node.clone(), options);
        Self { store, chain, pruner, node, router, stop, _directory: directory }
    }

    /// Puts a block with these transactions on top.
    pub(crate) async fn extend(&self, txs: &[&Tx]) {
        let last = self.store.last_applied().await.unwrap();
        let height = last.map_or(Height::GENESIS, |last| last.height.next());
        let block = Block {
            height,
            hash: block_hash(&format!("{height}")),
            parent: last.map_or(BlockHash::default(), |last| last.hash),
            time: 1_700_000_000 + u64::from(height.0),
            txs: txs.iter().map(|tx| (*tx).clone()).collect(),
        };
        self.chain.apply(Arc::new(block), ApplyOptions::default()).await.unwrap();
    }

    /// Puts blocks on top that have nothing but a coinbase.
    pub(crate) async fn empty_blocks(&self, count: u32) {
        for _ in 0..count {
            let last = self.store.last_applied().await.unwrap();
            let label = last.map_or("first".into(), |last| format!("after {}", last.hash));
            self.extend(&[&coinbase(&label, 1)]).await;
        }
    }

    /// Runs the chain and has everything pruned that may go.
    pub(crate) async fn prune(&self) {
        self.chain.events().enter(ChainState::Running);
        let job = self.pruner.prune_now(None).unwrap();
        self.pruner.wait(job).await.unwrap();
    }

    /// A parent with two outputs, and a child of the first that is fully spent by another and has been pruned: the parent remembers it.
    pub(crate) async fn with_a_pruned_child(&self) -> (Tx, Tx) {
        let parent = coin("parent", 2);
        let pruned = child("pruned", &[(&parent, 0)], 1);
        let last = child("last", &[(&pruned, 0)], 1);
        self.extend(&[&parent]).await;
        self.extend(&[&pruned]).await;
        self.extend(&[&last]).await;
        self.empty_blocks(6).await;
        self.prune().await;
        assert_eq!(self.store.get(pruned.txid).await.unwrap(), None, "the child must be gone by now");
        (parent, pruned)
    }

    pub(crate) async fn call(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = tokio::time::timeout(Duration::from_secs(30), body.collect()).await.unwrap().unwrap();
        Answer { status: parts.status, headers: parts.headers, body: body.to_bytes() }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, None, None).await
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: Option<Value>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let body = body.map_or(Body::empty(), |body| Body::from(body.to_string()));
        self.call(request.body(body).unwrap()).await
    }
}
