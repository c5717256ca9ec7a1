//! What is pruned, what is kept, and what is said of it. Tests that begin with `seen_` are defects of another
//! implementation of the same plan.

use std::sync::{Arc, mpsc};

use sapwood_archive::{
    Alert, Archive, ArchiveError, ArchiveOptions, Continuity, Finality, HeightHold, Lookup, NewBlock, Policy,
    Pruned, Stop, Tick, Trigger, io::MemoryFile,
};
use sapwood_engine_memory::MemoryEngine;
use sapwood_types::Height;

use crate::{
    hooked::HookedEngine,
    world::{
        BLOCK_OPS, BLOCK_REGIONS, BLOCK_SECONDS, World, block, block_of, hash, options, pruned_from, txid,
        with_policy,
    },
};

/// Holds 64 blocks. High water is at 57.6 of them, low water at 51.2, the hard limit at 60.8.
const TARGET: u64 = 64 * BLOCK_REGIONS;
const DAY: u64 = 86_400;
const BLOCKS_PER_DAY: u32 = (DAY / BLOCK_SECONDS) as u32;

fn bounded() -> Policy {
    Policy { target_bytes: Some(TARGET), ..Policy::default() }
}

fn tick(world: &World, now: u64) -> Tick {
    world.archive.tick(Trigger::Timer, now, &[]).unwrap()
}

#[track_caller]
fn pruning(tick: Tick) -> sapwood_archive::Pruning {
    match tick {
        Tick::Pruned(pruned) => pruned,
        other => panic!("nothing was pruned: {other:?}"),
    }
}

#[test]
fn prune_blocks_keeps_exactly_the_newest() {
    let world = World::with_blocks(options(), 9);
    let pruned = world.archive.prune_blocks(4, 1000, 77, &[]).unwrap();
    assert_eq!((pruned.blocks, pruned.ops), (6, 6 * BLOCK_OPS));
    assert_eq!(pruned.region_bytes, 6 * BLOCK_REGIONS);
    assert_eq!((pruned.boundary, pruned.stopped), (Some(Height(5)), Stop::Done));
    assert_eq!(world.heights(), [6, 7, 8, 9]);
    let status = world.archive.status(0).unwrap();
    assert_eq!((status.boundary, status.oldest), (Some(Height(5)), Some(Height(6))));
    assert_eq!((status.oldest_time, status.last_prune), (Some(6 * BLOCK_SECONDS), Some(77)));
    world.verify();
}

#[test]
fn prune_blocks_is_idempotent() {
    let world = World::with_blocks(options(), 9);
    world.archive.prune_blocks(4, 1000, 77, &[]).unwrap();
    let before = (world.archive.status(0).unwrap(), sapwood_ledger::engine::Engine::position(&*world.engine));
    let again = world.archive.prune_blocks(4, 1000, 99, &[]).unwrap();
    assert_eq!((again.blocks, again.boundary, again.stopped), (0, Some(Height(5)), Stop::Done));
    let after = (world.archive.status(0).unwrap(), sapwood_ledger::engine::Engine::position(&*world.engine));
    assert_eq!(before, after, "nothing was written");
}

#[test]
fn prune_blocks_stops_before_a_block_that_does_not_fit() {
    let world = World::with_blocks(options(), 9);
    for boundary in [1, 3, 5] {
        let pruned = world.archive.prune_blocks(4, 3 * BLOCK_OPS - 1, 0, &[]).unwrap();
        assert_eq!((pruned.blocks, pruned.ops), (2, 2 * BLOCK_OPS));
        assert_eq!(pruned.boundary, Some(Height(boundary)));
        world.verify();
        let stopped = if boundary == 5 { Stop::Done } else { Stop::Ops { next: BLOCK_OPS } };
        assert_eq!(pruned.stopped, stopped);
    }
    let none = World::with_blocks(options(), 9).archive.prune_blocks(4, 0, 0, &[]).unwrap();
    assert_eq!((none.blocks, none.stopped), (0, Stop::Ops { next: BLOCK_OPS }));
}

#[test]
fn seen_block_with_1024_transactions_is_pruned_with_a_smaller_max_ops() {
    let world = World::new(options());
    (0..=9).for_each(|height| world.append(&block_of(height, 0, 0, 1024, [10, 10, 10])));
    for boundary in 0..3 {
        let pruned = world.archive.prune_blocks(4, 300, 0, &[]).unwrap();
        assert_eq!((pruned.blocks, pruned.ops, pruned.boundary), (1, 1027, Some(Height(boundary))));
        assert_eq!(pruned.stopped, Stop::Ops { next: 1027 });
    }
    world.verify();
}

#[test]
fn seen_gap_of_missing_blocks_costs_something() {
    let world = World::new(options());
    for height in [0, 1000, 2000, 3000, 3001, 3002, 3003] {
        world.archive.append(&[block(height)], Continuity::AllowGap).unwrap();
    }
    let pruned = world.archive.prune_blocks(4, 2 * BLOCK_OPS, 0, &[]).unwrap();
    assert_eq!((pruned.blocks, pruned.ops), (1, BLOCK_OPS), "the second one does not fit with its gap");
    assert_eq!(pruned.stopped, Stop::Ops { next: BLOCK_OPS + 1 });
    let pruned = world.archive.prune_blocks(4, 2 * BLOCK_OPS + 2, 0, &[]).unwrap();
    assert_eq!((pruned.blocks, pruned.ops, pruned.boundary), (2, 2 * BLOCK_OPS + 2, Some(Height(2000))));
    assert_eq!(world.heights(), [3000, 3001, 3002, 3003]);
    world.verify();
}

#[test]
fn pruned_blocks_and_transactions_are_told_from_unknown_ones() {
    let world = World::with_blocks(options(), 9);
    world.archive.prune_blocks(4, 1000, 0, &[]).unwrap();
    for height in 0..=5 {
        let gone = pruned_from(height, 5, 6);
        assert_eq!(world.meta(height), Lookup::Pruned(gone));
        let view = world.archive.view().unwrap();
        assert_eq!(view.block_by_hash(&hash(height, 0)).unwrap(), Lookup::Pruned(gone));
        assert_eq!(
            view.segment(Height(height), sapwood_archive::Segment::Receipts).unwrap(),
            Lookup::Pruned(gone)
        );
        assert_eq!(view.tx_ids(Height(height)).unwrap(), Lookup::Pruned(gone));
    }
    assert_eq!(world.meta(10), Lookup::NotFound);
    assert_eq!(
        world.archive.tx(&txid(10, 0, 0)).unwrap(),
        Lookup::NotFound,
        "all that was pruned is remembered"
    );
}

#[test]
fn seen_pruned_transaction_stays_pruned_while_its_tombstone_is_there() {
    // Three entries a block: its hash and two transactions.
    let world = World::with_blocks(ArchiveOptions { tombstones: 7, ..options() }, 9);
    world.archive.prune_blocks(8, 1000, 0, &[]).unwrap();
    assert_eq!(world.archive.tx(&txid(1, 0, 1)).unwrap(), Lookup::Pruned(pruned_from(1, 1, 2)));
    world.archive.prune_blocks(4, 1000, 0, &[]).unwrap();
    for height in 4..=5 {
        let gone = pruned_from(height, 5, 6);
        assert_eq!(world.archive.tx(&txid(height, 0, 1)).unwrap(), Lookup::Pruned(gone));
    }
    let gone = Pruned { requested: None, ..pruned_from(0, 5, 6) };
    for height in [0, 1, 2, 3, 77] {
        let unsure = Lookup::PossiblyPruned(gone);
        assert_eq!(world.archive.tx(&txid(height, 0, 1)).unwrap(), unsure);
        assert_eq!(world.archive.view().unwrap().block_by_hash(&hash(height, 0)).unwrap().found(), None);
    }
    assert_eq!(world.archive.status(0).unwrap().totals.tombstones, 6);
    assert_eq!(world.archive.tx(&txid(9, 0, 1)).unwrap().found().unwrap().height, Height(9));
    world.verify();
}

#[test]
fn nothing_of_a_pruned_block_is_left_without_tombstones() {
    let world = World::with_blocks(ArchiveOptions { tombstones: 0, ..options() }, 9);
    let rows = |world: &World| {
        let stats = sapwood_ledger::engine::Engine::stats(&*world.engine, None).unwrap();
        stats.tables.iter().map(|table| (table.table, table.rows)).collect::<Vec<_>>()
    };
    let before = rows(&world);
    world.archive.prune_blocks(4, 1000, 0, &[]).unwrap();
    world.verify();
    // Six blocks later there are as many blocks again, in the same regions.
    (10..=15).for_each(|height| world.append(&block(height)));
    assert_eq!(rows(&world), before);
    assert_eq!(world.archive.arena().unwrap().bytes.free, 0);
}

#[test]
fn boundary_is_inclusive() {
    let world = World::with_blocks(options(), 9);
    world.archive.prune_blocks(5, 1000, 0, &[]).unwrap();
    assert_eq!(world.archive.view().unwrap().boundary(), Some(Height(4)));
    assert_eq!(world.meta(4), Lookup::Pruned(pruned_from(4, 4, 5)));
    assert!(matches!(world.meta(5), Lookup::Found(_)));
}

#[test]
fn genesis_is_never_pruned_where_that_is_asked_for() {
    let world = World::with_blocks(ArchiveOptions { keep_genesis: true, ..options() }, 9);
    let done = world.archive.prune_blocks(4, 1000, 0, &[]).unwrap();
    assert_eq!(done.boundary, Some(Height(5)));
    assert_eq!(world.heights(), [0, 6, 7, 8, 9]);
    world.assert_has(&block(0));
    assert_eq!(
        world.archive.view().unwrap().earliest(),
        Some(Height(6)),
        "the oldest of those that follow on"
    );
    assert_eq!(world.meta(1), Lookup::Pruned(pruned_from(1, 5, 6)));
    world.verify();
    let world = world.reopen(options());
    world.assert_has(&block(0));
}

#[test]
fn seen_bytes_that_can_never_shrink_do_not_keep_pruning_on() {
    // A genesis block that alone is larger than the target.
    let keep = ArchiveOptions { keep_genesis: true, max_segment_bytes: 2 << 20, ..with_policy(bounded()) };
    let world = World::new(keep);
    world.append(&block_of(0, 0, 0, 0, [TARGET as usize + 1, 0, 0]));
    (1..=50).for_each(|height| world.append(&block(height)));
    assert!(!world.archive.need_prune(0));
    assert_eq!(tick(&world, 0), Tick::Idle);
    let status = world.archive.status(0).unwrap();
    assert_eq!(status.estimated_kept_bytes, 50 * BLOCK_REGIONS);
    assert!(status.arena.bytes.used > TARGET + 50 * BLOCK_REGIONS, "everything on disk is shown");
    (51..=60).for_each(|height| world.append(&block(height)));
    assert_eq!(pruning(tick(&world, 0)).stopped, Stop::LowWater);
    assert!(!world.archive.need_prune(0));
    world.verify();
}

#[test]
fn seen_pruning_by_capacity_stops_at_low_water() {
    let world = World::with_blocks(with_policy(bounded()), 56);
    assert_eq!(tick(&world, 0), Tick::Idle, "57 blocks are below high water");
    world.append(&block(57));
    assert!(world.archive.need_prune(0));
    let pruned = pruning(tick(&world, 0));
    assert_eq!((pruned.blocks, pruned.stopped), (7, Stop::LowWater));
    assert_eq!(world.heights().len(), 51);
    let status = world.archive.status(0).unwrap();
    assert!(!status.latched && !status.need_prune);
    assert_eq!(status.estimated_kept_bytes, 51 * BLOCK_REGIONS, "what was pruned is free again");
    assert_eq!(tick(&world, 0), Tick::Idle);
    world.verify();
}

#[test]
fn pruning_that_began_at_high_water_goes_on_to_low_water_over_many_ticks_and_a_restart() {
    let policy = Policy { max_ops_per_tick: 2 * BLOCK_OPS, ..bounded() };
    let world = World::with_blocks(with_policy(policy), 58);
    assert_eq!(pruning(tick(&world, 0)).stopped, Stop::Ops { next: BLOCK_OPS });
    assert!(!world.archive.need_prune(0), "57 blocks are below high water");
    assert!(world.archive.status(0).unwrap().latched);
    let world = world.reopen(with_policy(policy));
    assert!(world.archive.status(0).unwrap().latched);
    let mut ticks = 0;
    while let Tick::Pruned(_) = tick(&world, 0) {
        ticks += 1;
    }
    assert_eq!((ticks, world.heights().len()), (3, 51));
    world.verify();
}

#[test]
fn blocks_older_than_the_retention_are_pruned_and_no_others() {
    let policy = Policy { retain_days: Some(2), ..Policy::default() };
    let head = 3 * BLOCKS_PER_DAY;
    let world = World::with_blocks(with_policy(policy), head);
    let now = u64::from(head) * BLOCK_SECONDS;
    let done = pruning(tick(&world, now));
    assert_eq!((done.boundary, done.stopped), (Some(Height(BLOCKS_PER_DAY - 1)), Stop::Done));
    assert_eq!(tick(&world, now), Tick::Idle, "the oldest one is two days old, not older");
    assert_eq!(pruning(tick(&world, now + 1)).blocks, 1);
    // The newest blocks stay, however old they are.
    let all = pruning(tick(&world, now + 100 * DAY));
    assert_eq!(
        (all.boundary, all.stopped),
        (Some(Height(head - 3)), Stop::Floor { floor: Some(Height(head - 2)) })
    );
    world.verify();
}

#[test]
fn block_whose_time_is_not_in_order_is_kept_as_long_as_the_ones_before_it() {
    let policy = Policy { retain_days: Some(1), ..Policy::default() };
    let world = World::new(with_policy(policy));
    let times = [100, 5000, 200, 300, 400, 500, 600];
    for (height, time) in (0..).zip(times) {
        world.append(&NewBlock { time, ..block(height) });
    }
    assert_eq!(pruning(tick(&world, DAY + 450)).boundary, Some(Height(0)), "200 waits for 5000");
    assert_eq!(pruning(tick(&world, DAY + 5001)).boundary, Some(Height(3)));
}

#[test]
fn retain_blocks_alone_keeps_exactly_that_many() {
    let world = World::with_blocks(with_policy(Policy { retain_blocks: Some(10), ..Policy::default() }), 99);
    let pruned = pruning(tick(&world, 0));
    assert_eq!((pruned.boundary, pruned.stopped), (Some(Height(89)), Stop::Done));
    assert_eq!(world.heights().len(), 10);
    assert_eq!(tick(&world, 0), Tick::Idle);
}

#[test]
fn capacity_comes_before_the_retention() {
    let policy = Policy { retain_days: Some(1000), retain_blocks: Some(1000), ..bounded() };
    let world = World::with_blocks(with_policy(policy), 57);
    assert_eq!(pruning(tick(&world, 0)).stopped, Stop::LowWater);
    assert_eq!(world.heights().len(), 51);
}

#[test]
fn floor_is_never_crossed_and_a_budget_below_it_is_an_alert_with_numbers() {
    let deep = ArchiveOptions { reorg_window: 60, ..with_policy(bounded()) };
    let world = World::with_blocks(deep, 64);
    let done = pruning(tick(&world, 0));
    assert_eq!((done.blocks, done.stopped.clone()), (4, Stop::Floor { floor: Some(Height(4)) }));
    let status = world.archive.status(0).unwrap();
    assert_eq!((status.latched, status.boundary), (true, Some(Height(3))));
    let used = 61 * BLOCK_REGIONS;
    let expected = Alert::FloorOverBudget {
        used,
        high: 943_719,
        target: TARGET,
        floor: Some(Height(4)),
        head: Height(64),
    };
    assert_eq!(status.alerts[0], expected);
    let text = status.alerts[0].to_string();
    for part in ["999424", "943719", "1048576", "block 4 to 64", "Raise the target"] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    assert_eq!(status.alerts[1], Alert::HardLimit { estimated: used, hard: 996_148, target: TARGET });
    // It goes on by itself when blocks become final.
    (65..=70).for_each(|height| world.append(&block(height)));
    assert_eq!(pruning(tick(&world, 0)).boundary, Some(Height(9)));
    world.verify();
}

#[test]
fn nothing_is_pruned_while_nothing_is_reported_final() {
    let reported = ArchiveOptions { finality: Finality::Reported, ..with_policy(bounded()) };
    let world = World::with_blocks(reported, 80);
    assert_eq!(pruning(tick(&world, 0)).stopped, Stop::Floor { floor: None });
    world.archive.set_finalized(Height(10)).unwrap();
    assert_eq!(pruning(tick(&world, 0)).boundary, Some(Height(9)), "the block that a reorg returns to stays");
    assert_eq!(world.heights().first(), Some(&10));
    world.verify();
}

#[test]
fn hold_keeps_blocks_from_every_kind_of_pruning() {
    let policy = Policy { retain_blocks: Some(10), ..bounded() };
    let world = World::with_blocks(with_policy(policy), 80);
    let hold = HeightHold::new("persister", Some(Height(5)));
    let holds = [HeightHold::new("snapshot", Some(Height(50))), hold.clone()];
    let done = pruning(world.archive.tick(Trigger::Timer, 0, &holds).unwrap());
    assert_eq!((done.boundary, done.stopped), (Some(Height(4)), Stop::Held(hold.clone())));
    let done = world.archive.prune_blocks(3, 10_000, 0, &holds).unwrap();
    assert_eq!((done.blocks, done.stopped), (0, Stop::Held(hold.clone())));
    let high = 943_719;
    let expected = Alert::HoldOverBudget { used: 76 * BLOCK_REGIONS, high, target: TARGET, hold };
    let alerts = world.archive.status(0).unwrap().alerts;
    assert_eq!(alerts[0], expected, "above the hard limit, too");
    let silent = [HeightHold::new("persister", None)];
    assert_eq!(world.archive.prune_blocks(3, 10_000, 0, &silent).unwrap().blocks, 0);
}

#[test]
fn export_hold_is_off_by_default_and_keeps_what_was_not_acknowledged() {
    let world = World::with_blocks(options(), 20);
    world.archive.ack_exported("indexer", 3, 0).unwrap();
    world.archive.prune_blocks(15, 10_000, 0, &[]).unwrap();
    assert_eq!(world.archive.view().unwrap().boundary(), Some(Height(5)), "it is off");
    world.archive.set_policy(Policy { export_hold: true, ..Policy::default() }, 0, "a test").unwrap();
    let held = world.archive.prune_blocks(10, 10_000, 0, &[]).unwrap();
    assert_eq!((held.blocks, matches!(held.stopped, Stop::Held(_))), (0, true));
    world.archive.ack_exported("indexer", 8, 0).unwrap();
    world.archive.ack_exported("other", 7, 0).unwrap();
    world.archive.prune_blocks(10, 10_000, 0, &[]).unwrap();
    assert_eq!(world.archive.view().unwrap().boundary(), Some(Height(7)), "the slower of two decides");
    world.archive.remove_consumer("other").unwrap();
    world.archive.remove_consumer("indexer").unwrap();
    let held = world.archive.prune_blocks(10, 10_000, 0, &[]).unwrap();
    assert_eq!(held.blocks, 0, "nothing acknowledged, nothing pruned");
}

#[test]
fn hard_emergency_overrides_the_export_hold_loudly_and_no_other() {
    let policy = Policy { export_hold: true, ..bounded() };
    let world = World::with_blocks(with_policy(policy), 59);
    world.archive.ack_exported("indexer", 2, 0).unwrap();
    let held = pruning(tick(&world, 0));
    assert_eq!(
        (held.boundary, held.overridden),
        (Some(Height(2)), vec![]),
        "above high water it is waited for"
    );
    (60..=63).for_each(|height| world.append(&block(height)));
    let other = HeightHold::new("operator", Some(Height(20)));
    let done = pruning(world.archive.tick(Trigger::Timer, 0, std::slice::from_ref(&other)).unwrap());
    assert_eq!((done.boundary, done.stopped), (Some(Height(12)), Stop::LowWater));
    let names: Vec<_> = done.overridden.iter().map(|hold| hold.name.clone()).collect();
    assert_eq!(names, ["export of indexer"]);
    let alerts = world.archive.status(0).unwrap().alerts;
    let loud = alerts.iter().find(|alert| matches!(alert, Alert::HoldOverridden { .. })).unwrap().to_string();
    assert!(loud.contains("export of indexer holds everything from block 3"), "{loud}");
    // The operator's hold does not yield.
    (64..=80).for_each(|height| world.append(&block(height)));
    let done = pruning(world.archive.tick(Trigger::Timer, 0, std::slice::from_ref(&other)).unwrap());
    assert_eq!((done.boundary, done.stopped), (Some(Height(19)), Stop::Held(other)));
    world.verify();
}

#[test]
fn disabled_pruning_does_nothing_and_still_says_that_it_is_needed() {
    let world = World::with_blocks(with_policy(Policy { enabled: false, ..bounded() }), 60);
    assert_eq!(tick(&world, 0), Tick::Disabled { need_prune: true });
    assert_eq!(world.archive.prune_now(None, 0, &[]), Err(ArchiveError::Disabled));
    assert_eq!(world.heights().len(), 61);
    world.archive.set_policy(bounded(), 0, "a test").unwrap();
    assert_eq!(world.archive.prune_now(Some(1), 0, &[]).unwrap().blocks, 1);
}

#[test]
fn tick_comes_every_84_blocks_and_at_once_above_the_hard_limit() {
    let world = World::with_blocks(with_policy(Policy::default()), 0);
    assert_eq!(
        world.archive.tick(Trigger::Block, 0, &[]).unwrap(),
        Tick::Idle,
        "the first one after a start"
    );
    for height in 1..=168 {
        let due = world.archive.append(&[block(height)], Continuity::Strict).unwrap().tick_due;
        assert_eq!(due, height % 84 == 0, "block {height}");
        let tick = world.archive.tick(Trigger::Block, 0, &[]).unwrap();
        assert_eq!(tick, if due { Tick::Idle } else { Tick::NotDue });
    }
    world.archive.set_policy(bounded(), 0, "a test").unwrap();
    assert!(
        world.archive.append(&[block(169)], Continuity::Strict).unwrap().tick_due,
        "above the hard limit"
    );
    let pruned = pruning(world.archive.tick(Trigger::Block, 0, &[]).unwrap());
    assert_eq!(pruned.stopped, Stop::LowWater);
    assert!(!world.archive.append(&[block(170)], Continuity::Strict).unwrap().tick_due);
}

#[test]
fn second_prune_waits_for_none_and_does_nothing() {
    let inner = Arc::new(MemoryEngine::new());
    let (reached, is_reached) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = std::sync::Mutex::new(may_go_on);
    // The commit that prunes block 0 waits.
    let engine = HookedEngine {
        inner,
        before: Box::new(move |writes| {
            if writes.number == 9 {
                reached.send(()).unwrap();
                may_go_on.lock().unwrap().recv().unwrap();
            }
            Ok(())
        }),
        after: Box::new(|_| Ok(())),
    };
    let archive = Archive::open(Arc::new(MemoryFile::new()), Arc::new(engine), options()).unwrap();
    (0..=6).for_each(|height| _ = archive.append(&[block(height)], Continuity::Strict).unwrap());
    std::thread::scope(|scope| {
        let first = scope.spawn(|| archive.prune_blocks(4, 1000, 0, &[]).unwrap());
        is_reached.recv().unwrap();
        assert_eq!(archive.tick(Trigger::Timer, 0, &[]).unwrap(), Tick::Busy);
        assert_eq!(archive.prune_blocks(4, 1000, 0, &[]), Err(ArchiveError::Busy));
        assert_eq!(archive.prune_now(None, 0, &[]), Err(ArchiveError::Busy));
        go_on.send(()).unwrap();
        assert_eq!(first.join().unwrap().blocks, 3);
    });
    assert_eq!(archive.prune_blocks(4, 1000, 0, &[]).unwrap().blocks, 0);
}

#[test]
fn reader_that_stays_keeps_regions_in_quarantine_and_does_not_make_pruning_go_on() {
    let world = World::with_blocks(with_policy(bounded()), 57);
    let view = world.archive.view().unwrap();
    let before: Vec<_> =
        (0..=57).map(|height| view.block(Height(height)).unwrap().found().unwrap()).collect();
    assert_eq!(pruning(tick(&world, 0)).blocks, 7);
    let bytes = world.archive.arena().unwrap().bytes;
    assert_eq!((bytes.used, bytes.quarantine, bytes.free), (51 * BLOCK_REGIONS, 7 * BLOCK_REGIONS, 0));
    assert_eq!(bytes.estimated_kept(), 58 * BLOCK_REGIONS, "counted until they are free");
    assert_eq!(
        pruning(tick(&world, 0)).blocks,
        0,
        "low water is reached, though the estimate is above high water"
    );
    // New blocks go behind the end, not over what the reader sees.
    (58..=60).for_each(|height| world.append(&block(height)));
    for (height, meta) in (0..).zip(&before) {
        let payload = view.payload(meta, sapwood_archive::Segment::Block).unwrap();
        assert_eq!(payload, block(height).segments[0]);
    }
    drop(view);
    assert_eq!(tick(&world, 0), Tick::Idle);
    let bytes = world.archive.arena().unwrap().bytes;
    assert_eq!((bytes.quarantine, bytes.free), (0, 7 * BLOCK_REGIONS));
    world.verify();
}

#[test]
fn plan_says_what_a_tick_does() {
    let policy = Policy { max_ops_per_tick: 3 * BLOCK_OPS, ..bounded() };
    let world = World::with_blocks(with_policy(policy), 60);
    let plan = world.archive.plan(None, 0, &[], u64::MAX).unwrap();
    assert_eq!((plan.blocks, plan.up_to, plan.stopped.clone()), (10, Some(Height(9)), Some(Stop::LowWater)));
    assert_eq!((plan.ops, plan.region_bytes), (10 * BLOCK_OPS, 10 * BLOCK_REGIONS));
    assert_eq!(plan.ticks(&policy), 4);
    let short = world.archive.plan(None, 0, &[], 4).unwrap();
    assert_eq!((short.blocks, short.stopped), (4, None));
    let other = Policy { retain_blocks: Some(20), ..Policy::default() };
    let other = world.archive.plan(Some(other), 0, &[], u64::MAX).unwrap();
    assert_eq!((other.blocks, other.stopped), (41, Some(Stop::Done)));
    let mut blocks = 0;
    while let Tick::Pruned(pruned) = tick(&world, 0) {
        blocks += pruned.blocks;
    }
    assert_eq!(blocks, plan.blocks);
    let bad = Policy { tick_blocks: 0, ..Policy::default() };
    assert!(matches!(world.archive.plan(Some(bad), 0, &[], 1), Err(ArchiveError::Policy(_))));
}

#[test]
fn empty_archive_has_nothing_to_prune() {
    let world = World::new(with_policy(bounded()));
    assert_eq!(tick(&world, 0), Tick::Idle);
    let none = world.archive.prune_blocks(0, 1000, 0, &[]).unwrap();
    assert_eq!((none.blocks, none.boundary, none.stopped), (0, None, Stop::Done));
    assert_eq!(world.archive.plan(None, 0, &[], 10).unwrap().blocks, 0);
    assert_eq!(world.archive.prune_now(None, 0, &[]).unwrap().blocks, 0);
}

#[test]
fn block_that_cannot_be_read_stops_nothing_else() {
    let world = World::with_blocks(options(), 20);
    let key = [b"b".as_slice(), &3_u32.to_be_bytes()].concat();
    world.engine.damage(sapwood_ledger::engine::Table::Due, &key, Some(b"damaged"));
    assert!(matches!(world.archive.block(Height(3)), Err(ArchiveError::DamagedRow { .. })));
    let done = world.archive.prune_blocks(10, 1000, 0, &[]).unwrap();
    assert_eq!((done.boundary, done.unreadable), (Some(Height(10)), vec![Height(3)]));
    assert_eq!(world.archive.status(0).unwrap().totals.unreadable, 1);
    assert_eq!(world.meta(3), Lookup::Pruned(pruned_from(3, 10, 11)));
    (11..=20).for_each(|height| world.assert_has(&block(height)));
    assert!(!world.archive.verify(true, |_| ()).unwrap().is_clean(), "its regions are not lost silently");
}
