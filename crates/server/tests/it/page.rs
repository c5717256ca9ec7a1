//! The status page in a real browser, on a node that follows a chain.
//!
//! `scripts/browser-env.sh` installs what it needs. With `SAPWOOD_SCREENSHOTS=DIRECTORY` it lets the node run for a while and leaves
//! pictures there.

use bytes::Bytes;
use std::{path::PathBuf, process::Stdio, sync::Arc, time::Duration};

use sapwood_chain::{Chain, ChainOptions, Events, FollowOptions, Follower, Stop};
use sapwood_engine_rocksdb::{OpenMode, Options, open_ledger};
use sapwood_ledger::{AddressIndexing, CreateRequest, Ledger};
use sapwood_pruner::{Consumer, Pruner, PrunerHandle, PrunerOptions, SystemClock};
use sapwood_rules::{Hold, Policy};
use sapwood_server::{
    Access, ListenOptions, Listener, Node, NodeParts, Secret, Tokens,
    address::{ChainKind, SCRIPT_PREFIX, hex},
    http::{HttpOptions, router},
};
use sapwood_sources::synthetic::{SyntheticOptions, SyntheticSource};
use sapwood_types::{Height, Output, Tx, TxId};

const ADMIN: &str = "the-admin-token-of-the-page-test";
/// How far the persister of the test is behind.
const PERSISTER_LAG: u32 = 10;
/// How many steps the chain takes quickly, before the browser comes.
const QUICK_STEPS: u32 = 95;

fn policy() -> Policy {
    Policy { reorg_window: 12, coinbase_maturity: 5, ..Policy::with_retention(20) }
}

fn options() -> SyntheticOptions {
    SyntheticOptions {
        txs_per_block: 60,
        first_outputs: 2_000,
        coinbase_maturity: 5,
        late_blocks: (10, 30),
        expire_after: 40,
        reorg_probability: 0.02,
        max_reorg_depth: 4,
        ..SyntheticOptions::default()
    }
}

/// Everything that runs during the test.
struct Running {
    store: Ledger,
    node: Node,
    stop: Stop,
    _directory: tempfile::TempDir,
}

async fn start() -> Running {
    let directory = tempfile::tempdir().unwrap();
    let index = AddressIndexing { address: true, credential: false };
    let embedded = Options::default()
        .ledger(|ledger| ledger.address_index = index)
        .engine(|engine| engine.write_buffer_bytes = 1 << 20);
    let store = open_ledger(directory.path(), OpenMode::Create, policy(), embedded).unwrap();
    let events = Events::default();
    let chain = Chain::new(store.clone(), events.clone(), ChainOptions::default());
    let options_of_pruner = PrunerOptions::with_policy(policy());
    let pruner =
        Pruner::start(store.clone(), events, None, options_of_pruner, Arc::new(SystemClock)).await.unwrap();
    pruner.register(Consumer::Persister).await.unwrap();
    let source = SyntheticSource::new(options()).unwrap();
    let stop = Stop::default();
    let wait = FollowOptions { wait: Duration::from_millis(200), ..FollowOptions::default() };
    let follower = Follower::new(chain.clone(), Arc::new(source.clone()), wait, stop.clone());
    let node = Node::new(NodeParts {
        name: "page test".into(),
        store: store.clone(),
        chain,
        pruner: pruner.clone(),
        kind: ChainKind::Bitcoin(bitcoin::Network::Regtest),
        address_index: index,
        progress: Some(follower.progress()),
        directory: Some(directory.path().to_owned()),
        ready_lag: 10,
        no_block_after: None,
        disk_limit: None,
    });
    tokio::spawn(async move { follower.follow().await.unwrap() });
    tokio::spawn(feed(source, store.clone(), pruner, stop.clone()));
    node.keep_sampling(Duration::from_millis(250));
    Running { store, node, stop, _directory: directory }
}

/// Makes blocks, and persists them later.
async fn feed(source: SyntheticSource, store: Ledger, pruner: PrunerHandle, stop: Stop) {
    let hold = Hold {
        name: "export/nightly".into(),
        owner: "backup job".into(),
        keep_from: Some(Height(40)),
        expires: None,
        reason: "copies blocks to the vault, one hour a night".into(),
    };
    pruner.holds().set(hold).await.unwrap();
    let mut steps = 0;
    while !stop.is_asked() {
        source.advance();
        steps += 1;
        if steps == 90 {
            pruner.holds().release("export/nightly").await.unwrap();
        }
        let applied = store.last_applied().await.unwrap().map_or(0, |last| last.height.0);
        if let Some(height) = applied.checked_sub(PERSISTER_LAG).filter(|height| height % 5 == 0) {
            pruner.report_persisted(Height(height)).await.unwrap();
        }
        // Quickly at first. A browser on a busy machine must find a block that it shows before that leaves the window.
        let pause = Duration::from_millis(if steps < QUICK_STEPS { 120 } else { 1000 });
        let _ = stop.or(tokio::time::sleep(pause)).await;
    }
}

/// Something to look up for as long as the test takes: the chain's own transactions are pruned or reorganised away meanwhile.
async fn a_coin_that_stays(store: &Ledger) -> Tx {
    let tx = Tx {
        txid: TxId([0xa7; 32]),
        version: 1,
        locktime: 0,
        fee: None,
        size: 100,
        coinbase: true,
        inputs: Vec::new(),
        outputs: vec![Output::new(5_000, Bytes::from_static(b"a script nobody can meet"))],
        raw: Default::default(),
    };
    store.create(vec![CreateRequest::mined(tx.clone(), 1, Height(1))], Height(1)).await.unwrap();
    tx
}

fn browser_modules() -> PathBuf {
    let directory = std::env::var_os("SAPWOOD_BROWSER_DIR").map(PathBuf::from).unwrap_or_else(|| {
        PathBuf::from(std::env::var_os("HOME").expect("HOME is set")).join(".cache/sapwood/browser")
    });
    let modules = directory.join("node_modules");
    assert!(
        modules.join("playwright-core").is_dir(),
        "playwright-core is not in {}: run scripts/browser-env.sh first",
        modules.display()
    );
    modules
}

/// Starts a node and lets one of the scripts in tests/browser look at its page.
async fn run_in_browser(script: &str) {
    let modules = browser_modules();
    let running = start().await;
    let listener =
        Listener::bind(ListenOptions { address: "127.0.0.1:0".parse().unwrap(), ..ListenOptions::http() });
    let listener = listener.await.unwrap();
    let address = listener.address();
    let tokens = Tokens { read: None, admin: Some(Secret::new(ADMIN).unwrap()) };
    let access = Access::new(tokens, address).unwrap();
    let options = HttpOptions {
        refresh: Duration::from_millis(500),
        stop: Some(running.stop.clone()),
        ..HttpOptions::new(access)
    };
    let router = router(running.node.clone(), options);
    let served = tokio::spawn(listener.serve(router, running.stop.clone(), Duration::from_secs(5)));

    let mut status = running.node.status().await;
    while status.chain.applied.as_ref().is_none_or(|applied| applied.height.0 < 80) {
        tokio::time::sleep(Duration::from_millis(50)).await;
        status = running.node.status().await;
    }
    let tx = a_coin_that_stays(&running.store).await;
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/browser").join(script);
    let output = tokio::process::Command::new("node")
        .arg(script)
        .env("PAGE_URL", format!("http://{address}"))
        .env("PAGE_MODULES", &modules)
        .env("PAGE_ADMIN_TOKEN", ADMIN)
        .env("PAGE_TX", tx.txid.to_string())
        .env("PAGE_ADDRESS", format!("{SCRIPT_PREFIX}{}", hex(&tx.outputs[0].script)))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(240), output)
        .await
        .expect("the browser ends in time")
        .unwrap();
    let (told, problems) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{told}");
    assert!(output.status.success(), "{told}\n{problems}");
    running.stop.ask();
    served.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_works_in_a_real_browser() {
    run_in_browser("page.mjs").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_findings_of_newcomers_and_operators_stay_fixed() {
    run_in_browser("findings.mjs").await;
}
