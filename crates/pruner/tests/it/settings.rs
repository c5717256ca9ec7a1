//! Enabling, disabling and changing the policy while it runs.

use sapwood_chain::ChainState;
use sapwood_conformance::fixtures::small;
use sapwood_pruner::{JobState, PolicyOrigin, PrunerError, StopReason, Trigger};
use sapwood_rules::{Policy, PolicyChange, PolicyField};
use sapwood_types::Height;

use crate::harness::{NOW, World};

#[tokio::test]
async fn disabled_stays_disabled_after_a_restart_and_enabling_makes_up_for_it() {
    let world = World::new(small()).await;
    world.block_at(1, &[]).await;
    world.settle().await;
    let txs = world.burns("due", 3).await;
    world.extend_to(7).await;
    world.pruner.disable().await.unwrap();
    assert_eq!(world.pruner.prune_now(None), Err(PrunerError::Disabled));
    let world = world.restart().await;
    assert!(!world.pruner.is_enabled());
    assert_eq!(world.pruner.jobs(1), [], "no job is made that could not run");
    assert_eq!(world.pruner.status().await.unwrap().state, "disabled");
    assert!(world.has(&txs[0]).await);
    world.pruner.enable().await.unwrap();
    let resumed = world.pruner.jobs(1).pop().unwrap();
    assert_eq!(resumed.trigger, Trigger::StartUp, "the job of the start is made up for");
    assert_eq!(world.pruner.wait(resumed.id).await.unwrap().counts.deleted, 3);
    let world = world.restart().await;
    assert!(world.pruner.is_enabled());
    world.sound().await;
}

#[tokio::test]
async fn a_job_that_is_disabled_stops_at_the_next_chunk() {
    let world = World::with(
        sapwood_pruner::PrunerOptions {
            chunk_records: 10,
            parallel_chunks: 1,
            ..crate::harness::pruner_options(small())
        },
        None,
    )
    .await;
    world.block_at(1, &[]).await;
    world.settle().await;
    world.burns("due", 50).await;
    world.extend_to(7).await;
    let held = world.hook.hold_chunk(2);
    let job = world.pruner.prune_now(None).unwrap();
    let held = held.arrived().await;
    world.pruner.disable().await.unwrap();
    drop(held);
    let job = world.pruner.wait(job).await.unwrap();
    assert_eq!((job.state, job.stopped_early), (JobState::Cancelled, Some(StopReason::Disabled)));
    assert_eq!(
        (job.counts.deleted, world.records().await),
        (10, 40),
        "one chunk of ten, and nothing of the one in flight"
    );
    world.sound().await;
}

/// erigon 3658: the settings of pruning could not be changed without a resync.
#[tokio::test]
async fn erigon_3658_policy_changes_at_run_time() {
    let world = World::new(Policy::with_retention(100)).await;
    world.block_at(1, &[]).await;
    world.burns("due", 3).await;
    world.extend_to(50).await;
    assert_eq!(world.prune_ok().await, 0);
    let shorter = PolicyChange::to(Policy::with_retention(40));
    let refused = world.pruner.change_policy(shorter, "test", false).await.unwrap_err();
    let said = refused.to_string();
    assert!(
        matches!(refused, PrunerError::Shortens(_)) && said.contains("retention goes from 100 blocks to 40"),
        "{said}"
    );
    assert_eq!(world.pruner.policy(), Policy::with_retention(100), "nothing was changed");
    world.pruner.change_policy(shorter, "test", true).await.unwrap();
    let job = world.prune().await;
    assert_eq!(
        (job.counts.deleted, job.decided_by.as_deref()),
        (0, Some("reorg-window")),
        "the old window still reaches them"
    );
    world.extend(&[]).await;
    world.prune_ok().await;
    assert_eq!(world.records().await, 0);
    let unsafe_one = Policy { reorg_window: 50, ..Policy::with_retention(40) };
    let refused = world.pruner.change_policy(PolicyChange::to(unsafe_one), "test", true).await;
    assert!(matches!(refused, Err(PrunerError::Options(_))));
    assert_eq!(world.pruner.policy(), Policy::with_retention(40));
    world.sound().await;
}

#[tokio::test]
async fn a_retention_of_zero_deletes_nothing() {
    let world = World::new(Policy::with_retention(0)).await;
    world.block_at(1, &[]).await;
    let txs = world.burns("kept", 3).await;
    world.extend_to(500).await;
    assert_eq!(world.prune_ok().await, 0);
    let explanation = world.pruner.explain(txs[0].txid).await.unwrap();
    assert_eq!((explanation.reason.as_deref(), explanation.earliest), (Some("retention_off"), None));
    world.sound().await;
}

#[tokio::test]
async fn height_zero_is_refused_and_a_stopped_pruner_too() {
    let world = World::new(small()).await;
    assert_eq!(world.pruner.prune_now(Some(Height(0))), Err(PrunerError::HeightZero));
    let pruner = world.pruner.clone();
    world.sound().await;
    assert_eq!(pruner.prune_now(None), Err(PrunerError::Stopped));
    assert_eq!(pruner.status().await.unwrap().state, "stopped");
}

/// teranode 489: "running" was not enough, the consumer was behind. Both are asked for.
#[tokio::test]
async fn teranode_489_block_assembly_must_run_and_have_got_there() {
    let world = World::new(small()).await;
    world.block_at(1, &[]).await;
    world.settle().await;
    world.burns("due at 7", 2).await;
    world.burns("due at 8", 2).await;
    world.extend_to(9).await;
    world.pruner.report_block_assembly(false, Some(Height(9))).await.unwrap();
    let job = world.prune().await;
    assert_eq!(job.stopped_early, Some(StopReason::BlockAssemblyNotRunning));
    world.pruner.report_block_assembly(true, Some(Height(7))).await.unwrap();
    let resumed = world.pruner.jobs(1).pop().unwrap();
    let resumed = world.pruner.wait(resumed.id).await.unwrap();
    assert_eq!((resumed.counts.deleted, resumed.decided_by.as_deref()), (2, Some("block-assembly")));
    world.pruner.report_block_assembly(true, Some(Height(9))).await.unwrap();
    assert_eq!(world.prune_ok().await, 2);
    // After a restart it has to say again that it is running.
    let world = world.restart().await;
    world.settle().await;
    assert_eq!(world.prune().await.stopped_early, Some(StopReason::BlockAssemblyNotRunning));
    // If it does not, that is what is wrong.
    world.clock.set(NOW + 61);
    let silent = StopReason::BlockAssemblySilent { seconds: 61 };
    assert_eq!(world.prune().await.stopped_early, Some(silent));
    world.sound().await;
}

/// Block assembly that stops without a report must not count as running.
#[tokio::test]
async fn a_report_of_block_assembly_counts_for_its_ttl() {
    let world = World::new(small()).await;
    world.block_at(1, &[]).await;
    world.settle().await;
    world.burns("due at 7", 2).await;
    world.burns("due at 8", 2).await;
    world.extend_to(7).await;
    world.pruner.report_block_assembly(true, Some(Height(20))).await.unwrap();
    world.clock.set(NOW + 60);
    assert_eq!(world.prune_ok().await, 2, "the last second counts");
    world.extend_to(8).await;
    world.clock.set(NOW + 61);
    let job = world.prune().await;
    assert_eq!(job.stopped_early, Some(StopReason::BlockAssemblySilent { seconds: 61 }), "{job}");
    let status = world.pruner.status().await.unwrap();
    assert!(status.state.contains("block assembly has not reported for 61 s"), "{status:?}");
    // The next report makes up for the job.
    world.pruner.report_block_assembly(true, Some(Height(20))).await.unwrap();
    world.quiet().await;
    assert_eq!(world.records().await, 0);
    world.sound().await;
}

#[tokio::test]
async fn catching_up_counts_as_running_unless_it_is_turned_off() {
    for while_catching_up in [true, false] {
        let options =
            sapwood_pruner::PrunerOptions { while_catching_up, ..crate::harness::pruner_options(small()) };
        let world = World::with(options, None).await;
        world.block_at(1, &[]).await;
        world.burns("due", 2).await;
        world.extend_to(7).await;
        world.settle().await;
        world.events.enter(ChainState::CatchingUp);
        let job = world.prune().await;
        assert_eq!(job.counts.deleted, if while_catching_up { 2 } else { 0 }, "{job}");
        for state in [ChainState::Resetting, ChainState::Reorganising, ChainState::Stopped] {
            world.events.enter(state);
            assert_eq!(world.prune().await.stopped_early, Some(StopReason::ChainNotRunning { state }));
        }
        world.sound().await;
    }
}

/// H5: what was set at run time is forgotten at a restart.
#[tokio::test]
async fn h5_policy_set_at_run_time_survives_restart() {
    let world = World::new(Policy::with_retention(20)).await;
    world.block_at(1, &[]).await;
    world.burns("due", 3).await;
    let longer = PolicyChange { retention: Some(500), ..PolicyChange::default() };
    world.pruner.change_policy(longer, "operator", false).await.unwrap();
    let world = world.restart().await;
    assert_eq!(world.pruner.policy().retention, 500);
    let state = world.pruner.policy_state();
    let origin = state.origin(PolicyField::Retention);
    assert!(matches!(origin, Some(PolicyOrigin::RunTime { by, .. }) if by == "operator"), "{origin:?}");
    world.extend_to(60).await;
    world.prune_ok().await;
    assert_eq!(world.records().await, 3, "20 blocks would have deleted them");
    world.sound().await;
}

/// erigon 23593: an upgrade came with a shorter default, and deleted history that the directory was made to keep.
#[tokio::test]
async fn erigon_23593_an_upgrade_deletes_nothing() {
    let mut world = World::new(Policy::with_retention(4000)).await;
    world.block_at(1, &[]).await;
    world.burns("due", 3).await;
    world.extend_to(600).await;
    world.options.policy = Policy::with_retention(20);
    let world = world.restart().await;
    world.extend_to(700).await;
    assert_eq!(world.prune_ok().await, 0);
    assert_eq!(world.records().await, 3);
    let state = world.pruner.policy_state();
    assert_eq!(state.policy(), Policy::with_retention(4000));
    assert_eq!(state.origin(PolicyField::Retention), Some(&PolicyOrigin::Promise));
    assert_eq!(state.configuration().retention, 20);
    // Confirmed, it is shortened, and the plan said how much goes.
    let shorter = PolicyChange::to(Policy::with_retention(20));
    let Err(PrunerError::Shortens(shortening)) = world.pruner.change_policy(shorter, "operator", false).await
    else {
        panic!("it was not confirmed")
    };
    assert!(shortening.to_string().contains("retention goes from 4,000 blocks to 20 blocks"), "{shortening}");
    world.pruner.change_policy(shorter, "operator", true).await.unwrap();
    world.extend(&[]).await;
    world.prune_ok().await;
    assert_eq!(world.records().await, 0);
    world.sound().await;
}

/// SIGHUP: a configuration that was read again counts as at a start.
#[tokio::test]
async fn h5_a_configuration_read_again_lengthens_at_once_and_shortens_nothing() {
    let world = World::new(Policy::with_retention(20)).await;
    world.block_at(1, &[]).await;
    let state = world.pruner.reconfigure(Policy::with_retention(50)).await.unwrap();
    assert_eq!(
        (state.policy(), world.pruner.policy()),
        (Policy::with_retention(50), Policy::with_retention(50))
    );
    let state = world.pruner.reconfigure(Policy::with_retention(30)).await.unwrap();
    assert_eq!(state.policy(), Policy::with_retention(50));
    let unsafe_one = Policy { reorg_window: 50, ..Policy::with_retention(40) };
    assert!(world.pruner.reconfigure(unsafe_one).await.is_err());
    assert_eq!(world.restart().await.pruner.policy(), Policy::with_retention(50));
}
