//! The full check finds every kind of damage, and names it.

use sapwood_archive::{
    BlobPtr, Segment,
    arena::RegionState,
    verify::{Owner, Problem, VerifyReport},
};
use sapwood_ledger::engine::Table;
use sapwood_types::Height;

use crate::world::{World, block, options, txid};

/// Blocks 0 to 9, of which 0 to 2 are pruned and 10 lies in their regions.
fn world() -> World {
    let world = World::with_blocks(options(), 9);
    world.archive.prune_blocks(7, 1000, 0, &[]).unwrap();
    world.append(&block(10));
    world.verify();
    world
}

fn found(world: &World) -> VerifyReport {
    let report = world.archive.verify(true, |_| ()).unwrap();
    assert!(!report.is_clean());
    report
}

#[track_caller]
fn assert_finds(world: &World, wanted: impl Fn(&Problem) -> bool) {
    let report = found(world);
    assert!(report.problems.iter().any(wanted), "{report}");
}

fn height_key(kind: u8, height: u32) -> Vec<u8> {
    [&[kind][..], &height.to_be_bytes()].concat()
}

fn region_key(offset: u64) -> Vec<u8> {
    [b"r".as_slice(), &offset.to_be_bytes()].concat()
}

fn pointer(world: &World, height: u32) -> BlobPtr {
    world.meta(height).found().unwrap().pieces(Segment::Block)[0].pointer
}

fn row(world: &World, table: Table, key: &[u8]) -> Vec<u8> {
    let mut row = None;
    let view = sapwood_ledger::engine::Engine::view(&*world.engine).unwrap();
    view.get_many(table, &[key], &mut |_, value| row = value.unwrap().map(<[u8]>::to_vec)).unwrap();
    row.unwrap()
}

#[test]
fn region_with_two_owners_is_found() {
    let world = world();
    // Block 5 gets the pointers of block 6.
    let six = row(&world, Table::Due, &height_key(b'b', 6));
    world.engine.damage(Table::Due, &height_key(b'b', 5), Some(&six));
    let offset = pointer(&world, 6).offset;
    let (first, second) = (Owner::Block(Height(5)), Owner::Block(Height(6)));
    assert_finds(&world, |problem| *problem == Problem::TwoOwners { offset, first, second });
    let lost = |problem: &Problem| matches!(problem, Problem::Lost { state: RegionState::Used, .. });
    assert_finds(&world, lost);
}

#[test]
fn region_of_a_block_and_of_the_journal_is_found() {
    let world = world();
    let pointer = pointer(&world, 5);
    let entry = [&[1, 0, 0, 0, 0, 0, 1][..], &pointer.encode()].concat();
    let key = [b"j".as_slice(), &77_u64.to_be_bytes()].concat();
    world.engine.damage(Table::Pending, &key, Some(&entry));
    let (first, second) = (Owner::Block(Height(5)), Owner::Journal(77));
    assert_finds(&world, |problem| *problem == Problem::TwoOwners { offset: pointer.offset, first, second });
}

#[test]
fn reference_to_a_freed_region_is_found() {
    let world = world();
    let pointer = pointer(&world, 5);
    let mut region = row(&world, Table::Tx, &region_key(pointer.offset));
    region[0] = 3;
    world.engine.damage(Table::Tx, &region_key(pointer.offset), Some(&region));
    assert_finds(&world, |problem| {
        let Problem::BadReference { owner, pointer: bad, found } = problem else { return false };
        *owner == Owner::Block(Height(5)) && *bad == pointer && found.is_some()
    });
    let not_listed = |problem: &Problem| matches!(problem, Problem::BadFreeList { class: 0, .. });
    assert_finds(&world, not_listed);
    assert_finds(&world, |problem| {
        matches!(problem, Problem::WrongCount { what: "the bytes of regions", .. })
    });
}

#[test]
fn region_with_another_generation_is_found() {
    let world = world();
    let pointer = pointer(&world, 5);
    let mut region = row(&world, Table::Tx, &region_key(pointer.offset));
    region[8] += 1;
    world.engine.damage(Table::Tx, &region_key(pointer.offset), Some(&region));
    assert_finds(&world, |problem| matches!(problem, Problem::BadReference { .. }));
}

#[test]
fn missing_region_is_found() {
    let world = world();
    let pointer = pointer(&world, 5);
    world.engine.damage(Table::Tx, &region_key(pointer.offset), None);
    assert_finds(&world, |problem| matches!(problem, Problem::BadReference { found: None, .. }));
    assert_finds(
        &world,
        |problem| matches!(problem, Problem::BadLayout { expected, .. } if *expected == pointer.offset),
    );
}

#[test]
fn wrong_free_list_is_found() {
    let world = world();
    let pointer = pointer(&world, 5);
    let key = [b"f".as_slice(), &pointer.class.to_be_bytes(), &pointer.offset.to_be_bytes()].concat();
    world.engine.damage(Table::Pending, &key, Some(b""));
    assert_finds(
        &world,
        |problem| matches!(problem, Problem::BadFreeList { offset, .. } if *offset == pointer.offset),
    );
}

#[test]
fn unreadable_rows_are_found_and_do_not_end_the_check() {
    let world = world();
    for (table, key) in [
        (Table::Due, height_key(b'b', 5)),
        (Table::Undo, height_key(b'i', 6)),
        (Table::Tx, region_key(pointer(&world, 7).offset)),
        (Table::Pending, [b"j".as_slice(), &1_u64.to_be_bytes()].concat()),
        (Table::Meta, b"archive/consumer/x".to_vec()),
    ] {
        world.engine.damage(table, &key, Some(b"damaged"));
    }
    let report = found(&world);
    let rows: Vec<_> = report
        .problems
        .iter()
        .filter_map(|problem| match problem {
            Problem::Unreadable { row, .. } => Some(row.as_str()),
            _ => None,
        })
        .collect();
    let region = format!("the region at {}", pointer(&world, 7).offset);
    let list = "the list of transactions of block 6";
    assert_eq!(rows, ["block 5", list, "journal entry 1", region.as_str(), "the export consumer \"x\""]);
}

#[test]
fn block_below_the_boundary_is_found() {
    let world = world();
    let old = row(&world, Table::Due, &height_key(b'b', 3));
    world.engine.damage(Table::Due, &height_key(b'b', 1), Some(&old));
    let below = Problem::BelowBoundary { height: Height(1), boundary: Height(2) };
    assert_finds(&world, |problem| *problem == below);
}

#[test]
fn missing_and_foreign_blocks_are_found() {
    let world = world();
    world.engine.damage(Table::Due, &height_key(b'b', 3), None);
    assert_finds(&world, |problem| matches!(problem, Problem::WrongCount { what: "the oldest block", .. }));
    assert_finds(&world, |problem| {
        matches!(problem, Problem::WrongCount { what: "the number of blocks", .. })
    });
    let no_block = |problem: &Problem| matches!(problem, Problem::BadIndex { height: Height(3), .. });
    assert_finds(&world, no_block);
    let world = self::world();
    let mut other = row(&world, Table::Due, &height_key(b'b', 6));
    other[1] ^= 1;
    world.engine.damage(Table::Due, &height_key(b'b', 6), Some(&other));
    assert_finds(&world, |problem| matches!(problem, Problem::BrokenChain { height: Height(7), .. }));
    assert_finds(&world, |problem| matches!(problem, Problem::BadIndex { height: Height(6), .. }));
}

#[test]
fn broken_indexes_are_found() {
    for (table, key, value) in [
        (Table::Tx, [b"h".as_slice(), &block(6).hash.0].concat(), None),
        (Table::Tx, [b"h".as_slice(), &block(6).hash.0].concat(), Some(&[0, 0, 0, 7][..])),
        (Table::Tx, [b"t".as_slice(), &txid(6, 0, 1).0, &[0, 0, 0, 6]].concat(), None),
        (Table::Tx, [b"t".as_slice(), &txid(6, 0, 1).0, &[0, 0, 0, 6]].concat(), Some(&[0, 0, 0, 0])),
        (Table::Undo, height_key(b'i', 6), None),
    ] {
        let world = world();
        world.engine.damage(table, &key, value);
        assert_finds(&world, |problem| matches!(problem, Problem::BadIndex { height: Height(6), .. }));
    }
    for (table, key) in [
        (Table::Tx, [b"h".as_slice(), &[9; 32]].concat()),
        (Table::Tx, [b"t".as_slice(), &[9; 32], &[0, 0, 0, 6]].concat()),
        (Table::Tx, [b"q".as_slice(), &[9; 32]].concat()),
    ] {
        let world = world();
        world.engine.damage(table, &key, Some(&[0, 0, 0, 6]));
        assert_finds(&world, |problem| matches!(problem, Problem::WrongCount { .. }));
    }
}

#[test]
fn wrong_counters_are_found() {
    let world = world();
    let state = row(&world, Table::Meta, b"archive/state");
    // The last twelve numbers: totals and journal. Each is changed where that keeps the row readable.
    let mut found = 0;
    for place in 0..state.len() {
        let mut other = state.clone();
        other[place] ^= 1;
        world.engine.damage(Table::Meta, b"archive/state", Some(&other));
        match world.archive.verify(false, |_| ()) {
            Ok(report) if !report.is_clean() => found += 1,
            Ok(_) | Err(_) => {}
        }
    }
    world.engine.damage(Table::Meta, b"archive/state", Some(&state));
    world.verify();
    assert!(found > 20, "{found} of {} changes were found", state.len());
}

#[test]
fn acknowledgement_behind_the_head_is_found() {
    let world = world();
    let key = b"archive/consumer/x";
    world.engine.damage(Table::Meta, key, Some(&[1, 1, 0, 0, 0, 99, 0]));
    assert_finds(&world, |problem| {
        matches!(problem, Problem::WrongCount { what: "an acknowledged block", .. })
    });
}

#[test]
fn report_says_what_was_checked() {
    let world = world();
    let mut last = None;
    let report = world.archive.verify(true, |progress| last = Some(progress)).unwrap();
    assert_eq!((report.blocks, report.regions), (8, 30));
    assert_eq!(report.payload_bytes, 8 * 8100);
    assert_eq!(last.map(|last| (last.blocks, last.of_blocks, last.bytes)), Some((8, 8, 8 * 8100)));
    assert_eq!(report.to_string(), "8 blocks, 30 regions, 64800 payload bytes: 0 problems");
}
