//! What a pruning job would do.

use std::collections::BTreeMap;

use sapwood_pruner::Plan;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a job would do now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlanReport {
    /// The height it would work at. `None` before the first block.
    pub height: Option<u32>,
    /// Up to which height deletion is safe. `None` if no record is prunable.
    pub safe_height: Option<u32>,
    /// The hold that decides it. `None` if it is the height itself.
    pub decided_by: Option<String>,
    /// Why a job would delete no record now. `None` if it would delete.
    pub blocked: Option<String>,
    /// Due records looked at.
    pub looked_at: u64,
    /// Records it would delete.
    pub records: u64,
    /// Bytes of those records.
    pub bytes: u64,
    /// External bodies it would delete.
    pub bodies: u64,
    /// Records that are due by age and would be retained, by reason.
    pub retained: BTreeMap<String, u64>,
    /// Whether everything was looked at.
    pub complete: bool,
}

impl From<Plan> for PlanReport {
    fn from(plan: Plan) -> Self {
        Self {
            height: plan.height.map(|height| height.0),
            safe_height: plan.safe_height.map(|height| height.0),
            decided_by: plan.decided_by,
            blocked: plan.blocked.map(|reason| reason.to_string()),
            looked_at: plan.looked_at,
            records: plan.records,
            bytes: plan.bytes,
            bodies: plan.bodies,
            retained: plan.kept,
            complete: plan.complete,
        }
    }
}
