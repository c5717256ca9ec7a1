//! Readers while blocks come, are replaced and pruned, and regions are used again: never foreign bytes.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

use sapwood_archive::{
    Archive, ArchiveOptions, Continuity, Cursor, ExportError, Lookup, Policy, Punch, Segment, Trigger,
    io::{ArenaFile, DiskFile, MemoryFile},
};
use sapwood_engine_memory::MemoryEngine;
use sapwood_types::{BlockHash, Height};

use crate::world::{block_of, options};

const BLOCKS: u32 = 3000;

fn branch_in(hash: &BlockHash) -> u8 {
    hash.0[31]
}

/// Reads blocks near both ends of what is kept until asked to stop. Returns how many were read.
fn read(archive: &Archive, stop: &AtomicBool, newest: &AtomicU32, seed: u32) -> u64 {
    let mut found = 0;
    let mut turn = seed;
    while !stop.load(Ordering::Relaxed) {
        turn = turn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let view = archive.view().unwrap();
        let Some(earliest) = view.earliest() else { continue };
        let newest = newest.load(Ordering::Relaxed);
        let height = earliest.0 + (turn >> 16) % (newest.saturating_sub(earliest.0) + 1);
        let height = if turn.is_multiple_of(3) { earliest.0 } else { height };
        let Lookup::Found(meta) = view.block(Height(height)).unwrap() else { continue };
        // Gives the writer time to prune and write over what this view has found.
        if turn.is_multiple_of(5) {
            std::thread::yield_now();
        }
        let sizes = sizes(height, branch_in(&meta.hash));
        let expected = block_of(height, branch_in(&meta.hash), 0, 0, sizes);
        for segment in Segment::ALL {
            let payload = view.payload(&meta, segment).unwrap();
            assert!(
                payload == expected.segments[usize::from(segment.number())],
                "foreign bytes in block {height}"
            );
        }
        found += 1;
    }
    found
}

/// Pulls everything and looks at whose bytes they are. Returns how many blocks were pulled in full.
fn pull(archive: &Archive, stop: &AtomicBool) -> u64 {
    let mut at = None;
    let mut pulled = 0;
    while !stop.load(Ordering::Relaxed) {
        match archive.export_blocks(at, 3000) {
            Ok(exported) => {
                for chunk in &exported.chunks {
                    // Payloads name their block in every ninth byte run.
                    let mark = (chunk.block as u32).to_be_bytes();
                    for (place, byte) in (chunk.start as usize..).zip(&chunk.bytes) {
                        if place % 9 < 4 {
                            assert_eq!(*byte, mark[place % 9], "foreign bytes in block {}", chunk.block);
                        }
                    }
                }
                if exported.next_cursor.map(|next| next.block) > at.map(|at: Cursor| at.block) {
                    pulled += 1;
                }
                at = exported.next_cursor;
            }
            Err(ExportError::Pruned { boundary, .. }) => at = Some(Cursor::at(u64::from(boundary.0) + 1)),
            // A reorg made the payload shorter than the cursor.
            Err(ExportError::OffsetPastEnd { block, .. }) => at = Some(Cursor::at(block)),
            Err(error) => panic!("{error}"),
        }
    }
    pulled
}

fn sizes(height: u32, branch: u8) -> [usize; 3] {
    let height = height as usize + 7 * branch as usize;
    [500 + (height * 977) % 9000, (height * 31) % 5000, height % 200]
}

fn make(height: u32, branch: u8, parent: BlockHash) -> sapwood_archive::NewBlock {
    sapwood_archive::NewBlock { parent, ..block_of(height, branch, 0, 0, sizes(height, branch)) }
}

fn readers_never_see_foreign_bytes(file: Arc<dyn ArenaFile>, options: ArchiveOptions, blocks: u32) {
    let archive = Archive::open(file, Arc::new(MemoryEngine::new()), options).unwrap();
    let (stop, newest, generations) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU64::new(0));
    let (read_blocks, pulled) = std::thread::scope(|scope| {
        let readers: Vec<_> = (1..=2)
            .map(|seed| {
                scope.spawn({
                    let (archive, stop, newest) = (&archive, &stop, &newest);
                    move || read(archive, stop, newest, seed)
                })
            })
            .collect();
        let puller = scope.spawn(|| pull(&archive, &stop));
        let mut hash = BlockHash::default();
        let mut seen = BTreeSet::new();
        for height in 0..blocks {
            let block = make(height, 0, hash);
            hash = block.hash;
            archive.append(&[block], Continuity::Strict).unwrap();
            newest.store(height, Ordering::Relaxed);
            if height % 17 == 16 {
                // The last block is replaced by another one.
                let parent = archive.view().unwrap().block(Height(height - 1)).unwrap().found().unwrap().hash;
                let other = make(height, 1, parent);
                hash = other.hash;
                archive.replace_above(Height(height - 1), &[other]).unwrap();
            }
            archive.tick(Trigger::Block, 0, &[]).unwrap();
            let meta = archive.block(Height(height)).unwrap().found().unwrap();
            meta.pointers().for_each(|pointer| _ = seen.insert(pointer.generation));
        }
        generations.store(seen.len() as u64, Ordering::Relaxed);
        stop.store(true, Ordering::Relaxed);
        let read_blocks: u64 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
        (read_blocks, puller.join().unwrap())
    });
    assert!(read_blocks > 0 && pulled > 0, "{read_blocks} read, {pulled} pulled");
    assert!(generations.load(Ordering::Relaxed) > 3, "regions were used again and again");
    archive.release().unwrap();
    let report = archive.verify(true, |_| ()).unwrap();
    assert!(report.is_clean(), "{report}");
}

fn busy(punch: Punch) -> ArchiveOptions {
    let policy = Policy { retain_blocks: Some(30), tick_blocks: 4, ..Policy::default() };
    ArchiveOptions { policy, punch, durability: sapwood_archive::Durability::ProcessCrash, ..options() }
}

#[test]
fn readers_in_memory_never_see_foreign_bytes() {
    readers_never_see_foreign_bytes(Arc::new(MemoryFile::new()), busy(Punch::Never), BLOCKS);
}

#[test]
fn readers_of_a_file_on_disk_never_see_foreign_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let file = DiskFile::create(&directory.path().join("arena")).unwrap();
    readers_never_see_foreign_bytes(Arc::new(file), busy(Punch::FreeAbove(20_000)), BLOCKS);
}
