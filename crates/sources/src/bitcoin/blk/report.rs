//! What to read, how far it has come, and what was found.

use std::{path::PathBuf, time::Duration};

use super::index::Orphan;
use crate::{ChainPoint, bitcoin::Network};

/// Which block files, and how to read them.
#[derive(Clone, Debug)]
pub struct BlkOptions {
    /// The network whose blocks they are.
    pub network: Network,
    /// Files and directories of files. Where blocks have equal work, those found first win.
    pub places: Vec<PathBuf>,
    /// A block to build on instead of the network's first one, for files that begin later, as those of a pruned node do.
    pub anchor: Option<ChainPoint>,
    /// How often to look for new blocks.
    pub poll: Duration,
    /// A last record that has not become a whole block for this long is damaged. Until then it may still be written.
    pub whole_within: Duration,
    /// Hand over the bytes of transactions larger than this: [`Tx::raw`](sapwood_types::Tx::raw). Nothing for none.
    pub raw_above: Option<u32>,
}

impl BlkOptions {
    /// Files that begin with the network's first block, looked at every second.
    pub fn new(network: Network, places: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        let places = places.into_iter().map(Into::into).collect();
        let (poll, whole_within) = (Duration::from_secs(1), Duration::from_secs(10));
        Self { network, places, anchor: None, poll, whole_within, raw_above: None }
    }
}

/// How far reading the headers has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanProgress {
    /// Files read.
    pub files: usize,
    /// Files to read.
    pub files_total: usize,
    /// Bytes passed.
    pub bytes: u64,
    /// Bytes to pass.
    pub bytes_total: u64,
    /// Blocks found, with copies.
    pub blocks: u64,
}

/// Something odd about a file, which is no error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileNote {
    /// The file.
    pub path: PathBuf,
    /// How many bytes are neither records nor zeros.
    pub skipped: u64,
    /// Where the first of them is, if there are some.
    pub skipped_at: Option<u64>,
    /// Where a record begins that ends beyond the end of the file, or whose block is not whole. It does not count.
    pub torn: Option<u64>,
}

/// What was found in the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlkReport {
    /// How many files there are.
    pub files: usize,
    /// How many blocks were found, copies not counted.
    pub blocks: usize,
    /// How many further copies of blocks were found.
    pub copies: usize,
    /// How many blocks are on other branches than the best chain.
    pub beside: usize,
    /// The last block of the best chain.
    pub tip: ChainPoint,
    /// How many blocks hang in the air, because a block before them is not in the files.
    pub unconnected: usize,
    /// Some of those whose parent is not there.
    pub orphans: Vec<Orphan>,
    /// What was odd.
    pub notes: Vec<FileNote>,
    /// Places of damage that were found so far, as file and offset. Most blocks are looked at only when they are read.
    pub damaged: Vec<(PathBuf, u64)>,
}
