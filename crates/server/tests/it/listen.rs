//! What protects the servers: limits, time-outs, and an orderly stop. Plain HTTP over plain sockets, so that nothing is smoothed over.

use std::{net::SocketAddr, time::Duration};

use crate::support::Setup;
use axum::{Router, routing::get};
use sapwood_server::{ListenError, ListenOptions, Listener, Stop};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinHandle,
};

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(50);

struct Http {
    address: SocketAddr,
    stop: Stop,
    task: JoinHandle<()>,
}

fn anywhere() -> ListenOptions {
    ListenOptions { address: "127.0.0.1:0".parse().unwrap(), header_timeout: LONG, ..ListenOptions::http() }
}

/// `/` answers, `/echo` takes a body, `/never` does not answer.
async fn start(options: ListenOptions, stop_within: Duration) -> Http {
    let router = Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/echo", axum::routing::post(|body: String| async move { body }))
        .route("/never", get(|| async { std::future::pending::<&str>().await }));
    let listener = Listener::bind(options).await.unwrap();
    let (address, stop) = (listener.address(), Stop::default());
    let task = tokio::spawn(listener.serve(router, stop.clone(), stop_within));
    Http { address, stop, task }
}

impl Http {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Everything the server says until it closes the connection.
    async fn say(&self, text: &str) -> String {
        let mut stream = self.connect().await;
        stream.write_all(text.as_bytes()).await.unwrap();
        heard(stream).await
    }

    async fn end(self) {
        self.stop.ask();
        self.task.await.unwrap();
    }
}

async fn heard(mut stream: TcpStream) -> String {
    let mut all = Vec::new();
    // A server that closes while there is something unread resets the connection: what came before counts.
    let _ = stream.read_to_end(&mut all).await;
    String::from_utf8(all).unwrap()
}

const CLOSE: &str = "connection: close\r\n\r\n";

#[tokio::test]
async fn a_request_is_answered_in_http_1() {
    let server = start(anywhere(), LONG).await;
    let answer = server.say(&format!("GET / HTTP/1.1\r\nhost: a\r\n{CLOSE}")).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("hello"), "{answer}");
    server.end().await;
}

#[tokio::test]
async fn who_does_not_say_what_they_want_is_hung_up_on() {
    let server = start(ListenOptions { header_timeout: SHORT, ..anywhere() }, LONG).await;
    for begun in ["", "PRI * HTT", "GET / HTTP/1.1\r\nhost: a\r\n"] {
        let answer = server.say(begun).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{begun:?}: {answer}");
    }
    server.end().await;
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let server = start(ListenOptions { max_body: Some(10), ..anywhere() }, LONG).await;
    let head = "POST /echo HTTP/1.1\r\nhost: a\r\n";
    let fits = server.say(&format!("{head}content-length: 10\r\n{CLOSE}0123456789")).await;
    assert!(fits.starts_with("HTTP/1.1 200") && fits.ends_with("0123456789"), "{fits}");
    let announced = server.say(&format!("{head}content-length: 11\r\n{CLOSE}")).await;
    assert!(announced.starts_with("HTTP/1.1 413") && announced.contains("more than 10 bytes"), "{announced}");
    let unannounced = server
        .say(&format!("{head}transfer-encoding: chunked\r\n{CLOSE}b\r\n01234567890\r\n0\r\n\r\n"))
        .await;
    assert!(unannounced.starts_with("HTTP/1.1 413"), "{unannounced}");
    server.end().await;
}

#[tokio::test]
async fn a_request_that_takes_too_long_is_given_up() {
    let server = start(ListenOptions { request_timeout: SHORT, ..anywhere() }, LONG).await;
    let answer = server.say(&format!("GET /never HTTP/1.1\r\nhost: a\r\n{CLOSE}")).await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("not done within"), "{answer}");
    server.end().await;
}

#[tokio::test]
async fn a_connection_has_a_rate() {
    let server = start(ListenOptions { requests_per_second: 1, ..anywhere() }, LONG).await;
    let request = "GET / HTTP/1.1\r\nhost: a\r\n";
    let answers = server.say(&format!("{}{request}{CLOSE}", format!("{request}\r\n").repeat(50))).await;
    assert!(answers.starts_with("HTTP/1.1 200"), "{answers}");
    assert!(answers.contains("HTTP/1.1 429") && answers.contains("at most 1 a second"), "{answers}");
    let other = server.say(&format!("{request}{CLOSE}")).await;
    assert!(other.starts_with("HTTP/1.1 200"), "another connection has its own rate: {other}");
    server.end().await;
}

#[tokio::test]
async fn there_are_only_so_many_connections() {
    let options = ListenOptions { max_connections: 2, reserved_connections: 0, ..anywhere() };
    let server = start(options, LONG).await;
    let request = format!("GET / HTTP/1.1\r\nhost: a\r\n{CLOSE}");
    // Once a byte is answered, the connection has its place.
    let mut taken = Vec::new();
    for _ in 0..2 {
        let mut stream = server.connect().await;
        stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        stream.read_u8().await.unwrap();
        taken.push(stream);
    }
    assert_eq!(server.say(&request).await, "", "there is no place for a third");
    drop(taken);
    // The places are free as soon as the server has noticed.
    while server.say(&request).await.is_empty() {
        tokio::task::yield_now().await;
    }
    server.end().await;
}

#[tokio::test]
async fn what_is_under_way_is_finished_and_what_does_not_end_is_dropped() {
    let server = start(anywhere(), SHORT).await;
    let mut idle = server.connect().await;
    idle.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    idle.read_u8().await.unwrap();
    let mut hanging = server.connect().await;
    hanging.write_all(b"GET /never HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    server.stop.ask();
    server.task.await.unwrap();
    assert!(heard(idle).await.ends_with("hello"));
    assert_eq!(heard(hanging).await, "");
    assert!(TcpStream::connect(server.address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let first = Listener::bind(anywhere()).await.unwrap();
    let again = Listener::bind(ListenOptions { address: first.address(), ..anywhere() }).await.unwrap_err();
    assert!(matches!(again, ListenError::Bind { .. }));
    let said = again.to_string();
    assert!(said.contains(&first.address().to_string()) && said.contains("choose another port"), "{said}");
}

#[tokio::test]
async fn a_browser_on_the_port_of_grpc_is_told() {
    let server = Setup::default().start().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let answer = heard(stream).await;
    assert!(answer.starts_with("HTTP/1.1 426") && answer.contains("speaks gRPC"), "{answer}");
    server.end().await;
}
