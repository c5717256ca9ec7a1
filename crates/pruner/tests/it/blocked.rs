//! What blocks deletion is counted with each write, not by what a job happened to look at.

use std::collections::BTreeMap;

use sapwood_conformance::fixtures::{child, coin, small};
use sapwood_pruner::Consumer;
use sapwood_rules::{Hold, PolicyChange};
use sapwood_types::{Height, Tx};

use crate::harness::World;

async fn blocked(world: &World) -> Vec<(String, u64)> {
    world.pruner.status().await.unwrap().blocked.into_iter().collect()
}

fn reasons(expected: &[(&str, u64)]) -> Vec<(String, u64)> {
    expected.iter().map(|(reason, records)| ((*reason).to_owned(), *records)).collect()
}

/// How many records each hold retains, those that retain none left out.
async fn retained_by_hold(world: &World) -> BTreeMap<String, u64> {
    let holds = world.pruner.status().await.unwrap().holds.into_iter();
    holds
        .map(|status| (status.hold.name, status.retained_records))
        .filter(|(_, records)| *records > 0)
        .collect()
}

fn hold(name: &str, keep_from: u32, expires: Option<u64>) -> Hold {
    let (owner, reason) = ("tests".into(), "we look".into());
    Hold { name: name.into(), owner, keep_from: Some(Height(keep_from)), expires, reason }
}

/// A world at height 10 in which no job has looked at anything: six records settled at 2 and were due at 7, one of them locked and one
/// preserved; two settled at 8; one is spent by a transaction that is not mined; two are unspent.
async fn world() -> (World, Tx, Vec<Tx>) {
    let world = World::new(small()).await;
    world.pruner.disable().await.unwrap();
    let parents: Vec<Tx> = (0..3).map(|number| coin(&format!("parent {number}"), 1)).collect();
    world.block_at(1, &parents.iter().collect::<Vec<_>>()).await;
    let waiting = child("waiting", &[(&parents[0], 0)], 1);
    world.unmined(&waiting, 1).await;
    let due = world.burns("due", 6).await;
    world.store.set_locked(vec![due[0].txid], true).await.unwrap();
    world.store.preserve(vec![due[1].txid], Height(50)).await.unwrap();
    world.extend_to(7).await;
    world.burns("young", 2).await;
    world.extend_to(10).await;
    (world, waiting, due)
}

#[tokio::test]
async fn what_blocks_deletion_is_counted_without_a_job() {
    let (world, waiting, due) = world().await;
    let free = reasons(&[("child_unmined", 1), ("locked", 1), ("not_deep_enough", 2), ("preserved", 1)]);
    assert_eq!(blocked(&world).await, free);
    assert_eq!(world.pruner.status().await.unwrap().backlog_records, 4);
    let world = world.restart().await;
    assert_eq!(blocked(&world).await, free, "also after a restart");
    assert_eq!(world.pruner.jobs(10), [], "no job looked at anything");

    world.store.set_locked(vec![due[0].txid], false).await.unwrap();
    world.extend(&[&waiting]).await;
    let mined = reasons(&[("not_deep_enough", 3), ("preserved", 1)]);
    assert_eq!(blocked(&world).await, mined, "the parent settled with its child");
    world.pruner.enable().await.unwrap();
    assert_eq!(world.prune_ok().await, 5);
    assert_eq!(blocked(&world).await, mined);
    assert_eq!(world.pruner.status().await.unwrap().backlog_records, 0);
    let never = PolicyChange { retention: Some(0), ..PolicyChange::default() };
    world.pruner.change_policy(never, "tests", true).await.unwrap();
    assert_eq!(blocked(&world).await, reasons(&[("preserved", 1), ("retention_off", 3)]));
    world.sound().await;
}

#[tokio::test]
async fn what_each_hold_retains_is_counted() {
    let (world, ..) = world().await;
    assert_eq!(retained_by_hold(&world).await, BTreeMap::new());
    let holds = world.pruner.holds();
    holds.set(hold("audit", 8, None)).await.unwrap();
    assert_eq!(retained_by_hold(&world).await, BTreeMap::new(), "what was due at 7 is let go");
    holds.set(hold("export", 7, Some(crate::harness::NOW + 10))).await.unwrap();
    let held = |name: &str| BTreeMap::from([(name.to_owned(), 4)]);
    assert_eq!(retained_by_hold(&world).await, held("export"));
    let all = reasons(&[
        ("child_unmined", 1),
        ("held", 4),
        ("locked", 1),
        ("not_deep_enough", 2),
        ("preserved", 1),
    ]);
    assert_eq!(blocked(&world).await, all);
    assert_eq!(world.pruner.status().await.unwrap().backlog_records, 0);
    world.pruner.register(Consumer::Persister).await.unwrap();
    world.clock.set(crate::harness::NOW + 10);
    assert_eq!(retained_by_hold(&world).await, held("persister"), "the other has expired");
    assert_eq!(blocked(&world).await, all, "each record counts once");
    holds.release("persister").await.unwrap();
    assert_eq!(world.pruner.status().await.unwrap().backlog_records, 4);
    world.sound().await;
}
