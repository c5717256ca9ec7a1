//! Asking a node. Every command is a request to the HTTP interface: over the network if a node runs, else to the same router on the
//! data directory, in this process. So an answer is the same, and is shown the same, whether a node runs or not.

mod local;
mod remote;
mod trust;

use std::{
    fmt::Display,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use clap::Args;
use reqwest::{Method, StatusCode};
use sapwood_ledger::{EngineError, StoreError};
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::{local::Local, remote::Remote};
use crate::node::{Directory, RunningNode};

/// Where a node is if nothing is named.
const DEFAULT_URL: &str = "http://127.0.0.1:8097";

/// The node to ask.
#[derive(Clone, Debug, Args)]
pub(crate) struct Target {
    /// The data directory. If a node runs on it, that node is asked; else the directory is opened.
    #[arg(long, value_name = "DIR", env = "SAPWOOD_DATA")]
    data: Option<PathBuf>,
    /// The address of a running node, such as http://127.0.0.1:8097 or one that begins with https. It wins over --data.
    #[arg(long, value_name = "URL", env = "SAPWOOD_URL")]
    url: Option<String>,
    /// The certificate, in PEM, of the authority that a node's https certificate comes from, or that certificate itself, which is then
    /// accepted under any name. With --data the one that the node is configured with is accepted without this.
    #[arg(long, value_name = "FILE", env = "SAPWOOD_CA")]
    ca: Option<PathBuf>,
    /// The token, if the node wants one. With --data it is looked up: the one in the configuration of the node or in the environment, else the
    /// one that the node made.
    #[arg(long, env = "SAPWOOD_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// The configuration file that says where bodies of large transactions are, if no node runs. Unless named it is the one the data
    /// directory was last run with.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the JSON that REST answers.
    #[arg(long)]
    json: bool,
}

/// What a command does with a data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// It reads: nothing in the directory changes.
    Look,
    /// It reads, bodies of large transactions included.
    LookAtBodies,
    /// It changes something.
    Change,
}

/// A node that can be asked.
pub(crate) struct Client {
    via: Via,
    json: bool,
}

enum Via {
    Remote(Remote),
    Local(Box<Local>),
}

/// An answer as it came, and as it is understood.
pub(crate) struct Answer<T> {
    pub(crate) json: Value,
    pub(crate) view: T,
}

impl Target {
    /// The running node, or the data directory if none runs on it.
    pub(crate) async fn open(&self, access: Access) -> anyhow::Result<Client> {
        let via = match (&self.url, &self.data) {
            (Some(url), _) => Via::Remote(self.remote(url, None)?),
            (None, None) => Via::Remote(self.remote(DEFAULT_URL, None)?),
            (None, Some(data)) => {
                let directory = Directory::new(data);
                match Local::open(&directory, self.config.as_deref(), access).await {
                    Ok(local) => Via::Local(Box::new(local)),
                    Err(error) if is_locked(&error) => Via::Remote(self.running(&directory).await?),
                    Err(error) => return Err(error),
                }
            }
        };
        Ok(Client { via, json: self.json })
    }

    fn remote(&self, url: &str, certificate: Option<&Path>) -> anyhow::Result<Remote> {
        Remote::new(url, self.ca.as_deref(), certificate, self.token.clone())
    }

    /// The node that runs on a data directory.
    async fn running(&self, directory: &Directory) -> anyhow::Result<Remote> {
        let in_use = || {
            format!(
                "{} is in use by another process that serves no HTTP: wait until it is done, or stop it",
                directory.path().display()
            )
        };
        let Some(node) = RunningNode::read(directory).with_context(in_use)? else { bail!(in_use()) };
        let Some(url) = node.url else { bail!(in_use()) };
        let target = Target { token: self.token.clone().or(node.token), ..self.clone() };
        let remote = target.remote(&url, node.certificate.as_deref())?;
        match remote.check().await {
            Ok(()) => Ok(remote),
            // It runs, but shows another certificate than the one it is configured with.
            Err(error) if error.chain().any(|cause| trust::refused(cause).is_some()) => Err(error),
            Err(error) => Err(error.context(in_use())),
        }
    }
}

/// Whether a command failed because another process has the data directory open.
pub(crate) fn is_locked(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| matches!(cause.downcast_ref(), Some(StoreError::Engine(EngineError::Locked { .. }))))
}

impl Client {
    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Bytes> {
        let (status, bytes) = match &self.via {
            Via::Remote(remote) => remote.send(method, path, body).await?,
            Via::Local(local) => local.send(method, path, body).await?,
        };
        if !status.is_success() {
            return Err(refusal(status, &bytes));
        }
        Ok(bytes)
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Answer<T>> {
        let bytes = self.send(method, path, body).await?;
        // A change may have nothing to answer.
        let text: &[u8] = if bytes.is_empty() { b"null" } else { &bytes };
        let json: Value =
            serde_json::from_slice(text).context("the node answered something else than JSON")?;
        let view = serde_json::from_value(json.clone())
            .context("the node's answer is not understood: is it of the same version?")?;
        Ok(Answer { json, view })
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<Answer<T>> {
        self.ask(Method::GET, path, None).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> anyhow::Result<Answer<T>> {
        self.ask(Method::POST, path, Some(body)).await
    }

    pub(crate) async fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> anyhow::Result<Answer<T>> {
        self.ask(Method::PUT, path, Some(body)).await
    }

    pub(crate) async fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> anyhow::Result<Answer<T>> {
        self.ask(Method::PATCH, path, Some(body)).await
    }

    pub(crate) async fn delete<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<Answer<T>> {
        self.ask(Method::DELETE, path, None).await
    }

    /// An answer that is not JSON.
    pub(crate) async fn bytes(&self, path: &str) -> anyhow::Result<Bytes> {
        self.send(Method::GET, path, None).await
    }

    /// Prints an answer: as JSON if that is asked for, else as text.
    pub(crate) fn show<T>(&self, answer: &Answer<T>, text: impl FnOnce(&T) -> String) -> anyhow::Result<()> {
        match self.json {
            true => println!("{}", serde_json::to_string_pretty(&answer.json)?),
            false => println!("{}", text(&answer.view).trim_end()),
        }
        Ok(())
    }

    /// Closes the data directory, if it was opened.
    pub(crate) async fn close(self) {
        if let Via::Local(local) = self.via {
            local.close().await;
        }
    }
}

/// What a node refused, in its own words.
fn refusal(status: StatusCode, bytes: &[u8]) -> anyhow::Error {
    let answer: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let confirm = answer["type"].as_str().is_some_and(|kind| kind.ends_with(":needs-confirmation"));
    match answer["detail"].as_str().or(answer["title"].as_str()) {
        Some(said) if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN => {
            anyhow::anyhow!("{said}. Give it with --token or SAPWOOD_TOKEN")
        }
        Some(said) if confirm => anyhow::anyhow!("{said} (--yes)"),
        Some(said) => anyhow::anyhow!("{said}"),
        None => anyhow::anyhow!("the node answered {status} and no reason"),
    }
}

/// A part of a path, with everything escaped that means something there.
///
/// # Errors
/// For `.` and `..`: they would lead to another path, escaped or not.
pub(crate) fn part(text: impl Display) -> anyhow::Result<String> {
    let text = text.to_string();
    ensure!(!matches!(text.as_str(), "." | ".."), "{text:?} is not a name of anything");
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let escape = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    Ok(text.bytes().map(escape).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_path_are_escaped() {
        let part = |text| part(text).ok();
        assert_eq!(part("bc1q-._~Z9").as_deref(), Some("bc1q-._~Z9"));
        assert_eq!(part("a/../b?c#d e%").as_deref(), Some("a%2F..%2Fb%3Fc%23d%20e%25"));
        assert_eq!(part("ä").as_deref(), Some("%C3%A4"));
        assert_eq!((part("."), part("..")), (None, None));
    }
}
