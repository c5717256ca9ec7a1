//! The budget over long runs: never above it, and forecast in time.

use sapwood_archive::{ArchiveOptions, Continuity, Durability, Policy, Punch, Tick, Trigger};

use crate::world::{World, block_of, options};

const TARGET: u64 = 8 << 20;

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn bounded(policy: Policy) -> World {
    let policy = Policy { target_bytes: Some(TARGET), ..policy };
    World::new(ArchiveOptions { policy, durability: Durability::ProcessCrash, ..options() })
}

/// 20 × the target is written, blocks of random sizes, ticks as blocks come.
#[test]
fn estimate_stays_under_high_water_plus_one_tick() {
    let world = bounded(Policy { tick_blocks: 20, ..Policy::default() });
    let water = world.archive.policy().water().unwrap();
    let mut seed = 0x5eed;
    let (mut written, mut height, mut greatest_tick, mut since_tick, mut peak) = (0, 0, 0, 0, 0);
    while written < 20 * TARGET {
        let size = |seed: &mut u64| (random(seed) % 60_000) as usize;
        let block = block_of(height, 0, 0, 3, [size(&mut seed), size(&mut seed) / 3, size(&mut seed) / 9]);
        let appended = world.archive.append(&[block], Continuity::Strict).unwrap();
        written += appended.region_bytes;
        since_tick += appended.region_bytes;
        greatest_tick = greatest_tick.max(since_tick);
        height += 1;
        let estimate = world.archive.arena().unwrap().bytes.estimated_kept();
        peak = peak.max(estimate);
        assert!(estimate <= water.high + greatest_tick, "{estimate} at block {height}");
        if world.archive.tick(Trigger::Block, 0, &[]).unwrap() != Tick::NotDue {
            since_tick = 0;
        }
    }
    let status = world.archive.status(0).unwrap();
    assert!(peak < TARGET, "{peak}");
    assert!(status.estimated_kept_bytes > water.low - 200_000, "it is not pruned further than it has to be");
    // Size classes change hands too, so the file is larger than what is kept, but it stops growing.
    assert!(status.arena.file_bytes < 3 * TARGET / 2, "{}", status.arena.file_bytes);
    world.verify();
}

/// Blocks that change their size leave regions of sizes that are not used any more. Punched, they cost no disk space.
#[test]
fn disk_space_stays_bounded_when_block_sizes_drift() {
    let policy = Policy { target_bytes: Some(TARGET), tick_blocks: 10, ..Policy::default() };
    let punch = Punch::FreeAbove(TARGET / 10);
    let world =
        World::new(ArchiveOptions { policy, punch, durability: Durability::ProcessCrash, ..options() });
    let mut height = 0;
    for size in [30_000, 3_000, 14_000, 7_000, 60_000, 1_000] {
        let mut written = 0;
        while written < 2 * TARGET {
            let block = block_of(height, 0, 0, 0, [size, 0, 0]);
            written += world.archive.append(&[block], Continuity::Strict).unwrap().region_bytes;
            world.archive.tick(Trigger::Block, 0, &[]).unwrap();
            height += 1;
            let arena = world.archive.arena().unwrap();
            let bound = TARGET + TARGET / 10;
            assert!(arena.allocated_bytes.unwrap() <= bound, "{arena:?} with blocks of {size} bytes");
        }
    }
    assert!(world.archive.arena().unwrap().bytes.punched > 0);
    world.verify();
}

/// A recorded run: days with busy and quiet hours. What was forecast after a while is compared with what came.
#[test]
fn forecast_is_within_ten_percent_of_what_came() {
    for first_day in [2.0, 3.0] {
        let world = bounded(Policy::default());
        let high = world.archive.policy().water().unwrap().high;
        let mut seed = 77;
        let (mut now, mut height) = (0_u64, 0);
        let mut forecast = None;
        loop {
            // Twelve busy hours, twelve quiet ones.
            let is_busy = now % 86_400 < 43_200;
            let size = 2000 + random(&mut seed) % if is_busy { 12_000 } else { 4_000 };
            let block = block_of(height, 0, 0, 0, [size as usize, 100, 0]);
            world.archive.append(&[block], Continuity::Strict).unwrap();
            let tick = world.archive.tick(Trigger::Timer, now, &[]).unwrap();
            if matches!(tick, Tick::Pruned(_)) {
                break;
            }
            let day = now as f64 / 86_400.0;
            if day >= first_day && forecast.is_none() {
                forecast = Some(day + world.archive.forecast().unwrap().days_until_full.unwrap());
            }
            now += 600;
            height += 1;
        }
        let (forecast, came) = (forecast.unwrap(), now as f64 / 86_400.0);
        let error = (forecast - came).abs() / came;
        assert!(error <= 0.10, "forecast {forecast:.2} days, {came:.2} came: {:.1} %", error * 100.0);
        assert!(world.archive.status(now).unwrap().estimated_kept_bytes <= high);
    }
}

#[test]
fn forecast_after_a_restart_goes_by_the_times_of_blocks() {
    let world = bounded(Policy::default());
    for height in 0..100 {
        world.append(&block_of(height, 0, 0, 0, [4000, 0, 0]));
    }
    // 4,096 bytes every 600 seconds.
    let forecast = world.archive.forecast().unwrap();
    assert!((forecast.bytes_per_second.unwrap() - 4096.0 / 600.0).abs() < 1e-9);
    let water = world.archive.policy().water().unwrap();
    let days = (water.high - 100 * 4096) as f64 / (4096.0 / 600.0) / 86_400.0;
    assert!((forecast.days_until_full.unwrap() - days).abs() < 1e-9);
    assert!((forecast.days_held.unwrap() - water.low as f64 / (4096.0 / 600.0) / 86_400.0).abs() < 1e-9);
    let empty = bounded(Policy::default());
    assert_eq!(empty.archive.forecast().unwrap().bytes_per_second, None);
}

#[test]
fn volume_lists_everything_that_the_archive_has() {
    let world = bounded(Policy::default());
    (0..20).for_each(|height| world.append(&block_of(height, 0, 0, 2, [4000, 100, 100])));
    world.archive.prune_blocks(10, 1000, 0, &[]).unwrap();
    world.file.set_capacity(100 << 20);
    let volume = world.archive.volume().unwrap();
    let names: Vec<_> = volume.items.iter().map(|item| item.name.as_str()).collect();
    assert_eq!(names, ["arena_used", "arena_quarantine", "arena_free", "archive_journal", "archive_index"]);
    assert_eq!([0, 2].map(|item: usize| volume.items[item].bytes), [10 * 3 * 4096; 2]);
    assert!(volume.items[4].bytes > 10 * 500, "rows take space, too");
    assert_eq!(volume.total_bytes, Some(100 << 20));
}
