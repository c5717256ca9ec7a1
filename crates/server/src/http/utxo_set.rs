//! The UTXO set as a whole: how many coins, what they are worth, and their hash.

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use axum::{Json, extract::State, http::StatusCode};
use parking_lot::Mutex;
use sapwood_store::UtxoSet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Problem, Service,
    extract::Admin,
    problem::{AdminProblems, ReadProblems},
};
use crate::{Node, status::report::BlockReport};

/// The UTXO set, or how far counting it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UtxoSetView {
    /// `kept` with each block, `counted` on request, `counting`, `failed`, or `none` if it is neither kept nor was counted.
    pub state: String,
    /// The last applied block it is of. `None` before the first block, or if it is not known.
    pub applied: Option<BlockReport>,
    /// Outputs in it. `None` if it is not known.
    pub outputs: Option<u64>,
    /// Transactions that have one. `None` if it is not known.
    pub transactions: Option<u64>,
    /// What they are worth together in the chain's smallest unit, as a decimal text. `None` if it is not known.
    pub value: Option<String>,
    /// Its hash, as Bitcoin Core's `gettxoutsetinfo muhash` prints it. `None` if it is not known.
    pub muhash: Option<String>,
    /// Records looked at so far, while it is counted.
    pub done: u64,
    /// About how many records there are, while it is counted.
    pub total: u64,
    /// Why it could not be counted. `None` if it could.
    pub error: Option<String>,
}

impl UtxoSetView {
    fn of(set: &UtxoSet, state: &str) -> Self {
        Self {
            state: state.into(),
            applied: set.last.as_ref().map(BlockReport::of),
            outputs: Some(set.coins),
            transactions: Some(set.transactions),
            value: Some(set.amount.to_string()),
            muhash: set.digest(),
            ..Self::default()
        }
    }
}

/// The counting in flight, or the last one.
#[derive(Clone, Default)]
pub(crate) struct Counting {
    view: Arc<Mutex<UtxoSetView>>,
    done: Arc<AtomicU64>,
    total: Arc<AtomicU64>,
}

impl Counting {
    fn view(&self) -> UtxoSetView {
        let mut view = self.view.lock().clone();
        match view.state.as_str() {
            "" => view.state = "none".into(),
            "counting" => (view.done, view.total) = (self.done.load(Relaxed), self.total.load(Relaxed)),
            _ => {}
        }
        view
    }

    /// Begins to count, unless that is in flight.
    fn begin(&self, node: Node) -> UtxoSetView {
        {
            let mut view = self.view.lock();
            if view.state == "counting" {
                drop(view);
                return self.view();
            }
            *view = UtxoSetView { state: "counting".into(), ..UtxoSetView::default() };
        }
        self.done.store(0, Relaxed);
        self.total.store(0, Relaxed);
        let this = self.clone();
        tokio::spawn(async move {
            let (done, total) = (Arc::clone(&this.done), Arc::clone(&this.total));
            let progress = Arc::new(move |now: u64, all: u64| {
                done.store(now, Relaxed);
                total.store(all, Relaxed);
                ControlFlow::Continue(())
            });
            let counted = node.store().utxo_set(true, progress).await;
            *this.view.lock() = match counted {
                Ok(set) => UtxoSetView::of(&set, "counted"),
                Err(error) => UtxoSetView {
                    state: "failed".into(),
                    error: Some(error.to_string()),
                    ..UtxoSetView::default()
                },
            };
        });
        self.view()
    }
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
        Some(set) => UtxoSetView::of(&set, "kept"),
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
    (StatusCode::ACCEPTED, Json(service.counting.begin(service.node.clone())))
}
