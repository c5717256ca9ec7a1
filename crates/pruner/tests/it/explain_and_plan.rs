//! What `explain` and `plan` say is what a job then does.

use sapwood_conformance::{
    fixtures::{burn, child, coin, op, script, small, utxo_hash},
    state_machine::rng::Rng,
};
use sapwood_ledger::Reassign;
use sapwood_pruner::{Explanation, PrunerOptions, StopReason};
use sapwood_rules::Hold;
use sapwood_types::{Height, Tx};

use crate::harness::{World, pruner_options};

fn keeping(explanation: &Explanation) -> Vec<&str> {
    explanation.guards.iter().filter(|guard| guard.retains).map(|guard| guard.name.as_ref()).collect()
}

#[tokio::test]
async fn each_guard_is_explained_with_its_figures() {
    let world = World::new(small()).await;
    let (open, waited_for, settled) = (coin("open", 2), coin("waited for", 1), burn("settled", &[]));
    world.block_at(1, &[&open, &waited_for, &settled]).await;
    let waiting = child("waiting", &[(&waited_for, 0)], 1);
    world.unmined(&waiting, 1).await;
    let explain = async |tx: &Tx| world.pruner.explain(tx.txid).await.unwrap();

    let gone = explain(&coin("nobody", 1)).await;
    assert!(!gone.stored && !gone.prunable && gone.earliest.is_none());
    let explanation = explain(&open).await;
    assert_eq!((explanation.reason.as_deref(), keeping(&explanation)), (Some("unspent"), vec!["spent"]));
    assert_eq!((explanation.earliest, explanation.needs.is_some()), (None, true));
    assert!(
        explanation.state.contains("mined at 1") && explanation.state.contains("2 unspent"),
        "{explanation}"
    );
    let explanation = explain(&waiting).await;
    assert_eq!((explanation.reason.as_deref(), explanation.earliest), (Some("unmined"), None));
    let explanation = explain(&waited_for).await;
    assert_eq!(
        (explanation.reason.as_deref(), keeping(&explanation)),
        (Some("child_unmined"), vec!["children"])
    );
    assert!(explanation.to_string().contains(&waiting.txid.to_string()));
    let explanation = explain(&settled).await;
    assert_eq!(
        (explanation.reason.as_deref(), keeping(&explanation)),
        (Some("too_young"), vec!["age", "hold"])
    );
    assert_eq!(explanation.earliest, Some(Height(6)));

    world.settle().await;
    world.extend_to(6).await;
    let explanation = explain(&settled).await;
    assert_eq!(
        (explanation.reason.as_deref(), keeping(&explanation)),
        (Some("held"), vec!["hold"]),
        "the first block can still be taken back"
    );
    world.extend_to(7).await;
    assert!(explain(&settled).await.prunable);
    let hold = Hold {
        name: "export".into(),
        owner: "tests".into(),
        keep_from: Some(Height(6)),
        expires: None,
        reason: "it reads".into(),
    };
    world.pruner.holds().set(hold).await.unwrap();
    let explanation = explain(&settled).await;
    assert_eq!((explanation.reason.as_deref(), keeping(&explanation)), (Some("held"), vec!["hold"]));
    assert!(explanation.needs.as_ref().unwrap().contains("export must let go of height 6"), "{explanation}");
    world.pruner.holds().release("export").await.unwrap();
    world.store.preserve(vec![settled.txid], Height(9)).await.unwrap();
    let explanation = explain(&settled).await;
    assert_eq!((explanation.reason.as_deref(), explanation.earliest), (Some("preserved"), Some(Height(9))));
    world.store.set_locked(vec![open.txid], true).await.unwrap();
    assert_eq!(keeping(&explain(&open).await), ["locked", "spent"]);
    world.events.enter(sapwood_chain::ChainState::Reorganising);
    assert!(explain(&settled).await.to_string().contains("the chain is reorganising"));
    serde_json::to_string(&explain(&settled).await).unwrap();
    world.sound().await;
}

/// What else there is to say about such a record would promise that it goes some day.
#[tokio::test]
async fn a_reassigned_output_keeps_its_record_and_is_given_as_the_reason() {
    let world = World::new(small()).await;
    let parent = coin("parent", 1);
    world.block_at(1, &[&parent]).await;
    world.settle().await;
    let outpoint = op(&parent, 0);
    world.store.freeze(vec![outpoint]).await.unwrap();
    let expected = utxo_hash(&parent, 0);
    let reassign = Reassign { outpoint, expected, script: script("new owner"), credential: None };
    world.store.reassign(vec![reassign], Height(1)).await.unwrap();
    let explain = async || world.pruner.explain(parent.txid).await.unwrap();
    let live = explain().await;
    assert_eq!((live.reason.as_deref(), keeping(&live)), (Some("reassigned"), vec!["reassigned", "spent"]));

    world.extend_to(10).await;
    world.extend(&[&burn("spender", &[(&parent, 0)])]).await;
    world.extend_to(100).await;
    world.prune_ok().await;
    assert!(world.has(&parent).await, "its note would have gone with it");
    let spent = explain().await;
    assert_eq!((spent.reason.as_deref(), keeping(&spent)), (Some("reassigned"), vec!["reassigned"]));
    assert!(!spent.prunable && spent.earliest.is_none(), "{spent}");
    let needs = spent.needs.as_deref().unwrap_or_default();
    assert!(needs.contains("it is never deleted: its output 0 was reassigned at height 1"), "{spent}");
    world.sound().await;
}

/// A busy chain of random transactions: before each job it is planned and explained, and then it does just that.
#[tokio::test]
async fn plan_and_explain_agree_with_what_the_job_does() {
    for seed in 0..8 {
        let mut rng = Rng::new(seed);
        let world = World::new(small()).await;
        world.block_at(1, &[]).await;
        world.settle().await;
        let mut coins: Vec<(Tx, u32)> = Vec::new();
        let mut all: Vec<Tx> = Vec::new();
        for number in 0..40 {
            let (mut block, mut waiting) = (Vec::new(), Vec::new());
            for place in 0..rng.between(1, 6) {
                let label = format!("{seed} {number} {place}");
                let spent = coins
                    .len()
                    .checked_sub(1)
                    .map(|last| coins.swap_remove(rng.below(last as u64 + 1) as usize));
                let outputs = rng.between(1, 3);
                let tx = match &spent {
                    Some((parent, vout)) if rng.chance(50) => child(&label, &[(parent, *vout)], outputs),
                    Some((parent, vout)) => burn(&label, &[(parent, *vout)]),
                    None => coin(&label, outputs),
                };
                if rng.chance(10) {
                    waiting.push(tx);
                    continue;
                }
                coins.extend(
                    (0..tx.outputs.len() as u32)
                        .filter(|_| tx.outputs[0].spendable)
                        .map(|vout| (tx.clone(), vout)),
                );
                block.push(tx);
            }
            world.extend(&block.iter().collect::<Vec<_>>()).await;
            all.extend(block);
            for tx in waiting {
                world.unmined(&tx, world.tip().await.0).await;
                all.push(tx);
            }
            if rng.chance(20) {
                world
                    .pruner
                    .report_persisted(Height(world.tip().await.0.saturating_sub(rng.between(0, 4))))
                    .await
                    .unwrap();
                let job = world.pruner.jobs(1).pop().unwrap();
                world.pruner.wait(job.id).await.unwrap();
            }
            if rng.chance(50) {
                let before = world.records().await;
                let plan = world.pruner.plan(None, 1_000_000).await.unwrap();
                assert!(plan.complete, "{plan}");
                let mut expected = Vec::new();
                for tx in &all {
                    if world.has(tx).await {
                        expected.push((tx.clone(), world.pruner.explain(tx.txid).await.unwrap()));
                    }
                }
                let job = world.prune().await;
                assert_eq!(
                    (job.counts.deleted, job.counts.bytes_freed),
                    (plan.records, plan.bytes),
                    "{plan}\n{job}"
                );
                assert_eq!((job.safe_height, &job.decided_by), (plan.safe_height, &plan.decided_by));
                assert_eq!(world.records().await, before - plan.records);
                for (tx, explanation) in expected {
                    assert_eq!(world.has(&tx).await, !explanation.prunable, "{explanation}");
                }
            }
        }
        assert!(world.pruner.status().await.unwrap().totals.deleted > 0, "nothing was ever pruned");
        assert!(world.store.counts().await.unwrap().records > 0);
        world.sound().await;
    }
}

#[tokio::test]
async fn a_plan_counts_what_holds_keep_and_stops_at_its_limit() {
    let world = World::new(small()).await;
    world.block_at(1, &[]).await;
    world.settle().await;
    world.burns("due at 7", 4).await;
    world.burns("due at 8", 5).await;
    world.extend_to(10).await;
    world.pruner.register(sapwood_pruner::Consumer::Persister).await.unwrap();
    let plan = world.pruner.plan(None, 100).await.unwrap();
    assert_eq!((plan.records, plan.retained.get("held"), plan.complete), (0, Some(&9), true), "{plan}");
    world.pruner.holds().release("persister").await.unwrap();
    let plan = world.pruner.plan(Some(Height(7)), 100).await.unwrap();
    assert_eq!((plan.height, plan.records), (Some(Height(7)), 4));
    let plan = world.pruner.plan(None, 6).await.unwrap();
    assert_eq!((plan.records, plan.looked_at, plan.complete), (6, 6, false));
    assert_eq!(world.records().await, 9, "nothing was deleted");
    let job = world.prune_at(Some(7)).await;
    assert_eq!((job.counts.deleted, world.records().await), (4, 5));
    world.sound().await;
}

/// A preservation that the pruner itself made ends with the next job once its reason is gone: both foresee it.
#[tokio::test]
async fn the_end_of_the_pruners_own_preservation_is_foreseen() {
    let world = World::new(small()).await;
    let parent = coin("parent", 1);
    world.block_at(1, &[&parent]).await;
    let tx = child("child", &[(&parent, 0)], 1);
    world.unmined(&tx, 1).await;
    world.extend_to(9).await;
    world.prune_ok().await;
    assert_eq!(world.preserved_until(&parent).await, Some(29));
    assert_eq!(world.pruner.explain(parent.txid).await.unwrap().reason.as_deref(), Some("preserved"));
    world.extend(&[&tx]).await;
    let explanation = world.pruner.explain(parent.txid).await.unwrap();
    assert_eq!(
        (explanation.reason.as_deref(), explanation.earliest),
        (Some("child_unstable"), Some(Height(15))),
        "{explanation}"
    );
    world.extend_to(15).await;
    assert!(world.pruner.explain(parent.txid).await.unwrap().prunable);
    let plan = world.pruner.plan(None, 100).await.unwrap();
    let job = world.prune().await;
    assert_eq!((plan.records, job.counts.deleted), (1, 1));
    // The end of the preservation writes the record again, and then it forgets the spender.
    assert!(plan.bytes >= job.counts.bytes_freed, "{plan}");
    world.sound().await;
}

/// Jobs run without it too, but delete no record.
#[tokio::test]
async fn m14_without_delete_due_neither_plan_nor_explain_promises_a_deletion() {
    let options = PrunerOptions { delete_due: false, ..pruner_options(small()) };
    let world = World::with(options, None).await;
    world.block_at(1, &[]).await;
    world.settle().await;
    let txs = world.burns("due", 3).await;
    world.extend_to(10).await;
    let plan = world.pruner.plan(None, 100).await.unwrap();
    let explanation = world.pruner.explain(txs[0].txid).await.unwrap();
    assert_eq!((plan.blocked.as_ref(), plan.records), (Some(&StopReason::DeletingOff), 3), "{plan}");
    assert_eq!(explanation.blocked, Some(StopReason::DeletingOff));
    for text in [plan.to_string(), explanation.to_string()] {
        assert!(text.contains("because deleting is turned off by pruner.delete_due"), "{text}");
    }
    assert_eq!((world.prune_ok().await, world.records().await), (0, 3));
    world.sound().await;
}

/// After a restart the pruner does not know its own preservations any more, so they end by height as everyone's do.
#[tokio::test]
async fn m14_preservations_that_are_over_by_height_are_foreseen() {
    let world = World::new(small()).await;
    let parent = coin("parent", 1);
    world.block_at(1, &[&parent]).await;
    let settled = world.burns("preserved by an operator", 3).await;
    let tx = child("child", &[(&parent, 0)], 1);
    world.unmined(&tx, 2).await;
    world.extend_to(9).await;
    world.store.preserve(settled.iter().map(|tx| tx.txid).collect(), Height(40)).await.unwrap();
    world.prune_ok().await;
    assert_eq!(world.preserved_until(&parent).await, Some(29));
    let world = world.restart().await;
    world.extend(&[&tx]).await;
    for (height, deleted) in [(28, 0), (29, 1), (39, 0), (40, 3)] {
        world.extend_to(height).await;
        let plan = world.pruner.plan(None, 100).await.unwrap();
        let mut may_go = 0;
        for tx in settled.iter().chain([&parent]) {
            may_go += u64::from(world.pruner.explain(tx.txid).await.unwrap().prunable);
        }
        let limited = world.pruner.plan(None, 1).await.unwrap();
        assert_eq!(world.prune_ok().await, deleted, "at {height}");
        assert_eq!((plan.records, may_go, plan.complete), (deleted, deleted, true), "at {height}: {plan}");
        assert!(limited.records >= deleted.min(1), "at {height}: {limited}");
    }
    let explanation = world.pruner.explain(tx.txid).await.unwrap();
    assert_eq!(explanation.reason.as_deref(), Some("unspent"), "{explanation}");
    world.sound().await;
}
