//! Schema versions: what an older store becomes when it is opened.
//!
//! **What lives here.** One file for each version with the [`Step`] that leads to it, the layouts that only older versions have, and the loop
//! that runs the steps. **What may not.** Today's layouts; anything an engine does.
//!
//! # Adding a version
//! Add `vN.rs` with a [`Step`], list it in [`STEPS`], raise [`SCHEMA`], and describe it under "Schema versions" in `docs/formats.md`. A fixture
//! written by the version before goes to `crates/engine-rocksdb/tests/fixtures`; `tests/it/write_fixture.rs` there makes it. A step never
//! shortens what an existing store keeps.
//!
//! # Correctness
//! The first commit of a migration raises the schema version and adds the [`Progress`] row. So a program that does not know the new version
//! refuses the store from then on, and one that does sees that it is not done. Each further commit has a bounded number of rows and says in
//! the same commit where to resume. A process that is killed therefore resumes at the last commit. The `Progress` row is deleted with the
//! last commit, after the step has checked its own result.

mod count;
mod state;
mod v2;
mod v3;
mod v4;

use std::time::{Duration, Instant};

use bytes::Bytes;
use sapwood_types::{
    DecodeError,
    codec::{Reader, Writer},
};

use crate::{
    StoreError,
    core::{Core, corrupt},
    engine::{Table, WriteSet},
    read::Snapshot,
};

pub(crate) use self::state::transcode as transcode_state;

/// The schema version this program writes. An older one is migrated when the ledger is opened, a newer one is refused.
pub const SCHEMA: u32 = 4;
/// The row of the schema version, `u32`.
pub(crate) const SCHEMA_KEY: &[u8] = b"schema";
/// The row that names the program that wrote the schema version.
pub(crate) const WRITTEN_BY_KEY: &[u8] = b"written-by";
/// The program that writes this schema.
pub(crate) const PROGRAM: &str = concat!("sapwood ", env!("CARGO_PKG_VERSION"));
/// The row of a migration that is not done.
const PROGRESS_KEY: &[u8] = b"migration";

/// Leads to each version from the one before, in order. The first one is version 2.
const STEPS: [&dyn Step; SCHEMA as usize - 1] = [&v2::CountSpent, &v3::CountRetained, &v4::NameProgram];

/// How often progress is logged.
const LOG_EVERY: Duration = Duration::from_secs(5);

/// Leads to a schema version from the one before.
trait Step: Sync {
    /// Returns the version it leads to.
    fn version(&self) -> u32;

    /// Names what changes, for the log.
    fn summary(&self) -> &'static str;

    /// Does a bounded part of the work, from where `part` resumes: reads from its view, and adds rows to its write set.
    fn run(&self, part: &mut Part<'_>) -> Result<Next, StoreError>;

    /// Checks what the step left. `unreadable` rows could not be taken into account.
    ///
    /// # Errors
    /// [`StoreError::Migration`] with what is wrong.
    fn validate(&self, rows: &Snapshot<'_>, unreadable: u64) -> Result<(), Invalid>;
}

/// One bounded part of a step.
struct Part<'a> {
    rows: &'a Snapshot<'a>,
    /// Where to resume, as the step left it. Empty at its start.
    resume: Bytes,
    /// Rows to read at most.
    limit: usize,
    /// Committed together with where to resume.
    writes: WriteSet,
    /// Rows that were read.
    read: u64,
    /// Those of them that cannot be decoded. `verify` names them.
    unreadable: u64,
}

/// What follows a part.
enum Next {
    /// Another part, with these bytes to resume from.
    Resume(Vec<u8>),
    /// Nothing: the step is done.
    Done,
}

/// Why the result of a step is refused.
enum Invalid {
    /// The rows contradict each other.
    Problem(String),
    /// They cannot be read.
    Store(StoreError),
}

impl From<StoreError> for Invalid {
    fn from(error: StoreError) -> Self {
        Invalid::Store(error)
    }
}

/// How far a migration got: a row that is there from its first commit to its last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The version that is being made. Those before it are done.
    version: u32,
    /// Whether all parts are done, and only the check of the result is left.
    is_run: bool,
    /// Rows that could not be decoded so far.
    unreadable: u64,
    /// Where the step resumes. Empty at its start.
    resume: Bytes,
}

impl Progress {
    const FORMAT: u8 = 1;

    fn start(version: u32) -> Self {
        Self { version, is_run: false, unreadable: 0, resume: Bytes::new() }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        to.u8(Self::FORMAT);
        to.u32(self.version);
        to.u8(u8::from(self.is_run));
        to.varint(self.unreadable);
        to.sized(&self.resume);
        to.finish()
    }

    pub(crate) fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        const WHAT: &str = "progress of a migration";
        let mut from = Reader::new(bytes);
        from.version(WHAT, Self::FORMAT)?;
        let version = from.u32("schema version")?;
        if !(2..=SCHEMA).contains(&version) {
            return Err(DecodeError::UnknownValue { field: "schema version", value: version.into() });
        }
        let is_run = match from.u8(WHAT)? {
            flag @ (0 | 1) => flag == 1,
            value => return Err(DecodeError::UnknownValue { field: WHAT, value: value.into() }),
        };
        let (unreadable, resume) = (from.varint("unreadable rows")?, from.sized("place to resume")?);
        from.end(WHAT)?;
        Ok(Self { version, is_run, unreadable, resume })
    }
}

/// Whether a row of [`Table::Meta`] is that of a migration in flight.
pub(crate) fn is_migration_key(key: &[u8]) -> bool {
    key == PROGRESS_KEY
}

impl Core {
    /// Reads how far a migration got. `None` if none is in flight.
    pub(crate) fn migration(&self) -> Result<Option<Progress>, StoreError> {
        let row = self.snapshot()?.get(Table::Meta, PROGRESS_KEY)?;
        row.map(Progress::decode).transpose().map_err(|cause| corrupt("the progress of a migration", cause))
    }

    /// Migrates from version `found`, or resumes what was interrupted.
    ///
    /// # Errors
    /// [`StoreError::Migration`] if the result of a step is refused; the store stays as it is then, and cannot be opened.
    pub(crate) fn migrate(&self, found: u32, interrupted: Option<Progress>) -> Result<(), StoreError> {
        let place = self.engine.place();
        let mut at = match interrupted {
            Some(progress) => {
                tracing::info!(%place, version = progress.version, "resuming the migration of the store");
                progress
            }
            None => {
                tracing::info!(%place, from = found, to = SCHEMA, "migrating the store to a newer schema");
                let at = Progress::start(found + 1);
                let mut writes = WriteSet::default();
                writes.put(Table::Meta, SCHEMA_KEY, &SCHEMA.to_be_bytes());
                writes.put(Table::Meta, PROGRESS_KEY, &at.encode());
                self.commit_rows(writes)?;
                at
            }
        };
        let first = at.version;
        for step in STEPS.iter().filter(|step| step.version() >= first) {
            self.run_step(*step, &mut at)?;
            self.validate_step(*step, &at)?;
            let mut writes = WriteSet::default();
            at = Progress::start(step.version() + 1);
            if step.version() == SCHEMA {
                writes.put(Table::Meta, WRITTEN_BY_KEY, PROGRAM.as_bytes());
                writes.delete(Table::Meta, PROGRESS_KEY);
            } else {
                writes.put(Table::Meta, PROGRESS_KEY, &at.encode());
            }
            self.commit_rows(writes)?;
        }
        tracing::info!(%place, schema = SCHEMA, "the store is migrated");
        Ok(())
    }

    /// Runs the parts of a step that are not done.
    fn run_step(&self, step: &dyn Step, at: &mut Progress) -> Result<(), StoreError> {
        let (version, summary) = (step.version(), step.summary());
        let (mut read, mut logged) = (0, Instant::now());
        while !at.is_run {
            let snapshot = self.snapshot()?;
            let mut part = Part {
                rows: &snapshot,
                resume: at.resume.clone(),
                limit: self.options.migration_part_rows,
                writes: WriteSet::default(),
                read: 0,
                unreadable: 0,
            };
            let next = step.run(&mut part)?;
            let Part { mut writes, read: part_read, unreadable, .. } = part;
            read += part_read;
            at.unreadable += unreadable;
            match next {
                Next::Resume(resume) => at.resume = resume.into(),
                Next::Done => (at.is_run, at.resume) = (true, Bytes::new()),
            }
            writes.put(Table::Meta, PROGRESS_KEY, &at.encode());
            drop(snapshot);
            self.commit_rows(writes)?;
            if at.is_run || logged.elapsed() >= LOG_EVERY {
                logged = Instant::now();
                tracing::info!(version, summary, rows = read, done = at.is_run, "migrating");
            }
        }
        if at.unreadable > 0 {
            tracing::warn!(version, rows = at.unreadable, "rows cannot be read: `sapwood verify` names them");
        }
        Ok(())
    }

    fn validate_step(&self, step: &dyn Step, at: &Progress) -> Result<(), StoreError> {
        step.validate(&self.snapshot()?, at.unreadable).map_err(|invalid| match invalid {
            Invalid::Store(error) => error,
            Invalid::Problem(problem) => {
                StoreError::Migration { place: self.engine.place(), version: step.version(), problem }
            }
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests: to panic is how they fail")]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_step_to_every_version_in_order() {
        let versions: Vec<u32> = STEPS.iter().map(|step| step.version()).collect();
        assert_eq!(versions, (2..=SCHEMA).collect::<Vec<_>>());
    }

    #[test]
    fn progress_is_written_as_documented_and_damage_is_noticed() {
        let progress =
            Progress { version: 3, is_run: false, unreadable: 300, resume: Bytes::from_static(b"key") };
        let golden = b"\x01\x00\x00\x00\x03\x00\xac\x02\x03key";
        assert_eq!(progress.encode(), golden);
        assert_eq!(Progress::decode(Bytes::from_static(golden)), Ok(progress));
        for end in 0..golden.len() {
            assert!(Progress::decode(Bytes::from_static(&golden[..end])).is_err(), "cut at {end}");
        }
        let with = |place: usize, value: u8| {
            let mut bytes = golden.to_vec();
            bytes[place] = value;
            Progress::decode(bytes.into())
        };
        assert!(with(0, 2).is_err(), "another format");
        assert!(with(4, 1).is_err() && with(4, SCHEMA as u8 + 1).is_err(), "a version that no step leads to");
        assert!(with(5, 2).is_err(), "neither running nor done");
        // Fuzzing starts from the same bytes.
        assert_eq!(&golden[..], include_bytes!("../../../../fuzz/seeds/migration/running"));
    }
}
