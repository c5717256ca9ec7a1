//! `sapwood run`: follow a chain, as the configuration says.

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use async_trait::async_trait;
use clap::Args;
use sapwood_chain::{Chain, Events, FollowOptions, Follower, Progress, Stop};
use sapwood_engine_rocksdb::Options;
use sapwood_ledger::Ledger;
use sapwood_pruner::PrunerOptions;
use sapwood_server::{address::ChainKind, grpc::Feed};
use sapwood_sources::{
    BlockSource, ChainPoint, LazySource, Open, SourceError,
    bitcoin::{Auth, BlkOptions, BlkSource, Network, RpcOptions, RpcSource, rpc::RpcClient},
};
use tokio::sync::watch;

use crate::{
    config::{Config, SourceKind, required_maturity},
    node::{
        self, Directory, NodeFile, Parts, Reload, Serving, a_while_after, follow_bar, runtime,
        stop_on_signals_of_a_service,
    },
    status::note_tip,
};

/// How often the source's last block is written down.
const NOTE_EVERY: Duration = Duration::from_secs(10);

/// Follow a chain until stopped.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The configuration file. `sapwood.toml` here, if there is one and none is named.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Run {
    /// The configuration to run with.
    pub(crate) fn load(&self) -> anyhow::Result<Config> {
        load(self.config.as_deref())
    }

    /// The configuration file that is named.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        self.config.clone()
    }
}

/// Reads a configuration, and refuses one that cannot be run with.
pub(crate) fn load(file: Option<&Path>) -> anyhow::Result<Config> {
    let config = Config::load(file)?;
    config.validate().and_then(|()| check_node(&config)).with_context(|| {
        Config::file(file).map_or_else(|| "the configuration".into(), |file| file.display().to_string())
    })?;
    Ok(config)
}

/// Refuses an address that cannot be that of a node. Whether anything answers there is found out while reads are served.
fn check_node(config: &Config) -> anyhow::Result<()> {
    if config.source.kind == SourceKind::Node {
        RpcClient::new(node_options(config, config.network()?)).context("source.node_url")?;
    }
    Ok(())
}

/// Follows a chain until stopped, or is fed one.
pub(crate) fn run(config: &Config, file: Option<PathBuf>) -> anyhow::Result<()> {
    if let Some(file) = Config::file(file.as_deref()) {
        node::warn_if_configuration_is_open(&file);
    }
    runtime()?.block_on(async {
        let stop = Stop::default();
        let hangups = stop_on_signals_of_a_service(stop.clone())?;
        let network = config.network()?;
        let node_file = NodeFile {
            chain: "bitcoin".into(),
            network: network.to_string(),
            address_index: config.chain.address_index,
            credential_index: config.chain.credential_index,
            configuration: config.file.clone(),
        };
        let directory = Directory::new(&config.data.directory);
        directory.claim(&node_file)?;
        let options = Options::from(&config.store).ledger(|ledger| ledger.utxo_hash = config.chain.utxo_hash);
        let store = directory.open(&node_file, options, &config.policy()?).await?;

        let bodies = config.bodies.open(&directory, &store).await?.with_stop(a_while_after(&stop));
        let shared = store.clone();
        let chain_options = config.apply.chain_options();
        let chain = Chain::with_bodies(shared, Events::default(), chain_options, Arc::new(bodies.clone()));
        let source: Option<Arc<dyn BlockSource>> = (config.source.kind != SourceKind::Feed).then(|| {
            let opener = Opener { config: config.clone(), network, chain: chain.clone(), stop: stop.clone() };
            Arc::new(LazySource::new(source_name(config, network), opener)) as _
        });
        let follow = FollowOptions { read_ahead: config.apply.read_ahead.max(1), ..FollowOptions::default() };
        let follower = source
            .as_ref()
            .map(|source| Follower::new(chain.clone(), Arc::clone(source), follow, stop.clone()));
        let feed = match &source {
            None => Feed::Open,
            Some(source) => {
                Feed::Closed { source: source.name(), utxo_admin: config.servers.allow_utxo_admin }
            }
        };
        let serving = Serving::start(Parts {
            name: format!("bitcoin {network}"),
            chain: chain.clone(),
            kind: ChainKind::Bitcoin(network.into()),
            address_index: node_file.indexing(),
            progress: follower.as_ref().map(Follower::progress),
            directory: directory.path().to_owned(),
            feed,
            bodies: Some(bodies),
            pruner: PrunerOptions {
                required_maturity: required_maturity(network),
                policy: config.policy()?,
                ..config.pruner.clone()
            },
            servers: config.servers.options()?,
            serve: (config.servers.grpc, config.servers.http),
            give_way: config.servers.give_way,
            host_names: config.servers.host_names.clone(),
            refresh: config.servers.refresh,
            heavy_statistics: config.servers.heavy_statistics,
            ready_lag: config.servers.ready_lag,
            no_block_after: Some(config.source.no_block_alert).filter(|after| !after.is_zero()),
            disk_limit: Some(config.servers.disk_limit_gib << 30).filter(|limit| *limit > 0),
        })
        .await?;
        if let Some(page) = serving.page() {
            tracing::info!("status page: {page}");
        }
        let reloading = Reload {
            file,
            config: config.clone(),
            load,
            set_level: crate::cli::set_level,
            doors: serving.doors(),
            pruner: serving.pruner.clone(),
        }
        .at_each(hangups);
        let result = match follower {
            None => {
                stop.asked().await;
                // What was queued is applied before the end.
                chain.close().await
            }
            Some(follower) => {
                let (bar, drawing) = follow_bar(follower.progress());
                let noting = tokio::spawn(note_tips(follower.progress(), store.clone()));
                let result = follower.follow().await;
                noting.abort();
                drawing.abort();
                bar.finish_and_clear();
                result
            }
        };
        reloading.abort();
        serving.end().await;
        result?;
        // A store that refuses writes is no clean stop, although no block came since.
        store.writable().await?;
        match store.last_applied().await? {
            Some(last) => tracing::info!("stopped at {last}"),
            None => tracing::info!("stopped before the first block"),
        }
        Ok(())
    })
}

/// Writes down now and then how far the source is.
async fn note_tips(progress: watch::Receiver<Progress>, store: Ledger) {
    let mut noted = None;
    loop {
        let tip = progress.borrow().source.tip;
        if let Some(tip) = tip.filter(|tip| noted != Some(*tip)) {
            match note_tip(&store, tip).await {
                Ok(()) => noted = Some(tip),
                Err(error) => tracing::warn!(%error, "the source's last block could not be written down"),
            }
        }
        tokio::time::sleep(NOTE_EVERY).await;
    }
}

/// How the node of the configuration is asked. The follower tries again by itself, and shows why.
fn node_options(config: &Config, network: Network) -> RpcOptions {
    let source = &config.source;
    let auth = if source.user.is_empty() {
        Auth::cookie_in(&source.node_directory, network)
    } else {
        Auth::Password { user: source.user.clone(), password: source.password.clone() }
    };
    RpcOptions {
        raw_above: Some(config.bodies.above()),
        attempts: 3,
        warmup: Duration::ZERO,
        timeout: source.node_timeout,
        ..RpcOptions::new(network, source.node_url.clone(), auth)
    }
}

/// What to call the source before it is open.
fn source_name(config: &Config, network: Network) -> String {
    let source = &config.source;
    match source.kind {
        SourceKind::Blocks => {
            let places: Vec<_> = source.blocks.iter().map(|place| place.display().to_string()).collect();
            format!("{network} block files in {}", places.join(", "))
        }
        SourceKind::Node => format!("{network} node at {}", source.node_url),
        SourceKind::Feed => "a feed".into(),
    }
}

/// Opens the source of the configuration.
struct Opener {
    config: Config,
    network: Network,
    chain: Chain,
    stop: Stop,
}

#[async_trait]
impl Open for Opener {
    async fn open(&self) -> Result<Arc<dyn BlockSource>, SourceError> {
        if self.config.source.kind == SourceKind::Node {
            return Ok(Arc::new(RpcSource::connect(node_options(&self.config, self.network)).await?));
        }
        let files = self.files(None).await?;
        let anchor = node::anchor(&self.chain, &files).await;
        match anchor.map_err(|error| SourceError::Applied { cause: format!("{error:#}") })? {
            None => Ok(Arc::new(files)),
            anchor => Ok(Arc::new(self.files(anchor).await?)),
        }
    }
}

impl Opener {
    /// Reads the headers of all block files.
    async fn files(&self, anchor: Option<ChainPoint>) -> Result<BlkSource, SourceError> {
        let raw_above = Some(self.config.bodies.above());
        let blocks = self.config.source.blocks.clone();
        let options = BlkOptions { anchor, raw_above, ..BlkOptions::new(self.network, blocks) };
        let stop = self.stop.clone();
        let open = move || {
            BlkSource::open(options, |_| match stop.is_asked() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
        };
        let opened = tokio::task::spawn_blocking(open).await;
        opened.map_err(|error| SourceError::Task { cause: error.to_string() })?
    }
}
