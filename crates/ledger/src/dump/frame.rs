//! The bytes of a dump. `docs/formats.md` describes them.
//!
//! # Correctness
//! The length of a frame has a checksum of its own, so that a changed one is noticed before it decides how much is read.

use std::io::{ErrorKind, Read, Write};

use bytes::Bytes;
use sapwood_types::{
    DecodeError,
    codec::{Reader, Writer},
};
use sha2::{Digest, Sha256};

use super::{DumpProgress, LoadError};
use crate::engine::Table;

/// The version of the format.
pub const FORMAT_VERSION: u8 = 1;
const MAGIC: &[u8; 7] = b"SWDUMP\n";
const HEADER: u8 = 1;
const ROWS: u8 = 2;
const TRAILER: u8 = 3;
/// Bytes of rows in one frame, about. A larger row has a frame of its own.
const FRAME_BYTES: usize = 256 << 10;

/// What a dump says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpHeader {
    /// The program that wrote it.
    pub program: String,
    /// The network the ledger holds. `None` if it was never named.
    pub identity: Option<String>,
    /// The schema version of the rows.
    pub schema: u32,
    /// The number of the last commit that is in it.
    pub number: u64,
}

/// What is wrong with a dump.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DumpProblem {
    /// The stream ends too soon.
    #[error("it is cut short")]
    CutShort,
    /// A frame was changed.
    #[error("a checksum does not match")]
    Checksum,
    /// A frame cannot be decoded.
    #[error("{0}")]
    Frame(DecodeError),
    /// The first frame is not the header.
    #[error("the header is missing")]
    NoHeader,
    /// There is a header behind the first frame.
    #[error("there is a second header")]
    SecondHeader,
    /// Rows are not in order, or one is there twice.
    #[error("rows are not in order")]
    Order,
    /// The trailer is not that of the rows before it.
    #[error("rows are missing, or from another dump")]
    Trailer,
    /// Bytes follow the trailer.
    #[error("bytes follow its end")]
    TrailingBytes,
    /// The rows are not those of the ledger that the header describes, or of one that was not whole.
    #[error("its rows are not those of a whole ledger that the header describes")]
    OtherLedger,
}

/// The content of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Payload {
    Header(DumpHeader),
    Rows(Rows),
    Trailer(Trailer),
}

/// Rows of one table, one behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rows {
    pub(super) table: Table,
    rows: Vec<(Bytes, Bytes)>,
}

impl Rows {
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.rows.iter().map(|(key, value)| (&key[..], &value[..]))
    }
}

/// What the whole has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trailer {
    /// Rows of each table.
    pub(super) counts: [u64; Table::ALL.len()],
    /// SHA-256 of the stream before the trailer's frame.
    pub(super) digest: [u8; 32],
}

impl Trailer {
    pub(super) fn rows(&self) -> u64 {
        self.counts.iter().sum()
    }
}

impl Payload {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        match self {
            Payload::Header(header) => {
                to.u8(HEADER);
                to.sized(header.program.as_bytes());
                to.u8(u8::from(header.identity.is_some()));
                if let Some(identity) = &header.identity {
                    to.sized(identity.as_bytes());
                }
                to.u32(header.schema);
                to.varint(header.number);
            }
            Payload::Rows(rows) => {
                to.u8(ROWS);
                to.u8(rows.table as u8);
                for (key, value) in rows.iter() {
                    to.sized(key);
                    to.sized(value);
                }
            }
            Payload::Trailer(trailer) => {
                to.u8(TRAILER);
                trailer.counts.iter().for_each(|count| to.varint(*count));
                to.bytes(&trailer.digest);
            }
        }
        to.finish()
    }

    pub(super) fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        let mut from = Reader::new(bytes);
        let payload = match from.u8("frame")? {
            HEADER => {
                let program = text("program", from.sized("program")?)?;
                let identity = match from.u8("identity")? {
                    0 => None,
                    1 => Some(text("identity", from.sized("identity")?)?),
                    value => {
                        return Err(DecodeError::UnknownValue { field: "identity", value: value.into() });
                    }
                };
                let schema = from.u32("schema version")?;
                if schema == 0 {
                    return Err(DecodeError::UnknownValue { field: "schema version", value: 0 });
                }
                Payload::Header(DumpHeader {
                    program,
                    identity,
                    schema,
                    number: from.varint("write number")?,
                })
            }
            ROWS => {
                let table = from.u8("table")?;
                let unknown = DecodeError::UnknownValue { field: "table", value: table.into() };
                let table = *Table::ALL.get(usize::from(table)).ok_or(unknown)?;
                let mut rows = Vec::new();
                while from.left() > 0 {
                    rows.push((from.sized("key")?, from.sized("value")?));
                }
                if rows.is_empty() {
                    return Err(DecodeError::Inconsistent { what: "frame", problem: "it has no rows" });
                }
                Payload::Rows(Rows { table, rows })
            }
            TRAILER => {
                let mut counts = [0; Table::ALL.len()];
                for count in &mut counts {
                    *count = from.varint("rows")?;
                }
                Payload::Trailer(Trailer { counts, digest: from.array("digest")? })
            }
            value => return Err(DecodeError::UnknownValue { field: "frame", value: value.into() }),
        };
        from.end("frame")?;
        Ok(payload)
    }
}

fn text(what: &'static str, bytes: Bytes) -> Result<String, DecodeError> {
    String::from_utf8(bytes.to_vec())
        .map_err(|_| DecodeError::Inconsistent { what, problem: "it is not text" })
}

/// Decodes the content of a frame and encodes it again.
pub(crate) fn transcode(bytes: Bytes) -> Result<Vec<u8>, DecodeError> {
    Payload::decode(bytes).map(|payload| payload.encode())
}

/// The start of a frame: the length of its content, the checksum of that, and the checksum of both.
fn frame_start(payload: &[u8]) -> std::io::Result<[u8; 12]> {
    let too_large = |_| std::io::Error::other("a row of 4 GiB or more does not fit into a frame");
    let length = u32::try_from(payload.len()).map_err(too_large)?;
    let mut start = [0; 12];
    start[..4].copy_from_slice(&length.to_be_bytes());
    start[4..8].copy_from_slice(&crc32c::crc32c(payload).to_be_bytes());
    let both = crc32c::crc32c(&start[..8]);
    start[8..].copy_from_slice(&both.to_be_bytes());
    Ok(start)
}

/// Writes a dump.
pub(super) struct StreamWriter<W> {
    to: W,
    hash: Sha256,
    bytes: u64,
    table: Table,
    /// The rows of the frame to come.
    rows: Writer,
    counts: [u64; Table::ALL.len()],
}

impl<W: Write> StreamWriter<W> {
    pub(super) fn new(to: W, header: &DumpHeader) -> std::io::Result<Self> {
        let table = Table::ALL[0];
        let mut stream = Self {
            to,
            hash: Sha256::new(),
            bytes: 0,
            table,
            rows: Writer::default(),
            counts: [0; Table::ALL.len()],
        };
        stream.write(MAGIC)?;
        stream.write(&[FORMAT_VERSION])?;
        stream.frame(&Payload::Header(header.clone()).encode())?;
        Ok(stream)
    }

    pub(super) fn progress(&self) -> DumpProgress {
        DumpProgress { rows: self.counts.iter().sum(), bytes: self.bytes }
    }

    /// Adds a row. Returns whether a frame was written.
    pub(super) fn row(&mut self, table: Table, key: &[u8], value: &[u8]) -> std::io::Result<bool> {
        let ends = table != self.table || self.rows.written().len() >= FRAME_BYTES;
        if ends {
            self.flush_rows()?;
        }
        self.table = table;
        if self.rows.written().is_empty() {
            self.rows.u8(ROWS);
            self.rows.u8(table as u8);
        }
        self.rows.sized(key);
        self.rows.sized(value);
        self.counts[table as usize] += 1;
        Ok(ends)
    }

    /// Ends the stream. Returns the trailer and the bytes of the stream.
    pub(super) fn finish(mut self) -> std::io::Result<(Trailer, u64)> {
        self.flush_rows()?;
        let trailer = Trailer { counts: self.counts, digest: self.hash.clone().finalize().into() };
        self.frame(&Payload::Trailer(trailer).encode())?;
        self.to.flush()?;
        Ok((trailer, self.bytes))
    }

    fn flush_rows(&mut self) -> std::io::Result<()> {
        if self.rows.written().is_empty() {
            return Ok(());
        }
        let rows = std::mem::take(&mut self.rows).finish();
        self.frame(&rows)
    }

    fn frame(&mut self, payload: &[u8]) -> std::io::Result<()> {
        self.write(&frame_start(payload)?)?;
        self.write(payload)
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.to.write_all(bytes)?;
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

/// Reads a dump.
pub(super) struct StreamReader<R> {
    from: R,
    hash: Sha256,
    position: u64,
}

impl<R: Read> StreamReader<R> {
    /// Reads up to the header.
    pub(super) fn new(from: R) -> Result<(DumpHeader, Self), LoadError> {
        let mut stream = Self { from, hash: Sha256::new(), position: 0 };
        let magic = stream.read(MAGIC.len() as u64)?;
        if *magic != *MAGIC {
            return Err(LoadError::NotADump);
        }
        match stream.read(1)?[..] {
            [FORMAT_VERSION] => {}
            [found] => return Err(LoadError::UnknownVersion { found, known: FORMAT_VERSION }),
            _ => return Err(stream.damaged(DumpProblem::CutShort)),
        }
        match stream.frame()? {
            Payload::Header(header) => Ok((header, stream)),
            _ => Err(stream.damaged(DumpProblem::NoHeader)),
        }
    }

    /// Returns how many bytes were read.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Returns the hash of what was read.
    pub(super) fn digest(&self) -> [u8; 32] {
        self.hash.clone().finalize().into()
    }

    /// Makes an error of the place that was reached.
    pub(super) fn damaged(&self, problem: DumpProblem) -> LoadError {
        LoadError::Damaged { at: self.position, problem }
    }

    /// Reads the next frame.
    pub(super) fn frame(&mut self) -> Result<Payload, LoadError> {
        let start = self.read(12)?;
        let number = |at: usize| {
            let bytes = start.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u32::from_be_bytes)
        };
        let (length, checksum) = (number(0), number(4));
        if crc32c::crc32c(&start[..8]) != number(8) {
            return Err(self.damaged(DumpProblem::Checksum));
        }
        let payload = self.read(length.into())?;
        if crc32c::crc32c(&payload) != checksum {
            return Err(self.damaged(DumpProblem::Checksum));
        }
        Payload::decode(payload.into()).map_err(|cause| self.damaged(DumpProblem::Frame(cause)))
    }

    /// Checks that nothing follows.
    pub(super) fn end(&mut self) -> Result<(), LoadError> {
        match self.read(1) {
            Err(LoadError::Damaged { problem: DumpProblem::CutShort, .. }) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(self.damaged(DumpProblem::TrailingBytes)),
        }
    }

    /// Reads exactly this many bytes. Memory grows with what comes, not with what is asked for.
    fn read(&mut self, length: u64) -> Result<Vec<u8>, LoadError> {
        let mut bytes = Vec::new();
        let read = self.from.by_ref().take(length).read_to_end(&mut bytes);
        self.position += bytes.len() as u64;
        match read {
            Ok(read) if read as u64 == length => {
                self.hash.update(&bytes);
                Ok(bytes)
            }
            Ok(_) => Err(self.damaged(DumpProblem::CutShort)),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                Err(self.damaged(DumpProblem::CutShort))
            }
            Err(error) => Err(LoadError::Read { cause: error.to_string() }),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests: to panic is how they fail")]
mod tests {
    use std::ops::ControlFlow;

    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::{SCHEMA_VERSION, dump::DumpReader};

    // Fuzzing starts from the same bytes. They were not made by this code.
    const STREAM: &[u8] = include_bytes!("../../../../fuzz/seeds/dump/stream");
    const FRAMES: [&[u8]; 3] = [
        include_bytes!("../../../../fuzz/seeds/dump/header"),
        include_bytes!("../../../../fuzz/seeds/dump/rows"),
        include_bytes!("../../../../fuzz/seeds/dump/trailer"),
    ];

    fn header() -> DumpHeader {
        let (program, identity) = ("sapwood 0.1.0".into(), Some("test network".into()));
        DumpHeader { program, identity, schema: 4, number: 300 }
    }

    #[test]
    fn dump_is_written_as_documented() {
        let mut bytes = Vec::new();
        let mut stream = StreamWriter::new(&mut bytes, &header()).unwrap();
        let meta = [(&b"identity"[..], &b"test network"[..]), (b"schema", &[0, 0, 0, 4]), (b"state", b"")];
        stream.row(Table::Tx, b"key", b"value").unwrap();
        stream.row(Table::Tx, b"keys", b"").unwrap();
        for (key, value) in meta {
            stream.row(Table::Meta, key, value).unwrap();
        }
        let (trailer, length) = stream.finish().unwrap();
        assert_eq!((trailer.counts, length), ([2, 0, 0, 0, 0, 3], STREAM.len() as u64));
        assert_eq!(bytes, STREAM);
        let read = DumpReader::open(STREAM).unwrap().check(&|_| ControlFlow::Continue(())).unwrap();
        assert_eq!((read.header, read.rows, read.digest), (header(), 5, trailer.digest));
        let start = b"SWDUMP\n\x01\x00\x00\x00\x23";
        assert_eq!(&STREAM[..12], start);
        assert_eq!(&STREAM[20..][..FRAMES[0].len()], FRAMES[0]);
        assert!(STREAM.ends_with(FRAMES[2]));
    }

    #[test]
    fn dump_of_a_newer_schema_is_refused_and_its_program_is_named() {
        let (found, known, program) = (SCHEMA_VERSION + 1, SCHEMA_VERSION, "sapwood 9.0.0".to_owned());
        let mut bytes = Vec::new();
        StreamWriter::new(&mut bytes, &DumpHeader { program: program.clone(), schema: found, ..header() })
            .unwrap();
        let refused = DumpReader::open(&bytes[..]).map(|dump| dump.header().clone()).unwrap_err();
        assert_eq!(refused, LoadError::NewerSchema { found, known, program });
    }

    #[test]
    fn frames_are_read_as_documented_and_damage_is_noticed() {
        for frame in FRAMES {
            assert_eq!(transcode(Bytes::from_static(frame)), Ok(frame.to_vec()));
            assert!(Payload::decode([frame, b"\0"].concat().into()).is_err(), "a byte more");
        }
        let Ok(Payload::Header(read)) = Payload::decode(Bytes::from_static(FRAMES[0])) else {
            panic!("not a header")
        };
        assert_eq!(read, header());
        for bad in [
            &b""[..],
            b"\x00",
            b"\x04",
            b"\x01\x01\xff\x00\x00\x00\x00\x01\x00",
            b"\x01\x00\x02\x00\x00\x00\x01\x00",
            b"\x01\x00\x00\x00\x00\x00\x00\x00",
            b"\x02\x06\x00\x00",
            b"\x02\x00",
            b"\x02\x00\x01k",
        ] {
            assert!(Payload::decode(Bytes::from_static(bad)).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn rows_of_any_size_come_back(
            rows in vec((0..Table::ALL.len(), vec(any::<u8>(), 0..40), vec(any::<u8>(), 0..2_000)), 0..300),
            large in 0..2_usize,
        ) {
            let mut rows: Vec<_> =
                rows.into_iter().map(|(table, key, value)| (Table::ALL[table], key, value)).collect();
            if let Some(row) = rows.first_mut() {
                row.2.resize(large * (FRAME_BYTES + 1), 7);
            }
            let mut bytes = Vec::new();
            let mut to = StreamWriter::new(&mut bytes, &header()).unwrap();
            for (table, key, value) in &rows {
                to.row(*table, key, value).unwrap();
            }
            let (written, _) = to.finish().unwrap();
            let (_, mut stream) = StreamReader::new(&bytes[..]).unwrap();
            let mut found = Vec::new();
            loop {
                let digest = stream.digest();
                match stream.frame().unwrap() {
                    Payload::Rows(rows) => {
                        found.extend(rows.iter().map(|(key, value)| (rows.table, key.to_vec(), value.to_vec())));
                    }
                    Payload::Trailer(trailer) => {
                        prop_assert_eq!((trailer, digest), (written, written.digest));
                        break;
                    }
                    Payload::Header(_) => panic!("a second header"),
                }
            }
            prop_assert_eq!(found, rows);
            prop_assert_eq!(stream.end(), Ok(()));
        }

        #[test]
        fn decoded_frame_encodes_to_the_same_bytes(bytes in vec(any::<u8>(), 0..200)) {
            if let Ok(again) = transcode(Bytes::from(bytes.clone())) {
                prop_assert_eq!(again, bytes);
            }
        }
    }
}
