//! How the node is doing: status, history, engine, health, metrics.

use axum::{
    Json,
    extract::State,
    http::{Extensions, HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use sapwood_ledger::TableStats;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{Problem, Service, extract::Query, problem::ReadProblems};
use crate::{
    Need, Refusal,
    status::{HistoryReport, Range, Readiness, StatusReport, report::EngineReport},
};

/// Everything that is known about the node
///
/// Measured every `servers.refresh`, once a second by default. The metrics and the page show the same report.
#[utoipa::path(get, path = "/api/v1/status", tag = "Status", responses((status = 200, description = "The report of the last measurement", body = StatusReport), ReadProblems))]
pub(crate) async fn status(State(service): State<Service>) -> Response {
    Json(&*service.node.status().await).into_response()
}

/// Which part of the engine.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EngineParams {
    /// Only this column family.
    cf: Option<String>,
}

/// What the engine tells about one part.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct EngineView {
    /// What the status tells of it, too.
    #[serde(flatten)]
    engine: EngineReport,
    /// The engine's own report, for people.
    text: String,
}

/// What the storage engine tells
///
/// The engine is asked with each request, and has more to say than `engine` of the status: ask seldom.
#[utoipa::path(
    get, path = "/api/v1/status/rocksdb-stats", tag = "Status", params(EngineParams),
    responses((status = 200, description = "What the engine told", body = Vec<EngineView>), ReadProblems)
)]
pub(crate) async fn rocksdb_stats(
    State(service): State<Service>,
    Query(query): Query<EngineParams>,
) -> Result<Json<Vec<EngineView>>, Problem> {
    let stats = service.node.store().engine_stats(query.cf).await?;
    let view = |stats: TableStats| EngineView { engine: EngineReport::new(&stats), text: stats.text };
    Ok(Json(stats.into_iter().map(view).collect()))
}

/// Which part of the history.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct HistoryParams {
    /// How far back: `minutes` unless asked otherwise.
    #[param(inline)]
    range: Option<Range>,
    /// Only what was measured after this moment, as a Unix timestamp in milliseconds.
    after_ms: Option<u64>,
}

/// What was measured over time
#[utoipa::path(
    get, path = "/api/v1/history", tag = "Status", params(HistoryParams),
    responses((status = 200, description = "What was measured, column by column", body = HistoryReport), ReadProblems)
)]
pub(crate) async fn history(
    State(service): State<Service>,
    Query(query): Query<HistoryParams>,
) -> Json<HistoryReport> {
    let (range, after) = (query.range.unwrap_or_default(), query.after_ms.unwrap_or(0));
    Json(service.node.history(|history| history.report(range, after)))
}

/// What the client may do.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AccessView {
    /// Read.
    read: bool,
    /// Change something.
    admin: bool,
    /// Whether the server has an admin token at all: without one nothing can be changed.
    admin_token: bool,
}

/// What may I do?
///
/// For programs that let people enter a token.
#[utoipa::path(get, path = "/api/v1/access", tag = "Status", responses(
    (status = 200, description = "What may be done", body = AccessView),
    (status = 403, body = Problem, content_type = "application/problem+json", description = "There is no admin token"),
    ReadProblems,
))]
pub(crate) async fn access(
    State(service): State<Service>,
    headers: HeaderMap,
    extensions: Extensions,
) -> Result<Json<AccessView>, Problem> {
    let admin_token = service.access.has_admin_token();
    // To ask without a token is no attempt to get in.
    let offered = headers.contains_key(header::AUTHORIZATION);
    if !offered {
        return Ok(Json(AccessView { read: true, admin: false, admin_token }));
    }
    match service.access.check(&headers, &extensions, Need::Admin) {
        Ok(_) => Ok(Json(AccessView { read: true, admin: true, admin_token })),
        Err(Refusal::NotAdmin) => Ok(Json(AccessView { read: true, admin: false, admin_token })),
        Err(refusal) => Err(refusal.into()),
    }
}

/// The process is alive.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Live {
    /// Always true.
    live: bool,
    /// How long it has been running.
    uptime_seconds: f64,
}

/// Is the process alive?
#[utoipa::path(get, path = "/health/live", tag = "Health", responses(
    (status = 200, description = "It is", body = Live),
    (status = 429, body = Problem, content_type = "application/problem+json", description = "Too many requests"),
))]
pub(crate) async fn live(State(service): State<Service>) -> Json<Live> {
    Json(Live { live: true, uptime_seconds: service.started.elapsed().as_secs_f64() })
}

/// Is the node ready to be used?
///
/// It is reconciled with its source, can write, and is not too far behind.
#[utoipa::path(
    get, path = "/health/ready", tag = "Health",
    responses(
        (status = 200, description = "It is", body = Readiness),
        (status = 429, body = Problem, content_type = "application/problem+json", description = "Too many requests"),
        (status = 503, body = Readiness, description = "Not ready, and why"),
    )
)]
pub(crate) async fn ready(State(service): State<Service>) -> Response {
    let ready = service.node.readiness().await;
    let status = if ready.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(ready)).into_response()
}

/// The stats of the status for Prometheus, in the OpenMetrics text format
///
/// To a client that asks for `text/plain` or `text/html`, as browsers do, the same text goes out as plain text.
#[utoipa::path(
    get, path = "/metrics", tag = "Status",
    responses((status = 200, description = "As it comes", body = String, content_type = "application/openmetrics-text"), ReadProblems)
)]
pub(crate) async fn metrics(State(service): State<Service>, headers: HeaderMap) -> Response {
    const OPEN_METRICS: HeaderValue =
        HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let wants = |kind: &str| accept.contains(kind);
    let plain = !wants("application/openmetrics-text") && (wants("text/plain") || wants("text/html"));
    let text = service.node.metrics_text().await;
    ([(header::CONTENT_TYPE, if plain { PLAIN } else { OPEN_METRICS })], text.to_string()).into_response()
}
