//! A file read from front to back.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::PathBuf,
};

use bytes::{Buf, Bytes};

use super::error::{Fault, ImportError};

/// The first bytes of what zstd compressed.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The largest window that is decompressed, as a power of two: 128 MiB, which all levels of zstd but `--ultra --long` stay below.
const ZSTD_WINDOW: u32 = 27;

/// Where bytes come from. It can be read more than once.
#[derive(Clone, Debug)]
pub struct Origin {
    path: PathBuf,
    memory: Option<Bytes>,
}

impl Origin {
    /// A file.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), memory: None }
    }

    /// Bytes in memory, with a name for errors.
    pub fn memory(name: impl Into<PathBuf>, bytes: impl Into<Bytes>) -> Self {
        Self { path: name.into(), memory: Some(bytes.into()) }
    }

    /// Opens it at its start, decompressing it if it is compressed.
    pub(crate) fn open(&self) -> Result<Input, ImportError> {
        let fail = |error: io::Error| self.error(0, io_fault(&error));
        let mut reader: Box<dyn BufRead + Send> = match &self.memory {
            Some(bytes) => Box::new(bytes.clone().reader()),
            None => Box::new(BufReader::with_capacity(1 << 16, File::open(&self.path).map_err(fail)?)),
        };
        if reader.fill_buf().map_err(fail)?.starts_with(&ZSTD_MAGIC) {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(reader).map_err(fail)?;
            decoder.window_log_max(ZSTD_WINDOW).map_err(fail)?;
            reader = Box::new(BufReader::with_capacity(1 << 16, decoder));
        }
        Ok(Input { origin: self.clone(), reader, offset: 0 })
    }

    pub(crate) fn error(&self, offset: u64, fault: Fault) -> ImportError {
        ImportError { path: self.path.clone(), offset, fault }
    }
}

/// Bytes with a position.
pub(crate) struct Input {
    origin: Origin,
    reader: Box<dyn BufRead + Send>,
    offset: u64,
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Input")
            .field("path", &self.origin.path)
            .field("offset", &self.offset)
            .finish_non_exhaustive()
    }
}

impl Input {
    /// The position of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    pub(crate) fn error(&self, offset: u64, fault: Fault) -> ImportError {
        self.origin.error(offset, fault)
    }

    /// Returns some of the next bytes without taking them: none only at the end.
    pub(crate) fn peek(&mut self) -> Result<&[u8], ImportError> {
        let offset = self.offset;
        let origin = &self.origin;
        self.reader.fill_buf().map_err(|error| origin.error(offset, io_fault(&error)))
    }

    /// Whether nothing is left.
    pub(crate) fn at_end(&mut self) -> Result<bool, ImportError> {
        self.peek().map(<[u8]>::is_empty)
    }

    /// Appends `length` bytes to `to`.
    pub(crate) fn read(
        &mut self,
        what: &'static str,
        length: u64,
        to: &mut Vec<u8>,
    ) -> Result<(), ImportError> {
        let start = self.offset;
        // Memory grows with what is there: a length is no reason to allocate.
        let read = self.reader.by_ref().take(length).read_to_end(to);
        let found = read.map_err(|error| self.error(start, io_fault(&error)))? as u64;
        self.offset += found;
        self.complete(what, start, length)
    }

    /// Takes `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], ImportError> {
        let start = self.offset;
        let mut bytes = Vec::with_capacity(N);
        self.read(what, N as u64, &mut bytes)?;
        let length = bytes.len() as u64;
        bytes
            .try_into()
            .map_err(|_| self.error(start, Fault::Truncated { what, needed: N as u64, found: length }))
    }

    /// Passes over `length` bytes.
    pub(crate) fn skip(&mut self, what: &'static str, length: u64) -> Result<(), ImportError> {
        let start = self.offset;
        let copied = io::copy(&mut self.reader.by_ref().take(length), &mut io::sink());
        self.offset += copied.map_err(|error| self.error(start, io_fault(&error)))?;
        self.complete(what, start, length)
    }

    /// Decompresses `length` bytes of snappy's frame format, and takes at most `limit` bytes out of them.
    pub(crate) fn unsnap(
        &mut self,
        what: &'static str,
        length: u64,
        limit: u64,
    ) -> Result<Vec<u8>, ImportError> {
        let start = self.offset;
        let mut compressed = self.reader.by_ref().take(length);
        let mut bytes = Vec::new();
        let read = snap::read::FrameDecoder::new(&mut compressed).take(limit + 1).read_to_end(&mut bytes);
        let left = compressed.limit();
        self.offset += length - left;
        match read {
            Ok(found) if found as u64 > limit => {
                Err(self.error(start, Fault::TooLong { what, length: found as u64, limit }))
            }
            Ok(_) => self.complete(what, start, length).map(|()| bytes),
            // The file ends inside a frame: that is what is wrong, whatever snappy makes of it.
            Err(_) if left > 0 && self.at_end()? => {
                let found = length - left;
                Err(self.error(start, Fault::Truncated { what, needed: length, found }))
            }
            Err(error) => {
                let fault = match error.get_ref().and_then(|inner| inner.downcast_ref::<snap::Error>()) {
                    Some(error) => Fault::Snappy { what, cause: error.to_string() },
                    None if error.kind() == io::ErrorKind::UnexpectedEof => {
                        Fault::Snappy { what, cause: "a frame is cut short".to_owned() }
                    }
                    None => io_fault(&error),
                };
                Err(self.error(start, fault))
            }
        }
    }

    /// Fails unless `length` bytes were taken since `start`.
    fn complete(&self, what: &'static str, start: u64, length: u64) -> Result<(), ImportError> {
        match self.offset - start {
            found if found == length => Ok(()),
            found => Err(self.error(start, Fault::Truncated { what, needed: length, found })),
        }
    }
}

fn io_fault(error: &io::Error) -> Fault {
    Fault::Io { kind: error.kind(), cause: error.to_string() }
}
