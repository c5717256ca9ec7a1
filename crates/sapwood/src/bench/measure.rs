//! Measuring: times, memory, disk.

use std::{path::Path, time::Duration};

/// Times of something done many times.
#[derive(Default)]
pub(super) struct Times(Vec<Duration>);

impl Times {
    pub(super) fn add(&mut self, time: Duration) {
        self.0.push(time);
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn total(&self) -> Duration {
        self.0.iter().sum()
    }

    pub(super) fn mean_ms(&self) -> f64 {
        self.total().as_secs_f64() * 1000.0 / self.0.len().max(1) as f64
    }

    /// The time that so many percent did not exceed, in milliseconds.
    pub(super) fn percentile_ms(&self, percent: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
        sorted.get(at).map_or(0.0, |time| time.as_secs_f64() * 1000.0)
    }
}

/// The most memory this process has had, in bytes. Nothing where the system does not tell.
pub(super) fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// Bytes of all files below a directory. Files that vanish meanwhile do not count.
pub(crate) fn bytes_on_disk(directory: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes_on_disk(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_was_measured() {
        let mut times = Times::default();
        (1..=100).for_each(|ms| times.add(Duration::from_millis(ms)));
        assert_eq!(times.percentile_ms(50), 50.0);
        assert_eq!(times.percentile_ms(99), 99.0);
        assert_eq!(times.mean_ms(), 50.5);
        assert_eq!(Times::default().percentile_ms(50), 0.0);
    }
}
