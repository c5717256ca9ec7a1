//! The commands, one file each.

pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod dump;
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

use crate::node::Directory;

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
