//! All blocks as they lie in the files, good or bad, branch or not.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use bitcoin::block::Header;
use sapwood_types::{Block, BlockHash, Height};

use super::{
    files::{self, BlockFile, Key, unmask},
    scan::Scanner,
};
use crate::{
    SourceError,
    bitcoin::{BitcoinError, Network, convert, error::bad_block, network::block_hash},
    error::Place,
};

/// A block as it lies in a file. Only its header has been looked at.
#[derive(Clone, Debug)]
pub struct RawBlock {
    /// The file.
    pub path: PathBuf,
    /// The first byte of the block in it.
    pub offset: u64,
    /// Its header.
    pub header: Header,
    /// The whole record.
    pub bytes: Vec<u8>,
}

impl RawBlock {
    /// Its hash.
    pub fn hash(&self) -> BlockHash {
        block_hash(self.header.block_hash())
    }

    /// The hash of the block before it.
    pub fn parent(&self) -> BlockHash {
        block_hash(self.header.prev_blockhash)
    }

    /// Decodes and checks it. Only the caller can know its height.
    pub fn convert(&self, height: Height) -> Result<Block, SourceError> {
        convert::block_prefix(&self.bytes, height, None).map(|(block, _)| block).map_err(|cause| {
            let place = Place::File { path: self.path.clone(), offset: self.offset };
            bad_block(place, None, cause)
        })
    }
}

/// The blocks of block files in the order in which they lie there.
pub struct FileOrder {
    network: Network,
    files: std::vec::IntoIter<BlockFile>,
    open: Option<(BlockFile, File, Scanner<File>)>,
}

impl FileOrder {
    /// Reads files, or directories of them, in the order given.
    pub fn open(network: Network, places: &[PathBuf]) -> Result<Self, SourceError> {
        Ok(FileOrder { network, files: files::find(places)?.into_iter(), open: None })
    }

    fn step(&mut self) -> Result<Option<RawBlock>, SourceError> {
        loop {
            if let Some((file, input, scanner)) = &mut self.open {
                if let Some(record) = scanner.next_record().map_err(SourceError::file(&file.path))? {
                    let bytes = read(input, &file.path, file.key, record.offset, record.length)?;
                    let (path, offset, header) = (file.path.clone(), record.offset, record.header);
                    return Ok(Some(RawBlock { path, offset, header, bytes }));
                }
                self.open = None;
            }
            let Some(file) = self.files.next() else { return Ok(None) };
            let scanner = scan(&file, self.network)?;
            let input = file.open()?;
            self.open = Some((file, input, scanner));
        }
    }
}

impl Iterator for FileOrder {
    type Item = Result<RawBlock, SourceError>;
    fn next(&mut self) -> Option<Self::Item> {
        self.step().transpose()
    }
}

/// A scanner over what has not been read of a file yet. Refuses a file of another network.
pub(super) fn scan(file: &BlockFile, network: Network) -> Result<Scanner<File>, SourceError> {
    let mut scanner = Scanner::new(file.open()?, network.magic(), file.key, file.read_to)
        .map_err(SourceError::file(&file.path))?;
    let magic = scanner.first_bytes().map_err(SourceError::file(&file.path))?;
    match Network::of_magic(magic) {
        Some(found) if found != network => {
            Err(BitcoinError::WrongNetwork { path: file.path.clone(), wanted: network, magic }.into())
        }
        _ => Ok(scanner),
    }
}

/// Reads a block's bytes.
pub(super) fn read(
    input: &mut File,
    path: &Path,
    key: Key,
    offset: u64,
    length: u32,
) -> Result<Vec<u8>, SourceError> {
    let mut bytes = vec![0; length as usize];
    input
        .seek(SeekFrom::Start(offset))
        .and_then(|_| input.read_exact(&mut bytes))
        .map_err(SourceError::file(path))?;
    unmask(&mut bytes, key, offset);
    Ok(bytes)
}
