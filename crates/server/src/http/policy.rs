//! How long things are kept, and changing it.

use std::collections::BTreeMap;

use axum::{Json, extract::State};
use sapwood_pruner::{PolicyOrigin, PolicyState};
use sapwood_rules::{PolicyChange, PolicyField};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Problem, Service,
    extract::{Admin, Body},
    problem::{AdminProblems, ReadProblems},
};
use crate::status::PolicyReport;

/// Where a number of the policy comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyOriginView {
    /// `configuration`, `run_time` for a change that is kept until the configuration is changed, or `promise` if the data directory was
    /// promised more than the configuration asks for.
    pub from: String,
    /// What the configuration said last, in blocks.
    pub configured: u32,
    /// When it was changed at run time, as a Unix timestamp in seconds. `None` if it was not.
    pub at: Option<u64>,
    /// Who changed it at run time. `None` if it was not changed.
    pub by: Option<String>,
}

/// How long things are kept, in blocks, and where each number comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyView {
    /// The numbers in force.
    #[serde(flatten)]
    pub policy: PolicyReport,
    /// Where each number comes from, by its name.
    pub origins: BTreeMap<String, PolicyOriginView>,
}

impl From<&PolicyState> for PolicyView {
    fn from(state: &PolicyState) -> Self {
        let origin = |field: PolicyField| {
            let number = state.number(field);
            let (from, at, by) = match &number.origin {
                PolicyOrigin::Configuration => ("configuration", None, None),
                PolicyOrigin::RunTime { at, by } => ("run_time", Some(*at), Some(by.clone())),
                PolicyOrigin::Promise => ("promise", None, None),
            };
            let view = PolicyOriginView { from: from.into(), configured: number.configured, at, by };
            (field.name().to_owned(), view)
        };
        Self { policy: state.policy().into(), origins: PolicyField::ALL.into_iter().map(origin).collect() }
    }
}

/// A change of the policy. What is left out stays as it is.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyPatch {
    /// Blocks a record is kept after it settled. 0: records are never pruned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<u32>,
    /// How deep a reorg can be rolled back. At most the retention, unless that is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub reorg_window: Option<u32>,
    /// Blocks before a coinbase's outputs may be spent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coinbase_maturity: Option<u32>,
    /// Blocks before a reassigned output may be spent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reassignment_delay: Option<u32>,
    /// Blocks after which an unmined transaction counts as old. It follows the retention unless it was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmined_retention: Option<u32>,
    /// Blocks for which the parents of old unmined transactions are preserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_preservation: Option<u32>,
    /// Go on although less is kept than before. Without it such a change is refused, with how much it would delete.
    #[serde(default)]
    pub confirm: bool,
}

/// How long things are kept, and where each number comes from
#[utoipa::path(get, path = "/api/v1/policy", tag = "Prune", responses((status = 200, description = "The policy in force", body = PolicyView), ReadProblems))]
pub(crate) async fn policy(State(service): State<Service>) -> Json<PolicyView> {
    Json((&service.node.pruner().policy_state()).into())
}

/// Change how long things are kept
///
/// What is left out stays as it is. The change is kept in the store until the configuration is changed to something else. What is unsafe
/// is refused with the reason, and what keeps less than before unless it is confirmed.
#[utoipa::path(
    patch, path = "/api/v1/policy", tag = "Prune", security(("admin" = [])), request_body = PolicyPatch,
    responses((status = 200, description = "The policy in force", body = PolicyView), ReadProblems, AdminProblems)
)]
pub(crate) async fn change_policy(
    State(service): State<Service>,
    Admin(admin): Admin,
    Body(wanted): Body<PolicyPatch>,
) -> Result<Json<PolicyView>, Problem> {
    let change = PolicyChange {
        retention: wanted.retention,
        reorg_window: wanted.reorg_window,
        coinbase_maturity: wanted.coinbase_maturity,
        reassignment_delay: wanted.reassignment_delay,
        unmined_retention: wanted.unmined_retention,
        parent_preservation: wanted.parent_preservation,
    };
    let state = service.node.pruner().change_policy(change, &admin.over("REST"), wanted.confirm).await?;
    let policy = state.policy();
    tracing::info!(
        retention = policy.retention,
        reorg_window = policy.reorg_window,
        confirmed = wanted.confirm,
        "the policy was changed over REST"
    );
    service.node.sample().await;
    Ok(Json((&state).into()))
}
