//! What happens, as it happens: server-sent events.
//!
//! Every event has an id. A client that comes back with the last one it saw (`last-event-id`) goes on after it. No part waits for a
//! slow client: the oldest events are dropped, and it is told how many it missed and where things stand now.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::State,
    http::{Extensions, HeaderMap},
    response::sse::{Event as SseEvent, KeepAlive, Sse},
};
use futures_util::{Stream, stream};
use sapwood_chain::Event;
use sapwood_types::{BlockMark, ChainPoint};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{
    Problem, Service,
    hub::{Entry, Hub, Place},
    problem::ReadProblems,
};
use crate::{
    listen::Peer,
    places::{self, Full},
};

/// How often a quiet stream shows that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

fn block(mark: &BlockMark) -> Value {
    json!(ChainPoint::from(*mark))
}

fn maybe_block(mark: Option<&BlockMark>) -> Value {
    mark.map_or(Value::Null, block)
}

/// The name and the content of an event.
pub(crate) fn told(event: &Event) -> (&'static str, Value) {
    match event {
        Event::BlockApplied(applied) => {
            let (transactions, conflicting) = (applied.transactions, &applied.conflicting);
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
            let fork = reorg.fork;
            ("reorg_started", json!({ "from": block(&reorg.from), "fork": fork, "depth": reorg.depth }))
        }
        Event::ReorgFinished(reorg) => {
            ("reorg_finished", json!({ "to": maybe_block(reorg.to.as_ref()), "adopted": reorg.adopted }))
        }
        Event::MinedSet(mark) => ("mined_set", json!({ "block": block(mark) })),
        Event::BlockPersisted(persisted) => ("block_persisted", json!({ "height": persisted.height })),
        Event::StateChanged(state) => ("state_changed", json!({ "state": state })),
    }
}

/// Where things stand.
fn stand(service: &Service) -> Value {
    let latest = service.node.events().latest();
    // The hold of the persister is written down, so it knows more than what was told since the start.
    let hold = service.node.pruner().holds().get(sapwood_pruner::Consumer::Persister.name());
    let held = hold.and_then(|hold| hold.keep_from).and_then(|keep_from| keep_from.0.checked_sub(1));
    let told = latest.block_persisted.map(|persisted| persisted.height.0);
    json!({
        "state": latest.state,
        "applied": maybe_block(latest.block_applied.as_ref().map(|applied| &applied.block)),
        "persisted": told.max(held),
    })
}

/// A stream that a client listens to.
struct Listener {
    service: Service,
    hub: Arc<Hub>,
    newer: watch::Receiver<u64>,
    /// The number of the last event that was sent.
    sent: u64,
    /// What to say first.
    first: Option<SseEvent>,
    /// Counts the streams that are open.
    _place: places::Place,
}

impl Listener {
    fn event(&self, name: &str, content: &Value) -> SseEvent {
        SseEvent::default().id(self.hub.id(self.sent)).event(name).data(content.to_string())
    }

    /// Where things stand, with how many events were missed. `None` if that is not known.
    fn missed(&self, events: Option<u64>) -> SseEvent {
        self.event("missed", &json!({ "events": events, "now": stand(&self.service) }))
    }

    /// Where a client begins: after the last event it saw, or with how things stand.
    fn begin(&mut self, last: Option<&str>) {
        self.sent = self.hub.newest();
        self.first = match last.map(|last| self.hub.place(last)) {
            None => Some(self.event("hello", &stand(&self.service))),
            Some(Place::Elsewhere) => Some(self.missed(None)),
            Some(Place::After(number)) => {
                self.sent = number;
                None
            }
        };
    }

    async fn next(&mut self) -> Option<SseEvent> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        loop {
            // Before looking, so that what comes meanwhile is not slept through.
            self.newer.mark_unchanged();
            if let Some((number, entry)) = self.hub.after(self.sent) {
                self.sent = number;
                return Some(match entry {
                    Entry::Event(name, content) => self.event(name, &content),
                    Entry::Missed(events) => self.missed(Some(events)),
                });
            }
            self.newer.changed().await.ok()?;
        }
    }
}

/// What happens, as it happens
///
/// Server-sent events. First `hello` with where things stand; then `block_applied`, `rolled_back`, `reorg_started`,
/// `reorg_finished`, `mined_set`, `block_persisted`, `state_changed`, and `prune_job` for each change of a job's state. Each has an id: a
/// client that comes back with `last-event-id` goes on after it. One that is too slow, or was away for too long, gets `missed` with the
/// number of events it missed (null if that is not known) and where things stand now.
#[utoipa::path(
    get, path = "/api/v1/events", tag = "Status",
    params(("last-event-id" = Option<String>, Header, description = "The id of the last event the client saw")),
    responses((status = 200, description = "As it comes", body = String, content_type = "text/event-stream"), ReadProblems)
)]
pub(crate) async fn events(
    State(service): State<Service>,
    headers: HeaderMap,
    extensions: Extensions,
) -> Result<Sse<impl Stream<Item = Result<SseEvent, Infallible>>>, Problem> {
    let peer = extensions.get::<Peer>().map(|peer| peer.0.ip());
    let place = service.streams.take(peer).map_err(|full| {
        Problem::unavailable(match full {
            Full::All => "too many event streams are open: close some, or ask again later",
            Full::OfThisPeer => "too many event streams are open from your address: close some of them",
        })
    })?;
    let hub = service.hub();
    let newer = hub.watch();
    let mut stop = service.stop.clone();
    let mut listener = Listener { service, hub, newer, sent: 0, first: None, _place: place };
    listener.begin(headers.get("last-event-id").and_then(|id| id.to_str().ok()));
    let stream = stream::unfold((listener, stop.take()), |(mut listener, stop)| async move {
        let next = match &stop {
            Some(stop) => stop.or(listener.next()).await.flatten(),
            None => listener.next().await,
        };
        next.map(|event| (Ok(event), (listener, stop)))
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}
