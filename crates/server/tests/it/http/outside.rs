//! What programs that are not ours make of the node: schemathesis of the API's description, Prometheus' own client and `promtool` of the
//! metrics and the alert rules.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use sapwood_conformance::fixtures::coin;
use sapwood_server::{ListenOptions, Listener, Stop};
use tokio::{process::Command, task::JoinHandle};

use crate::http::world::{ADMIN, World};

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What a command prints, whatever came of it.
async fn told(command: &mut Command) -> (bool, String) {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await.unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// The interpreter of the Python environment of the tests.
async fn python() -> PathBuf {
    let output =
        Command::new(repository().join("scripts/python-env.sh")).stderr(Stdio::inherit()).output().await;
    let output = output.unwrap();
    assert!(output.status.success(), "scripts/python-env.sh failed");
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

/// A node that is served over TCP.
struct Served {
    world: World,
    address: SocketAddr,
    stop: Stop,
    task: JoinHandle<()>,
}

impl Served {
    async fn start() -> Self {
        let world = World::new().await;
        world.with_a_pruned_child().await;
        world.extend(&[&coin("tx", 3)]).await;
        world.node.sample().await;
        let options = ListenOptions { address: "127.0.0.1:0".parse().unwrap(), ..ListenOptions::http() };
        let listener = Listener::bind(options).await.unwrap();
        let (address, stop) = (listener.address(), Stop::default());
        let task = tokio::spawn(listener.serve(world.router.clone(), stop.clone(), Duration::from_secs(5)));
        Self { world, address, stop, task }
    }

    async fn end(self) {
        self.stop.ask();
        self.task.await.unwrap();
    }
}

/// What schemathesis may make of an answer, besides what it thinks itself.
///
/// - What the description cannot say is refused all the same: a policy that is unsafe, an address of another chain, a part that the engine does
///   not have, a cursor that no list gave.
/// - A body may be too large before it can be wrong.
/// - Half of the transactions it asks for are there.
fn settings(txids: &[String]) -> String {
    let txids = txids.iter().map(|txid| format!("{txid:?}")).collect::<Vec<_>>().join(", ");
    format!(
        r#"
dictionaries.txids.values = [{txids}]
parameters = {{ "path.tx" = {{ dictionary = "txids", probability = 0.5 }} }}
checks.positive_data_acceptance.expected-statuses = ["2xx", "401", "403", "404", "409", "410", "422"]
checks.negative_data_rejection.expected-statuses = ["400", "401", "403", "404", "405", "409", "410", "413", "415", "422"]
checks.ignored_auth.enabled = false
[[operations]]
include-path = ["/api/v1/addresses/{{address}}/utxos", "/api/v1/credentials/{{credential}}/utxos", "/api/v1/blocks", "/api/v1/status/rocksdb-stats"]
checks.positive_data_acceptance.enabled = false
"#
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schemathesis_finds_nothing() {
    let python = python().await;
    let served = Served::start().await;
    let before = served.world.store.last_applied().await.unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let settings = settings(&[coin("tx", 3).txid.to_string(), coin("parent", 2).txid.to_string()]);
    std::fs::write(scratch.path().join("schemathesis.toml"), settings).unwrap();
    let mut command = Command::new(python.with_file_name("schemathesis"));
    command
        .current_dir(scratch.path())
        .arg("run")
        .arg(format!("http://{}/api/v1/openapi.json", served.address))
        .args(["--header", &format!("authorization: Bearer {ADMIN}")])
        .args(["--phases", "coverage,fuzzing", "--mode", "all", "--max-examples", "25", "--seed", "1"])
        // A stream of events has no end.
        .args([
            "--exclude-path",
            "/api/v1/events",
            "--request-timeout",
            "20",
            "--no-shrink",
            "--workers",
            "1",
        ])
        .args(["--generation-database", "none", "--no-color", "--continue-on-failure"]);
    let (good, said) = told(&mut command).await;
    println!("{said}");
    assert!(good, "schemathesis found something");
    let tested = said.lines().find_map(|line| line.trim().strip_prefix("Tested: "));
    assert!(tested.is_some_and(|count| count.parse::<usize>().unwrap() >= 25), "it has to test everything");
    // It has the admin token, so it may change policies, holds and switches, and have things pruned. What is stored stays sound.
    assert_eq!(served.world.store.last_applied().await.unwrap(), before);
    let report = served.world.store.verify(Arc::new(|_, _| {})).await.unwrap();
    assert!(report.is_clean(), "{report}");
    served.world.get("/api/v1/status").await.ok();
    served.end().await;
}

#[tokio::test]
async fn the_parser_of_prometheus_own_client_reads_the_metrics() {
    let python = python().await;
    let world = World::new().await;
    world.with_a_pruned_child().await;
    world.node.sample().await;
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("metrics");
    std::fs::write(&file, world.get("/metrics").await.text()).unwrap();
    let mut command = Command::new(python);
    command.arg("-B").arg(repository().join("tests/python/read_metrics.py")).arg(&file);
    let (good, said) = told(&mut command).await;
    assert!(good, "{said}");
    let families: usize = said.trim().parse().unwrap();
    let documented = sapwood_server::metrics::list().len();
    assert!(families > 40 && families <= documented, "{families} families, {documented} are documented");
}

/// What `promtool` says to these arguments, if it can be had.
async fn promtool(arguments: &[&str], input: Option<&Path>) -> Option<(bool, String)> {
    let found = Command::new(repository().join("scripts/promtool-env.sh")).output().await.unwrap();
    let path = String::from_utf8(found.stdout).unwrap().trim().to_owned();
    if path.is_empty() {
        eprintln!("skipped: there is no promtool (Debian, Ubuntu: apt install prometheus)");
        return None;
    }
    let mut command = Command::new(path);
    command.args(arguments).kill_on_drop(true);
    match input {
        Some(path) => command.stdin(std::fs::File::open(path).unwrap()),
        None => command.stdin(Stdio::null()),
    };
    let output = command.output().await.unwrap();
    let text = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
}

#[tokio::test]
async fn promtool_accepts_the_alert_rules() {
    let rules = repository().join("dashboards/alerts.yml");
    let Some((good, said)) = promtool(&["check", "rules", rules.to_str().unwrap()], None).await else {
        return;
    };
    assert!(good && said.contains("SUCCESS"), "{said}");
}

#[tokio::test]
async fn promtool_has_nothing_against_the_metrics() {
    let world = World::new().await;
    world.with_a_pruned_child().await;
    world.node.sample().await;
    let text = world.get("/metrics").await.text();
    let counters: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    // promtool reads the older text format, where a counter is described under its whole name.
    let older: String = text
        .lines()
        .filter(|line| *line != "# EOF")
        .map(|line| {
            let words: Vec<&str> = line.splitn(4, ' ').collect();
            match words[..] {
                ["#", what, name, rest] if counters.contains(&name) => {
                    format!("# {what} {name}_total {rest}\n")
                }
                _ => format!("{line}\n"),
            }
        })
        .collect();
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("metrics");
    std::fs::write(&file, older).unwrap();
    let Some((good, said)) = promtool(&["check", "metrics"], Some(&file)).await else { return };
    assert!(good && said.trim().is_empty(), "{said}");
}
