//! What is there when a place is opened again.

use std::sync::Arc;

use sapwood_ledger::{
    ApplyOptions, Ledger, LedgerOptions,
    engine::{EngineError, Support, Table, WriteSet},
};
use sapwood_types::{Block, Height};

use super::rows::{commit, everything};
use crate::{
    EngineFactory,
    fixtures::{block_hash, coin, small},
    suite::run_case,
};

/// Rows, deletions and the number of the last commit survive, also an engine that was opened many times.
pub fn rows_and_number_survive(factory: &dyn EngineFactory) {
    let place = factory.place();
    let (mut expected, mut position) = (Vec::new(), 0);
    for round in 0..5_u8 {
        let engine = place.open().expect("an engine");
        assert_eq!(engine.position(), Ok(position), "round {round}");
        if round > 0 {
            assert_eq!(everything(&*engine), expected, "round {round}");
        }
        for table in Table::ALL {
            commit(&*engine, |writes| {
                writes.put(table, &[round], &[round; 100]);
                writes.put(table, b"same", &[round]);
                writes.delete(table, &[round.wrapping_sub(2)]);
            });
        }
        expected = everything(&*engine);
        position = engine.position().expect("a position");
    }
}

/// Of two that have the same rows open, where that is possible at all, the second to commit is refused.
pub fn two_writers_cannot_both_commit(factory: &dyn EngineFactory) {
    let place = factory.place();
    let first = place.open().expect("an engine");
    commit(&*first, |writes| writes.put(Table::Tx, b"key", b"first"));
    let second = match place.open() {
        Ok(second) => second,
        Err(error) => {
            assert!(matches!(error, EngineError::Locked { .. } | EngineError::NotLeader { .. }), "{error:?}");
            return;
        }
    };
    let next = second.position().expect("a position") + 1;
    commit(&*first, |writes| writes.put(Table::Tx, b"key", b"again"));
    let before = everything(&*first);
    let mut writes = WriteSet::new(next);
    writes.put(Table::Tx, b"key", b"second");
    let refused = second.commit(&writes);
    let refusal = matches!(
        refused,
        Err(EngineError::WrongNumber { .. } | EngineError::Fenced { .. } | EngineError::NotLeader { .. })
    );
    assert!(refusal, "{refused:?}");
    assert_eq!(everything(&*first), before);
}

/// An engine that is open for reading only shows all rows, says so, and refuses to commit.
pub fn reader_reads_and_writes_nothing(factory: &dyn EngineFactory) {
    let place = factory.place();
    let engine = place.open().expect("an engine");
    commit(&*engine, |writes| writes.put(Table::Tx, b"key", b"value"));
    let expected = everything(&*engine);
    drop(engine);
    let Some(reader) = place.open_read_only() else { return };
    let reader = reader.expect("a reader");
    assert_eq!((everything(&*reader), reader.position()), (expected.clone(), Ok(1)));
    assert!(matches!(reader.capabilities().write, Support::No(_)));
    let refused = reader.commit(&WriteSet::new(2));
    assert!(matches!(refused, Err(EngineError::ReadOnly { .. })), "{refused:?}");
    drop(reader);
    let engine = place.open().expect("an engine");
    assert_eq!((everything(&*engine), engine.position()), (expected, Ok(1)));
}

/// A ledger over it is what it was, and goes on.
pub fn ledger_goes_on_after_reopening(factory: &dyn EngineFactory) {
    let place = factory.place();
    let open = || {
        Ledger::open(place.open().expect("an engine"), small(), LedgerOptions::default()).expect("a ledger")
    };
    run_case(Box::pin(async {
        let mut digest = None;
        for height in 1..4 {
            let ledger = open();
            assert_eq!(ledger.identity(), None);
            if let Some(digest) = digest {
                assert_eq!(ledger.state_digest().await, Ok(digest), "before block {height}");
            }
            let block = Block {
                height: Height(height),
                hash: block_hash(&height.to_string()),
                parent: block_hash(&(height - 1).to_string()),
                time: 0,
                txs: vec![coin(&height.to_string(), 200)],
            };
            ledger.apply_block(Arc::new(block), ApplyOptions::default()).await.expect("the next block");
            let report = ledger.verify(Arc::new(|_, _| ())).await.expect("verify");
            assert!(report.is_clean(), "{report}");
            digest = Some(ledger.state_digest().await.expect("a digest"));
        }
    }));
}
