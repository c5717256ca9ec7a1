//! A limited number of places, of which one peer gets only a share.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use parking_lot::Mutex;

/// Who counts as one peer: an address of version 4, or the 64 bits of an address of version 6 that belong to one network. `None`: unknown.
type PeerKey = Option<IpAddr>;

fn key(peer: Option<IpAddr>) -> PeerKey {
    peer.map(|peer| match peer.to_canonical() {
        IpAddr::V6(peer) => {
            let network = u128::from(peer) & !u128::from(u64::MAX);
            // All of loopback is one peer anyway.
            if peer.is_loopback() { peer.into() } else { Ipv6Addr::from(network).into() }
        }
        peer => peer,
    })
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// All places are taken.
    All,
    /// The peer has all it may have.
    OfThisPeer,
}

/// Places that can be taken.
#[derive(Debug)]
pub(crate) struct Places {
    most: usize,
    most_of_a_peer: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_peer: HashMap<PeerKey, usize>,
}

impl Places {
    /// So many places, of which one peer may have so many.
    pub(crate) fn new(most: usize, most_of_a_peer: usize) -> Arc<Self> {
        Arc::new(Self { most, most_of_a_peer, taken: Mutex::default() })
    }

    /// Takes a place until it is dropped. Peers that are not known are not limited to a share.
    pub(crate) fn take(self: &Arc<Self>, peer: Option<IpAddr>) -> Result<Place, Full> {
        let peer = key(peer);
        let mut taken = self.taken.lock();
        if taken.all >= self.most {
            return Err(Full::All);
        }
        let of_peer = taken.by_peer.entry(peer).or_default();
        if peer.is_some() && *of_peer >= self.most_of_a_peer {
            return Err(Full::OfThisPeer);
        }
        *of_peer += 1;
        taken.all += 1;
        Ok(Place { places: Arc::clone(self), peer })
    }
}

/// A place that is taken.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    peer: PeerKey,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        taken.all -= 1;
        if let Some(of_peer) = taken.by_peer.get_mut(&self.peer) {
            *of_peer -= 1;
            if *of_peer == 0 {
                taken.by_peer.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m10_one_peer_gets_only_its_share() {
        let places = Places::new(5, 3);
        let peer = |text: &str| Some(text.parse::<IpAddr>().unwrap());
        let (a, b) = (peer("2001:db8::1"), peer("192.0.2.1"));
        let mut of_a: Vec<Place> = (0..3).map(|_| places.take(a).unwrap()).collect();
        // Another address of the same network is the same peer, and so is an address of version 4 in other clothes.
        assert_eq!(places.take(peer("2001:db8::2")).unwrap_err(), Full::OfThisPeer);
        let of_b = [places.take(b).unwrap(), places.take(peer("::ffff:192.0.2.1")).unwrap()];
        assert_eq!(places.take(peer("192.0.2.2")).unwrap_err(), Full::All);
        of_a.pop();
        drop(places.take(peer("192.0.2.2")).unwrap());
        drop(of_b);
        drop(of_a);
        let taken = places.taken.lock();
        assert_eq!((taken.all, taken.by_peer.len()), (0, 0), "nothing is left behind");
    }
}
