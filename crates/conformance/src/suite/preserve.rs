//! Preservation: an extra layer that keeps records, and what its end does.

use sapwood_rules::{KeepReason, Verdict};
use sapwood_types::{Height, Tx};

use super::{StoreFactory, Subject};
use crate::fixtures::*;

/// Parents of old unmined transactions are preserved: of transactions unmined since 1, 3, 5, 6 … 10, at height 10 with a
/// retention of 5, exactly three are old. Doing it again does the same.
pub async fn parents_of_old_unmined_are_preserved(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let (current, retention) = (10, 5);
    let mut families = Vec::new();
    for height in [1, 3, 5, 6, 7, 8, 9, 10] {
        let parent = coin(&format!("parent {height}"), 1);
        let tx = child(&format!("unmined since {height}"), &[(&parent, 0)], 1);
        s.add_mined(&parent, 0).await;
        s.add(&tx, height).await;
        families.push((parent, tx));
    }
    for round in 0..2 {
        let old = s.old_unmined_all(Height(current - retention)).await;
        let expected: Vec<_> = families[..3].iter().map(|(_, tx)| tx.txid).collect();
        assert_eq!(old, expected, "round {round}");
        let parents: Vec<_> = families[..3].iter().map(|(parent, _)| parent).collect();
        assert_eq!(s.keep(&parents, current + 20).await, 3, "round {round}");
        for (number, (parent, _)) in families.iter().enumerate() {
            let until = (number < 3).then_some(Height(30));
            assert_eq!(s.head(parent).await.preserve_until, until, "round {round}, parent {number}");
        }
    }
    s.sound().await;
}

/// The greater height wins, whatever the order; absent ones are skipped and not made.
pub async fn the_greater_height_wins_and_absent_ones_are_skipped(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let (tx, absent) = (coin("tx", 1), coin("absent", 1));
    s.add_mined(&tx, 1).await;
    assert_eq!(s.keep(&[&absent, &tx], 20).await, 1);
    assert_eq!(s.keep(&[&tx], 15).await, 1);
    assert_eq!(s.head(&tx).await.preserve_until, Some(Height(20)), "a shorter promise does not shorten it");
    assert_eq!(s.keep(&[&tx], 25).await, 1);
    assert_eq!(s.head(&tx).await.preserve_until, Some(Height(25)));
    assert_eq!(s.keep(&[&absent], 25).await, 0);
    assert!(!s.has(&absent).await);
    s.sound().await;
}

async fn ends(s: &Subject, height: u32, limit: usize) -> usize {
    s.expire_preservations(Height(height), limit).await.expect("expire").worked_off
}

/// A preservation ends at its height, not before, and only once.
pub async fn a_preservation_ends_at_its_height(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let tx = coin("tx", 1);
    s.add_mined(&tx, 1).await;
    s.keep(&[&tx], 20).await;
    assert_eq!(ends(&s, 19, 100).await, 0);
    assert_eq!(s.head(&tx).await.preserve_until, Some(Height(20)));
    assert_eq!(ends(&s, 20, 100).await, 1);
    assert_eq!(s.head(&tx).await.preserve_until, None);
    assert_eq!(ends(&s, 1_000, 100).await, 0);
    s.sound().await;
}

/// The lowest end first and then by id, at most as many as asked for; what is left comes next time.
pub async fn preservations_end_lowest_first_up_to_the_limit(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let mut txs: Vec<Tx> = (0..9).map(|number| coin(&format!("tx {number}"), 1)).collect();
    let until = |number: usize| 30 - (number as u32 / 3) * 5;
    for (number, tx) in txs.iter().enumerate() {
        s.add_mined(tx, 1).await;
        s.keep(&[tx], until(number)).await;
    }
    let mut order: Vec<_> =
        txs.drain(..).enumerate().map(|(number, tx)| (until(number), tx.txid, tx)).collect();
    order.sort_by_key(|(until, txid, _)| (*until, *txid));
    let preserved = async || {
        let mut left = Vec::new();
        for (_, txid, tx) in &order {
            if s.head(tx).await.preserve_until.is_some() {
                left.push(*txid);
            }
        }
        left
    };
    let rest = |from: usize| order[from..].iter().map(|(_, txid, _)| *txid).collect::<Vec<_>>();
    assert_eq!(ends(&s, 30, 4).await, 4);
    assert_eq!(preserved().await, rest(4));
    assert_eq!(ends(&s, 25, 100).await, 2, "those until 25 that are left");
    assert_eq!(preserved().await, rest(6));
    assert_eq!(ends(&s, 30, 3).await, 3);
    assert_eq!(preserved().await, []);
    s.sound().await;
}

/// What becomes of a record at the end of its preservation follows from its content: dead records are due since they
/// settled, live ones are not, with each reason of its own.
pub async fn the_end_of_a_preservation_rechecks_everything(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let (dead, partly, waiting) = (coin("dead", 1), coin("partly", 2), coin("waiting", 1));
    for tx in [&dead, &partly, &waiting] {
        s.add_mined(tx, 1).await;
    }
    let (unmined, fork) = (coin("unmined", 1), coin("fork", 1));
    s.add(&unmined, 1).await;
    s.add(&fork, 1).await;
    s.try_mine(&fork, forked_in(77, 2), false, 2).await.expect("a fork");
    s.add_mined(&burn("spender", &[(&dead, 0), (&partly, 0), (&fork, 0)]), 3).await;
    let child_of_waiting = child("child", &[(&waiting, 0)], 1);
    s.add(&child_of_waiting, 3).await;
    let loser = coin("loser", 1);
    s.add_loser(&loser, 4).await;
    let all = [&dead, &partly, &waiting, &unmined, &fork, &loser];
    assert_eq!(s.keep(&all, 50).await, 6);
    for tx in all {
        assert_eq!(s.settled(tx).await, None, "nothing that is preserved is due");
        let preserved = Verdict::Kept(KeepReason::Preserved { until: Height(50) });
        assert_eq!(s.verdict(tx, 49).await, preserved);
    }
    assert_eq!(s.prune(49).await.len(), 1, "only the spender, which nobody preserved");
    assert_eq!(ends(&s, 50, 100).await, 6);
    let mut settled = Vec::new();
    for tx in all {
        settled.push(s.settled(tx).await);
    }
    assert_eq!(settled, [Some(3), None, None, None, None, Some(4)]);
    let kept = |reason| Verdict::Kept(reason);
    assert_eq!(s.verdict(&partly, 99).await, kept(KeepReason::Unspent { outputs: 1, first: Some(1) }));
    let child = Some(child_of_waiting.txid);
    assert_eq!(s.verdict(&waiting, 99).await, kept(KeepReason::ChildUnmined { child }));
    assert_eq!(s.verdict(&unmined, 99).await, kept(KeepReason::Unmined { since: Height(1) }));
    assert_eq!(s.verdict(&fork, 99).await, kept(KeepReason::Unmined { since: Height(1) }));
    assert_eq!(s.prune(99).await, ids(&[&dead, &loser]));
    s.sound().await;
}

/// What happens while a record is preserved counts when the preservation ends.
pub async fn what_happened_meanwhile_counts_at_the_end(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 1);
    s.add_mined(&parent, 1).await;
    s.keep(&[&parent], 100).await;
    let tx = child("tx", &[(&parent, 0)], 1);
    s.add(&tx, 2).await;
    s.mine(&tx, 60).await;
    assert_eq!(s.settled(&parent).await, None);
    assert_eq!(ends(&s, 100, 10).await, 1);
    assert_eq!(s.settled(&parent).await, Some(60), "the height of the last event, not of the expiry");
    assert_eq!(s.prune(100).await, [parent.txid]);
    s.sound().await;
}

/// A preserved record that is deleted by its owner takes its preservation with it.
pub async fn a_forgotten_record_takes_its_preservation_with_it(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let tx = coin("tx", 1);
    s.add(&tx, 1).await;
    s.keep(&[&tx], 10).await;
    s.delete(vec![tx.txid]).await.expect("an unmined transaction may be forgotten");
    assert_eq!(ends(&s, 10, 10).await, 0);
    s.add(&tx, 2).await;
    assert_eq!(s.head(&tx).await.preserve_until, None, "made anew it is not preserved");
    assert_eq!(s.counts().await.map(|counts| counts.records), Ok(1));
    s.sound().await;
}

/// A preservation can be taken back by who knows exactly how far it goes; one that somebody else has made longer stays. A store
/// that ends none is fine too, but then none may have ended.
pub async fn whoever_preserved_can_end_it_and_nobody_elses(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let (mine, longer, absent) = (burn("mine", &[]), burn("longer", &[]), coin("absent", 1));
    for tx in [&mine, &longer] {
        s.add_mined(tx, 1).await;
    }
    assert_eq!(s.keep(&[&mine, &longer], 20).await, 2);
    assert_eq!(s.keep(&[&longer], 30).await, 1);
    let mine_until_20 =
        || vec![(mine.txid, Height(20)), (longer.txid, Height(20)), (absent.txid, Height(20))];
    let ended = s.end_preservations(mine_until_20()).await.expect("end");
    assert!(ended <= 1, "{ended} ended");
    let left = if ended == 1 { None } else { Some(Height(20)) };
    assert_eq!(s.head(&mine).await.preserve_until, left);
    assert_eq!(
        s.settled(&mine).await,
        (ended == 1).then_some(1),
        "what becomes of it follows from its content"
    );
    assert_eq!(s.head(&longer).await.preserve_until, Some(Height(30)));
    assert!(!s.has(&absent).await);
    assert_eq!(s.end_preservations(mine_until_20()).await, Ok(0), "only once");
    s.sound().await;
}
