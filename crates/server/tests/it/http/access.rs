//! Who may do what.

use axum::http::header;
use serde_json::json;

use crate::http::world::{ADMIN, Plan, READ, World};

const READING: [&str; 9] = [
    "/api/v1/status",
    "/api/v1/status/rocksdb-stats",
    "/api/v1/blocks",
    "/api/v1/history",
    "/api/v1/prune",
    "/api/v1/prune/jobs",
    "/api/v1/policy",
    "/api/v1/holds",
    "/metrics",
];

#[tokio::test]
async fn reading_needs_the_token_if_there_is_one() {
    let world = World::planned(Plan::closed()).await;
    for path in READING {
        let answer = world.get(path).await;
        answer.problem(401, "unauthorized");
        assert_eq!(answer.headers[header::WWW_AUTHENTICATE], "Bearer");
        world.send("GET", path, Some("not-one-of-the-two"), None).await.problem(401, "unauthorized");
        for token in [READ, ADMIN] {
            assert!(world.send("GET", path, Some(token), None).await.status.is_success(), "{path}");
        }
    }
}

#[tokio::test]
async fn what_shows_no_figures_is_open() {
    let world = World::planned(Plan::closed()).await;
    for path in ["/", "/page.js", "/page.css", "/api", "/api/v1/openapi.json", "/health/live"] {
        assert!(world.get(path).await.status.is_success(), "{path}");
    }
}

#[tokio::test]
async fn changing_something_needs_the_admin_token() {
    let world = World::planned(Plan::closed()).await;
    let hold = json!({ "owner": "me", "keep_from": 1, "reason": "because" });
    let policy = serde_json::to_value(sapwood_rules::Policy::default()).unwrap();
    let changes = [
        ("POST", "/api/v1/prune", None),
        ("PUT", "/api/v1/prune/enabled", Some(json!({ "enabled": false }))),
        ("PATCH", "/api/v1/policy", Some(policy)),
        ("PUT", "/api/v1/consumers/persister", None),
        ("DELETE", "/api/v1/consumers/persister", None),
        ("POST", "/api/v1/prune/jobs/1/cancel", None),
        ("PUT", "/api/v1/holds/mine", Some(hold)),
        ("DELETE", "/api/v1/holds/mine", None),
    ];
    for (method, path, body) in changes {
        world.send(method, path, None, body.clone()).await.problem(401, "unauthorized");
        world.send(method, path, Some(READ), body).await.problem(403, "forbidden");
    }
    assert!(world.pruner.is_enabled() && world.pruner.holds().get("mine").is_none());
}

#[tokio::test]
async fn without_an_admin_token_nobody_changes_anything() {
    let mut plan = Plan::default();
    plan.tokens.admin = None;
    let world = World::planned(plan).await;
    for token in [None, Some("whatever-it-may-be-it-is-wrong")] {
        let answer =
            world.send("PUT", "/api/v1/prune/enabled", token, Some(json!({ "enabled": false }))).await;
        assert!(answer.problem(403, "forbidden").contains("set one"), "it says what to do");
    }
    world.get("/api/v1/status").await.ok();
}

#[tokio::test]
async fn a_token_is_told_what_it_may_do() {
    let world = World::planned(Plan::closed()).await;
    let ask = |token| world.send("GET", "/api/v1/access", Some(token), None);
    assert_eq!(ask(ADMIN).await.ok(), json!({ "read": true, "admin": true, "admin_token": true }));
    assert_eq!(ask(READ).await.ok(), json!({ "read": true, "admin": false, "admin_token": true }));
    ask("neither-of-the-two-tokens").await.problem(401, "unauthorized");
    let open = World::new().await;
    assert_eq!(
        open.get("/api/v1/access").await.ok(),
        json!({ "read": true, "admin": false, "admin_token": true })
    );
    let mut plan = Plan::default();
    plan.tokens.admin = None;
    let fixed = World::planned(plan).await;
    assert_eq!(
        fixed.get("/api/v1/access").await.ok()["admin_token"],
        false,
        "nothing can unlock the controls"
    );
    open.send("GET", "/api/v1/access", Some(READ), None).await.problem(401, "unauthorized");
}

#[tokio::test]
async fn l18_a_page_elsewhere_whose_name_leads_here_reads_nothing_and_case_does_not_matter() {
    let world = World::new().await;
    let ask = |host: &'static str, token: Option<&'static str>| {
        let mut request = axum::http::Request::get("/api/v1/status").header(header::HOST, host);
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        world.call(request.body(axum::body::Body::empty()).unwrap())
    };
    for host in [
        "127.0.0.1",
        "127.0.0.1:8097",
        "[::1]:8097",
        "[::1]",
        "localhost",
        "localhost:8097",
        "LOCALHOST",
        "LocalHost:8097",
    ] {
        ask(host, None).await.ok();
    }
    for host in ["evil.example", "evil.example:8097", "127.0.0.1.evil.example", ""] {
        ask(host, None).await.problem(421, "misdirected");
        // A page can send any header, so only a token that is right tells that the caller knows whom it asks.
        for wrong in ["x", "not-the-token-0123456789", READ, ""] {
            ask(host, Some(wrong)).await.problem(421, "misdirected");
        }
        ask(host, Some(ADMIN)).await.ok();
    }
    ask("localhost", Some("not-the-token-0123456789")).await.ok();
}

#[tokio::test]
async fn every_name_a_request_carries_has_to_be_an_own_one() {
    let world = World::new().await;
    let ask = |uri: &'static str, hosts: &'static [&'static str]| {
        let mut request = axum::http::Request::get(uri);
        for host in hosts {
            request = request.header(header::HOST, *host);
        }
        world.call(request.body(axum::body::Body::empty()).unwrap())
    };
    ask("http://localhost:8097/api/v1/status", &["127.0.0.1"]).await.ok();
    ask("/api/v1/status", &["127.0.0.1", "evil.example"]).await.problem(421, "misdirected");
    ask("http://evil.example/api/v1/status", &["127.0.0.1"]).await.problem(421, "misdirected");
    ask("http://evil.example/api/v1/status", &[]).await.problem(421, "misdirected");
}

#[tokio::test]
async fn a_foreign_name_is_let_in_by_either_token() {
    let world = World::planned(Plan::closed()).await;
    let ask = |token: &'static str| {
        let request = axum::http::Request::get("/api/v1/status").header(header::HOST, "evil.example");
        let request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        world.call(request.body(axum::body::Body::empty()).unwrap())
    };
    ask("not-the-token-0123456789").await.problem(401, "unauthorized");
    ask(READ).await.ok();
    ask(ADMIN).await.ok();
}
