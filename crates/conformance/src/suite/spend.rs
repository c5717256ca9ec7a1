//! Spending, and taking spends back.

use sapwood_ledger::{CreateRequest, InputRefusal, SpendError, SpendInput, SpendRequest, UnspendError};
use sapwood_rules::{SpendRefusal, SpendStatus, spendability::SpendOverrides};
use sapwood_types::{Height, OutPoint, Output, Slot, Tx, UtxoHash};

use super::{StoreFactory, Subject, failures, only};
use crate::fixtures::*;

fn refused(tx: &Tx, refusals: &[(u32, SpendRefusal)]) -> Result<(), SpendError> {
    let refusal = |(vin, refusal): &(u32, SpendRefusal)| InputRefusal {
        vin: *vin,
        outpoint: tx.inputs[*vin as usize].outpoint,
        refusal: refusal.clone(),
    };
    Err(SpendError::Inputs { child: tx.txid, inputs: refusals.iter().map(refusal).collect() })
}

fn request(tx: &Tx, vin: u32, expected: Option<UtxoHash>) -> SpendRequest {
    let input = SpendInput { vin, outpoint: tx.inputs[vin as usize].outpoint, expected };
    SpendRequest { child: tx.txid, inputs: vec![input], overrides: SpendOverrides::default() }
}

/// Who wants an output that another transaction spends is refused, and told who that is and whether it is mined.
pub async fn a_rival_is_refused_and_told_by_whom(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 1);
    let (first, rival) = (child("first", &[(&parent, 0)], 1), child("rival", &[(&parent, 0)], 1));
    s.add_trusted(&rival, 1).await;
    s.add_mined(&parent, 1).await;
    s.add(&first, 2).await;
    let by = by(&first, 0);
    let unmined = refused(&rival, &[(0, SpendRefusal::Spent { by, mined_at: None })]);
    assert_eq!(s.try_spend(&rival, &[0], 3).await, unmined);
    s.mine(&first, 3).await;
    let mined = refused(&rival, &[(0, SpendRefusal::Spent { by, mined_at: Some(Height(3)) })]);
    assert_eq!(s.try_spend(&rival, &[0], 4).await, mined);
    assert_eq!(s.slot(&parent, 0).await, spent(&first, 0, Some(3)));
    s.sound().await;
}

/// The same spend again is fine and changes nothing, also once the spender is mined.
pub async fn the_same_spend_again_is_fine(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 2);
    s.add_mined(&parent, 1).await;
    let tx = child("tx", &[(&parent, 0), (&parent, 1)], 1);
    s.add(&tx, 2).await;
    let before = s.digest().await;
    assert_eq!(s.try_spend(&tx, &[0, 1], 2).await, Ok(()));
    assert_eq!(s.try_spend(&tx, &[1], 9).await, Ok(()));
    s.assert_unchanged(before, "a repeated spend").await;
    s.mine(&tx, 3).await;
    let before = s.digest().await;
    assert_eq!(s.try_spend(&tx, &[1, 0], 3).await, Ok(()));
    s.assert_unchanged(before, "a repeated spend by a mined transaction").await;
    s.sound().await;
}

/// The spender must be stored, must not have lost, and must have that very input.
pub async fn the_spender_must_be_the_one_it_is_said_to_be(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 2);
    let tx = child("tx", &[(&parent, 0), (&parent, 1)], 1);
    s.add_trusted(&tx, 1).await;
    s.add_mined(&parent, 1).await;
    let unknown = child("unknown", &[(&parent, 0)], 1);
    let loser = child("loser", &[(&parent, 0)], 1);
    s.add_loser(&loser, 2).await;
    let before = s.digest().await;

    let error = Err(SpendError::UnknownSpender { child: unknown.txid });
    assert_eq!(s.try_spend(&unknown, &[0], 3).await, error);
    let error = Err(SpendError::SpenderConflicting { child: loser.txid, since: Height(2) });
    assert_eq!(s.try_spend(&loser, &[0], 3).await, error);
    let input = |vin, vout| SpendInput { vin, outpoint: op(&parent, vout), expected: None };
    for (inputs, wrong) in [
        (vec![input(0, 1)], input(0, 1)),
        (vec![input(2, 0)], input(2, 0)),
        (vec![input(0, 0), input(1, 0), input(7, 0)], input(1, 0)),
    ] {
        let request = SpendRequest { child: tx.txid, inputs, overrides: SpendOverrides::default() };
        let error = SpendError::NotAnInput { child: tx.txid, vin: wrong.vin, outpoint: wrong.outpoint };
        assert_eq!(
            only(s.spend(vec![request], Height(3)).await),
            Err(error),
            "the first wrong input is named"
        );
    }
    s.assert_unchanged(before, "a spend by the wrong one").await;
    s.sound().await;
}

/// The checks come in the documented order: conflict, lock, maturity, then the slot.
pub async fn checks_come_in_the_documented_order(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coinbase("parent", 1);
    let tx = child("tx", &[(&parent, 0)], 1);
    s.add_trusted(&tx, 10).await;
    s.add(&parent, 10).await;
    s.freeze(vec![op(&parent, 0)]).await.expect("freeze");
    s.set_locked(vec![parent.txid], true).await.expect("lock");
    s.unfreeze(vec![op(&parent, 0)]).await.expect("unfreeze");
    s.try_conflicting(&parent, true, 11).await.expect("lose");
    s.freeze(vec![op(&parent, 0)]).await.expect("a loser's output can be frozen too");

    let conflicting = SpendRefusal::Conflicting { since: Height(11) };
    assert_eq!(s.try_spend(&tx, &[0], 12).await, refused(&tx, &[(0, conflicting)]));
    let with = |ignore_conflicting, ignore_locked| {
        let overrides = SpendOverrides { ignore_conflicting, ignore_locked };
        SpendRequest { overrides, ..request(&tx, 0, None) }
    };
    let spend = async |request, height| only(s.spend(vec![request], Height(height)).await);
    assert_eq!(spend(with(true, false), 12).await, refused(&tx, &[(0, SpendRefusal::Locked)]));
    let immature = SpendRefusal::Immature { spendable_from: Height(13), height: Height(12) };
    assert_eq!(spend(with(true, true), 12).await, refused(&tx, &[(0, immature)]));
    assert_eq!(spend(with(true, true), 13).await, refused(&tx, &[(0, SpendRefusal::Frozen)]));
    s.sound().await;
}

/// A reader sees the first that applies of locked, conflicting, frozen, immature, spent.
pub async fn status_shows_the_first_that_applies(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let tx = coinbase("tx", 2);
    s.add(&tx, 10).await;
    let status = async |height| {
        let found = s.spend_status(vec![op(&tx, 0), op(&tx, 1)], Height(height)).await.expect("status");
        [found[0], found[1]]
    };
    s.freeze(vec![op(&tx, 0)]).await.expect("freeze");
    let immature = SpendStatus::Immature { spendable_from: Height(13) };
    assert_eq!(status(12).await, [SpendStatus::Frozen, immature]);
    assert_eq!(status(13).await, [SpendStatus::Frozen, SpendStatus::Spendable], "equality passes");
    let spender = child("spender", &[(&tx, 1)], 1);
    s.add(&spender, 13).await;
    let spent = SpendStatus::Spent { by: Some(by(&spender, 0)), mined_at: None };
    assert_eq!(status(13).await, [SpendStatus::Frozen, spent]);
    s.unfreeze(vec![op(&tx, 0)]).await.expect("unfreeze");
    s.try_conflicting(&tx, true, 14).await.expect("lose");
    assert_eq!(status(20).await, [SpendStatus::Conflicting { since: Height(14) }; 2]);
    s.set_locked(vec![tx.txid], true).await.expect("lock");
    assert_eq!(status(20).await, [SpendStatus::Locked; 2]);
    let absent = s.spend_status(vec![OutPoint::new(txid("absent"), 0)], Height(20)).await;
    assert_eq!(absent, Ok(vec![SpendStatus::NotFound]));
    s.sound().await;
}

/// Nothing spends from a locked transaction until it is unlocked.
pub async fn locked_outputs_cannot_be_spent(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 1);
    let tx = child("tx", &[(&parent, 0)], 1);
    s.add_trusted(&tx, 1).await;
    let locked = CreateRequest { locked: true, ..CreateRequest::unmined(parent.clone()) };
    s.try_add(locked, 1).await.expect("create");
    assert_eq!(s.try_spend(&tx, &[0], 2).await, refused(&tx, &[(0, SpendRefusal::Locked)]));
    assert_eq!(s.slot(&parent, 0).await, Slot::Unspent);
    s.set_locked(vec![parent.txid], false).await.expect("unlock");
    assert_eq!(s.try_spend(&tx, &[0], 2).await, Ok(()));
    assert_eq!(s.slot(&parent, 0).await, spent(&tx, 0, None));
    s.sound().await;
}

/// A coinbase may be spent at exactly its height plus the maturity, and not one block before.
pub async fn coinbase_maturity_edges(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coinbase("parent", 1);
    let tx = child("tx", &[(&parent, 0)], 1);
    s.add_trusted(&tx, 100).await;
    s.add_mined(&parent, 100).await;
    for height in [0, 100, 102] {
        let immature = SpendRefusal::Immature { spendable_from: Height(103), height: Height(height) };
        assert_eq!(s.try_spend(&tx, &[0], height).await, refused(&tx, &[(0, immature)]), "at {height}");
    }
    assert_eq!(s.try_spend(&tx, &[0], 103).await, Ok(()), "equality passes");
    s.sound().await;
}

/// All inputs or none: where one of them is taken, the others stay as they were.
pub async fn a_failed_double_spend_leaves_every_slot_as_it_was(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 4);
    let tx = child("tx", &[(&parent, 0), (&parent, 1), (&parent, 2), (&parent, 3)], 1);
    s.add_trusted(&tx, 1).await;
    s.add_mined(&parent, 1).await;
    let rival = child("rival", &[(&parent, 1), (&parent, 3)], 1);
    s.add(&rival, 2).await;
    let before = s.digest().await;
    let spent_by = |vin| SpendRefusal::Spent { by: by(&rival, vin), mined_at: None };
    let both = refused(&tx, &[(1, spent_by(0)), (3, spent_by(1))]);
    assert_eq!(s.try_spend(&tx, &[0, 1, 2, 3], 3).await, both);
    s.assert_unchanged(before, "a failed double spend").await;
    s.sound().await;
}

/// A failed spend undoes only what it did itself: what the same transaction held before, it still holds. A store that
/// "undid" the repeated part of the call lost an earlier spend.
pub async fn a_failed_spend_keeps_what_was_held_before(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 3);
    let tx = child("tx", &[(&parent, 0), (&parent, 1), (&parent, 2)], 1);
    s.add_trusted(&tx, 1).await;
    s.add_mined(&parent, 1).await;
    let rival = child("rival", &[(&parent, 1)], 1);
    s.add(&rival, 2).await;
    s.try_spend(&tx, &[0], 2).await.expect("the first input is free");
    let taken = SpendRefusal::Spent { by: by(&rival, 0), mined_at: None };
    assert_eq!(s.try_spend(&tx, &[0, 1, 2], 3).await, refused(&tx, &[(1, taken)]));
    let slots = [spent(&tx, 0, None), spent(&rival, 0, None), Slot::Unspent];
    assert_eq!(s.record(&parent).await.slots, slots);
    s.sound().await;
}

/// Two inputs of one call on the same output: the second is refused, as it would be in two calls.
pub async fn one_output_cannot_be_spent_twice_in_one_call(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 1);
    let tx = child("tx", &[(&parent, 0), (&parent, 0)], 1);
    s.add_trusted(&tx, 1).await;
    s.add_mined(&parent, 1).await;
    let twice = refused(&tx, &[(1, SpendRefusal::Spent { by: by(&tx, 0), mined_at: None })]);
    assert_eq!(s.try_spend(&tx, &[0, 1], 2).await, twice);
    assert_eq!(s.slot(&parent, 0).await, Slot::Unspent, "all or nothing");
    s.sound().await;
}

/// A spender that is mined already leaves its height in the slot.
pub async fn a_mined_spender_leaves_its_height(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 1);
    let tx = child("tx", &[(&parent, 0)], 1);
    let trusted = CreateRequest { trust_inputs: true, ..CreateRequest::mined(tx.clone(), 8, Height(8)) };
    s.try_add(trusted, 8).await.expect("create");
    s.add_mined(&parent, 1).await;
    assert_eq!(s.try_spend(&tx, &[0], 20).await, Ok(()));
    assert_eq!(s.slot(&parent, 0).await, spent(&tx, 0, Some(8)), "the block's height, not the caller's");
    assert_eq!(s.settled(&parent).await, Some(8));
    s.sound().await;
}

/// The hash of the output is checked where the caller gives one.
pub async fn the_expected_hash_is_checked(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let mut parent = coin("parent", 1);
    parent.outputs.push(data_output());
    let tx = child("tx", &[(&parent, 0), (&parent, 1)], 1);
    s.add_trusted(&tx, 1).await;
    s.add_mined(&parent, 1).await;
    let (actual, expected) = (utxo_hash(&parent, 0), UtxoHash([9; 32]));
    let spend = async |vin, expected| only(s.spend(vec![request(&tx, vin, Some(expected))], Height(2)).await);
    let mismatch = SpendRefusal::HashMismatch { actual, expected };
    assert_eq!(spend(0, expected).await, refused(&tx, &[(0, mismatch)]));
    let never = refused(&tx, &[(1, SpendRefusal::Unspendable)]);
    assert_eq!(spend(1, expected).await, never, "an output of which nothing is kept has no hash to compare");
    assert_eq!(spend(0, actual).await, Ok(()));
    s.sound().await;
}

/// Outputs worth nothing are spent like others; data outputs and outputs that do not exist are refused for what they are.
pub async fn zero_value_data_and_missing_outputs(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let outputs = vec![Output::new(0, script("zero")), data_output()];
    let parent = Tx { outputs, ..coin("parent", 0) };
    let tx = child("tx", &[(&parent, 0), (&parent, 1), (&parent, 2), (&coin("absent", 1), 0)], 1);
    s.add_trusted(&tx, 1).await;
    s.add_mined(&parent, 1).await;
    assert_eq!(s.try_spend(&tx, &[0], 2).await, Ok(()));
    let refusals = [
        (1, SpendRefusal::Unspendable),
        (2, SpendRefusal::NoSuchOutput { outputs: 2 }),
        (3, SpendRefusal::NotFound),
    ];
    assert_eq!(s.try_spend(&tx, &[0, 1, 2, 3], 2).await, refused(&tx, &refusals));
    assert_eq!(s.record(&parent).await.slots, [spent(&tx, 0, None), Slot::Unspendable]);
    s.sound().await;
}

/// In a batch each transaction stands alone: those that can spend do, the others are named.
pub async fn each_spender_of_a_batch_stands_alone(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 2);
    let a = child("a", &[(&parent, 0)], 1);
    let b = child("b", &[(&parent, 0)], 1);
    let c = child("c", &[(&parent, 1)], 1);
    for tx in [&a, &b, &c] {
        s.add_trusted(tx, 1).await;
    }
    s.add_mined(&parent, 1).await;
    let batch = [&a, &b, &c].map(|tx| request(tx, 0, None)).to_vec();
    let failed = failures(s.spend(batch, Height(2)).await, 3);
    let taken = refused(&b, &[(0, SpendRefusal::Spent { by: by(&a, 0), mined_at: None })]);
    assert_eq!(failed, [(1, taken.unwrap_err())]);
    assert_eq!(s.record(&parent).await.slots, [spent(&a, 0, None), spent(&c, 0, None)]);
    s.sound().await;
}

/// An output that is given back is unspent again, can be read, and can be spent by another.
pub async fn unspend_gives_the_output_back(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 1);
    s.add_mined(&parent, 1).await;
    let fresh = s.record(&parent).await;
    let (tx, other) = (child("tx", &[(&parent, 0)], 1), child("other", &[(&parent, 0)], 1));
    s.add(&tx, 2).await;
    assert_eq!(s.give_back(op(&parent, 0), by(&tx, 0)).await, Ok(()));
    assert_eq!(s.record(&parent).await, fresh, "as if it had never been spent");
    assert_eq!(s.give_back(op(&parent, 0), by(&tx, 0)).await, Ok(()), "an unspent output is fine");
    assert_eq!(s.record(&parent).await, fresh);
    s.add(&other, 3).await;
    assert_eq!(s.slot(&parent, 0).await, spent(&other, 0, None));
    s.sound().await;
}

/// Only the spender named can be taken back. A store that did not compare erased another transaction's spend.
pub async fn unspend_compares_the_spender_first(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 2);
    s.add_mined(&parent, 1).await;
    let tx = child("tx", &[(&parent, 0), (&parent, 1)], 1);
    s.add(&tx, 2).await;
    let before = s.digest().await;
    for wanted in [by(&coin("stranger", 1), 0), by(&tx, 1), by(&tx, 9)] {
        let outpoint = op(&parent, 0);
        let error = Err(UnspendError::OtherSpender { outpoint, by: by(&tx, 0), wanted });
        assert_eq!(s.give_back(outpoint, wanted).await, error);
    }
    s.assert_unchanged(before, "an unspend of somebody else's spend").await;
    s.sound().await;
}

/// What cannot be given back: what is not there, what is frozen, what carries data only, and what a mined transaction spends.
pub async fn what_cannot_be_given_back(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let mut parent = coin("parent", 3);
    parent.outputs[2] = data_output();
    s.add_mined(&parent, 1).await;
    let tx = child("tx", &[(&parent, 0)], 1);
    s.add_mined(&tx, 4).await;
    s.freeze(vec![op(&parent, 1)]).await.expect("freeze");
    let before = s.digest().await;
    let outpoint = op(&parent, 0);
    let mined = Err(UnspendError::SpenderMined { outpoint, mined_at: Height(4) });
    assert_eq!(s.give_back(outpoint, by(&tx, 0)).await, mined);
    let frozen = Err(UnspendError::Frozen { outpoint: op(&parent, 1) });
    assert_eq!(s.give_back(op(&parent, 1), by(&tx, 0)).await, frozen);
    for outpoint in [op(&parent, 2), op(&parent, 3), op(&parent, 500), OutPoint::new(txid("absent"), 0)] {
        let missing = Err(UnspendError::NotFound { outpoint });
        assert_eq!(s.give_back(outpoint, by(&tx, 0)).await, missing);
    }
    s.assert_unchanged(before, "an unspend that is refused").await;
    s.unmine(&tx, 4, 5).await;
    assert_eq!(
        s.give_back(outpoint, by(&tx, 0)).await,
        Ok(()),
        "once its block is gone it can be taken back"
    );
    s.sound().await;
}
