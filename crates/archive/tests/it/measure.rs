//! The measurements measure.

use std::sync::Arc;

use sapwood_archive::{
    Durability,
    bench::{BenchOptions, measure},
};
use sapwood_engine_memory::MemoryEngine;

#[test]
fn measurements_are_plausible_and_the_arena_stops_growing() {
    for durability in [Durability::ProcessCrash, Durability::PowerLoss] {
        let directory = tempfile::tempdir().unwrap();
        let options = BenchOptions {
            rounds: 3,
            blocks: 5,
            block_bytes: 100_000,
            blocks_per_sync: 2,
            durability,
            cycles: 150,
            cycle_bytes: 5_000,
        };
        let report = measure(directory.path(), Arc::new(MemoryEngine::new()), &options).unwrap();
        for number in [
            report.sequential_bytes_per_second,
            report.write_bytes_per_second,
            report.write_over_sequential,
            report.prune_bytes_per_second,
            report.prune_over_write,
        ] {
            assert!(number.is_finite() && number > 0.0, "{report:?}");
        }
        assert_eq!(report.arena_growth_after_100_cycles, 0.0, "{report:?}");
        assert_eq!(report.cycles, 150);
        assert!(!directory.path().join("sequential").exists(), "the baseline is deleted");
    }
}
