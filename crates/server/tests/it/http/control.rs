//! Telling the pruner what to do.

use sapwood_chain::ChainState;
use sapwood_conformance::fixtures::coin;
use serde_json::{Value, json};

use crate::http::world::{ADMIN, Answer, World};

async fn admin(world: &World, method: &str, path: &str, body: Option<Value>) -> Answer {
    world.send(method, path, Some(ADMIN), body).await
}

#[tokio::test]
async fn pruning_is_asked_for_and_the_job_is_found_again() {
    let world = World::new().await;
    world.extend(&[&coin("tx", 1)]).await;
    world.chain.events().enter(ChainState::Running);
    let answer = admin(&world, "POST", "/api/v1/prune", None).await;
    assert_eq!(answer.status, 202, "{}", answer.text());
    let id = answer.json()["id"].as_u64().unwrap();
    world.pruner.wait(sapwood_pruner::JobId(id)).await.unwrap();
    let job = world.get(&format!("/api/v1/prune/jobs/{id}")).await.ok();
    assert_eq!(job["state"], "completed", "{job}");
    let jobs = world.get("/api/v1/prune/jobs?limit=1").await.ok();
    assert_eq!(jobs.as_array().unwrap().len(), 1);
    let at_a_height = admin(&world, "POST", "/api/v1/prune", Some(json!({ "height": 1 }))).await;
    assert_eq!(at_a_height.status, 202);
    admin(&world, "POST", "/api/v1/prune", Some(json!({ "height": 0 })))
        .await
        .problem(422, "not-allowed-value");
    world.get("/api/v1/prune/jobs/999999").await.problem(404, "not-found");
}

#[tokio::test]
async fn pruning_is_disabled_and_enabled() {
    let world = World::new().await;
    let set =
        |enabled: bool| admin(&world, "PUT", "/api/v1/prune/enabled", Some(json!({ "enabled": enabled })));
    assert_eq!(set(false).await.ok(), json!({ "enabled": false }));
    assert!(!world.pruner.is_enabled());
    let status = world.get("/api/v1/status").await.ok();
    assert_eq!(status["prune"]["enabled"], false, "the status shows it at once");
    assert!(status["alerts"].as_array().unwrap().iter().any(|alert| alert["name"] == "pruning_disabled"));
    let refused = admin(&world, "POST", "/api/v1/prune", None).await.problem(409, "conflict");
    assert!(refused.contains("enable it"), "{refused}");
    assert_eq!(set(true).await.ok(), json!({ "enabled": true }));
    assert_eq!(world.get("/api/v1/prune/enabled").await.ok(), json!({ "enabled": true }));
}

#[tokio::test]
async fn a_plan_says_what_would_go_and_nothing_goes() {
    let world = World::new().await;
    let parent = coin("parent", 1);
    let child = sapwood_conformance::fixtures::child("child", &[(&parent, 0)], 1);
    world.extend(&[&parent, &child]).await;
    world.empty_blocks(6).await;
    let plan = world.get("/api/v1/prune/plan").await.ok();
    assert_eq!((&plan["records"], &plan["complete"]), (&json!(1), &json!(true)), "{plan}");
    assert!(plan["bytes"].as_u64().unwrap() > 0);
    world.get(&format!("/api/v1/txs/{}", parent.txid)).await.ok();
    world.get("/api/v1/prune/plan?height=0").await.problem(422, "not-allowed-value");
}

#[tokio::test]
async fn holds_are_set_listed_and_released() {
    let world = World::new().await;
    world.empty_blocks(3).await;
    let hold = json!({ "owner": "ops", "keep_from": 2, "expires": null, "reason": "a look at block 2" });
    // A name with a slash works as it is and encoded.
    for path in ["/api/v1/holds/export/nightly", "/api/v1/holds/export%2Fweekly"] {
        let set = admin(&world, "PUT", path, Some(hold.clone())).await.ok();
        assert_eq!(
            (&set["owner"], &set["keep_from"], &set["kind"]),
            (&json!("ops"), &json!(2), &json!("export"))
        );
    }
    let names = |holds: &Value| -> Vec<String> {
        holds.as_array().unwrap().iter().map(|hold| hold["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(
        names(&world.get("/api/v1/holds").await.ok()),
        ["reorg-window", "export/nightly", "export/weekly"]
    );
    assert_eq!(names(&world.get("/api/v1/status").await.ok()["prune"]["holds"]).len(), 3);
    assert_eq!(admin(&world, "DELETE", "/api/v1/holds/export/nightly", None).await.status, 204);
    admin(&world, "DELETE", "/api/v1/holds/export/nightly", None).await.problem(404, "not-found");
    world.get("/api/v1/holds/export/nightly").await.problem(404, "not-found");
    world.get("/api/v1/holds/export/weekly").await.ok();
}

#[tokio::test]
async fn a_hold_that_makes_no_sense_is_refused() {
    let world = World::new().await;
    let put = |name: &'static str, body: Value| {
        let world = &world;
        async move { admin(world, "PUT", &format!("/api/v1/holds/{name}"), Some(body)).await }
    };
    let fine = json!({ "owner": "me", "reason": "because" });
    put("Large", fine.clone()).await.problem(422, "not-allowed-value");
    put("x", json!({ "owner": "", "reason": "because" })).await.problem(422, "not-allowed-value");
    put("x", json!({ "owner": "me", "reason": "because", "expires": 1 }))
        .await
        .problem(422, "not-allowed-value");
    // Milliseconds in the place of seconds, and what no calendar has.
    for far in [1_794_975_948_000, 99_999_999_999_999_999, u64::MAX] {
        let far = json!({ "owner": "me", "reason": "because", "expires": far });
        let refused = put("x", far).await.problem(422, "not-allowed-value");
        assert!(refused.contains("year 9999"), "{refused}");
    }
    put("x", json!({ "owner": "me" })).await.problem(422, "not-allowed-value");
    put("persister", fine.clone()).await.problem(409, "conflict");
    put("reorg-window", fine).await.problem(409, "conflict");
    admin(&world, "DELETE", "/api/v1/holds/reorg-window", None).await.problem(409, "conflict");
}

#[tokio::test]
async fn o7_hold_of_another_owner_is_not_replaced() {
    let world = World::new().await;
    let put = async |owner: &str, keep_from: u32| {
        let hold = json!({ "owner": owner, "keep_from": keep_from, "reason": "a backup" });
        admin(&world, "PUT", "/api/v1/holds/backup", Some(hold)).await
    };
    put("alice", 340).await.ok();
    let refused = put("carol", 99_999_999).await.problem(409, "conflict");
    assert!(refused.contains("alice") && refused.contains("release"), "{refused}");
    assert_eq!(world.get("/api/v1/holds/backup").await.ok()["keep_from"], 340);
    put("alice", 350).await.ok();
    assert_eq!(admin(&world, "DELETE", "/api/v1/holds/backup", None).await.status, 204);
    put("carol", 330).await.ok();
}

#[tokio::test]
async fn h5_one_number_of_the_policy_is_changed_and_shortening_is_confirmed() {
    let world = World::new().await;
    let before = world.get("/api/v1/policy").await.ok();
    let window = before["reorg_window"].as_u64().unwrap();
    assert_eq!((&before["configured"]["retention"], &before["origins"]), (&before["retention"], &json!({})));
    let patch = async |body: Value| patch(&world, body).await;

    let after = patch(json!({ "retention": 1000 })).await.ok();
    assert_eq!((&after["retention"], &after["reorg_window"]), (&json!(1000), &before["reorg_window"]));
    assert_eq!(after["origins"]["retention"]["from"], "run_time");
    assert_eq!(after["configured"]["retention"], before["retention"]);
    assert_eq!(
        after["origins"]["retention"]["by"], "a command on the data directory",
        "no peer: the same process"
    );
    assert_eq!(world.get("/api/v1/policy").await.ok(), after);
    assert_eq!(world.get("/api/v1/status").await.ok()["prune"]["policy"]["retention"], 1000);

    let refused = patch(json!({ "retention": window })).await;
    let said = refused.problem(409, "needs-confirmation");
    assert!(said.contains("retention goes from 1,000 blocks") && said.contains("would delete"), "{said}");
    assert_eq!(world.get("/api/v1/policy").await.ok(), after, "nothing was changed");
    let shorter = confirm(&world, json!({ "retention": window })).await.ok();
    assert_eq!(shorter["retention"], window);

    let unsafe_one = confirm(&world, json!({ "retention": 1, "reorg_window": 2 })).await;
    assert!(unsafe_one.problem(422, "not-allowed-value").contains("less than the reorg window"));
    patch(json!({ "retenton": 1 })).await.problem(422, "not-allowed-value");
    patch(json!({ "retention": 1, "confirm": true })).await.problem(422, "not-allowed-value");
    patch(json!([2000])).await.problem(422, "not-allowed-value");
    patch(json!([null, null])).await.problem(422, "not-allowed-value");
    assert_eq!(world.get("/api/v1/policy").await.ok(), shorter);
}

async fn patch(world: &World, change: Value) -> Answer {
    admin(world, "PATCH", "/api/v1/policy", Some(change)).await
}

async fn confirm(world: &World, change: Value) -> Answer {
    admin(world, "PATCH", "/api/v1/policy?confirm=true", Some(change)).await
}

#[tokio::test]
async fn h5_a_shorter_policy_shows_the_plan_and_wants_a_confirmation() {
    let world = World::new().await;
    let before = world.get("/api/v1/policy").await.ok()["retention"].as_u64().unwrap();
    patch(&world, json!({ "retention": before + 20 })).await.ok();
    let parent = coin("parent", 1);
    let child = sapwood_conformance::fixtures::child("child", &[(&parent, 0)], 1);
    world.extend(&[&parent, &child]).await;
    world.empty_blocks(before as u32 + 2).await;
    let shorter = json!({ "retention": before });
    let refused = patch(&world, shorter.clone()).await;
    let detail = refused.problem(409, "needs-confirmation");
    assert!(detail.contains("retention goes from"), "{detail}");
    assert_eq!(refused.json()["plan"]["records"], 1, "what it would delete: {}", refused.text());
    assert_eq!(world.get("/api/v1/policy").await.ok()["retention"], before + 20, "nothing was changed");
    world.get(&format!("/api/v1/txs/{}", parent.txid)).await.ok();
    let confirmed = confirm(&world, json!({ "retention": before })).await.ok();
    assert_eq!(confirmed["retention"], before);
}

#[tokio::test]
async fn m17_a_consumer_is_registered_reports_and_is_released() {
    let world = World::new().await;
    world.empty_blocks(3).await;
    let put = |name: &'static str, body: Option<Value>| {
        let world = &world;
        async move { admin(world, "PUT", &format!("/api/v1/consumers/{name}"), body).await }
    };
    let registered = put("persister", None).await.ok();
    assert_eq!((&registered["kind"], &registered["keep_from"]), (&json!("persister"), &Value::Null));
    assert_eq!(put("persister", Some(json!({ "height": 1 }))).await.ok()["keep_from"], 2);
    assert_eq!(
        put("block-assembly", Some(json!({ "height": 2, "running": true }))).await.ok()["keep_from"],
        3
    );
    put("persister", Some(json!({ "running": true }))).await.problem(422, "not-allowed-value");
    put("nobody", None).await.problem(404, "not-found");
    for name in ["persister", "block-assembly"] {
        let path = format!("/api/v1/consumers/{name}");
        assert!(matches!(world.send("DELETE", &path, None, None).await.status.as_u16(), 401 | 403));
        assert_eq!(admin(&world, "DELETE", &path, None).await.status, 204);
        admin(&world, "DELETE", &path, None).await.problem(404, "not-found");
    }
}

#[tokio::test]
async fn m17_a_job_is_cancelled() {
    let world = World::new().await;
    // Nothing runs before the chain does, so the job waits or is over at once.
    world.extend(&[&coin("tx", 1)]).await;
    world.chain.events().enter(ChainState::Running);
    let id = admin(&world, "POST", "/api/v1/prune", None).await.json()["id"].as_u64().unwrap();
    world.pruner.wait(sapwood_pruner::JobId(id)).await.unwrap();
    let over = admin(&world, "POST", &format!("/api/v1/prune/jobs/{id}/cancel"), None).await;
    over.problem(409, "conflict");
    admin(&world, "POST", "/api/v1/prune/jobs/999999/cancel", None).await.problem(404, "not-found");
    let no_token = world.send("POST", &format!("/api/v1/prune/jobs/{id}/cancel"), None, None).await;
    assert!(matches!(no_token.status.as_u16(), 401 | 403));
}
