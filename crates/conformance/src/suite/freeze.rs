//! Freezing, locking and giving outputs to other owners.

use sapwood_ledger::{
    AddressKind, AddressQuery, CreateError, CreateRequest, FreezeError, InputRefusal, Order, Reassign,
    ReassignError, SpendError, SpendInput, SpendRequest,
};
use sapwood_rules::{KeepReason, SpendRefusal, SpendStatus, Verdict};
use sapwood_types::{AddressHash, Height, OutPoint, Output, Reassignment, Slot, Tx, UtxoHash};

use super::{StoreFactory, Subject, failures, only};
use crate::fixtures::*;

/// A frozen output cannot be spent; an unfrozen one can.
pub async fn frozen_blocks_spending_until_unfrozen(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 2);
    s.add_mined(&parent, 1).await;
    s.freeze(vec![op(&parent, 0)]).await.expect("freeze");
    assert_eq!(s.record(&parent).await.slots, [Slot::Frozen, Slot::Unspent]);
    let tx = child("tx", &[(&parent, 0), (&parent, 1)], 1);
    let inputs = vec![InputRefusal { vin: 0, outpoint: op(&parent, 0), refusal: SpendRefusal::Frozen }];
    let refused = Err(CreateError::Inputs { txid: tx.txid, inputs });
    assert_eq!(s.try_add(CreateRequest::unmined(tx.clone()), 2).await, refused);
    let status = s.spend_status(vec![op(&parent, 0)], Height(2)).await;
    assert_eq!(status, Ok(vec![SpendStatus::Frozen]));
    assert_eq!(s.counts().await.map(|counts| counts.unspent), Ok(2), "a frozen output still counts");
    s.unfreeze(vec![op(&parent, 0)]).await.expect("unfreeze");
    s.add(&tx, 2).await;
    s.sound().await;
}

/// Only unspent outputs can be frozen, only frozen ones unfrozen; each that fails is named, the others are done.
pub async fn only_unspent_can_be_frozen_and_only_frozen_unfrozen(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let mut parent = coin("parent", 4);
    parent.outputs[3] = data_output();
    s.add_mined(&parent, 1).await;
    s.add(&child("tx", &[(&parent, 0)], 1), 2).await;
    let absent = OutPoint::new(txid("absent"), 0);
    let wanted = vec![op(&parent, 0), op(&parent, 1), op(&parent, 3), op(&parent, 4), absent, op(&parent, 1)];
    let not_unspent = |vout| FreezeError::NotUnspent { outpoint: op(&parent, vout) };
    let not_frozen = |vout| FreezeError::NotFrozen { outpoint: op(&parent, vout) };
    let missing = |outpoint| FreezeError::NoSuchOutput { outpoint };
    let no_tx = FreezeError::NotFound { txid: absent.txid };
    assert_eq!(
        failures(s.freeze(wanted.clone()).await, 6),
        [
            (0, not_unspent(0)),
            (2, not_unspent(3)),
            (3, missing(op(&parent, 4))),
            (4, no_tx.clone()),
            (5, not_unspent(1)),
        ]
    );
    let slots = s.record(&parent).await.slots;
    assert_eq!(slots[1..], [Slot::Frozen, Slot::Unspent, Slot::Unspendable]);
    assert_eq!(
        failures(s.unfreeze(wanted).await, 6),
        [
            (0, not_frozen(0)),
            (2, not_frozen(3)),
            (3, missing(op(&parent, 4))),
            (4, no_tx),
            (5, not_frozen(1)),
        ]
    );
    assert_eq!(s.slot(&parent, 1).await, Slot::Unspent);
    s.sound().await;
}

/// Locking and unlocking can be repeated; a transaction that is not there is named.
pub async fn lock_and_unlock(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let tx = coin("tx", 1);
    s.add(&tx, 1).await;
    let absent = txid("absent");
    for on in [true, true, false, false] {
        let failed = failures(s.set_locked(vec![absent, tx.txid], on).await, 2);
        assert_eq!(failed, [(0, FreezeError::NotFound { txid: absent })]);
        assert_eq!(s.head(&tx).await.locked, on);
    }
    s.sound().await;
}

/// A store with a coin whose first output is frozen, and a transaction that wants it but does not hold it.
async fn frozen(factory: &dyn StoreFactory) -> (Subject, Tx) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 2);
    s.add_trusted(&child("claimant", &[(&parent, 0)], 1), 1).await;
    s.add_mined(&parent, 1).await;
    s.freeze(vec![op(&parent, 0)]).await.expect("freeze");
    (s, parent)
}

fn to(owner: &str, outpoint: OutPoint, expected: UtxoHash) -> Reassign {
    Reassign { outpoint, expected, script: script(owner), credential: Some(credential(owner)) }
}

/// Only a frozen output whose hash the caller knows can be reassigned.
pub async fn reassign_needs_a_frozen_output_and_its_hash(factory: &dyn StoreFactory) {
    let (s, mut parent) = frozen(factory).await;
    let before = s.digest().await;
    let reassign = async |request| only(s.reassign(vec![request], Height(5)).await);
    let hash = |vout| utxo_hash(&parent, vout);
    let not_frozen = Err(ReassignError::NotFrozen { outpoint: op(&parent, 1) });
    assert_eq!(reassign(to("new", op(&parent, 1), hash(1))).await, not_frozen);
    let (actual, expected) = (hash(0), hash(1));
    let mismatch = Err(ReassignError::HashMismatch { outpoint: op(&parent, 0), actual, expected });
    assert_eq!(reassign(to("new", op(&parent, 0), expected)).await, mismatch);
    for outpoint in [op(&parent, 2), op(&parent, 200), OutPoint::new(txid("absent"), 0)] {
        assert_eq!(reassign(to("new", outpoint, hash(0))).await, Err(ReassignError::NotFound { outpoint }));
    }
    s.assert_unchanged(before, "a reassignment that is refused").await;
    parent = burn("data", &[]);
    s.add_mined(&parent, 1).await;
    let outpoint = op(&parent, 0);
    let never = Err(ReassignError::NotFound { outpoint });
    assert_eq!(reassign(to("new", outpoint, UtxoHash([0; 32]))).await, never, "it can never be spent");
    s.sound().await;
}

/// A reassigned output has the new owner and a new hash, is noted, and the old hash spends no more.
pub async fn reassigned_output_has_a_new_hash_and_the_old_one_is_gone(factory: &dyn StoreFactory) {
    let (s, parent) = frozen(factory).await;
    let outpoint = op(&parent, 0);
    let old = utxo_hash(&parent, 0);
    only(s.reassign(vec![to("new", outpoint, old)], Height(5)).await).expect("reassign");
    let output =
        Output { credential: Some(credential("new")), ..Output::new(parent.outputs[0].value, script("new")) };
    let new = output.utxo_hash(outpoint);
    let record = s.record(&parent).await;
    assert_eq!(record.outputs[0], Some(output));
    assert_eq!(record.slots, [Slot::Unspent; 2]);
    let noted = Reassignment { vout: 0, old, new, at: Height(5), spendable_from: Height(15) };
    assert_eq!(record.head.reassignments, [noted]);

    let tx = child("claimant", &[(&parent, 0)], 1);
    let spend = async |expected, height| {
        let inputs = vec![SpendInput { vin: 0, outpoint, expected: Some(expected) }];
        let request = SpendRequest { child: tx.txid, inputs, overrides: Default::default() };
        only(s.spend(vec![request], Height(height)).await)
    };
    let refused = |refusal| {
        Err(SpendError::Inputs { child: tx.txid, inputs: vec![InputRefusal { vin: 0, outpoint, refusal }] })
    };
    let mismatch = SpendRefusal::HashMismatch { actual: new, expected: old };
    assert_eq!(spend(old, 6).await, refused(mismatch.clone()), "the hash comes before the delay");
    assert_eq!(spend(old, 1_000).await, refused(mismatch));
    let waits = SpendRefusal::Reassigned { spendable_from: Height(15), height: Height(14) };
    assert_eq!(spend(new, 14).await, refused(waits));
    assert_eq!(spend(new, 15).await, Ok(()), "equality passes");
    s.sound().await;
}

/// With the default policy the delay is a thousand blocks, and readers see it.
pub async fn reassigned_output_is_immature_for_a_thousand_blocks(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, sapwood_rules::Policy::default()).await;
    let parent = coin("parent", 1);
    s.add_mined(&parent, 1).await;
    s.freeze(vec![op(&parent, 0)]).await.expect("freeze");
    s.reassign(vec![to("new", op(&parent, 0), utxo_hash(&parent, 0))], Height(500)).await.expect("reassign");
    let status =
        async |height| s.spend_status(vec![op(&parent, 0)], Height(height)).await.expect("status").remove(0);
    assert_eq!(status(1_499).await, SpendStatus::Immature { spendable_from: Height(1_500) });
    assert_eq!(status(1_500).await, SpendStatus::Spendable);
    let tx = child("tx", &[(&parent, 0)], 1);
    let refusal = SpendRefusal::Reassigned { spendable_from: Height(1_500), height: Height(1_499) };
    let inputs = vec![InputRefusal { vin: 0, outpoint: op(&parent, 0), refusal }];
    let refused = Err(CreateError::Inputs { txid: tx.txid, inputs });
    assert_eq!(s.try_add(CreateRequest::unmined(tx.clone()), 1_499).await, refused);
    s.add(&tx, 1_500).await;
    s.sound().await;
}

/// An output can be reassigned again, also while it waits. Each change is noted, and the last one decides.
pub async fn reassigned_again_the_last_one_decides(factory: &dyn StoreFactory) {
    let (s, parent) = frozen(factory).await;
    let outpoint = op(&parent, 0);
    s.reassign(vec![to("second", outpoint, utxo_hash(&parent, 0))], Height(5)).await.expect("reassign");
    let hash = async || {
        let output = s.record(&parent).await.outputs[0].clone().expect("kept");
        output.utxo_hash(outpoint)
    };
    let second = hash().await;
    s.freeze(vec![outpoint]).await.expect("an output that waits can be frozen");
    s.reassign(vec![to("third", outpoint, second)], Height(8)).await.expect("reassign");
    let third = hash().await;
    let notes: Vec<_> =
        s.head(&parent).await.reassignments.iter().map(|entry| (entry.old, entry.new)).collect();
    assert_eq!(notes, [(utxo_hash(&parent, 0), second), (second, third)]);
    let status =
        async |height| s.spend_status(vec![outpoint], Height(height)).await.expect("status").remove(0);
    assert_eq!(status(17).await, SpendStatus::Immature { spendable_from: Height(18) });
    assert_eq!(status(18).await, SpendStatus::Spendable);
    s.sound().await;
}

/// A reassigned output is found under its new owner and no longer under the old one, by address and by credential.
pub async fn reassigned_output_moves_to_its_new_address(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let mut parent = coin("old", 130);
    parent.outputs[129].credential = Some(credential("old"));
    s.add_mined(&parent, 1).await;
    let outpoint = op(&parent, 129);
    s.freeze(vec![outpoint]).await.expect("freeze");
    let find = async |kind, hash: AddressHash| {
        let query = AddressQuery { kind, hash, order: Order::Descending, after: None, limit: 1 };
        let page = s.by_address(query).await.expect("by address");
        page.items.first().map(|found| found.outpoint)
    };
    use AddressKind::{Address, Credential};
    assert_eq!(find(Credential, credential("old")).await, Some(outpoint));
    s.reassign(vec![to("new", outpoint, utxo_hash(&parent, 129))], Height(5)).await.expect("reassign");
    assert_eq!(find(Address, address("new")).await, Some(outpoint));
    assert_eq!(find(Credential, credential("new")).await, Some(outpoint));
    assert_eq!(find(Credential, credential("old")).await, None);
    assert_eq!(
        find(Address, address("old")).await,
        Some(op(&parent, 128)),
        "the others stay where they were"
    );
    s.sound().await;
}

/// A reassignment never expires: its note lasts, and so does its record, although all of it is spent and however long ago.
pub async fn reassigned_output_keeps_its_record(factory: &dyn StoreFactory) {
    let (s, parent) = frozen(factory).await;
    s.reassign(vec![to("new", op(&parent, 0), utxo_hash(&parent, 0))], Height(5)).await.expect("reassign");
    s.add_mined(&burn("spender", &[(&parent, 1)]), 6).await;
    s.add_mined(&burn("last", &[(&parent, 0)]), 15).await;
    assert_eq!(s.settled(&parent).await, None);
    let reassigned = Verdict::Kept(KeepReason::Reassigned { vout: 0, at: Height(5) });
    assert_eq!(s.try_prune(&[&parent], u32::MAX, &[]).await[0].verdict, reassigned);
    assert_eq!(s.head(&parent).await.reassignments.len(), 1, "the note is still there");
    s.sound().await;
}

/// The loser of a double spend may go although its outputs are unspent, but not if one of them was reassigned.
pub async fn reassigned_output_keeps_even_a_loser(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let (plain, loser) = (coin("plain", 1), coin("loser", 130));
    for tx in [&plain, &loser] {
        s.add(tx, 1).await;
    }
    let outpoint = op(&loser, 129);
    s.freeze(vec![outpoint]).await.expect("freeze");
    s.reassign(vec![to("new", outpoint, utxo_hash(&loser, 129))], Height(5)).await.expect("reassign");
    s.set_conflicting(vec![plain.txid, loser.txid], true, Height(7)).await.expect("set conflicting");
    assert_eq!((s.settled(&plain).await, s.settled(&loser).await), (Some(7), None));
    let reassigned = Verdict::Kept(KeepReason::Reassigned { vout: 129, at: Height(5) });
    assert_eq!(s.try_prune(&[&loser], u32::MAX, &[]).await[0].verdict, reassigned);
    s.sound().await;
}
