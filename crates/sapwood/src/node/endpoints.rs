//! Where the node on a data directory can be asked.

use std::{fs, io, path::PathBuf};

use anyhow::Context;
use serde::Deserialize;

use super::Directory;
use crate::config::Config;

const FILE: &str = "endpoints.json";
const TOKEN_FILE: &str = "admin.token";

/// Where the node on a data directory can be asked, as it wrote it down when it started.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Endpoints {
    /// The address of its HTTP interface. `None` if it serves none.
    http: Option<String>,
    /// The certificate it shows.
    #[serde(skip)]
    pub(crate) certificate: Option<PathBuf>,
}

impl Endpoints {
    /// What a directory says. `None` if no node wrote anything down.
    pub(crate) fn read(directory: &Directory) -> anyhow::Result<Option<Self>> {
        let path = directory.path().join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
        };
        let mut found: Self =
            serde_json::from_str(&text).with_context(|| format!("{} is damaged", path.display()))?;
        let configuration = directory.read()?.and_then(|node| node.configuration);
        let config = configuration.and_then(|file| Config::load(Some(&file)).ok());
        found.certificate =
            config.map(|config| config.servers.certificate).filter(|file| !file.as_os_str().is_empty());
        Ok(Some(found))
    }

    /// The address to ask. `None` if HTTP is not served.
    pub(crate) fn url(&self) -> Option<String> {
        let http = self.http.as_ref()?;
        if http.contains("://") {
            return Some(http.trim_end_matches('/').to_owned());
        }
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        Some(format!("{scheme}://{http}"))
    }

    /// The admin token that the node made for the commands of the same user. `None` if it cannot be read.
    pub(crate) fn token(directory: &Directory) -> Option<String> {
        let text = fs::read_to_string(directory.path().join(TOKEN_FILE)).ok()?;
        Some(text.trim().to_owned()).filter(|token| !token.is_empty())
    }
}
