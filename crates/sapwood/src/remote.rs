//! Asking a running node over its HTTP interface.

use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Method, Request, Uri,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use serde_json::Value;

/// More than any answer has.
const MOST_BYTES: usize = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// A running node.
pub(crate) struct Remote {
    base: String,
    token: Option<String>,
}

impl Remote {
    pub(crate) fn new(url: &str, token: Option<&str>) -> anyhow::Result<Self> {
        let parsed: Uri = url.parse().with_context(|| format!("{url:?} is not an address"))?;
        if parsed.scheme_str() != Some("http") || parsed.host().is_none() {
            bail!(
                "{url:?} is not an address such as http://127.0.0.1:8097; for https, ask through a local proxy"
            );
        }
        Ok(Self { base: url.trim_end_matches('/').to_owned(), token: token.map(str::to_owned) })
    }

    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.ask(Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.ask(Method::POST, path, Some(body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.ask(Method::PUT, path, Some(body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> anyhow::Result<Value> {
        self.ask(Method::DELETE, path, None).await
    }

    async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let bytes = match body {
            Some(body) => {
                request = request.header(CONTENT_TYPE, "application/json");
                Bytes::from(serde_json::to_vec(body)?)
            }
            None => Bytes::new(),
        };
        let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
        let exchange = async {
            let answer = client.request(request.body(Full::new(bytes))?).await.with_context(|| {
                format!("no node answers at {}: is it running? For a data directory, use --data", self.base)
            })?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), MOST_BYTES).collect().await;
            let bytes = body.map_err(|error| anyhow::anyhow!("the answer broke off: {error}"))?.to_bytes();
            anyhow::Ok((status, bytes))
        };
        let (status, bytes) =
            tokio::time::timeout(PATIENCE, exchange).await.context("the node took too long to answer")??;
        let answer: Value = if bytes.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&bytes).context("the node answered something else than JSON")?
        };
        if !status.is_success() {
            let said = answer["detail"].as_str().or(answer["title"].as_str()).unwrap_or("no reason given");
            bail!("{status}: {said}");
        }
        Ok(answer)
    }
}
