//! The timelines of the document on safe deletion, with its own heights and its retention of 288, by a pruner that runs at every block
//! that matters: preservation is on, and must not change them.

use sapwood_conformance::fixtures::{burn, child, coin};
use sapwood_rules::Policy;
use sapwood_types::Tx;

use crate::harness::World;

/// A parent mined at 999, and a child that spends all of it at 1000, unmined.
async fn parent_spent_at_1000() -> (World, Tx, Tx) {
    let world = World::new(Policy::default()).await;
    let parent = coin("parent", 1);
    world.block_at(999, &[&parent]).await;
    world.extend_to(1000).await;
    let tx = child("child", &[(&parent, 0)], 1);
    world.unmined(&tx, 1000).await;
    (world, parent, tx)
}

/// Prunes at each height up to `gone_at`, where the parent must go and not before.
async fn goes_at(world: &World, parent: &Tx, gone_at: u32) {
    while world.tip().await.0 + 1 < gone_at {
        world.extend(&[]).await;
        if world.tip().await.0 % 7 == 0 || world.tip().await.0 + 1 == gone_at {
            world.prune_ok().await;
            assert!(world.has(parent).await, "the parent is gone at {}", world.tip().await);
        }
    }
    world.extend(&[]).await;
    assert_eq!(world.prune_ok().await, 1);
    assert!(!world.has(parent).await, "the parent is still there at {gone_at}");
}

#[tokio::test]
async fn child_mined_at_1001_kept_at_1288_deleted_at_1289() {
    let (world, parent, tx) = parent_spent_at_1000().await;
    world.extend(&[&tx]).await;
    world.extend_to(1288).await;
    assert_eq!(world.prune_ok().await, 0);
    let explanation = world.pruner.explain(parent.txid).await.unwrap();
    assert_eq!(
        (explanation.reason.as_deref(), explanation.earliest.map(|at| at.0)),
        (Some("child_unstable"), Some(1289))
    );
    world.extend(&[]).await;
    assert_eq!(world.prune_ok().await, 1);
    assert!(!world.has(&parent).await);
    assert!(world.has(&tx).await, "the child has an unspent output");
    world.sound().await;
}

#[tokio::test]
async fn child_never_mined_keeps_its_parent() {
    let (world, parent, tx) = parent_spent_at_1000().await;
    for height in [1288, 1500, 2000] {
        world.extend_to(height).await;
        assert_eq!(world.prune_ok().await, 0);
        assert!(world.has(&parent).await && world.has(&tx).await, "at {height}");
    }
    assert_eq!(world.preserved_until(&parent).await, Some(2000 + 1440));
    world.sound().await;
}

#[tokio::test]
async fn child_mined_at_1500_parent_deleted_at_1788() {
    let (world, parent, tx) = parent_spent_at_1000().await;
    world.extend_to(1499).await;
    world.prune_ok().await;
    assert_eq!(world.preserved_until(&parent).await, Some(1499 + 1440), "it is preserved as well");
    world.extend(&[&tx]).await;
    goes_at(&world, &parent, 1788).await;
    world.sound().await;
}

#[tokio::test]
async fn child_orphaned_and_mined_again_at_1300_parent_deleted_at_1588() {
    let (world, parent, tx) = parent_spent_at_1000().await;
    world.extend_to(1099).await;
    world.extend(&[&tx]).await;
    world.extend_to(1200).await;
    world.prune_ok().await;
    world.roll_back_to(1099).await;
    world.extend_to(1288).await;
    assert_eq!(world.prune_ok().await, 0, "where the first block alone would have made it due");
    world.extend_to(1299).await;
    world.extend(&[&tx]).await;
    goes_at(&world, &parent, 1588).await;
    world.sound().await;
}

/// The race of the earlier approach: after a restart, deletion ran before anything was preserved.
#[tokio::test]
async fn restart_before_anything_is_preserved() {
    let (world, parent, tx) = parent_spent_at_1000().await;
    world.extend_to(1400).await;
    let world = world.restart().await;
    world.extend_to(1500).await;
    assert_eq!(world.prune_ok().await, 0);
    assert!(world.has(&parent).await && world.has(&tx).await);
    world.sound().await;
}

/// A spends output 0 at 100, B output 1 at 200: both are checked, and A may be pruned long before B is mined.
#[tokio::test]
async fn every_child_counts_even_one_pruned_long_ago() {
    let world = World::new(Policy::default()).await;
    let parent = coin("parent", 2);
    world.block_at(99, &[&parent]).await;
    let first = burn("first", &[(&parent, 0)]);
    world.extend(&[&first]).await;
    let second = child("second", &[(&parent, 1)], 1);
    world.unmined(&second, 200).await;
    world.extend_to(388).await;
    assert_eq!(world.prune_ok().await, 1, "the first child has nothing to spend and goes");
    assert!(!world.has(&first).await && world.has(&parent).await);
    world.extend_to(999).await;
    world.extend(&[&second]).await;
    goes_at(&world, &parent, 1288).await;
    world.sound().await;
}

/// A hundred children, one of which is orphaned.
#[tokio::test]
async fn one_orphan_among_a_hundred_children() {
    let world = World::new(Policy::with_retention(20)).await;
    let parent = coin("parent", 100);
    world.block_at(10, &[&parent]).await;
    let children: Vec<Tx> =
        (0..100).map(|vout| child(&format!("child {vout}"), &[(&parent, vout)], 1)).collect();
    world.extend(&children[..99].iter().collect::<Vec<_>>()).await;
    world.extend(&[&children[99]]).await;
    world.roll_back_to(11).await;
    world.extend_to(40).await;
    assert_eq!(world.prune_ok().await, 0);
    world.extend(&[&children[99]]).await;
    goes_at(&world, &parent, 61).await;
    world.sound().await;
}
