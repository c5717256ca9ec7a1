//! Errors of engines.

use std::time::Duration;

/// The engine could not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// A read or write failed.
    #[error("the storage engine failed while {doing}: {cause}")]
    Failed {
        /// What was being done.
        doing: &'static str,
        /// The engine's own message.
        cause: String,
    },
    /// Another process has the rows open.
    #[error("{place} is in use by another process: stop it first, or choose another data directory")]
    Locked {
        /// The directory or URL.
        place: String,
    },
    /// There are no rows where some were to be opened, and none are made.
    #[error("there is no store in {place}: name the right place, or import into a new one")]
    Absent {
        /// The directory or URL.
        place: String,
    },
    /// The engine was opened for reading only.
    #[error("the store in {place} is open for reading only: nothing is written")]
    ReadOnly {
        /// The directory or URL.
        place: String,
    },
    /// The engine cannot be reached. Nothing was written, and the same call can succeed later.
    #[error("{place} cannot be reached: {cause}. Check the server and the network to it")]
    Unavailable {
        /// The URL.
        place: String,
        /// The engine's own message.
        cause: String,
        /// How long to wait before the next attempt.
        retry_after: Duration,
    },
    /// Another process is the writer. Nothing was written.
    #[error("this process does not lead{}: write through the leader", holder.as_ref().map(|holder| format!(", {holder} does")).unwrap_or_default())]
    NotLeader {
        /// The process that is, if known.
        holder: Option<String>,
    },
    /// Another process became the writer while this one wrote. Nothing was written.
    #[error("epoch {epoch} is over, {current} is current: another process leads now")]
    Fenced {
        /// The epoch of the commit.
        epoch: u64,
        /// The epoch found.
        current: u64,
    },
    /// There is no room for more rows.
    #[error("{place} is full: {cause}")]
    Full {
        /// The directory or URL.
        place: String,
        /// The engine's own message.
        cause: String,
    },
    /// The connection was lost during a commit. [`position`](super::Engine::position) tells whether it was done.
    #[error("it is not known whether write {number} was committed: {cause}")]
    OutcomeUnknown {
        /// The number of the commit.
        number: u64,
        /// The engine's own message.
        cause: String,
    },
    /// Files of the rows are damaged or missing, so that they cannot be opened.
    #[error(
        "the store in {place} is damaged and cannot be opened: {cause}. To go on, restore a backup, or import into a new data directory"
    )]
    Damaged {
        /// The directory or URL.
        place: String,
        /// The engine's own message.
        cause: String,
    },
    /// Commits that were acknowledged are missing, and no power failure explains it: the rows are damaged.
    #[error(
        "the store in {place} is damaged: write {acknowledged} was acknowledged, and {found} is the last one that can be read. Blocks, holds and settings after it are lost: restore a backup, or import again. To go on with what is left, delete {file}"
    )]
    WritesLost {
        /// The directory or URL.
        place: String,
        /// The number of the last commit that was acknowledged.
        acknowledged: u64,
        /// The number of the last commit found.
        found: u64,
        /// The file that holds the number of the last acknowledged commit.
        file: String,
    },
    /// The files were deleted or replaced while they were open. Nothing was written.
    #[error(
        "the store in {place} was deleted, moved or replaced while it was open: nothing more is written to it. Put the directory back and restart, or restore a backup"
    )]
    Displaced {
        /// The directory.
        place: String,
    },
    /// The engine failed in the background, and has made commits wait since then.
    #[error(
        "a write to {place} has waited for {seconds} s: the storage engine has failed {errors} times in the background and stopped writes, and {free_bytes} bytes are free on its disk. Make room or replace the device"
    )]
    Stalled {
        /// The directory or URL.
        place: String,
        /// How long the commit has waited, in seconds.
        seconds: u64,
        /// How often the engine failed in the background since it was opened.
        errors: u64,
        /// Bytes that are free on the disk.
        free_bytes: u64,
    },
    /// A commit does not follow the last one. Nothing was written.
    #[error("write {number} does not follow write {position}, the last one committed")]
    WrongNumber {
        /// The number of the commit.
        number: u64,
        /// The number of the last commit.
        position: u64,
    },
    /// The engine lacks a capability.
    #[error("{what} is not supported by the {kind} engine: {reason}")]
    Unsupported {
        /// The capability.
        what: &'static str,
        /// The kind of engine.
        kind: &'static str,
        /// Why it is absent.
        reason: &'static str,
    },
    /// An option of the engine is out of its range.
    #[error("{option} is {value}, and has to be from {least} to {most}{hint}")]
    OptionOutOfRange {
        /// The option's name, as the field of the engine's options is called.
        option: &'static str,
        /// The value given.
        value: i128,
        /// The least value allowed.
        least: i128,
        /// The greatest value allowed.
        most: i128,
        /// Where the bound comes from, or empty. Begins with punctuation.
        hint: &'static str,
    },
}

impl EngineError {
    /// Returns how long to wait before the next attempt of what failed. `None` if another attempt would fail as well.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            EngineError::Unavailable { retry_after, .. } => Some(*retry_after),
            EngineError::OutcomeUnknown { .. } => Some(Duration::ZERO),
            _ => None,
        }
    }
}

/// The engine finds damage where a row lies: a checksum does not match.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the storage engine finds this row damaged: {cause}")]
pub struct DamagedRow {
    /// The engine's own message.
    pub cause: String,
}

/// A part of a range that the engine finds damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedRange {
    /// The last row before it. `None` if it begins with the range.
    pub after: Option<Vec<u8>>,
    /// The first row behind it. `None` if it ends with the range.
    pub before: Option<Vec<u8>>,
    /// The engine's own message.
    pub cause: String,
}
