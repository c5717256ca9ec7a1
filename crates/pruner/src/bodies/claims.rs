//! Who works on which bodies.
//!
//! Whoever puts a body and then writes its record, and whoever deletes a body and then its record, claims it for as long as that takes.
//! Otherwise a body could be put and deleted in the order that leaves a record without one.

use std::{collections::HashSet, sync::Arc};

use parking_lot::Mutex;
use sapwood_types::TxId;
use tokio::sync::Notify;

/// Bodies that somebody works on.
#[derive(Clone, Default)]
pub(crate) struct Claims(Arc<Shared>);

#[derive(Default)]
struct Shared {
    claimed: Mutex<HashSet<TxId>>,
    released: Notify,
}

/// Claimed bodies, until it is dropped.
pub(crate) struct Claim {
    of: Claims,
    txids: Vec<TxId>,
}

impl Claims {
    /// Waits until none of these is claimed, and claims them all at once: two who want some of the same never wait for each other.
    pub(crate) async fn claim(&self, mut txids: Vec<TxId>) -> Claim {
        txids.sort_unstable();
        txids.dedup();
        loop {
            // Made before looking, so that a release in between is not missed.
            let released = self.0.released.notified();
            if self.try_claim(&txids) {
                return Claim { of: self.clone(), txids };
            }
            released.await;
        }
    }

    fn try_claim(&self, txids: &[TxId]) -> bool {
        let mut claimed = self.0.claimed.lock();
        let free = !txids.iter().any(|txid| claimed.contains(txid));
        if free {
            claimed.extend(txids);
        }
        free
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut claimed = self.of.0.claimed.lock();
        self.txids.iter().for_each(|txid| _ = claimed.remove(txid));
        drop(claimed);
        self.of.0.released.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_wants_the_same_waits_and_nobody_else_does() {
        let claims = Claims::default();
        let [one, two, three] = [1, 2, 3].map(|id| TxId([id; 32]));
        let first = claims.claim(vec![one, two, one]).await;
        let other = claims.claim(vec![three]).await;
        let waiting = tokio::spawn({
            let claims = claims.clone();
            async move { claims.claim(vec![two, three]).await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(first);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "half of it is not enough");
        drop(other);
        let claimed = waiting.await.unwrap();
        assert!(!claims.try_claim(&[two]) && claims.try_claim(&[one]));
        drop(claimed);
        assert!(claims.try_claim(&[two, three]));
    }
}
