//! What the pruner does and says, as it goes out.

use std::{collections::BTreeMap, time::Duration};

use sapwood_pruner as pruner;
use sapwood_rules::{Hold, Policy, PolicyChange, PolicyField};

use super::{bytes, known};
use crate::grpc::proto;

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

fn by_reason(retained: BTreeMap<String, u64>) -> std::collections::HashMap<String, u64> {
    retained.into_iter().collect()
}

impl From<pruner::JobState> for proto::JobState {
    fn from(state: pruner::JobState) -> Self {
        match state {
            pruner::JobState::Pending => Self::Pending,
            pruner::JobState::Running => Self::Running,
            pruner::JobState::Completed => Self::Completed,
            pruner::JobState::Failed => Self::Failed,
            pruner::JobState::Cancelled => Self::Cancelled,
            pruner::JobState::Superseded => Self::Superseded,
        }
    }
}

impl From<pruner::Trigger> for proto::JobTrigger {
    fn from(trigger: pruner::Trigger) -> Self {
        match trigger {
            pruner::Trigger::StartUp => Self::StartUp,
            pruner::Trigger::BlockPersisted => Self::BlockPersisted,
            pruner::Trigger::BlockMined => Self::BlockMined,
            pruner::Trigger::Timer => Self::Timer,
            pruner::Trigger::OnDemand => Self::OnDemand,
            pruner::Trigger::Continued => Self::Continued,
            pruner::Trigger::Resumed => Self::Resumed,
        }
    }
}

impl From<&pruner::StopReason> for proto::Stopped {
    fn from(why: &pruner::StopReason) -> Self {
        use proto::StopReason as Wire;
        let reason = match why {
            pruner::StopReason::ChainNotRunning { .. } => Wire::ChainNotRunning,
            pruner::StopReason::BlockAssemblyNotRunning | pruner::StopReason::BlockAssemblySilent { .. } => {
                Wire::BlockAssemblyNotRunning
            }
            pruner::StopReason::NoBlocks => Wire::NoBlocks,
            pruner::StopReason::Disabled => Wire::Disabled,
            pruner::StopReason::DeletingOff => Wire::DeletingOff,
            pruner::StopReason::Cancelled => Wire::Cancelled,
            pruner::StopReason::Stopping => Wire::Stopping,
            pruner::StopReason::RecordLimit => Wire::RecordLimit,
            pruner::StopReason::TimeLimit => Wire::TimeLimit,
        };
        Self { reason: reason.into(), message: why.to_string() }
    }
}

impl From<pruner::Job> for proto::Job {
    fn from(job: pruner::Job) -> Self {
        let pruner::Job { counts, durations, .. } = job;
        Self {
            id: job.id.0,
            trigger: proto::JobTrigger::from(job.trigger).into(),
            state: proto::JobState::from(job.state).into(),
            asked: known(job.asked),
            height: known(job.height),
            safe_height: known(job.safe_height),
            decided_by: job.decided_by,
            whole: job.whole,
            counts: Some(proto::JobCounts {
                parents_preserved: counts.parents_preserved,
                preservations_expired: counts.preservations_expired,
                looked_at: counts.looked_at,
                deleted: counts.deleted,
                not_found: counts.gone,
                retained: by_reason(counts.retained),
                bodies_deleted: counts.bodies_deleted,
                bytes_freed: counts.bytes_freed,
                undo_dropped: counts.undo_dropped,
            }),
            seconds: Some(proto::JobSeconds {
                preserve_parents: seconds(durations.preserve_parents),
                expire_preservations: seconds(durations.expire_preservations),
                delete_due: seconds(durations.delete_due),
                drop_undo: seconds(durations.drop_undo),
            }),
            created_at: job.created_at,
            started_at: job.started_at,
            ended_at: job.ended_at,
            stopped_early: job.stopped_early.as_ref().map(Into::into),
            error: job.error,
            superseded_by: job.superseded_by.map(|by| by.0),
        }
    }
}

impl From<pruner::HoldKind> for proto::HoldKind {
    fn from(kind: pruner::HoldKind) -> Self {
        match kind {
            pruner::HoldKind::ReorgWindow => Self::ReorgWindow,
            pruner::HoldKind::Persister => Self::Persister,
            pruner::HoldKind::BlockAssembly => Self::BlockAssembly,
            pruner::HoldKind::Export => Self::Export,
            pruner::HoldKind::Snapshot => Self::Snapshot,
            pruner::HoldKind::Operator => Self::Operator,
        }
    }
}

impl From<pruner::HoldStatus> for proto::Hold {
    fn from(status: pruner::HoldStatus) -> Self {
        let Hold { name, owner, keep_from, expires, reason } = status.hold;
        Self {
            name,
            kind: proto::HoldKind::from(status.kind).into(),
            owner,
            keep_from: known(keep_from),
            expires,
            reason,
            expired: status.expired,
            decides: status.decides,
            silent_seconds: status.silent_seconds,
            unchanged_seconds: status.unchanged_seconds,
            retained_records: status.retained_records,
        }
    }
}

impl From<pruner::PrunerStatus> for proto::GetPrunerStatusResponse {
    fn from(status: pruner::PrunerStatus) -> Self {
        let totals = status.totals;
        Self {
            enabled: status.enabled,
            state: status.state,
            chain: proto::ChainState::from(status.chain).into(),
            height: known(status.height),
            safe_height: known(status.safe_height),
            decided_by: status.decided_by,
            holds: status.holds.into_iter().map(Into::into).collect(),
            cursor: status.cursor,
            backlog_records: status.backlog_records,
            lag_blocks: status.lag_blocks,
            catch_up_seconds: status.catch_up_seconds,
            policy: Some(status.policy.policy().into()),
            last_job: status.last_job.map(Into::into),
            newest_jobs: status.newest_jobs.into_iter().map(Into::into).collect(),
            timing: Some(status.timing.into()),
            blocked: by_reason(status.blocked),
            unreadable: status
                .unreadable
                .into_iter()
                .map(|record| proto::UnreadableRecord { txid: bytes(record.txid.0), error: record.error })
                .collect(),
            totals: Some(proto::PrunerTotals {
                jobs: totals.jobs,
                deleted: totals.deleted,
                bytes_freed: totals.bytes_freed,
                bodies_deleted: totals.bodies_deleted,
                retained: by_reason(totals.retained),
                records_per_second: totals.records_per_second,
            }),
            oldest_prunable_blocks: status.oldest_prunable_blocks,
            oldest_prunable_seconds: status.oldest_prunable_seconds,
        }
    }
}

impl From<pruner::Plan> for proto::PlanResponse {
    fn from(plan: pruner::Plan) -> Self {
        Self {
            height: known(plan.height),
            safe_height: known(plan.safe_height),
            decided_by: plan.decided_by,
            blocked: plan.blocked.as_ref().map(Into::into),
            looked_at: plan.looked_at,
            records: plan.records,
            bytes: plan.bytes,
            bodies: plan.bodies,
            retained: by_reason(plan.retained),
            complete: plan.complete,
        }
    }
}

impl From<pruner::Explanation> for proto::ExplainResponse {
    fn from(explanation: pruner::Explanation) -> Self {
        let text = explanation.to_string();
        let guard = |guard: pruner::Guard| proto::Guard {
            name: guard.name.into(),
            question: guard.question.into(),
            answer: guard.answer,
            retains: guard.retains,
        };
        Self {
            txid: bytes(explanation.txid.0),
            stored: explanation.stored,
            state: explanation.state,
            prunable: explanation.prunable,
            verdict: explanation.verdict,
            reason: explanation.reason.map(Into::into),
            guards: explanation.guards.into_iter().map(guard).collect(),
            earliest: known(explanation.earliest),
            needs: explanation.needs,
            blocked: explanation.blocked.as_ref().map(Into::into),
            text,
        }
    }
}

impl From<Policy> for proto::Policy {
    fn from(policy: Policy) -> Self {
        Self {
            retention: policy.retention,
            reorg_window: policy.reorg_window,
            coinbase_maturity: policy.coinbase_maturity,
            reassignment_delay: policy.reassignment_delay,
            unmined_retention: policy.unmined_retention,
            parent_preservation: policy.parent_preservation,
        }
    }
}

impl From<&pruner::PolicyState> for proto::GetPolicyResponse {
    fn from(state: &pruner::PolicyState) -> Self {
        let origin = |origin: &pruner::PolicyOrigin| match origin.clone() {
            pruner::PolicyOrigin::RunTime { at, by } => {
                proto::PolicyOrigin { from: "run_time".into(), at: Some(at), by: Some(by) }
            }
            pruner::PolicyOrigin::Promise => {
                proto::PolicyOrigin { from: "promise".into(), at: None, by: None }
            }
        };
        let origins =
            PolicyField::ALL.into_iter().filter_map(|field| Some((field, origin(state.origin(field)?))));
        Self {
            policy: Some(state.policy().into()),
            configured: Some(state.configuration().into()),
            origins: origins.map(|(field, origin)| (field.name().to_owned(), origin)).collect(),
        }
    }
}

impl proto::SetPolicyRequest {
    /// What the request changes.
    pub(crate) fn change(&self) -> PolicyChange {
        PolicyChange {
            retention: self.retention,
            reorg_window: self.reorg_window,
            coinbase_maturity: self.coinbase_maturity,
            reassignment_delay: self.reassignment_delay,
            unmined_retention: self.unmined_retention,
            parent_preservation: self.parent_preservation,
        }
    }
}

#[cfg(test)]
mod tests {
    use sapwood_ledger::Unreadable;

    use super::*;

    #[test]
    fn a_policy_comes_back_as_it_was_and_what_is_absent_stays() {
        let before = Policy {
            retention: 1,
            reorg_window: 2,
            coinbase_maturity: 3,
            reassignment_delay: 4,
            unmined_retention: 5,
            parent_preservation: 6,
        };
        let sent = proto::Policy::from(before);
        let request = proto::SetPolicyRequest {
            retention: Some(sent.retention),
            reorg_window: Some(sent.reorg_window),
            coinbase_maturity: Some(sent.coinbase_maturity),
            reassignment_delay: Some(sent.reassignment_delay),
            unmined_retention: Some(sent.unmined_retention),
            parent_preservation: Some(sent.parent_preservation),
            confirm: false,
        };
        assert_eq!(request.change().apply(&Policy::default()), before);
        let zero = proto::SetPolicyRequest { retention: Some(0), ..Default::default() };
        assert_eq!(zero.change().apply(&before), Policy { retention: 0, ..before }, "0 is a value");
    }

    #[test]
    fn m10_what_blocks_deletion_and_what_cannot_be_read_goes_out() {
        let txid = sapwood_types::TxId([7; 32]);
        let status = pruner::PrunerStatus {
            blocked: [("unreadable".to_owned(), 3)].into(),
            unreadable: vec![Unreadable { txid, error: "it is cut".into() }],
            ..pruner::PrunerStatus::default()
        };
        let sent = proto::GetPrunerStatusResponse::from(status);
        assert_eq!(sent.blocked, [("unreadable".to_owned(), 3)].into());
        assert_eq!(
            (sent.unreadable[0].txid.as_ref(), sent.unreadable[0].error.as_str()),
            (&[7; 32][..], "it is cut")
        );
    }

    #[test]
    fn states_keep_their_names() {
        for state in pruner::JobState::ALL {
            let wire = proto::JobState::from(state).as_str_name().to_lowercase();
            assert_eq!(wire, format!("job_state_{}", state.name()));
        }
    }
}
