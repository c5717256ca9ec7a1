//! Consumers pull blocks.

use sapwood_archive::{
    ArchiveError, Chunk, Continuity, Cursor, ExportError, ExportHead, Exported, export::MAX_RESPONSE,
};
use sapwood_types::Height;

use crate::world::{World, block, block_of, options, payload};

fn cursor(block: u64, segment: u8, byte_offset: u32) -> Cursor {
    Cursor { block, segment, byte_offset }
}

/// Blocks 0, 1 and 2; the payloads of block 1 have 200, 100 and 50 bytes.
fn world() -> World {
    let world = World::new(options());
    world.append(&block_of(0, 0, 0, 0, [10, 10, 10]));
    world.append(&block_of(1, 0, 0, 0, [200, 100, 50]));
    world.append(&block_of(2, 0, 0, 0, [10, 10, 10]));
    world
}

fn export(world: &World, at: Cursor, max_bytes: u32) -> Exported {
    world.archive.export_blocks(Some(at), max_bytes).unwrap()
}

fn chunk(block: u64, segment: u8, start: u32, len: usize, payload_len: u32) -> Chunk {
    let bytes =
        payload(block as u32, 0, segment, payload_len as usize).slice(start as usize..start as usize + len);
    Chunk { block, segment, start, bytes, payload_len }
}

#[test]
fn export_begins_inside_a_payload() {
    let exported = export(&world(), cursor(1, 0, 1), 10);
    assert_eq!(exported.chunks, [chunk(1, 0, 1, 10, 200)]);
    assert_eq!(exported.next_cursor, Some(cursor(1, 0, 11)));
}

#[test]
fn export_from_the_end_of_a_payload_begins_with_an_empty_chunk() {
    let exported = export(&world(), cursor(1, 0, 200), 1);
    assert_eq!(exported.chunks, [chunk(1, 0, 200, 0, 200), chunk(1, 1, 0, 1, 100)]);
    assert_eq!(exported.next_cursor, Some(cursor(1, 1, 1)));
}

#[test]
fn response_has_one_block_and_ends_at_the_next() {
    let exported = export(&world(), cursor(1, 0, 0), 1_000_000);
    assert_eq!(exported.chunks, [chunk(1, 0, 0, 200, 200), chunk(1, 1, 0, 100, 100), chunk(1, 2, 0, 50, 50)]);
    assert_eq!(exported.next_cursor, Some(cursor(2, 0, 0)));
}

#[test]
fn limit_that_ends_with_a_payload_goes_on_in_the_next_segment() {
    assert_eq!(export(&world(), cursor(1, 0, 0), 200).next_cursor, Some(cursor(1, 1, 0)));
    assert_eq!(export(&world(), cursor(1, 2, 0), 50).next_cursor, Some(cursor(2, 0, 0)));
    assert_eq!(export(&world(), cursor(1, 2, 50), 50).next_cursor, Some(cursor(2, 0, 0)));
}

#[test]
fn seen_export_at_head_with_only_empty_payloads_left_advances() {
    let world = World::new(options());
    world.append(&block_of(0, 0, 0, 0, [10, 0, 0]));
    for at in [cursor(0, 0, 10), cursor(0, 1, 0), cursor(0, 2, 0)] {
        let exported = export(&world, at, 5);
        assert_eq!(exported.chunks.iter().map(|chunk| chunk.bytes.len()).sum::<usize>(), 0);
        assert_eq!(exported.chunks.len(), 1, "it says where it begins");
        assert_eq!(exported.next_cursor, Some(cursor(1, 0, 0)));
    }
    // A block without any payload.
    world.append(&block_of(1, 0, 0, 0, [0, 0, 0]));
    let exported = export(&world, cursor(1, 0, 0), 5);
    assert_eq!(exported.next_cursor, Some(cursor(2, 0, 0)));
    assert_eq!(exported.chunks.len(), 1);
}

#[test]
fn empty_payload_in_between_is_passed() {
    let world = World::new(options());
    world.append(&block_of(0, 0, 0, 0, [10, 0, 5]));
    let exported = export(&world, cursor(0, 0, 0), 12);
    assert_eq!(exported.chunks, [chunk(0, 0, 0, 10, 10), chunk(0, 2, 0, 2, 5)]);
    assert_eq!(exported.next_cursor, Some(cursor(0, 2, 2)));
}

#[test]
fn cursor_behind_the_head_is_echoed() {
    for at in [cursor(3, 0, 0), cursor(3, 2, 99), cursor(u64::MAX, 0, 0), cursor(1 << 32, 0, 0)] {
        assert_eq!(export(&world(), at, 10), Exported { chunks: vec![], next_cursor: Some(at) });
    }
}

#[test]
fn export_without_a_cursor_begins_behind_the_boundary_or_with_the_first_block() {
    let world = World::new(options());
    let none = Exported { chunks: vec![], next_cursor: None };
    assert_eq!(world.archive.export_blocks(None, 10).unwrap(), none);
    (5..=14).for_each(|height| world.append(&block(height)));
    assert_eq!(world.archive.export_blocks(None, 10).unwrap().chunks[0].block, 5);
    world.archive.prune_blocks(4, 1000, 0, &[]).unwrap();
    let exported = world.archive.export_blocks(None, 10).unwrap();
    assert_eq!((exported.chunks[0].block, exported.chunks[0].start), (11, 0));
    assert_eq!(exported.next_cursor, Some(cursor(11, 0, 10)));
}

#[test]
fn errors_come_in_the_documented_order() {
    let world = World::with_blocks(options(), 9);
    world.archive.prune_blocks(4, 1000, 0, &[]).unwrap();
    let error = |at, max_bytes| world.archive.export_blocks(Some(at), max_bytes).unwrap_err();
    // Each request has every later mistake, too.
    assert_eq!(error(cursor(5, 9, 9999), 0), ExportError::Limit);
    let pruned = ExportError::Pruned { block: 5, boundary: Height(5), earliest: Some(Height(6)) };
    assert_eq!(error(cursor(5, 9, 9999), 1), pruned);
    assert!(pruned.to_string().contains("the oldest block that can be exported is 6"));
    assert_eq!(error(cursor(99, 9, 9999), 1), ExportError::BadSegment { segment: 9 });
    assert_eq!(export(&world, cursor(99, 2, 9999), 1).next_cursor, Some(cursor(99, 2, 9999)));
    let past = ExportError::OffsetPastEnd { block: 6, segment: 2, byte_offset: 101, len: 100 };
    assert_eq!(error(cursor(6, 2, 101), 1), past);
    assert_eq!(error(cursor(6, 3, 0), 1), ExportError::BadSegment { segment: 3 });
}

#[test]
fn response_is_never_larger_than_the_limit_of_the_export() {
    let world = World::new(options());
    world.append(&block_of(0, 0, 0, 0, [2_000_000, 0, 0]));
    let exported = export(&world, cursor(0, 0, 0), u32::MAX);
    assert_eq!(exported.chunks[0].bytes.len(), MAX_RESPONSE as usize);
    assert_eq!(exported.next_cursor, Some(cursor(0, 0, MAX_RESPONSE)));
    let rest = export(&world, cursor(0, 0, MAX_RESPONSE), u32::MAX);
    assert_eq!(rest.chunks, [chunk(0, 0, MAX_RESPONSE, 500_000, 2_000_000)]);
}

#[test]
fn hole_in_the_archive_is_reported() {
    let world = World::new(options());
    for height in [3, 10] {
        world.archive.append(&[block(height)], Continuity::AllowGap).unwrap();
    }
    let error = |at| world.archive.export_blocks(Some(Cursor::at(at)), 10).unwrap_err();
    assert_eq!(error(1), ExportError::Missing { block: 1, next: Some(Height(3)) });
    assert_eq!(error(4), ExportError::Missing { block: 4, next: Some(Height(10)) });
}

#[test]
fn head_says_what_may_still_be_replaced() {
    let world = World::new(options());
    assert_eq!(world.archive.export_head().unwrap(), None);
    (0..=5).for_each(|height| world.append(&block(height)));
    let head = ExportHead { height: Height(5), floor: Some(Height(3)) };
    assert_eq!(world.archive.export_head().unwrap(), Some(head));
}

#[test]
fn acknowledgements_only_rise_and_are_lowered_by_a_reorg() {
    let world = World::with_blocks(options(), 5);
    let ack = |block| world.archive.ack_exported("indexer", block, 7);
    assert_eq!(ack(4), Ok(Height(4)));
    assert_eq!(ack(2), Ok(Height(4)), "a lower one changes nothing");
    let early = ack(6).unwrap_err();
    assert!(matches!(early, ArchiveError::BadHeight { height: 6, .. }), "{early}");
    assert!(matches!(ack(1 << 40), Err(ArchiveError::BadHeight { .. })));
    world.archive.replace_above(Height(3), &[block_of(4, 1, 0, 0, [1, 1, 1])]).unwrap();
    let consumers = world.archive.consumers().unwrap();
    assert_eq!(consumers.len(), 1);
    assert_eq!(
        (consumers[0].name.as_str(), consumers[0].acknowledged, consumers[0].at),
        ("indexer", Some(Height(3)), 7)
    );
    world.verify();
    assert_eq!(world.archive.remove_consumer("indexer"), Ok(true));
    assert_eq!(world.archive.remove_consumer("indexer"), Ok(false));
    let long = world.archive.ack_exported(&"x".repeat(129), 1, 0);
    assert!(matches!(long, Err(ArchiveError::TooMany { .. })), "{long:?}");
}

#[test]
fn consumers_are_bounded() {
    let world = World::with_blocks(options(), 0);
    (0..256).for_each(|number| _ = world.archive.ack_exported(&number.to_string(), 0, 0).unwrap());
    let error = world.archive.ack_exported("one more", 0, 0).unwrap_err();
    assert!(matches!(error, ArchiveError::TooMany { limit: 256, .. }), "{error}");
    assert_eq!(world.archive.ack_exported("7", 0, 0), Ok(Height(0)), "a known one is fine");
}

/// A consumer that begins again at any place gets the same bytes.
#[test]
fn pulling_in_chunks_of_any_size_gives_every_byte_once() {
    let world = World::new(options());
    let blocks = [
        block_of(0, 0, 0, 0, [7001, 0, 3]),
        block_of(1, 0, 0, 0, [0, 0, 0]),
        block_of(2, 0, 0, 0, [1, 40, 4096]),
        block_of(3, 0, 0, 0, [0, 5, 0]),
    ];
    world.archive.append(&blocks, Continuity::Strict).unwrap();
    for max_bytes in [1, 7, 4096, 1_000_000] {
        let mut pulled = vec![<[Vec<u8>; 3]>::default(); 4];
        let mut at = None;
        loop {
            let exported = world.archive.export_blocks(at, max_bytes).unwrap();
            let Some(first) = exported.chunks.first() else { break };
            assert!(
                exported.chunks.iter().all(|chunk| chunk.block == first.block),
                "one block in a response"
            );
            for chunk in exported.chunks {
                pulled[chunk.block as usize][usize::from(chunk.segment)].extend_from_slice(&chunk.bytes);
            }
            assert!(exported.next_cursor > at);
            at = exported.next_cursor;
        }
        for (pulled, block) in pulled.iter().zip(&blocks) {
            assert_eq!(
                pulled,
                &block.segments.clone().map(|payload| payload.to_vec()),
                "{max_bytes} bytes at a time"
            );
        }
        assert_eq!(at, Some(cursor(4, 0, 0)));
    }
}
