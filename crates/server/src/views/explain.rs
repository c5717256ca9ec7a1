//! Why a record is retained.

use sapwood_pruner::{Explanation, Guard};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One thing that could retain a record, and whether it does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GuardView {
    /// What it is about.
    pub name: String,
    /// What was asked.
    pub question: String,
    /// The answer, with its numbers.
    pub answer: String,
    /// Whether this alone retains the record.
    pub retains: bool,
}

/// Why a record is retained, or that it is not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExplanationView {
    /// The id of the transaction.
    pub txid: String,
    /// Whether there is a record of it.
    pub stored: bool,
    /// Its state in words.
    pub state: String,
    /// Whether a job now would delete it.
    pub prunable: bool,
    /// The verdict in words.
    pub verdict: String,
    /// The short fixed name of what retains it. `None` if it is prunable, or not stored.
    pub reason: Option<String>,
    /// Each guard, also those that do not retain it.
    pub guards: Vec<GuardView>,
    /// The earliest height at which it becomes prunable if nothing changes but the height. `None` if the height alone is not enough.
    pub earliest: Option<u32>,
    /// What has to happen first. `None` if the height alone is enough.
    pub needs: Option<String>,
    /// Why no record at all is deleted now. `None` if records are deleted.
    pub blocked: Option<String>,
}

impl From<Explanation> for ExplanationView {
    fn from(explanation: Explanation) -> Self {
        let guard = |guard: Guard| GuardView {
            name: guard.name.into(),
            question: guard.question.into(),
            answer: guard.answer,
            retains: guard.keeps,
        };
        Self {
            txid: explanation.txid.to_string(),
            stored: explanation.stored,
            state: explanation.state,
            prunable: explanation.may_go,
            verdict: explanation.verdict,
            reason: explanation.reason.map(str::to_owned),
            guards: explanation.guards.into_iter().map(guard).collect(),
            earliest: explanation.earliest.map(|height| height.0),
            needs: explanation.needs,
            blocked: explanation.blocked.map(|reason| reason.to_string()),
        }
    }
}
