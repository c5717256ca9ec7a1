//! End to end by a client that is not ours: Python's gRPC, which learns everything by reflection. Each test of
//! `tests/python/test_grpc.py` runs against a server and a store of its own. If Python or its packages cannot be had, they fail.

use std::{
    path::PathBuf,
    process::{Output, Stdio},
};

use crate::support::Setup;
use sapwood_server::{Secret, Tokens};
use tokio::process::Command;

const READ: &str = "read-token-of-the-tests";
const ADMIN: &str = "admin-token-of-the-tests";

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

async fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).kill_on_drop(true).output().await.unwrap()
}

/// What a command says, if it succeeds.
async fn said(command: &mut Command) -> String {
    let output = run(command).await;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}\n{err}", output.status);
    out.trim().to_owned()
}

async fn python() -> Command {
    let interpreter = said(&mut Command::new(root().join("scripts/python-env.sh"))).await;
    let mut python = Command::new(interpreter);
    python.arg("-B").arg(root().join("tests/python/test_grpc.py"));
    python
}

async fn python_test(name: &str, tokens: Tokens) {
    let mut python = python().await;
    python.env("SAPWOOD_TOKEN", ADMIN).env("SAPWOOD_READ_TOKEN", READ);
    let server = Setup { tokens, ..Setup::default() }.start().await;
    said(python.arg(name).env("SAPWOOD_ADDRESS", server.address.to_string())).await;
    server.end().await;
}

macro_rules! python_tests {
    ($($name:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                python_test(stringify!($name), Tokens { read: None, admin: Secret::new(ADMIN).ok() }).await;
            }
        )*

        /// A test that only Python knows of would never run.
        #[tokio::test]
        async fn every_test_is_run() {
            let mut all = vec![$(stringify!($name)),*];
            all.push("tokens_are_asked_for");
            assert_eq!(said(python().await.arg("--list")).await.lines().collect::<Vec<_>>(), all);
        }
    };
}

python_tests! {
    services_are_discovered_by_reflection
    child_mined_at_once_parent_kept_at_1288_gone_at_1289
    child_mined_very_late_parent_gone_at_1788
    child_orphaned_and_mined_again_parent_gone_at_1588
    child_never_mined_parent_never_gone
    child_a_long_before_child_b
    both_children_are_checked_when_one_is_orphaned
    pruning_that_runs_first_after_a_long_pause_keeps_the_parent
    a_short_fork_does_not_restart_the_clock_of_an_unmined_child
    a_deleted_loser_leaves_no_dangling_spender
    a_deleted_unmined_child_gives_its_input_back
    a_pruned_child_cannot_come_back
    an_expired_preservation_does_not_delete_a_live_coin
    preservations_end_when_they_are_over_and_not_before
    a_running_block_assembly_that_is_behind_holds_everything
    the_persister_decides_and_zero_is_not_none
    nothing_goes_while_a_branch_is_exchanged
    the_policy_changes_at_run_time
    a_rival_learns_who_was_first
    outputs_are_frozen_unfrozen_reassigned_and_locked
    transactions_are_mined_and_unmined_by_hand
    pages_are_complete_and_in_order
    a_young_coinbase_cannot_be_spent
    a_bad_block_changes_nothing_and_good_ones_before_it_stay
    a_rollback_below_the_floor_is_refused
    events_are_heard_as_they_happen
    jobs_are_watched_and_listed
    a_hold_keeps_what_it_names_until_it_is_released
    a_bad_hold_is_refused_by_name
    malformed_input_is_refused_and_changes_nothing
    an_oversized_batch_is_refused
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_asked_for() {
    let secret = |text| Secret::new(text).ok();
    python_test("tokens_are_asked_for", Tokens { read: secret(READ), admin: secret(ADMIN) }).await;
}
