//! A bounded archive of blocks.
//!
//! **What lives here.** Recent blocks in a fixed number of bytes: the arena that holds their payloads, the rows that
//! find them, the budget that says how many stay, pruning that survives a crash at any point, and the export that
//! consumers pull from. **What may not.** UTXOs, any chain library, any wire format, which engine holds the rows.
//!
//! # Layers
//! - [`io`]: the file, and one in memory that crashes on demand.
//! - [`arena`]: regions of the file, free lists, readers.
//! - `draft`: one commit in the making; `core`: the open archive and its recovery.
//! - `store`, `view`: adding, replacing, looking up.
//! - [`prune`]: policy, decisions, ticks. [`forecast`], [`volume`], [`reserve`]: how long it lasts.
//! - [`export`]: chunks by cursor. [`verify`]: the full check. [`bench`](mod@bench): the measurements.
//! - `keys`, `state`, `journal`, `block`: how rows are laid out. See `docs/formats.md`.
//!
//! # Correctness
//! There is one writer at a time. Each operation is one commit of rows: what refers to a region, the state of the
//! region, the counters and the boundary move together, so after a crash all of it is there or none. Bytes of blocks
//! are on disk before the commit that refers to them. A region is written over only when no row refers to it, its
//! journal entry is deleted, and no reader is left that could have seen it in use; see [`arena`]. After a commit that
//! failed all further writes are refused, because memory and engine may differ.

pub mod arena;
pub mod bench;
mod block;
mod core;
mod draft;
mod error;
pub mod export;
pub mod forecast;
pub mod formats;
pub mod io;
mod journal;
mod keys;
pub mod options;
pub mod prune;
pub mod reserve;
mod rows;
mod state;
mod status;
mod store;
pub mod verify;
mod view;
pub mod volume;

use std::{path::Path, sync::Arc};

use sapwood_ledger::engine::Engine;

pub use self::{
    arena::{BlobPtr, ClassError, Classes, PAGE, Piece},
    block::{BlockMeta, BlockPoint, NewBlock, Segment},
    core::Trouble,
    error::{AppendError, ArchiveError, OptionError},
    export::{Chunk, Consumer, Cursor, ExportError, ExportHead, Exported},
    forecast::{BudgetPlan, Forecast},
    options::{ArchiveOptions, Durability, Finality, OpenMode, Punch},
    prune::{
        Alert, HeightHold, Plan, Pruning, Stop, Tick, Trigger,
        policy::{Policy, PolicyError, WaterMarks},
    },
    state::{RegionBytes, Totals},
    status::{ArenaStats, MapCell, Status},
    store::{Appended, Continuity},
    view::{ArchiveView, Lookup, Pruned, TxLocation},
};
use crate::{
    core::Core,
    draft::Draft,
    io::{ArenaFile, DiskFile},
};

/// The name of the arena file in its directory.
pub const ARENA_FILE: &str = "arena";

/// An archive. Cheap to clone; calls block; file and engine are closed with the last clone.
#[derive(Clone)]
pub struct Archive {
    core: Arc<Core>,
}

impl Archive {
    /// Opens the archive whose blocks are in `file` and whose rows are in `engine`, or makes a new one there. An
    /// interrupted prune is finished. The engine is the archive's own: nothing else commits to it.
    ///
    /// # Errors
    /// [`ArchiveError::Option`] and [`ArchiveError::Policy`] for what cannot be, [`ArchiveError::OtherArena`],
    /// [`ArchiveError::ArenaMissing`] and [`ArchiveError::RowsMissing`] if file and rows do not belong together,
    /// [`ArchiveError::DamagedRow`] if the state cannot be read.
    pub fn open(
        file: Arc<dyn ArenaFile>,
        engine: Arc<dyn Engine>,
        options: ArchiveOptions,
    ) -> Result<Self, ArchiveError> {
        Ok(Self { core: Arc::new(Core::open(engine, file, options)?) })
    }

    /// Opens the archive whose blocks are in a directory, or makes a new one there.
    ///
    /// # Errors
    /// [`ArchiveError::Locked`] if another process has it open, [`ArchiveError::Absent`] if there is none and none is
    /// made, and as [`open`](Self::open).
    pub fn open_in(
        directory: &Path,
        engine: Arc<dyn Engine>,
        options: ArchiveOptions,
    ) -> Result<Self, ArchiveError> {
        let path = directory.join(ARENA_FILE);
        let place = path.display().to_string();
        let opened = match options.mode {
            OpenMode::Create => std::fs::create_dir_all(directory).and_then(|()| DiskFile::create(&path)),
            OpenMode::Existing if path.exists() => DiskFile::create(&path),
            OpenMode::Existing => Err(std::io::ErrorKind::NotFound.into()),
            OpenMode::ReadOnly => DiskFile::read_only(&path),
        };
        let file = opened.map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => ArchiveError::Locked { place },
            std::io::ErrorKind::NotFound => ArchiveError::Absent { place },
            kind => ArchiveError::Io { place, doing: "opening the arena", kind, cause: error.to_string() },
        })?;
        Self::open(Arc::new(file), engine, options)
    }

    /// Returns the engine that holds the rows.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.core.engine
    }

    /// Returns what the archive was opened with.
    pub fn options(&self) -> &ArchiveOptions {
        &self.core.options
    }

    /// Keeps bytes under a name, such as the configuration of a chain. `None` deletes them.
    ///
    /// # Errors
    /// Those of a commit.
    pub fn set_note(&self, name: &str, note: Option<&[u8]>) -> Result<(), ArchiveError> {
        let mut writer = self.core.writer.lock();
        let mut draft = Draft::new(&self.core, &mut writer)?;
        match note {
            Some(note) => draft.writes.put(keys::META, &keys::note(name), note),
            None => draft.writes.delete(keys::META, &keys::note(name)),
        }
        draft.commit()
    }

    /// Returns the bytes kept under a name. `None` if there are none.
    ///
    /// # Errors
    /// Those of reading.
    pub fn note(&self, name: &str) -> Result<Option<bytes::Bytes>, ArchiveError> {
        let view = self.core.engine.view()?;
        rows::get(&*view, keys::META, &keys::note(name))
    }
}
