//! The parts of an open archive, and how it is opened.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64},
    },
};

use parking_lot::{Mutex, RwLock};
use sapwood_ledger::engine::Engine;
use sapwood_types::Height;

use crate::{
    arena::{BlobPtr, header, readers::Readers, space::Space},
    block::BlockMeta,
    draft::Draft,
    error::ArchiveError,
    forecast::RateMeter,
    io::ArenaFile,
    journal::Entry,
    keys,
    options::{ArchiveOptions, OpenMode},
    prune::{Alert, policy::StoredPolicy},
    rows,
    state::State,
};

/// Journal entries that one commit releases at most.
const RELEASED_PER_COMMIT: usize = 256;

/// An open archive.
pub(crate) struct Core {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) file: Arc<dyn ArenaFile>,
    pub(crate) options: ArchiveOptions,
    pub(crate) readers: Readers,
    pub(crate) writer: Mutex<Writer>,
    /// As of the last commit.
    pub(crate) published: RwLock<Published>,
    /// A prune is running.
    pub(crate) pruning: AtomicBool,
    /// Blocks since the last tick.
    pub(crate) since_tick: AtomicU64,
    pub(crate) meter: Mutex<RateMeter>,
    /// Those of the last tick.
    pub(crate) alerts: Mutex<Vec<Alert>>,
}

/// What is read without the writer's lock.
#[derive(Clone)]
pub(crate) struct Published {
    pub(crate) state: Arc<State>,
    pub(crate) policy: Arc<StoredPolicy>,
}

/// What only the writer has.
pub(crate) struct Writer {
    /// Of the last commit.
    pub(crate) number: u64,
    pub(crate) state: State,
    pub(crate) policy: StoredPolicy,
    pub(crate) space: Space,
    pub(crate) file_size: u64,
    /// Journal entries whose regions are not free yet, oldest first.
    pub(crate) waiting: VecDeque<Waiting>,
    pub(crate) poisoned: Option<String>,
    pub(crate) trouble: Trouble,
}

/// What the writer came across and left alone. It ends when the archive is opened again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Trouble {
    /// Journal entries that cannot be finished because a row is damaged.
    pub stuck_entries: u64,
    /// Free regions that are not used because their row is damaged or their generations are exhausted.
    pub unusable_regions: u64,
    /// Pointers that named an earlier owner of a region and freed nothing.
    pub stale_pointers: u64,
    /// Bytes by which the arena was shorter than it should be when it was opened.
    pub missing_bytes: u64,
    /// Why disk space is not given back, although it should be.
    pub punch_error: Option<String>,
}

/// A journal entry in memory.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// The commit that took the references away.
    pub(crate) commit: u64,
    /// The number of the entry.
    pub(crate) number: u64,
    pub(crate) pointers: Vec<BlobPtr>,
}

impl Core {
    pub(crate) fn open(
        engine: Arc<dyn Engine>,
        file: Arc<dyn ArenaFile>,
        options: ArchiveOptions,
    ) -> Result<Self, ArchiveError> {
        options.validate()?;
        options.policy.validate(options.reorg_window)?;
        let number = engine.position()?;
        let writer = match load(&*engine, &*file, &options, number)? {
            Some(writer) => writer,
            None => create(&*engine, &*file, &options, number)?,
        };
        let published =
            Published { state: Arc::new(writer.state.clone()), policy: Arc::new(writer.policy.clone()) };
        let core = Self {
            readers: Readers::new(writer.number),
            engine,
            file,
            options,
            writer: Mutex::new(writer),
            published: RwLock::new(published),
            pruning: AtomicBool::new(false),
            since_tick: AtomicU64::new(u64::MAX),
            meter: Mutex::default(),
            alerts: Mutex::default(),
        };
        if core.options.mode != OpenMode::ReadOnly {
            core.recover()?;
        }
        Ok(core)
    }

    /// Finishes what was interrupted, before anything is allocated, and takes over changed options.
    fn recover(&self) -> Result<(), ArchiveError> {
        let mut writer = self.writer.lock();
        self.release(&mut writer)?;
        let expected = writer.space.file_size();
        if writer.file_size < expected {
            let missing = writer.state.end.saturating_sub(writer.file_size);
            tracing::error!(missing, place = self.file.place(), "the arena is shorter than its rows say");
            writer.trouble.missing_bytes = missing;
            self.file.set_size(expected).map_err(self.io("extending the arena"))?;
            writer.file_size = expected;
        }
        let mut draft = Draft::new(self, &mut writer)?;
        if draft.policy().configured != self.options.policy {
            draft.set_policy(StoredPolicy::configured(self.options.policy));
        }
        if self.options.keep_genesis && !draft.state.keep_genesis {
            draft.keep_genesis()?;
        }
        draft.commit_if_changed()
    }

    /// Frees the regions of journal entries that no reader can see any more. Returns how many entries there were.
    ///
    /// Everything that makes a region free comes through here: pruning, reorgs and recovery.
    pub(crate) fn release(&self, writer: &mut Writer) -> Result<usize, ArchiveError> {
        let mut released = 0;
        loop {
            let past = |entry: &&Waiting| self.readers.is_past(entry.commit);
            let count = writer.waiting.iter().take(RELEASED_PER_COMMIT).take_while(past).count();
            if count == 0 {
                return Ok(released);
            }
            let mut draft = Draft::new(self, writer)?;
            draft.release(count)?;
            draft.commit()?;
            released += count;
        }
    }

    /// Makes an error of the arena file.
    pub(crate) fn io(&self, doing: &'static str) -> impl Fn(io::Error) -> ArchiveError {
        move |error| io_error(&*self.file, doing, error)
    }

    pub(crate) fn published(&self) -> Published {
        self.published.read().clone()
    }
}

pub(crate) fn io_error(file: &dyn ArenaFile, doing: &'static str, error: io::Error) -> ArchiveError {
    let (place, cause, kind) = (file.place(), error.to_string(), error.kind());
    match kind {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ArchiveError::Full { place, cause },
        _ => ArchiveError::Io { place, doing, kind, cause },
    }
}

/// Reads what an existing archive has. `None` if there is none.
fn load(
    engine: &dyn Engine,
    file: &dyn ArenaFile,
    options: &ArchiveOptions,
    number: u64,
) -> Result<Option<Writer>, ArchiveError> {
    let view = engine.view()?;
    let Some(state) = rows::get(&*view, keys::META, keys::STATE_KEY)? else { return Ok(None) };
    let state = State::decode(&state).map_err(ArchiveError::damaged("the state of the archive"))?;
    let policy = match rows::get(&*view, keys::META, keys::POLICY_KEY)? {
        Some(row) => {
            StoredPolicy::decode(&row).map_err(ArchiveError::damaged("the policy of the archive"))?
        }
        None => StoredPolicy::configured(options.policy),
    };
    let file_size = check_header(engine, file, &state)?;
    let mut writer = Writer {
        number,
        space: Space::new(state.end),
        state,
        policy,
        file_size,
        waiting: VecDeque::new(),
        poisoned: None,
        trouble: Trouble::default(),
    };
    rows::scan_all(&*view, &keys::ALL_FREE, |key, _| {
        if let (Some(class), Some(offset)) = (keys::class_in(key), keys::number_in(key)) {
            writer.space.free(class, offset);
        }
        Ok(())
    })?;
    rows::scan_all(&*view, &keys::ALL_JOURNAL, |key, value| {
        match (keys::number_in(key), Entry::decode(value)) {
            (Some(number), Ok(Entry { pointers, .. })) => {
                writer.waiting.push_back(Waiting { commit: 0, number, pointers });
            }
            (_, Err(error)) => {
                tracing::error!(%error, row = rows::name(keys::SMALL, key), "journal entry left as it is");
                writer.trouble.stuck_entries += 1;
            }
            (None, _) => writer.trouble.stuck_entries += 1,
        }
        Ok(())
    })?;
    Ok(Some(writer))
}

/// Checks that the file belongs to the rows, and returns its length.
fn check_header(engine: &dyn Engine, file: &dyn ArenaFile, state: &State) -> Result<u64, ArchiveError> {
    let reading = |error| io_error(file, "reading the arena", error);
    let size = file.size().map_err(reading)?;
    let other = || ArchiveError::OtherArena { place: file.place(), rows: engine.place() };
    if size < header::READ as u64 {
        return Err(ArchiveError::ArenaMissing { place: file.place(), rows: engine.place() });
    }
    let mut bytes = [0; header::READ];
    file.read_at(0, &mut bytes).map_err(reading)?;
    match header::decode(&bytes) {
        Ok(id) if id == state.id => Ok(size),
        Ok(_) => Err(other()),
        Err(error) => Err(ArchiveError::DamagedRow { row: file.place(), cause: error.to_string() }),
    }
}

/// Makes an empty archive: the header first, then the rows that refer to it.
fn create(
    engine: &dyn Engine,
    file: &dyn ArenaFile,
    options: &ArchiveOptions,
    number: u64,
) -> Result<Writer, ArchiveError> {
    if options.mode != OpenMode::Create {
        return Err(ArchiveError::Absent { place: engine.place() });
    }
    if number > 0 {
        return Err(ArchiveError::ForeignRows { place: engine.place() });
    }
    let creating = |error| io_error(file, "creating the arena", error);
    let size = file.size().map_err(creating)?;
    if size > header::FIRST_OFFSET {
        return Err(ArchiveError::RowsMissing { place: file.place(), size, rows: engine.place() });
    }
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| creating(io::Error::other(error.to_string())))?;
    file.set_size(header::FIRST_OFFSET).map_err(creating)?;
    file.write_at(0, &header::encode(&id)).map_err(creating)?;
    file.sync().map_err(creating)?;
    let state = State::new(id, options.keep_genesis);
    let policy = StoredPolicy::configured(options.policy);
    let mut writes = sapwood_ledger::engine::WriteSet::new(1);
    writes.put(keys::META, keys::STATE_KEY, &state.encode());
    writes.put(keys::META, keys::POLICY_KEY, &policy.encode());
    engine.commit(&writes)?;
    Ok(Writer {
        number: 1,
        space: Space::new(state.end),
        state,
        policy,
        file_size: header::FIRST_OFFSET,
        waiting: VecDeque::new(),
        poisoned: None,
        trouble: Trouble::default(),
    })
}

/// Decodes a block row.
pub(crate) fn block_row(height: Height, row: &[u8]) -> Result<BlockMeta, ArchiveError> {
    BlockMeta::decode(height, row).map_err(ArchiveError::damaged(format!("block {height}")))
}
