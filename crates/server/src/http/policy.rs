//! How long things are kept, and changing it.

use axum::{Json, extract::State};
use sapwood_pruner::PolicyState;
use sapwood_rules::PolicyChange;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    Problem, Service,
    extract::{Admin, Body, Query},
    problem::{AdminProblems, ReadProblems},
};

/// How to change the policy.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ChangeParams {
    /// Go on although less is kept than before. Without it such a change is refused, with how much it would delete.
    #[serde(default)]
    confirm: bool,
}

/// How long things are kept, and where each number comes from
#[utoipa::path(get, path = "/api/v1/policy", tag = "Prune", responses((status = 200, description = "The policy in force", body = PolicyState), ReadProblems))]
pub(crate) async fn policy(State(service): State<Service>) -> Json<PolicyState> {
    Json(service.node.pruner().policy_state())
}

/// Change how long things are kept
///
/// What is left out stays as it is. The change is kept in the store until the configuration is changed to something else. What is unsafe
/// is refused with the reason, and what keeps less than before unless it is confirmed.
#[utoipa::path(
    patch, path = "/api/v1/policy", tag = "Prune", security(("admin" = [])), 
    params(ChangeParams), request_body = PolicyChange,
    responses((status = 200, description = "The policy in force", body = PolicyState), ReadProblems, AdminProblems)
)]
pub(crate) async fn change_policy(
    State(service): State<Service>,
    Admin(admin): Admin,
    Query(ChangeParams { confirm }): Query<ChangeParams>,
    Body(change): Body<PolicyChange>,
) -> Result<Json<PolicyState>, Problem> {
    let state = service.node.pruner().change_policy(change, &admin.over("REST"), confirm).await?;
    let policy = state.policy();
    tracing::info!(
        retention = policy.retention,
        reorg_window = policy.reorg_window,
        confirmed = confirm,
        "the policy was changed over REST"
    );
    service.node.sample().await;
    Ok(Json(state))
}
