//! A data directory that no node has open: the same router, in this process.

use std::{
    hash::{BuildHasher as _, RandomState},
    path::Path,
    sync::Arc,
};

use axum::{Router, body::Body, http::Request};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use reqwest::{
    Method, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use sapwood_chain::{Chain, ChainOptions, ChainState, Events, Progress};
use sapwood_ledger::{Ledger, StoreError};
use sapwood_pruner::{Bodies, Pruner, PrunerHandle, PrunerOptions, SystemClock};
use sapwood_server::{
    Access as ServerAccess, Node, NodeParts, Secret, Tokens,
    http::{HttpOptions, router},
};
use sapwood_sources::ChainPoint;
use serde_json::Value;
use tokio::sync::watch;
use tower::ServiceExt as _;

use super::Access;
use crate::{
    config::{BodiesSection, Config, required_maturity},
    node::{Directory, Offline},
    status::noted_tip,
};

/// A data directory that no node has open.
pub(super) struct Local {
    router: Router,
    pruner: PrunerHandle,
    token: String,
}

impl Local {
    pub(super) async fn open(
        directory: &Directory,
        config: Option<&Path>,
        access: Access,
    ) -> anyhow::Result<Self> {
        let Offline { node, store, policy } = match access {
            Access::Look | Access::LookAtBodies => directory.look().await?,
            Access::Change => directory.change().await?,
        };
        let config = match directory.config(config) {
            Ok(config) => config,
            // What does not look at bodies need not know where they are.
            Err(error) if access == Access::Look => {
                tracing::warn!("{error:#}");
                Config::default()
            }
            Err(error) => return Err(error),
        };
        let bodies = open_bodies(&config.bodies, directory, &store, access).await?;
        let options = PrunerOptions {
            required_maturity: node.bitcoin().and_then(required_maturity),
            // What the configuration said last: nothing is decided again by looking.
            policy: policy.configuration(),
            ..config.pruner
        };
        let progress = last_known(&store).await?;
        let store = store;
        let events = Events::default();
        events.enter(ChainState::Offline);
        let chain = Chain::new(store.clone(), events, ChainOptions::default());
        let pruner = Pruner::offline(store.clone(), bodies, options, Arc::new(SystemClock)).await?;
        let parts = NodeParts {
            name: node.identity(),
            store,
            chain,
            pruner: pruner.clone(),
            kind: node.kind(),
            address_index: node.indexing(),
            progress: Some(watch::channel(progress).1),
            directory: Some(directory.path().to_owned()),
            ready_lag: u64::MAX,
            no_block_after: None,
            disk_limit: None,
        };
        let random = || RandomState::new().hash_one(0u8);
        let token = format!("{:016x}{:016x}", random(), random());
        let tokens = Tokens { read: None, admin: Some(Secret::new(&token)?) };
        let access = ServerAccess::new(tokens, ([127, 0, 0, 1], 0).into())?;
        let router = router(Node::new(parts), HttpOptions::new(access));
        Ok(Self { router, pruner, token })
    }

    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(AUTHORIZATION, format!("Bearer {}", self.token));
        let body = match body {
            Some(body) => {
                request = request.header(CONTENT_TYPE, "application/json");
                Body::from(serde_json::to_vec(body)?)
            }
            None => Body::empty(),
        };
        let Ok(answer) = self.router.clone().oneshot(request.body(body)?).await;
        let status = answer.status();
        Ok((status, answer.into_body().collect().await?.to_bytes()))
    }

    pub(super) async fn close(self) {
        self.pruner.stop().await;
    }
}

/// How far the source was when it was last asked. What is applied is known for sure.
async fn last_known(store: &Ledger) -> Result<Progress, StoreError> {
    let applied = store.last_applied().await?.map(|last| ChainPoint::new(last.height, last.hash));
    let noted = noted_tip(store).await?;
    let height = applied.map(|applied| applied.height);
    let tip = noted.filter(|noted| Some(noted.height) > height).or(applied);
    let mut progress = Progress::default();
    (progress.height, progress.tip) = (height, tip);
    (progress.source.tip, progress.source.best_height) = (tip, tip.map(|tip| tip.height));
    Ok(progress)
}

/// The bodies of the store. `None` if there are none and none may be made.
async fn open_bodies(
    section: &BodiesSection,
    directory: &Directory,
    store: &Ledger,
    access: Access,
) -> anyhow::Result<Option<Bodies>> {
    let reading = access != Access::Change;
    if reading && section.place(directory).is_some_and(|place| !place.exists()) {
        return Ok(None);
    }
    // Reading marks no place as its own.
    if reading && store.note(sapwood_pruner::bodies::OWNER_NOTE).await?.is_none() {
        return Ok(Some(Bodies::open(&section.location(&directory.bodies()))?));
    }
    section.open(directory, store).await.map(Some)
}
