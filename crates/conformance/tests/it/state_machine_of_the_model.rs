//! The state machine tried out on the model itself: it must find nothing, see every operation succeed and fail, and notice
//! a store that damages itself.

use std::sync::Arc;

use async_trait::async_trait;
use sapwood_conformance::{
    Store, StoreFactory,
    model::{Model, ModelStore},
    state_machine::run_sequences,
};
use sapwood_rules::Policy;
use sapwood_types::Height;

struct Plain;

#[async_trait]
impl StoreFactory for Plain {
    async fn fresh(&self, policy: Policy) -> Arc<dyn Store> {
        Arc::new(ModelStore::new(policy))
    }
}

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
    let report = run_sequences(&Plain, 300, 60, 1);
    report.check();
    for (operation, (fine, refused)) in report.histogram.totals() {
        assert!(fine >= 50, "{operation} was fine only {fine} times");
        // These have nothing to refuse.
        let never_refused = NEVER_REFUSED.contains(&operation);
        assert!(refused >= 25 || never_refused, "{operation} was refused only {refused} times");
    }
}

struct Faulty(fn(&mut Model));

#[async_trait]
impl StoreFactory for Faulty {
    async fn fresh(&self, policy: Policy) -> Arc<dyn Store> {
        Arc::new(ModelStore::with_fault(policy, self.0))
    }
}

#[test]
fn a_store_that_loses_undo_records_is_noticed() {
    let faulty =
        Faulty(|model| _ = model.prune_undo(None, model.rollback_floor().unwrap_or_default(), usize::MAX));
    let failure = run_sequences(&faulty, 50, 60, 1).failure.expect("a failure");
    assert!(failure.problem.contains("undo of"), "{failure}");
}

#[test]
fn a_failing_sequence_is_made_short() {
    let faulty = Faulty(|model| _ = model.expire_preservations(Height::MAX, 9));
    // How short it can get depends on which record is preserved: one that spends from others needs them too.
    let failures: Vec<_> = (1..=10).filter_map(|seed| run_sequences(&faulty, 1, 60, seed).failure).collect();
    let shortest = failures.iter().min_by_key(|failure| failure.trace.len()).expect("a failure");
    assert!(shortest.trace.len() <= 2, "a record and its preservation are enough: {shortest}");
    let longest = failures.iter().max_by_key(|failure| failure.trace.len()).expect("a failure");
    assert!(longest.trace.len() <= 6, "{longest}");
}
