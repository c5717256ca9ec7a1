//! What was measured, for machines and for people.

use std::fmt;

use serde::Serialize;

use super::following::{FollowingFigures, MOST_OVER_STORE};

/// Everything `bench apply` measures.
#[derive(Debug, Default, Serialize)]
pub(super) struct ApplyReport {
    pub(super) apply_tx_per_s: f64,
    pub(super) baseline_tx_per_s: f64,
    /// Blocks in a row, as a node applies them that catches up.
    pub(super) apply_over_baseline: f64,
    /// Blocks one by one, waiting for each. So are the percentiles.
    pub(super) single_apply_over_baseline: f64,
    pub(super) apply_p50_ms: f64,
    pub(super) apply_p99_ms: f64,
    /// Core time of a block in a row, all threads included, until nothing is left to flush or compact.
    pub(super) core_ms_per_block: f64,
    pub(super) baseline_core_ms_per_block: f64,
    pub(super) tx_per_core_s: f64,
    /// Rows and bytes that the ledger hands to its engine.
    pub(super) engine_rows_per_tx: f64,
    pub(super) engine_bytes_per_tx: f64,
    /// Bytes that are written to files, by whomever.
    pub(super) written_bytes_per_tx: f64,
    /// Those over the bytes handed to the engine.
    pub(super) write_amplification: f64,
    /// Records that the engine is asked for, present or not.
    pub(super) cold_reads_per_block: f64,
    pub(super) prune_per_s: f64,
    pub(super) prune_over_make: f64,
    pub(super) child_check_ratio: f64,
    pub(super) apply_while_pruning_ratio: f64,
    pub(super) bytes_per_live_output: f64,
    /// The disk after pruning against the bytes of what is left.
    pub(super) disk_over_record_bytes: f64,
    pub(super) peak_rss_bytes: Option<u64>,
    pub(super) reopen_after_kill_ms: f64,
    pub(super) blocks: usize,
    pub(super) txs_per_block: usize,
    pub(super) outputs_at_start: u64,
    pub(super) live_outputs: u64,
    pub(super) records_pruned: u64,
    #[serde(flatten)]
    pub(super) following: FollowingFigures,
}

/// Everything `bench prune` measures.
#[derive(Debug, Serialize)]
pub(super) struct PruneReport {
    pub(super) prune_over_make: f64,
    pub(super) child_check_ratio: f64,
    pub(super) apply_while_pruning_ratio: f64,
    /// Blocks one after another, while a pruner that was down works off what has piled up.
    pub(super) apply_while_catching_up_ratio: f64,
    /// Blocks that find that pruner at full speed, because none came for a while.
    pub(super) apply_at_full_prune_ratio: f64,
    pub(super) make_per_s: f64,
    pub(super) prune_per_s: f64,
    pub(super) prune_unchecked_per_s: f64,
    pub(super) apply_alone_ms: f64,
    pub(super) apply_while_pruning_ms: f64,
    pub(super) apply_while_catching_up_ms: f64,
    pub(super) apply_at_full_prune_ms: f64,
    pub(super) pruned_per_block_while_catching_up: f64,
    /// Records that were due when the pruner came back.
    pub(super) catch_up_backlog: u64,
    /// Records it deleted per second once no more blocks came.
    pub(super) catch_up_per_s: f64,
    pub(super) blocks_down: usize,
    pub(super) blocks: usize,
    pub(super) txs_per_block: usize,
    pub(super) outputs_at_start: u64,
    pub(super) records_pruned: u64,
}

/// A figure and what it should be.
struct Row {
    what: &'static str,
    measured: String,
    target: &'static str,
    holds: Option<bool>,
}

impl Row {
    fn at_most(what: &'static str, value: f64, bound: f64, target: &'static str) -> Self {
        Row { what, measured: format!("{value:.2} ×"), target, holds: Some(value <= bound) }
    }

    fn plain(what: &'static str, measured: String) -> Self {
        Row { what, measured, target: "", holds: None }
    }

    fn rate(what: &'static str, per_second: f64) -> Self {
        Self::plain(what, thousands(per_second.round() as u64))
    }
}

/// The three ratios of pruning.
fn pruning_rows(beside: f64, check: f64, over_make: f64) -> [Row; 3] {
    [
        Row::at_most("apply while pruning against apply alone", beside, 1.05, "≤ 1.05 ×"),
        Row::at_most("prune with the child check against without", check, 1.05, "≤ 1.05 ×"),
        Row {
            what: "records pruned against records made, per second",
            measured: format!("{over_make:.2} ×"),
            target: "≥ 5.00 ×",
            holds: Some(over_make >= 5.0),
        },
    ]
}

impl ApplyReport {
    fn rows(&self) -> Vec<Row> {
        let over_baseline = self.apply_over_baseline;
        let single = self.single_apply_over_baseline;
        let mut rows = vec![
            Row::at_most("apply against the same rows written straight", over_baseline, 1.0, "≤ 1.00 ×"),
            Row::at_most("the same, waiting for each block", single, 1.3, "≤ 1.30 ×"),
            Row {
                what: "time of a block that is waited for, p50",
                measured: format!("{:.1} ms", self.apply_p50_ms),
                target: "≤ 15 ms",
                holds: Some(self.apply_p50_ms <= 15.0),
            },
        ];
        rows.extend(pruning_rows(
            self.apply_while_pruning_ratio,
            self.child_check_ratio,
            self.prune_over_make,
        ));
        let following = &self.following;
        rows.extend([
            Row::at_most(
                "disk after pruning against the records' own bytes",
                self.disk_over_record_bytes,
                1.5,
                "≤ 1.50 ×",
            ),
            Row::at_most(
                "blocks through the chain against the store alone",
                following.chain_over_store,
                MOST_OVER_STORE,
                "≤ 1.25 ×",
            ),
            Row {
                what: "slowest block of 2,000 transactions",
                measured: format!("{:.0} ms", following.slowest_block_ms),
                target: "< 1,000 ms",
                holds: Some(following.slowest_block_ms < 1000.0),
            },
            Row {
                what: "reopen after kill -9",
                measured: format!("{:.0} ms", self.reopen_after_kill_ms),
                target: "< 2,000 ms",
                holds: Some(self.reopen_after_kill_ms < 2000.0),
            },
            Row::rate("transactions applied per second", self.apply_tx_per_s),
            Row::rate("transactions written straight per second", self.baseline_tx_per_s),
            Row::plain("time of a block that is waited for, p99", format!("{:.0} ms", self.apply_p99_ms)),
            Row::plain(
                "core time of a block, and of its rows straight",
                format!("{:.0} and {:.0} ms", self.core_ms_per_block, self.baseline_core_ms_per_block),
            ),
            Row::rate("transactions per second of one core", self.tx_per_core_s),
            Row::plain(
                "rows and bytes to the engine per transaction",
                format!("{:.2} and {:.0}", self.engine_rows_per_tx, self.engine_bytes_per_tx),
            ),
            Row::plain(
                "bytes to files per transaction",
                format!("{:.0}, {:.1} ×", self.written_bytes_per_tx, self.write_amplification),
            ),
            Row::rate("records asked of the engine per block", self.cold_reads_per_block),
            Row::rate("records pruned per second, children checked", self.prune_per_s),
            Row::rate("bytes on disk per live output", self.bytes_per_live_output),
            Row::plain(
                "peak memory",
                self.peak_rss_bytes.map_or("not known".into(), |bytes| format!("{} MiB", bytes >> 20)),
            ),
        ]);
        rows
    }
}

impl PruneReport {
    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::from(pruning_rows(
            self.apply_while_pruning_ratio,
            self.child_check_ratio,
            self.prune_over_make,
        ));
        rows.extend([
            Row::at_most(
                "apply while the pruner catches up against alone",
                self.apply_while_catching_up_ratio,
                1.1,
                "≤ 1.10 ×",
            ),
            Row::at_most(
                "the same for a block that finds it at full speed",
                self.apply_at_full_prune_ratio,
                1.1,
                "≤ 1.10 ×",
            ),
            Row::rate("records made per second", self.make_per_s),
            Row::rate("records pruned per second, children checked", self.prune_per_s),
            Row::rate("records pruned per second, not checked", self.prune_unchecked_per_s),
            Row::rate("records due after the pruner was down", self.catch_up_backlog as f64),
            Row::rate("records it deleted per second without blocks", self.catch_up_per_s),
            Row::plain(
                "time of a block, alone and while pruning",
                format!("{:.0} and {:.0} ms", self.apply_alone_ms, self.apply_while_pruning_ms),
            ),
        ]);
        rows
    }
}

/// The table, under a line that says what was measured.
fn write_table(
    f: &mut fmt::Formatter<'_>,
    (blocks, txs, outputs, pruned): (usize, usize, u64, u64),
    rows: Vec<Row>,
) -> fmt::Result {
    writeln!(
        f,
        "{blocks} blocks of {} transactions, from {} outputs; {} records pruned\n",
        thousands(txs as u64),
        thousands(outputs),
        thousands(pruned)
    )?;
    writeln!(f, "{:<50} {:>16} {:>12}", "", "measured", "target")?;
    for row in rows {
        let mark = match row.holds {
            Some(true) => "  ✓",
            Some(false) => "  ✗",
            None => "",
        };
        writeln!(f, "{:<50} {:>16} {:>12}{mark}", row.what, row.measured, row.target)?;
    }
    Ok(())
}

impl fmt::Display for ApplyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let measured = (self.blocks, self.txs_per_block, self.outputs_at_start, self.records_pruned);
        write_table(f, measured, self.rows())?;
        writeln!(f, "\n100 blocks of 2,000 transactions")?;
        for (what, seconds, ratio) in self.following.rows() {
            writeln!(f, "  {what:<48} {seconds:>14.2} s   {ratio}")?;
        }
        Ok(())
    }
}

impl fmt::Display for PruneReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let measured = (self.blocks, self.txs_per_block, self.outputs_at_start, self.records_pruned);
        write_table(f, measured, self.rows())
    }
}

/// A number with separators.
pub(super) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scripts read them.
    #[test]
    fn the_keys_of_the_figures_stay_as_they_are() {
        let report = serde_json::to_value(ApplyReport::default()).unwrap();
        for key in [
            "apply_tx_per_s",
            "baseline_tx_per_s",
            "apply_over_baseline",
            "single_apply_over_baseline",
            "core_ms_per_block",
            "tx_per_core_s",
            "engine_rows_per_tx",
            "engine_bytes_per_tx",
            "write_amplification",
            "cold_reads_per_block",
            "apply_p50_ms",
            "apply_p99_ms",
            "prune_per_s",
            "child_check_ratio",
            "apply_while_pruning_ratio",
            "bytes_per_live_output",
            "peak_rss_bytes",
            "reopen_after_kill_ms",
        ] {
            assert!(report.get(key).is_some(), "{key} is missing");
        }
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1000), "1,000");
        assert_eq!(thousands(1_234_567), "1,234,567");
    }
}
