//! Blocks that must be refused, and that nothing is left of them.

use std::sync::Arc;

use sapwood_ledger::{ApplyError, ApplyOptions, ConflictError, InputRefusal, Reassign, error::TxProblem};
use sapwood_rules::SpendRefusal;
use sapwood_types::{Block, BlockRules, Height, Output, Tx};

use super::{StoreFactory, Subject, refused_tx};
use crate::fixtures::*;

/// Applies the block, expects the error, and that nothing at all has changed; then that a good block still goes through.
async fn assert_refused(s: &Subject, block: &Block, error: ApplyError) {
    let before = s.digest().await;
    let last = s.last_applied().await;
    let undo = s.block_at(block.height).await;
    assert_eq!(s.try_apply(block).await, Err(error.clone()));
    s.assert_unchanged(before, &format!("a block refused because \"{error}\"")).await;
    assert_eq!(s.last_applied().await, last, "after {error}");
    assert_eq!(s.block_at(block.height).await, undo, "after {error}");
}

/// The next block with a good transaction before the bad one, which must be refused for this problem.
async fn assert_problem(s: &Subject, txs: &[&Tx], problem: TxProblem) {
    let good = coin("good one before it", 1);
    let txs: Vec<_> = [&good].into_iter().chain(txs.iter().copied()).collect();
    let block = s.next_block(&txs).await;
    let bad = txs.last().expect("the bad one is the last");
    let error = refused_tx(&block, bad, problem);
    assert_refused(s, &block, error).await;
    assert!(!s.has(&good).await, "nothing of the block is there");
}

/// Panics unless the last input of the last transaction is refused for this.
async fn assert_input(s: &Subject, txs: &[&Tx], refusal: SpendRefusal) {
    let tx = txs.last().expect("a transaction");
    let vin = tx.inputs.len() - 1;
    let input = InputRefusal { vin: vin as u32, outpoint: tx.inputs[vin].outpoint, refusal };
    assert_problem(s, txs, TxProblem::Input(input)).await;
}

/// Only the next height is next: neither a gap, nor the same again, nor one before.
pub async fn only_the_next_height_is_next(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    s.start(10, &[]).await;
    let last = s.extend(&[&coin("tx", 1)]).await.block;
    for height in [0, 10, 11, 13, u32::MAX] {
        let block = s.block(height, last.hash, &[&coin("other", 1)]);
        let error = ApplyError::NotNext { hash: block.hash, height: Height(height), expected: Height(12) };
        assert_refused(&s, &block, error).await;
    }
    s.extend(&[]).await;
    s.sound().await;
}

/// An applied block is not applied again. Where it was, its undo record was written over with an empty one, and the next
/// rollback lost coins.
pub async fn an_applied_block_is_not_applied_again(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let root = coin("root", 1);
    let first = s.start(10, &[&root]).await.block;
    let block = s.next_block(&[&child("tx", &[(&root, 0)], 1)]).await;
    s.try_apply(&block).await.expect("apply");
    let error = ApplyError::NotNext { hash: block.hash, height: block.height, expected: Height(12) };
    assert_refused(&s, &block, error).await;
    s.roll_back(Some((first.height, first.hash)), sapwood_ledger::RollbackMode::Follower)
        .await
        .expect("roll back");
    assert_eq!(s.slot(&root, 0).await, sapwood_types::Slot::Unspent, "the coin is back");
    s.sound().await;
}

/// The same height with another hash is a fork, not the same block; and the next height must follow the last hash.
pub async fn another_hash_is_another_block(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let first = s.start(10, &[]).await.block;
    let last = s.extend(&[]).await.block;
    let sibling = s.block(11, first.hash, &[]);
    assert_ne!(sibling.hash, last.hash, "the case itself");
    let error = ApplyError::NotNext { hash: sibling.hash, height: Height(11), expected: Height(12) };
    assert_refused(&s, &sibling, error).await;
    let nephew = s.block(12, sibling.hash, &[&coin("tx", 1)]);
    let error = ApplyError::WrongParent {
        hash: nephew.hash,
        height: Height(12),
        parent: sibling.hash,
        last: last.hash,
    };
    assert_refused(&s, &nephew, error).await;
    s.sound().await;
}

/// A missing input is an error, always: an unknown transaction, one that comes later in the block, and an output beyond the
/// last.
pub async fn a_missing_input_is_always_an_error(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let root = coin("root", 2);
    s.start(10, &[&root]).await;
    let absent = coin("absent", 1);
    assert_input(&s, &[&child("tx", &[(&root, 0), (&absent, 0)], 1)], SpendRefusal::NotFound).await;
    let beyond = child("tx", &[(&root, 0), (&root, 2)], 1);
    assert_input(&s, &[&beyond], SpendRefusal::NoSuchOutput { outputs: 2 }).await;
    let known = coin("known", 1);
    s.add(&known, 10).await;
    let known_child = child("known child", &[(&known, 0), (&absent, 0)], 1);
    s.add_trusted(&known_child, 10).await;
    let mined_too = coin("x", 1);
    assert_input(&s, &[&mined_too, &known, &known_child], SpendRefusal::NotFound).await;
    s.sound().await;
}

/// An input whose transaction is still waiting is an error, also if that comes later in the block.
pub async fn an_unmined_parent_is_an_error(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    s.start(10, &[]).await;
    let (waiting, lost, fork) = (coin("waiting", 1), coin("lost", 1), coin("fork", 1));
    s.add(&waiting, 10).await;
    s.add_loser(&lost, 10).await;
    s.add(&fork, 10).await;
    s.try_mine(&fork, forked_in(9, 9), false, 10).await.expect("a fork");
    for parent in [&waiting, &lost, &fork] {
        let tx = child("tx", &[(parent, 0)], 1);
        let problem = TxProblem::ParentUnmined { vin: 0, outpoint: op(parent, 0) };
        assert_problem(&s, &[&tx], problem).await;
        let no_such = child("tx", &[(parent, 5)], 1);
        let problem = TxProblem::ParentUnmined { vin: 0, outpoint: op(parent, 5) };
        assert_problem(&s, &[&no_such], problem).await;
    }
    let early = child("early", &[(&waiting, 0)], 1);
    let block = s.next_block(&[&early, &waiting]).await;
    let problem = TxProblem::ParentUnmined { vin: 0, outpoint: op(&waiting, 0) };
    assert_refused(&s, &block, refused_tx(&block, &early, problem)).await;
    s.extend(&[&waiting, &early]).await;
    s.sound().await;
}

/// A double spend is an error that names the output and who spends it: a mined transaction, or one earlier in the block,
/// or another input of the same one.
pub async fn a_double_spend_is_an_error(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let root = coin("root", 2);
    s.start(10, &[&root]).await;
    let first = child("first", &[(&root, 0)], 1);
    s.extend(&[&first]).await;
    let again = child("again", &[(&root, 1), (&root, 0)], 1);
    let spent_by =
        |tx: &Tx, mined_at| SpendRefusal::Spent { by: by(tx, 0), mined_at: Some(Height(mined_at)) };
    assert_input(&s, &[&again], spent_by(&first, 11)).await;
    let (a, b) = (child("a", &[(&root, 1)], 1), child("b", &[(&root, 1)], 1));
    assert_input(&s, &[&a, &b], spent_by(&a, 12)).await;
    let twice = child("twice", &[(&root, 1), (&root, 1)], 1);
    assert_input(&s, &[&twice], spent_by(&twice, 12)).await;
    s.extend(&[&a]).await;
    s.sound().await;
}

/// A coinbase can be spent by the block at exactly its height plus the maturity.
pub async fn an_immature_coinbase_is_an_error(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let minted = coinbase("minted", 1);
    s.start(10, &[&minted]).await;
    let tx = child("tx", &[(&minted, 0)], 1);
    for height in 11..13 {
        let immature = SpendRefusal::Immature { spendable_from: Height(13), height: Height(height) };
        assert_input(&s, &[&tx], immature).await;
        s.extend(&[]).await;
    }
    s.extend(&[&tx]).await;
    let same_block = coinbase("in the same block", 1);
    let heir = child("heir", &[(&same_block, 0)], 1);
    let immature = SpendRefusal::Immature { spendable_from: Height(17), height: Height(14) };
    assert_input(&s, &[&same_block, &heir], immature).await;
    s.sound().await;
}

/// Frozen, locked, data-only and reassigned outputs are errors in a block too.
pub async fn frozen_locked_data_and_waiting_outputs_are_errors(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let mut root = coin("root", 4);
    root.outputs[3] = data_output();
    let locked = coin("locked", 1);
    s.start(10, &[&root, &locked]).await;
    s.freeze(vec![op(&root, 0), op(&root, 1)]).await.expect("freeze");
    s.set_locked(vec![locked.txid], true).await.expect("lock");
    let reassign = Reassign {
        outpoint: op(&root, 1),
        expected: utxo_hash(&root, 1),
        script: script("new"),
        credential: None,
    };
    s.reassign(vec![reassign], Height(10)).await.expect("reassign");
    let spends = |of: &Tx, vout| child("tx", &[(&root, 2), (of, vout)], 1);
    assert_input(&s, &[&spends(&root, 0)], SpendRefusal::Frozen).await;
    let waits = |height| SpendRefusal::Reassigned { spendable_from: Height(20), height: Height(height) };
    assert_input(&s, &[&spends(&root, 1)], waits(11)).await;
    assert_input(&s, &[&spends(&root, 3)], SpendRefusal::Unspendable).await;
    assert_input(&s, &[&spends(&locked, 0)], SpendRefusal::Locked).await;
    s.extend_to(18).await;
    assert_input(&s, &[&spends(&root, 1)], waits(19)).await;
    s.extend(&[]).await;
    s.extend(&[&spends(&root, 1)]).await;
    s.sound().await;
}

/// A transaction without outputs is an error, and so is one that is mined already and has something left.
pub async fn no_outputs_and_duplicates_are_errors(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let root = coin("root", 3);
    s.start(10, &[&root]).await;
    assert_problem(&s, &[&coin("nothing", 0)], TxProblem::NoOutputs).await;
    assert_problem(&s, &[&root], TxProblem::Duplicate { unspent: 3 }).await;
    let tx = child("tx", &[(&root, 1)], 1);
    s.extend(&[&tx]).await;
    assert_problem(&s, &[&root], TxProblem::Duplicate { unspent: 2 }).await;
    let by_itself = SpendRefusal::Spent { by: by(&tx, 0), mined_at: Some(Height(11)) };
    assert_input(&s, &[&tx], by_itself).await;
    let twice = coin("twice", 1);
    assert_problem(&s, &[&twice, &twice], TxProblem::Twice).await;
    s.sound().await;
}

/// A transaction spends from earlier ones of its block only: not from later ones, and not from itself.
pub async fn spending_from_a_later_transaction_is_an_error(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let root = coin("root", 2);
    s.start(10, &[&root]).await;
    let parent = child("parent", &[(&root, 0)], 1);
    let early = child("early", &[(&root, 1), (&parent, 0)], 1);
    let block = s.next_block(&[&early, &parent]).await;
    let problem = TxProblem::OutOfOrder { vin: 1, outpoint: op(&parent, 0) };
    assert_refused(&s, &block, refused_tx(&block, &early, problem)).await;
    let mut itself = child("itself", &[(&root, 0)], 1);
    itself.inputs[0].outpoint = op(&itself, 0);
    let problem = TxProblem::OutOfOrder { vin: 0, outpoint: op(&itself, 0) };
    assert_problem(&s, &[&itself], problem).await;
    s.extend(&[&parent, &early]).await;
    s.sound().await;
}

/// Where the chain allows it, a transaction may have no outputs. It is settled at once, pruned with its age, and taken back with its
/// block.
pub async fn a_transaction_without_outputs_is_taken_where_the_chain_allows_it(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let root = coin("root", 2);
    s.start(10, &[&root]).await;
    let rules = BlockRules { allow_no_outputs: true, ..BlockRules::default() };
    let options = ApplyOptions { rules, ..ApplyOptions::default() };
    let burned = child("burned", &[(&root, 0)], 0);
    let block = Arc::new(s.next_block(&[&burned]).await);
    let applied = s.apply_block(block.clone(), options).await.expect("apply");
    assert_eq!(s.settled(&burned).await, Some(11));
    let target = Some((Height(10), block.parent));
    s.roll_back(target, sapwood_ledger::RollbackMode::Follower).await.expect("roll back");
    assert!(!s.has(&burned).await, "{applied:?}");
    assert_eq!(s.slot(&root, 0).await, sapwood_types::Slot::Unspent);
    let again = s.apply_block(Arc::new(s.next_block(&[&burned]).await), options).await.expect("apply again");
    let due = again.block.height.0 + small().retention;
    s.extend_to(due + 1).await;
    assert_eq!(s.prune(due + 1).await, [burned.txid]);
    s.sound().await;
}

/// The chain's maturity counts for the coinbase of a block, whatever the policy says.
pub async fn the_maturity_of_a_block_is_that_of_its_chain(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    s.start(10, &[]).await;
    let minted = coinbase("minted", 1);
    let rules =
        BlockRules { coinbase_maturity: Some(small().coinbase_maturity + 2), ..BlockRules::default() };
    let options = ApplyOptions { rules, ..ApplyOptions::default() };
    let block = Arc::new(s.next_block(&[&minted]).await);
    let height = s.apply_block(block, options).await.expect("apply").block.height;
    let from = height.plus(small().coinbase_maturity + 2);
    assert_eq!(s.head(&minted).await.spending_height, Some(from));
    s.extend_to(from.0 - 2).await;
    let early = SpendRefusal::Immature { spendable_from: from, height: Height(from.0 - 1) };
    assert_input(&s, &[&child("early", &[(&minted, 0)], 1)], early).await;
    s.extend(&[]).await;
    s.extend(&[&child("late", &[(&minted, 0)], 1)]).await;
    s.sound().await;
}

/// An unmined rival that cannot lose stops the block: it, or a descendant, has a frozen output or is mined.
pub async fn a_rival_that_cannot_lose_stops_the_block(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let root = coin("root", 2);
    s.start(10, &[&root]).await;
    let rival = child("rival", &[(&root, 0)], 1);
    let heir = child("heir", &[(&rival, 0)], 1);
    s.add(&rival, 10).await;
    s.add(&heir, 10).await;
    s.freeze(vec![op(&heir, 0)]).await.expect("freeze");
    let winner = child("winner", &[(&root, 1), (&root, 0)], 1);
    let frozen = TxProblem::Rival(Box::new(ConflictError::Frozen { outpoint: op(&heir, 0) }));
    assert_problem(&s, &[&winner], frozen).await;
    s.unfreeze(vec![op(&heir, 0)]).await.expect("unfreeze");
    s.mine(&heir, 10).await;
    let mined = ConflictError::Mined { txid: heir.txid, mined_at: Height(10) };
    assert_problem(&s, &[&winner], TxProblem::Rival(Box::new(mined))).await;
    s.unmine(&heir, 10, 10).await;
    assert_eq!(s.extend(&[&winner]).await.conflicting, [rival.txid, heir.txid]);
    s.sound().await;
}

/// A refused block leaves no number behind either, and an explicit number of a refused block is free.
pub async fn a_refused_block_uses_no_number(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    s.start(10, &[]).await;
    let bad = Arc::new(s.next_block(&[&coin("nothing", 0)]).await);
    let options = ApplyOptions { block_id: Some(90), ..ApplyOptions::default() };
    s.apply_block(bad, options).await.expect_err("it has a transaction without outputs");
    assert_eq!(s.extend(&[]).await.block.id, 2);
    s.sound().await;
}

/// No block follows one at the greatest height, not even another one of the same height.
pub async fn nothing_follows_the_last_height(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let first = s.start(u32::MAX - 1, &[]).await.block;
    let last = s.extend(&[&coin("tx", 1)]).await.block;
    for height in [0, u32::MAX - 1, u32::MAX] {
        let block = s.block(height, last.hash, &[&coin("other", 1)]);
        let error = ApplyError::NoHeightLeft { hash: block.hash, height: block.height, last };
        assert_refused(&s, &block, error).await;
    }
    let target = Some((first.height, first.hash));
    let back = s.roll_back(target, sapwood_ledger::RollbackMode::Follower).await.expect("roll back");
    assert_eq!((back.last, back.blocks), (Some(first), 1));
    s.extend(&[]).await;
    s.sound().await;
}

/// Once the greatest number is given away, a block is refused rather than given the number of another. One that comes with
/// a number of its own is applied.
pub async fn no_number_is_given_after_the_greatest(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    s.start(10, &[]).await;
    let given = async |id| {
        let block = Arc::new(s.next_block(&[]).await);
        let options = ApplyOptions { block_id: Some(id), ..ApplyOptions::default() };
        s.apply_block(block, options).await.expect("apply").block.id
    };
    assert_eq!(given(u32::MAX).await, u32::MAX);
    let block = s.next_block(&[&coin("tx", 1)]).await;
    let error = ApplyError::NoBlockIdLeft { hash: block.hash, height: block.height };
    assert_refused(&s, &block, error).await;
    assert_eq!(given(7).await, 7);
    s.sound().await;
}

/// Where amounts are checked, nothing makes more than it spends, and the coinbase takes the subsidy and the fees at most.
pub async fn amounts_are_checked_where_asked_for(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let root = coin("root", 2);
    s.start(10, &[&root]).await;
    let worth = |tx: Tx, values: &[u64]| Tx {
        outputs: values.iter().map(|value| Output { value: *value, ..tx.outputs[0].clone() }).collect(),
        ..tx
    };
    let spender = |values: &[u64]| worth(child("spender", &[(&root, 0), (&root, 1)], 1), values);
    let minted = |values: &[u64]| worth(coinbase("minted", 1), values);
    let subsidy = ApplyOptions {
        rules: BlockRules { subsidy: Some(50), ..BlockRules::default() },
        ..ApplyOptions::default()
    };
    // The two outputs are worth 1,000 and 1,001. The data output counts although nobody can spend it.
    let mut burnt = spender(&[2_001]);
    burnt.outputs.push(Output { value: 1, ..Output::data(&b"data"[..]) });
    let too_much = [
        (vec![minted(&[50]), spender(&[2_002])], 1, TxProblem::MakesMore { spends: 2_001, makes: 2_002 }),
        (vec![minted(&[50]), burnt], 1, TxProblem::MakesMore { spends: 2_001, makes: 2_002 }),
        (
            vec![minted(&[50]), spender(&[u64::MAX, u64::MAX])],
            1,
            TxProblem::MakesMore { spends: 2_001, makes: 2 * u128::from(u64::MAX) },
        ),
        (vec![minted(&[61]), spender(&[1_991])], 0, TxProblem::TakesMore { takes: 61, allowed: 60 }),
    ];
    for (txs, bad, problem) in too_much {
        let block = Arc::new(s.next_block(&txs.iter().collect::<Vec<_>>()).await);
        let before = s.digest().await;
        let refused = refused_tx(&block, &txs[bad], problem);
        assert_eq!(s.apply_block(block.clone(), subsidy).await, Err(refused.clone()));
        s.assert_unchanged(before, &refused.to_string()).await;
    }
    let exactly = [minted(&[60]), spender(&[1_991])];
    let block = Arc::new(s.next_block(&exactly.iter().collect::<Vec<_>>()).await);
    s.apply_block(block, subsidy).await.expect("just enough");
    let any = s.next_block(&[&worth(child("unchecked", &[(&exactly[1], 0)], 1), &[u64::MAX])]).await;
    s.try_apply(&any).await.expect("amounts are not checked unless asked for");
    s.sound().await;
}
