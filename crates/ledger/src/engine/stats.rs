//! Statistics of engines.

use std::collections::BTreeMap;

use super::Table;

/// Statistics of an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Statistics of each table that was asked for.
    pub tables: Vec<TableStats>,
}

/// Statistics of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableStats {
    /// The table.
    pub table: Table,
    /// Bytes on disk.
    pub disk_bytes: u64,
    /// Bytes in memory that are not on disk yet.
    pub memory_bytes: u64,
    /// Rows, estimated.
    pub rows: u64,
    /// Further numbers of this engine by name.
    pub details: BTreeMap<String, u64>,
    /// The engine's own report, for people. Empty if there is none.
    pub text: String,
}

impl TableStats {
    /// Returns all numbers by name, those of every engine included.
    pub fn numbers(&self) -> BTreeMap<String, u64> {
        let mut numbers = self.details.clone();
        numbers.insert("disk_bytes".into(), self.disk_bytes);
        numbers.insert("memory_bytes".into(), self.memory_bytes);
        numbers.insert("rows_estimate".into(), self.rows);
        numbers
    }
}

/// Bytes that an engine wrote to its device since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct EngineWrites {
    /// Bytes of the commits: records, indexes, undo and state.
    pub applied_bytes: u64,
    /// Bytes written to the write-ahead log.
    pub log_bytes: u64,
    /// Syncs of the log to the device.
    pub log_syncs: u64,
    /// Bytes written by flushes of memory to files.
    pub flush_bytes: u64,
    /// Bytes written by compactions.
    pub compaction_bytes: u64,
    /// Bytes read by compactions.
    pub compaction_read_bytes: u64,
}

impl EngineWrites {
    /// Returns the bytes written in all.
    pub fn total_bytes(&self) -> u64 {
        self.log_bytes.saturating_add(self.flush_bytes).saturating_add(self.compaction_bytes)
    }

    /// Returns the bytes written for each byte committed. `None` before the first commit.
    pub fn amplification(&self) -> Option<f64> {
        (self.applied_bytes > 0).then(|| self.total_bytes() as f64 / self.applied_bytes as f64)
    }
}

/// The disk that holds the rows, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// Bytes that this process may still write.
    pub free_bytes: u64,
    /// The size of the file system.
    pub total_bytes: u64,
}
