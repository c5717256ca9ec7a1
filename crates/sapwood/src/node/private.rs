//! What other users of the machine must not read: the data directory, the admin token in it, keys.
//!
//! ```text
//! DIR/admin.token      the admin token, made at the first start unless one is configured
//! DIR/endpoints.json   where the running node can be asked, for commands that are given the directory
//! ```

use std::{
    fs, io,
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow};
use sapwood_server::{Secret, TlsFiles, Tokens};
use serde::{Deserialize, Serialize};

/// The file with the admin token.
pub(crate) const TOKEN_FILE: &str = "admin.token";
/// The file that says where the node can be asked.
pub(crate) const ENDPOINTS_FILE: &str = "endpoints.json";

/// What users besides the owner may do: anything at all, and what those outside the group may do.
const OTHERS: u32 = 0o077;
const WORLD: u32 = 0o007;

/// Makes a directory that only its owner can look into. One that is there stays as it is.
pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent)?;
    }
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}

/// Warns if others can get at a file or directory that is there, with how to change that.
fn warn_if_open(path: &Path, forbidden: u32, what: &str, wanted: &str) {
    let Ok(metadata) = fs::metadata(path) else { return };
    let mode = metadata.mode() & 0o777;
    if mode & forbidden != 0 {
        tracing::warn!(
            mode = format!("{mode:03o}"),
            "{what} can be read by other users of this machine: chmod {wanted} {}",
            path.display()
        );
    }
}

/// Warns if others can look into a data directory.
pub(crate) fn warn_if_directory_is_open(path: &Path) {
    warn_if_open(path, OTHERS, "the data directory", "700");
}

/// Warns if every user can read the key of a certificate. A group may: some systems have one for keys.
pub(crate) fn warn_if_key_is_open(files: &TlsFiles) {
    warn_if_open(&files.key, WORLD, "the private key of the certificate (servers.key)", "600");
}

/// Warns if every user can read a configuration that has a token or a password in it.
pub(crate) fn warn_if_configuration_is_open(file: &Path) {
    const SECRETS: [&str; 4] = ["read_token", "admin_token", "password", "secret_access_key"];
    let Ok(text) = fs::read_to_string(file) else { return };
    let Ok(table) = text.parse::<toml::Table>() else { return };
    let set = |name: &str, value: &toml::Value| SECRETS.contains(&name) && value.as_str() != Some("");
    let mut sections = table.values().filter_map(|section| section.as_table());
    if sections.any(|section| section.iter().any(|(name, value)| set(name, value))) {
        warn_if_open(file, WORLD, "the configuration, which has a secret in it,", "600");
    }
}

/// Writes a file that only its owner can read: whole, or not at all.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let temporary = path.with_extension("new");
    let write = || {
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().with_context(|| format!("writing {}", path.display()))
}

/// Refuses an admin token in the data directory that cannot be one, if it would be in effect. Changes nothing.
pub(crate) fn check_tokens(configured: &Tokens, directory: &Path) -> anyhow::Result<()> {
    let path = directory.join(TOKEN_FILE);
    match configured.admin {
        None if path.exists() => read_token(&path).map(drop),
        _ => Ok(()),
    }
}

fn read_token(path: &Path) -> anyhow::Result<Secret> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    Secret::new(&text)
        .with_context(|| format!("{}: delete it, and the next start makes a new one", path.display()))
}

/// The tokens in effect: those that are configured, with the admin token of the data directory unless one is configured. Makes it if
/// there is none. The directory has to belong to this process: its store is open.
pub(crate) fn tokens(configured: Tokens, directory: &Path) -> anyhow::Result<Tokens> {
    let path = directory.join(TOKEN_FILE);
    if configured.admin.is_some() {
        // What was made before is not valid any more, and must not look as if it were.
        match fs::remove_file(&path) {
            Ok(()) => tracing::info!("{} was removed: an admin token is configured", path.display()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(%error, "{} is not valid any more: delete it", path.display()),
        }
        return Ok(configured);
    }
    if path.exists() {
        warn_if_open(&path, OTHERS, "the admin token", "600");
    } else {
        write(&path, &format!("{}\n", random_token()?))?;
        tracing::info!("an admin token was made: it is in {}", path.display());
    }
    Ok(Tokens { admin: Some(read_token(&path)?), ..configured })
}

/// 256 bits from the system, as hexadecimal digits.
fn random_token() -> anyhow::Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| anyhow!("no randomness for an admin token: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Where a running node can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Endpoints {
    /// The address of HTTP. `None` if it is not served.
    pub(crate) http: Option<String>,
    /// The address of gRPC. `None` if it is not served.
    pub(crate) grpc: Option<String>,
    /// The number of the process.
    pub(crate) pid: u32,
}

/// The file that says so, for as long as the node runs.
#[derive(Debug)]
pub(crate) struct EndpointsFile {
    path: PathBuf,
    written: Endpoints,
}

impl EndpointsFile {
    /// Writes it, in place of one that a process left behind that was killed.
    pub(crate) fn write(directory: &Path, endpoints: Endpoints) -> anyhow::Result<Self> {
        let path = directory.join(ENDPOINTS_FILE);
        write(&path, &(serde_json::to_string_pretty(&endpoints)? + "\n"))?;
        Ok(Self { path, written: endpoints })
    }

    /// What it says.
    pub(crate) fn endpoints(&self) -> &Endpoints {
        &self.written
    }
}

impl Drop for EndpointsFile {
    fn drop(&mut self) {
        // Only what this process wrote.
        let found = fs::read_to_string(&self.path).ok();
        let found = found.and_then(|text| serde_json::from_str::<Endpoints>(&text).ok());
        if found.as_ref() == Some(&self.written)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(%error, "{} could not be removed", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn c3_an_admin_token_is_made_once_and_only_its_owner_can_read_it() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = temporary.path().join("a/data");
        make_directory(&directory).unwrap();
        make_directory(&directory).unwrap();
        assert_eq!(mode(&directory), 0o700);
        let path = directory.join(TOKEN_FILE);
        let made = tokens(Tokens::default(), &directory).unwrap().admin.unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!((mode(&path), text.trim().len()), (0o600, 64));
        assert!(made.is(text.trim().as_bytes()));
        assert!(tokens(Tokens::default(), &directory).unwrap().admin.unwrap().is(text.trim().as_bytes()));
        let other = temporary.path().join("other");
        make_directory(&other).unwrap();
        tokens(Tokens::default(), &other).unwrap();
        assert_ne!(fs::read_to_string(other.join(TOKEN_FILE)).unwrap(), text, "each has its own");

        fs::write(&path, "short\n").unwrap();
        let error = format!("{:#}", tokens(Tokens::default(), &directory).unwrap_err());
        assert!(error.contains("admin.token") && error.contains("delete it"), "{error}");
        assert!(!error.contains("short\n"), "{error}");
        let configured = Tokens { read: None, admin: Secret::new("a-configured-admin-token").ok() };
        assert!(tokens(configured, &directory).unwrap().admin.unwrap().is(b"a-configured-admin-token"));
        assert!(!path.exists(), "one that is not valid any more does not stay");
    }

    #[test]
    fn the_endpoints_are_there_while_the_node_runs() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(ENDPOINTS_FILE);
        fs::write(&path, "left behind").unwrap();
        let endpoints = Endpoints { http: Some("http://127.0.0.1:8097".into()), grpc: None, pid: 7 };
        let file = EndpointsFile::write(directory.path(), endpoints.clone()).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(
            serde_json::from_str::<Endpoints>(&fs::read_to_string(&path).unwrap()).unwrap(),
            endpoints
        );
        drop(file);
        assert!(!path.exists());
        let file = EndpointsFile::write(directory.path(), endpoints.clone()).unwrap();
        let newer = EndpointsFile::write(directory.path(), Endpoints { pid: 8, ..endpoints }).unwrap();
        drop(file);
        assert!(path.exists(), "that of another process stays");
        drop(newer);
    }
}
