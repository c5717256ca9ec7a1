//! Saying something now and then, however often it happens.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How long it is quiet after something was said.
const QUIET: Duration = Duration::from_secs(60);

/// Lets the first of many equal messages through, and then one a minute, so that whoever floods the server does not flood the log.
#[derive(Debug, Default)]
pub(crate) struct Seldom(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    said: Option<Instant>,
    happened: u64,
}

impl Seldom {
    /// Notes that it happened. How often it has happened since it was last said, if it should be said now.
    pub(crate) fn say(&self) -> Option<u64> {
        self.say_at(Instant::now())
    }

    fn say_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock();
        state.happened += 1;
        if state.said.is_some_and(|said| now.duration_since(said) < QUIET) {
            return None;
        }
        state.said = Some(now);
        Some(std::mem::take(&mut state.happened))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_once_a_minute_with_how_often_it_happened() {
        let (seldom, start) = (Seldom::default(), Instant::now());
        assert_eq!(seldom.say_at(start), Some(1));
        for _ in 0..9 {
            assert_eq!(seldom.say_at(start + QUIET / 2), None);
        }
        assert_eq!(seldom.say_at(start + QUIET), Some(10));
    }
}
