//! What a configuration is refused for. `sapwood run` and `sapwood config check` ask the same function.

use std::{path::Path, time::Duration};

use anyhow::{Context, anyhow, bail, ensure};
use reqwest::Url;
use sapwood_engine_rocksdb::Options;
use sapwood_ledger::{EngineError, StoreError};
use sapwood_pruner::Bodies;
use sapwood_rules::{Policy, PolicyError, policy::DEFAULT_COINBASE_MATURITY};
use sapwood_server::{Access, AccessError};
use sapwood_sources::bitcoin::Network;
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

use super::{BodiesKind, BodiesSection, Config, Servers, Source, SourceKind, StoreSection};

/// A busy node takes this long for a block.
const LEAST_TIMEOUT: Duration = Duration::from_secs(1);
/// More often than this, measuring would take more time than the work.
const LEAST_REFRESH: Duration = Duration::from_millis(100);
/// Less often than this, readiness and alerts would be too old to act upon.
const MOST_REFRESH: Duration = Duration::from_secs(60);
/// More blocks than this take more memory than reading ahead is worth: each is up to 4 MB of bytes, and more once it is decoded.
const MOST_READ_AHEAD: usize = 1024;
const MIB: u64 = 1 << 20;

impl Config {
    /// Refuses what is unsafe, cannot work or cannot be meant. The error names the setting as it is in the file.
    pub(crate) fn validate(&self) -> anyhow::Result<()> {
        ensure!(
            !self.data.directory.as_os_str().is_empty(),
            "data.directory is empty: name the directory to keep the data in"
        );
        self.policy()?;
        self.validate_work()?;
        self.source.validate()?;
        self.servers.validate()?;
        ensure!(
            self.source.kind != SourceKind::Feed || self.servers.grpc,
            "source.kind is \"feed\" and servers.grpc is false: no block could ever be handed over"
        );
        check_level(&self.log.level).context("log.level")
    }

    /// Refuses what is wrong with how blocks are applied and pruned and where things are kept: what every command goes by that applies blocks.
    pub(crate) fn validate_work(&self) -> anyhow::Result<()> {
        self.pruner.validate()?;
        self.store.validate(memory_mib())?;
        self.bodies.validate()?;
        ensure!(self.apply.queue > 0, "apply.queue is 0: no block could ever be queued. The default is 1024");
        ensure!(
            self.apply.read_ahead > 0,
            "apply.read_ahead is 0: no block could ever be read. The default is 8"
        );
        ensure!(
            self.apply.read_ahead <= MOST_READ_AHEAD,
            "apply.read_ahead is {}: so many blocks do not fit into memory. Set it to {MOST_READ_AHEAD} or less; the default is 8",
            self.apply.read_ahead
        );
        Ok(())
    }

    /// The network.
    pub(crate) fn network(&self) -> anyhow::Result<Network> {
        self.chain.network.parse().with_context(|| "chain.network".to_owned())
    }

    /// How long things are kept.
    pub(crate) fn policy(&self) -> anyhow::Result<Policy> {
        self.policy.validate_for(required_maturity(self.network()?)).map_err(|error| policy_error(&error))?;
        Ok(self.policy)
    }
}

/// The coinbase maturity that a network's rules want. Regtest chains are made for tests, which may want another one.
pub(crate) fn required_maturity(network: Network) -> Option<u32> {
    (network != Network::Regtest).then_some(DEFAULT_COINBASE_MATURITY)
}

fn policy_error(error: &PolicyError) -> anyhow::Error {
    anyhow!("policy.{}: {error}", error.field().name())
}

impl Source {
    fn validate(&self) -> anyhow::Result<()> {
        ensure!(
            self.node_timeout >= LEAST_TIMEOUT,
            "source.node_timeout is {}: set it to 1s or more",
            humantime::format_duration(self.node_timeout)
        );
        match self.kind {
            SourceKind::Feed => {}
            SourceKind::Blocks => ensure!(
                !self.blocks.is_empty(),
                "source.blocks is empty: name block files, or directories of them such as a node's `blocks`"
            ),
            SourceKind::Node => {
                ensure!(
                    !self.node_url.is_empty(),
                    "source.node_url is empty: give the node's address, such as http://127.0.0.1:8332"
                );
                // The address is not repeated: what is wrong with it may be a password in it.
                ensure!(
                    !self.node_url.contains('@'),
                    "source.node_url has a user in it: give the address alone, such as http://127.0.0.1:8332, and the user by \
                     source.user and SAPWOOD_SOURCE_PASSWORD"
                );
                ensure!(
                    !self.user.is_empty() || !self.node_directory.as_os_str().is_empty(),
                    "source.node_directory and source.user are empty: name the node's data directory, where its cookie is, or a user"
                );
            }
        }
        Ok(())
    }
}

impl Servers {
    fn validate(&self) -> anyhow::Result<()> {
        let options = self.options()?;
        ensure!(
            self.read_token.is_empty() || self.read_token != self.admin_token,
            "servers.read_token and servers.admin_token are the same: who may read could change everything"
        );
        for (name, value) in [
            ("max_connections", self.max_connections as u64),
            ("max_connections_per_peer", self.max_connections_per_peer as u64),
            ("requests_per_second", self.requests_per_second.into()),
        ] {
            ensure!(
                value > 0,
                "servers.{name} is 0: no client could get in. To serve nothing, set grpc and http to false"
            );
        }
        ensure!(
            self.refresh >= LEAST_REFRESH,
            "servers.refresh is {}: set it to 100ms or more",
            humantime::format_duration(self.refresh)
        );
        ensure!(
            self.refresh <= MOST_REFRESH,
            "servers.refresh is {}: readiness and alerts would be that old. Set it to 1m or less",
            humantime::format_duration(self.refresh)
        );
        ensure!(
            self.disk_limit_gib < 1 << 30,
            "servers.disk_limit_gib is {}: that is more than any disk has. 0 is for none",
            self.disk_limit_gib
        );
        let address = |name: &'static str| {
            move |AccessError::NeedsToken { address }: AccessError| {
                anyhow!(
                    "servers.{name} is {address}, which other machines can reach, and no token is set: set servers.read_token and \
                     servers.admin_token, or listen on a loopback address such as 127.0.0.1:{}",
                    address.port()
                )
            }
        };
        if self.grpc {
            Access::new(options.tokens.clone(), self.grpc_address).map_err(address("grpc_address"))?;
        }
        if self.http {
            Access::new(options.tokens.clone(), self.http_address).map_err(address("http_address"))?;
        }
        ensure!(
            !(self.grpc && self.http)
                || self.grpc_address != self.http_address
                || self.http_address.port() == 0,
            "servers.grpc_address and servers.http_address are both {}: give each a port of its own",
            self.http_address
        );
        match &options.http.tls {
            Some(files) => files.check().context("servers.certificate and servers.key"),
            None => Ok(()),
        }
    }
}

impl BodiesSection {
    fn validate(&self) -> anyhow::Result<()> {
        if self.kind == BodiesKind::Directory {
            return Ok(());
        }
        ensure!(
            !self.bucket.is_empty(),
            "bodies.bucket is empty: name the bucket bodies of large transactions are kept in"
        );
        ensure!(
            self.access_key_id.is_empty() == self.secret_access_key.is_empty(),
            "bodies.access_key_id and bodies.secret_access_key belong together: give both, or none"
        );
        if !self.endpoint.is_empty() {
            let scheme =
                Url::parse(&self.endpoint).ok().filter(Url::has_host).map(|url| url.scheme().to_owned());
            match scheme.as_deref() {
                Some("https") => {}
                Some("http") => ensure!(
                    self.allow_http,
                    "bodies.endpoint is not of https and bodies.allow_http is false: no call could be made. Set one of them"
                ),
                _ => bail!("bodies.endpoint is not an address such as https://s3.example.org"),
            }
        }
        // Nothing is asked for yet.
        Bodies::open(&self.location(Path::new(""))).map(drop).context("bodies")
    }
}

impl StoreSection {
    fn validate(&self, memory_mib: Option<u64>) -> anyhow::Result<()> {
        let memory = [
            ("block_cache_mib", self.block_cache_mib as u64),
            ("record_cache_mib", self.record_cache_mib as u64),
            ("mined_heights_mib", self.mined_heights_mib as u64),
            (
                "write_buffer_mib",
                // Two column families have buffers of this size, three of a quarter of it.
                (self.write_buffer_mib as u64)
                    .saturating_mul(self.write_buffers.max(1).into())
                    .saturating_mul(11)
                    / 4,
            ),
        ];
        let most = memory_mib.unwrap_or(u64::MAX / MIB);
        let mut sum = 0u64;
        for (name, mib) in memory {
            ensure!(mib <= most, "store.{name} takes {mib} MiB, and this machine has {most} MiB of memory");
            sum += mib;
        }
        ensure!(
            sum <= most,
            "the caches and buffers of [store] take {sum} MiB together, and this machine has {most} MiB of memory"
        );
        ensure!(self.disk_reserve_mib <= 1 << 30, "store.disk_reserve_mib is more than any disk has");
        Options::from(self).validate().map_err(|error| match error {
            StoreError::Engine(EngineError::OptionOutOfRange { option, value, least, most, hint }) => {
                // In the file bytes are given in MiB.
                let (name, unit) = match option.strip_suffix("_bytes") {
                    Some(name) => (format!("{name}_mib"), i128::from(MIB)),
                    None => (option.to_owned(), 1),
                };
                let (value, least, most) =
                    (value / unit, least.div_euclid(unit).max(1.min(least)), most / unit);
                anyhow!("store.{name} is {value}, and has to be from {least} to {most}{hint}")
            }
            error => anyhow!("{error}"),
        })?;
        Ok(())
    }
}

/// A level, or levels by module. What is neither would be taken for the name of a module, and nothing would be logged.
fn check_level(text: &str) -> anyhow::Result<()> {
    let levels = "error, warn, info, debug, trace or off, or by module such as `warn,sapwood_chain=debug`";
    for part in text.split(',').map(str::trim) {
        let level = part.rsplit_once('=').map_or(part, |(_, level)| level);
        if level.parse::<LevelFilter>().is_err() || part.is_empty() {
            bail!("{text:?} is not a level: write {levels}");
        }
    }
    EnvFilter::try_new(text).map(drop).with_context(|| format!("{text:?} is not {levels}"))
}

/// The memory of this machine in MiB, if the system tells.
fn memory_mib() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Config {
        let mut config = Config::default();
        config.source.blocks = vec!["blocks".into()];
        config
    }

    #[test]
    fn m13_what_cannot_be_meant_is_refused_by_the_name_in_the_file() {
        type Spoil = fn(&mut Config);
        let spoiled: &[(Spoil, &str)] = &[
            (|c| c.policy.reorg_window = 0, "policy.reorg_window"),
            (|c| c.policy.retention = 5, "policy.retention"),
            (|c| c.policy.coinbase_maturity = 0, "policy.coinbase_maturity"),
            (|c| c.policy.coinbase_maturity = u32::MAX, "policy.coinbase_maturity"),
            (|c| c.pruner.pacing.busy_share = f64::NAN, "pruner.busy_share"),
            (|c| c.pruner.chunk_records = 0, "pruner.chunk_records"),
            (|c| c.servers.http_address = "0.0.0.0:8097".parse().unwrap(), "servers.http_address"),
            (|c| c.servers.grpc_address = "0.0.0.0:8096".parse().unwrap(), "servers.grpc_address"),
            (|c| c.servers.grpc_address = c.servers.http_address, "servers.grpc_address"),
            (|c| c.servers.key = "key.pem".into(), "servers.key"),
            (|c| c.servers.max_connections = 0, "servers.max_connections"),
            (|c| c.servers.requests_per_second = 0, "servers.requests_per_second"),
            (|c| c.servers.refresh = Duration::ZERO, "servers.refresh"),
            (|c| c.servers.refresh = Duration::from_secs(3600), "servers.refresh"),
            (|c| c.source.node_timeout = Duration::ZERO, "source.node_timeout"),
            (|c| c.servers.disk_limit_gib = u64::MAX, "servers.disk_limit_gib"),
            (|c| c.log.level = "loud".into(), "log.level"),
            (|c| c.log.level = String::new(), "log.level"),
            (|c| c.store.children_per_read = 0, "store.children_per_read"),
            (|c| c.store.write_buffers = 0, "store.write_buffers"),
            (|c| c.store.background_jobs = u16::MAX, "store.background_jobs"),
            (|c| c.store.write_buffer_mib = 0, "store.write_buffer_mib"),
            (|c| c.store.disk_reserve_mib = u64::MAX, "store.disk_reserve_mib"),
            (|c| c.store.block_cache_mib = 99_999_999_999, "store.block_cache_mib"),
            (|c| c.store.max_open_files = 0, "store.max_open_files"),
            (|c| c.apply.queue = 0, "apply.queue"),
            (|c| c.apply.read_ahead = 0, "apply.read_ahead"),
            (|c| c.apply.read_ahead = 100_000_000, "apply.read_ahead"),
            (|c| c.chain.network = "mainnnet".into(), "chain.network"),
            (|c| c.source.blocks.clear(), "source.blocks"),
            (|c| c.bodies.kind = BodiesKind::S3, "bodies.bucket"),
            (
                |c| {
                    c.servers.read_token = "0123456789abcdef".into();
                    c.servers.admin_token = "0123456789abcdef".into();
                },
                "servers.admin_token",
            ),
        ];
        good().validate().unwrap();
        for (spoil, name) in spoiled {
            let mut config = good();
            spoil(&mut config);
            let error = format!("{:#}", config.validate().expect_err(name));
            assert!(error.contains(name), "{name}: {error}");
        }
    }

    #[test]
    fn l18_a_password_in_the_address_is_not_repeated() {
        let mut config = good();
        config.source.kind = SourceKind::Node;
        config.source.node_url = "http://bob:hunter2@127.0.0.1:8332".into();
        let error = format!("{:#}", config.validate().unwrap_err());
        assert!(error.contains("source.node_url") && !error.contains("hunter2"), "{error}");
        config.source.node_url = "http://127.0.0.1:8332".into();
        config.source.user = "bob".into();
        config.validate().unwrap();
    }

    #[test]
    fn the_buffers_of_every_column_family_count_as_memory() {
        let store = StoreSection::default();
        // Caches of 256, 256 and 75 MiB, and 2.75 times 3 buffers of 64 MiB.
        store.validate(Some(1115)).unwrap();
        let error = format!("{:#}", store.validate(Some(1114)).unwrap_err());
        assert!(error.contains("1115 MiB"), "{error}");
    }

    #[test]
    fn levels_are_levels() {
        for fine in ["info", "WARN", "off", "warn,sapwood_chain=debug", "sapwood=trace"] {
            check_level(fine).unwrap();
        }
        for wrong in ["loud", "", "info,", "sapwood=loud", "info,loud"] {
            assert!(check_level(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn regtest_takes_any_maturity() {
        let mut config = good();
        config.chain.network = "regtest".into();
        config.policy.coinbase_maturity = 5;
        config.validate().unwrap();
    }
}
