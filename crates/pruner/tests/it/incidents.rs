//! Incidents in public trackers that a pruner can show, each under its name. Those about settings and triggers stand with those:
//! teranode 489 and erigon 3658 in `settings`, teranode 498 in `triggers`.

use std::sync::Arc;

use sapwood_conformance::fixtures::{burn, by, child, coin, op, small};
use sapwood_ledger::{ApplyError, ApplyOptions, CreateRequest, InputRefusal, error::TxProblem};
use sapwood_pruner::{HoldStatus, JobState, PrunerOptions, StopReason, Trigger};
use sapwood_rules::SpendRefusal;
use sapwood_types::{Block, BlockHash, Height, Slot, Tx};

use crate::harness::{NOW, World, pruner_options};

/// teranode 1768 and 1772: a fork of one block stamped the age of a whole mempool anew, the parent of a live unmined child was pruned,
/// and the node stood still for good.
#[tokio::test]
async fn teranode_1768_1772_a_fork_does_not_prune_the_parent_of_a_live_child() {
    let world = World::new(small()).await;
    let parent = coin("parent", 1);
    world.block_at(100, &[&parent]).await;
    let tx = child("child", &[(&parent, 0)], 1);
    world.unmined(&tx, 100).await;
    for _ in 0..10 {
        world.extend(&[&tx]).await;
        world.extend(&[]).await;
        world.prune_ok().await;
        world.roll_back_to(world.tip().await.0 - 2).await;
        world.extend(&[]).await;
        world.prune_ok().await;
        assert!(world.has(&parent).await && world.has(&tx).await);
    }
    assert!(world.tip().await >= Height(110));
    assert!(world.preserved_until(&parent).await.is_some(), "it is as old as when it was first seen");
    world.extend(&[&tx]).await;
    world.sound().await;
}

/// teranode 1214: the record of a loser was deleted while its parents still named it as their spender.
#[tokio::test]
async fn teranode_1214_no_pruned_loser_leaves_a_dangling_spender() {
    let world = World::new(small()).await;
    let parent = coin("parent", 2);
    world.block_at(1, &[&parent]).await;
    let loser = child("loser", &[(&parent, 0), (&parent, 1)], 1);
    world.unmined(&loser, 1).await;
    let winner = child("winner", &[(&parent, 0)], 1);
    world.extend(&[&winner]).await;
    world.extend_to(7).await;
    assert_eq!(world.prune_ok().await, 1);
    assert!(!world.has(&loser).await);
    let record = world.record(&parent).await.unwrap();
    assert_eq!((record.slots[1], record.head.conflicting_children), (Slot::Unspent, vec![]));
    world.extend(&[&child("next", &[(&parent, 1)], 1)]).await;
    world.sound().await;
}

/// teranode 1701 and 1702: a pruned child was replayed and came back as unmined with unspent outputs.
#[tokio::test]
async fn teranode_1701_1702_a_pruned_child_does_not_come_back() {
    let world = World::new(small()).await;
    let parent = coin("parent", 2);
    world.block_at(1, &[&parent]).await;
    let tx = burn("child", &[(&parent, 0)]);
    world.extend(&[&tx]).await;
    world.extend_to(8).await;
    assert_eq!(world.prune_ok().await, 1);
    assert!(!world.has(&tx).await && world.has(&parent).await);
    let replay = world.store.create(vec![CreateRequest::unmined(tx.clone())], Height(8)).await;
    assert!(replay.is_err(), "{replay:?}");
    let last = world.store.last_applied().await.unwrap().unwrap();
    let block = Block {
        height: Height(9),
        hash: BlockHash([9; 32]),
        parent: last.hash,
        time: 0,
        txs: vec![tx.clone()],
    };
    let refused = world.store.apply_block(Arc::new(block), ApplyOptions::default()).await;
    let refusal = SpendRefusal::SpenderPruned { by: by(&tx, 0), mined_at: Height(2) };
    let problem = TxProblem::Input(InputRefusal { vin: 0, outpoint: op(&parent, 0), refusal });
    match refused {
        Err(ApplyError::Tx { problem: found, .. }) => assert_eq!(*found, problem),
        other => panic!("{other:?}"),
    }
    world.sound().await;
}

/// teranode 1113: the preservation of a live coin ended, and it was deleted.
#[tokio::test]
async fn teranode_1113_the_end_of_a_preservation_does_not_delete_a_live_coin() {
    let world = World::new(small()).await;
    let (live, useless) = (coin("live", 1), burn("useless", &[]));
    world.block_at(1, &[&live, &useless]).await;
    world.store.preserve(vec![live.txid, useless.txid], Height(20)).await.unwrap();
    world.extend_to(19).await;
    assert_eq!(world.prune_ok().await, 0);
    world.extend(&[]).await;
    let job = world.prune().await;
    assert_eq!((job.counts.preservations_expired, job.counts.deleted), (2, 1));
    assert!(world.has(&live).await && !world.has(&useless).await);
    world.sound().await;
}

/// teranode 1186: the height of deletion was stamped from a tip that lagged behind.
#[tokio::test]
async fn teranode_1186_a_lagging_height_makes_nothing_due_early() {
    let world = World::new(small()).await;
    world.block_at(1, &[]).await;
    world.settle().await;
    world.extend_to(49).await;
    let tx = burn("tx", &[]);
    world.extend(&[&tx]).await;
    for asked in [1, 5, 49, 50] {
        let job = world.prune_at(Some(asked)).await;
        assert_eq!((job.height, job.counts.deleted), (Some(Height(asked)), 0));
    }
    assert_eq!(world.pruner.explain(tx.txid).await.unwrap().earliest, Some(Height(55)));
    let beyond = world.prune_at(Some(1_000_000)).await;
    assert_eq!((beyond.height, beyond.counts.deleted), (Some(Height(50)), 0), "never above the chain");
    world.extend_to(55).await;
    assert_eq!(world.prune_ok().await, 1);
    world.sound().await;
}

/// teranode 712: a state that could not be worked with was retried for ever.
#[tokio::test]
async fn teranode_712_a_store_without_blocks_is_told_once_and_not_retried() {
    let world = World::new(small()).await;
    world.settle().await;
    let job = world.prune().await;
    assert_eq!((job.state, job.stopped_early), (JobState::Cancelled, Some(StopReason::NoBlocks)));
    assert_eq!(world.pruner.status().await.unwrap().state, "waiting for the first block");
    assert!(world.pruner.jobs(100).len() <= 2, "{:?}", world.pruner.jobs(100));
    assert!(world.pruner.jobs(100).iter().all(|job| job.trigger != Trigger::Resumed));
    world.sound().await;
}

/// teraslab: pruning a child turned its parent's slot into one that never counts as spent, and 15 % of what was due stayed for ever.
#[tokio::test]
async fn teraslab_after_a_quiet_period_every_deletable_record_is_gone() {
    let world = World::new(small()).await;
    let root = coin("root", 30);
    world.block_at(1, &[&root]).await;
    let mut tips: Vec<Tx> = Vec::new();
    for vout in 0..30 {
        // One after the other, so that most children are pruned long before their parent.
        let tx = child(&format!("branch {vout}"), &[(&root, vout)], 1);
        world.extend(&[&tx]).await;
        if vout % 3 == 0 {
            let end = burn(&format!("end {vout}"), &[(&tx, 0)]);
            world.extend(&[&end]).await;
        } else {
            tips.push(tx);
        }
        world.prune_ok().await;
    }
    for tip in &tips {
        world.extend(&[&burn(&format!("end of {}", tip.txid), &[(tip, 0)])]).await;
    }
    world.extend_to(world.tip().await.0 + 5).await;
    world.prune_ok().await;
    assert_eq!(world.records().await, 0);
    world.sound().await;
}

/// reth 20130: a prune run of 19 minutes.
#[tokio::test]
async fn reth_20130_a_job_is_bounded_by_records_and_time() {
    let options = PrunerOptions {
        records_per_job: 100,
        chunk_records: 10,
        parallel_chunks: 3,
        ..pruner_options(small())
    };
    let world = World::with(options, None).await;
    world.block_at(1, &[]).await;
    world.settle().await;
    world.burns("due", 1000).await;
    world.extend_to(10).await;
    let job = world.prune().await;
    assert!((100..130).contains(&job.counts.looked_at), "up to the end of the chunks under way: {job}");
    let timeless = PrunerOptions {
        time_per_job: std::time::Duration::from_nanos(1),
        chunk_records: 1,
        parallel_chunks: 2,
        ..pruner_options(small())
    };
    let bounded = World::with(timeless, None).await;
    bounded.block_at(1, &[]).await;
    bounded.settle().await;
    bounded.burns("due", 10).await;
    bounded.extend_to(10).await;
    let job = bounded.prune().await;
    assert_eq!((job.state, job.stopped_early), (JobState::Completed, Some(StopReason::TimeLimit)));
    bounded.sound().await;
    world.sound().await;
}

/// reth 22803: pruning inside the commit of a block lost blocks when the process was stopped. Here a job is stopped while blocks come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reth_22803_stopping_a_job_loses_no_block() {
    let options = PrunerOptions { chunk_records: 10, ..pruner_options(small()) };
    let world = World::with(options, None).await;
    world.block_at(1, &[]).await;
    world.settle().await;
    world.burns("due", 500).await;
    world.extend_to(10).await;
    let job = world.pruner.prune_now(None).unwrap();
    let blocks = async {
        for number in 0..50 {
            world.burns(&format!("later {number}"), 5).await;
        }
    };
    let pruner = world.pruner.clone();
    tokio::join!(blocks, async move { pruner.stop().await });
    assert!(world.pruner.job(job).unwrap().state.is_over());
    assert_eq!(world.tip().await, Height(60));
    let world = world.restart().await;
    assert_eq!(world.tip().await, Height(60));
    world.prune_ok().await;
    assert_eq!(world.records().await, 25, "five blocks are too young");
    world.sound().await;
}

/// kaspa 680 and sui 27768: the pruner fell behind and the disk grew without limit, and nobody could see it.
#[tokio::test]
async fn kaspa_680_sui_27768_lag_and_backlog_are_shown() {
    use prometheus_client::{encoding::text::encode, registry::Registry};
    let world = World::new(small()).await;
    world.block_at(1, &[]).await;
    world.settle().await;
    world.pruner.report_persisted(Height(12)).await.unwrap();
    for number in 0..100 {
        world.burns(&format!("block {number}"), 3).await;
    }
    let job = world.prune().await;
    assert_eq!(job.counts.deleted, 3 * 6, "those due at 7 to 12");
    let status = world.pruner.status().await.unwrap();
    assert_eq!((status.height, status.lag_blocks), (Some(Height(101)), 89), "{status:?}");
    assert_eq!((status.backlog_records, status.state.as_str()), (0, "waiting for persister at 12"));
    let mut registry = Registry::default();
    world.pruner.metrics().register(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    for line in [
        "sapwood_prune_lag_blocks 89\n",
        "sapwood_prune_safe_height 12\n",
        "sapwood_hold_keep_from{hold=\"persister\"} 13\n",
        "sapwood_prune_deleted_total 18\n",
        "sapwood_prune_enabled 1\n",
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
    world.pruner.holds().release("persister").await.unwrap();
    assert_eq!(world.pruner.status().await.unwrap().backlog_records, 3 * 89);
    world.prune_ok().await;
    let status = world.pruner.status().await.unwrap();
    assert_eq!((status.lag_blocks, status.backlog_records, status.state.as_str()), (0, 0, "idle"));
    assert!(serde_json::to_string(&status).unwrap().contains("\"lag_blocks\":0"));
    assert_eq!(world.store.due(Height(96), None, 10).await.unwrap().items, []);
    world.sound().await;
}

/// reth 26504: pruning never got past a block with more entries than one run may touch.
#[tokio::test]
async fn reth_26504_a_block_larger_than_a_job() {
    for parallel_chunks in [1, 4] {
        let limits = PrunerOptions { records_per_job: 10, chunk_records: 5, ..pruner_options(small()) };
        let world = World::with(PrunerOptions { parallel_chunks, ..limits }, None).await;
        world.block_at(1, &[]).await;
        world.settle().await;
        let block = world.burns("of one block", 95).await;
        // Some of the block become due only later, behind the cursor.
        let locked = block[..40].iter().map(|tx| tx.txid).collect();
        world.store.set_locked(locked, true).await.unwrap();
        world.burns("of the next", 7).await;
        world.extend_to(10).await;
        // By an event, so that nothing but the cursor brings the next job further.
        world.pruner.report_persisted(Height(10)).await.unwrap();
        world.quiet().await;
        assert_eq!(world.records().await, 40);
        let jobs = world.pruner.jobs(100);
        assert!(jobs.len() >= 3 && jobs.iter().all(|job| job.counts.looked_at <= 25), "{jobs:?}");
        let unlocked = block[..40].iter().map(|tx| tx.txid).collect();
        world.store.set_locked(unlocked, false).await.unwrap();
        world.pruner.prune_now(None).unwrap();
        world.quiet().await;
        assert_eq!(world.records().await, 0);
        world.sound().await;
    }
}

/// polkadot 2850: a node that was restarted before its first window was full never pruned again.
#[tokio::test]
async fn polkadot_2850_restart_inside_the_first_window() {
    let mut world = World::new(small()).await;
    for height in 1..=12 {
        let tx = burn(&format!("of block {height}"), &[]);
        world.block_at(height, &[&tx]).await;
        world = world.restart().await;
        // Nothing but the job of the start.
        world.quiet().await;
        // Block 1 has nothing below it to roll back to, so the window is full one block later than any other time.
        let expected = if height <= 6 { height } else { 5 };
        assert_eq!(world.records().await, u64::from(expected), "at {height}");
    }
    world.sound().await;
}

/// agave 11762: retention was counted without what was still in memory, and too much went. Here the same history once stays in the write
/// buffer and once is read from files after each block: the same records go, and the same stay.
#[tokio::test]
async fn agave_11762_what_is_in_memory_counts() {
    let mut left = Vec::new();
    for from_files in [false, true] {
        let mut world = World::new(small()).await;
        let parents: Vec<Tx> = (0..4).map(|number| coin(&format!("parent {number}"), 1)).collect();
        world.block_at(1, &parents.iter().collect::<Vec<_>>()).await;
        let mut all = parents.clone();
        for (number, parent) in parents.iter().enumerate() {
            let tx = child(&format!("child {number}"), &[(parent, 0)], 1);
            // The first child is never mined, the others are one after the other.
            world.unmined(&tx, 1).await;
            if number > 0 {
                world.extend_to(2 * number as u32).await;
                world.extend(&[&tx]).await;
            }
            all.push(tx);
            if from_files {
                world = world.restart().await;
                world.quiet().await;
            }
        }
        // The last child was mined at 7: its parent is due at 12, the others at 8 and 10.
        world.extend_to(11).await;
        world.prune_ok().await;
        let mut stored = Vec::new();
        for tx in &all {
            stored.push(world.has(tx).await);
        }
        left.push(stored);
        world.sound().await;
    }
    assert_eq!(left[0], [true, false, false, true, true, true, true, true]);
    assert_eq!(left[0], left[1]);
}

/// teranode 673: the height of a persister that was configured away held everything, from an earlier life of the node, in silence.
#[tokio::test]
async fn teranode_673_a_persister_that_left_is_told_about() {
    let world = World::new(small()).await;
    world.block_at(1, &[]).await;
    world.settle().await;
    world.burns("due", 3).await;
    world.pruner.report_persisted(Height(2)).await.unwrap();
    world.quiet().await;
    let world = world.restart().await;
    world.extend_to(20).await;
    world.clock.set(NOW + 3600);
    assert_eq!(world.prune_ok().await, 0);
    let status = world.pruner.status().await.unwrap();
    assert_eq!(status.state, "waiting for persister at 2");
    assert!(status.lag_blocks > 10, "{status:?}");
    let holds = world.pruner.list_holds().await.unwrap();
    let persister = holds.iter().find(|status| status.hold.name == "persister").unwrap();
    let HoldStatus { hold, decides, silent_seconds, .. } = persister;
    assert_eq!((*decides, hold.keep_from, *silent_seconds), (true, Some(Height(3)), Some(3600)));
    world.pruner.holds().release("persister").await.unwrap();
    assert_eq!(world.prune_ok().await, 3);
    world.sound().await;
}
