//! What happens, as it happens: server-sent events.
//!
//! Nobody waits for a slow client. The bus drops the oldest events, and the client is told how many it missed and where things
//! stand now.

use std::{convert::Infallible, time::Duration};

use axum::{
    extract::State,
    response::sse::{Event as SseEvent, KeepAlive, Sse},
};
use futures_util::{Stream, stream};
use sapwood_chain::{Event, Latest, Subscription, Told};
use sapwood_pruner::Job;
use sapwood_types::BlockMark;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, broadcast};

use super::{Problem, Service, problem::ReadProblems};
use crate::status::JobReport;

/// How often a quiet stream shows that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

fn block(mark: &BlockMark) -> Value {
    json!({ "height": mark.height.0, "hash": mark.hash.to_string() })
}

fn maybe_block(mark: Option<&BlockMark>) -> Value {
    mark.map_or(Value::Null, block)
}

/// The name and the content of an event.
fn told(event: &Event) -> (&'static str, Value) {
    match event {
        Event::BlockApplied(applied) => {
            let conflicting: Vec<String> = applied.conflicting.iter().map(ToString::to_string).collect();
            let transactions = applied.transactions;
            let block = block(&applied.block);
            (
                "block_applied",
                json!({ "block": block, "transactions": transactions, "conflicting": conflicting }),
            )
        }
        Event::RolledBack(back) => {
            let (from, to) = (block(&back.from), maybe_block(back.to.as_ref()));
            ("rolled_back", json!({ "from": from, "to": to, "blocks": back.blocks }))
        }
        Event::ReorgStarted(reorg) => {
            let fork = reorg.fork.map(|height| height.0);
            ("reorg_started", json!({ "from": block(&reorg.from), "fork": fork, "depth": reorg.depth }))
        }
        Event::ReorgFinished(reorg) => {
            ("reorg_finished", json!({ "to": maybe_block(reorg.to.as_ref()), "adopted": reorg.adopted }))
        }
        Event::MinedSet(mark) => ("mined_set", json!({ "block": block(mark) })),
        Event::BlockPersisted(persisted) => ("block_persisted", json!({ "height": persisted.height.0 })),
        Event::StateChanged(state) => ("state_changed", json!({ "state": state.name() })),
    }
}

/// Where things stand.
fn stand(latest: &Latest) -> Value {
    json!({
        "state": latest.state.name(),
        "applied": maybe_block(latest.block_applied.as_ref().map(|applied| &applied.block)),
        "persisted": latest.block_persisted.map(|persisted| persisted.height.0),
    })
}

fn sse(name: &str, content: Value) -> SseEvent {
    SseEvent::default().event(name).data(content.to_string())
}

struct Listener {
    service: Service,
    events: Subscription,
    jobs: broadcast::Receiver<Job>,
    greeted: bool,
    /// Counts the streams that are open.
    _permit: OwnedSemaphorePermit,
}

impl Listener {
    fn missed(&self, events: u64) -> SseEvent {
        sse("missed", json!({ "events": events, "now": stand(&self.service.node.events().latest()) }))
    }

    async fn next(&mut self) -> Option<SseEvent> {
        if !self.greeted {
            self.greeted = true;
            return Some(sse("hello", stand(&self.service.node.events().latest())));
        }
        tokio::select! {
            next = self.events.next() => match next? {
                Told::Event(event) => {
                    let (name, content) = told(&event);
                    Some(sse(name, content))
                }
                Told::Missed(events) => Some(self.missed(events)),
            },
            job = self.jobs.recv() => match job {
                Ok(job) => {
                    let content = serde_json::to_value(JobReport::new(&job)).unwrap_or(Value::Null);
                    Some(sse("prune_job", content))
                }
                Err(broadcast::error::RecvError::Lagged(events)) => Some(self.missed(events)),
                Err(broadcast::error::RecvError::Closed) => None,
            },
        }
    }
}

/// What happens, as it happens
///
/// Server-sent events. First `hello` with where things stand; then `block_applied`, `rolled_back`, `reorg_started`,
/// `reorg_finished`, `mined_set`, `block_persisted`, `state_changed` and `prune_job`. A client that is too slow gets `missed` with the number of
/// events it missed and where things stand now.
#[utoipa::path(
    get, path = "/api/v1/events", tag = "Status",
    responses((status = 200, description = "As it comes", body = String, content_type = "text/event-stream"), ReadProblems)
)]
pub(crate) async fn events(
    State(service): State<Service>,
) -> Result<Sse<impl Stream<Item = Result<SseEvent, Infallible>>>, Problem> {
    let permit = std::sync::Arc::clone(&service.streams).try_acquire_owned();
    let permit = permit.map_err(|_| {
        Problem::unavailable("too many event streams are open: close some, or ask again later")
    })?;
    let events = service.node.events().subscribe();
    let jobs = service.node.pruner().watch_jobs();
    let mut stop = service.stop.clone();
    let listener = Listener { service, events, jobs, greeted: false, _permit: permit };
    let stream = stream::unfold((listener, stop.take()), |(mut listener, stop)| async move {
        let next = match &stop {
            Some(stop) => stop.or(listener.next()).await.flatten(),
            None => listener.next().await,
        };
        next.map(|event| (Ok(event), (listener, stop)))
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}
