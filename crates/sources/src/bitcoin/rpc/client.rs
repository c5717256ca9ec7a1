//! One call to a node, with timeouts and retries.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use reqwest::{
    Client, StatusCode, Url,
    header::{AUTHORIZATION, CONTENT_TYPE},
    redirect,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};
use tokio_rustls::rustls::crypto::ring;

use super::{Auth, RpcError};
use crate::bitcoin::Network;

/// The node is starting.
const IN_WARMUP: i64 = -28;
/// Longer answers are refused: a block of 4 MB is 8 MB in hex.
const MAX_ANSWER: usize = 64 * 1024 * 1024;
/// How much of a strange answer an error shows.
const EXCERPT: usize = 200;
/// The first wait before a call is tried again; each wait is twice the one before, up to the last.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LAST_WAIT: Duration = Duration::from_secs(5);

/// Which node to ask, and how patiently.
#[derive(Clone, Debug)]
pub struct RpcOptions {
    /// Its address: `http://127.0.0.1:8332`.
    pub url: String,
    /// How to be let in.
    pub auth: Auth,
    /// The network it has to be of.
    pub network: Network,
    /// How long to wait for a connection.
    pub connect_timeout: Duration,
    /// How long to wait for an answer.
    pub timeout: Duration,
    /// How often to try when the connection fails or the node is too busy.
    pub attempts: u32,
    /// How long to wait for a node that is starting.
    pub warmup: Duration,
    /// How often to ask for the tip while waiting for another one.
    pub poll: Duration,
    /// Hand over the bytes of transactions larger than this: [`Tx::raw`](sapwood_types::Tx::raw). Nothing for none.
    pub raw_above: Option<u32>,
}

impl RpcOptions {
    /// A node, with patience that suits one on this machine.
    pub fn new(network: Network, url: impl Into<String>, auth: Auth) -> Self {
        Self {
            url: url.into(),
            auth,
            network,
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(60),
            attempts: 6,
            warmup: Duration::from_secs(600),
            poll: Duration::from_millis(250),
            raw_above: None,
        }
    }
}

/// Asks a node.
pub struct RpcClient {
    pub(super) options: RpcOptions,
    address: Url,
    http: Client,
    next_id: AtomicU64,
}

#[derive(Deserialize)]
struct Answer<'a> {
    id: Option<Value>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<NodeError>,
}

#[derive(Deserialize)]
struct NodeError {
    code: i64,
    message: String,
}

/// What became of one attempt.
enum Outcome {
    Done(Bytes),
    /// The connection failed or the node is too busy.
    Again(String),
    WarmingUp(String),
    Failed(RpcError),
}

impl RpcClient {
    /// A client. Connects with the first call.
    pub fn new(options: RpcOptions) -> Result<Self, RpcError> {
        let bad = |problem: String| RpcError::BadUrl { url: without_user(&options.url), problem };
        let address = Url::parse(&options.url).map_err(|error| bad(error.to_string()))?;
        if !address.username().is_empty() || address.password().is_some() {
            return Err(bad("user and password go into source.user and source.password".to_owned()));
        }
        match address.scheme() {
            "http" => {}
            "https" => {
                return Err(
                    bad("nodes do not speak TLS, use a tunnel for one on another machine".to_owned()),
                );
            }
            _ => return Err(bad("the scheme has to be http".to_owned())),
        }
        // The client wants to know how it would speak TLS, even if it never does. Fails only if it is known already.
        let _ = ring::default_provider().install_default();
        let http = Client::builder()
            .connect_timeout(options.connect_timeout)
            .redirect(redirect::Policy::none())
            .no_proxy()
            .tls_certs_only([])
            .build()
            .map_err(|error| bad(with_causes(&error)))?;
        Ok(Self { options, address, http, next_id: AtomicU64::new(1) })
    }

    /// The node's address.
    pub fn url(&self) -> &str {
        &self.options.url
    }

    /// Calls a method that only reads: it may be called again if the connection breaks.
    pub async fn call<T: DeserializeOwned>(
        &self,
        method: &'static str,
        params: &[Value],
    ) -> Result<T, RpcError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let question = serde_json::json!({"jsonrpc": "1.0", "id": id, "method": method, "params": params});
        let question = Bytes::from(question.to_string());
        let body = self.ask(method, question).await?;
        let unusable = |problem: String| self.unusable(method, problem);
        // The errors of the parser repeat what they found, however long it is.
        let wrong = |error: serde_json::Error, answer: &[u8]| {
            unusable(format!("{} in {:?}", excerpt(error.to_string().as_bytes()), excerpt(answer)))
        };
        let answer: Answer<'_> = serde_json::from_slice(&body).map_err(|error| wrong(error, &body))?;
        if answer.id != Some(Value::from(id)) {
            return Err(unusable("it answers another question".to_owned()));
        }
        if let Some(NodeError { code, message }) = answer.error {
            return Err(RpcError::Node { url: self.options.url.clone(), method, code, message });
        }
        let result = answer.result.map_or("null", RawValue::get);
        serde_json::from_str(result).map_err(|error| wrong(error, result.as_bytes()))
    }

    /// Asks until there is an answer or no hope.
    async fn ask(&self, method: &'static str, question: Bytes) -> Result<Bytes, RpcError> {
        let timeout = self.options.timeout;
        let url = || self.options.url.clone();
        let (start, mut wait, mut attempts) = (Instant::now(), FIRST_WAIT, 0);
        let mut refused_with = None;
        loop {
            let credentials = self.options.auth.header()?;
            let attempt = self.attempt(method, question.clone(), &credentials);
            let outcome = match tokio::time::timeout(timeout, attempt).await {
                Ok(outcome) => outcome,
                Err(_) => return Err(RpcError::Timeout { url: url(), method, after: timeout }),
            };
            match outcome {
                Outcome::Done(body) => return Ok(body),
                // The node may have been started again and have another cookie by now.
                Outcome::Failed(RpcError::Unauthorized { .. })
                    if matches!(self.options.auth, Auth::Cookie(_)) && refused_with.is_none() =>
                {
                    refused_with = Some(credentials);
                    if self.options.auth.header().ok() == refused_with {
                        return Err(self.options.auth.refused(&self.options.url));
                    }
                    continue;
                }
                Outcome::Failed(error) => return Err(error),
                Outcome::WarmingUp(message) => {
                    let after = start.elapsed();
                    if after >= self.options.warmup {
                        return Err(RpcError::WarmingUp { url: url(), message, after });
                    }
                    tracing::info!(node = self.options.url, "waiting for the node to start: {message}");
                }
                Outcome::Again(cause) => {
                    attempts += 1;
                    if attempts >= self.options.attempts {
                        return Err(RpcError::Unreachable { url: url(), cause, attempts });
                    }
                    tracing::debug!(node = self.options.url, method, "trying again: {cause}");
                }
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LAST_WAIT);
        }
    }

    async fn attempt(&self, method: &'static str, question: Bytes, credentials: &str) -> Outcome {
        let request = self
            .http
            .post(self.address.clone())
            .header(AUTHORIZATION, credentials)
            .header(CONTENT_TYPE, "application/json")
            .body(question);
        let mut response = match request.send().await {
            Ok(response) => response,
            Err(error) if error.is_builder() => {
                return Outcome::Failed(self.unusable(method, with_causes(&error)));
            }
            Err(error) => return Outcome::Again(with_causes(&error.without_url())),
        };
        let status = response.status();
        let mut body = BytesMut::new();
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) if body.len() + chunk.len() > MAX_ANSWER => {
                    let problem = format!("it is longer than {MAX_ANSWER} bytes");
                    return Outcome::Failed(self.unusable(method, problem));
                }
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Ok(None) => break,
                Err(error) => return Outcome::Again(with_causes(&error.without_url())),
            }
        }
        let body = body.freeze();
        // A node answers with other codes than 200 too when the body holds an error of its own.
        let node_error = serde_json::from_slice::<Answer<'_>>(&body).ok().and_then(|answer| answer.error);
        match (status, node_error) {
            (_, Some(error)) if error.code == IN_WARMUP => Outcome::WarmingUp(error.message),
            (_, Some(_)) | (StatusCode::OK, _) => Outcome::Done(body),
            (StatusCode::UNAUTHORIZED, _) => Outcome::Failed(self.options.auth.refused(&self.options.url)),
            (StatusCode::FORBIDDEN, _) => {
                Outcome::Failed(RpcError::Forbidden { url: self.options.url.clone(), method })
            }
            // Its queue is full ("Work queue depth exceeded"), or something before it is overloaded.
            (StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS, _) => {
                Outcome::Again(format!("it is too busy, HTTP status {status}"))
            }
            _ => Outcome::Failed(
                self.unusable(method, format!("HTTP status {status} with {:?}", excerpt(&body))),
            ),
        }
    }

    pub(super) fn unusable(&self, method: &'static str, problem: String) -> RpcError {
        RpcError::Unusable { url: self.options.url.clone(), method, problem }
    }
}

/// An address for people: what stands before an @ may be a password.
fn without_user(url: &str) -> String {
    url.rsplit_once('@').map_or_else(|| url.to_owned(), |(_, host)| format!("(user)@{host}"))
}

/// The beginning of an answer, for people.
fn excerpt(body: &[u8]) -> String {
    match body.get(..EXCERPT) {
        Some(begin) => format!("{}…", String::from_utf8_lossy(begin)),
        None => String::from_utf8_lossy(body).into_owned(),
    }
}

/// The client's errors say little; the system's behind them say what happened.
fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpt_is_short_and_says_so() {
        assert_eq!(excerpt(b"short"), "short");
        assert_eq!(excerpt(&[b'f'; 100_000]), format!("{}…", "f".repeat(EXCERPT)));
    }

    #[test]
    fn l18_a_password_in_the_address_is_not_repeated() {
        for url in ["http://bob:hunter2@127.0.0.1:8332", "bob:hunter2@127.0.0.1", "https://bob:hunter2@host"]
        {
            let auth = Auth::Password { user: "bob".into(), password: "other".into() };
            let error = RpcClient::new(RpcOptions::new(Network::Regtest, url, auth)).err().unwrap();
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}
