//! What is refused when an archive is opened.

use std::sync::Arc;

use sapwood_archive::{
    Archive, ArchiveError, ArchiveOptions, Continuity, OpenMode, OptionError, PAGE, Policy, PolicyError,
    io::{ArenaFile, MemoryFile},
};
use sapwood_engine_memory::{FailPoint, MemoryEngine};
use sapwood_ledger::engine::{Engine, Table, WriteSet};
use sapwood_types::Height;

use crate::world::{World, block, options};

fn error(file: &Arc<MemoryFile>, engine: &Arc<MemoryEngine>, options: ArchiveOptions) -> ArchiveError {
    Archive::open(Arc::clone(file) as _, Arc::clone(engine) as _, options).err().unwrap()
}

#[test]
fn new_archive_is_one_page_and_empty() {
    let world = World::new(options());
    assert_eq!(world.file.size().unwrap(), PAGE);
    assert_eq!(world.archive.view().unwrap().head(), None);
    world.verify();
    let world = world.reopen(ArchiveOptions { mode: OpenMode::Existing, ..options() });
    world.verify();
}

#[test]
fn absent_archive_is_made_only_where_that_is_asked_for() {
    for mode in [OpenMode::Existing, OpenMode::ReadOnly] {
        let (file, engine) = Default::default();
        let absent = ArchiveError::Absent { place: "memory".into() };
        assert_eq!(error(&file, &engine, ArchiveOptions { mode, ..options() }), absent);
        assert_eq!((file.size().unwrap(), engine.position().unwrap()), (0, 0));
    }
}

#[test]
fn file_and_rows_of_different_archives_are_refused() {
    let (one, other) = (World::with_blocks(options(), 3), World::with_blocks(options(), 3));
    let mixed = ArchiveError::OtherArena { place: "memory".into(), rows: "memory".into() };
    assert_eq!(error(&one.file, &other.engine, options()), mixed);
    let no_rows = error(&one.file, &Arc::default(), options());
    assert!(matches!(no_rows, ArchiveError::RowsMissing { .. }), "{no_rows}");
    let no_file = error(&Arc::default(), &one.engine, options());
    assert_eq!(no_file, ArchiveError::ArenaMissing { place: "memory".into(), rows: "memory".into() });
    one.file.damage(3, b"x");
    let damaged = error(&one.file, &one.engine, options());
    assert!(matches!(damaged, ArchiveError::DamagedRow { .. }), "{damaged}");
}

#[test]
fn engine_of_something_else_is_refused() {
    let engine = Arc::new(MemoryEngine::new());
    let mut writes = WriteSet::new(1);
    writes.put(Table::Meta, b"state", b"of a ledger");
    engine.commit(&writes).unwrap();
    assert_eq!(
        error(&Arc::default(), &engine, options()),
        ArchiveError::ForeignRows { place: "memory".into() }
    );
}

#[test]
fn creation_that_fails_at_any_step_can_be_repeated() {
    for point in [FailPoint::BeforeCommit, FailPoint::AfterCommit] {
        let (file, engine) = (Arc::new(MemoryFile::new()), Arc::new(MemoryEngine::new()));
        engine.fail_at(1, point);
        error(&file, &engine, options());
        let world = World::on(file, Arc::new(engine.reopen()), options()).unwrap();
        world.append(&block(0));
        world.verify();
    }
}

#[test]
fn options_and_policies_that_cannot_work_are_refused_before_anything_is_made() {
    let (file, engine) = Default::default();
    let bad = ArchiveOptions { reorg_window: 0, ..options() };
    assert_eq!(error(&file, &engine, bad), ArchiveError::Option(OptionError::NoWindow));
    let policy = Policy { retain_blocks: Some(2), ..Policy::default() };
    let below = PolicyError::BelowWindow { retain_blocks: 2, reorg_window: 2 };
    assert_eq!(error(&file, &engine, ArchiveOptions { policy, ..options() }), ArchiveError::Policy(below));
    assert_eq!((file.size().unwrap(), engine.position().unwrap()), (0, 0));
}

#[test]
fn archive_that_is_open_for_reading_only_changes_nothing() {
    let world = World::with_blocks(options(), 5);
    world.archive.prune_blocks(4, 100, 0, &[]).unwrap();
    let before = world.engine.position().unwrap();
    let world = world.reopen(ArchiveOptions { mode: OpenMode::ReadOnly, ..options() });
    world.assert_has(&block(5));
    world.verify();
    let refused = ArchiveError::ReadOnly { place: "memory".into() };
    assert_eq!(world.archive.append(&[block(6)], Continuity::Strict), Err(refused.clone().into()));
    assert_eq!(world.archive.prune_blocks(1, 100, 0, &[]), Err(refused.clone()));
    assert_eq!(world.archive.set_note("a", Some(b"b")), Err(refused));
    assert_eq!(world.engine.position().unwrap(), before);
}

#[test]
fn arena_that_was_cut_short_is_opened_and_the_loss_is_reported() {
    let world = World::with_blocks(options(), 5);
    let cut = world.file.size().unwrap() - PAGE;
    world.file.set_size(cut).unwrap();
    let world = world.reopen(options());
    let status = world.archive.status(0).unwrap();
    assert_eq!(status.trouble.missing_bytes, status.arena.end - cut);
    assert!(!world.archive.verify(true, |_| ()).unwrap().is_clean(), "its last blocks are damaged");
    world.assert_has(&block(0));
}

#[test]
fn policy_of_the_options_is_in_force_until_it_is_changed_at_run_time() {
    let configured = Policy { retain_blocks: Some(10), ..Policy::default() };
    let with = |policy| ArchiveOptions { policy, ..options() };
    let world = World::new(with(configured));
    assert_eq!(world.archive.policy(), configured);
    let changed = Policy { retain_blocks: Some(20), ..configured };
    assert_eq!(world.archive.set_policy(changed, 5, "a test"), Ok(configured));
    let world = world.reopen(with(configured));
    assert_eq!(world.archive.policy(), changed, "the configuration is as it was");
    let other = Policy { retain_blocks: Some(30), ..configured };
    let world = world.reopen(with(other));
    assert_eq!(world.archive.policy(), other, "the configuration has changed");
    let bad = Policy { retain_blocks: Some(1), ..configured };
    assert!(matches!(world.archive.set_policy(bad, 5, "a test"), Err(ArchiveError::Policy(_))));
    assert_eq!(world.archive.policy(), other);
}

#[test]
fn size_classes_can_be_changed_on_an_existing_archive() {
    let world = World::with_blocks(options(), 9);
    world.archive.prune_blocks(4, 1000, 0, &[]).unwrap();
    let other = ArchiveOptions { classes: vec![65536].try_into().unwrap(), ..options() };
    let world = world.reopen(other);
    world.assert_has(&block(9));
    world.append(&block(10));
    world.assert_has(&block(10));
    world.verify();
    let world = world.reopen(options());
    let end = world.archive.arena().unwrap().end;
    world.append(&block(11));
    assert_eq!(world.archive.arena().unwrap().end, end, "regions of the first classes are used again");
    world.assert_has(&block(10));
    world.verify();
}

#[test]
fn notes_are_kept() {
    let world = World::new(options());
    assert_eq!(world.archive.note("chain").unwrap(), None);
    world.archive.set_note("chain", Some(b"config")).unwrap();
    let world = world.reopen(options());
    assert_eq!(world.archive.note("chain").unwrap().as_deref(), Some(&b"config"[..]));
    world.archive.set_note("chain", None).unwrap();
    assert_eq!(world.archive.note("chain").unwrap(), None);
}

#[test]
fn genesis_is_kept_from_the_first_time_on_that_this_is_asked_for() {
    let keep = ArchiveOptions { keep_genesis: true, ..options() };
    let world = World::with_blocks(options(), 9).reopen(keep.clone());
    world.verify();
    let world = world.reopen(options());
    world.archive.prune_blocks(4, 1000, 0, &[]).unwrap();
    assert_eq!(world.heights(), [0, 6, 7, 8, 9]);
    world.verify();
    // Once it is pruned it is too late.
    let world = World::with_blocks(options(), 9);
    world.archive.prune_blocks(4, 1000, 0, &[]).unwrap();
    let world = world.reopen(keep);
    assert_eq!(world.heights(), [6, 7, 8, 9]);
    assert_eq!(world.archive.view().unwrap().earliest(), Some(Height(6)));
    world.verify();
}
