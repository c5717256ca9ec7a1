//! The UTXO set as a whole: how many coins, what they are worth, and their hash.

use std::{ops::ControlFlow, sync::Arc};

use axum::{Json, extract::State, http::StatusCode};
use sapwood_ledger::UtxoSet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Problem, Service,
    extract::Admin,
    problem::{AdminProblems, ReadProblems},
    task::{Progress, Task, TaskState},
};
use crate::{Node, status::report::UtxoSetReport};

/// What is known of the UTXO set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum UtxoSetState {
    /// It is neither kept nor was counted.
    #[default]
    None,
    /// It is kept with each block.
    Kept,
    /// It is being counted.
    Counting,
    /// It was counted on request.
    Counted,
    /// It could not be counted.
    Failed,
}

/// The UTXO set, or how far counting it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UtxoSetView {
    /// What is known of it.
    pub state: UtxoSetState,
    /// The set. Its fields are left out while it is not known.
    #[serde(flatten)]
    pub set: Option<UtxoSetReport>,
    /// Records looked at so far, while it is counted.
    pub done: u64,
    /// About how many records there are, while it is counted.
    pub total: u64,
    /// Why it could not be counted. `None` if it could.
    pub error: Option<String>,
}

impl UtxoSetView {
    fn new(state: UtxoSetState, set: &UtxoSet) -> Self {
        let set = UtxoSetReport { muhash: set.digest(), ..UtxoSetReport::without_hash(set) };
        Self { state, set: Some(set), ..Self::default() }
    }
}

/// Counts on request.
pub(crate) type Counting = Task<UtxoSetView>;

impl Counting {
    fn view(&self) -> UtxoSetView {
        let with_state = |state| UtxoSetView { state, ..UtxoSetView::default() };
        match self.look() {
            (TaskState::None, _) => UtxoSetView::default(),
            (TaskState::Running, progress) => {
                let (done, total) = progress.get();
                UtxoSetView { done, total, ..with_state(UtxoSetState::Counting) }
            }
            (TaskState::Done(view), _) => view,
            (TaskState::Failed(error), _) => {
                UtxoSetView { error: Some(error), ..with_state(UtxoSetState::Failed) }
            }
        }
    }
}

async fn counted(node: Node, progress: Progress) -> Result<UtxoSetView, String> {
    let note = move |done, total| {
        progress.note(done, total);
        ControlFlow::Continue(())
    };
    let set = node.store().utxo_set(true, Arc::new(note)).await.map_err(|error| error.to_string())?;
    Ok(UtxoSetView::new(UtxoSetState::Counted, &set))
}

/// The UTXO set
///
/// At once, if it is kept with each block (`chain.utxo_hash`). Else what was counted last, or how far that is.
#[utoipa::path(
    get, path = "/api/v1/utxo-set", tag = "Read",
    responses((status = 200, description = "The set, or how far counting it is", body = UtxoSetView), ReadProblems)
)]
pub(crate) async fn utxo_set(State(service): State<Service>) -> Result<Json<UtxoSetView>, Problem> {
    let kept = service.node.store().rolling_utxo_set().await?.filter(|set| set.hash.is_some());
    Ok(Json(match kept {
        Some(set) => UtxoSetView::new(UtxoSetState::Kept, &set),
        None => service.counting.view(),
    }))
}

/// Count the UTXO set
///
/// Reads every record, as of one moment, while blocks go on. If that is in flight already, it is not begun again. GET tells how far it
/// is and what came out.
#[utoipa::path(
    post, path = "/api/v1/utxo-set", tag = "Read", security(("admin" = [])),
    responses((status = 202, description = "It has begun", body = UtxoSetView), ReadProblems, AdminProblems)
)]
pub(crate) async fn count(State(service): State<Service>, _admin: Admin) -> (StatusCode, Json<UtxoSetView>) {
    let node = service.node.clone();
    service.counting.begin(|progress| counted(node, progress));
    (StatusCode::ACCEPTED, Json(service.counting.view()))
}
