//! The model by hand-worked examples, so that what stores are compared with is not itself nonsense.

use sapwood_conformance::{
    fixtures::*,
    model::{Model, pruning::settled_since},
};
use sapwood_ledger::{
    ApplyError, ApplyOptions, BatchError, ConflictError, CreateError, CreateRequest, PruneRequest,
    RollbackError, RollbackMode, SpendInput, SpendRequest, Unspend, UnspendError, error::TxProblem,
};
use sapwood_rules::{Policy, SpendRefusal, Verdict};
use sapwood_types::{Block, Height, Slot, Tx, TxId};

fn model() -> Model {
    Model::new(small())
}

fn apply(model: &mut Model, first: u32, label: &str, txs: &[&Tx]) -> Result<(), ApplyError> {
    let last = model.last_applied();
    let block = Block {
        height: last.map_or(Height(first), |last| last.height.next()),
        hash: block_hash(label),
        parent: last.map_or(block_hash("before"), |last| last.hash),
        time: 77,
        txs: txs.iter().copied().cloned().collect(),
    };
    model.apply_block(&block, ApplyOptions::default()).map(|_| ())
}

fn grow_to(model: &mut Model, height: u32) {
    while model.last_applied().is_some_and(|last| last.height.0 < height) {
        let label = format!("block {:?}", model.last_applied());
        apply(model, 0, &label, &[]).expect("an empty block");
    }
}

fn slots(model: &Model, tx: &Tx) -> Vec<Slot> {
    model.records()[&tx.txid].slots.clone()
}

fn only_failure<E>(result: Result<(), BatchError<E>>) -> E {
    match result {
        Err(BatchError::Items { mut failed, total: 1 }) => failed.pop().expect("one failure").1,
        _ => panic!("expected just one failure"),
    }
}

fn create(model: &mut Model, tx: &Tx, height: u32) -> Result<(), BatchError<CreateError>> {
    model.create(vec![CreateRequest::unmined(tx.clone())], Height(height))
}

#[test]
fn the_timeline_of_seed_001_is_kept_at_1288_and_gone_at_1289() {
    let mut model = Model::new(Policy::default());
    let parent = coin("parent", 1);
    let spender = child("child", &[(&parent, 0)], 1);
    apply(&mut model, 1000, "b1000", &[&parent]).unwrap();
    create(&mut model, &spender, 1000).unwrap();
    assert_eq!(settled_since(&model.records()[&parent.txid]), None, "the child is not mined");
    apply(&mut model, 0, "b1001", &[&spender]).unwrap();
    assert_eq!(slots(&model, &parent), [spent(&spender, 0, Some(1001))]);
    assert_eq!(settled_since(&model.records()[&parent.txid]), Some(Height(1001)));
    let verdict =
        |model: &Model, at| model.judge(&[parent.txid], &context(at, 288, &[]), true).remove(0).verdict;
    grow_to(&mut model, 1288);
    assert!(!verdict(&model, 1288).may_go());
    assert!(!verdict(&model, 1289).may_go(), "block 1001 can be taken back, whatever height is claimed");
    grow_to(&mut model, 1289);
    assert_eq!(verdict(&model, 1289), Verdict::MayGo { due_at: Height(1289) });
}

#[test]
fn a_rival_is_refused_and_told_who_was_first() {
    let mut model = model();
    let parent = coin("parent", 1);
    let (first, second) = (child("first", &[(&parent, 0)], 1), child("second", &[(&parent, 0)], 1));
    create(&mut model, &parent, 1).unwrap();
    create(&mut model, &first, 1).unwrap();
    let before = slots(&model, &parent);
    let CreateError::Inputs { inputs, .. } = only_failure(create(&mut model, &second, 1)) else { panic!() };
    assert_eq!(inputs[0].refusal, SpendRefusal::Spent { by: by(&first, 0), mined_at: None });
    assert_eq!(slots(&model, &parent), before);

    let wrong = Unspend { outpoint: op(&parent, 0), spender: by(&second, 0) };
    assert!(matches!(only_failure(model.unspend(vec![wrong])), UnspendError::OtherSpender { .. }));
    model.unspend(vec![Unspend { spender: by(&first, 0), ..wrong }]).unwrap();
    create(&mut model, &second, 1).unwrap();
    let again = SpendInput { vin: 0, outpoint: op(&parent, 0), expected: Some(utxo_hash(&parent, 0)) };
    let again = SpendRequest { child: second.txid, inputs: vec![again; 2], overrides: Default::default() };
    model.spend(vec![again], Height(1)).unwrap();
    assert_eq!(slots(&model, &parent), [spent(&second, 0, None)]);
}

#[test]
fn losers_take_their_descendants_with_them_and_come_back_one_by_one() {
    let mut model = model();
    let parent = coin("parent", 1);
    let loser = child("loser", &[(&parent, 0)], 2);
    let (low, high) = (child("low", &[(&loser, 1)], 1), child("high", &[(&loser, 0)], 1));
    for tx in [&parent, &loser, &low, &high] {
        create(&mut model, tx, 3).unwrap();
    }
    let changed = model.set_conflicting(vec![loser.txid], true, Height(4)).unwrap();
    assert_eq!(changed, [loser.txid, high.txid, low.txid], "breadth first, in the order of outputs");
    assert_eq!(slots(&model, &parent), [Slot::Unspent]);
    assert_eq!(model.records()[&parent.txid].head.conflicting_children, [loser.txid]);
    let refused = model.set_conflicting(vec![low.txid], false, Height(5));
    assert!(matches!(refused, Err(BatchError::Items { .. })), "its parent has lost");
    assert_eq!(model.set_conflicting(vec![loser.txid], false, Height(5)).unwrap(), [loser.txid]);
    assert_eq!(slots(&model, &parent), [spent(&loser, 0, None)]);
    assert_eq!(model.records()[&parent.txid].head.conflicting_children, []);
}

#[test]
fn a_winner_drives_out_the_holder_but_not_a_mined_one() {
    let mut model = model();
    let parent = coin("parent", 1);
    let (holder, rival) = (child("holder", &[(&parent, 0)], 1), child("rival", &[(&parent, 0)], 1));
    apply(&mut model, 1, "b1", &[&parent]).unwrap();
    create(&mut model, &holder, 2).unwrap();
    let lost = CreateRequest { conflicting: true, ..CreateRequest::unmined(rival.clone()) };
    model.create(vec![lost], Height(2)).unwrap();
    assert_eq!(model.resolve_conflicts(vec![rival.txid], Height(2)).unwrap(), [holder.txid]);
    assert_eq!(slots(&model, &parent), [spent(&rival, 0, None)]);
    apply(&mut model, 0, "b2", &[&rival]).unwrap();
    let mined = ConflictError::Mined { txid: rival.txid, mined_at: Height(2) };
    assert_eq!(model.resolve_conflicts(vec![holder.txid], Height(3)), Err(mined));
}

#[test]
fn a_pruned_child_cannot_come_back() {
    let mut model = model();
    let parent = coin("parent", 2);
    let gone = burn("child", &[(&parent, 0)]);
    apply(&mut model, 1, "b1", &[&parent]).unwrap();
    apply(&mut model, 0, "b2", &[&gone]).unwrap();
    grow_to(&mut model, 7);
    let request = PruneRequest::records(vec![parent.txid, gone.txid], context(7, 5, &[]));
    let verdicts: Vec<bool> =
        model.prune(&request).judged.iter().map(|judged| judged.verdict.may_go()).collect();
    assert_eq!(verdicts, [false, true]);
    let CreateError::Inputs { inputs, .. } = only_failure(create(&mut model, &gone, 8)) else { panic!() };
    assert_eq!(inputs[0].refusal, SpendRefusal::SpenderPruned { by: by(&gone, 0), mined_at: Height(2) });
    let Err(ApplyError::Tx { problem, .. }) = apply(&mut model, 0, "b3", &[&gone]) else { panic!() };
    assert!(matches!(*problem, TxProblem::Input(refused) if refused.refusal == inputs[0].refusal));
}

#[test]
fn a_reorganisation_forgets_in_one_mode_and_unmines_in_the_other() {
    let parent = coin("parent", 1);
    let (known, new) = (child("known", &[(&parent, 0)], 1), coin("new", 1));
    let minted = coinbase("minted", 1);
    for mode in [RollbackMode::Node, RollbackMode::Follower] {
        let mut model = model();
        apply(&mut model, 1, "b1", &[&parent]).unwrap();
        create(&mut model, &known, 2).unwrap();
        apply(&mut model, 0, "b2", &[&minted, &known, &new]).unwrap();
        assert_eq!(slots(&model, &parent), [spent(&known, 0, Some(2))]);
        let done = model.roll_back(Some((Height(1), block_hash("b1"))), mode).unwrap();
        assert_eq!(slots(&model, &parent), [spent(&known, 0, None)]);
        let head = &model.records()[&known.txid].head;
        assert_eq!((head.mined_at(), head.first_unmined), (None, Some(Height(2))));
        assert!(done.unmined.contains(&known.txid));
        let stays = mode == RollbackMode::Node;
        assert_eq!(model.records().contains_key(&new.txid), stays);
        assert_eq!(done.forgotten.contains(&new.txid), !stays);
        assert_eq!(done.conflicting.contains(&minted.txid), stays, "a coinbase cannot be mined again");
    }
}

#[test]
fn a_rollback_stops_at_the_floor() {
    let mut model = model();
    for height in 1..=8 {
        apply(&mut model, 1, &format!("b{height}"), &[]).unwrap();
    }
    let to = |height: u32| Some((Height(height), block_hash(&format!("b{height}"))));
    let below = |target| RollbackError::BelowFloor { target: Height(target), floor: Height(3) };
    assert_eq!(model.roll_back(to(2), RollbackMode::Node), Err(below(2)));
    assert_eq!(model.roll_back(None, RollbackMode::Node), Err(below(0)));
    assert_eq!(model.prune_undo(None, Height(100), 9).dropped, 3, "those of 1, 2 and 3");
    assert_eq!(model.roll_back(to(3), RollbackMode::Node).unwrap().blocks, 5);
    assert_eq!(model.rollback_floor(), Some(Height(3)));
}

#[test]
fn a_record_that_was_written_over_comes_back() {
    let mut model = model();
    let twice = Tx { outputs: vec![data_output()], ..coinbase("twice", 0) };
    apply(&mut model, 1, "b1", &[&twice]).unwrap();
    apply(&mut model, 0, "b2", &[&twice]).unwrap();
    assert_eq!(model.records()[&twice.txid].head.mined_at(), Some(Height(2)));
    model.roll_back(Some((Height(1), block_hash("b1"))), RollbackMode::Node).unwrap();
    assert_eq!(model.records()[&twice.txid].head.mined_at(), Some(Height(1)));
    let open = coinbase("open", 2);
    apply(&mut model, 0, "b2'", &[&open]).unwrap();
    let Err(ApplyError::Tx { problem, .. }) = apply(&mut model, 0, "b3'", &[&open]) else { panic!() };
    assert_eq!(*problem, TxProblem::Duplicate { unspent: 2 });
}

#[test]
fn a_spender_may_be_forgotten_only_below_every_reorganisation() {
    let mut model = model();
    let parent = coin("parent", 2);
    let spender = child("child", &[(&parent, 0)], 1);
    apply(&mut model, 1, "b1", &[&parent]).unwrap();
    apply(&mut model, 0, "b2", &[&spender]).unwrap();
    let mut theirs = model.get(parent.txid).expect("the parent");
    theirs.slots[0] = Slot::Settled { child_mined_at: Height(2) };
    for height in 3..=6 {
        assert_eq!(model.agree_on_forgotten(&theirs), [op(&parent, 0)], "at {height}");
        apply(&mut model, 0, &format!("b{height}"), &[]).unwrap();
    }
    apply(&mut model, 0, "b7", &[]).unwrap();
    assert_eq!(model.agree_on_forgotten(&theirs), []);
    assert_eq!(model.get(parent.txid), Some(theirs));
    let rival = child("rival", &[(&parent, 0)], 1);
    let CreateError::Inputs { inputs, .. } = only_failure(create(&mut model, &rival, 8)) else { panic!() };
    assert_eq!(inputs[0].refusal, SpendRefusal::SpentAndSettled { mined_at: Height(2) });
}

#[test]
fn nothing_changes_where_a_block_is_refused() {
    let mut model = model();
    let (parent, absent) = (coin("parent", 1), coin("absent", 1));
    let good = child("good", &[(&parent, 0)], 1);
    let bad = child("bad", &[(&absent, 0)], 1);
    apply(&mut model, 1, "b1", &[&parent]).unwrap();
    let before = model.records().clone();
    assert!(apply(&mut model, 0, "b2", &[&good, &bad]).is_err());
    assert_eq!(model.records(), &before);
    assert_eq!(model.last_applied().map(|last| last.hash), Some(block_hash("b1")));
    assert_eq!(model.get(TxId::default()), None);
}
