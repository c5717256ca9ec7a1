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
    peak_rss_bytes_in("/proc/self/status")
}

/// The most memory that another process has had so far, in bytes. `None` if it has ended.
pub(super) fn peak_rss_bytes_of(process: u32) -> Option<u64> {
    peak_rss_bytes_in(&format!("/proc/{process}/status"))
}

fn peak_rss_bytes_in(path: &str) -> Option<u64> {
    let status = std::fs::read_to_string(path).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// Resets [`peak_rss_bytes`], so that it tells the most memory from now on. Without effect where the system does not allow it.
pub(super) fn reset_peak_rss() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// What the kernel counts processor time in, per second. It is the same on every Linux.
const TICKS_PER_SECOND: u64 = 100;

/// The processor time of all threads of this process so far, those that have ended included. Zero where the system does not tell.
pub(super) fn cpu_time() -> Duration {
    ticks("/proc/self/stat", [13, 14])
}

/// The processor time of all processes that this one has started and waited for.
pub(super) fn children_cpu_time() -> Duration {
    ticks("/proc/self/stat", [15, 16])
}

/// Sums up two fields of a file that counts ticks, numbered from 0.
fn ticks(path: &str, fields: [usize; 2]) -> Duration {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // The name of the command is in parentheses and may have spaces.
    let behind_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = |number: usize| behind_name.split_whitespace().nth(number - 2)?.parse::<u64>().ok();
    let ticks: u64 = fields.into_iter().filter_map(field).sum();
    Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)
}

/// The processor time of this thread so far. Zero where the system does not tell.
pub(super) fn thread_cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split_whitespace().next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

/// Bytes that this process has written to files so far, whether they have reached the device or not.
pub(super) fn written_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("wchar:"));
    line.and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(0)
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
    fn processor_time_is_that_of_all_threads() {
        let (all, own) = (cpu_time(), thread_cpu_time());
        let spin = || while thread_cpu_time() < Duration::from_millis(60) {};
        std::thread::spawn(spin).join().unwrap();
        let (all, own) = (cpu_time() - all, thread_cpu_time() - own);
        assert!(all >= Duration::from_millis(40), "{all:?}");
        assert!(own < Duration::from_millis(30), "{own:?}");
    }

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
