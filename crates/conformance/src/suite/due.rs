//! When a record is due: what settles it, and what takes that back.

use sapwood_ledger::{Counts, CreateRequest, DueRecord, RollbackMode};
use sapwood_rules::{KeepReason, Verdict};
use sapwood_types::{External, Height, Tx};

use super::{StoreFactory, Subject, all_pages};
use crate::fixtures::*;

fn kept(reason: KeepReason) -> Verdict {
    Verdict::Kept(reason)
}

/// A transaction with two outputs, mined at 10 or not.
async fn parent(factory: &dyn StoreFactory, mined: bool) -> (Subject, Tx) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 2);
    if mined {
        s.add_mined(&parent, 10).await
    } else {
        s.add(&parent, 10).await
    };
    (s, parent)
}

/// All outputs spent by mined transactions, but itself unmined: not due.
pub async fn fully_spent_but_unmined_is_not_due(factory: &dyn StoreFactory) {
    let (s, parent) = parent(factory, false).await;
    s.add_mined(&child("a", &[(&parent, 0), (&parent, 1)], 1), 11).await;
    assert_eq!(s.settled(&parent).await, None);
    assert_eq!(s.verdict(&parent, 1_000).await, kept(KeepReason::Unmined { since: Height(10) }));
    s.sound().await;
}

/// Mined, but one output is left: not due.
pub async fn mined_but_partly_spent_is_not_due(factory: &dyn StoreFactory) {
    let (s, parent) = parent(factory, true).await;
    s.add_mined(&child("a", &[(&parent, 0)], 1), 11).await;
    assert_eq!(s.settled(&parent).await, None);
    assert_eq!(s.verdict(&parent, 1_000).await, kept(KeepReason::Unspent { outputs: 1, first: Some(1) }));
    s.sound().await;
}

/// Mined, and every output spent by a mined transaction: settled at the latest of all these heights, and due when the
/// retention has passed since.
pub async fn mined_and_fully_spent_is_due_after_the_latest_event(factory: &dyn StoreFactory) {
    let (s, parent) = parent(factory, true).await;
    let late = child("late", &[(&parent, 0)], 1);
    s.add_mined(&late, 17).await;
    s.add_mined(&child("early", &[(&parent, 1)], 1), 11).await;
    assert_eq!(s.settled(&parent).await, Some(17));
    let unstable =
        KeepReason::ChildUnstable { child: Some(late.txid), mined_at: Height(17), stable_at: Height(22) };
    assert_eq!(s.verdict(&parent, 21).await, kept(unstable));
    assert_eq!(s.verdict(&parent, 22).await, Verdict::MayGo { due_at: Height(22) });
    assert_eq!(s.prune(21).await, []);
    assert_eq!(s.prune(22).await, [parent.txid]);
    assert_eq!(s.verdict(&parent, 22).await, Verdict::Gone);
    s.sound().await;
}

/// Mined after it was spent: its own height counts too.
pub async fn spent_first_and_mined_later_is_due_after_its_own_block(factory: &dyn StoreFactory) {
    let (s, parent) = parent(factory, false).await;
    s.add_mined(&child("a", &[(&parent, 0), (&parent, 1)], 1), 11).await;
    s.mine(&parent, 20).await;
    assert_eq!(s.settled(&parent).await, Some(20));
    let young = KeepReason::TooYoung { settled_at: Height(20), due_at: Height(25) };
    assert_eq!(s.verdict(&parent, 24).await, kept(young));
    assert!(s.verdict(&parent, 25).await.may_go());
    s.sound().await;
}

/// In several blocks of the longest chain: the greatest height counts, for the record itself as for its parents.
pub async fn of_several_own_blocks_the_greatest_counts(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let tx = burn("tx", &[]);
    s.add_mined(&tx, 10).await;
    s.mine(&tx, 14).await;
    s.mine(&tx, 12).await;
    assert_eq!(s.settled(&tx).await, Some(14));
    s.unmine(&tx, 14, 15).await;
    assert_eq!(s.settled(&tx).await, Some(12));
    assert_eq!(s.prune(16).await, []);
    assert_eq!(s.prune(17).await, [tx.txid]);
    s.sound().await;
}

/// A child that is not mined keeps its parent, by name, however long it takes.
pub async fn an_unmined_child_keeps_its_parent(factory: &dyn StoreFactory) {
    let (s, parent) = parent(factory, true).await;
    let (a, b) = (child("a", &[(&parent, 0)], 1), child("b", &[(&parent, 1)], 1));
    s.add_mined(&a, 11).await;
    s.add(&b, 11).await;
    assert_eq!(s.settled(&parent).await, None);
    let reason = KeepReason::ChildUnmined { child: Some(b.txid) };
    assert_eq!(s.verdict(&parent, u32::MAX).await, kept(reason));
    s.mine(&b, 400).await;
    assert_eq!(s.settled(&parent).await, Some(400));
    s.unmine(&a, 11, 401).await;
    assert_eq!(s.settled(&parent).await, None, "any child that is unmined again takes it back");
    s.sound().await;
}

/// Mined on a fork only: not due, for the record itself and for its child alike.
pub async fn mined_on_a_fork_is_not_due(factory: &dyn StoreFactory) {
    let (s, parent) = parent(factory, false).await;
    s.try_mine(&parent, forked_in(3, 10), false, 10).await.expect("a fork");
    let a = child("a", &[(&parent, 0), (&parent, 1)], 1);
    s.add_mined(&a, 11).await;
    assert_eq!(s.settled(&parent).await, None);
    s.try_longest(&parent, true, 12).await.expect("on the longest chain");
    assert_eq!(s.settled(&parent).await, Some(11));
    s.try_longest(&a, false, 13).await.expect("the child is on a fork");
    assert_eq!(s.settled(&parent).await, None);
    assert_eq!(s.prune(1_000).await, []);
    s.sound().await;
}

/// A spend that is taken back makes the output live again, and its transaction with it.
pub async fn unspend_takes_it_back(factory: &dyn StoreFactory) {
    let (s, parent) = parent(factory, true).await;
    let a = child("a", &[(&parent, 0), (&parent, 1)], 1);
    s.add_mined(&a, 11).await;
    assert_eq!(s.settled(&parent).await, Some(11));
    s.unmine(&a, 11, 12).await;
    s.give_back(op(&parent, 1), by(&a, 1)).await.expect("unspend");
    assert_eq!(s.settled(&parent).await, None);
    let unspent = KeepReason::Unspent { outputs: 1, first: Some(1) };
    assert_eq!(s.verdict(&parent, 1_000).await, kept(unspent));
    s.sound().await;
}

/// A loser is due when the retention has passed since it lost, spent or not.
pub async fn a_loser_is_due_after_it_lost(factory: &dyn StoreFactory) {
    let (s, parent) = parent(factory, false).await;
    s.try_conflicting(&parent, true, 30).await.expect("lose");
    assert_eq!(s.settled(&parent).await, Some(30));
    let young = KeepReason::TooYoung { settled_at: Height(30), due_at: Height(35) };
    assert_eq!(s.verdict(&parent, 34).await, kept(young));
    assert_eq!(s.prune(35).await, [parent.txid]);
    s.sound().await;
}

/// A frozen output of a loser keeps it: somebody has a claim on it.
pub async fn a_frozen_output_keeps_a_loser(factory: &dyn StoreFactory) {
    let (s, parent) = parent(factory, false).await;
    s.try_conflicting(&parent, true, 30).await.expect("lose");
    s.freeze(vec![op(&parent, 1)]).await.expect("freeze");
    assert_eq!(s.settled(&parent).await, None);
    assert_eq!(s.verdict(&parent, 1_000).await, kept(KeepReason::ConflictStillNeeded { claimed: 1 }));
    s.unfreeze(vec![op(&parent, 1)]).await.expect("unfreeze");
    assert_eq!(s.settled(&parent).await, Some(30));
    s.sound().await;
}

/// A preserved record is not due, whatever else is true of it.
pub async fn preserved_is_not_due(factory: &dyn StoreFactory) {
    let (s, parent) = parent(factory, true).await;
    let a = child("a", &[(&parent, 0), (&parent, 1)], 1);
    s.add_mined(&a, 11).await;
    s.keep(&[&parent], 20).await;
    assert_eq!(s.settled(&parent).await, None);
    let preserved = kept(KeepReason::Preserved { until: Height(20) });
    assert_eq!(s.verdict(&parent, 19).await, preserved);
    assert_eq!(s.verdict(&parent, 1_000).await, preserved, "until its end is declared");
    s.unmine(&a, 11, 12).await;
    s.mine(&a, 12).await;
    assert_eq!(s.settled(&parent).await, None, "events do not end it");
    s.sound().await;
}

/// A lock keeps a record, and letting go of it gives the old height back.
pub async fn locked_is_not_due(factory: &dyn StoreFactory) {
    let (s, parent) = parent(factory, true).await;
    s.add_mined(&child("a", &[(&parent, 0), (&parent, 1)], 1), 11).await;
    s.set_locked(vec![parent.txid], true).await.expect("lock");
    assert_eq!(s.settled(&parent).await, None);
    assert_eq!(s.verdict(&parent, 1_000).await, kept(KeepReason::Locked));
    s.set_locked(vec![parent.txid], false).await.expect("unlock");
    assert_eq!(s.settled(&parent).await, Some(11), "the height at which it settled, not that of the unlock");
    s.sound().await;
}

/// A frozen output is a live one.
pub async fn a_frozen_output_keeps_its_transaction(factory: &dyn StoreFactory) {
    let (s, parent) = parent(factory, true).await;
    s.freeze(vec![op(&parent, 0)]).await.expect("freeze");
    s.add_mined(&child("a", &[(&parent, 1)], 1), 11).await;
    assert_eq!(s.settled(&parent).await, None);
    assert_eq!(s.verdict(&parent, 1_000).await, kept(KeepReason::Unspent { outputs: 1, first: Some(0) }));
    s.sound().await;
}

/// Data outputs keep nothing. A store that counted them never deleted any transaction that carries data.
pub async fn data_outputs_never_keep_a_record(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let only_data = burn("only data", &[]);
    let mut mixed = coin("mixed", 2);
    mixed.outputs[0] = data_output();
    s.add_mined(&only_data, 10).await;
    s.add_mined(&mixed, 10).await;
    assert_eq!(s.settled(&only_data).await, Some(10), "nothing of it can ever be spent");
    assert_eq!(s.settled(&mixed).await, None);
    s.add_mined(&child("a", &[(&mixed, 1)], 1), 12).await;
    assert_eq!(s.settled(&mixed).await, Some(12));
    assert_eq!(s.prune(17).await, ids(&[&only_data, &mixed]));
    s.sound().await;
}

/// Maturity does not make a coinbase due: a mature coinbase is a live coin.
pub async fn coinbase_maturity_does_not_make_due(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let tx = coinbase("tx", 1);
    s.add_mined(&tx, 10).await;
    assert_eq!(s.settled(&tx).await, None);
    assert_eq!(s.verdict(&tx, 1_000).await, kept(KeepReason::Unspent { outputs: 1, first: Some(0) }));
    assert_eq!(s.prune(1_000).await, []);
    s.sound().await;
}

/// With a retention of 0 nothing ever goes.
pub async fn retention_zero_keeps_everything(factory: &dyn StoreFactory) {
    let policy = sapwood_rules::Policy { retention: 0, ..small() };
    let s = Subject::new(factory, policy).await;
    let tx = burn("tx", &[]);
    s.add_mined(&tx, 10).await;
    assert_eq!(s.settled(&tx).await, Some(10));
    assert_eq!(s.verdict(&tx, u32::MAX).await, kept(KeepReason::RetentionOff));
    let judged = s.try_prune(&[&tx], u32::MAX, &[]).await;
    assert_eq!(judged[0].verdict, kept(KeepReason::RetentionOff));
    assert!(s.has(&tx).await);
    s.sound().await;
}

/// A verdict comes with where the body lives and how large the record is, for each one asked about, in order.
pub async fn verdicts_come_in_order_with_body_and_size(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let (a, b, absent) = (burn("a", &[]), coin("b", 300), coin("absent", 1));
    let external =
        CreateRequest { external: Some(External::Outputs), ..CreateRequest::mined(a.clone(), 1, Height(1)) };
    s.try_add(external, 1).await.expect("create");
    s.add_mined(&b, 1).await;
    let before = s.digest().await;
    let txids = vec![b.txid, absent.txid, a.txid];
    let judged = s.judge(txids.clone(), context(6, 5, &[]), true).await.expect("judge");
    assert_eq!(judged.iter().map(|judged| judged.txid).collect::<Vec<_>>(), txids);
    assert_eq!(judged[0].verdict, kept(KeepReason::Unspent { outputs: 300, first: Some(0) }));
    assert_eq!((&judged[1].verdict, judged[1].external), (&Verdict::Gone, None));
    assert_eq!(judged[2].verdict, Verdict::MayGo { due_at: Height(6) });
    assert_eq!((judged[0].external, judged[2].external), (None, Some(External::Outputs)));
    assert!(judged[0].bytes > 300 * 10 && judged[2].bytes > 0, "all pages are counted: {judged:?}");
    s.assert_unchanged(before, "judging").await;
    s.sound().await;
}

/// Due records come by height, none above the height asked for, in pages that miss none and repeat none. In which order those of one
/// height come is not promised.
pub async fn due_is_listed_by_height(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let mut expected = Vec::new();
    for number in 0..60 {
        let tx = burn(&format!("tx {number}"), &[]);
        let height = 100 + number % 7;
        s.add_mined(&tx, height).await;
        expected.push(DueRecord { settled_at: Height(height), txid: tx.txid });
    }
    let in_order = |mut entries: Vec<DueRecord>| {
        assert!(entries.is_sorted_by_key(|entry| entry.settled_at), "{entries:?}");
        entries.sort_by_key(|entry| (entry.settled_at, entry.txid));
        entries
    };
    expected.sort_by_key(|entry| (entry.settled_at, entry.txid));
    let up_to = |height: u32| {
        let wanted = |entry: &&DueRecord| entry.settled_at.0 <= height;
        expected.iter().filter(wanted).copied().collect::<Vec<_>>()
    };
    for limit in [1, 2, 7, 59, 60, 61, usize::MAX] {
        let found = all_pages(limit, |after| s.due(Height::MAX, after, limit)).await;
        assert_eq!(in_order(found), expected, "in pages of {limit}");
        let found = all_pages(limit, |after| s.due(Height(103), after, limit)).await;
        assert_eq!(in_order(found), up_to(103), "up to a height, in pages of {limit}");
    }
    assert_eq!(s.due(Height(99), None, 10).await.map(|page| page.items), Ok(vec![]));
    s.sound().await;
}

/// A cursor holds its place while records before, at and after it come and go.
pub async fn a_due_cursor_survives_changes(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let txs: Vec<_> = (0..10).map(|number| burn(&format!("tx {number}"), &[])).collect();
    for (height, tx) in (10..).zip(&txs) {
        s.add_mined(tx, height).await;
    }
    let first = s.due(Height::MAX, None, 4).await.expect("due");
    let listed = |items: &[DueRecord]| items.iter().map(|entry| entry.settled_at.0).collect::<Vec<_>>();
    assert_eq!(listed(&first.items), [10, 11, 12, 13]);
    let gone = s.try_prune(&[&txs[0], &txs[3]], 100, &[]).await;
    assert!(
        gone.iter().all(|judged| judged.verdict.may_go()),
        "one before the cursor and the one it stands on"
    );
    s.keep(&[&txs[5]], 50).await;
    s.add_mined(&burn("before", &[]), 9).await;
    s.add_mined(&burn("after", &[]), 16).await;
    let rest = all_pages(3, |after| s.due(Height::MAX, after.or(first.next.clone()), 3)).await;
    assert_eq!(listed(&rest), [14, 16, 16, 17, 18, 19], "15 is preserved, and 9 lies before the cursor");
    assert_eq!(s.counts().await.map(|counts| counts.records), Ok(10));
    s.sound().await;
}

/// Records retained because of a lock, a preservation and an unmined child, and those that settled at any height.
async fn retained(s: &Subject) -> (u64, u64, u64, u64) {
    let Counts { locked, preserved, child_unmined, .. } = s.counts().await.expect("counts");
    (locked, preserved, child_unmined, settled(s, 0, u32::MAX).await)
}

async fn settled(s: &Subject, from: u32, to: u32) -> u64 {
    s.settled_between(Height(from), Height(to)).await.expect("how many settled")
}

/// What retains a record is counted with each change, under the one reason that judging it gives.
pub async fn what_retains_records_is_counted_by_reason(factory: &dyn StoreFactory) {
    let (s, parent) = parent(factory, true).await;
    assert_eq!(retained(&s).await, (0, 0, 0, 0), "unspent");
    s.add(&child("a", &[(&parent, 0)], 1), 11).await;
    assert_eq!(retained(&s).await, (0, 0, 0, 0), "one output is unspent");
    let last = child("b", &[(&parent, 1)], 1);
    s.add(&last, 11).await;
    assert_eq!(retained(&s).await, (0, 0, 1, 0));
    s.mine(&child("a", &[(&parent, 0)], 1), 12).await;
    assert_eq!(retained(&s).await, (0, 0, 1, 0), "one child is unmined");
    s.set_locked(vec![parent.txid], true).await.expect("locking");
    assert_eq!(retained(&s).await, (1, 0, 0, 0));
    s.keep(&[&parent], 30).await;
    assert_eq!(retained(&s).await, (1, 0, 0, 0), "one reason at a time");
    s.set_locked(vec![parent.txid], false).await.expect("unlocking");
    assert_eq!(retained(&s).await, (0, 1, 0, 0));
    s.mine(&last, 14).await;
    assert_eq!(retained(&s).await, (0, 1, 0, 0));
    s.expire_preservations(Height(30), 10).await.expect("expiring");
    assert_eq!(retained(&s).await, (0, 0, 0, 1));
    assert_eq!(
        (settled(&s, 14, 14).await, settled(&s, 0, 13).await, settled(&s, 15, u32::MAX).await),
        (1, 0, 0)
    );
    assert_eq!(settled(&s, 15, 13).await, 0, "a range that is none");
    assert_eq!(s.prune(40).await, [parent.txid]);
    assert_eq!(retained(&s).await, (0, 0, 0, 0));
    s.sound().await;
}

/// A rollback takes back what its blocks settled, and a pruned record leaves its height.
pub async fn settled_records_are_counted_by_height_through_blocks_and_rollbacks(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let coins: Vec<Tx> = (0..4).map(|number| coin(&format!("coin {number}"), 1)).collect();
    let first = s.start(1, &coins.iter().collect::<Vec<_>>()).await;
    let burns: Vec<Tx> = coins.iter().map(|tx| burn(&format!("{} off", tx.txid), &[(tx, 0)])).collect();
    s.extend(&[&burns[0], &burns[1]]).await;
    // What burns has nothing to spend itself: it settles with its own block.
    assert_eq!((settled(&s, 1, 1).await, settled(&s, 2, 2).await), (0, 4));
    s.extend(&[&burns[2]]).await;
    assert_eq!((settled(&s, 2, 2).await, settled(&s, 3, 3).await, settled(&s, 2, 3).await), (4, 2, 6));
    s.roll_back(Some((Height(1), first.block.hash)), RollbackMode::Node).await.expect("rolling back");
    assert_eq!(settled(&s, 0, u32::MAX).await, 0);
    s.extend(&[&burns[3]]).await;
    s.extend_to(20).await;
    assert_eq!((settled(&s, 2, 2).await, settled(&s, 3, 20).await), (2, 0));
    assert_eq!(s.prune(20).await.len(), 2);
    assert_eq!(settled(&s, 0, u32::MAX).await, 0);
    s.sound().await;
}

/// An unmined child is the reason on whatever page its outputs are.
pub async fn an_unmined_child_of_a_further_page_is_counted(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 130);
    s.add_mined(&parent, 10).await;
    let inputs = |outputs: std::ops::Range<u32>| outputs.map(|vout| (&parent, vout)).collect::<Vec<_>>();
    s.add_mined(&child("mined", &inputs(0..129), 1), 11).await;
    assert_eq!(retained(&s).await, (0, 0, 0, 0));
    let last = child("last", &inputs(129..130), 1);
    s.add(&last, 12).await;
    assert_eq!(retained(&s).await, (0, 0, 1, 0));
    s.mine(&last, 13).await;
    assert_eq!((retained(&s).await, settled(&s, 13, 13).await), ((0, 0, 0, 1), 1));
    s.sound().await;
}
