//! The sections of the configuration and their defaults.

use std::path::PathBuf;

use sapwood_rules::Policy;
use sapwood_store::RollbackMode;
use sapwood_store_embedded::{Durability, EmbeddedOptions};
use serde::{Deserialize, Serialize};

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
    pub(crate) utxo_hash: bool,
}

impl Default for ChainSection {
    fn default() -> Self {
        Self { network: "mainnet".into(), address_index: false, utxo_hash: false }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SourceKind {
    #[default]
    Blocks,
    Node,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Source {
    pub(crate) kind: SourceKind,
    pub(crate) blocks: Vec<PathBuf>,
    pub(crate) node_url: String,
    pub(crate) node_directory: PathBuf,
    pub(crate) user: String,
    pub(crate) password: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    #[default]
    Sync,
    Async,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TakenBack {
    Node,
    #[default]
    Follower,
}

impl From<TakenBack> for RollbackMode {
    fn from(taken_back: TakenBack) -> Self {
        match taken_back {
            TakenBack::Node => RollbackMode::Node,
            TakenBack::Follower => RollbackMode::Follower,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Apply {
    pub(crate) mode: Mode,
    pub(crate) queue: usize,
    pub(crate) read_ahead: usize,
    pub(crate) rollback: TakenBack,
}

impl Default for Apply {
    fn default() -> Self {
        Self {
            mode: Mode::Sync,
            queue: sapwood_chain::DEFAULT_QUEUE,
            read_ahead: 8,
            rollback: TakenBack::Follower,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PolicySection {
    pub(crate) retention: u32,
    pub(crate) reorg_window: u32,
    pub(crate) coinbase_maturity: u32,
    pub(crate) reassignment_delay: u32,
    pub(crate) unmined_retention: u32,
    pub(crate) parent_preservation: u32,
}

impl Default for PolicySection {
    fn default() -> Self {
        let Policy {
            retention,
            reorg_window,
            coinbase_maturity,
            reassignment_delay,
            unmined_retention,
            parent_preservation,
        } = Policy::default();
        Self {
            retention,
            reorg_window,
            coinbase_maturity,
            reassignment_delay,
            unmined_retention,
            parent_preservation,
        }
    }
}

impl From<&PolicySection> for Policy {
    fn from(section: &PolicySection) -> Self {
        Policy {
            retention: section.retention,
            reorg_window: section.reorg_window,
            coinbase_maturity: section.coinbase_maturity,
            reassignment_delay: section.reassignment_delay,
            unmined_retention: section.unmined_retention,
            parent_preservation: section.parent_preservation,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Survives {
    #[default]
    ProcessCrash,
    PowerLoss,
    CleanStopOnly,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct StoreSection {
    pub(crate) block_cache_mib: usize,
    pub(crate) record_cache_mib: usize,
    pub(crate) write_buffer_mib: usize,
    pub(crate) write_buffers: u16,
    pub(crate) background_jobs: u16,
    pub(crate) max_open_files: i32,
    pub(crate) compression: bool,
    pub(crate) durability: Survives,
}

impl Default for StoreSection {
    fn default() -> Self {
        let options = EmbeddedOptions::default();
        Self {
            block_cache_mib: options.block_cache_bytes >> 20,
            record_cache_mib: (options.record_cache_bytes >> 20) as usize,
            write_buffer_mib: options.write_buffer_bytes >> 20,
            write_buffers: options.write_buffers.unsigned_abs() as u16,
            background_jobs: options.background_jobs.unsigned_abs() as u16,
            max_open_files: options.max_open_files,
            compression: options.compression,
            durability: Survives::ProcessCrash,
        }
    }
}

impl From<&StoreSection> for EmbeddedOptions {
    fn from(section: &StoreSection) -> Self {
        EmbeddedOptions {
            block_cache_bytes: section.block_cache_mib << 20,
            record_cache_bytes: (section.record_cache_mib as u64) << 20,
            write_buffer_bytes: section.write_buffer_mib << 20,
            write_buffers: section.write_buffers.into(),
            background_jobs: section.background_jobs.into(),
            max_open_files: section.max_open_files,
            compression: section.compression,
            durability: match section.durability {
                Survives::ProcessCrash => Durability::ProcessCrash,
                Survives::PowerLoss => Durability::PowerLoss,
                Survives::CleanStopOnly => Durability::CleanStopOnly,
            },
            ..EmbeddedOptions::default()
        }
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
