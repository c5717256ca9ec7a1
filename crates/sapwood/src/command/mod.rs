//! The commands, one file each.

pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod explain;
pub(crate) mod get;
pub(crate) mod hold;
pub(crate) mod import;
pub(crate) mod policy;
pub(crate) mod prune;
pub(crate) mod roll_back;
pub(crate) mod run;
pub(crate) mod status;
pub(crate) mod verify;

use std::path::PathBuf;

use clap::Args;
use sapwood_pruner::Bodies;
use sapwood_store::Store;

use crate::{
    config::{BodiesSection, Config},
    node::Directory,
};

/// Where the data is.
#[derive(Clone, Debug, Args)]
pub(crate) struct DataArg {
    /// The data directory.
    #[arg(long, value_name = "DIR", env = "SAPWOOD_DATA")]
    pub(crate) data: PathBuf,
}

impl DataArg {
    pub(crate) fn directory(&self) -> Directory {
        Directory::new(&self.data)
    }
}

/// Where bodies of large transactions are.
#[derive(Clone, Debug, Args)]
pub(crate) struct BodiesArg {
    /// The configuration file that says in `[bodies]` where bodies of large transactions are. Unless named it is the one the data directory
    /// was last run with; without one they are in the data directory.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl BodiesArg {
    /// The configuration file, from the root on. `None` if none is named.
    pub(crate) fn file(&self) -> anyhow::Result<Option<PathBuf>> {
        Ok(self.config.as_deref().map(std::path::absolute).transpose()?)
    }

    /// What the configuration says about bodies.
    pub(crate) fn load(&self, directory: &Directory) -> anyhow::Result<BodiesSection> {
        let file = match &self.config {
            Some(file) => Some(file.clone()),
            None => directory.read()?.and_then(|node| node.configuration),
        };
        let config = file.map(|file| Config::load(Some(&file))).transpose()?;
        Ok(config.unwrap_or_default().bodies)
    }

    /// The bodies of the store in a data directory.
    pub(crate) async fn open(&self, directory: &Directory, store: &dyn Store) -> anyhow::Result<Bodies> {
        self.load(directory)?.open(directory, store).await
    }
}
