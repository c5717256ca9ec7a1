//! The doors of a running node: who gets in, what a fed node takes, signals, and the way out. The binary itself, over real sockets.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::{fs::PermissionsExt as _, process::ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use bytes::Bytes;
use rustix::process::{Pid, Signal, kill_process};
use sapwood_server::grpc::proto::{chain_client::ChainClient, utxo_client::UtxoClient, *};
use sapwood_testing::grpc::{Wire, origin};
use serde_json::Value;
use tonic::Code;

/// Longer than anything here takes on the busiest machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until something is so.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A node that is fed, in a directory of its own.
struct Place {
    directory: tempfile::TempDir,
    config: PathBuf,
    data: PathBuf,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (config, data) = (directory.path().join("sapwood.toml"), directory.path().join("data"));
        let place = Self { directory, config, data };
        place.configure("", "");
        place
    }

    /// Writes the configuration, with these settings of the servers and these sections.
    fn configure(&self, servers: &str, sections: &str) {
        let text = format!(
            "[data]\ndirectory = {:?}\n[chain]\nnetwork = \"regtest\"\n[source]\nkind = \"feed\"\n{sections}\n\
             [servers]\ngrpc_address = \"127.0.0.1:0\"\nhttp_address = \"127.0.0.1:0\"\n{servers}\n",
            self.data
        );
        fs::write(&self.config, text).unwrap();
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    fn spawn(&self) -> Child {
        self.spawn_with(&["--config", self.config.to_str().unwrap()], &[])
    }

    /// Runs with these arguments and with these variables in its environment.
    fn spawn_with(&self, args: &[&str], variables: &[(&str, &str)]) -> Child {
        let log = fs::File::create(self.directory.path().join("log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_sapwood"));
        command.arg("run").args(args).env_remove("RUST_LOG").current_dir(self.directory.path());
        command.envs(variables.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap()
    }

    /// What a command that is given the directory answers, with these variables in its environment.
    fn ask(&self, args: &[&str], variables: &[(&str, &str)]) -> std::process::Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sapwood"));
        command.args(args).arg("--data").arg(&self.data).current_dir(self.directory.path());
        command.env_remove("RUST_LOG").env_remove("SAPWOOD_TOKEN").env_remove("SAPWOOD_URL");
        command.envs(variables.iter().copied()).stdin(Stdio::null()).output().unwrap()
    }

    /// Starts a node and waits until it says where it can be asked.
    fn start(&self) -> Running {
        self.started(self.spawn())
    }

    fn started(&self, mut child: Child) -> Running {
        let endpoints = until("endpoints.json", || {
            assert_eq!(child.try_wait().unwrap(), None, "{}", self.log());
            let text = fs::read_to_string(self.data.join("endpoints.json")).ok()?;
            let endpoints: Value = serde_json::from_str(&text).unwrap();
            (endpoints["pid"] == child.id()).then_some(endpoints)
        });
        Running { child, endpoints }
    }

    /// Runs a command on the data directory: its exit code, and all that it printed.
    fn sapwood(&self, arguments: &[&str]) -> (i32, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sapwood"));
        command.args(arguments).args(["--data", self.data.to_str().unwrap()]).env_remove("RUST_LOG");
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(text).unwrap())
    }

    fn token(&self) -> String {
        fs::read_to_string(self.data.join("admin.token")).unwrap().trim().to_owned()
    }

    fn mode(&self, name: &str) -> u32 {
        fs::metadata(self.data.join(name)).unwrap().permissions().mode() & 0o777
    }
}

struct Running {
    child: Child,
    endpoints: Value,
}

impl Running {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn address(&self, door: &str) -> String {
        self.endpoints[door].as_str().unwrap().rsplit_once('/').unwrap().1.to_owned()
    }

    /// Whether pruning can be enabled with this token: the status of the answer.
    fn change(&self, token: Option<&str>) -> u16 {
        let mut stream = TcpStream::connect(self.address("http")).unwrap();
        let authorization = token.map_or(String::new(), |token| format!("authorization: Bearer {token}\r\n"));
        let request = format!(
            "PUT /api/v1/prune/enabled HTTP/1.1\r\nhost: localhost\r\n{authorization}connection: close\r\n\
             content-type: application/json\r\ncontent-length: 16\r\n\r\n{{\"enabled\":true}}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().parse().unwrap()
    }

    fn ended(mut self) -> ExitStatus {
        until("the end of the process", || self.child.try_wait().unwrap())
    }

    fn stop(self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.ended()
    }
}

/// A connection, with a token or without.
async fn connect(address: &str, token: Option<&str>) -> Wire {
    let wire = Wire::to(address).await;
    token.map_or(wire.clone(), |token| wire.with_token(token))
}

fn block(height: u32) -> Block {
    let hash = |height: u32| Bytes::from([&[0xb0; 28][..], &height.to_be_bytes()].concat());
    let output = Output { value: 1, script: Bytes::from_static(&[1]), ..Output::default() };
    let txid = Bytes::from([&[0xc0; 28][..], &height.to_be_bytes()].concat());
    let coinbase = Transaction {
        txid,
        version: 1,
        size: 100,
        coinbase: true,
        outputs: vec![output],
        ..Transaction::default()
    };
    let parent = hash(height.wrapping_sub(1));
    Block {
        height: Some(height),
        hash: hash(height),
        parent,
        transactions: vec![coinbase],
        ..Block::default()
    }
}

#[tokio::test]
async fn c3_a_fed_node_takes_blocks_and_utxos_over_grpc_and_keeps_them() {
    let place = Place::new();
    let node = place.start();
    assert_eq!(
        (place.mode(""), place.mode("admin.token"), place.mode("endpoints.json")),
        (0o700, 0o600, 0o600)
    );
    let token = place.token();
    assert!(token.len() == 64 && !place.log().contains(&token), "{}", place.log());
    assert!(place.log().contains("admin.token"), "it says where the token is: {}", place.log());

    let address = node.address("grpc");
    let feed = || ApplyBlocksRequest { blocks: (0..5).map(block).collect() };
    let mut stranger = ChainClient::with_origin(connect(&address, None).await, origin());
    assert_eq!(stranger.apply_blocks(feed()).await.unwrap_err().code(), Code::Unauthenticated);
    let wire = connect(&address, Some(&token)).await;
    let mut chain = ChainClient::with_origin(wire.clone(), origin());
    let answer = chain.apply_blocks(feed()).await.unwrap().into_inner();
    assert_eq!((answer.applied.len(), answer.problem), (5, None));
    chain.set_state(SetStateRequest { state: ChainState::Running.into() }).await.unwrap();
    let to = ChainPoint { height: Some(3), hash: block(3).hash };
    let back = RollBackRequest { target: Some(roll_back_request::Target::To(to)) };
    assert_eq!(chain.roll_back(back).await.unwrap().into_inner().blocks, 1);
    let status = chain.get_status(GetChainStatusRequest {}).await.unwrap().into_inner();
    assert_eq!((status.fed, status.applied.unwrap().height), (true, 3));
    let transaction = Transaction { coinbase: false, ..block(9).transactions.remove(0) };
    let new =
        NewTransaction { transaction: Some(transaction), trust_inputs: true, ..NewTransaction::default() };
    let create = CreateRequest { transactions: vec![new], height: Some(3) };
    let created = UtxoClient::with_origin(wire, origin()).create(create).await.unwrap().into_inner();
    assert_eq!((created.succeeded, created.failed), (1, vec![]));
    assert_eq!(place.log().matches("sapwood.v1.Chain/ApplyBlocks").count(), 1, "{}", place.log());

    assert_eq!(node.stop().code(), Some(0), "{}", place.log());
    assert!(!place.data.join("endpoints.json").exists(), "no node runs any more");
    let node = place.start();
    assert_eq!(place.token(), token, "the token is made once");
    let mut chain = ChainClient::with_origin(connect(&node.address("grpc"), None).await, origin());
    let status = chain.get_status(GetChainStatusRequest {}).await.unwrap().into_inner();
    assert_eq!(status.applied.unwrap().height, 3);
    assert_eq!(node.stop().code(), Some(0));
}

/// What is written of a large transaction that was fed without the bytes of its chain is a file of our own, which names its id.
#[tokio::test(flavor = "multi_thread")]
async fn h4_the_body_of_a_fed_transaction_without_raw_bytes_is_sound() {
    let place = Place::new();
    let node = place.start();
    let wire = connect(&node.address("grpc"), Some(&place.token())).await;
    let mut large = block(0);
    let output = large.transactions[0].outputs[0].clone();
    large.transactions[0].outputs = vec![output; 129];
    let feed = ApplyBlocksRequest { blocks: vec![large] };
    let answer = ChainClient::with_origin(wire, origin()).apply_blocks(feed).await.unwrap().into_inner();
    assert_eq!((answer.applied.len(), answer.problem), (1, None));

    let txid = "c0".repeat(28) + "00000000";
    let file = place.directory.path().join("body");
    let sapwood = |arguments: &[&str]| place.sapwood(arguments);
    let (code, verified) = sapwood(&["verify", "--json"]);
    assert_eq!(code, 0, "{verified}");
    let verified: Value = serde_json::from_str(&verified).unwrap();
    assert_eq!((&verified["clean"], &verified["bodies"]), (&true.into(), &1.into()), "{verified}");
    let (code, got) = sapwood(&["get", "tx", &txid, "--body", file.to_str().unwrap()]);
    assert_eq!(code, 0, "{got}");
    assert!(fs::read(&file).unwrap().starts_with(b"SWTX"));

    let stored = place.data.join(format!("bodies/c0/c0/{txid}.outputs"));
    let mut damaged = fs::read(&stored).unwrap();
    damaged[5] ^= 1;
    fs::write(&stored, damaged).unwrap();
    let (code, verified) = sapwood(&["verify"]);
    assert!(
        code == 1 && verified.contains(&format!("it is that of transaction c1{}", &txid[2..])),
        "{verified}"
    );
    assert_eq!(node.stop().code(), Some(0));
}

/// As it is configured unless told otherwise: any process of the machine reaches gRPC.
#[tokio::test]
async fn c3_a_following_node_takes_no_writes_without_the_token_and_none_of_utxos_with_it() {
    let place = Place::new();
    let text = fs::read_to_string(&place.config).unwrap();
    let blocks = place.directory.path().join("blocks");
    fs::write(&place.config, text.replace("kind = \"feed\"", &format!("blocks = [{blocks:?}]"))).unwrap();
    let node = place.start();
    let freeze =
        || FreezeRequest { outpoints: vec![OutPoint { txid: Bytes::from_static(&[7; 32]), vout: 0 }] };
    let create = || CreateRequest { transactions: vec![], height: Some(1) };
    let token = place.token();
    for (token, expected) in [(None, Code::Unauthenticated), (Some(token.as_str()), Code::FailedPrecondition)]
    {
        let wire = connect(&node.address("grpc"), token).await;
        let mut utxo = UtxoClient::with_origin(wire.clone(), origin());
        let mut chain = ChainClient::with_origin(wire, origin());
        let apply = ApplyBlocksRequest { blocks: vec![block(0)] };
        for answer in [
            utxo.freeze(freeze()).await.map(drop),
            utxo.create(create()).await.map(drop),
            chain.apply_blocks(apply).await.map(drop),
        ] {
            assert_eq!(answer.unwrap_err().code(), expected);
        }
    }
    assert_eq!(node.stop().code(), Some(0), "{}", place.log());
}

/// Only a feeder can say which payment credential an output has.
#[tokio::test(flavor = "multi_thread")]
async fn a_fed_output_is_found_by_its_credential() {
    let place = Place::new();
    let text = fs::read_to_string(&place.config).unwrap();
    fs::write(&place.config, text.replace("[chain]\n", "[chain]\ncredential_index = true\n")).unwrap();
    let node = place.start();
    let wire = connect(&node.address("grpc"), Some(&place.token())).await;
    let mut first = block(0);
    first.transactions[0].outputs[0].credential = Some(Bytes::from_static(&[0xab; 28]));
    let feed = ApplyBlocksRequest { blocks: vec![first] };
    let answer = ChainClient::with_origin(wire, origin()).apply_blocks(feed).await.unwrap().into_inner();
    assert_eq!((answer.applied.len(), answer.problem), (1, None));
    let (code, found) = place.sapwood(&["get", "credential", &"ab".repeat(28), "--json"]);
    assert_eq!(code, 0, "{found}");
    let found: Value = serde_json::from_str(&found).unwrap();
    let txid = "c0".repeat(28) + "00000000";
    assert_eq!(
        (&found["items"][0]["txid"], &found["items"][0]["vout"]),
        (&txid.into(), &0.into()),
        "{found}"
    );
    let (code, none) = place.sapwood(&["get", "credential", &"cd".repeat(28)]);
    assert!(code == 0 && none.contains("0 outputs"), "{none}");
    assert_ne!(place.sapwood(&["get", "credential", "ab"]).0, 0, "it is too short");
    assert_eq!(node.stop().code(), Some(0));
}

#[test]
fn c3_a_second_process_leaves_token_and_endpoints_of_the_first_alone() {
    let place = Place::new();
    let node = place.start();
    let (token, endpoints) = (place.token(), fs::read(place.data.join("endpoints.json")).unwrap());
    let mut second = place.spawn();
    let status = until("the end of the second", || second.try_wait().unwrap());
    assert_eq!(status.code(), Some(1), "{}", place.log());
    assert!(place.log().contains("in use by another process"), "{}", place.log());
    assert_eq!(
        (place.token(), fs::read(place.data.join("endpoints.json")).unwrap()),
        (token.clone(), endpoints)
    );
    assert_eq!(node.change(Some(&token)), 200);
    assert_eq!(node.stop().code(), Some(0));
}

/// A port that another program has, which shows only after gRPC is up. It used to end in SIGABRT now and then.
#[test]
fn m12_a_start_that_fails_after_grpc_is_up_ends_with_an_error_and_nothing_else() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let text = fs::read_to_string(&place.config).unwrap();
    let text = text.replace("http_address = \"127.0.0.1:0\"", &format!("http_address = \"{address}\""));
    fs::write(&place.config, text).unwrap();
    for round in 0..15 {
        let mut child = place.spawn();
        let status = until("the end", || child.try_wait().unwrap());
        assert_eq!((status.code(), status.signal()), (Some(1), None), "round {round}: {}", place.log());
        assert!(place.log().contains(&address.to_string()), "{}", place.log());
        assert!(!place.data.join("endpoints.json").exists());
    }
    drop(taken);
    assert_eq!(place.start().stop().code(), Some(0), "the directory is as good as before");
}

#[test]
fn m12_a_second_sigterm_ends_the_process_without_an_abort() {
    let place = Place::new();
    for round in 0..10 {
        let node = place.start();
        // A client that holds an answer open, so that the stop takes a while.
        let mut stream = TcpStream::connect(node.address("http")).unwrap();
        stream.write_all(b"GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        stream.read_exact(&mut [0; 1]).unwrap();
        node.signal(Signal::TERM);
        std::thread::sleep(Duration::from_millis(round));
        node.signal(Signal::TERM);
        let status = node.ended();
        assert!(matches!(status.code(), Some(0 | 130)), "round {round}: {status:?} {}", place.log());
    }
    assert_eq!(place.start().stop().code(), Some(0));
}

#[test]
fn m12_sighup_takes_over_what_it_can_and_names_what_it_cannot() {
    let place = Place::new();
    let node = place.start();
    let made = place.token();
    assert_eq!((node.change(None), node.change(Some(&made))), (401, 200));

    let configured = "an-admin-token-of-the-configuration";
    place.configure(&format!("admin_token = {configured:?}\nready_lag = 7"), "[policy]\nretention = 1000");
    node.signal(Signal::HUP);
    until("the new token", || (node.change(Some(configured)) == 200).then_some(()));
    assert_eq!(node.change(Some(&made)), 401, "the old one is not valid any more");
    until("the policy", || place.log().contains("the configuration was read again").then_some(()));
    assert!(
        place.log().contains("servers.ready_lag has changed and takes effect at the next start"),
        "{}",
        place.log()
    );
    assert!(!place.log().contains(configured), "{}", place.log());
    // The level of the log is in effect before the line that tells of it, so that one is not logged any more.
    place.configure(&format!("admin_token = {:?}", configured.to_owned() + "-2"), "[log]\nlevel = \"error\"");
    node.signal(Signal::HUP);
    until("the second token", || (node.change(Some(&(configured.to_owned() + "-2"))) == 200).then_some(()));

    // What cannot be run with changes nothing.
    fs::write(&place.config, "[servers]\nadmin_token = \"short\"\n").unwrap();
    node.signal(Signal::HUP);
    until("the refusal", || place.log().contains("the configuration is not taken over").then_some(()));
    assert_eq!(node.change(Some(&(configured.to_owned() + "-2"))), 200);
    assert_eq!(place.log().matches("the configuration was read again").count(), 1, "{}", place.log());
    assert_eq!(node.stop().code(), Some(0), "{}", place.log());
}

#[test]
fn l18_what_other_users_can_read_is_warned_about_with_the_fix() {
    let place = Place::new();
    let node = place.start();
    assert!(!place.log().contains("can be read by other users"), "{}", place.log());
    assert_eq!(node.stop().code(), Some(0));
    let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    open(&place.data, 0o755);
    open(&place.data.join("admin.token"), 0o644);
    place.configure("read_token = \"a-read-token-in-the-file\"", "");
    open(&place.config, 0o644);
    let node = place.start();
    let log = place.log();
    for fix in [
        format!("chmod 700 {}", place.data.display()),
        format!("chmod 600 {}", place.data.join("admin.token").display()),
        format!("chmod 600 {}", place.config.display()),
    ] {
        assert!(log.contains(&fix), "{fix} is not in {log}");
    }
    assert_eq!(node.stop().code(), Some(0));
}

#[test]
fn a_node_configured_by_the_environment_alone_is_found_with_its_token() {
    let place = Place::new();
    fs::remove_file(&place.config).unwrap();
    let data = place.data.to_str().unwrap();
    let variables = [
        ("SAPWOOD_DATA_DIRECTORY", data),
        ("SAPWOOD_CHAIN_NETWORK", "regtest"),
        ("SAPWOOD_SOURCE_KIND", "feed"),
        ("SAPWOOD_SERVERS_GRPC_ADDRESS", "127.0.0.1:0"),
        ("SAPWOOD_SERVERS_HTTP_ADDRESS", "127.0.0.1:0"),
        // Text, although it looks like a number.
        ("SAPWOOD_SERVERS_ADMIN_TOKEN", "1234567890123456"),
    ];
    let node = place.started(place.spawn_with(&[], &variables));
    assert!(!place.data.join("admin.token").exists(), "one is configured");
    let said = |output: &std::process::Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let stranger = place.ask(&["prune", "disable"], &[]);
    assert!(!stranger.status.success() && said(&stranger).contains("--token"), "{}", said(&stranger));
    let inside = place.ask(&["prune", "disable"], &variables);
    assert!(inside.status.success(), "{}", said(&inside));
    assert_eq!(node.stop().code(), Some(0), "{}", place.log());
}

#[test]
fn changes_are_logged_whatever_rust_log_says_unless_it_names_them() {
    let place = Place::new();
    let config = place.config.to_str().unwrap().to_owned();
    let logged = |level: &str| {
        let node = place.started(place.spawn_with(&["--config", &config], &[("RUST_LOG", level)]));
        assert_eq!(node.change(Some(&place.token())), 200);
        assert_eq!(node.stop().code(), Some(0), "{}", place.log());
        place.log()
    };
    for level in ["warn", "sapwood_chain=debug", "error", "off"] {
        let log = logged(level);
        let lines: Vec<_> = log.lines().filter(|line| line.contains("a change was asked for")).collect();
        assert_eq!(lines.len(), 1, "{level}: {log}");
        assert!(lines[0].contains(" audit: ") && lines[0].contains("PUT /api/v1/prune/enabled"), "{log}");
        assert!(!log.contains("serving HTTP"), "{level}: all else is as it says: {log}");
    }
    let log = logged("audit=off,info");
    assert!(log.contains("serving HTTP") && !log.contains("a change was asked for"), "{log}");
    assert!(!log.contains("sapwood::"), "no other target is printed: {log}");
}

#[test]
fn sighup_names_a_certificate_that_is_removed_and_a_refused_configuration_changes_nothing() {
    let place = Place::new();
    let file = |name: &str, text: String| {
        let path = place.directory.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let pair = |name: &str| {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = file(&format!("{name}.key"), made.signing_key.serialize_pem());
        (file(&format!("{name}.pem"), made.cert.pem()), key)
    };
    let (first, first_key) = pair("first");
    let (second, second_key) = pair("second");
    let tls = |certificate: &str, key: &str| format!("certificate = {certificate:?}\nkey = {key:?}");
    place.configure(&tls(&first, &first_key), "");
    let node = place.start();
    let url = node.endpoints["http"].as_str().unwrap();
    let shows = |certificate: &str| {
        let args = ["status", "--url", url, "--ca", certificate];
        let output = Command::new(env!("CARGO_BIN_EXE_sapwood")).args(args).output().unwrap();
        output.status.success()
    };
    assert!(shows(&first) && !shows(&second));

    // The token of the directory is damaged, so the configuration is refused, with the certificate in it.
    let token = place.token();
    fs::write(place.data.join("admin.token"), "short\n").unwrap();
    place.configure(&tls(&second, &second_key), "[policy]\nretention = 1000");
    node.signal(Signal::HUP);
    until("the refusal", || place.log().contains("the configuration is not taken over").then_some(()));
    assert!(shows(&first) && !shows(&second), "the certificate is the one before");
    fs::write(place.data.join("admin.token"), format!("{token}\n")).unwrap();
    let policy = place.ask(&["policy", "show", "--json", "--ca", &first], &[]);
    let policy: Value = serde_json::from_slice(&policy.stdout).unwrap();
    assert_eq!(policy["retention"], 288, "and so is the policy");

    node.signal(Signal::HUP);
    until("the new certificate", || shows(&second).then_some(()));
    place.configure("", "[policy]\nretention = 1000");
    node.signal(Signal::HUP);
    let named = "servers.certificate has changed and takes effect at the next start";
    until("its removal", || place.log().contains(named).then_some(()));
    assert!(shows(&second), "until then it is shown");
    assert_eq!(node.stop().code(), Some(0), "{}", place.log());
}

#[test]
fn o10_secret_that_comes_with_sighup_is_warned_about_too() {
    let place = Place::new();
    fs::set_permissions(&place.config, fs::Permissions::from_mode(0o644)).unwrap();
    let node = place.start();
    let fix = format!("chmod 600 {}", place.config.display());
    assert!(!place.log().contains(&fix), "{}", place.log());
    place.configure("read_token = \"a-read-token-in-the-file\"", "");
    fs::set_permissions(&place.config, fs::Permissions::from_mode(0o644)).unwrap();
    node.signal(Signal::HUP);
    until("the configuration", || place.log().contains("the configuration was read again").then_some(()));
    assert!(place.log().contains(&fix), "{}", place.log());
    assert_eq!(node.stop().code(), Some(0));
}
