//! Where the node that runs on a data directory can be asked, read by commands that are given the directory.

use std::{fs, io, path::PathBuf};

use anyhow::Context;

use super::{
    Directory,
    private::{ENDPOINTS_FILE, Endpoints, TOKEN_FILE},
};

/// The node that runs on a data directory, as its files describe it.
#[derive(Clone, Debug)]
pub(crate) struct RunningNode {
    /// The address of its HTTP interface. `None` if it serves none.
    pub(crate) url: Option<String>,
    /// The certificate it shows. `None` without TLS.
    pub(crate) certificate: Option<PathBuf>,
    /// The admin token: the configured one, else the one the node made. `None` if neither can be read by this user.
    pub(crate) token: Option<String>,
}

impl RunningNode {
    /// Reads what a directory says. `None` if no node runs on it.
    ///
    /// # Errors
    /// If the files cannot be read, or are damaged.
    pub(crate) fn read(directory: &Directory) -> anyhow::Result<Option<Self>> {
        let path = directory.path().join(ENDPOINTS_FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
        };
        let endpoints: Endpoints =
            serde_json::from_str(&text).with_context(|| format!("{} is damaged", path.display()))?;
        // Without a file the environment may say it, as in a container.
        let servers = directory.config(None).ok().map(|config| config.servers);
        let made = || fs::read_to_string(directory.path().join(TOKEN_FILE)).ok();
        let token = servers.as_ref().map(|servers| servers.admin_token.clone());
        let token = token.filter(|token| !token.is_empty()).or_else(made);
        let certificate = servers.map(|servers| servers.certificate);
        Ok(Some(Self {
            url: endpoints.http,
            certificate: certificate.filter(|file| !file.as_os_str().is_empty()),
            token: token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty()),
        }))
    }
}
