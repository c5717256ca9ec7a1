//! Who comes in great numbers, slowly, or with the wrong token: refused, said once, and nothing else happens.

use std::{
    io::Write,
    net::SocketAddr,
    ops::RangeInclusive,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use sapwood_conformance::fixtures::coin;
use sapwood_server::{Access, ListenOptions, Listener, Stop};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinHandle,
};

use crate::http::world::{Plan, READ, World};

/// Everything that is logged. One thread runs a test here, so it hears nobody else.
#[derive(Clone)]
struct Log {
    written: Arc<Mutex<Vec<u8>>>,
    since: Instant,
}

impl Log {
    fn listen() -> (Self, tracing::subscriber::DefaultGuard) {
        let log = Self { written: Arc::default(), since: Instant::now() };
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing_subscriber::filter::LevelFilter::INFO)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    fn lines(&self) -> Vec<String> {
        let bytes = self.written.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    }

    /// Checks that this was said by so many places, by each of them at most once a minute.
    fn assert_seldom(&self, what: &str, places: RangeInclusive<usize>) {
        let said = self.lines().iter().filter(|line| line.contains(what)).count();
        let minutes = 1 + self.since.elapsed().as_secs() as usize / 60;
        let allowed = *places.start()..=places.end() * minutes;
        assert!(allowed.contains(&said), "{what:?} was said {said} times: {:#?}", self.lines());
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        std::io::Write::write(&mut *self.written.lock().unwrap(), bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct Served {
    world: World,
    address: SocketAddr,
    stop: Stop,
    task: JoinHandle<()>,
    before: [u8; 32],
}

impl Served {
    async fn start(plan: Plan, options: ListenOptions) -> Self {
        let world = World::planned(plan).await;
        world.extend(&[&coin("tx", 3)]).await;
        world.node.sample().await;
        let before = world.store.state_digest().await.unwrap();
        let options = ListenOptions { address: "127.0.0.1:0".parse().unwrap(), ..options };
        let listener = Listener::bind(options).await.unwrap();
        let (address, stop) = (listener.address(), Stop::default());
        let task = tokio::spawn(listener.serve(world.router.clone(), stop.clone(), Duration::from_secs(5)));
        Self { world, address, stop, task, before }
    }

    /// Says something, and hears everything until the server hangs up.
    async fn say(&self, text: &str) -> String {
        let Ok(mut stream) = TcpStream::connect(self.address).await else { return String::new() };
        // Who is hung up on before having said everything hears nothing.
        let _ = stream.write_all(text.as_bytes()).await;
        heard(&mut stream).await
    }

    /// Asks until it is answered: on a busy machine a request can take longer than the short time-outs of these tests.
    async fn answers(&self) {
        while !self.say(LIVE).await.starts_with("HTTP/1.1 200") {
            tokio::task::yield_now().await;
        }
    }

    /// Ends it, after checking that nothing has changed.
    async fn end_unchanged(self) {
        let after = self.world.store.state_digest().await.unwrap();
        assert_eq!(self.before, after, "nothing else may happen");
        self.stop.ask();
        self.task.await.unwrap();
    }
}

async fn heard(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all).await;
    String::from_utf8_lossy(&all).into_owned()
}

const LIVE: &str = "GET /health/live HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

/// As many connections as the system lets one process have at both ends, at most ten thousand.
fn connections() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let count = usize::try_from(files).unwrap_or(usize::MAX).saturating_sub(4000).min(10_000);
    if count < 10_000 {
        eprintln!("only {count} connections: this process may open {files} files");
    }
    count
}

#[tokio::test]
async fn ten_thousand_connections_are_refused_and_the_next_client_is_answered() {
    let (log, _guard) = Log::listen();
    let places = 500;
    let options = ListenOptions {
        max_connections: places,
        header_timeout: Duration::from_millis(500),
        ..ListenOptions::http()
    };
    let served = Served::start(Plan::default(), options).await;
    served.answers().await;
    let before = resident_bytes();
    let mut flood = Vec::new();
    for _ in 0..connections() {
        flood.push(TcpStream::connect(served.address).await.unwrap());
    }
    let after = resident_bytes();
    // Those who have a place and say nothing lose it. The flood is still there, and all the same a client gets in.
    served.answers().await;
    for stream in &mut flood {
        assert_eq!(heard(stream).await, "", "none of them was answered");
    }
    if let (Some(before), Some(after)) = (before, after) {
        // Both ends of every connection are in this process.
        assert!(after < before + (256 << 20), "{before} bytes before, {after} after");
    }
    log.assert_seldom("too many connections", 1..=1);
    log.assert_seldom("a connection failed", 0..=1);
    served.end_unchanged().await;
}

#[tokio::test]
async fn a_head_and_a_body_that_only_trickle_are_not_waited_for() {
    let (log, _guard) = Log::listen();
    let options = ListenOptions {
        header_timeout: Duration::from_millis(300),
        request_timeout: Duration::from_millis(300),
        ..ListenOptions::http()
    };
    let served = Served::start(Plan::default(), options).await;
    let admin = crate::http::world::ADMIN;
    let put = format!(
        "PUT /api/v1/prune/enabled HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {admin}\r\n\
         content-type: application/json\r\ncontent-length: 10000\r\n\r\n{{"
    );
    for begun in ["GET /api/v1/status HTTP/1.1\r\nhost: localhost\r\nx-slow: ", put.as_str()] {
        for _ in 0..3 {
            let mut stream = TcpStream::connect(served.address).await.unwrap();
            stream.write_all(begun.as_bytes()).await.unwrap();
            let (mut from, mut to) = stream.split();
            // A byte now and then, without end: it is the server that ends this.
            let trickle = async {
                while to.write_all(b" ").await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            let mut answer = Vec::new();
            let hear = async { drop(from.read_to_end(&mut answer).await) };
            tokio::select! { () = trickle => {}, () = hear => {} }
            let answer = String::from_utf8_lossy(&answer);
            let refused = ["HTTP/1.1 408", "HTTP/1.1 503"].iter().any(|status| answer.starts_with(status));
            assert!(answer.is_empty() || refused, "{answer}");
        }
    }
    assert!(served.world.pruner.is_enabled());
    served.answers().await;
    let told = log.lines().into_iter().filter(|line| line.contains("sapwood_server")).count();
    assert!(told <= 2, "{:#?}", log.lines());
    served.end_unchanged().await;
}

/// Browsers keep connections open for later, and each was logged as a failure.
#[tokio::test]
async fn idle_connections_are_not_logged_as_failures() {
    let (log, _guard) = Log::listen();
    let options = ListenOptions { header_timeout: Duration::from_millis(100), ..ListenOptions::http() };
    let served = Served::start(Plan::default(), options).await;
    // One says nothing at all, one nothing after its first request.
    for begin in ["", "GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n"] {
        served.say(begin).await;
    }
    log.assert_seldom("a connection failed", 0..=0);
    served.end_unchanged().await;
}

#[tokio::test]
async fn a_thousand_wrong_tokens_are_one_line_in_the_log() {
    let (log, _guard) = Log::listen();
    let served = Served::start(Plan::closed(), ListenOptions::http()).await;
    let wrong = "a-token-that-somebody-made-up";
    for path in ["/api/v1/status", "/metrics", "/api/v1/holds"] {
        for _ in 0..333 {
            served.world.send("GET", path, Some(wrong), None).await.problem(401, "unauthorized");
        }
    }
    served.world.send("POST", "/api/v1/prune", Some(wrong), None).await.problem(401, "unauthorized");
    served.world.send("POST", "/api/v1/prune", Some(READ), None).await.problem(403, "forbidden");
    log.assert_seldom("a request was refused", 1..=1);
    assert!(
        log.lines().iter().all(|line| !line.contains(wrong) && !line.contains(READ)),
        "tokens are never logged"
    );
    served.end_unchanged().await;
}

#[tokio::test]
async fn bodies_beyond_any_measure_and_nonsense_are_refused_on_the_line() {
    let (log, _guard) = Log::listen();
    let served = Served::start(Plan::default(), ListenOptions::http()).await;
    let admin = crate::http::world::ADMIN;
    let head = format!(
        "PATCH /api/v1/policy HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {admin}\r\nconnection: close\r\n\
         content-type: application/json\r\n"
    );
    let deep = "[".repeat(900);
    let cases = [
        (format!("{head}content-length: 10737418240\r\n\r\n"), "HTTP/1.1 413"),
        (format!("{head}content-length: {}\r\n\r\n{deep}", deep.len()), "HTTP/1.1 4"),
        (format!("{head}content-length: 4\r\n\r\n\u{0}\u{1}\u{2}\u{3}"), "HTTP/1.1 400"),
        (format!("{head}content-length: 4\r\ncontent-length: 5\r\n\r\nnull"), "HTTP/1.1 400"),
        (format!("{head}content-length: -1\r\n\r\n"), "HTTP/1.1 400"),
        (format!("{head}transfer-encoding: chunked\r\n\r\nzz\r\n"), "HTTP/1.1 400"),
        (format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "a".repeat(100_000)), "HTTP/1.1 4"),
        (format!("GET / HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "a".repeat(100_000)), "HTTP/1.1 4"),
        ("GET / HTTP/9.9\r\n\r\n".into(), "HTTP/1.1 400"),
        (
            "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\u{0}\u{1}\u{fc}\u{3}\u{3} hello, TLS?\r\n\r\n".into(),
            "HTTP/1.1 400",
        ),
    ];
    for (text, expected) in cases {
        let answer = served.say(&text).await;
        // A server that hangs up on something unread resets the connection, and the answer may be lost on the way.
        let shown: String = text.chars().take(120).collect();
        assert!(answer.is_empty() || answer.starts_with(expected), "{shown:?}: {answer}");
    }
    assert!(served.say(LIVE).await.starts_with("HTTP/1.1 200"));
    let told = log.lines().into_iter().filter(|line| line.contains("sapwood_server")).count();
    assert!(told <= 2, "{:#?}", log.lines());
    served.end_unchanged().await;
}

/// A node of the default limits, and an access that knows the admin token.
async fn served_with_access(options: ListenOptions) -> Served {
    let world = World::planned(Plan::default()).await;
    world.extend(&[&coin("tx", 3)]).await;
    world.node.sample().await;
    let before = world.store.state_digest().await.unwrap();
    let options = ListenOptions { address: "127.0.0.1:0".parse().unwrap(), ..options };
    let access = Access::new(Plan::default().tokens, options.address).unwrap();
    let listener = Listener::bind(options).await.unwrap().with_access(Arc::new(access));
    let (address, stop) = (listener.address(), Stop::default());
    let task = tokio::spawn(listener.serve(world.router.clone(), stop.clone(), Duration::from_secs(5)));
    Served { world, address, stop, task, before }
}

/// Sends a request on a connection that is kept, and reads the head of the answer.
async fn ask(stream: &mut TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => answer.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(answer).unwrap()
}

/// The attack of the trial, with the limits that are set by default: 2,000 connections that are kept alive, half of them silent.
#[tokio::test]
async fn m10_two_thousand_connections_shut_out_neither_a_probe_nor_an_operator() {
    if connections() < 2_000 {
        panic!("this test needs 6,000 open files");
    }
    let (log, _guard) = Log::listen();
    let served = served_with_access(ListenOptions::http()).await;
    let kept = "GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut flood = Vec::new();
    for number in 0..2_000 {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        if number % 2 == 0 {
            let answer = ask(&mut stream, kept).await;
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
        flood.push(stream);
    }
    let admin = crate::http::world::ADMIN;
    let operator = format!(
        "PUT /api/v1/prune/enabled HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {admin}\r\n\
         content-type: application/json\r\ncontent-length: 16\r\n\r\n{{\"enabled\":true}}"
    );
    for _ in 0..100 {
        let answer = served.say(LIVE).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "a probe: {answer:?}");
        let answer = served.say(&operator).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "an operator: {answer:?}");
        let answer = served.say("GET /api/v1/status HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("too many connections"), "{answer:?}");
        let wrong = operator.replace(admin, "a-token-that-was-guessed");
        assert!(served.say(&wrong).await.starts_with("HTTP/1.1 503"));
    }
    // By the door, and by what it refused.
    log.assert_seldom("too many connections", 2..=2);
    drop(flood);
    served.end_unchanged().await;
}

#[tokio::test]
async fn l18_one_client_cannot_take_all_event_streams() {
    let served = Served::start(Plan::default(), ListenOptions::http()).await;
    let events = "GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut open = Vec::new();
    let refused = loop {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        let answer = ask(&mut stream, events).await;
        if !answer.starts_with("HTTP/1.1 200") {
            break answer;
        }
        open.push(stream);
    };
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    assert_eq!(open.len(), 32, "half of all there are");
    // Another peer, as the router sees it, still gets one.
    let mut request = axum::http::Request::get("/api/v1/events").body(axum::body::Body::empty()).unwrap();
    request.extensions_mut().insert(sapwood_server::listen::Peer("192.0.2.1:5".parse().unwrap()));
    let answer = tower::ServiceExt::oneshot(served.world.router.clone(), request).await.unwrap();
    assert_eq!(answer.status(), 200);
    drop((answer, open));
    served.end_unchanged().await;
}

#[tokio::test]
async fn c3_every_change_over_http_is_logged_with_who_and_what() {
    let (log, _guard) = Log::listen();
    let served = Served::start(Plan::default(), ListenOptions::http()).await;
    let admin = crate::http::world::ADMIN;
    let put = format!(
        "PUT /api/v1/prune/enabled HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {admin}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: 16\r\n\r\n{{\"enabled\":true}}"
    );
    assert!(served.say(&put).await.starts_with("HTTP/1.1 200"));
    assert!(served.say(&put.replace("enabled\":true", "unknown\":true")).await.starts_with("HTTP/1.1 4"));
    assert!(served.say(&put.replace(admin, "a-token-that-was-guessed")).await.starts_with("HTTP/1.1 401"));
    served.say(LIVE).await;
    let lines: Vec<String> = log.lines().into_iter().filter(|line| line.contains("audit")).collect();
    assert_eq!(lines.len(), 2, "{lines:#?}");
    let words =
        ["peer=127.0.0.1:", "role=\"admin\"", "PUT /api/v1/prune/enabled", "enabled", "outcome=\"200\""];
    for words in words {
        assert!(lines[0].contains(words), "{words} is not in {}", lines[0]);
    }
    assert!(lines[1].contains("outcome=\"4"), "{}", lines[1]);
    assert!(log.lines().iter().all(|line| !line.contains(admin) && !line.contains("guessed")));
    served.end_unchanged().await;
}
