//! What happens, as it happens.

use std::time::Duration;

use axum::{body::Body, http::Request};
use futures_util::StreamExt as _;
use sapwood_chain::ChainState;
use serde_json::Value;
use tower::ServiceExt as _;

use crate::world::World;

struct Events {
    body: axum::body::BodyDataStream,
    rest: String,
}

impl Events {
    async fn open(world: &World) -> Self {
        let request = Request::get("/api/v1/events").body(Body::empty()).unwrap();
        let response = world.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { body: response.into_body().into_data_stream(), rest: String::new() }
    }

    async fn next(&mut self) -> (String, Value) {
        loop {
            if let Some((event, rest)) = self.rest.split_once("\n\n") {
                let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
                let name = field("event: ").unwrap().to_owned();
                let content = serde_json::from_str(field("data: ").unwrap()).unwrap();
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
