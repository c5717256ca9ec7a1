//! The pages, the description of the API, and what is generated.

use std::{collections::BTreeSet, fs, path::PathBuf};

use serde_json::Value;

use crate::http::world::World;

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compares a generated file with what is there, or writes it.
fn generated(path: &str, content: &str) {
    let path = repository().join(path);
    if std::env::var_os("SAPWOOD_WRITE_DOCS").is_some() {
        return fs::write(path, content).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == content,
        "{} is not what the code says: set SAPWOOD_WRITE_DOCS=1 and run this test",
        path.display()
    );
}

#[test]
fn documentation_of_metrics_is_that_of_the_code() {
    generated("docs/metrics.md", &sapwood_server::metrics::documentation());
}

#[test]
fn documentation_of_the_api_is_that_of_the_code() {
    let document = sapwood_server::http::openapi::document().to_pretty_json().unwrap();
    generated("docs/openapi.json", &(document + "\n"));
}

/// The link of the page started a download.
#[tokio::test]
async fn metrics_are_plain_text_to_a_browser() {
    let world = World::new().await;
    let kind = async |accept: &str| {
        let request = axum::http::Request::get("/metrics").header("accept", accept);
        let answer = world.call(request.body(axum::body::Body::empty()).unwrap()).await;
        answer.headers["content-type"].to_str().unwrap().to_owned()
    };
    let chromium = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8";
    let prometheus =
        "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
    assert!(kind(chromium).await.starts_with("text/plain;"));
    assert!(kind("text/plain").await.starts_with("text/plain;"));
    assert!(kind(prometheus).await.starts_with("application/openmetrics-text;"));
    assert!(kind("*/*").await.starts_with("application/openmetrics-text;"));
}

#[tokio::test]
async fn every_path_of_the_description_is_served() {
    let world = World::new().await;
    let document = world.get("/api/v1/openapi.json").await.ok();
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() >= 18, "{}", paths.len());
    for (path, operations) in paths {
        for method in operations.as_object().unwrap().keys() {
            let filled = path.replace("{txid}", &"0".repeat(64)).replace("{vout}", "0").replace("{id}", "1");
            let filled = filled.replace("{block}", "0").replace("{consumer}", "persister");
            let filled = filled
                .replace("{address}", "00")
                .replace("{credential}", &"0".repeat(56))
                .replace("{name}", "x");
            if filled.ends_with("/events") {
                continue;
            }
            let answer = world.send(&method.to_uppercase(), &filled, None, None).await;
            assert_ne!(answer.status, 405, "{method} {path}");
            if answer.status == 404 {
                assert_ne!(answer.json()["type"], "urn:sapwood:problem:no-such-path", "{method} {path}");
            }
            let documented = &operations[method]["responses"];
            let described =
                documented.as_object().unwrap().values().all(|response| response["description"].is_string());
            assert!(
                described,
                "{method} {path} has an answer without a description, which OpenAPI does not allow"
            );
            let status = answer.status.as_u16().to_string();
            assert!(
                documented.get(&status).is_some(),
                "{method} {path} answers {status}, which is not documented"
            );
        }
    }
}

#[test]
fn m17_every_answer_to_too_many_requests_is_documented() {
    let document = serde_json::to_value(sapwood_server::http::openapi::document()).unwrap();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            assert!(operation["responses"]["429"].is_object(), "{method} {path} does not say 429");
        }
    }
}

#[tokio::test]
async fn the_status_page_is_found_where_the_old_one_was() {
    let world = World::new().await;
    let answer = world.get("/ui/status").await;
    assert_eq!((answer.status.as_u16(), &answer.headers["location"]), (308, &"/".parse().unwrap()));
}

#[tokio::test]
async fn pages_load_nothing_from_elsewhere_and_have_nothing_inline() {
    let world = World::new().await;
    for path in ["/", "/api"] {
        let answer = world.get(path).await;
        let policy = answer.headers["content-security-policy"].to_str().unwrap().to_owned();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
        let page = answer.text();
        for (place, _) in page.match_indices("<script") {
            assert!(
                page[place..].starts_with("<script src=\"/")
                    || page[place..].starts_with("<script type=\"module\" src=\"/")
            );
        }
        assert!(
            !page.contains("<style") && !page.contains(" style=") && !page.contains(" onclick="),
            "{path}"
        );
        let linked = ["src=\"", "href=\""].into_iter().flat_map(|attribute| {
            page.match_indices(attribute)
                .map(|(place, _)| page[place + attribute.len()..].split('"').next().unwrap())
        });
        for link in linked.collect::<BTreeSet<_>>() {
            assert!(link.starts_with('/') || link.starts_with('#'), "{path} has a link to {link}");
            if link.starts_with('/') {
                assert_ne!(world.get(link).await.status, 404, "{path} has a link to {link}");
            }
        }
    }
}

#[tokio::test]
async fn files_have_their_types_and_are_not_sent_twice() {
    let world = World::new().await;
    let types = [
        ("/", "text/html"),
        ("/page.js", "text/javascript"),
        ("/page.css", "text/css"),
        ("/uplot.js", "text/javascript"),
        ("/icon.svg", "image/svg+xml"),
    ];
    for (path, kind) in types {
        let answer = world.get(path).await;
        assert!(answer.headers["content-type"].to_str().unwrap().starts_with(kind), "{path}");
        let tag = answer.headers["etag"].to_str().unwrap();
        let request =
            axum::http::Request::get(path).header("if-none-match", tag).body(axum::body::Body::empty());
        let again = world.call(request.unwrap()).await;
        assert_eq!((again.status.as_u16(), again.body.len()), (304, 0), "{path}");
    }
}

/// Without heavy statistics nothing but a request for it computes the hash of the UTXO set, and the page is no such request.
#[tokio::test]
async fn m24_the_page_shows_the_utxo_set_of_the_status_and_asks_for_no_other() {
    let world = World::new().await;
    let mut asked = BTreeSet::new();
    let scripts =
        ["blocks", "charts", "client", "controls", "engine", "explore", "page", "pruner", "views", "vitals"];
    for script in scripts {
        let text = world.get(&format!("/{script}.js")).await.text();
        let calls =
            text.split("api(").skip(1).filter_map(|call| call.get(1..)?.split(['"', '`', '?', '$']).next());
        asked.extend(calls.map(str::to_owned));
    }
    assert!(asked.contains("status") && asked.contains("policy"), "{asked:?}");
    assert!(!asked.contains("utxo-set"), "{asked:?}");
}

/// Names of metrics in an expression: words that look like ours.
fn metric_names(expression: &str) -> impl Iterator<Item = &str> {
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    expression.split(word).filter(|name| name.starts_with("sapwood_"))
}

fn assert_metrics_exist(expression: &str) {
    let known: BTreeSet<&str> = sapwood_server::metrics::list().iter().map(|metric| metric.name).collect();
    let histograms = |name: &str| {
        ["_bucket", "_count", "_sum"]
            .iter()
            .any(|end| name.strip_suffix(end).is_some_and(|base| known.contains(base)))
    };
    for name in metric_names(expression) {
        assert!(known.contains(name) || histograms(name), "there is no metric {name}, used in {expression}");
    }
}

fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == "expr" => found.push(text.clone()),
                    value => expressions(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        _ => {}
    }
}

#[test]
fn the_dashboard_uses_metrics_that_exist() {
    let dashboard = fs::read_to_string(repository().join("dashboards/grafana.json")).unwrap();
    let mut found = Vec::new();
    expressions(&serde_json::from_str(&dashboard).unwrap(), &mut found);
    assert!(found.len() >= 12, "{} expressions", found.len());
    found.iter().for_each(|expression| assert_metrics_exist(expression));
}

/// The page shows the status and nothing else, and every number of the status is a metric.
#[test]
fn the_dashboard_has_a_panel_for_every_metric() {
    let dashboard = fs::read_to_string(repository().join("dashboards/grafana.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let mut found = Vec::new();
    expressions(&dashboard, &mut found);
    let shown: BTreeSet<&str> = found
        .iter()
        .flat_map(|expression| metric_names(expression))
        .map(|name| name.strip_suffix("_bucket").unwrap_or(name))
        .collect();
    for metric in sapwood_server::metrics::list() {
        assert!(shown.contains(metric.name), "no panel for {}", metric.name);
    }
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "ids of panels are different");
    let place = |panel: &Value, side: &str| panel["gridPos"][side].as_u64().unwrap();
    for (number, panel) in panels.iter().enumerate() {
        assert!(place(panel, "x") + place(panel, "w") <= 24, "{} is too wide", panel["title"]);
        for other in &panels[..number] {
            let apart = |from: &str, length: &str| {
                place(panel, from) >= place(other, from) + place(other, length)
                    || place(other, from) >= place(panel, from) + place(panel, length)
            };
            assert!(apart("x", "w") || apart("y", "h"), "{} lies on {}", panel["title"], other["title"]);
        }
    }
}

#[test]
fn the_alert_rules_use_metrics_and_alerts_that_exist() {
    let rules = fs::read_to_string(repository().join("dashboards/alerts.yml")).unwrap();
    let found: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).collect();
    assert!(found.len() >= 8, "{} expressions", found.len());
    found.iter().for_each(|expression| assert_metrics_exist(expression));
    for name in sapwood_server::status::alerts::NAMES {
        assert!(rules.contains(&format!("name=\"{name}\"")), "no rule for the alert {name}");
    }
}

#[test]
fn the_operations_guide_says_what_each_alert_means() {
    let guide = fs::read_to_string(repository().join("docs/operations.md")).unwrap();
    let rules = fs::read_to_string(repository().join("dashboards/alerts.yml")).unwrap();
    // A paragraph begins with the name of its alert.
    let paragraph = |name: &str| {
        let begins = |text: &&str| {
            text.strip_prefix("**")
                .and_then(|rest| rest.strip_prefix(name))
                .is_some_and(|rest| rest.starts_with(['*', '.']))
        };
        guide.split("\n\n").find(begins)
    };
    let names: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(names.len() >= 15, "{names:?}");
    for name in names {
        let text = paragraph(name).unwrap_or_else(|| panic!("docs/operations.md has no paragraph on {name}"));
        assert!(text.len() > 80, "{name} needs more words: {text}");
    }
    let paragraphs = guide.split("\n\n").filter_map(|text| text.strip_prefix("**Sapwood"));
    for paragraph in paragraphs {
        let end = paragraph.find(|one: char| !one.is_ascii_alphanumeric()).unwrap();
        let rule = format!("- alert: Sapwood{}\n", &paragraph[..end]);
        assert!(
            rules.contains(&rule),
            "docs/operations.md explains Sapwood{}, which is no rule",
            &paragraph[..end]
        );
    }
    for name in sapwood_server::status::alerts::NAMES {
        assert!(guide.contains(&format!("(`{name}`)")), "docs/operations.md does not say what {name} is");
    }
}
