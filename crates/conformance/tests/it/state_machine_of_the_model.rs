//! The state machine tried out on the model itself: it must find nothing, see every operation succeed and fail, and notice
//! a store that damages itself.

use sapwood_conformance::{
    model::Models,
    state_machine::{run_sequences, run_sequences_side_by_side},
};
use sapwood_types::Height;

const NEVER_REFUSED: [&str; 6] = [
    "preserve",
    "expire_preservations",
    "end_preservations",
    "prune_undo",
    "set_mined (unset)",
    "seen after a step",
];

#[test]
fn every_operation_succeeds_and_fails_often() {
    let report = run_sequences(&Models::default(), 300, 60, 1);
    report.check();
    for (operation, (fine, refused)) in report.histogram.totals() {
        assert!(fine >= 50, "{operation} was fine only {fine} times");
        // These have nothing to refuse.
        let never_refused = NEVER_REFUSED.contains(&operation);
        assert!(refused >= 25 || never_refused, "{operation} was refused only {refused} times");
    }
}

#[test]
fn a_store_that_loses_undo_records_is_noticed() {
    let faulty = Models::with_fault(|model| {
        _ = model.prune_undo(None, model.rollback_floor().unwrap_or_default(), usize::MAX)
    });
    let failure = run_sequences(&faulty, 50, 60, 1).failure.expect("a failure");
    assert!(failure.problem.contains("undo of"), "{failure}");
}

#[test]
fn a_failing_sequence_is_made_short() {
    let faulty = Models::with_fault(|model| _ = model.expire_preservations(Height::MAX, 9));
    // How short it can get depends on which record is preserved: one that spends from others needs them too.
    let failures: Vec<_> = (1..=10).filter_map(|seed| run_sequences(&faulty, 1, 60, seed).failure).collect();
    let shortest = failures.iter().min_by_key(|failure| failure.trace.len()).expect("a failure");
    assert!(shortest.trace.len() <= 2, "a record and its preservation are enough: {shortest}");
    let longest = failures.iter().max_by_key(|failure| failure.trace.len()).expect("a failure");
    assert!(longest.trace.len() <= 6, "{longest}");
}

/// Two stores of which one damages itself differ, though the first one agrees with the model.
#[test]
fn second_store_that_differs_is_noticed() {
    let faulty = Models::with_fault(|model| _ = model.expire_preservations(Height::MAX, 9));
    let failure =
        run_sequences_side_by_side(&Models::default(), &faulty, 50, 60, 1).failure.expect("a failure");
    assert!(failure.problem.contains("the two stores differ"), "{failure}");
    run_sequences_side_by_side(&Models::default(), &Models::default(), 10, 60, 1).check();
}
