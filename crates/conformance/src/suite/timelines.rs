//! The timelines of the document on safe deletion, with its own heights and its retention of 288.

use sapwood_ledger::RollbackMode;
use sapwood_rules::{KeepReason, Policy, Verdict};
use sapwood_types::{Height, Slot, Tx};

use super::{StoreFactory, Subject};
use crate::fixtures::*;

/// A parent mined at 900 and a child that spends all of it at 1000, unmined.
async fn parent_spent_at_1000(factory: &dyn StoreFactory) -> (Subject, Tx, Tx) {
    let s = Subject::new(factory, Policy::default()).await;
    let parent = coin("parent", 1);
    s.add_mined(&parent, 900).await;
    let tx = child("child", &[(&parent, 0)], 1);
    s.add(&tx, 1_000).await;
    (s, parent, tx)
}

fn child_unmined(tx: &Tx) -> Verdict {
    Verdict::Kept(KeepReason::ChildUnmined { child: Some(tx.txid) })
}

fn unstable(tx: &Tx, mined_at: u32, stable_at: u32) -> Verdict {
    let (mined_at, stable_at) = (Height(mined_at), Height(stable_at));
    Verdict::Kept(KeepReason::ChildUnstable { child: Some(tx.txid), mined_at, stable_at })
}

/// Panics unless the parent is kept at each of these heights, and gone at the last.
async fn assert_goes_at(s: &Subject, parent: &Tx, kept_at: &[u32], gone_at: u32) {
    for &height in kept_at {
        assert_eq!(s.prune(height).await, [], "nothing goes at {height}");
        assert!(s.has(parent).await, "the parent is kept at {height}");
    }
    assert_eq!(s.verdict(parent, gone_at).await, Verdict::MayGo { due_at: Height(gone_at) });
    assert_eq!(s.prune(gone_at).await, [parent.txid], "the parent goes at {gone_at}");
    assert!(!s.has(parent).await);
}

/// Spent at 1000, child mined at 1001: skipped at 1288, deleted at 1289.
pub async fn child_mined_at_1001_skip_at_1288_delete_at_1289(factory: &dyn StoreFactory) {
    let (s, parent, tx) = parent_spent_at_1000(factory).await;
    s.mine(&tx, 1_001).await;
    assert_eq!(s.verdict(&parent, 1_288).await, unstable(&tx, 1_001, 1_289));
    assert_goes_at(&s, &parent, &[1_001, 1_287, 1_288], 1_289).await;
    assert!(s.has(&tx).await, "the child has an unspent output");
    s.sound().await;
}

/// The same, told by blocks, with a pruning after each of the last ones.
pub async fn child_mined_at_1001_by_blocks(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, Policy::default()).await;
    let parent = coin("parent", 1);
    s.start(999, &[&parent]).await;
    let tx = child("child", &[(&parent, 0)], 1);
    s.extend(&[]).await;
    s.add(&tx, 1_000).await;
    s.extend(&[&tx]).await;
    for height in [1_286, 1_287, 1_288] {
        s.extend_to(height).await;
        assert_eq!(s.prune(height).await, [], "at {height}");
    }
    assert_eq!(s.verdict(&parent, 1_288).await, unstable(&tx, 1_001, 1_289));
    s.extend(&[]).await;
    assert_eq!(s.prune(1_289).await, [parent.txid]);
    s.sound().await;
}

/// A child that is never mined keeps its parent for ever.
pub async fn child_never_mined_keeps_the_parent_for_ever(factory: &dyn StoreFactory) {
    let (s, parent, tx) = parent_spent_at_1000(factory).await;
    for height in [1_288, 1_500, 2_000, 1_000_000, u32::MAX] {
        assert_eq!(s.verdict(&parent, height).await, child_unmined(&tx), "at {height}");
        assert_eq!(s.prune(height).await, [], "at {height}");
    }
    assert!(s.has(&parent).await);
    s.sound().await;
}

/// A child mined late, at 1500: kept at 1288 and until 1787, deleted at 1788.
pub async fn child_mined_at_1500_delete_at_1788(factory: &dyn StoreFactory) {
    let (s, parent, tx) = parent_spent_at_1000(factory).await;
    assert_eq!(s.verdict(&parent, 1_288).await, child_unmined(&tx));
    assert_eq!(s.prune(1_288).await, []);
    s.mine(&tx, 1_500).await;
    assert_eq!(s.verdict(&parent, 1_500).await, unstable(&tx, 1_500, 1_788));
    assert_goes_at(&s, &parent, &[1_500, 1_787], 1_788).await;
    s.sound().await;
}

/// A child mined at 1100, orphaned at 1200, mined again at 1300: kept at 1288 and until 1587, deleted at 1588.
pub async fn child_remined_at_1300_delete_at_1588(factory: &dyn StoreFactory) {
    let (s, parent, tx) = parent_spent_at_1000(factory).await;
    s.mine(&tx, 1_100).await;
    assert_eq!(s.settled(&parent).await, Some(1_100));
    s.unmine(&tx, 1_100, 1_200).await;
    assert_eq!(s.verdict(&parent, 1_288).await, child_unmined(&tx));
    assert_eq!(s.prune(1_288).await, []);
    assert_eq!(s.prune(1_388).await, [], "where the first block would have made it due");
    s.mine(&tx, 1_300).await;
    assert_goes_at(&s, &parent, &[1_300, 1_388, 1_587], 1_588).await;
    s.sound().await;
}

/// The same, told by blocks and a rollback.
pub async fn child_remined_at_1300_by_blocks(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, Policy::default()).await;
    let parent = coin("parent", 1);
    s.start(1_000, &[&parent]).await;
    let tx = child("child", &[(&parent, 0)], 1);
    s.extend_to(1_099).await;
    let base = s.last_applied().await.expect("last").expect("a block");
    s.extend(&[&tx]).await;
    s.extend_to(1_200).await;
    s.roll_back(Some((base.height, base.hash)), RollbackMode::Node).await.expect("roll back");
    assert_eq!(s.slot(&parent, 0).await, spent(&tx, 0, None));
    s.extend_to(1_299).await;
    assert_eq!(s.prune(1_288).await, []);
    assert_eq!(s.verdict(&parent, 1_288).await, child_unmined(&tx));
    s.extend(&[&tx]).await;
    s.extend_to(1_587).await;
    assert_eq!(s.prune(1_587).await, []);
    s.extend(&[]).await;
    assert_eq!(s.prune(1_588).await, [parent.txid]);
    s.sound().await;
}

/// Child A is mined, becomes stable and is pruned long before child B is mined: the parent waits for B, remembers A, and
/// goes 288 blocks after B.
pub async fn child_a_pruned_long_before_child_b_is_mined(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, Policy::default()).await;
    let parent = coin("parent", 2);
    s.add_mined(&parent, 1_000).await;
    let (a, b) = (burn("a", &[(&parent, 0)]), child("b", &[(&parent, 1)], 1));
    s.add_mined(&a, 1_100).await;
    s.add(&b, 1_100).await;
    assert_eq!(s.prune(1_388).await, [a.txid], "A is stable and carries data only");
    assert_eq!(s.record(&parent).await.slots, [spent(&a, 0, Some(1_100)), spent(&b, 0, None)]);
    assert_eq!(s.verdict(&parent, 9_000).await, child_unmined(&b));
    s.mine(&b, 9_000).await;
    assert_goes_at(&s, &parent, &[9_000, 9_287], 9_288).await;
    s.sound().await;
}

/// The same by blocks, where the parent may even have forgotten who A was.
pub async fn child_a_pruned_long_before_child_b_by_blocks(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 2);
    s.start(10, &[&parent]).await;
    let (a, b) = (burn("a", &[(&parent, 0)]), child("b", &[(&parent, 1)], 1));
    s.extend(&[&a]).await;
    s.extend_to(60).await;
    assert_eq!(s.prune(60).await, [a.txid]);
    s.extend(&[&b]).await;
    assert_eq!(s.slot(&parent, 1).await, spent(&b, 0, Some(61)));
    let of_a = s.slot(&parent, 0).await;
    assert_eq!(of_a.child_mined_at(), Some(Height(11)), "when A was mined is remembered: {of_a:?}");
    s.extend_to(65).await;
    assert_eq!(s.prune(65).await, []);
    s.extend(&[]).await;
    assert_eq!(s.prune(66).await, [parent.txid]);
    s.sound().await;
}

/// Two children, mined at 100 and 200; the first is orphaned at 487: checking the last one only would have deleted the
/// parent at 488.
pub async fn every_child_is_checked_not_only_the_last(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, Policy::default()).await;
    let parent = coin("parent", 2);
    s.add_mined(&parent, 50).await;
    let (a, b) = (child("a", &[(&parent, 0)], 1), child("b", &[(&parent, 1)], 1));
    s.add_mined(&a, 100).await;
    s.add_mined(&b, 200).await;
    assert_eq!(s.verdict(&parent, 487).await, unstable(&b, 200, 488));
    s.unmine(&a, 100, 487).await;
    assert_eq!(s.verdict(&parent, 488).await, child_unmined(&a));
    assert_eq!(s.prune(500).await, []);
    s.mine(&a, 501).await;
    assert_goes_at(&s, &parent, &[788], 789).await;
    s.sound().await;
}

/// A hundred children of one parent: the last of them to be stable decides.
pub async fn a_hundred_children(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, Policy::default()).await;
    let parent = coin("parent", 100);
    s.add_mined(&parent, 1_000).await;
    for vout in 0..100 {
        s.add_mined(&child(&format!("child {vout}"), &[(&parent, vout)], 1), 1_100 - vout).await;
    }
    assert_goes_at(&s, &parent, &[1_289, 1_387], 1_388).await;
    s.sound().await;
}

/// After a restart the pruner may run before anything else has: no preservation was ever set, and the parent of an unmined
/// child is safe all the same.
pub async fn pruning_first_after_a_restart_is_safe_without_preservation(factory: &dyn StoreFactory) {
    let (s, parent, tx) = parent_spent_at_1000(factory).await;
    assert_eq!(s.head(&parent).await.preserve_until, None);
    assert_eq!(s.prune(1_500).await, []);
    assert!(s.has(&parent).await && s.has(&tx).await);
    assert_eq!(s.try_spend(&tx, &[0], 1_500).await, Ok(()), "the child can be validated again");
    s.sound().await;
}

/// The record's own depth counts too: a parent mined after its child waits for its own block.
pub async fn the_parents_own_block_counts(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, Policy::default()).await;
    let parent = coin("parent", 1);
    s.add(&parent, 900).await;
    let tx = child("child", &[(&parent, 0)], 1);
    s.add_mined(&tx, 1_001).await;
    let kept = Verdict::Kept(KeepReason::Unmined { since: Height(900) });
    assert_eq!(s.verdict(&parent, 5_000).await, kept);
    s.mine(&parent, 1_400).await;
    let young = KeepReason::TooYoung { settled_at: Height(1_400), due_at: Height(1_688) };
    assert_eq!(s.verdict(&parent, 1_687).await, Verdict::Kept(young));
    assert_goes_at(&s, &parent, &[1_289, 1_687], 1_688).await;
    assert_eq!(s.slot(&tx, 0).await, Slot::Unspent);
    s.sound().await;
}
