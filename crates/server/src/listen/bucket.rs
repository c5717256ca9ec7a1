//! How many requests one connection may send.

use std::time::Instant;

use parking_lot::Mutex;

/// A bucket that holds a second's worth of requests and fills at that rate.
#[derive(Debug)]
pub(super) struct Bucket {
    per_second: u32,
    state: Mutex<(f64, Instant)>,
}

impl Bucket {
    pub(super) fn new(per_second: u32, now: Instant) -> Self {
        Self { per_second, state: Mutex::new((f64::from(per_second), now)) }
    }

    pub(super) fn per_second(&self) -> u32 {
        self.per_second
    }

    /// Takes one request out, if there is one.
    pub(super) fn take(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        let (left, filled) = *state;
        let size = f64::from(self.per_second);
        let left = (left + now.saturating_duration_since(filled).as_secs_f64() * size).min(size);
        let taken = left >= 1.0;
        *state = (if taken { left - 1.0 } else { left }, now.max(filled));
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_is_taken_and_then_the_rate_counts() {
        let start = Instant::now();
        let bucket = Bucket::new(10, start);
        let taken = |at: Instant| (0..100).filter(|_| bucket.take(at)).count();
        assert_eq!(taken(start), 10);
        assert_eq!(taken(start + Duration::from_millis(500)), 5);
        assert_eq!(taken(start + Duration::from_millis(550)), 0, "half a request is none");
        assert_eq!(taken(start + Duration::from_millis(600)), 1, "and is not lost");
        assert_eq!(taken(start + Duration::from_secs(60)), 10, "it never holds more than a second's worth");
    }
}
