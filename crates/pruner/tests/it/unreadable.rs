//! A damaged record is retained, counted and named, and everything else goes on. The damage is real: bytes in the embedded store.

use sapwood_conformance::fixtures::{burn, child, coin, small};
use sapwood_ledger::CreateRequest;
use sapwood_pruner::{Bodies, BodyLocation, JobState, PrunerOptions};
use sapwood_types::{External, Height, Tx};

use crate::harness::{Raw, World, pruner_options};

type Damage = fn(&Raw, &Tx);
const DAMAGES: [Damage; 2] = [Raw::cut, Raw::unknown_version];

/// Blocks each with one transaction that may go, in chunks of two: 12 records, due at 7 and later.
async fn twelve(options: PrunerOptions, bodies: Option<Bodies>) -> (World, Vec<Tx>) {
    let world = World::with(options, bodies).await;
    world.block_at(1, &[]).await;
    let mut txs = Vec::new();
    for number in 0..12 {
        txs.extend(world.burns(&format!("due {number}"), 1).await);
    }
    world.extend_to(40).await;
    (world, txs)
}

fn in_chunks_of_two() -> PrunerOptions {
    PrunerOptions { chunk_records: 2, parallel_chunks: 2, ..pruner_options(small()) }
}

async fn is_there(world: &World, tx: &Tx) -> bool {
    world.store.get(tx.txid).await.is_err() || world.has(tx).await
}

/// axelar 2422: the pruner stopped at the first version that could not be read.
#[tokio::test]
async fn axelar_2422_an_unreadable_record_stops_nothing_else() {
    for damage in DAMAGES {
        // The first, one between, the last.
        for bad in [0, 5, 11] {
            let (world, txs) = twelve(in_chunks_of_two(), None).await;
            let world = world.damage(|raw| damage(raw, &txs[bad])).await;
            world.quiet().await;
            let job = world.prune().await;
            assert_eq!((job.state, &job.error), (JobState::Completed, &None), "{job}");
            assert_eq!(job.counts.retained.get("unreadable"), Some(&1), "{job}");
            for (number, tx) in txs.iter().enumerate() {
                assert_eq!(is_there(&world, tx).await, number == bad, "{number} with {bad} damaged");
            }
            let status = world.pruner.status().await.unwrap();
            assert_eq!(status.blocked.get("unreadable"), Some(&1), "{status:?}");
            let named: Vec<_> = status.unreadable.iter().map(|record| record.txid).collect();
            assert_eq!(named, [txs[bad].txid]);
            assert_eq!((status.backlog_records, status.lag_blocks), (0, 0), "it stands in no other's way");
            let explanation = world.pruner.explain(txs[bad].txid).await.unwrap();
            assert_eq!(
                (explanation.stored, explanation.prunable, explanation.reason.as_deref()),
                (true, false, Some("unreadable"))
            );
            assert_eq!(world.pruner.plan(None, u64::MAX).await.unwrap().retained.get("unreadable"), Some(&1));
            // What comes later goes too.
            let later = world.burns("later", 5).await;
            world.extend_to(60).await;
            assert_eq!(world.prune_ok().await, later.len() as u64);
        }
    }
}

/// A child that cannot be read proves nothing, so its parent stays. Another family goes.
#[tokio::test]
async fn axelar_2422_the_parent_of_an_unreadable_child_stays() {
    for damage in DAMAGES {
        let world = World::new(small()).await;
        let (parent, other) = (coin("parent", 1), coin("other", 1));
        world.block_at(1, &[&parent, &other]).await;
        // A coin each is left: the children are never due.
        let bad = child("bad", &[(&parent, 0)], 1);
        let good = child("good", &[(&other, 0)], 1);
        world.extend(&[&bad, &good]).await;
        world.extend_to(20).await;
        let world = world.damage(|raw| damage(raw, &bad)).await;
        world.quiet().await;
        let job = world.prune().await;
        assert_eq!(
            (job.state, job.counts.retained.get("unreadable")),
            (JobState::Completed, Some(&1)),
            "{job}"
        );
        assert_eq!((world.has(&parent).await, world.has(&other).await), (true, false));
        let status = world.pruner.status().await.unwrap();
        assert_eq!(status.unreadable[0].txid, bad.txid, "the damaged one is named, not its parent");
    }
}

/// An old unmined transaction, a parent of one, a preserved record: each is looked at before anything is deleted.
#[tokio::test]
async fn axelar_2422_an_unreadable_record_stops_neither_undo_nor_sweeping() {
    for (damage, which) in DAMAGES.into_iter().flat_map(|damage| (0..3).map(move |which| (damage, which))) {
        let directory = tempfile::tempdir().unwrap();
        let bodies = Bodies::open(&BodyLocation::Directory(directory.path().to_owned())).unwrap();
        let (world, txs) = twelve(in_chunks_of_two(), Some(bodies.clone())).await;
        let parents = [coin("parent 0", 1), coin("parent 1", 1), coin("parent 2", 1)];
        world.extend(&parents.iter().collect::<Vec<_>>()).await;
        let children = [0, 1, 2].map(|number| child(&format!("old {number}"), &[(&parents[number], 0)], 1));
        for tx in &children {
            world.unmined(tx, 20).await;
        }
        let (preserved, also) = (coin("preserved", 1), coin("also preserved", 1));
        world.extend(&[&preserved, &also]).await;
        world.store.preserve(vec![preserved.txid, also.txid], Height(50)).await.unwrap();
        world.extend_to(60).await;
        let bad = [&children[1], &parents[1], &preserved][which];
        let world = world.damage(|raw| damage(raw, bad)).await;
        let orphan = burn("orphan", &[]);
        bodies.put(orphan.txid, External::Tx, "left over".into()).await.unwrap();
        world.quiet().await;
        let job = world.prune().await;
        assert_eq!((job.state, &job.error), (JobState::Completed, &None), "{which}: {job}");
        for tx in &txs {
            assert!(!world.has(tx).await, "{which}: a neighbour stays");
        }
        for number in [0, 2] {
            assert!(world.preserved_until(&parents[number]).await.is_some(), "{which}: parent {number}");
        }
        let ended = world.preserved_until(&also).await;
        assert_eq!(ended, None, "{which}: another preservation ends");
        let floor = world.store.rollback_floor().await.unwrap().unwrap();
        assert_eq!(world.store.block_at(floor).await.unwrap(), None, "{which}: undo records go");
        assert!(!bodies.exists(orphan.txid, External::Tx).await.unwrap(), "{which}: bodies are swept");
        let status = world.pruner.status().await.unwrap();
        let named: Vec<_> = status.unreadable.iter().map(|record| record.txid).collect();
        assert_eq!((named, status.blocked.get("unreadable")), (vec![bad.txid], Some(&1)), "{which}");
        assert!(is_there(&world, bad).await);
    }
}

/// The body of a record that cannot be read is not left over.
#[tokio::test]
async fn axelar_2422_the_body_of_an_unreadable_record_stays() {
    let directory = tempfile::tempdir().unwrap();
    let bodies = Bodies::open(&BodyLocation::Directory(directory.path().to_owned())).unwrap();
    let world = World::with(pruner_options(small()), Some(bodies.clone())).await;
    world.block_at(1, &[]).await;
    let tx = coin("large", 1);
    bodies.put(tx.txid, External::Tx, "body".into()).await.unwrap();
    let request =
        CreateRequest { external: Some(External::Tx), ..CreateRequest::mined(tx.clone(), 7, Height(1)) };
    world.store.create(vec![request], Height(1)).await.unwrap();
    world.extend_to(20).await;
    let world = world.damage(|raw| raw.cut(&tx)).await;
    world.quiet().await;
    world.prune_ok().await;
    assert!(bodies.exists(tx.txid, External::Tx).await.unwrap());
}

/// A loser is taken off its parents' lists when it goes. If a parent cannot be read, the loser stays, and its neighbours go.
#[tokio::test]
async fn axelar_2422_a_loser_with_an_unreadable_parent_stays() {
    let world = World::new(small()).await;
    let parent = coin("parent", 2);
    world.block_at(1, &[&parent]).await;
    let loser = child("loser", &[(&parent, 0), (&parent, 1)], 1);
    world.unmined(&loser, 1).await;
    world.extend(&[&burn("winner", &[(&parent, 0)])]).await;
    let neighbours = world.burns("due", 3).await;
    world.extend_to(20).await;
    let world = world.damage(|raw| raw.cut(&parent)).await;
    world.quiet().await;
    let job = world.prune().await;
    assert_eq!((job.state, job.counts.retained.get("unreadable")), (JobState::Completed, Some(&1)), "{job}");
    assert!(world.has(&loser).await);
    for tx in &neighbours {
        assert!(!world.has(tx).await);
    }
    assert_eq!(world.store.due(Height(15), None, 10).await.unwrap().items.len(), 1);
}
