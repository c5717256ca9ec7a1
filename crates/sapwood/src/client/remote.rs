//! A running node, over http or https.

use std::{path::Path, time::Duration};

use anyhow::{Context, bail, ensure};
use bytes::{Bytes, BytesMut};
use reqwest::{
    Method, StatusCode, Url,
    header::{AUTHORIZATION, CONTENT_TYPE},
    redirect,
};
use serde_json::Value;
use tokio_rustls::rustls::{CertificateError, Error, crypto::ring};

use super::trust;

/// More than any answer has.
const MOST_BYTES: usize = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(60);
const CONNECT: Duration = Duration::from_secs(5);

/// A running node.
pub(super) struct Remote {
    base: String,
    token: Option<String>,
    http: reqwest::Client,
}

impl Remote {
    /// A node at an address. Its certificate must come from `ca` or be in that file, or be `certificate`, under whatever name. Without both it
    /// is checked against what the system trusts.
    pub(super) fn new(
        url: &str,
        ca: Option<&Path>,
        certificate: Option<&Path>,
        token: Option<String>,
    ) -> anyhow::Result<Self> {
        let good = "it should be such as http://127.0.0.1:8097 or https://node.example.org";
        // An address may have a password in it, so it is not repeated.
        let parsed = Url::parse(url).with_context(|| format!("--url cannot be read: {good}"))?;
        ensure!(matches!(parsed.scheme(), "http" | "https"), "--url is not of http or https: {good}");
        ensure!(
            parsed.username().is_empty() && parsed.password().is_none(),
            "--url has a user in it: {good}. Give a token with --token"
        );
        // Fails only if there is one already.
        let _ = ring::default_provider().install_default();
        let mut http = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .timeout(PATIENCE)
            .redirect(redirect::Policy::none())
            .no_proxy();
        if let Some(file) = ca {
            http = http.tls_backend_preconfigured(trust::authority(file)?);
        } else if let Some(file) = certificate {
            http = http.tls_backend_preconfigured(trust::exactly(file)?);
        }
        let http = http.build().context("making an HTTP client")?;
        Ok(Self { base: url.trim_end_matches('/').to_owned(), token, http })
    }

    /// Whether a node answers.
    pub(super) async fn check(&self) -> anyhow::Result<()> {
        self.send(Method::GET, "/health/live", None).await.map(drop)
    }

    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let mut request = self.http.request(method, format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(serde_json::to_vec(body)?);
        }
        let mut answer = request.send().await.map_err(|error| self.no_answer(error))?;
        let mut bytes = BytesMut::new();
        while let Some(chunk) = answer.chunk().await.context("the answer broke off")? {
            if bytes.len() + chunk.len() > MOST_BYTES {
                bail!("the answer is longer than {MOST_BYTES} bytes");
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok((answer.status(), bytes.freeze()))
    }

    /// Why a node did not answer.
    fn no_answer(&self, error: reqwest::Error) -> anyhow::Error {
        let base = &self.base;
        let text = match trust::refused(&error) {
            Some(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => {
                format!(
                    "the certificate of {base} is for another name: use that one in --url, or give the certificate itself with --ca"
                )
            }
            Some(Error::InvalidCertificate(_)) => format!(
                "the certificate of {base} is not trusted: give the one of its authority, or the certificate itself, with --ca"
            ),
            Some(_) => format!("{base} does not speak TLS as expected: is it http?"),
            None => format!("no node answers at {base}: is it running? For a data directory, use --data"),
        };
        anyhow::Error::new(error).context(text)
    }
}
