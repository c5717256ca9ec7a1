//! Nothing is deleted before all parents of old unmined transactions are preserved.

use sapwood_conformance::fixtures::{burn, child, coin, small};
use sapwood_ledger::CreateRequest;
use sapwood_pruner::{JobState, PrunerOptions, StopReason};
use sapwood_types::{Height, Tx};

use crate::harness::{World, pruner_options};

/// Parents mined at 1, children unmined since 2, 3, 4 …, and one transaction that is due.
async fn families(world: &World, count: u32) -> (Vec<(Tx, Tx)>, Tx) {
    let parents: Vec<Tx> = (0..count).map(|number| coin(&format!("parent {number}"), 1)).collect();
    let due = burn("due", &[]);
    let mut block: Vec<&Tx> = parents.iter().collect();
    block.push(&due);
    world.block_at(1, &block).await;
    let mut families = Vec::new();
    for (number, parent) in parents.into_iter().enumerate() {
        let tx = child(&format!("child {number}"), &[(&parent, 0)], 1);
        world.unmined(&tx, 2 + number as u32).await;
        families.push((parent, tx));
    }
    (families, due)
}

#[tokio::test]
async fn parents_of_old_unmined_are_preserved_and_young_ones_are_not() {
    let world = World::new(small()).await;
    let (families, due) = families(&world, 6).await;
    // Unmined since 2 to 7; at 7 with an unmined retention of 2 those since 5 and before are old.
    world.extend_to(7).await;
    let job = world.prune().await;
    assert_eq!((job.state, job.counts.parents_preserved, job.counts.deleted), (JobState::Completed, 4, 1));
    for (number, (parent, _)) in families.iter().enumerate() {
        let until = (number < 4).then_some(7 + 20);
        assert_eq!(world.preserved_until(parent).await, until, "parent {number}");
    }
    assert!(!world.has(&due).await);
    let again = world.prune().await;
    assert_eq!(again.counts.parents_preserved, 0, "they are as fresh as can be");
    world.sound().await;
}

#[tokio::test]
async fn nothing_is_preserved_up_to_the_unmined_retention() {
    let world = World::new(small()).await;
    families(&world, 1).await;
    world.extend_to(2).await;
    assert_eq!(world.prune().await.counts.parents_preserved, 0);
    world.extend_to(4).await;
    assert_eq!(world.prune().await.counts.parents_preserved, 1, "unmined since 2, at 4");
    world.sound().await;
}

#[tokio::test]
async fn all_of_them_are_preserved_however_many() {
    let options = PrunerOptions { chunk_records: 7, ..pruner_options(small()) };
    let world = World::with(options, None).await;
    let (families, _) = families(&world, 100).await;
    world.extend_to(200).await;
    assert_eq!(world.prune().await.counts.parents_preserved, 100);
    for (parent, _) in &families {
        assert_eq!(world.preserved_until(parent).await, Some(220));
    }
    world.sound().await;
}

#[tokio::test]
async fn a_failed_preservation_ends_the_job_before_anything_is_deleted() {
    let world = World::new(small()).await;
    let (families, due) = families(&world, 3).await;
    world.settle().await;
    world.extend_to(10).await;
    world.hook.once("before-write", 1, || Err("the disk is gone".into()));
    let job = world.prune().await;
    assert_eq!(job.state, JobState::Failed);
    let error = job.error.clone().unwrap();
    assert!(error.contains("could not be preserved") && error.contains("the disk is gone"), "{error}");
    assert_eq!((job.counts.deleted, job.counts.looked_at), (0, 0));
    // The store refuses writes until it is opened again; then all is as before, and the next job does both.
    let world = world.restart().await;
    world.settle().await;
    assert!(!world.has(&due).await);
    for (parent, _) in &families {
        assert!(world.preserved_until(parent).await.is_some());
    }
    world.sound().await;
}

#[tokio::test]
async fn an_absent_parent_is_no_failure_and_is_not_made() {
    let world = World::new(small()).await;
    let (_, due) = families(&world, 0).await;
    let absent = coin("absent", 1);
    let orphan = child("orphan", &[(&absent, 0)], 1);
    let request = CreateRequest { trust_inputs: true, ..CreateRequest::unmined(orphan.clone()) };
    world.store.create(vec![request], Height(2)).await.unwrap();
    world.extend_to(10).await;
    let job = world.prune().await;
    assert_eq!((job.state, job.counts.parents_preserved), (JobState::Completed, 0));
    assert!(!world.has(&due).await && !world.has(&absent).await && world.has(&orphan).await);
    world.sound().await;
}

#[tokio::test]
async fn losers_need_no_parents() {
    let world = World::new(small()).await;
    let (families, _) = families(&world, 1).await;
    let (parent, loser) = &families[0];
    let winner = burn("winner", &[(parent, 0)]);
    world.extend(&[&winner]).await;
    world.extend_to(6).await;
    assert_eq!(world.prune().await.counts.parents_preserved, 0);
    world.extend_to(7).await;
    world.prune_ok().await;
    for tx in [parent, loser, &winner] {
        assert!(!world.has(tx).await, "the winner was mined at 2, and all three are due at 7");
    }
    world.sound().await;
}

#[tokio::test]
async fn a_preservation_ends_with_its_reason_but_only_the_pruners_own() {
    let world = World::new(small()).await;
    let (families, _) = families(&world, 2).await;
    let [(first, one), (second, two)] = &families[..] else { unreachable!() };
    // Somebody else wants the second parent to stay.
    world.store.preserve(vec![second.txid], Height(12)).await.unwrap();
    world.extend_to(9).await;
    assert_eq!(world.prune().await.counts.parents_preserved, 2);
    world.extend(&[one, two]).await;
    world.prune_ok().await;
    assert_eq!(world.preserved_until(first).await, None, "its child is mined");
    assert_eq!(
        world.preserved_until(second).await,
        Some(29),
        "it is not known for how long somebody wanted it"
    );
    world.extend_to(15).await;
    world.prune_ok().await;
    assert!(!world.has(first).await && world.has(second).await);
    world.extend_to(29).await;
    world.prune_ok().await;
    assert!(!world.has(second).await);
    world.sound().await;
}

#[tokio::test]
async fn without_deletion_parents_are_preserved_all_the_same() {
    let options = PrunerOptions { delete_due: false, ..pruner_options(small()) };
    let world = World::with(options, None).await;
    let (families, due) = families(&world, 1).await;
    world.extend_to(20).await;
    let job = world.prune().await;
    assert_eq!((job.state, job.counts.parents_preserved, job.counts.deleted), (JobState::Completed, 1, 0));
    assert!(world.has(&due).await && world.preserved_until(&families[0].0).await.is_some());
    let off = Some(StopReason::DeletingOff);
    assert_eq!(world.pruner.plan(None, 100).await.unwrap().blocked, off);
    assert_eq!(world.pruner.explain(due.txid).await.unwrap().blocked, off);
    world.sound().await;
}

#[tokio::test]
async fn undo_goes_below_the_window_and_stays_inside() {
    let world = World::new(small()).await;
    world.block_at(1, &[]).await;
    world.extend_to(20).await;
    let job = world.prune().await;
    assert!(job.counts.undo_dropped > 0);
    let floor = world.store.rollback_floor().await.unwrap().unwrap();
    assert_eq!(floor, Height(15));
    assert_eq!(world.store.block_at(floor).await.unwrap(), None);
    for height in 16..=20 {
        assert!(world.store.block_at(Height(height)).await.unwrap().is_some(), "undo of {height}");
    }
    world.roll_back_to(15).await;
    assert_eq!(world.store.prune_undo(None, Height::MAX, 100).await.unwrap().dropped, 0);
    world.sound().await;
}

/// The pruner ends its own preservation once the child is mined. Somebody asked for the same record to be kept, up to a lower height even.
#[tokio::test]
async fn what_somebody_preserves_does_not_end_with_the_pruners_own() {
    let world = World::new(small()).await;
    let (parent, other) = (coin("parent", 1), coin("other", 1));
    world.block_at(1, &[&parent, &other]).await;
    let late = child("late", &[(&parent, 0), (&other, 0)], 1);
    world.unmined(&late, 1).await;
    world.extend_to(9).await;
    world.prune_ok().await;
    assert_eq!(world.preserved_until(&parent).await, Some(29));
    assert_eq!(world.pruner.preserve(vec![parent.txid], Height(25)).await.unwrap(), 1);
    world.extend(&[&late]).await;
    world.extend_to(28).await;
    world.prune_ok().await;
    assert_eq!((world.has(&parent).await, world.has(&other).await), (true, false));
    world.extend_to(30).await;
    world.prune_ok().await;
    assert!(!world.has(&parent).await, "it ends in the end");
    world.sound().await;
}

/// Whichever parent is not preserved could go before the child is mined.
#[tokio::test]
async fn every_parent_of_an_old_unmined_child_is_preserved() {
    let world = World::new(small()).await;
    let parents: Vec<Tx> = (0..5).map(|number| coin(&format!("parent {number}"), 1)).collect();
    world.block_at(1, &parents.iter().collect::<Vec<_>>()).await;
    let of_two = child("of two", &[(&parents[0], 0), (&parents[1], 0)], 1);
    let of_three = child("of three", &[(&parents[2], 0), (&parents[3], 0), (&parents[4], 0)], 1);
    world.unmined(&of_two, 2).await;
    world.unmined(&of_three, 2).await;
    world.extend_to(7).await;
    let job = world.prune().await;
    assert_eq!((job.state, job.counts.parents_preserved), (JobState::Completed, 5), "{job}");
    for (number, parent) in parents.iter().enumerate() {
        assert_eq!(world.preserved_until(parent).await, Some(27), "parent {number}");
    }
    world.extend(&[&of_two, &of_three]).await;
    world.sound().await;
}

/// The second page of phase 1 fails in a way that leaves the store as it was: deletion would succeed, and must not be tried.
#[tokio::test]
async fn a_preservation_that_fails_on_a_later_page_deletes_nothing() {
    let options = PrunerOptions { chunk_records: 2, ..pruner_options(small()) };
    let world = World::with(options, None).await;
    let (families, due) = families(&world, 6).await;
    world.settle().await;
    world.extend_to(10).await;
    world.hook.once("prepared", 2, || Err("no memory".into()));
    let job = world.prune().await;
    assert_eq!((job.state, job.counts.parents_preserved), (JobState::Failed, 2), "{job}");
    assert!(job.error.as_ref().unwrap().contains("could not be preserved"), "{job}");
    assert_eq!((job.counts.looked_at, job.counts.undo_dropped), (0, 0), "{job}");
    assert!(world.has(&due).await);
    // The same process does it with the next job.
    assert_eq!(world.prune_ok().await, 1);
    for (parent, _) in &families {
        assert!(world.preserved_until(parent).await.is_some());
    }
    world.sound().await;
}

/// A snapshot or an export may have to go back to the height it holds.
#[tokio::test]
async fn undo_from_a_hold_below_the_floor_on_stays() {
    use sapwood_rules::Hold;
    let world = World::new(small()).await;
    world.block_at(1, &[]).await;
    world.settle().await;
    let hold = Hold {
        name: "export".into(),
        owner: "tests".into(),
        keep_from: Some(Height(8)),
        expires: None,
        reason: "an export is in flight".into(),
    };
    world.pruner.holds().set(hold).await.unwrap();
    world.extend_to(20).await;
    assert_eq!(world.prune().await.counts.undo_dropped, 7);
    assert_eq!(world.store.rollback_floor().await.unwrap(), Some(Height(15)));
    for height in 1..=20 {
        let undo = world.store.block_at(Height(height)).await.unwrap();
        assert_eq!(undo.is_some(), height >= 8, "undo of {height}");
    }
    world.pruner.holds().release("export").await.unwrap();
    assert_eq!(world.prune().await.counts.undo_dropped, 8, "8 to 15");
    world.sound().await;
}
