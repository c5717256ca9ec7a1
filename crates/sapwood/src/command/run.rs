//! `sapwood run`: follow a chain, as the configuration says.

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use clap::Args;
use sapwood_chain::{ApplyMode, Chain, ChainOptions, Events, FollowOptions, Follower, Stop};
use sapwood_pruner::PrunerOptions;
use sapwood_server::{address::ChainKind, grpc::Feed};
use sapwood_sources::{
    BlockSource, ChainPoint,
    bitcoin::{Auth, BlkOptions, BlkSource, Network, RpcOptions, RpcSource},
};
use sapwood_store::{AddressIndexing, Store, StoreRead as _};
use sapwood_store_embedded::{EmbeddedOptions, EmbeddedStore};

use crate::{
    config::{Config, Mode, SourceKind, required_maturity},
    node::{
        self, Directory, NodeFile, Parts, Reload, Serving, follow_bar, runtime, stop_on_signals_of_a_service,
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
    config.validate().with_context(|| {
        Config::file(file).map_or_else(|| "the configuration".into(), |file| file.display().to_string())
    })?;
    Ok(config)
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
        let opened = match config.source.kind {
            SourceKind::Feed => None,
            _ => {
                let opening = Opened::open(config, network, None, stop.clone());
                let Some(opened) = stop.or(opening).await else { return Ok(()) };
                Some(opened?)
            }
        };
        let node_file = NodeFile {
            chain: "bitcoin".into(),
            network: network.to_string(),
            address_index: config.chain.address_index,
            configuration: config.file.clone(),
        };
        let directory = Directory::new(&config.data.directory);
        directory.claim(&node_file)?;
        let options =
            EmbeddedOptions { utxo_hash: config.chain.utxo_hash, ..EmbeddedOptions::from(&config.store) };
        let store = directory.open(&node_file, options, &config.policy()?).await?;

        let mode = match config.apply.mode {
            Mode::Sync => ApplyMode::Sync,
            Mode::Async => ApplyMode::Async { queue: config.apply.queue },
        };
        let chain_options = ChainOptions { mode, rollback: config.apply.rollback.into() };
        let bodies = config.bodies.open(&directory, &store).await?;
        let shared: Arc<dyn Store> = Arc::new(store.clone());
        let chain = Chain::with_bodies(shared, Events::default(), chain_options, Arc::new(bodies.clone()));
        let source = match &opened {
            None => None,
            Some(Opened::Node(source)) => Some(Arc::clone(source)),
            Some(Opened::Files(files)) => Some(match node::anchor(&chain, files).await? {
                None => Arc::new(files.clone()),
                anchor => Opened::open(config, network, anchor, stop.clone()).await?.source(),
            }),
        };
        let follow = FollowOptions { read_ahead: config.apply.read_ahead.max(1), ..FollowOptions::default() };
        let follower = source.as_ref().map(|source| {
            (Arc::clone(source), Follower::new(chain.clone(), Arc::clone(source), follow, stop.clone()))
        });
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
            address_index: AddressIndexing { address: config.chain.address_index, credential: false },
            progress: follower.as_ref().map(|(_, follower)| follower.progress()),
            directory: directory.path().to_owned(),
            feed,
            bodies: Some(bodies),
            pruner: PrunerOptions {
                required_maturity: required_maturity(network),
                ..config.pruner.options(config.policy()?)
            },
            servers: config.servers.options()?,
            serve: (config.servers.grpc, config.servers.http),
            give_way: config.servers.give_way,
            host_names: config.servers.host_names.clone(),
            refresh: config.servers.refresh.0,
            ready_lag: config.servers.ready_lag,
            disk_limit: Some(config.servers.disk_limit_gib << 30).filter(|limit| *limit > 0),
        })
        .await?;
        if let Some(page) = &serving.page {
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
            Some((source, follower)) => {
                let (bar, drawing) = follow_bar(follower.progress());
                let noting = tokio::spawn(note_tips(source, store.clone()));
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
        match store.last_applied().await? {
            Some(last) => tracing::info!("stopped at {last}"),
            None => tracing::info!("stopped before the first block"),
        }
        Ok(())
    })
}

/// Writes down now and then how far the source is.
async fn note_tips(source: Arc<dyn BlockSource>, store: EmbeddedStore) {
    loop {
        if let Ok(Some(tip)) = source.tip().await
            && let Err(error) = note_tip(&store, tip).await
        {
            tracing::warn!(%error, "the source's last block could not be written down");
        }
        tokio::time::sleep(NOTE_EVERY).await;
    }
}

/// A source that has been opened.
enum Opened {
    Files(BlkSource),
    Node(Arc<dyn BlockSource>),
}

impl Opened {
    async fn open(
        config: &Config,
        network: Network,
        anchor: Option<ChainPoint>,
        stop: Stop,
    ) -> anyhow::Result<Self> {
        let source = &config.source;
        let raw_above = Some(config.bodies.above());
        match source.kind {
            SourceKind::Feed => anyhow::bail!("a node that is fed has no source"),
            SourceKind::Blocks => {
                let options =
                    BlkOptions { anchor, raw_above, ..BlkOptions::new(network, source.blocks.clone()) };
                let open = move || {
                    BlkSource::open(options, |_| match stop.is_asked() {
                        true => ControlFlow::Break(()),
                        false => ControlFlow::Continue(()),
                    })
                };
                Ok(Opened::Files(tokio::task::spawn_blocking(open).await.context("reading headers")??))
            }
            SourceKind::Node => {
                let auth = if source.user.is_empty() {
                    Auth::cookie_in(&source.node_directory, network)
                } else {
                    Auth::Password { user: source.user.clone(), password: source.password.clone() }
                };
                let options =
                    RpcOptions { raw_above, ..RpcOptions::new(network, source.node_url.clone(), auth) };
                Ok(Opened::Node(Arc::new(RpcSource::connect(options).await?)))
            }
        }
    }

    fn source(self) -> Arc<dyn BlockSource> {
        match self {
            Opened::Files(files) => Arc::new(files),
            Opened::Node(source) => source,
        }
    }
}
