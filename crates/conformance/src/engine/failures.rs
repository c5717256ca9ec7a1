//! Damage that the engine notices, and commits that fail.

use std::{ops::ControlFlow, sync::Arc};

use sapwood_ledger::{
    EngineError, Ledger, LedgerOptions, StoreError,
    engine::{DamagedRange, DamagedRow, Maintenance, Scan, Table},
};

use super::rows::{commit, get};
use crate::{
    EngineFactory, Place,
    crash::{
        failing::{FailAt, every_write, store_error},
        ledger_options,
        timeline::{Timeline, Workload},
    },
    state_machine::rng::Rng,
    suite::run_case,
};

/// What an engine finds damaged is an error of that key, and the rows far from it are read. A scan over it fails; it does not skip, unless it is
/// one that goes past damage and names it.
pub fn damaged_row_is_reported_for_its_own_key(factory: &dyn EngineFactory) {
    let place = factory.place();
    let mut rng = Rng::new(3);
    // So many and so large that they lie in many blocks, whatever these are.
    let rows: Vec<([u8; 32], [u8; 2_000])> = (0..300).map(|_| (rng.bytes(), rng.bytes())).collect();
    let mut keys: Vec<&[u8]> = rows.iter().map(|(key, _)| &key[..]).collect();
    keys.sort_unstable();
    let engine = place.open().expect("an engine");
    commit(&*engine, |writes| rows.iter().for_each(|(key, value)| writes.put(Table::Tx, key, value)));
    engine.maintain(Maintenance::Settle).expect("maintenance");
    drop(engine);
    let bad = keys[150];
    if !place.damage(Table::Tx, bad) {
        return;
    }
    let engine = place.open().expect("the same engine");
    let view = engine.view().expect("a view");
    let mut found = Vec::new();
    let each = &mut |_: usize, value: Result<Option<&[u8]>, DamagedRow>| {
        found.push(value.map(|value| value.is_some()))
    };
    view.get_many(Table::Tx, &[keys[0], bad, keys[299]], each).expect("reading");
    assert_eq!((&found[0], &found[2]), (&Ok(true), &Ok(true)), "rows far from the damage");
    assert!(found[1].is_err(), "damage is not noticed: {:?}", found[1]);
    let mut scanned = Vec::new();
    let scan = view.scan(&Scan::all(Table::Tx), &mut |key, _| {
        scanned.push(key.to_vec());
        ControlFlow::Continue(())
    });
    assert!(scan.is_err(), "a scan over damage shows {} of 300 rows and no error", scanned.len());
    assert!(!scanned.contains(&bad.to_vec()));
    let (mut past, mut damaged) = (Vec::new(), Vec::new());
    let row = &mut |key: &[u8], _: &[u8]| {
        past.push(key.to_vec());
        ControlFlow::Continue(())
    };
    view.scan_past_damage(&Scan::all(Table::Tx), row, &mut |range| damaged.push(range))
        .expect("a scan past damage");
    let [DamagedRange { after: Some(after), before: Some(before), .. }] = &damaged[..] else {
        panic!("one damaged row between two that are read, and {damaged:?}");
    };
    assert!(&after[..] < bad && bad < &before[..]);
    let is_whole = |key: &&[u8]| **key <= after[..] || **key >= before[..];
    assert_eq!(past, keys.iter().copied().filter(is_whole).collect::<Vec<_>>());
    drop(view);
    // Written again it is whole.
    commit(&*engine, |writes| writes.put(Table::Tx, bad, b"again"));
    assert_eq!(get(&*engine.view().expect("a view"), Table::Tx, bad).as_deref(), Some(&b"again"[..]));
}

fn open(place: &dyn Place, timeline: &Timeline, fails: Option<(&'static str, u64)>) -> Ledger {
    let faults = fails.map(|(point, hit)| FailAt::nth(point, hit));
    let options = LedgerOptions { faults, ..ledger_options() };
    Ledger::open(place.open().expect("an engine"), timeline.policy(), options).expect("a ledger")
}

/// Goes on with a timeline until a commit fails. Returns how; the operation that failed is the timeline's last.
async fn work_until_it_fails(ledger: &Ledger, timeline: &mut Timeline) -> StoreError {
    for _ in 0..5_000 {
        let (op, expected) = timeline.step();
        let outcome = op.on_store(ledger).await;
        if let Some(error) = store_error(&outcome) {
            return error.clone();
        }
        assert_eq!(outcome.is_ok(), expected.is_ok(), "{}: {outcome:?}", op.name());
    }
    panic!("no write failed");
}

/// A commit that fails before it is written is not there when the place is opened again, one that fails after it is there as a whole; and the
/// ledger goes on from it.
pub fn failed_commit_poisons_the_ledger_until_reopened(factory: &dyn EngineFactory) {
    run_case(Box::pin(async {
        for (point, is_there) in [("before-write", 0), ("after-write", 1)] {
            for (workload, hit) in [(Workload::EveryOperation, 12), (Workload::Chain, 25)] {
                let place = factory.place();
                let mut timeline = Timeline::new(workload, hit);
                let ledger = open(&*place, &timeline, Some((point, hit)));
                let error = work_until_it_fails(&ledger, &mut timeline).await;
                let cause = FailAt::CAUSE.to_owned();
                assert_eq!(error, StoreError::Engine(EngineError::Failed { doing: point, cause }));
                let refused = ledger.put_notes(vec![("note".into(), None)]).await;
                assert!(matches!(refused, Err(StoreError::Poisoned { .. })), "{refused:?}");
                drop(ledger);

                let found = timeline.at() - 1 + is_there;
                timeline.go_to(found);
                let ledger = open(&*place, &timeline, None);
                let report = ledger.verify(Arc::new(|_, _| ())).await.expect("verify");
                assert!(report.is_clean(), "{report}");
                for number in found..found + 10 {
                    let digest = ledger.state_digest().await.expect("a digest");
                    assert_eq!(digest, timeline.digest_at(number), "{point}: {}", timeline.describe(number));
                    timeline.step().0.on_store(&ledger).await;
                }
            }
        }
    }));
}

/// After a failed commit every kind of write is refused, with the cause, and reading works.
pub fn every_write_is_refused_after_a_failed_one(factory: &dyn EngineFactory) {
    run_case(Box::pin(async {
        let place = factory.place();
        let mut timeline = Timeline::new(Workload::Chain, 9);
        let ledger = open(&*place, &timeline, Some(("before-write", 9)));
        work_until_it_fails(&ledger, &mut timeline).await;
        for op in every_write() {
            let outcome = op.on_store(&ledger).await;
            let Some(StoreError::Poisoned { cause }) = store_error(&outcome) else {
                panic!("{} was not refused: {outcome:?}", op.name());
            };
            assert!(cause.contains(FailAt::CAUSE), "{cause}");
        }
        let before = timeline.at() - 1;
        assert_eq!(ledger.state_digest().await, Ok(timeline.digest_at(before)));
        assert!(ledger.counts().await.is_ok() && ledger.unmined(None, 10).await.is_ok());
    }));
}
