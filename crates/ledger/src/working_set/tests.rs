#![allow(clippy::unwrap_used, reason = "tests: to panic is how they fail")]

use bytes::Bytes;
use sapwood_types::{Output, Slot, Tx, TxHead, first_page::pages_of};

use super::*;

const TXID: TxId = TxId([7; 32]);
const OTHER: TxId = TxId([8; 32]);
/// On the first page, and on each of two further ones.
const PLACES: [OutPoint; 3] = [
    OutPoint { txid: TXID, vout: 5 },
    OutPoint { txid: TXID, vout: 130 },
    OutPoint { txid: TXID, vout: 299 },
];

fn tx(txid: TxId, outputs: usize) -> Tx {
    Tx {
        txid,
        version: 1,
        locktime: 0,
        fee: None,
        size: 100,
        coinbase: false,
        inputs: Vec::new(),
        outputs: vec![Output::new(1, &b"script"[..]); outputs],
        raw: Bytes::new(),
    }
}

/// Loads what is missing. There is one record of three pages in the store.
fn load(set: &mut WorkingSet) -> Vec<PageKey> {
    let (first, further) = pages_of(&tx(TXID, 300), TxHead::default(), &mut Scratch::default());
    let mut keys = set.take_missing().unwrap_or_default();
    keys.sort_unstable();
    keys.dedup();
    for key in &keys {
        let bytes = match key {
            (TXID, 0) => Some(first.bytes().to_vec()),
            (TXID, number) => further.get(*number as usize - 1).map(FurtherPage::encode),
            _ => None,
        };
        set.load_row(*key, Ok(bytes.as_deref()));
    }
    keys
}

/// A working set that has all of it loaded, and knows that there is no other record.
fn loaded() -> WorkingSet {
    let mut set = WorkingSet::default();
    set.want([TXID, OTHER]);
    set.want_outputs(PLACES);
    load(&mut set);
    set
}

/// What a transition does that fails half-way: it changes something before all is checked.
fn fail(set: &mut WorkingSet, change: impl FnOnce(&mut WorkingSet)) {
    let failed: Result<(), Stop<&str>> = set.attempt(|set| {
        change(set);
        Err(Stop::Failed("after it has changed something"))
    });
    assert!(failed.is_err());
}

#[test]
fn failed_attempt_leaves_every_page_as_it_was() {
    let mut set = loaded();
    fail(&mut set, |set| {
        for place in PLACES {
            set.set_slot(place, Slot::Frozen).unwrap();
        }
    });
    assert_eq!(set.slots(TXID).unwrap(), [Slot::Unspent; 300]);
    assert!(set.into_changes(None).unwrap().is_empty(), "nothing is written");
}

#[test]
fn failed_attempt_leaves_what_an_earlier_one_did_to_the_same_pages() {
    let mut set = loaded();
    let first: Access<()> =
        set.attempt(|set| PLACES.into_iter().try_for_each(|place| set.set_slot(place, Slot::Frozen)));
    first.unwrap();
    let expected = set.record(TXID).unwrap();
    fail(&mut set, |set| {
        for place in PLACES {
            set.set_slot(place, Slot::Unspent).unwrap();
            set.set_slot(OutPoint::new(TXID, place.vout - 1), Slot::Frozen).unwrap();
        }
    });
    fail(&mut set, |set| set.remove(TXID).unwrap());
    fail(&mut set, |set| set.set_conflicting_since(TXID, Some(Height(3))).unwrap());
    assert_eq!(set.record(TXID).unwrap(), expected);
    let changes = set.into_changes(None).unwrap();
    let changed: Vec<u32> = changes.further.iter().map(|((_, number), _)| *number).collect();
    assert_eq!((changes.first.len(), changed), (1, vec![1, 2]));
}

#[test]
fn record_that_a_failed_attempt_made_is_not_there() {
    let mut set = loaded();
    fail(&mut set, |set| set.insert_new(&tx(OTHER, 300), TxHead::default()).unwrap());
    assert!(!set.contains(OTHER).unwrap());
    assert!(set.into_changes(None).unwrap().is_empty());
    // Removed and made again with fewer pages, and all of it reverted.
    let mut set = loaded();
    let expected = set.record(TXID).unwrap();
    fail(&mut set, |set| {
        set.remove(TXID).unwrap();
        set.insert_new(&tx(TXID, 200), TxHead::default()).unwrap();
    });
    assert_eq!(set.record(TXID).unwrap(), expected);
    assert!(set.into_changes(None).unwrap().is_empty());
}

#[test]
fn page_that_is_not_loaded_is_noted_and_stops() {
    let mut set = WorkingSet::default();
    assert_eq!(set.contains(OTHER), Err(Stop::Need));
    assert_eq!(set.slot(PLACES[1]), Err(Stop::Need));
    assert_eq!(set.set_slot(PLACES[0], Slot::Frozen), Err(Stop::Need));
    assert_eq!(set.insert_new(&tx(OTHER, 1), TxHead::default()), Err(Stop::Need));
    // The first page has to be known before it is known that there is another.
    assert_eq!(load(&mut set), [(TXID, 0), (OTHER, 0)]);
    assert_eq!((set.contains(OTHER), set.slot(PLACES[0])), (Ok(false), Ok(Some(Slot::Unspent))));
    assert_eq!(set.slot(PLACES[1]), Err(Stop::Need));
    assert_eq!(load(&mut set), [(TXID, 1)]);
    assert_eq!(set.slot(PLACES[1]), Ok(Some(Slot::Unspent)));
    assert_eq!(set.slot(OutPoint::new(TXID, 300)), Ok(None), "there is no such output, whatever is loaded");
    assert_eq!((set.record(TXID), load(&mut set)), (Err(Stop::Need), vec![(TXID, 2)]));
    assert!(set.record(TXID).unwrap().is_some());
}

#[test]
fn declared_pages_are_loaded_at_once_and_once() {
    let mut set = WorkingSet::default();
    set.want([OTHER, TXID, TXID]);
    set.want_outputs(PLACES);
    assert_eq!(set.ready(), Err(Stop::Need));
    assert_eq!(load(&mut set), [(TXID, 0), (TXID, 1), (TXID, 2), (OTHER, 0)]);
    set.want([OTHER, TXID]);
    set.want_outputs(PLACES);
    set.want_pages(TXID).unwrap();
    assert_eq!((set.ready(), load(&mut set)), (Ok(()), vec![]));
    assert!(set.take_missing().is_err(), "there is nothing to run again for");
}

#[test]
fn loop_goes_on_behind_a_miss_and_trusts_no_failure_there() {
    let others = [1, 2, 3].map(|number| TxId([number; 32]));
    let mut set = WorkingSet::default();
    let visit = |set: &mut WorkingSet, txid: TxId| match set.contains(txid)? {
        true => Ok(()),
        false => Err(Stop::Failed(corrupt(txid, DecodeError::BadNumber { field: "test" }))),
    };
    set.want([others[1]]);
    load(&mut set);
    // The second one fails behind the miss of the first one.
    assert_eq!(set.each(others, visit), Err(Stop::Need));
    assert_eq!(load(&mut set), [(others[0], 0), (others[2], 0)]);
    let failed = Stop::Failed(corrupt(others[0], DecodeError::BadNumber { field: "test" }));
    assert_eq!(set.each(others, visit), Err(failed), "the first failure, once nothing is missed");
    set.want([TxId([9; 32])]);
    let failed = set.each(others, visit);
    assert_eq!(set.conclude(failed), None, "something was declared and is not loaded");
}

#[test]
fn rewound_set_is_as_it_was_loaded() {
    let mut set = loaded();
    let expected = set.record(TXID).unwrap();
    set.set_slot(PLACES[0], Slot::Frozen).unwrap();
    set.set_slot(PLACES[1], Slot::Frozen).unwrap();
    set.insert_new(&tx(OTHER, 300), TxHead::default()).unwrap();
    set.rewind();
    assert_eq!((set.record(TXID).unwrap(), set.contains(OTHER)), (expected, Ok(false)));
    set.remove(TXID).unwrap();
    set.rewind();
    assert!(set.contains(TXID).unwrap());
    assert!(set.into_changes(None).unwrap().is_empty());
}

#[test]
fn damaged_page_fails_what_touches_it_and_nothing_else() {
    let mut set = loaded();
    let third = TxId([9; 32]);
    let damage = corrupt(third, DecodeError::BadNumber { field: "test" });
    set.load_row((third, 0), Err(damage.clone()));
    set.load_row((OTHER, 1), Ok(Some(&[0xee])));
    assert_eq!(set.contains(third), Err(Stop::Failed(damage.clone())));
    assert_eq!(set.head_mut(third).err(), Some(Stop::Failed(damage)));
    assert_eq!(set.slot(PLACES[2]), Ok(Some(Slot::Unspent)));
    let further = set.insert_new(&tx(OTHER, 300), TxHead::default());
    let Err(Stop::Failed(StoreError::Corrupt { what, .. })) = further else { panic!("{further:?}") };
    assert_eq!(what, format!("page 1 of transaction {OTHER}"));
}
