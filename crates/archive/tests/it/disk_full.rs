//! A disk that is full or almost: nothing is lost, reading and pruning go on, and writing goes on by itself when there
//! is room.

use std::{path::Path, process::Command, sync::Arc};

use sapwood_archive::{
    AppendError, Archive, ArchiveError, ArchiveOptions, Continuity, Durability, Punch, Trigger,
    io::ArenaFile, reserve::Reserve,
};
use sapwood_engine_memory::MemoryEngine;

use crate::world::{World, assert_has, block, block_of, options};

#[test]
fn full_disk_refuses_a_block_and_changes_nothing() {
    let punching = ArchiveOptions { punch: Punch::FreeAbove(0), ..options() };
    let world = World::new(punching.clone());
    world.file.set_capacity(400_000);
    let mut height = 0;
    let refused = loop {
        match world.archive.append(&[block(height)], Continuity::Strict) {
            Ok(_) => height += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, AppendError::Archive(ArchiveError::Full { .. })), "{refused}");
    let status = world.archive.status(0).unwrap();
    assert_eq!(status.poisoned, None, "it can be tried again");
    world.verify();
    world.archive.append(&[block(height)], Continuity::Strict).unwrap_err();
    // Pruning makes room, and writing goes on without a restart.
    world.archive.prune_blocks(5, 1000, 0, &[]).unwrap();
    for _ in 0..5 {
        world.append(&block(height));
        height += 1;
    }
    (height - 5..height).for_each(|height| world.assert_has(&block(height)));
    world.verify();
    let world = world.reopen(punching);
    (height - 5..height).for_each(|height| world.assert_has(&block(height)));
    world.verify();
}

#[test]
fn write_that_is_cut_short_in_the_middle_of_a_block_leaves_the_blocks_before() {
    // Every capacity, so that the write ends in every place of the last block.
    for blocks in (30..60).map(|blocks: u64| blocks * 4096) {
        let world = World::new(options());
        world.file.set_capacity(blocks);
        let large = |height| block_of(height, 0, 0, 1, [40_000, 9000, 300]);
        let mut height = 0;
        while world.archive.append(&[large(height)], Continuity::Strict).is_ok() {
            height += 1;
        }
        (0..height).for_each(|height| world.assert_has(&large(height)));
        world.verify();
        world.file.set_capacity(1 << 30);
        world.append(&large(height));
        world.assert_has(&large(height));
        world.verify();
    }
}

#[test]
fn writing_stops_before_the_disk_is_full_and_goes_on_by_itself() {
    let world = World::new(ArchiveOptions { min_free_bytes: 100_000, ..options() });
    world.file.set_capacity(400_000);
    let mut height = 0;
    let refused = loop {
        match world.archive.append(&[block(height)], Continuity::Strict) {
            Ok(_) => height += 1,
            Err(error) => break error,
        }
    };
    let AppendError::NoRoom { free, reserve: 100_000 } = refused else { panic!("{refused}") };
    assert!((80_000..100_000).contains(&free), "{free}");
    (0..height).for_each(|height| world.assert_has(&block(height)));
    world.archive.prune_blocks(5, 1000, 0, &[]).unwrap();
    world.file.set_capacity(500_000);
    world.append(&block(height));
    world.verify();
}

/// A small file system that fills from outside. Needs to be allowed to mount one.
#[test]
fn a_full_disk_that_fills_from_outside_loses_nothing_and_resumes() {
    let directory = tempfile::tempdir().unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"])
        .arg(directory.path())
        .output()
        .is_ok_and(|output| output.status.success());
    if !mounted {
        return eprintln!("skipped: a file system of 8 MB cannot be mounted here");
    }
    let mount = Mount(directory.path());
    let options = ArchiveOptions {
        durability: Durability::PowerLoss,
        punch: Punch::FreeAbove(0),
        min_free_bytes: 300_000,
        ..options()
    };
    let archive = Archive::open_in(mount.0, Arc::new(MemoryEngine::new()), options).unwrap();
    let reserve = Reserve::new(mount.0.join("reserve"), 1 << 20);
    let free = || archive.volume().unwrap().free_bytes.unwrap();
    let disk = || sapwood_archive::io::DiskSpace { free_bytes: free(), total_bytes: 8 << 20 };
    assert!(reserve.fill(disk()).unwrap());
    let large = |height| block_of(height, 0, 0, 1, [60_000, 9000, 300]);
    let mut height = 0;
    let mut append = |blocks: u32| -> Result<(), AppendError> {
        for _ in 0..blocks {
            archive.append(&[large(height)], Continuity::Strict)?;
            height += 1;
        }
        Ok(())
    };
    append(20).unwrap();
    // Another program takes everything that is left.
    let filled = std::fs::write(mount.0.join("foreign"), vec![7; 16 << 20]).is_err();
    assert!(filled && free() == 0);
    assert!(matches!(append(1), Err(AppendError::NoRoom { free: 0, .. })));
    (0..20).for_each(|height| assert_has(&archive, &large(height)));
    // The reserve gives pruning room; what it frees goes back to the disk.
    assert_eq!(reserve.release().unwrap(), 1 << 20);
    archive.tick(Trigger::Timer, 0, &[]).unwrap();
    archive.prune_blocks(5, 10_000, 0, &[]).unwrap();
    assert!(free() > (1 << 20) + 10 * 60_000, "{}", free());
    append(10).unwrap();
    (20..30).for_each(|height| assert_has(&archive, &large(height)));
    std::fs::remove_file(mount.0.join("foreign")).unwrap();
    assert!(reserve.fill(disk()).unwrap(), "the reserve is taken again");
    assert!(archive.verify(true, |_| ()).unwrap().is_clean());
}

/// Unmounts when dropped.
struct Mount<'a>(&'a Path);

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn failing_sync_poisons_the_archive_and_a_full_disk_at_a_sync_does_not() {
    use std::sync::atomic::{AtomicU8, Ordering};
    struct FailingSync(sapwood_archive::io::MemoryFile, AtomicU8);
    impl ArenaFile for FailingSync {
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
            match self.1.load(Ordering::Relaxed) {
                0 => self.0.sync(),
                1 => Err(std::io::ErrorKind::StorageFull.into()),
                _ => Err(std::io::Error::other("the device is broken")),
            }
        }
        fn punch(&self, offset: u64, bytes: u64) -> std::io::Result<()> {
            self.0.punch(offset, bytes)
        }
        fn allocated(&self) -> std::io::Result<Option<u64>> {
            self.0.allocated()
        }
        fn disk_space(&self) -> std::io::Result<Option<sapwood_archive::io::DiskSpace>> {
            self.0.disk_space()
        }
    }
    let file = Arc::new(FailingSync(Default::default(), AtomicU8::new(0)));
    let archive = Archive::open(Arc::clone(&file) as _, Arc::new(MemoryEngine::new()), options()).unwrap();
    let append = |height| archive.append(&[block(height)], Continuity::Strict);
    append(0).unwrap();
    file.1.store(1, Ordering::Relaxed);
    assert!(matches!(append(1), Err(AppendError::Archive(ArchiveError::Full { .. }))));
    file.1.store(0, Ordering::Relaxed);
    append(1).unwrap();
    file.1.store(2, Ordering::Relaxed);
    assert!(matches!(append(2), Err(AppendError::Archive(ArchiveError::Io { .. }))));
    file.1.store(0, Ordering::Relaxed);
    let error = append(2).unwrap_err();
    assert!(matches!(error, AppendError::Archive(ArchiveError::Poisoned { .. })), "{error}");
    for part in ["refuses to write", "the device is broken", "acknowledged before is safe", "restart"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_has(&archive, &block(1));
    assert!(archive.verify(true, |_| ()).unwrap().is_clean());
}
