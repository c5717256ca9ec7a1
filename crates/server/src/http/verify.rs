//! Whether everything stored is as it should be, and the bodies of large transactions.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use sapwood_types::ChainPoint;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Problem, Service,
    extract::{self, Admin, Path},
    problem::{AdminProblems, ReadProblems},
    task::{Progress, Task, TaskState},
};
use crate::Node;

/// What a verification found, or how far it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VerifyView {
    /// `none` if none was asked for since the start, `running`, `done` or `failed`.
    pub state: String,
    /// Records looked at so far.
    pub done: u64,
    /// About how many records there are.
    pub total: u64,
    /// The last applied block when it began. `None` before the first block.
    pub applied: Option<ChainPoint>,
    /// Whether nothing is broken. `None` until it is done.
    pub clean: Option<bool>,
    /// Records that were checked.
    pub records: u64,
    /// Entries of indexes that were checked.
    pub index_entries: u64,
    /// Bodies outside their records that were read and belong to their id.
    pub bodies: u64,
    /// Bodies without a record. The next pruning job deletes them.
    pub bodies_without_record: u64,
    /// Bodies that went before their prunable record, which goes next.
    pub bodies_deleted_first: u64,
    /// What is broken, in words.
    pub problems: Vec<String>,
    /// How many problems there are beyond those listed.
    pub more_problems: u64,
    /// Why it could not be done. `None` if it could.
    pub error: Option<String>,
}

/// Verifies on request.
pub(crate) type Verification = Task<VerifyView>;

impl Verification {
    fn view(&self) -> VerifyView {
        let (state, progress) = self.look();
        let (done, total) = progress.get();
        let with_state = |state: &str| VerifyView { state: state.into(), ..VerifyView::default() };
        let view = match state {
            TaskState::None => with_state("none"),
            TaskState::Running => with_state("running"),
            TaskState::Done(view) => view,
            TaskState::Failed(error) => VerifyView { error: Some(error), ..with_state("failed") },
        };
        VerifyView { done, total, ..view }
    }
}

async fn verified(node: Node, progress: Progress) -> Result<VerifyView, String> {
    let store = node.store();
    let applied = store.last_applied().await.map_err(|error| error.to_string())?;
    let note = Arc::new(move |done, total| progress.note(done, total));
    let mut report = store.verify(note).await.map_err(|error| error.to_string())?;
    let kind = node.parts().kind.clone();
    let outside = match node.pruner().bodies() {
        None => Default::default(),
        Some(bodies) => {
            let check = move |txid, body: &bytes::Bytes| kind.check_body(txid, body);
            let policy = node.pruner().policy();
            bodies.verify(store, &policy, &check).await.map_err(|error| error.to_string())?
        }
    };
    outside.damaged.iter().for_each(|problem| report.problem(problem.clone()));
    Ok(VerifyView {
        state: "done".into(),
        applied: applied.map(Into::into),
        clean: Some(report.is_clean()),
        records: report.records,
        index_entries: report.index_entries,
        bodies: outside.found,
        bodies_without_record: outside.orphans,
        bodies_deleted_first: outside.half_deleted,
        problems: report.problems,
        more_problems: report.more,
        ..VerifyView::default()
    })
}

/// Verify everything
///
/// Begins to check every record, every index, every body and the UTXO hash, as of one moment, while blocks go on. If that is in flight
/// already, it is not begun again. GET tells how far it is and what it found.
#[utoipa::path(
    post, path = "/api/v1/verify", tag = "Status", security(("admin" = [])),
    responses((status = 202, description = "It has begun", body = VerifyView), ReadProblems, AdminProblems)
)]
pub(crate) async fn begin(State(service): State<Service>, _admin: Admin) -> (StatusCode, Json<VerifyView>) {
    let node = service.node.clone();
    service.verification.begin(|progress| verified(node, progress));
    (StatusCode::ACCEPTED, Json(service.verification.view()))
}

/// What the last verification found, or how far it is
#[utoipa::path(
    get, path = "/api/v1/verify", tag = "Status",
    responses((status = 200, description = "How far it is, or what it found", body = VerifyView), ReadProblems)
)]
pub(crate) async fn found(State(service): State<Service>) -> Json<VerifyView> {
    Json(service.verification.view())
}

/// The body of a large transaction
///
/// As its chain writes it or, where a feeder did not hand that over, as a transaction file of Sapwood. Checked against its id.
#[utoipa::path(
    get, path = "/api/v1/txs/{txid}/body", tag = "Read",
    params(("txid" = String, Path, description = "Its id", pattern = "^[0-9a-fA-F]{64}$")),
    responses(
        (status = 200, description = "The bytes", body = String, content_type = "application/octet-stream"),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "Not stored, or its body is not kept outside"),
        ReadProblems,
    )
)]
pub(crate) async fn body(
    State(service): State<Service>,
    Path(txid): Path<String>,
) -> Result<Response, Problem> {
    const TYPE: HeaderValue = HeaderValue::from_static("application/octet-stream");
    let txid = extract::txid(&txid)?;
    let Some(record) = service.node.store().get(txid).await? else {
        return Err(Problem::not_found(format!(
            "transaction {txid} is not stored: it was never seen, or it was pruned"
        )));
    };
    let Some(external) = record.head.external else {
        let detail = format!("transaction {txid} has no body outside its record: it was not large enough");
        return Err(Problem::not_found(detail));
    };
    let Some(bodies) = service.node.pruner().bodies() else {
        return Err(Problem::unavailable("no place for bodies is configured"));
    };
    let bytes = match bodies.get(txid, external).await {
        Ok(bytes) => bytes,
        Err(error) => return Err(Problem::internal(error.to_string())),
    };
    if let Err(problem) = service.kind().check_body(txid, &bytes) {
        return Err(Problem::internal(format!("the body of transaction {txid} is damaged: {problem}")));
    }
    Ok(([(header::CONTENT_TYPE, TYPE)], bytes).into_response())
}
