//! Reading a dump: checking it, and putting its rows into an engine.

use std::{io::Read, ops::ControlFlow};

use super::{
    DumpHeader, DumpProblem, DumpProgress, Dumped, EachProgress, LoadError,
    frame::{Payload, StreamReader, Trailer},
};
use crate::{
    StoreError,
    commit::{RETRY_COMMITS_FOR, commit},
    engine::{Engine, Maintenance, Scan, Table, WriteSet},
    migrate::{SCHEMA, SCHEMA_KEY, is_migration_key},
    state::{IDENTITY_KEY, STATE_KEY},
};

/// The row of a load that is not done.
pub(crate) const LOADING_KEY: &[u8] = b"loading";
/// What the row holds: the version of its meaning.
const LOADING: &[u8] = &[1];
/// Bytes of rows in one commit of a load, about.
const COMMIT_BYTES: usize = 8 << 20;
/// Greater than every key of every table. No key begins with so many of these bytes.
const AFTER_ALL_KEYS: [u8; 128] = [0xff; 128];

/// A dump that is read up to its header.
pub struct DumpReader<R> {
    header: DumpHeader,
    stream: StreamReader<R>,
}

impl<R: Read> DumpReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// [`LoadError::NotADump`], [`LoadError::UnknownVersion`] and [`LoadError::NewerSchema`] if this program cannot read the dump.
    pub fn open(from: R) -> Result<Self, LoadError> {
        let (header, stream) = StreamReader::new(from)?;
        if header.schema > SCHEMA {
            let program = header.program;
            return Err(LoadError::NewerSchema { found: header.schema, known: SCHEMA, program });
        }
        Ok(Self { header, stream })
    }

    /// Returns what the dump says about itself.
    pub fn header(&self) -> &DumpHeader {
        &self.header
    }

    /// Reads the rest and checks it, without loading it.
    ///
    /// # Errors
    /// [`LoadError::Read`] and [`LoadError::Damaged`]; [`StoreError::Stopped`] if `progress` breaks.
    pub fn check(self, progress: &EachProgress<'_>) -> Result<Dumped, LoadError> {
        self.read_rows(progress, &mut |_, _, _| Ok(()))
    }

    /// Reads the rest into an engine without rows, and checks it.
    ///
    /// A load that was not finished, because it failed or was killed, is started over: its rows are deleted first.
    ///
    /// # Errors
    /// Those of [`check`](Self::check), and [`LoadError::NotEmpty`] if the engine has rows of its own. Whatever else fails leaves rows that
    /// [`Ledger::open`](crate::Ledger::open) refuses.
    pub fn load(self, engine: &dyn Engine, progress: &EachProgress<'_>) -> Result<Dumped, LoadError> {
        let mut loading = Loading::begin(engine)?;
        let dumped = self.read_rows(progress, &mut |table, key, value| loading.row(table, key, value))?;
        loading.finish(&dumped.header)?;
        Ok(dumped)
    }

    /// Reads rows up to the trailer, checks it, and checks that the stream ends there.
    fn read_rows(self, progress: &EachProgress<'_>, each: &mut EachRow<'_>) -> Result<Dumped, LoadError> {
        let Self { header, mut stream } = self;
        let mut made_with = MadeWith::default();
        let (mut last_table, mut last_key) = (None, Vec::new());
        let mut counts = [0_u64; Table::ALL.len()];
        loop {
            let digest = stream.digest();
            match stream.frame()? {
                Payload::Header(_) => return Err(stream.damaged(DumpProblem::SecondHeader)),
                Payload::Rows(rows) => {
                    for (key, value) in rows.iter() {
                        let is_behind = |table| (table, &last_key[..]) < (rows.table, key);
                        if !last_table.is_none_or(is_behind) {
                            return Err(stream.damaged(DumpProblem::Order));
                        }
                        made_with.note(rows.table, key, value);
                        each(rows.table, key, value)?;
                        last_table = Some(rows.table);
                        last_key.clear();
                        last_key.extend_from_slice(key);
                        counts[rows.table as usize] += 1;
                    }
                    let so_far = DumpProgress { rows: counts.iter().sum(), bytes: stream.position() };
                    if progress(so_far).is_break() {
                        return Err(StoreError::Stopped { doing: "loading a dump" }.into());
                    }
                }
                Payload::Trailer(trailer) => {
                    if trailer != (Trailer { counts, digest }) {
                        return Err(stream.damaged(DumpProblem::Trailer));
                    }
                    stream.end()?;
                    made_with.check(&header).map_err(|problem| stream.damaged(problem))?;
                    return Ok(Dumped {
                        header,
                        rows: counts.iter().sum(),
                        bytes: stream.position(),
                        digest,
                    });
                }
            }
        }
    }
}

/// Called with table, key and value of a row.
type EachRow<'a> = dyn FnMut(Table, &[u8], &[u8]) -> Result<(), LoadError> + 'a;

/// The rows that say what a ledger was made with. The header has to say the same.
#[derive(Default)]
struct MadeWith {
    schema: Option<Vec<u8>>,
    identity: Option<Vec<u8>>,
    has_state: bool,
    /// Rows that only an unfinished ledger has.
    is_unfinished: bool,
}

impl MadeWith {
    fn note(&mut self, table: Table, key: &[u8], value: &[u8]) {
        if table != Table::Meta {
            return;
        }
        match key {
            SCHEMA_KEY => self.schema = Some(value.to_vec()),
            IDENTITY_KEY => self.identity = Some(value.to_vec()),
            STATE_KEY => self.has_state = true,
            LOADING_KEY => self.is_unfinished = true,
            key if is_migration_key(key) => self.is_unfinished = true,
            _ => {}
        }
    }

    fn check(&self, header: &DumpHeader) -> Result<(), DumpProblem> {
        let identity = header.identity.as_ref().map(String::as_bytes);
        let same = self.schema.as_deref() == Some(&header.schema.to_be_bytes())
            && self.identity.as_deref() == identity
            && self.has_state
            && !self.is_unfinished;
        if same { Ok(()) } else { Err(DumpProblem::OtherLedger) }
    }
}

/// A load in flight.
struct Loading<'a> {
    engine: &'a dyn Engine,
    /// The number of the last commit.
    number: u64,
    writes: WriteSet,
}

impl<'a> Loading<'a> {
    /// Starts on an engine without rows, or starts over.
    fn begin(engine: &'a dyn Engine) -> Result<Self, LoadError> {
        let mut loading = Self { engine, number: engine.position()?, writes: WriteSet::default() };
        let is_empty = loading.first_row()?.is_none();
        if !is_empty && !loading.is_marked()? {
            return Err(LoadError::NotEmpty { place: engine.place() });
        }
        loading.writes.put(Table::Meta, LOADING_KEY, LOADING);
        loading.writes.put(Table::Meta, SCHEMA_KEY, &SCHEMA.to_be_bytes());
        loading.commit()?;
        if !is_empty {
            loading.clear()?;
        }
        Ok(loading)
    }

    /// Whether a load was begun here and not finished.
    fn is_marked(&self) -> Result<bool, LoadError> {
        let mut marked = false;
        let each =
            &mut |_, value: Result<Option<&[u8]>, _>| marked = value.is_ok_and(|value| value.is_some());
        self.engine.view()?.get_many(Table::Meta, &[LOADING_KEY], each)?;
        Ok(marked)
    }

    /// The first row there is, in any table, but for those that a load itself begins with.
    fn first_row(&self) -> Result<Option<(Table, Vec<u8>)>, LoadError> {
        let view = self.engine.view()?;
        for table in Table::ALL {
            let mut first = None;
            view.scan(&Scan::all(table), &mut |key, _| {
                first = Some((table, key.to_vec()));
                ControlFlow::Break(())
            })?;
            if first.is_some() {
                return Ok(first);
            }
        }
        Ok(None)
    }

    /// Deletes the rows of a load that was not finished, and keeps its marker.
    fn clear(&mut self) -> Result<(), LoadError> {
        tracing::info!(place = %self.engine.place(), "a load was not finished: it is started over");
        for table in Table::ALL {
            self.writes.delete_range(table, &[], &AFTER_ALL_KEYS);
        }
        // In the same commit as the deletion: there is no moment without the marker.
        self.writes.put(Table::Meta, LOADING_KEY, LOADING);
        self.writes.put(Table::Meta, SCHEMA_KEY, &SCHEMA.to_be_bytes());
        self.commit()
    }

    fn row(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), LoadError> {
        // The schema version comes last, with the marker's deletion.
        if (table, key) != (Table::Meta, SCHEMA_KEY) {
            self.writes.put(table, key, value);
        }
        if self.writes.bytes() >= COMMIT_BYTES { self.commit() } else { Ok(()) }
    }

    /// Makes it a whole ledger.
    fn finish(mut self, header: &DumpHeader) -> Result<(), LoadError> {
        if !self.writes.is_empty() {
            self.commit()?;
        }
        self.writes.put(Table::Meta, SCHEMA_KEY, &header.schema.to_be_bytes());
        self.writes.delete(Table::Meta, LOADING_KEY);
        self.commit()?;
        Ok(self.engine.maintain(Maintenance::Flush)?)
    }

    fn commit(&mut self) -> Result<(), LoadError> {
        let mut writes = std::mem::take(&mut self.writes);
        writes.number = self.number + 1;
        commit(self.engine, &writes, RETRY_COMMITS_FOR)?;
        self.number = writes.number;
        Ok(())
    }
}
