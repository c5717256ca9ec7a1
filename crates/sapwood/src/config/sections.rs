//! The sections of the configuration and their defaults.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;

use sapwood_chain::{ApplyMode, ChainOptions};
use sapwood_engine_rocksdb::{Durability, Options};
use sapwood_ledger::{AddressIndexing, Ledger, RollbackMode};
use sapwood_pruner::{Bodies, BodyLocation, S3Config, S3Credentials, span};
use sapwood_rules::{Policy, PolicyChange};
use sapwood_server::{ListenOptions, Secret, ServerOptions, TlsFiles, Tokens};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::node::Directory;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Data {
    pub(crate) directory: PathBuf,
}

impl Default for Data {
    fn default() -> Self {
        Self { directory: "sapwood-data".into() }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ChainSection {
    pub(crate) network: String,
    pub(crate) address_index: bool,
    pub(crate) credential_index: bool,
    pub(crate) utxo_hash: bool,
}

impl Default for ChainSection {
    fn default() -> Self {
        Self { network: "mainnet".into(), address_index: false, credential_index: false, utxo_hash: false }
    }
}

impl ChainSection {
    /// What outputs can be found by.
    pub(crate) fn indexing(&self) -> AddressIndexing {
        AddressIndexing { address: self.address_index, credential: self.credential_index }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SourceKind {
    #[default]
    Blocks,
    Node,
    Feed,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Source {
    pub(crate) kind: SourceKind,
    pub(crate) blocks: Vec<PathBuf>,
    pub(crate) node_url: String,
    pub(crate) node_directory: PathBuf,
    pub(crate) user: String,
    pub(crate) password: String,
    #[serde(with = "span")]
    pub(crate) node_timeout: Duration,
    #[serde(with = "span")]
    pub(crate) no_block_alert: Duration,
}

impl Default for Source {
    fn default() -> Self {
        Self {
            kind: SourceKind::Blocks,
            blocks: Vec::new(),
            node_url: String::new(),
            node_directory: PathBuf::new(),
            user: String::new(),
            password: String::new(),
            node_timeout: Duration::from_secs(30),
            no_block_alert: Duration::from_secs(2 * 60 * 60),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    #[default]
    Sync,
    Async,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Apply {
    pub(crate) mode: Mode,
    pub(crate) queue: usize,
    pub(crate) read_ahead: usize,
    pub(crate) rollback: RollbackMode,
}

impl Default for Apply {
    fn default() -> Self {
        Self {
            mode: Mode::Sync,
            queue: sapwood_chain::DEFAULT_QUEUE,
            read_ahead: 8,
            rollback: RollbackMode::Follower,
        }
    }
}

impl Apply {
    pub(crate) fn chain_options(&self) -> ChainOptions {
        let mode = match self.mode {
            Mode::Sync => ApplyMode::Sync,
            Mode::Async => ApplyMode::Async { queue: self.queue },
        };
        ChainOptions { mode, rollback: self.rollback }
    }
}

/// Writes a policy without what follows another number, so that it goes on following when that is changed in the file.
pub(super) fn serialize_policy<S: Serializer>(policy: &Policy, to: S) -> Result<S::Ok, S::Error> {
    PolicyChange::from_default(*policy).serialize(to)
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct StoreSection {
    pub(crate) block_cache_mib: usize,
    pub(crate) record_cache_mib: usize,
    pub(crate) mined_heights_mib: usize,
    pub(crate) children_per_read: usize,
    pub(crate) write_buffer_mib: usize,
    pub(crate) write_buffers: u16,
    pub(crate) background_jobs: u16,
    pub(crate) max_open_files: i32,
    pub(crate) compression: bool,
    pub(crate) durability: Durability,
    pub(crate) disk_reserve_mib: u64,
}

impl Default for StoreSection {
    fn default() -> Self {
        let Options { engine, ledger } = Options::default();
        Self {
            block_cache_mib: engine.block_cache_bytes >> 20,
            record_cache_mib: (ledger.record_cache_bytes >> 20) as usize,
            mined_heights_mib: (ledger.mined_heights_bytes >> 20) as usize,
            children_per_read: ledger.children_per_read,
            write_buffer_mib: engine.write_buffer_bytes >> 20,
            write_buffers: engine.write_buffers.unsigned_abs() as u16,
            background_jobs: engine.background_jobs.map_or(0, |jobs| jobs.unsigned_abs() as u16),
            max_open_files: engine.max_open_files,
            compression: engine.compression,
            durability: engine.durability,
            disk_reserve_mib: ledger.disk_reserve_bytes >> 20,
        }
    }
}

impl From<&StoreSection> for Options {
    fn from(section: &StoreSection) -> Self {
        Options::default()
            .ledger(|ledger| {
                ledger.record_cache_bytes = (section.record_cache_mib as u64).saturating_mul(1 << 20);
                ledger.mined_heights_bytes = (section.mined_heights_mib as u64).saturating_mul(1 << 20);
                ledger.children_per_read = section.children_per_read;
                ledger.disk_reserve_bytes = section.disk_reserve_mib.saturating_mul(1 << 20);
            })
            .engine(|engine| {
                // Too many do not wrap around: the store refuses them.
                engine.block_cache_bytes = section.block_cache_mib.saturating_mul(1 << 20);
                engine.write_buffer_bytes = section.write_buffer_mib.saturating_mul(1 << 20);
                engine.write_buffers = section.write_buffers.into();
                engine.background_jobs =
                    (section.background_jobs > 0).then(|| section.background_jobs.into());
                engine.max_open_files = section.max_open_files;
                engine.compression = section.compression;
                engine.durability = section.durability;
            })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Log {
    pub(crate) level: String,
}

impl Default for Log {
    fn default() -> Self {
        Self { level: "info".into() }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BodiesKind {
    #[default]
    Directory,
    S3,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct BodiesSection {
    pub(crate) kind: BodiesKind,
    pub(crate) above_kib: u32,
    pub(crate) directory: PathBuf,
    pub(crate) endpoint: String,
    pub(crate) bucket: String,
    pub(crate) region: String,
    pub(crate) access_key_id: String,
    pub(crate) secret_access_key: String,
    pub(crate) allow_http: bool,
}

impl Default for BodiesSection {
    fn default() -> Self {
        Self {
            kind: BodiesKind::Directory,
            above_kib: 32,
            directory: PathBuf::new(),
            endpoint: String::new(),
            bucket: String::new(),
            region: "us-east-1".into(),
            access_key_id: String::new(),
            secret_access_key: String::new(),
            allow_http: false,
        }
    }
}

impl BodiesSection {
    /// Above how many bytes a transaction keeps its body outside.
    pub(crate) fn above(&self) -> u32 {
        self.above_kib.saturating_mul(1024)
    }

    /// The bodies of the store in a data directory.
    pub(crate) async fn open(&self, directory: &Directory, store: &Ledger) -> anyhow::Result<Bodies> {
        let bodies = Bodies::open(&self.location(&directory.bodies()))?.with_external_above(self.above());
        Ok(bodies.of_store(store).await?)
    }

    /// The directory bodies are kept in. `None` if they are in a bucket.
    pub(crate) fn place(&self, directory: &Directory) -> Option<PathBuf> {
        match self.location(&directory.bodies()) {
            BodyLocation::Directory(place) => Some(place),
            BodyLocation::S3(_) => None,
        }
    }

    /// Where bodies are kept: in `beside` unless something else is set.
    pub(crate) fn location(&self, beside: &Path) -> BodyLocation {
        if self.kind == BodiesKind::Directory {
            let set = Some(self.directory.clone()).filter(|directory| !directory.as_os_str().is_empty());
            return BodyLocation::Directory(set.unwrap_or_else(|| beside.to_owned()));
        }
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        BodyLocation::S3(S3Config {
            endpoint: given(&self.endpoint),
            region: self.region.clone(),
            credentials: given(&self.access_key_id).map(|access_key_id| S3Credentials {
                access_key_id,
                secret_access_key: self.secret_access_key.clone(),
            }),
            allow_http: self.allow_http,
            ..S3Config::bucket(self.bucket.clone())
        })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Servers {
    pub(crate) grpc: bool,
    #[serde(deserialize_with = "address")]
    pub(crate) grpc_address: SocketAddr,
    pub(crate) http: bool,
    #[serde(deserialize_with = "address")]
    pub(crate) http_address: SocketAddr,
    pub(crate) read_token: String,
    pub(crate) admin_token: String,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) allow_utxo_admin: bool,
    pub(crate) max_connections: usize,
    pub(crate) max_connections_per_peer: usize,
    pub(crate) requests_per_second: u32,
    pub(crate) give_way: bool,
    pub(crate) host_names: Vec<String>,
    #[serde(with = "span")]
    pub(crate) refresh: Duration,
    pub(crate) heavy_statistics: bool,
    pub(crate) ready_lag: u64,
    pub(crate) disk_limit_gib: u64,
}

/// An address to listen at. The parser's own error has no example.
fn address<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map_err(|_| {
        D::Error::custom(format!(
            "{text:?} is not an address and a port: write such as 127.0.0.1:8097 or [::1]:8097. Names are not looked up"
        ))
    })
}

impl Default for Servers {
    fn default() -> Self {
        let options = ServerOptions::default();
        Self {
            grpc: true,
            grpc_address: options.grpc.address,
            http: true,
            http_address: options.http.address,
            read_token: String::new(),
            admin_token: String::new(),
            certificate: PathBuf::new(),
            key: PathBuf::new(),
            allow_utxo_admin: false,
            max_connections: options.http.max_connections,
            max_connections_per_peer: options.http.max_connections_per_peer,
            requests_per_second: options.http.requests_per_second,
            give_way: true,
            host_names: Vec::new(),
            refresh: Duration::from_secs(1),
            heavy_statistics: true,
            ready_lag: 6,
            disk_limit_gib: 0,
        }
    }
}

impl Servers {
    pub(crate) fn options(&self) -> anyhow::Result<ServerOptions> {
        let secret = |name: &'static str, text: &str| {
            let given = Some(text).filter(|text| !text.is_empty());
            given.map(Secret::new).transpose().with_context(|| format!("servers.{name}"))
        };
        let tokens = Tokens {
            read: secret("read_token", &self.read_token)?,
            admin: secret("admin_token", &self.admin_token)?,
        };
        let tls = match (self.certificate.as_os_str().is_empty(), self.key.as_os_str().is_empty()) {
            (true, true) => None,
            (false, false) => Some(TlsFiles { certificate: self.certificate.clone(), key: self.key.clone() }),
            _ => anyhow::bail!("servers.certificate and servers.key belong together: give both, or none"),
        };
        let is_name = |name: &String| {
            !name.is_empty() && name.chars().all(|one| one.is_ascii_alphanumeric() || "-.".contains(one))
        };
        if let Some(wrong) = self.host_names.iter().find(|name| !is_name(name)) {
            anyhow::bail!(
                "servers.host_names has {wrong:?}: give names only, such as node.example.org, without https:// and without a port"
            );
        }
        let options = ServerOptions::default();
        let listen = |base: ListenOptions, address| ListenOptions {
            address,
            tls: tls.clone(),
            max_connections: self.max_connections,
            max_connections_per_peer: self.max_connections_per_peer,
            requests_per_second: self.requests_per_second,
            ..base
        };
        Ok(ServerOptions {
            grpc: listen(options.grpc, self.grpc_address),
            http: listen(options.http, self.http_address),
            tokens,
            ..options
        })
    }
}
