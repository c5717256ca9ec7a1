//! Blocks come, are found, and are replaced.

use sapwood_archive::{
    AppendError, ArchiveError, ArchiveOptions, BlockMeta, Continuity, Finality, Lookup, NewBlock, Segment,
    TxLocation,
};
use sapwood_engine_memory::FailPoint;
use sapwood_types::{BlockHash, Height, TxId};

use crate::world::{BLOCK_REGIONS, World, block, block_of, hash, options, pruned_from, txid};

#[test]
fn appended_blocks_are_found_by_height_hash_and_transaction() {
    let world = World::with_blocks(options(), 4);
    (0..=4).for_each(|height| world.assert_has(&block(height)));
    assert_eq!(world.meta(5), Lookup::NotFound);
    let view = world.archive.view().unwrap();
    assert_eq!(view.block_by_hash(&hash(5, 0)).unwrap(), Lookup::NotFound);
    assert_eq!(view.tx(&txid(5, 0, 0)).unwrap(), Lookup::NotFound);
    assert_eq!(view.head().unwrap().height, Height(4));
    assert_eq!(view.earliest(), Some(Height(0)));
    drop(view);
    let world = world.reopen(options());
    (0..=4).for_each(|height| world.assert_has(&block(height)));
    world.verify();
}

#[test]
fn estimate_counts_whole_size_classes() {
    let world = World::with_blocks(options(), 3);
    let status = world.archive.status(0).unwrap();
    assert_eq!(status.estimated_kept_bytes, 4 * BLOCK_REGIONS);
    assert_eq!(status.arena.bytes.used, 4 * BLOCK_REGIONS);
    assert_eq!(status.totals.payload_bytes, 4 * 8100);
}

#[test]
fn payload_larger_than_the_largest_class_is_chained() {
    let world = World::new(options());
    let large = block_of(0, 0, 0, 1, [3 * 32768 + 5, 0, 32768]);
    world.append(&large);
    let meta = world.meta(0).found().unwrap();
    assert_eq!(meta.pieces(Segment::Block).len(), 4);
    assert_eq!(meta.pieces(Segment::Receipts).len(), 0, "an empty payload takes no region");
    assert_eq!(meta.pieces(Segment::TxIndex).len(), 1);
    world.assert_has(&large);
    let view = world.archive.view().unwrap();
    for (offset, len) in [(0, 10), (32760, 20), (0, 1 << 20), (98300, 9), (98309, 5), (1 << 40, 5)] {
        let found = view.payload_range(&meta, Segment::Block, offset, len).unwrap();
        let bytes = &large.segments[0];
        let from = (offset as usize).min(bytes.len());
        let to = (from + len as usize).min(bytes.len());
        assert_eq!(found, bytes.slice(from..to), "{len} bytes from {offset}");
    }
    drop(view);
    world.verify();
}

#[test]
fn block_that_does_not_follow_is_refused_and_changes_nothing() {
    let world = World::with_blocks(options(), 3);
    let before = world.archive.status(0).unwrap();
    let refused = |block: NewBlock| world.archive.append(&[block], Continuity::Strict).unwrap_err();
    assert_eq!(refused(block(5)), AppendError::WrongHeight { head: Height(3), found: Height(5) });
    assert_eq!(refused(block(3)), AppendError::WrongHeight { head: Height(3), found: Height(3) });
    let wrong = AppendError::WrongParent { height: Height(4), expected: hash(3, 0), found: hash(3, 1) };
    assert_eq!(refused(block_of(4, 0, 1, 0, [1, 1, 1])), wrong);
    let duplicate = AppendError::DuplicateHash { height: Height(4), hash: hash(2, 0), archived: Height(2) };
    assert_eq!(refused(NewBlock { hash: hash(2, 0), ..block(4) }), duplicate);
    let txs = vec![txid(4, 0, 1), txid(4, 0, 0), txid(4, 0, 1)];
    let twice = AppendError::DuplicateTx { height: Height(4), txid: txid(4, 0, 1) };
    assert_eq!(refused(NewBlock { txs, ..block(4) }), twice);
    // The first of two is fine, and not there either.
    let both = world.archive.append(&[block(4), block(6)], Continuity::Strict);
    assert_eq!(both, Err(AppendError::WrongHeight { head: Height(4), found: Height(6) }));
    assert_eq!(world.archive.status(0).unwrap().totals, before.totals);
    assert_eq!(world.archive.arena().unwrap().end, before.arena.end);
    world.verify();
    world.append(&block(4));
}

#[test]
fn segment_above_the_limit_is_refused() {
    let world = World::new(ArchiveOptions { max_segment_bytes: 5000, ..options() });
    world.append(&block_of(0, 0, 0, 0, [5000, 0, 0]));
    let refused = world.archive.append(&[block_of(1, 0, 0, 0, [1, 5001, 0])], Continuity::Strict);
    let too_large = AppendError::SegmentTooLarge {
        height: Height(1),
        segment: Segment::Receipts,
        len: 5001,
        limit: 5000,
    };
    assert_eq!(refused, Err(too_large));
}

#[test]
fn many_blocks_are_one_commit() {
    let world = World::new(options());
    world.engine.fail_at(2, FailPoint::BeforeCommit);
    let blocks: Vec<_> = (0..10).map(block).collect();
    world.archive.append(&blocks, Continuity::Strict).unwrap_err();
    let poisoned = world.archive.append(&blocks, Continuity::Strict).unwrap_err();
    assert!(matches!(poisoned, AppendError::Archive(ArchiveError::Poisoned { .. })), "{poisoned}");
    assert!(world.archive.status(0).unwrap().poisoned.is_some());
    let world = world.reopen(options());
    assert_eq!(world.heights(), [] as [u32; 0]);
    let appended = world.archive.append(&blocks, Continuity::Strict).unwrap();
    assert_eq!(appended.head.unwrap().height, Height(9));
    assert_eq!(appended.region_bytes, 10 * BLOCK_REGIONS);
    blocks.iter().for_each(|block| world.assert_has(block));
    world.verify();
}

#[test]
fn gap_is_refused_unless_allowed_and_its_blocks_are_not_found() {
    let world = World::new(options());
    world.append(&block(0));
    world.archive.append(&[block(10)], Continuity::Strict).unwrap_err();
    world.archive.append(&[block(10)], Continuity::AllowGap).unwrap();
    let wrong = world.archive.append(&[block_of(11, 0, 7, 0, [1, 1, 1])], Continuity::AllowGap);
    assert!(matches!(wrong, Err(AppendError::WrongParent { .. })), "the next height has to fit");
    world.append(&block(11));
    assert_eq!(world.heights(), [0, 10, 11]);
    assert_eq!(world.meta(5), Lookup::NotFound);
    world.verify();
}

#[test]
fn first_block_can_have_any_height() {
    let world = World::new(options());
    world.append(&block(172_032));
    world.append(&block(172_033));
    assert_eq!(world.meta(172_031), Lookup::NotFound);
    assert_eq!(world.archive.view().unwrap().earliest(), Some(Height(172_032)));
    world.verify();
}

#[test]
fn reorg_replaces_blocks_and_their_transactions_in_one_commit() {
    let world = World::with_blocks(options(), 5);
    // Transaction (5, 0, 0) moves to block 4 of the other branch.
    let mut four = block_of(4, 1, 0, 2, [9000, 10, 0]);
    four.txs.push(txid(5, 0, 0));
    let branch = [four, block_of(5, 1, 1, 1, [1, 2, 3]), block_of(6, 1, 1, 0, [1, 0, 0])];
    let before = world.engine.reopen();
    let appended = world.archive.replace_above(Height(3), &branch).unwrap();
    assert_eq!((appended.replaced, appended.head.unwrap().height), (2, Height(6)));
    branch.iter().for_each(|block| world.assert_has(block));
    world.assert_has(&block(3));
    let view = world.archive.view().unwrap();
    assert_eq!(view.block_by_hash(&hash(4, 0)).unwrap(), Lookup::NotFound);
    assert_eq!(view.tx(&txid(4, 0, 0)).unwrap(), Lookup::NotFound);
    let moved = TxLocation { height: Height(4), index: 2 };
    assert_eq!(view.tx(&txid(5, 0, 0)).unwrap(), Lookup::Found(moved));
    drop((view, before));
    world.verify();
    let world = world.reopen(options());
    branch.iter().for_each(|block| world.assert_has(block));
    world.verify();
}

#[test]
fn reorg_can_end_lower_and_bring_the_same_block_again() {
    let world = World::with_blocks(options(), 5);
    world.archive.replace_above(Height(4), &[]).unwrap();
    assert_eq!(world.heights(), [0, 1, 2, 3, 4]);
    world.verify();
    world.append(&block(5));
    world.archive.replace_above(Height(3), &[block(4), block(5)]).unwrap();
    world.assert_has(&block(5));
    world.verify();
}

#[test]
fn reorg_below_the_floor_is_refused_and_changes_nothing() {
    let world = World::with_blocks(options(), 5);
    let refused = world.archive.replace_above(Height(2), &[block_of(3, 1, 0, 0, [1, 1, 1])]);
    assert_eq!(refused, Err(AppendError::BelowFloor { fork: Height(2), floor: Height(3) }));
    (0..=5).for_each(|height| world.assert_has(&block(height)));
    // The floor does not fall with the head.
    world.archive.replace_above(Height(3), &[]).unwrap();
    let refused = world.archive.replace_above(Height(2), &[]);
    assert_eq!(refused, Err(AppendError::BelowFloor { fork: Height(2), floor: Height(3) }));
    world.verify();
}

#[test]
fn everything_can_be_replaced_while_there_is_no_floor() {
    let world = World::new(options());
    [10, 11].iter().for_each(|height| world.append(&block(*height)));
    let other = block_of(10, 1, 0, 1, [7, 0, 0]);
    world.archive.replace_above(Height(9), std::slice::from_ref(&other)).unwrap();
    assert_eq!(world.heights(), [10]);
    world.assert_has(&other);
    world.verify();
}

#[test]
fn reported_finality_moves_the_floor_and_never_back() {
    let reported = ArchiveOptions { finality: Finality::Reported, ..options() };
    let world = World::with_blocks(reported, 9);
    assert_eq!(world.archive.status(0).unwrap().floor, None, "nothing is final without a report");
    world.archive.set_finalized(Height(4)).unwrap();
    assert_eq!(world.archive.status(0).unwrap().floor, Some(Height(4)));
    world.archive.set_finalized(Height(2)).unwrap();
    assert_eq!(world.archive.status(0).unwrap().floor, Some(Height(4)));
    // It is at most as high as the reorg window allows.
    world.archive.set_finalized(Height(100)).unwrap();
    assert_eq!(world.archive.status(0).unwrap().floor, Some(Height(7)));
    let refused = world.archive.replace_above(Height(6), &[]);
    assert_eq!(refused, Err(AppendError::BelowFloor { fork: Height(6), floor: Height(7) }));
    world.verify();
}

#[test]
fn queued_transaction_is_pending_until_it_is_in_a_block() {
    let world = World::with_blocks(options(), 3);
    let [first, second] = [0, 1].map(|index| txid(4, 0, index));
    assert_eq!(world.archive.queue(&[first, second, first], 7).unwrap(), 2);
    assert_eq!(world.archive.queue(&[first], 8).unwrap(), 0, "it is queued already");
    assert_eq!(world.archive.tx(&first).unwrap(), Lookup::Pending);
    world.append(&block(4));
    assert_eq!(world.archive.status(0).unwrap().totals.queued, 0);
    world.assert_has(&block(4));
    // After a reorg it is not found, unless it is queued again.
    world.archive.replace_above(Height(3), &[]).unwrap();
    assert_eq!(world.archive.tx(&first).unwrap(), Lookup::NotFound);
    world.archive.queue(&[first], 9).unwrap();
    assert_eq!(world.archive.tx(&first).unwrap(), Lookup::Pending);
    assert_eq!(world.archive.unqueue(&[first, second]).unwrap(), 1);
    assert_eq!(world.archive.tx(&first).unwrap(), Lookup::NotFound);
    world.verify();
}

#[test]
fn queue_is_bounded() {
    let world = World::new(ArchiveOptions { queue_limit: 2, ..options() });
    let ids: Vec<TxId> = (0..3).map(|index| txid(1, 0, index)).collect();
    let error = world.archive.queue(&ids, 0).unwrap_err();
    assert!(matches!(error, ArchiveError::TooMany { limit: 2, .. }), "{error}");
    assert_eq!(world.archive.tx(&ids[0]).unwrap(), Lookup::NotFound);
    world.archive.queue(&ids[..2], 0).unwrap();
    world.archive.queue(&ids[..2], 0).unwrap();
}

/// Two coinbases of Bitcoin have the same id as an earlier one.
#[test]
fn transaction_in_two_blocks_is_found_in_the_later_one_and_again_in_the_first() {
    let world = World::with_blocks(options(), 3);
    let twice = txid(2, 0, 0);
    world.append(&NewBlock { txs: vec![twice], ..block(4) });
    let found = |world: &World| world.archive.tx(&twice).unwrap().found().unwrap().height;
    assert_eq!(found(&world), Height(4));
    world.verify();
    world.archive.replace_above(Height(3), &[]).unwrap();
    assert_eq!(found(&world), Height(2));
    world.append(&NewBlock { txs: vec![twice], ..block(4) });
    (5..=8).for_each(|height| world.append(&block(height)));
    world.archive.prune_blocks(5, 1000, 0, &[]).unwrap();
    assert_eq!(found(&world), Height(4), "the tombstone of the first does not hide it");
    world.archive.prune_blocks(4, 1000, 0, &[]).unwrap();
    assert_eq!(world.archive.tx(&twice).unwrap(), Lookup::Pruned(pruned_from(4, 4, 5)));
    world.verify();
}

#[test]
fn view_does_not_change_under_later_writes() {
    let world = World::with_blocks(options(), 9);
    let view = world.archive.view().unwrap();
    world.archive.replace_above(Height(8), &[block_of(9, 1, 0, 1, [100, 100, 100])]).unwrap();
    world.archive.prune_blocks(3, 1000, 0, &[]).unwrap();
    for height in 0..=9 {
        let expected = block(height);
        let meta: BlockMeta = view.block(Height(height)).unwrap().found().unwrap();
        assert_eq!(view.payload(&meta, Segment::Block).unwrap(), expected.segments[0]);
    }
    drop(view);
    assert_eq!(world.heights(), [7, 8, 9]);
    world.verify();
}

#[test]
fn segment_numbers_and_names_are_those_of_the_documents() {
    let names = Segment::ALL.map(|segment| (segment.number(), segment.name()));
    assert_eq!(names, [(0, "block"), (1, "receipts"), (2, "tx_index")]);
    assert_eq!(Segment::of(3), None);
    assert_eq!(BlockHash::default(), block(0).parent);
}
