//! The pruner: what it does, what it would do, and telling it what to do.

use axum::{Json, extract::State, http::StatusCode};
use sapwood_pruner::{HoldStatus, Job, JobId, Plan, PrunerStatus};
use sapwood_rules::Hold;
use sapwood_types::Height;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    Problem, Service,
    extract::{self, Admin, Body, MaybeBody, Path, Query},
    problem::{AdminProblems, ReadProblems},
};

type Answer<T> = Result<Json<T>, Problem>;

/// How the pruner is doing
#[utoipa::path(get, path = "/api/v1/prune", tag = "Prune", responses((status = 200, description = "How it is doing", body = PrunerStatus), ReadProblems))]
pub(crate) async fn status(State(service): State<Service>) -> Json<PrunerStatus> {
    Json(service.node.status().await.prune.clone())
}

/// What to prune.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PruneRequest {
    /// Prune as if the chain were at this height. Without it, or with a greater one, at the height of the chain.
    #[schema(minimum = 1, maximum = 4294967295u64)]
    height: Option<u32>,
}

/// Prune now
///
/// Asks for a job that looks through everything that is due. A job for the same or a greater height that has not begun yet does for
/// this one too.
#[utoipa::path(
    post, path = "/api/v1/prune", tag = "Prune", security(("admin" = [])),
    request_body(content = Option<PruneRequest>),
    responses((status = 202, description = "The job", body = Job), ReadProblems, AdminProblems)
)]
pub(crate) async fn prune_now(
    State(service): State<Service>,
    _admin: Admin,
    MaybeBody(request): MaybeBody<PruneRequest>,
) -> Result<(StatusCode, Json<Job>), Problem> {
    let pruner = service.node.pruner();
    let id = pruner.prune_now(request.height.map(Height))?;
    tracing::info!(job = %id, "pruning was asked for over HTTP");
    let job = pruner.job(id).ok_or_else(|| Problem::internal(format!("job {id} is not remembered")))?;
    Ok((StatusCode::ACCEPTED, Json(job)))
}

/// What to plan for.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PlanParams {
    /// Plan as if the chain were at this height. Without it, or with a greater one, at the height of the chain.
    #[param(minimum = 1, maximum = 4294967295u64)]
    height: Option<u32>,
    /// Look at no more due records than this.
    #[param(minimum = 1, maximum = 1000000, default = 100000)]
    limit: Option<u64>,
}

/// What would a job delete now?
///
/// Deletes nothing.
#[utoipa::path(
    get, path = "/api/v1/prune/plan", tag = "Prune", params(PlanParams),
    responses((status = 200, description = "The plan", body = Plan), ReadProblems)
)]
pub(crate) async fn plan(State(service): State<Service>, Query(query): Query<PlanParams>) -> Answer<Plan> {
    const USUAL: u64 = 100_000;
    const MOST: u64 = 1_000_000;
    let limit = extract::limit(query.limit, USUAL, MOST)?;
    let height = query.height.map(Height);
    if height == Some(Height::GENESIS) {
        return Err(Problem::not_allowed_value("height: it is 0; give at least 1, or none"));
    }
    // One at a time: it reads as much as a job does.
    let turn = service.planning.try_acquire();
    let _turn =
        turn.map_err(|_| Problem::unavailable("another plan is being made: ask again when it is done"))?;
    let plan = service.node.pruner().plan(height, limit).await?;
    Ok(Json(plan))
}

/// How many jobs.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct JobsParams {
    /// How many at most.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u64>,
}

/// The newest jobs, the newest first
#[utoipa::path(
    get, path = "/api/v1/prune/jobs", tag = "Prune", params(JobsParams),
    responses((status = 200, description = "The jobs", body = Vec<Job>), ReadProblems)
)]
pub(crate) async fn jobs(
    State(service): State<Service>,
    Query(query): Query<JobsParams>,
) -> Answer<Vec<Job>> {
    let limit = extract::limit(query.limit, 100, 1000)? as usize;
    Ok(Json(service.node.pruner().jobs(limit)))
}

/// One job
#[utoipa::path(
    get, path = "/api/v1/prune/jobs/{id}", tag = "Prune",
    params(("id" = u64, Path, description = "Its number", maximum = 9007199254740991u64)),
    responses(
        (status = 200, description = "The job", body = Job),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "Not remembered"),
        ReadProblems,
    )
)]
pub(crate) async fn job(State(service): State<Service>, Path(id): Path<u64>) -> Answer<Job> {
    let job = service.node.pruner().job(JobId(id));
    let job = job.ok_or_else(|| Problem::not_found(format!("job {id} is not remembered")))?;
    Ok(Json(job))
}

/// Cancel a job
///
/// At once if it has not begun, else at the next chunk. What it deleted by then stays deleted.
#[utoipa::path(
    post, path = "/api/v1/prune/jobs/{id}/cancel", tag = "Prune", security(("admin" = [])),
    params(("id" = u64, Path, description = "Its number", maximum = 9007199254740991u64)),
    responses(
        (status = 202, description = "The job", body = Job),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "Not remembered"),
        ReadProblems, AdminProblems,
    )
)]
pub(crate) async fn cancel(
    State(service): State<Service>,
    Path(id): Path<u64>,
    _admin: Admin,
) -> Result<(StatusCode, Json<Job>), Problem> {
    let pruner = service.node.pruner();
    pruner.cancel(JobId(id))?;
    tracing::info!(job = id, "a job was cancelled over HTTP");
    let job =
        pruner.job(JobId(id)).ok_or_else(|| Problem::not_found(format!("job {id} is not remembered")))?;
    Ok((StatusCode::ACCEPTED, Json(job)))
}

/// Whether pruning is enabled.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Enabled {
    /// Whether it is.
    enabled: bool,
}

/// Is pruning enabled?
#[utoipa::path(get, path = "/api/v1/prune/enabled", tag = "Prune", responses((status = 200, description = "Whether it is", body = Enabled), ReadProblems))]
pub(crate) async fn enabled(State(service): State<Service>) -> Json<Enabled> {
    Json(Enabled { enabled: service.node.pruner().is_enabled() })
}

/// Enable or disable pruning
///
/// It stays so after a restart. A job in flight stops at the next chunk.
#[utoipa::path(
    put, path = "/api/v1/prune/enabled", tag = "Prune", security(("admin" = [])), request_body = Enabled,
    responses((status = 200, description = "Whether it is", body = Enabled), ReadProblems, AdminProblems)
)]
pub(crate) async fn set_enabled(
    State(service): State<Service>,
    _admin: Admin,
    Body(wanted): Body<Enabled>,
) -> Answer<Enabled> {
    let pruner = service.node.pruner();
    if wanted.enabled {
        pruner.enable().await?
    } else {
        pruner.disable().await?
    }
    tracing::info!(enabled = wanted.enabled, "pruning was enabled or disabled over HTTP");
    service.node.sample().await;
    Ok(Json(Enabled { enabled: pruner.is_enabled() }))
}

/// Every hold and what it does
#[utoipa::path(get, path = "/api/v1/holds", tag = "Holds", responses((status = 200, description = "The holds", body = Vec<HoldStatus>), ReadProblems))]
pub(crate) async fn holds(State(service): State<Service>) -> Answer<Vec<HoldStatus>> {
    Ok(Json(service.node.pruner().list_holds().await?))
}

pub(crate) async fn hold_named(service: &Service, name: &str) -> Answer<HoldStatus> {
    let holds = service.node.pruner().list_holds().await?;
    let hold = holds.into_iter().find(|status| status.hold.name == name);
    hold.map(Json).ok_or_else(|| Problem::not_found(format!("there is no hold {name}")))
}

/// One hold
#[utoipa::path(
    get, path = "/api/v1/holds/{name}", tag = "Holds", params(("name" = String, Path, description = "Its name")),
    responses(
        (status = 200, description = "The hold", body = HoldStatus),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "No such hold"),
        ReadProblems,
    )
)]
pub(crate) async fn hold(State(service): State<Service>, Path(name): Path<String>) -> Answer<HoldStatus> {
    hold_named(&service, &name).await
}

/// Set a hold, in the place of one of the same name and owner
///
/// It is in force and written down when this returns. A hold of another owner is not replaced: 409.
#[utoipa::path(
    put, path = "/api/v1/holds/{name}", tag = "Holds", security(("admin" = [])),
    params(("name" = String, Path, description = "Its name: a to z, 0 to 9, and - _ . /")),
    request_body = Hold,
    responses((status = 200, description = "The hold", body = HoldStatus), ReadProblems, AdminProblems)
)]
pub(crate) async fn set_hold(
    State(service): State<Service>,
    Path(name): Path<String>,
    _admin: Admin,
    Body(hold): Body<Hold>,
) -> Answer<HoldStatus> {
    if !hold.name.is_empty() && hold.name != name {
        let detail = format!("name: it is {:?}, and the path names the hold {name:?}", hold.name);
        return Err(Problem::not_allowed_value(detail));
    }
    service.node.pruner().holds().set(Hold { name: name.clone(), ..hold }).await?;
    tracing::info!(name, "a hold was set over HTTP");
    service.node.sample().await;
    hold_named(&service, &name).await
}

/// Release a hold
#[utoipa::path(
    delete, path = "/api/v1/holds/{name}", tag = "Holds", security(("admin" = [])),
    params(("name" = String, Path, description = "Its name")),
    responses(
        (status = 204, description = "It is released"),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "No such hold"),
        ReadProblems, AdminProblems,
    )
)]
pub(crate) async fn release_hold(
    State(service): State<Service>,
    Path(name): Path<String>,
    _admin: Admin,
) -> Result<StatusCode, Problem> {
    service.node.pruner().holds().release(&name).await?;
    tracing::info!(name, "a hold was released over HTTP");
    service.node.sample().await;
    Ok(StatusCode::NO_CONTENT)
}
