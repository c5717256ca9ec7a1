//! Conflicts across reorganisations, and slots that have forgotten their spender.

use sapwood_ledger::{
    CreateError, CreateRequest, InputRefusal, RollbackMode, UnspendError, error::TxProblem,
};
use sapwood_rules::{SpendRefusal, SpendStatus, Verdict};
use sapwood_types::{BlockMark, Height, Slot, Tx};

use super::{StoreFactory, Subject, refused_tx};
use crate::fixtures::*;

async fn back(s: &Subject, mark: BlockMark) {
    s.roll_back(Some((mark.height, mark.hash)), RollbackMode::Node).await.expect("roll back");
}

/// A double spend decided by a reorganisation: the transaction of the old branch waits, and loses when the new branch
/// brings its rival.
pub async fn a_double_spend_decided_by_a_reorganisation(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let root = coin("root", 1);
    let base = s.start(10, &[&root]).await.block;
    let (a, b) = (child("a", &[(&root, 0)], 1), child("b", &[(&root, 0)], 1));
    let heir = child("heir", &[(&a, 0)], 1);
    s.extend(&[&a]).await;
    s.extend(&[&heir]).await;
    back(&s, base).await;
    assert_eq!(s.slot(&root, 0).await, spent(&a, 0, None), "a waits and holds");
    let applied = s.extend(&[&b]).await;
    assert_eq!(applied.conflicting, [a.txid, heir.txid]);
    assert_eq!(s.slot(&root, 0).await, spent(&b, 0, Some(11)));
    assert_eq!(s.settled(&a).await, Some(11));
    assert_eq!(s.settled(&root).await, Some(11));
    s.sound().await;
}

/// Reorganisations inside reorganisations: each time the branch that is applied wins, and the other one has lost.
pub async fn nested_reorganisations(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let root = coin("root", 2);
    let base = s.start(10, &[&root]).await.block;
    let (a1, b1) = (child("a1", &[(&root, 0)], 1), child("b1", &[(&root, 0)], 1));
    let (a2, b2) = (child("a2", &[(&a1, 0)], 1), child("b2", &[(&b1, 0)], 1));
    // Neither is part of the double spend: it is on both branches.
    let common = child("common", &[(&root, 1)], 1);
    s.extend(&[&a1, &common]).await;
    s.extend(&[&a2]).await;
    for round in 0..2 {
        for (winners, losers) in [([&b1, &b2], [&a1, &a2]), ([&a1, &a2], [&b1, &b2])] {
            back(&s, base).await;
            let middle = s.extend(&[winners[0], &common]).await.block;
            s.extend(&[winners[1]]).await;
            // The branch's own tip is replaced once more before the next change of branch.
            back(&s, middle).await;
            s.extend(&[]).await;
            s.extend(&[winners[1]]).await;
            assert_eq!(s.slot(&root, 0).await, spent(winners[0], 0, Some(11)), "round {round}");
            assert_eq!(s.slot(&root, 1).await, spent(&common, 0, Some(11)), "round {round}");
            assert_eq!(s.slot(winners[0], 0).await, spent(winners[1], 0, Some(13)), "round {round}");
            for tx in losers {
                let there = s.records(&[tx]).await.remove(0);
                let lost = there.as_ref().is_none_or(|record| record.head.is_conflicting());
                assert!(lost, "{} must not be alive in round {round}: {there:?}", tx.txid);
            }
            for tx in winners {
                assert!(!s.head(tx).await.is_conflicting(), "round {round}");
            }
            assert_eq!(s.settled(&root).await, Some(11), "round {round}");
        }
    }
    s.sound().await;
}

/// A reorganisation whose new branch needs a frozen loser to go is refused, and the old state stays.
pub async fn a_frozen_loser_stops_the_new_branch(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let root = coin("root", 1);
    let base = s.start(10, &[&root]).await.block;
    let (a, b) = (child("a", &[(&root, 0)], 1), child("b", &[(&root, 0)], 1));
    s.extend(&[&a]).await;
    s.freeze(vec![op(&a, 0)]).await.expect("freeze");
    back(&s, base).await;
    let before = s.digest().await;
    let block = s.next_block(&[&b]).await;
    let problem = TxProblem::Rival(Box::new(sapwood_ledger::ConflictError::Frozen { outpoint: op(&a, 0) }));
    assert_eq!(s.try_apply(&block).await, Err(refused_tx(&block, &b, problem)));
    s.assert_unchanged(before, "the refused branch").await;
    s.sound().await;
}

/// A store in which the first output of `parent` was spent so deep that its slot may have forgotten the spender, and whose
/// page was written again since.
async fn deep(factory: &dyn StoreFactory) -> (Subject, Tx, Tx) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 4);
    s.start(10, &[&parent]).await;
    let tx = child("tx", &[(&parent, 0)], 1);
    s.extend(&[&tx]).await;
    s.extend_to(30).await;
    s.freeze(vec![op(&parent, 2)]).await.expect("freeze");
    s.unfreeze(vec![op(&parent, 2)]).await.expect("unfreeze");
    (s, parent, tx)
}

/// Whether the slot is spent by that transaction at that height, remembered or not.
fn is_spent_by(slot: Slot, tx: &Tx, height: u32) -> bool {
    slot == spent(tx, 0, Some(height)) || slot == Slot::Settled { child_mined_at: Height(height) }
}

/// A slot that has forgotten its spender still knows when it was spent; readers see it as spent.
pub async fn a_deep_spend_may_forget_its_spender_but_not_its_height(factory: &dyn StoreFactory) {
    let (s, parent, tx) = deep(factory).await;
    let slot = s.slot(&parent, 0).await;
    assert!(is_spent_by(slot, &tx, 11), "{slot:?}");
    let status = s.spend_status(vec![op(&parent, 0)], Height(31)).await.expect("status").remove(0);
    let expected = SpendStatus::Spent { by: slot.spender(), mined_at: Some(Height(11)) };
    assert_eq!(status, expected);
    s.extend(&[&burn("rest", &[(&parent, 1), (&parent, 2), (&parent, 3)])]).await;
    assert_eq!(s.settled(&parent).await, Some(31));
    s.extend_to(36).await;
    assert!(!s.verdict(&parent, 35).await.may_go());
    assert_eq!(s.verdict(&parent, 36).await, Verdict::MayGo { due_at: Height(36) });
    s.sound().await;
}

/// A recent spend on the same page is not forgotten: a reorganisation may still need it.
pub async fn a_recent_spend_keeps_its_spender(factory: &dyn StoreFactory) {
    let (s, parent, _) = deep(factory).await;
    let (recent, waiting) = (child("recent", &[(&parent, 1)], 1), child("waiting", &[(&parent, 2)], 1));
    s.extend(&[&recent]).await;
    s.add(&waiting, 31).await;
    s.extend_to(35).await;
    s.freeze(vec![op(&parent, 3)]).await.expect("freeze");
    let slots = s.record(&parent).await.slots;
    assert_eq!(slots[1..], [spent(&recent, 0, Some(31)), spent(&waiting, 0, None), Slot::Frozen]);
    s.extend_to(100).await;
    s.unfreeze(vec![op(&parent, 3)]).await.expect("unfreeze");
    assert_eq!(s.slot(&parent, 2).await, spent(&waiting, 0, None), "an unmined spender is never forgotten");
    s.sound().await;
}

/// Neither a rival nor the spender itself, once pruned, gets through a slot that has forgotten it; nor can it be unspent.
pub async fn a_forgotten_spender_keeps_its_output_spent(factory: &dyn StoreFactory) {
    let (s, parent, tx) = deep(factory).await;
    let slot = s.slot(&parent, 0).await;
    let refusal = |claimant: &Tx| match slot {
        Slot::Settled { child_mined_at } => SpendRefusal::SpentAndSettled { mined_at: child_mined_at },
        Slot::Spent { spender, .. } if spender.child == claimant.txid => {
            SpendRefusal::SpenderPruned { by: spender, mined_at: Height(11) }
        }
        _ => SpendRefusal::Spent { by: by(&tx, 0), mined_at: Some(Height(11)) },
    };
    let unspend = UnspendError::SpenderMined { outpoint: op(&parent, 0), mined_at: Height(11) };
    assert_eq!(s.give_back(op(&parent, 0), by(&tx, 0)).await, Err(unspend));
    let rival = child("rival", &[(&parent, 0)], 1);
    s.extend(&[&burn("last of tx", &[(&tx, 0)])]).await;
    s.extend_to(36).await;
    let pruned = s.prune(36).await;
    assert!(pruned.contains(&tx.txid), "the spender itself is gone now");
    let before = s.digest().await;
    for claimant in [&rival, &tx] {
        let input = InputRefusal { vin: 0, outpoint: op(&parent, 0), refusal: refusal(claimant) };
        let error = CreateError::Inputs { txid: claimant.txid, inputs: vec![input.clone()] };
        assert_eq!(s.try_add(CreateRequest::unmined(claimant.clone()), 36).await, Err(error));
        let block = s.next_block(&[claimant]).await;
        let error = refused_tx(&block, claimant, TxProblem::Input(input));
        assert_eq!(s.try_apply(&block).await, Err(error));
    }
    s.assert_unchanged(before, "what was refused").await;
    s.sound().await;
}

/// A child that is there counts as holding a slot that has forgotten it: it can repeat its spend, and its block can be noted
/// again.
pub async fn a_child_holds_a_slot_that_has_forgotten_it(factory: &dyn StoreFactory) {
    let (s, parent, tx) = deep(factory).await;
    assert_eq!(s.try_spend(&tx, &[0], 30).await, Ok(()));
    let slot = s.slot(&parent, 0).await;
    assert!(is_spent_by(slot, &tx, 11), "{slot:?}");
    s.try_mine(&tx, forked_in(900, 11), false, 30).await.expect("a fork's block is noted");
    s.try_mine(&tx, mined_in(2, 11), false, 30).await.expect("its own block again");
    let slot = s.slot(&parent, 0).await;
    assert!(is_spent_by(slot, &tx, 11), "{slot:?}");
    assert_eq!(s.head(&tx).await.mined_at(), Some(Height(11)));
    s.sound().await;
}

/// The window counts where it is longer than the retention was when the slot was written: the undo of a block inside it
/// finds every spender.
pub async fn a_slot_inside_the_window_never_forgets(factory: &dyn StoreFactory) {
    let policy = sapwood_rules::Policy { retention: 20, reorg_window: 20, ..small() };
    let s = Subject::new(factory, policy).await;
    let parent = coin("parent", 2);
    let base = s.start(10, &[&parent]).await.block;
    let tx = child("tx", &[(&parent, 0)], 1);
    s.extend(&[&tx]).await;
    s.extend_to(30).await;
    s.freeze(vec![op(&parent, 1)]).await.expect("freeze");
    assert_eq!(s.rollback_floor().await, Ok(Some(Height(10))));
    assert_eq!(s.slot(&parent, 0).await, spent(&tx, 0, Some(11)), "mined at 11, above 30 − 20");
    s.roll_back(Some((base.height, base.hash)), RollbackMode::Follower).await.expect("roll back");
    assert_eq!(s.record(&parent).await.slots, [Slot::Unspent, Slot::Frozen]);
    assert_eq!(s.prune_cursor().await, Ok(None));
    s.sound().await;
}
