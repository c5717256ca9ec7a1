//! Regions are used again, and never under an owner that has them.

use std::sync::Arc;

use sapwood_archive::{
    Archive, ArchiveError, ArchiveOptions, BlobPtr, Continuity, Punch, Segment,
    io::{ArenaFile, DiskFile, MemoryFile},
};
use sapwood_engine_memory::{FailPoint, MemoryEngine};
use sapwood_ledger::engine::{Engine, Table};
use sapwood_types::Height;

use crate::world::{BLOCK_REGIONS, World, block, block_of, options};

fn end(world: &World) -> u64 {
    world.archive.arena().unwrap().end
}

fn region_key(offset: u64) -> Vec<u8> {
    [b"r".as_slice(), &offset.to_be_bytes()].concat()
}

fn pointer(world: &World, height: u32) -> BlobPtr {
    world.meta(height).found().unwrap().pieces(Segment::Block)[0].pointer
}

/// One reclaim path left regions out of the list of free ones, so that allocating became a linear scan.
#[test]
fn seen_every_reclaim_path_feeds_the_free_list() {
    // Pruning.
    let world = World::with_blocks(options(), 9);
    let before = end(&world);
    world.archive.prune_blocks(7, 1000, 0, &[]).unwrap();
    (10..=12).for_each(|height| world.append(&block(height)));
    assert_eq!(end(&world), before, "pruned regions");
    // A reorg.
    world.archive.replace_above(Height(10), &[]).unwrap();
    (11..=12)
        .for_each(|height| world.append(&block_of(height, 1, (height > 11).into(), 2, [5000, 3000, 100])));
    assert_eq!(end(&world), before, "replaced regions");
    // Recovery: the commit that would free them fails.
    let number = world.engine.position().unwrap();
    world.engine.fail_at(number + 2, FailPoint::BeforeCommit);
    world.archive.prune_blocks(7, 1000, 0, &[]).unwrap_err();
    let world = world.reopen(options());
    assert_eq!(world.archive.arena().unwrap().bytes.free, 3 * BLOCK_REGIONS);
    (13..=15).for_each(|height| world.append(&block_of(height, 1, 1, 2, [5000, 3000, 100])));
    assert_eq!(end(&world), before, "recovered regions");
    world.verify();
}

#[test]
fn lowest_free_offset_is_used_first() {
    let world = World::with_blocks(options(), 9);
    let lowest = pointer(&world, 0);
    world.archive.prune_blocks(7, 1000, 0, &[]).unwrap();
    world.append(&block(10));
    let again = pointer(&world, 10);
    assert_eq!((again.offset, again.class, again.generation), (lowest.offset, lowest.class, 2));
}

#[test]
fn pointer_of_an_earlier_owner_reads_nothing() {
    let world = World::with_blocks(options(), 9);
    let old = world.meta(0).found().unwrap();
    world.archive.prune_blocks(7, 1000, 0, &[]).unwrap();
    let read = |old| world.archive.view().unwrap().payload(old, Segment::Block);
    assert!(matches!(read(&old), Err(ArchiveError::StalePointer { .. })), "free");
    world.append(&block(10));
    assert_eq!(pointer(&world, 10).offset, old.pieces(Segment::Block)[0].pointer.offset);
    assert!(matches!(read(&old), Err(ArchiveError::StalePointer { .. })), "another owner");
}

/// Regions were freed and used again before recovery, and the stale generation in the journal kept pruning from ever
/// going on.
#[test]
fn seen_stale_journal_entry_is_treated_as_done() {
    let world = World::with_blocks(options(), 9);
    let old = pointer(&world, 0);
    world.archive.prune_blocks(7, 1000, 0, &[]).unwrap();
    world.append(&block(10));
    assert_eq!(pointer(&world, 10).offset, old.offset);
    // An entry for the first owner, as if it had never been dropped.
    let entry = [&[1, 0, 0, 0, 0, 0, 1][..], &old.encode()].concat();
    let key = [b"j".as_slice(), &0_u64.to_be_bytes()].concat();
    world.engine.damage(Table::Pending, &key, Some(&entry));
    let world = world.reopen(options());
    world.assert_has(&block(10));
    assert_eq!(world.archive.prune_blocks(4, 1000, 0, &[]).unwrap().blocks, 4, "pruning goes on");
    world.assert_has(&block(10));
    world.verify();
}

/// An unknown state was taken for free.
#[test]
fn seen_free_region_with_a_damaged_row_is_never_given_out() {
    for damage in
        [Some(&[0, 0, 0, 0x20, 0, 0, 0, 0, 1][..]), Some(&[1, 0, 0, 0x20, 0, 0, 0, 0, 1]), Some(b"x"), None]
    {
        let world = World::with_blocks(options(), 9);
        let lowest = pointer(&world, 0);
        world.archive.prune_blocks(7, 1000, 0, &[]).unwrap();
        world.engine.damage(Table::Tx, &region_key(lowest.offset), damage);
        world.append(&block(10));
        assert!(pointer(&world, 10).offset > lowest.offset, "{damage:?}");
        world.assert_has(&block(10));
        assert_eq!(world.archive.status(0).unwrap().trouble.unusable_regions, 1);
        world.append(&block(11));
        assert_eq!(world.archive.status(0).unwrap().trouble.unusable_regions, 1, "it is not tried again");
    }
}

#[test]
fn region_without_generations_left_is_never_given_out() {
    let world = World::with_blocks(options(), 9);
    let lowest = pointer(&world, 0);
    world.archive.prune_blocks(7, 1000, 0, &[]).unwrap();
    let last = [&[3], &lowest.class.to_be_bytes()[..], &u32::MAX.to_be_bytes()].concat();
    world.engine.damage(Table::Tx, &region_key(lowest.offset), Some(&last));
    world.append(&block(10));
    assert!(pointer(&world, 10).offset > lowest.offset);
    world.verify();
}

#[test]
fn damaged_region_row_of_a_pruned_block_stops_nothing_else() {
    let world = World::with_blocks(options(), 9);
    let old = pointer(&world, 1);
    world.engine.damage(Table::Tx, &region_key(old.offset), Some(b"damaged"));
    let done = world.archive.prune_blocks(4, 1000, 0, &[]).unwrap();
    assert_eq!(done.boundary, Some(Height(5)));
    let bytes = world.archive.arena().unwrap().bytes;
    assert_eq!(bytes.free, 6 * BLOCK_REGIONS - u64::from(old.class), "all but the damaged one");
    (10..=20).for_each(|height| world.append(&block(height)));
    (10..=20).for_each(|height| world.assert_has(&block(height)));
}

#[test]
fn damaged_bytes_are_an_error_and_never_handed_out() {
    let world = World::with_blocks(options(), 3);
    let place = pointer(&world, 2);
    world.file.damage(place.offset + 10, b"?");
    let error = world.archive.segment(Height(2), Segment::Block).unwrap_err();
    assert!(matches!(error, ArchiveError::DamagedBlob { pointer, .. } if pointer == place), "{error}");
    world.assert_has(&block(1));
    let report = world.archive.verify(true, |_| ()).unwrap();
    assert_eq!(report.problem_count, 1, "{report}");
    assert!(world.archive.verify(false, |_| ()).unwrap().is_clean(), "rows are fine");
}

#[test]
fn freed_regions_are_punched_above_a_limit() {
    for (punch, expected) in [
        (Punch::Never, 0),
        (Punch::FreeAbove(0), 3 * BLOCK_REGIONS),
        (Punch::FreeAbove(2 * BLOCK_REGIONS), BLOCK_REGIONS),
        (Punch::FreeAbove(u64::MAX), 0),
    ] {
        let options = ArchiveOptions { punch, ..options() };
        let world = World::with_blocks(options.clone(), 9);
        let before = world.file.allocated().unwrap().unwrap();
        world.archive.prune_blocks(7, 1000, 0, &[]).unwrap();
        let status = world.archive.status(0).unwrap();
        assert_eq!(status.arena.bytes.punched, expected, "{punch:?}");
        assert_eq!(status.arena.allocated_bytes, Some(before - expected), "{punch:?}");
        assert_eq!(status.trouble.punch_error, None);
        world.verify();
        let world = world.reopen(options);
        (10..=12).for_each(|height| world.append(&block(height)));
        let after = world.archive.arena().unwrap();
        assert_eq!((after.bytes.punched, after.bytes.free), (0, 0));
        assert_eq!(after.allocated_bytes, Some(before));
        world.verify();
    }
}

#[test]
fn file_system_that_cannot_punch_is_reported_and_does_no_harm() {
    struct NoPunch(MemoryFile);
    impl ArenaFile for NoPunch {
        fn place(&self) -> String {
            self.0.place()
        }
        fn size(&self) -> std::io::Result<u64> {
            self.0.size()
        }
        fn set_size(&self, bytes: u64) -> std::io::Result<()> {
            self.0.set_size(bytes)
        }
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
            self.0.read_at(offset, buffer)
        }
        fn write_at(&self, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
            self.0.write_at(offset, bytes)
        }
        fn sync(&self) -> std::io::Result<()> {
            self.0.sync()
        }
        fn punch(&self, _: u64, _: u64) -> std::io::Result<()> {
            Err(std::io::ErrorKind::Unsupported.into())
        }
        fn allocated(&self) -> std::io::Result<Option<u64>> {
            self.0.allocated()
        }
        fn disk_space(&self) -> std::io::Result<Option<sapwood_archive::io::DiskSpace>> {
            self.0.disk_space()
        }
    }
    let options = ArchiveOptions { punch: Punch::FreeAbove(0), ..options() };
    let file = Arc::new(NoPunch(MemoryFile::new()));
    let archive = Archive::open(file, Arc::new(MemoryEngine::new()), options).unwrap();
    let blocks: Vec<_> = (0..=9).map(block).collect();
    archive.append(&blocks, Continuity::Strict).unwrap();
    archive.prune_blocks(7, 1000, 0, &[]).unwrap();
    let status = archive.status(0).unwrap();
    assert_eq!((status.arena.bytes.punched, status.arena.bytes.free), (0, 3 * BLOCK_REGIONS));
    assert!(status.trouble.punch_error.is_some());
    assert!(archive.verify(true, |_| ()).unwrap().is_clean());
}

#[test]
fn map_of_regions_adds_up() {
    let world = World::with_blocks(options(), 30);
    let view = world.archive.view().unwrap();
    world.archive.prune_blocks(20, 1000, 0, &[]).unwrap();
    drop(view);
    world.archive.release().unwrap();
    world.append(&block(31));
    let bytes = world.archive.arena().unwrap().bytes;
    for cells in [1, 7, 100, 5000] {
        let map = world.archive.region_map(cells).unwrap();
        assert_eq!(map.len(), cells);
        let sum = |of: fn(&sapwood_archive::MapCell) -> u64| map.iter().map(of).sum::<u64>();
        assert_eq!(sum(|cell| cell.used), bytes.used);
        assert_eq!(sum(|cell| cell.quarantine), bytes.quarantine);
        assert_eq!(sum(|cell| cell.free), bytes.free);
    }
    assert_eq!(world.archive.region_map(0).unwrap(), []);
}

/// Every prune cycle frees what it then fills again.
#[test]
fn file_stops_growing_after_the_first_hundred_of_ten_thousand_cycles() {
    let world = World::new(ArchiveOptions { reorg_window: 3, tombstones: 20, ..options() });
    let mut height = 0;
    let mut cycle = |cycles: u32| {
        for _ in 0..cycles {
            for _ in 0..2 {
                // Sizes come and go with a period, as days and nights do.
                let size = 1000 + 900 * (height as usize % 40);
                world.append(&block_of(height, 0, 0, 1, [size, size / 3, 50]));
                height += 1;
            }
            world.archive.prune_blocks(50, 1000, 0, &[]).unwrap();
        }
        world.archive.arena().unwrap()
    };
    let first = cycle(100);
    let all = cycle(9900);
    assert_eq!(all.file_bytes, first.file_bytes);
    assert_eq!(all.end, first.end);
    world.verify();
}

#[test]
fn archive_on_disk_survives_reopening_and_is_locked_while_open() {
    let directory = tempfile::tempdir().unwrap();
    let engine = Arc::new(MemoryEngine::new());
    let archive = Archive::open_in(directory.path(), Arc::clone(&engine) as _, options()).unwrap();
    let blocks: Vec<_> = (0..=9).map(block).collect();
    archive.append(&blocks, Continuity::Strict).unwrap();
    archive.prune_blocks(7, 1000, 0, &[]).unwrap();
    let again = Archive::open_in(directory.path(), Arc::clone(&engine) as _, options()).err().unwrap();
    assert!(matches!(again, ArchiveError::Locked { .. }), "{again}");
    drop(archive);
    let size = DiskFile::read_only(&directory.path().join("arena")).unwrap().size().unwrap();
    assert_eq!(size % sapwood_archive::PAGE, 0, "whole pages");
    let archive = Archive::open_in(directory.path(), Arc::new(engine.reopen()), options()).unwrap();
    crate::world::assert_has(&archive, &block(9));
    assert!(archive.verify(true, |_| ()).unwrap().is_clean());
}
