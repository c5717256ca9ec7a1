//! What was measured, for machines and for people.

use std::fmt;

use serde::Serialize;

/// Everything `bench apply` measures.
#[derive(Debug, Serialize)]
pub(super) struct ApplyReport {
    pub(super) apply_tx_per_s: f64,
    pub(super) floor_tx_per_s: f64,
    pub(super) apply_over_floor: f64,
    pub(super) apply_p50_ms: f64,
    pub(super) apply_p99_ms: f64,
    pub(super) prune_per_s: f64,
    pub(super) prune_over_make: f64,
    pub(super) child_check_ratio: f64,
    pub(super) apply_while_pruning_ratio: f64,
    pub(super) bytes_per_live_output: f64,
    pub(super) peak_rss_bytes: Option<u64>,
    pub(super) reopen_after_kill_ms: f64,
    pub(super) blocks: usize,
    pub(super) txs_per_block: usize,
    pub(super) outputs_at_start: u64,
    pub(super) live_outputs: u64,
    pub(super) records_pruned: u64,
}

/// A figure and what it should be.
struct Row {
    what: &'static str,
    measured: String,
    target: &'static str,
    holds: Option<bool>,
}

impl ApplyReport {
    fn rows(&self) -> Vec<Row> {
        let ratio =
            |what, value: f64, target, holds| Row { what, measured: format!("{value:.2} ×"), target, holds };
        let plain = |what, measured| Row { what, measured, target: "", holds: None };
        let rate = |value: f64| thousands(value.round() as u64);
        vec![
            ratio(
                "apply against the same bytes written straight",
                self.apply_over_floor,
                "≤ 1.50 ×",
                Some(self.apply_over_floor <= 1.5),
            ),
            ratio(
                "apply while pruning against apply alone",
                self.apply_while_pruning_ratio,
                "≤ 1.10 ×",
                Some(self.apply_while_pruning_ratio <= 1.1),
            ),
            ratio(
                "prune with the child check against without",
                self.child_check_ratio,
                "≤ 1.10 ×",
                Some(self.child_check_ratio <= 1.1),
            ),
            ratio(
                "records pruned against records made, per second",
                self.prune_over_make,
                "≥ 2.00 ×",
                Some(self.prune_over_make >= 2.0),
            ),
            Row {
                what: "reopen after kill -9",
                measured: format!("{:.0} ms", self.reopen_after_kill_ms),
                target: "< 2,000 ms",
                holds: Some(self.reopen_after_kill_ms < 2000.0),
            },
            plain("transactions applied per second", rate(self.apply_tx_per_s)),
            plain("transactions written straight per second", rate(self.floor_tx_per_s)),
            plain(
                "time of a block, p50 and p99",
                format!("{:.0} and {:.0} ms", self.apply_p50_ms, self.apply_p99_ms),
            ),
            plain("records pruned per second, children checked", rate(self.prune_per_s)),
            plain("bytes on disk per live output", rate(self.bytes_per_live_output)),
            plain(
                "peak memory",
                self.peak_rss_bytes.map_or("not known".into(), |bytes| format!("{} MiB", bytes >> 20)),
            ),
        ]
    }
}

impl fmt::Display for ApplyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} blocks of {} transactions, from {} outputs; {} records pruned\n",
            self.blocks,
            thousands(self.txs_per_block as u64),
            thousands(self.outputs_at_start),
            thousands(self.records_pruned)
        )?;
        writeln!(f, "{:<50} {:>16} {:>12}", "", "measured", "target")?;
        for row in self.rows() {
            let mark = match row.holds {
                Some(true) => "  ✓",
                Some(false) => "  ✗",
                None => "",
            };
            writeln!(f, "{:<50} {:>16} {:>12}{mark}", row.what, row.measured, row.target)?;
        }
        Ok(())
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

    #[test]
    fn numbers_are_readable() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1000), "1,000");
        assert_eq!(thousands(1_234_567), "1,234,567");
    }
}
