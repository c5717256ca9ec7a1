//! What is told about a node.

use std::collections::BTreeMap;

use sapwood_chain::{ChainState, TimingSummary};
use sapwood_ledger::{DiskRoom, EngineWrites, TableStats, UtxoSet};
use sapwood_pruner::PrunerStatus;
use sapwood_types::{ChainPoint, Height};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    alerts::{Alert, Readiness},
    source::SourceReport,
};

/// Everything that is known about a node at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StatusReport {
    /// When it was measured, as a Unix timestamp in milliseconds.
    pub at_ms: u64,
    /// Which node.
    pub node: NodeReport,
    /// How far the chain is.
    pub chain: ChainReport,
    /// How much is stored.
    pub counts: CountsReport,
    /// The UTXO set. `None` if it is not kept with each block.
    pub utxo_set: Option<UtxoSetReport>,
    /// What it takes on disk.
    pub disk: DiskReport,
    /// What the pruner does, and what keeps it from doing more.
    pub prune: PrunerStatus,
    /// What the storage engine tells, by part. Measured every five seconds, or once a minute without heavy statistics.
    pub engine: Vec<EngineReport>,
    /// What the storage engine wrote since the start. Measured as `engine` is. `None` if the engine does not count it.
    pub engine_writes: Option<EngineWrites>,
    /// Bytes written to log and files for each byte that was asked for. `None` before the first write, or if the engine does not count it.
    pub write_amplification: Option<f64>,
    /// What the process takes.
    pub process: ProcessReport,
    /// Whether the node is ready, and if not, why.
    pub ready: Readiness,
    /// What an operator should look at, the worst first.
    pub alerts: Vec<Alert>,
}

/// Which node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeReport {
    /// What it is called.
    pub name: String,
    /// The chain it follows.
    pub chain: String,
    /// The version of the program.
    pub version: String,
    /// When it was started, as a Unix timestamp.
    pub started_at: u64,
    /// How long it has been running.
    pub uptime_seconds: f64,
    /// What kind of storage engine it uses.
    pub engine: String,
    /// What is turned on.
    pub features: FeaturesReport,
}

/// What is turned on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FeaturesReport {
    /// Outputs are indexed by address.
    pub address_index: bool,
    /// Outputs are indexed by payment credential.
    pub credential_index: bool,
    /// The UTXO set and its hash are kept with each block.
    pub utxo_hash: bool,
    /// Records are pruned.
    pub pruning: bool,
    /// Bodies of large transactions are kept outside their records.
    pub bodies: bool,
    /// The children of a record are read before it is deleted.
    pub child_check: bool,
    /// Records are pruned while the chain catches up, too.
    pub prune_while_catching_up: bool,
    /// What takes more time to measure is measured.
    pub heavy_statistics: bool,
}

/// The outputs of mined transactions that no mined transaction spends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UtxoSetReport {
    /// The last applied block it is of. `None` before the first block.
    pub applied: Option<ChainPoint>,
    /// Outputs in it.
    pub outputs: u64,
    /// Transactions that have one.
    pub transactions: u64,
    /// What they are worth together in the chain's smallest unit, as a decimal text.
    pub value: String,
    /// Its hash, as Bitcoin Core's `gettxoutsetinfo muhash` prints it. `None` if it is not kept, or heavy statistics are turned off.
    pub muhash: Option<String>,
}

impl UtxoSetReport {
    /// What there is to say about a set without computing its hash, which takes milliseconds.
    pub(crate) fn without_hash(set: &UtxoSet) -> Self {
        Self {
            applied: set.last.map(Into::into),
            outputs: set.coins,
            transactions: set.transactions,
            value: set.amount.to_string(),
            muhash: None,
        }
    }
}

/// How far the chain is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChainReport {
    /// Whether it is being followed.
    pub state: ChainState,
    /// The last block of the source's best chain. `None` if there is no source, or it has no block.
    pub tip: Option<ChainPoint>,
    /// The last applied block.
    pub applied: Option<ChainPoint>,
    /// Blocks the source knows of and that are not applied, as far as `source.best_height`. `None` if that is not known.
    pub lag_blocks: Option<u64>,
    /// Seconds since a block was applied last. After a restart, by the time in the last applied block until another one is applied; if it has
    /// none, since the start. `None` if the node follows no source.
    pub last_block_seconds: Option<f64>,
    /// How the node and its source get on. `None` if the node follows no source.
    pub source: Option<SourceReport>,
    /// How long catching up will take, if there is something to catch up on and the speed is known.
    pub catch_up_seconds: Option<f64>,
    /// The lowest height a rollback can reach.
    pub rollback_floor: Option<Height>,
    /// Blocks that were handed over and wait to be applied.
    pub queued: u64,
    /// Applying blocks.
    pub apply: TimingSummary,
    /// Rolling blocks back.
    pub rollback: TimingSummary,
    /// Transactions applied since the start.
    pub transactions: u64,
    /// Blocks applied a second, over the last ten seconds.
    pub blocks_per_second: f64,
    /// Transactions applied a second, over the last ten seconds.
    pub transactions_per_second: f64,
}

/// How much is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CountsReport {
    /// Stored transactions.
    pub records: u64,
    /// Outputs that are not spent.
    pub unspent: u64,
    /// Outputs that are spent. Pruning leaves it as it is, a rollback undoes what its blocks added.
    pub spent: u64,
    /// Outputs that were ever created: `unspent` and `spent` together.
    pub created: u64,
    /// Stored transactions that are not mined on the longest chain.
    pub unmined: u64,
}

/// What one part of the store takes on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiskPart {
    /// Which part. `other` is what is in the directory and belongs to no part: the write-ahead log, mostly.
    pub part: String,
    /// Its bytes.
    pub bytes: u64,
}

/// What the store takes on disk. Measured every five seconds, or once a minute without heavy statistics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiskReport {
    /// All parts together.
    pub total_bytes: u64,
    /// Each part.
    pub parts: Vec<DiskPart>,
    /// What it would be without pruning: all parts and the bytes of all records deleted since the store was made, as they were in the
    /// store. Index entries that went with them are not counted, nor is compression, so it is an estimate.
    pub without_pruning_bytes: u64,
    /// Above this there is an alert.
    pub limit_bytes: Option<u64>,
    /// The room on the file system that holds the store. `None` if the store is on none, or it cannot be read.
    pub room: Option<DiskRoom>,
}

/// What the storage engine tells about one part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EngineReport {
    /// Which part (column family).
    pub part: String,
    /// Its stats by name.
    pub stats: BTreeMap<String, u64>,
}

impl EngineReport {
    pub(crate) fn new(stats: &TableStats) -> Self {
        Self { part: stats.table.name().into(), stats: stats.numbers() }
    }
}

/// What the process takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessReport {
    /// Memory in use. `None` where the system does not tell.
    pub resident_bytes: Option<u64>,
}
