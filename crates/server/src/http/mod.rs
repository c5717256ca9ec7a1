//! HTTP: REST, metrics, health and the status page.
//!
//! - [`router`] puts it together. [`problem`]: errors. `extract`: what comes in. [`crate::views`]: what goes out.
//! - `state`: status, history, engine, health, metrics. `reads`, `blocks`: what is stored. `prune`, `policy`, `consumers`: the pruner and
//!   holds.
//!   `events`, `hub`: what happens, as it happens. `page`: the files of the pages. [`openapi`]: the description of all of it.
//!
//! Who may read and who may change something is decided by [`Access`]: everything that changes something takes an `Admin` out of the
//! request, everything else under `/api/v1` and `/metrics` passes a check for reading. The pages themselves have no figures in them and
//! are open, so that they can ask for a token.

mod blocks;
mod consumers;
mod events;
mod extract;
mod hub;
pub mod openapi;
mod page;
pub mod policy;
pub mod problem;
mod prune;
mod reads;
mod state;
mod task;
pub mod utxo_set;
pub mod verify;

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{DefaultBodyLimit, Request, State},
    http::{HeaderValue, Method, Uri, header},
    middleware::{self, Next},
    response::{IntoResponse, Redirect, Response},
    routing::{get, post, put},
};
pub use problem::Problem;
use sapwood_chain::Stop;
use tokio::sync::Semaphore;
use tower_http::catch_panic::CatchPanicLayer;

use crate::{Access, Need, Node, Role, address::ChainKind, audit, places::Places};

/// How HTTP is served.
pub struct HttpOptions {
    /// Who may do what.
    pub access: Arc<Access>,
    /// How often the page asks for news.
    pub refresh: Duration,
    /// Bytes a request's body may have. Nothing here needs more than a few hundred.
    pub most_body_bytes: usize,
    /// Event streams that may be open at the same time.
    pub most_streams: usize,
    /// Event streams that one peer may have open at the same time.
    pub most_streams_of_a_peer: usize,
    /// Names under which the server may be asked for without a token, besides `localhost` and addresses. A page of somebody else whose
    /// name leads to this machine must not be able to read.
    pub host_names: Vec<String>,
    /// Ends event streams, which would otherwise never end, when it is asked.
    pub stop: Option<Stop>,
}

impl HttpOptions {
    /// The usual options with these rules of access.
    pub fn new(access: impl Into<Arc<Access>>) -> Self {
        Self {
            access: access.into(),
            refresh: Duration::from_secs(1),
            most_body_bytes: 16 << 10,
            most_streams: 64,
            most_streams_of_a_peer: 32,
            host_names: Vec::new(),
            stop: None,
        }
    }
}

/// What handlers work with.
#[derive(Clone)]
pub(crate) struct Service {
    node: Node,
    access: Arc<Access>,
    host_names: Arc<[String]>,
    refresh: Duration,
    planning: Arc<Semaphore>,
    block_heights: Arc<blocks::BlockHeights>,
    hub: Arc<OnceLock<Arc<hub::Hub>>>,
    streams: Arc<Places>,
    stop: Option<Stop>,
    started: Instant,
    verification: verify::Verification,
    counting: utxo_set::Counting,
}

impl Service {
    fn kind(&self) -> &ChainKind {
        &self.node.parts().kind
    }

    /// What was told lately. It begins to listen when it is first asked for.
    fn hub(&self) -> Arc<hub::Hub> {
        Arc::clone(self.hub.get_or_init(|| hub::Hub::start(self.node.events(), self.node.pruner())))
    }
}

/// Everything that is served over HTTP.
pub fn router(node: Node, options: HttpOptions) -> Router {
    let service = Service {
        node,
        access: options.access,
        host_names: options.host_names.into(),
        refresh: options.refresh,
        planning: Arc::new(Semaphore::new(1)),
        block_heights: Arc::default(),
        hub: Arc::default(),
        streams: Places::new(options.most_streams, options.most_streams_of_a_peer),
        stop: options.stop,
        started: Instant::now(),
        verification: verify::Verification::default(),
        counting: utxo_set::Counting::default(),
    };
    let api = Router::new()
        .route("/api/v1/status", get(state::status))
        .route("/api/v1/status/rocksdb-stats", get(state::rocksdb_stats))
        .route("/api/v1/history", get(state::history))
        .route("/api/v1/access", get(state::access))
        .route("/api/v1/utxos/{txid}/{vout}", get(reads::utxo))
        .route("/api/v1/addresses/{address}/utxos", get(reads::address))
        .route("/api/v1/credentials/{credential}/utxos", get(reads::credential))
        .route("/api/v1/txs/{txid}", get(reads::tx))
        .route("/api/v1/txs/{txid}/explain", get(reads::explain))
        .route("/api/v1/txs/{txid}/body", get(verify::body))
        .route("/api/v1/utxo-set", get(utxo_set::utxo_set).post(utxo_set::count))
        .route("/api/v1/verify", get(verify::found).post(verify::begin))
        .route("/api/v1/blocks", get(blocks::blocks))
        .route("/api/v1/blocks/{block}", get(blocks::block))
        .route("/api/v1/prune", get(prune::status).post(prune::prune_now))
        .route("/api/v1/prune/plan", get(prune::plan))
        .route("/api/v1/prune/jobs", get(prune::jobs))
        .route("/api/v1/prune/jobs/{id}", get(prune::job))
        .route("/api/v1/prune/jobs/{id}/cancel", post(prune::cancel))
        .route("/api/v1/prune/enabled", get(prune::enabled).put(prune::set_enabled))
        .route("/api/v1/policy", get(policy::policy).patch(policy::change_policy))
        .route("/api/v1/consumers/{consumer}", put(consumers::report).delete(consumers::release))
        .route("/api/v1/holds", get(prune::holds))
        .route("/api/v1/holds/{*name}", get(prune::hold).put(prune::set_hold).delete(prune::release_hold))
        .route("/api/v1/events", get(events::events))
        .route("/metrics", get(state::metrics))
        .route_layer(middleware::from_fn_with_state(service.clone(), may_read));
    let mut open = Router::new()
        .route("/health/live", get(state::live))
        .route("/health/ready", get(state::ready))
        .route("/ui/status", get(|| async { Redirect::permanent("/") }))
        .route("/api/v1/openapi.json", get(openapi::serve));
    for path in page::paths() {
        open = open.route(path, get(page::file));
    }
    api.merge(open)
        .fallback(no_such_path)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(DefaultBodyLimit::max(options.most_body_bytes))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn(headers))
        .layer(middleware::from_fn(audit::http))
        .with_state(service)
}

async fn may_read(State(service): State<Service>, request: Request, next: Next) -> Response {
    let caller = match service.access.check(request.headers(), request.extensions(), Need::Read) {
        Ok(caller) => caller,
        Err(refusal) => return Problem::from(refusal).into_response(),
    };
    // Who has a token knows whom he talks to. A browser that was led here by a foreign name has none, whatever header its page sets.
    if caller.role == Role::Anonymous && !names(&request).all(|host| is_own_name(host, &service.host_names)) {
        let detail = "without a valid token this server answers only to addresses, localhost and the host names in its configuration \
                      (servers.host_names)";
        return Problem::misdirected(detail).into_response();
    }
    next.run(request).await
}

/// The hosts that a request is for, as it says. One that is no text is empty.
fn names(request: &Request) -> impl Iterator<Item = &str> {
    let headers = request.headers().get_all(header::HOST).iter();
    let headers = headers.map(|host| host.to_str().unwrap_or_default());
    headers.chain(request.uri().authority().map(|authority| authority.as_str()))
}

/// Whether a host, with or without its port, is an address, `localhost`, or one of these names.
fn is_own_name(host: &str, names: &[String]) -> bool {
    if host.parse::<std::net::IpAddr>().is_ok() || host.parse::<std::net::SocketAddr>().is_ok() {
        return true;
    }
    // An address of version 6 stands in brackets, and has colons of its own.
    let name = match host.strip_suffix(']') {
        Some(_) => host,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    address.is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|own| own.eq_ignore_ascii_case(name))
}

async fn no_such_path(uri: Uri) -> Problem {
    Problem::no_such_path(format!("there is nothing at {}; /api lists what there is", uri.path()))
}

async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    Problem::method_not_allowed(format!(
        "{} does not do {method}; the header `allow` says what it does",
        uri.path()
    ))
}

fn panicked(panic: Box<dyn std::any::Any + Send>) -> Response {
    let text = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(panic = text.unwrap_or("unknown"), "a request ended abnormally");
    Problem::internal("the request ended abnormally: the log says more").into_response()
}

/// What every answer carries: what a browser may do with it, and that it is not to be kept unless said otherwise.
async fn headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, page::POLICY);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert("cross-origin-opener-policy", HeaderValue::from_static("same-origin"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
