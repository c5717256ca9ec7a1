//! Places for connections that find no other: one request each, about health or with the admin token. So a peer that takes all ordinary
//! places shuts out neither a probe nor an operator.
//!
//! A place is held only until its request is answered. If all are taken, the oldest connection that has not shown that it belongs here makes
//! room for the next, so that connections that say nothing do not keep others out.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The reserved places.
#[derive(Debug)]
pub(super) struct Reserve {
    most: usize,
    taken: Mutex<VecDeque<Arc<Held>>>,
}

/// What is known about a connection in a reserved place.
#[derive(Debug, Default)]
struct Held {
    /// It sent a request that belongs here.
    belongs: AtomicBool,
    asked: Notify,
    evicted: Notify,
}

impl Reserve {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, taken: Mutex::default() })
    }

    /// Takes a place. `None` if all are held by requests that belong there.
    pub(super) fn take(self: &Arc<Self>) -> Option<ReservedPlace> {
        let mut taken = self.taken.lock();
        if taken.len() >= self.most {
            let stranger = taken.iter().position(|held| !held.belongs.load(Ordering::Acquire))?;
            if let Some(stranger) = taken.remove(stranger) {
                stranger.evicted.notify_one();
            }
        }
        let held = Arc::new(Held::default());
        taken.push_back(Arc::clone(&held));
        Some(ReservedPlace { reserve: Arc::clone(self), held })
    }
}

/// A reserved place that is taken.
#[derive(Debug)]
pub(super) struct ReservedPlace {
    reserve: Arc<Reserve>,
    held: Arc<Held>,
}

impl ReservedPlace {
    /// Notes that a request came, and whether it belongs here. The connection ends with it.
    pub(super) fn asked(&self, belongs: bool) {
        if belongs {
            self.held.belongs.store(true, Ordering::Release);
        }
        self.held.asked.notify_one();
    }

    /// Waits for a request.
    pub(super) async fn until_asked(&self) {
        self.held.asked.notified().await;
    }

    /// Waits until another connection needs the place.
    pub(super) async fn until_evicted(&self) {
        self.held.evicted.notified().await;
    }
}

impl Drop for ReservedPlace {
    fn drop(&mut self) {
        self.reserve.taken.lock().retain(|held| !Arc::ptr_eq(held, &self.held));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn m10_the_oldest_that_does_not_belong_makes_room() {
        let reserve = Reserve::new(2);
        let probe = reserve.take().unwrap();
        probe.asked(true);
        let silent = reserve.take().unwrap();
        let next = reserve.take().unwrap();
        silent.until_evicted().await;
        next.asked(true);
        assert!(reserve.take().is_none(), "who belongs there is not driven out");
        drop(silent);
        assert!(reserve.take().is_none(), "and a place is not given back twice");
        drop(probe);
        assert!(reserve.take().is_some());
    }
}
