//! Saying something now and then, however often it happens.

use std::{
    collections::HashMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// How long it is quiet after something was said.
const QUIET: Duration = Duration::from_secs(60);

/// How many peers are told apart.
const PEERS: usize = 64;

/// Lets the first of many equal messages through, and then one a minute, so that a flood of requests does not flood the log.
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

    /// Whether something was said of it less than a minute ago.
    fn is_quiet(&self, now: Instant) -> bool {
        self.0.lock().said.is_some_and(|said| now.duration_since(said) < QUIET)
    }
}

/// The same for each peer, so that a flood from one does not hide another. At most 64 are told apart; all others count as one.
#[derive(Debug, Default)]
pub(crate) struct SeldomByPeer {
    peers: Mutex<HashMap<IpAddr, Seldom>>,
    others: Seldom,
}

impl SeldomByPeer {
    /// Notes that it happened. How often it has happened since it was last said of this peer, if it should be said now.
    pub(crate) fn say(&self, peer: Option<IpAddr>) -> Option<u64> {
        self.say_at(peer, Instant::now())
    }

    fn say_at(&self, peer: Option<IpAddr>, now: Instant) -> Option<u64> {
        let Some(peer) = peer else { return self.others.say_at(now) };
        let mut peers = self.peers.lock();
        if peers.len() >= PEERS && !peers.contains_key(&peer) {
            peers.retain(|_, seldom| seldom.is_quiet(now));
            if peers.len() >= PEERS {
                return self.others.say_at(now);
            }
        }
        peers.entry(peer).or_default().say_at(now)
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

    #[test]
    fn l18_a_flood_from_one_peer_hides_no_other_and_many_peers_do_not_flood_the_log() {
        let (seldom, start) = (SeldomByPeer::default(), Instant::now());
        let peer = |number: u32| Some(IpAddr::from(number.to_be_bytes()));
        assert_eq!(seldom.say_at(peer(1), start), Some(1));
        assert_eq!(seldom.say_at(peer(1), start), None);
        assert_eq!(seldom.say_at(peer(2), start), Some(1));
        let said = (0..100_000).filter(|number| seldom.say_at(peer(*number), start).is_some()).count();
        assert!(said <= PEERS, "{said}");
        assert!(seldom.peers.lock().len() <= PEERS);
        assert_eq!(seldom.say_at(peer(77_777), start + QUIET), Some(1), "room is made for new ones");
    }
}
