//! An archive that is small enough to look at, and blocks that say whose they are.

use std::sync::Arc;

use bytes::Bytes;
use sapwood_archive::{
    Archive, ArchiveError, ArchiveOptions, BlockMeta, Classes, Continuity, Durability, Lookup, NewBlock,
    Policy, Pruned, Segment,
    io::{Faults, MemoryFile},
};
use sapwood_engine_memory::MemoryEngine;
use sapwood_types::{BlockHash, Height, TxId};

/// Seconds between two blocks.
pub(crate) const BLOCK_SECONDS: u64 = 600;

pub(crate) fn options() -> ArchiveOptions {
    ArchiveOptions {
        classes: Classes::try_from(vec![4096, 8192, 16384, 32768]).unwrap(),
        durability: Durability::PowerLoss,
        reorg_window: 2,
        tombstones: 1000,
        ..ArchiveOptions::default()
    }
}

/// With a policy.
pub(crate) fn with_policy(policy: Policy) -> ArchiveOptions {
    ArchiveOptions { policy, ..options() }
}

/// An archive, and what it is on.
pub(crate) struct World {
    pub(crate) file: Arc<MemoryFile>,
    pub(crate) engine: Arc<MemoryEngine>,
    pub(crate) archive: Archive,
}

impl World {
    pub(crate) fn new(options: ArchiveOptions) -> Self {
        Self::on(Arc::new(MemoryFile::new()), Arc::new(MemoryEngine::new()), options).unwrap()
    }

    pub(crate) fn on(
        file: Arc<MemoryFile>,
        engine: Arc<MemoryEngine>,
        options: ArchiveOptions,
    ) -> Result<Self, ArchiveError> {
        let archive = Archive::open(Arc::clone(&file) as _, Arc::clone(&engine) as _, options)?;
        Ok(Self { file, engine, archive })
    }

    /// With blocks 0 to `head`, one region of each payload size.
    pub(crate) fn with_blocks(options: ArchiveOptions, head: u32) -> Self {
        let world = Self::new(options);
        (0..=head).for_each(|height| world.append(&block(height)));
        world
    }

    pub(crate) fn reopen(self, options: ArchiveOptions) -> Self {
        self.try_reopen(options).unwrap()
    }

    pub(crate) fn try_reopen(self, options: ArchiveOptions) -> Result<Self, ArchiveError> {
        let Self { file, engine, archive } = self;
        drop(archive);
        let file = Arc::new(file.after_exit(Arc::new(Faults::default())));
        Self::on(file, Arc::new(engine.reopen()), options)
    }

    pub(crate) fn append(&self, block: &NewBlock) {
        self.archive.append(std::slice::from_ref(block), Continuity::Strict).unwrap();
    }

    /// Fails if anything is wrong with the archive.
    #[track_caller]
    pub(crate) fn verify(&self) {
        let report = self.archive.verify(true, |_| ()).unwrap();
        assert!(report.is_clean(), "{report}");
    }

    /// Fails unless a block is there with all its bytes.
    #[track_caller]
    pub(crate) fn assert_has(&self, block: &NewBlock) {
        assert_has(&self.archive, block);
    }

    pub(crate) fn meta(&self, height: u32) -> Lookup<BlockMeta> {
        self.archive.block(Height(height)).unwrap()
    }

    /// Heights that are found.
    pub(crate) fn heights(&self) -> Vec<u32> {
        let head = self.archive.view().unwrap().head().map_or(0, |head| head.height.0);
        (0..=head).filter(|height| matches!(self.meta(*height), Lookup::Found(_))).collect()
    }
}

#[track_caller]
pub(crate) fn assert_has(archive: &Archive, block: &NewBlock) {
    let view = archive.view().unwrap();
    let meta = view.block(block.height).unwrap().found().expect("the block is there");
    assert_eq!((meta.hash, meta.parent, meta.time), (block.hash, block.parent, block.time));
    assert_eq!(meta.txs as usize, block.txs.len());
    for segment in Segment::ALL {
        let found = view.segment(block.height, segment).unwrap();
        assert_eq!(found, Lookup::Found(block.segments[usize::from(segment.number())].clone()), "{segment}");
    }
    assert_eq!(view.block_by_hash(&block.hash).unwrap(), Lookup::Found(meta));
    assert_eq!(view.tx_ids(block.height).unwrap(), Lookup::Found(block.txs.clone()));
    for (index, txid) in block.txs.iter().enumerate() {
        let location = view.tx(txid).unwrap().found().expect("the transaction is there");
        assert_eq!((location.height, location.index as usize), (block.height, index));
    }
}

pub(crate) fn hash(height: u32, branch: u8) -> BlockHash {
    let mut hash = [branch; 32];
    hash[..4].copy_from_slice(&height.to_be_bytes());
    BlockHash(hash)
}

pub(crate) fn txid(height: u32, branch: u8, index: u32) -> TxId {
    let mut id = [branch; 32];
    id[..4].copy_from_slice(&height.to_be_bytes());
    id[4..8].copy_from_slice(&index.to_be_bytes());
    id[8] = 0x77;
    TxId(id)
}

/// Bytes that say whose they are, all the way through.
pub(crate) fn payload(height: u32, branch: u8, segment: u8, len: usize) -> Bytes {
    let mark = [&height.to_be_bytes()[..], &[branch, segment, 0xa5, 0x5a, 1]].concat();
    mark.iter().copied().cycle().take(len).collect()
}

/// A block of a branch: `sizes` are the lengths of its payloads.
pub(crate) fn block_of(height: u32, branch: u8, parent: u8, txs: u32, sizes: [usize; 3]) -> NewBlock {
    NewBlock {
        height: Height(height),
        hash: hash(height, branch),
        parent: if height == 0 { BlockHash::default() } else { hash(height - 1, parent) },
        time: u64::from(height) * BLOCK_SECONDS,
        txs: (0..txs).map(|index| txid(height, branch, index)).collect(),
        segments: [0, 1, 2].map(|segment| payload(height, branch, segment, sizes[usize::from(segment)])),
    }
}

/// A block with a region for each payload, and two transactions.
pub(crate) fn block(height: u32) -> NewBlock {
    block_of(height, 0, 0, 2, [5000, 3000, 100])
}

/// Region bytes of such a block.
pub(crate) const BLOCK_REGIONS: u64 = 8192 + 4096 + 4096;
/// Entries that are deleted with such a block.
pub(crate) const BLOCK_OPS: u64 = 3 + 2;

/// What is said of something that was in block `requested`.
pub(crate) fn pruned_from(requested: u32, boundary: u32, earliest: u32) -> Pruned {
    Pruned {
        requested: Some(Height(requested)),
        boundary: Height(boundary),
        earliest: Some(Height(earliest)),
    }
}
