//! A whole ledger as one stream of bytes: [`Ledger::dump`] writes it, [`DumpReader::load`] reads it into an empty engine of any kind.
//!
//! **What lives here.** Putting the rows of one view into frames; `load` puts them back into rows, `frame` has the bytes. **What may not.** What
//! rows mean, apart from the few that say what the ledger was made with.
//!
//! # Correctness
//! - A dump has every row of every table as of one commit, in key order. Frames carry checksums, and a trailer has the number of rows of each
//!   table and a hash of everything before it. So a dump that is cut short, changed, or put together from two is refused.
//! - A load commits in bounded parts. Its first commit adds a marker row, its last one deletes it, after the trailer was checked. [`Ledger::open`]
//!   refuses rows with a marker, and an older program refuses the schema version that the first commit writes. So rows of a load
//!   that failed or was killed never pass for a whole ledger. The next load starts over.
//! - Only an engine without rows, or with those of a load that was not finished, is loaded into.

mod frame;
mod load;

use std::{io::Write, ops::ControlFlow};

use crate::{
    Ledger, StoreError,
    core::Core,
    engine::{EngineError, Scan, Table},
    migrate::{PROGRAM, SCHEMA},
    read::Snapshot,
};

use self::frame::StreamWriter;
pub(crate) use self::{frame::transcode, load::LOADING_KEY};
pub use self::{
    frame::{DumpHeader, DumpProblem, FORMAT_VERSION},
    load::DumpReader,
};

/// How far a dump or load got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DumpProgress {
    /// Rows so far.
    pub rows: u64,
    /// Bytes of the stream so far.
    pub bytes: u64,
}

/// Called every now and then. Breaks to end the work.
pub type EachProgress<'a> = dyn Fn(DumpProgress) -> ControlFlow<()> + 'a;

/// What was dumped, loaded or read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dumped {
    /// What the stream says about itself.
    pub header: DumpHeader,
    /// Rows of all tables.
    pub rows: u64,
    /// Bytes of the stream.
    pub bytes: u64,
    /// SHA-256 of the stream up to its trailer.
    pub digest: [u8; 32],
}

/// Why a dump was not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DumpError {
    /// The rows cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The stream cannot be written.
    #[error("the dump cannot be written: {cause}")]
    Write {
        /// The message of the operating system.
        cause: String,
    },
}

/// Why a dump was not loaded. Rows that it left are refused by [`Ledger::open`]; load again, or delete them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The engine failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The stream cannot be read.
    #[error("the dump cannot be read: {cause}")]
    Read {
        /// The message of the operating system.
        cause: String,
    },
    /// The stream is something else.
    #[error("this is no dump: name a file that `sapwood dump` wrote")]
    NotADump,
    /// The stream is not a whole dump.
    #[error("this is not a whole dump: at byte {at}, {problem}. Make the dump again")]
    Damaged {
        /// The position in the stream.
        at: u64,
        /// What is wrong.
        problem: DumpProblem,
    },
    /// The dump is in a format of a newer program.
    #[error(
        "the dump has format version {found}, this program knows {known}: load it with the newer program that wrote it"
    )]
    UnknownVersion {
        /// The version found.
        found: u8,
        /// The version known.
        known: u8,
    },
    /// The rows are of a newer schema.
    #[error(
        "the dump has schema version {found}, written by {program}, and this program knows up to {known}: load it with the newer \
         program"
    )]
    NewerSchema {
        /// The version found.
        found: u32,
        /// The newest version known.
        known: u32,
        /// The program that wrote the dump.
        program: String,
    },
    /// There are rows already.
    #[error("{place} is not empty: a dump is loaded into a new store only")]
    NotEmpty {
        /// The directory or URL.
        place: String,
    },
}

impl From<EngineError> for LoadError {
    fn from(error: EngineError) -> Self {
        LoadError::Store(error.into())
    }
}

impl Ledger {
    /// Writes all rows as of the last commit to `to`. Blocks; the ledger can be used meanwhile, for writing too.
    ///
    /// # Errors
    /// [`StoreError::Stopped`] if `progress` breaks.
    pub fn dump(&self, to: impl Write, progress: &EachProgress<'_>) -> Result<Dumped, DumpError> {
        self.core.dump(to, progress)
    }
}

impl Core {
    fn dump(&self, to: impl Write, progress: &EachProgress<'_>) -> Result<Dumped, DumpError> {
        let (number, snapshot) = self.numbered_snapshot()?;
        let header = DumpHeader {
            program: PROGRAM.to_owned(),
            identity: self.identity.clone(),
            schema: SCHEMA,
            number,
        };
        let failed = |error: std::io::Error| DumpError::Write { cause: error.to_string() };
        let mut stream = StreamWriter::new(to, &header).map_err(failed)?;
        for table in Table::ALL {
            dump_table(&snapshot, table, &mut stream, progress)?;
        }
        let (trailer, bytes) = stream.finish().map_err(failed)?;
        Ok(Dumped { header, rows: trailer.rows(), bytes, digest: trailer.digest })
    }
}

fn dump_table<W: Write>(
    snapshot: &Snapshot<'_>,
    table: Table,
    stream: &mut StreamWriter<W>,
    progress: &EachProgress<'_>,
) -> Result<(), DumpError> {
    let mut result = Ok(());
    let mut row = |key: &[u8], value: &[u8]| -> Result<(), DumpError> {
        let ended_frame =
            stream.row(table, key, value).map_err(|error| DumpError::Write { cause: error.to_string() })?;
        if ended_frame && progress(stream.progress()).is_break() {
            return Err(StoreError::Stopped { doing: "dumping the store" }.into());
        }
        Ok(())
    };
    snapshot.scan(&Scan::all(table), |key, value| {
        result = row(key, value);
        if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    result
}
