//! The doors of a running node: who gets in, what a fed node takes, signals, and the way out. The binary itself, over real sockets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may")]

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::{fs::PermissionsExt as _, process::ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::{FutureExt as _, future::BoxFuture};
use hyper::{Request, Response, body::Incoming, client::conn::http2::SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::process::{Pid, Signal, kill_process};
use sapwood_server::grpc::proto::{chain_client::ChainClient, utxo_client::UtxoClient, *};
use serde_json::Value;
use tonic::{Code, body::Body};

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
        let log = fs::File::create(self.directory.path().join("log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_sapwood"));
        command.args(["run", "--config", self.config.to_str().unwrap()]).env_remove("RUST_LOG");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap()
    }

    /// Starts a node and waits until it says where it can be asked.
    fn start(&self) -> Running {
        let mut child = self.spawn();
        let endpoints = until("endpoints.json", || {
            assert_eq!(child.try_wait().unwrap(), None, "{}", self.log());
            let text = fs::read_to_string(self.data.join("endpoints.json")).ok()?;
            let endpoints: Value = serde_json::from_str(&text).unwrap();
            (endpoints["pid"] == child.id()).then_some(endpoints)
        });
        Running { child, endpoints }
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

/// One HTTP/2 connection, with a token or without.
#[derive(Clone)]
struct Wire {
    sender: SendRequest<Body>,
    token: Option<String>,
}

impl Wire {
    async fn to(address: &str, token: Option<&str>) -> Self {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self { sender, token: token.map(str::to_owned) }
    }
}

impl tower::Service<Request<Body>> for Wire {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = BoxFuture<'static, hyper::Result<Response<Incoming>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.sender.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if let Some(token) = &self.token {
            request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        self.sender.send_request(request).boxed()
    }
}

fn origin() -> hyper::Uri {
    "http://sapwood".parse().unwrap()
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
    let mut stranger = ChainClient::with_origin(Wire::to(&address, None).await, origin());
    assert_eq!(stranger.apply_blocks(feed()).await.unwrap_err().code(), Code::Unauthenticated);
    let wire = Wire::to(&address, Some(&token)).await;
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
    let mut chain = ChainClient::with_origin(Wire::to(&node.address("grpc"), None).await, origin());
    let status = chain.get_status(GetChainStatusRequest {}).await.unwrap().into_inner();
    assert_eq!(status.applied.unwrap().height, 3);
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
