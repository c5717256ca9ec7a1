//! What happens, as it happens.

use std::time::Duration;

use axum::{body::Body, http::Request};
use futures_util::StreamExt as _;
use sapwood_chain::ChainState;
use serde_json::Value;
use tower::ServiceExt as _;

use crate::http::world::World;

struct Events {
    body: axum::body::BodyDataStream,
    rest: String,
    /// The id of the last event.
    id: String,
}

impl Events {
    async fn open(world: &World) -> Self {
        Self::after(world, None).await
    }

    async fn after(world: &World, last: Option<&str>) -> Self {
        let mut request = Request::get("/api/v1/events");
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let request = request.body(Body::empty()).unwrap();
        let response = world.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { body: response.into_body().into_data_stream(), rest: String::new(), id: String::new() }
    }

    async fn next(&mut self) -> (String, Value) {
        loop {
            if let Some((event, rest)) = self.rest.split_once("\n\n") {
                let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
                let name = field("event: ").unwrap().to_owned();
                let content = serde_json::from_str(field("data: ").unwrap()).unwrap();
                self.id = field("id: ").unwrap().to_owned();
                self.rest = rest.to_owned();
                return (name, content);
            }
            let chunk = tokio::time::timeout(Duration::from_secs(30), self.body.next()).await.unwrap();
            self.rest += std::str::from_utf8(&chunk.unwrap().unwrap()).unwrap();
        }
    }

    async fn find(&mut self, wanted: &str) -> Value {
        loop {
            let (name, content) = self.next().await;
            if name == wanted {
                return content;
            }
        }
    }
}

#[tokio::test]
async fn blocks_and_states_are_told_as_they_come() {
    let world = World::new().await;
    world.empty_blocks(1).await;
    let mut events = Events::open(&world).await;
    let (name, hello) = events.next().await;
    assert_eq!((name.as_str(), &hello["applied"]["height"]), ("hello", &0.into()));
    world.empty_blocks(1).await;
    assert_eq!(events.find("block_applied").await["block"]["height"], 1);
    world.chain.events().enter(ChainState::Running);
    assert_eq!(events.find("state_changed").await["state"], "running");
    world.prune().await;
    assert!(events.find("prune_job").await["id"].is_u64());
}

#[tokio::test]
async fn a_slow_client_is_told_what_it_missed_and_where_things_stand() {
    let world = World::new().await;
    let mut events = Events::open(&world).await;
    events.find("hello").await;
    // Nobody reads meanwhile, and nobody waits.
    for height in 0..2000 {
        let persisted = sapwood_chain::events::BlockPersisted { height: sapwood_types::Height(height) };
        world.chain.events().tell(sapwood_chain::Event::BlockPersisted(persisted));
    }
    let missed = events.find("missed").await;
    assert!(missed["events"].as_u64().unwrap() > 0);
    assert_eq!(missed["now"]["persisted"], 1999);
}

fn persisted(height: u32) -> sapwood_chain::Event {
    let persisted = sapwood_chain::events::BlockPersisted { height: sapwood_types::Height(height) };
    sapwood_chain::Event::BlockPersisted(persisted)
}

#[tokio::test]
async fn l18_a_client_that_comes_back_goes_on_where_it_was() {
    let world = World::new().await;
    let mut events = Events::open(&world).await;
    events.find("hello").await;
    for height in 1..=3 {
        world.chain.events().tell(persisted(height));
    }
    assert_eq!(events.find("block_persisted").await["height"], 1);
    let seen = events.id.clone();
    drop(events);
    world.chain.events().tell(persisted(4));
    let mut again = Events::after(&world, Some(&seen)).await;
    for height in 2..=4 {
        let (name, content) = again.next().await;
        assert_eq!(
            (name.as_str(), &content["height"]),
            ("block_persisted", &height.into()),
            "nothing lost, nothing twice"
        );
    }
    // An id of another process, or of none.
    for unknown in ["1-1", "nonsense", ""] {
        let mut stranger = Events::after(&world, Some(unknown)).await;
        let (name, content) = stranger.next().await;
        assert_eq!(
            (name.as_str(), &content["events"], &content["now"]["persisted"]),
            ("missed", &Value::Null, &4.into())
        );
    }
}

#[tokio::test]
async fn l18_a_job_is_told_of_once_for_each_state() {
    let world = World::new().await;
    world.empty_blocks(2).await;
    let mut events = Events::open(&world).await;
    events.find("hello").await;
    world.prune().await;
    world.prune().await;
    world.chain.events().tell(persisted(77));
    let mut told = Vec::new();
    loop {
        let (name, content) = events.next().await;
        match name.as_str() {
            "prune_job" => {
                told.push((content["id"].as_u64().unwrap(), content["state"].as_str().unwrap().to_owned()))
            }
            "block_persisted" if content["height"] == 77 => break,
            _ => {}
        }
    }
    assert!(told.iter().any(|(_, state)| state == "completed"), "{told:?}");
    let mut once = told.clone();
    once.dedup();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), told.len(), "no state twice: {told:?}");
}

#[tokio::test]
async fn l18_hello_knows_what_is_persisted_from_the_hold() {
    let world = World::new().await;
    world.empty_blocks(3).await;
    assert_eq!(Events::open(&world).await.find("hello").await["persisted"], Value::Null);
    world.pruner.report_persisted(sapwood_types::Height(1)).await.unwrap();
    assert_eq!(Events::open(&world).await.find("hello").await["persisted"], 1);
}

#[tokio::test]
async fn streams_are_counted_and_given_back() {
    let world = World::new().await;
    let mut open = Vec::new();
    for _ in 0..64 {
        open.push(Events::open(&world).await);
    }
    world.get("/api/v1/events").await.problem(503, "unavailable");
    open.pop();
    Events::open(&world).await;
}

/// As over gRPC: others than the pruner want to know it too.
#[tokio::test]
async fn what_the_persister_reports_over_http_is_told_to_everyone() {
    let world = World::new().await;
    world.empty_blocks(3).await;
    let mut events = Events::open(&world).await;
    events.find("hello").await;
    let report = serde_json::json!({ "height": 2 });
    world
        .send("PUT", "/api/v1/consumers/persister", Some(crate::http::world::ADMIN), Some(report))
        .await
        .ok();
    assert_eq!(events.find("block_persisted").await["height"], 2);
}
