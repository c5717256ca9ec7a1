//! Taking blocks back.

use sapwood_ledger::{
    ApplyOptions, ConflictError, Counts, CreateRequest, RollbackError, RollbackMode, RolledBack,
};
use sapwood_types::{BlockHash, BlockMark, BlockRules, Height, Slot, TxId};

use super::{StoreFactory, Subject};
use crate::fixtures::*;

const BOTH: [RollbackMode; 2] = [RollbackMode::Node, RollbackMode::Follower];

fn to(mark: BlockMark) -> Option<(Height, BlockHash)> {
    Some((mark.height, mark.hash))
}

fn sorted(mut txids: Vec<TxId>) -> Vec<TxId> {
    txids.sort();
    txids
}

async fn back(s: &Subject, mark: BlockMark, mode: RollbackMode) -> RolledBack {
    s.roll_back(to(mark), mode).await.expect("roll back")
}

/// For a node, what a block brought is unmined again and keeps what it spends.
pub async fn for_a_node_transactions_are_unmined_again(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let root = coin("root", 1);
    let first = s.start(10, &[&root]).await.block;
    let tx = child("tx", &[(&root, 0)], 1);
    let heir = burn("heir", &[(&tx, 0)]);
    s.extend(&[&tx, &heir]).await;
    let rolled = back(&s, first, RollbackMode::Node).await;
    assert_eq!((rolled.last, rolled.blocks), (Some(first), 1));
    assert_eq!(sorted(rolled.unmined), ids(&[&tx, &heir]));
    assert_eq!((rolled.forgotten, rolled.conflicting), (vec![], vec![]));
    assert_eq!(s.last_applied().await, Ok(Some(first)));
    assert_eq!(s.block_at(Height(11)).await, Ok(None));
    for tx in [&tx, &heir] {
        let head = s.head(tx).await;
        assert_eq!((head.blocks.as_slice(), head.first_unmined), (&[][..], Some(Height(11))));
    }
    assert_eq!(s.slot(&root, 0).await, spent(&tx, 0, None));
    assert_eq!(s.slot(&tx, 0).await, spent(&heir, 0, None));
    assert_eq!(s.due_all().await, []);
    s.extend(&[&tx, &heir]).await;
    assert_eq!(s.slot(&root, 0).await, spent(&tx, 0, Some(11)), "and they can be mined again");
    s.sound().await;
}

/// For a follower, what a block brought is forgotten, and everything is as it was before.
pub async fn for_a_follower_everything_is_as_it_was(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let (root, other) = (coin("root", 2), coin("other", 1));
    let first = s.start(10, &[&root, &other]).await.block;
    let before = s.records(&[&root, &other]).await;
    let (due, counts) = (s.due_all().await, s.counts().await);
    let tx = child("tx", &[(&root, 1), (&other, 0)], 2);
    let heir = burn("heir", &[(&tx, 0)]);
    let late = child("late", &[(&root, 0), (&tx, 1)], 1);
    s.extend(&[&tx, &heir]).await;
    s.extend(&[&coinbase("minted", 1), &late]).await;
    let rolled = back(&s, first, RollbackMode::Follower).await;
    assert_eq!((rolled.last, rolled.blocks), (Some(first), 2));
    assert_eq!(sorted(rolled.forgotten), ids(&[&tx, &heir, &late, &coinbase("minted", 1)]));
    assert_eq!((rolled.unmined, rolled.conflicting), (vec![], vec![]));
    assert_eq!(s.records(&[&root, &other]).await, before);
    assert_eq!((s.due_all().await, s.counts().await), (due, counts));
    assert_eq!(s.last_applied().await, Ok(Some(first)));
    s.sound().await;
}

/// What was waiting before the block waits again, in both modes, since the height it had.
pub async fn what_was_waiting_before_waits_again(factory: &dyn StoreFactory) {
    for mode in BOTH {
        let s = Subject::new(factory, small()).await;
        let root = coin("root", 1);
        let first = s.start(10, &[&root]).await.block;
        let tx = child("tx", &[(&root, 0)], 1);
        s.add(&tx, 10).await;
        let before = s.records(&[&root, &tx]).await;
        s.extend(&[&tx]).await;
        let rolled = back(&s, first, mode).await;
        assert_eq!((rolled.unmined, rolled.forgotten), (vec![tx.txid], vec![]), "{mode:?}");
        assert_eq!(s.records(&[&root, &tx]).await, before, "{mode:?}");
        s.sound().await;
    }
}

/// A coinbase of a block that is taken back has lost, with everything that spends from it.
pub async fn a_coinbase_loses_with_its_descendants(factory: &dyn StoreFactory) {
    let policy = sapwood_rules::Policy { coinbase_maturity: 0, ..small() };
    let s = Subject::new(factory, policy).await;
    let root = coin("root", 1);
    let first = s.start(10, &[&root]).await.block;
    let minted = coinbase("minted", 2);
    let mined = child("mined", &[(&minted, 0)], 1);
    s.extend(&[&minted, &mined]).await;
    let waiting = child("waiting", &[(&minted, 1), (&root, 0)], 1);
    let heir = child("heir", &[(&mined, 0)], 1);
    s.add(&waiting, 11).await;
    s.add(&heir, 11).await;
    let rolled = back(&s, first, RollbackMode::Node).await;
    assert_eq!(sorted(rolled.conflicting), ids(&[&minted, &mined, &waiting, &heir]));
    assert_eq!(rolled.forgotten, []);
    for tx in [&minted, &mined, &waiting, &heir] {
        let head = s.head(tx).await;
        assert_eq!((head.conflicting_since, head.blocks.as_slice()), (Some(Height(11)), &[][..]));
    }
    assert_eq!(s.slot(&root, 0).await, Slot::Unspent, "what they held is free");
    assert_eq!(s.record(&minted).await.slots, [Slot::Unspent; 2]);
    s.sound().await;
}

/// For a follower, waiting descendants of what is forgotten have lost.
pub async fn for_a_follower_waiting_descendants_lose(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let root = coin("root", 2);
    let first = s.start(10, &[&root]).await.block;
    let tx = child("tx", &[(&root, 0)], 1);
    s.extend(&[&tx]).await;
    let waiting = child("waiting", &[(&tx, 0), (&root, 1)], 1);
    let heir = child("heir", &[(&waiting, 0)], 1);
    s.add(&waiting, 11).await;
    s.add(&heir, 11).await;
    let rolled = back(&s, first, RollbackMode::Follower).await;
    assert_eq!(rolled.forgotten, [tx.txid]);
    assert_eq!(sorted(rolled.conflicting), ids(&[&waiting, &heir]));
    assert!(!s.has(&tx).await);
    assert_eq!(s.head(&waiting).await.conflicting_since, Some(Height(11)));
    let record = s.record(&root).await;
    assert_eq!(record.slots, [Slot::Unspent; 2], "what they held is free");
    assert_eq!(record.head.conflicting_children, [waiting.txid]);
    s.sound().await;
}

/// Who lost against a block stays a loser when it is taken back: the block may well come again.
pub async fn losers_of_a_block_stay_losers(factory: &dyn StoreFactory) {
    for mode in BOTH {
        let s = Subject::new(factory, small()).await;
        let root = coin("root", 1);
        let first = s.start(10, &[&root]).await.block;
        let (rival, winner) = (child("rival", &[(&root, 0)], 1), child("winner", &[(&root, 0)], 1));
        s.add(&rival, 10).await;
        s.extend(&[&winner]).await;
        back(&s, first, mode).await;
        assert_eq!(s.head(&rival).await.conflicting_since, Some(Height(11)), "{mode:?}");
        let slot = if mode == RollbackMode::Node { spent(&winner, 0, None) } else { Slot::Unspent };
        assert_eq!(s.slot(&root, 0).await, slot, "{mode:?}");
        s.extend(&[&rival]).await;
        assert_eq!(
            s.slot(&root, 0).await,
            spent(&rival, 0, Some(11)),
            "the other branch has it after all, {mode:?}"
        );
        s.sound().await;
    }
}

/// The target itself stays, and exactly the blocks above it go, newest first; undo records of those only. An early version
/// elsewhere took back the target too and left its own mark stale.
pub async fn exactly_the_blocks_above_the_target_go(factory: &dyn StoreFactory) {
    for mode in BOTH {
        let s = Subject::new(factory, small()).await;
        let root = coin("root", 1);
        s.start(10, &[&root]).await;
        let mut previous = root;
        let (mut marks, mut txs) = (Vec::new(), Vec::new());
        for height in 11..15 {
            let tx = child(&format!("at {height}"), &[(&previous, 0)], 1);
            marks.push(s.extend(&[&tx]).await.block);
            txs.push(tx.clone());
            previous = tx;
        }
        let kept = s.records(&[&txs[0]]).await;
        let rolled = back(&s, marks[1], mode).await;
        assert_eq!((rolled.last, rolled.blocks), (Some(marks[1]), 2), "{mode:?}");
        assert_eq!(s.last_applied().await, Ok(Some(marks[1])), "{mode:?}");
        assert_eq!(s.records(&[&txs[0]]).await, kept, "what lies below is untouched, {mode:?}");
        assert_eq!(
            s.head(&txs[1]).await.mined_at(),
            Some(Height(12)),
            "the target's own stays mined, {mode:?}"
        );
        for (height, there) in [(10, true), (11, true), (12, true), (13, false), (14, false)] {
            let undo = s.block_at(Height(height)).await.expect("undo");
            assert_eq!(undo.is_some(), there, "the undo record of {height}, {mode:?}");
        }
        let again = s.extend(&[&txs[2]]).await;
        assert_eq!((again.block.height, again.block.id), (Height(13), 6), "{mode:?}");
        s.sound().await;
    }
}

/// What a block wrote over comes back as it was.
pub async fn what_was_written_over_comes_back(factory: &dyn StoreFactory) {
    for mode in BOTH {
        let s = Subject::new(factory, small()).await;
        let minted = coinbase("minted", 130);
        s.start(10, &[&minted]).await;
        let base = s.extend(&[]).await.block;
        let before = s.records(&[&minted]).await;
        let block = std::sync::Arc::new(s.next_block(&[&minted]).await);
        let options = ApplyOptions {
            rules: BlockRules { allow_overwrite: true, ..BlockRules::default() },
            ..ApplyOptions::default()
        };
        s.apply_block(block, options).await.expect("apply");
        assert_ne!(s.records(&[&minted]).await, before, "the case itself");
        back(&s, base, mode).await;
        assert_eq!(s.records(&[&minted]).await, before, "{mode:?}");
        assert_eq!(
            s.counts().await,
            Ok(Counts { records: 1, unspent: 130, unmined: 0, spent: 0, ..Counts::default() }),
            "{mode:?}"
        );
        s.sound().await;
    }
}

/// A descendant that cannot lose, because one of its outputs is frozen, stops the rollback, and nothing changes.
pub async fn a_frozen_descendant_stops_the_rollback(factory: &dyn StoreFactory) {
    let policy = sapwood_rules::Policy { coinbase_maturity: 0, ..small() };
    for mode in BOTH {
        let s = Subject::new(factory, policy).await;
        let first = s.start(10, &[]).await.block;
        let minted = coinbase("minted", 1);
        s.extend(&[&minted]).await;
        s.extend(&[&coin("above", 1)]).await;
        let waiting = child("waiting", &[(&minted, 0)], 1);
        s.add(&waiting, 12).await;
        s.freeze(vec![op(&waiting, 0)]).await.expect("freeze");
        let before = s.digest().await;
        let problem = Box::new(ConflictError::Frozen { outpoint: op(&waiting, 0) });
        let error = RollbackError::Tx { txid: minted.txid, problem };
        assert_eq!(s.roll_back(to(first), mode).await, Err(error), "{mode:?}");
        s.assert_unchanged(before, "the refused rollback").await;
        s.unfreeze(vec![op(&waiting, 0)]).await.expect("unfreeze");
        let rolled = back(&s, first, mode).await;
        assert!(rolled.conflicting.contains(&waiting.txid), "{mode:?}: {rolled:?}");
        s.sound().await;
    }
}

/// What wrote over a record is forgotten in both modes, and who waits to spend from it has lost.
pub async fn what_wrote_over_a_record_is_forgotten(factory: &dyn StoreFactory) {
    for mode in BOTH {
        let s = Subject::new(factory, small()).await;
        let twice = coin("twice", 2);
        let base = s.start(10, &[&twice]).await.block;
        let block = std::sync::Arc::new(s.next_block(&[&twice]).await);
        let options = ApplyOptions {
            rules: BlockRules { allow_overwrite: true, ..BlockRules::default() },
            ..ApplyOptions::default()
        };
        s.apply_block(block, options).await.expect("apply");
        let waiting = child("waiting", &[(&twice, 0)], 1);
        s.add(&waiting, 11).await;
        let rolled = back(&s, base, mode).await;
        assert_eq!(rolled.conflicting, [waiting.txid], "{mode:?}");
        let record = s.record(&twice).await;
        assert_eq!(
            (record.head.mined_at(), record.slots),
            (Some(Height(10)), vec![Slot::Unspent; 2]),
            "{mode:?}"
        );
        assert_eq!(s.head(&waiting).await.conflicting_since, Some(Height(11)), "{mode:?}");
        s.sound().await;
    }
}

/// A record that comes back names nobody who is gone by then: neither as spender nor as loser.
pub async fn what_comes_back_names_nobody_who_is_gone(factory: &dyn StoreFactory) {
    for mode in BOTH {
        let s = Subject::new(factory, small()).await;
        let twice = coin("twice", 2);
        let base = s.start(10, &[&twice]).await.block;
        let (waiting, loser) = (child("waiting", &[(&twice, 0)], 1), child("loser", &[(&twice, 1)], 1));
        s.add(&waiting, 10).await;
        s.add_loser(&loser, 10).await;
        let block = std::sync::Arc::new(s.next_block(&[&twice]).await);
        let options = ApplyOptions {
            rules: BlockRules { allow_overwrite: true, ..BlockRules::default() },
            ..ApplyOptions::default()
        };
        s.apply_block(block, options).await.expect("apply");
        s.delete(vec![waiting.txid, loser.txid]).await.expect("delete");
        back(&s, base, mode).await;
        let record = s.record(&twice).await;
        assert_eq!(record.slots, [Slot::Unspent; 2], "{mode:?}: its spender is gone");
        assert_eq!(record.head.conflicting_children, [], "{mode:?}: its loser is gone");
        s.sound().await;
    }
}

/// A transaction spends an output that a later one of its block writes over, and then holds the new one too. It is mined in the
/// block that goes, so it does not keep what wrote over from going: it loses.
pub async fn a_spender_of_the_same_block_is_no_obstacle(factory: &dyn StoreFactory) {
    for mode in BOTH {
        let s = Subject::new(factory, small()).await;
        let twice = coin("twice", 1);
        let base = s.start(10, &[&twice]).await.block;
        let before = s.record(&twice).await;
        let spender = child("spender", &[(&twice, 0)], 1);
        let block = std::sync::Arc::new(s.next_block(&[&spender, &twice]).await);
        let options = ApplyOptions {
            rules: BlockRules { allow_overwrite: true, ..BlockRules::default() },
            ..ApplyOptions::default()
        };
        s.apply_block(block, options).await.expect("apply");
        s.try_spend(&spender, &[0], 11).await.expect("a mined transaction holds what it spends");
        let rolled = back(&s, base, mode).await;
        assert_eq!(rolled.conflicting, [spender.txid], "{mode:?}");
        assert_eq!(s.record(&twice).await.slots, before.slots, "{mode:?}");
        s.sound().await;
    }
}

/// Refusals change nothing: an empty store, a target above or at the last height, another hash, below the floor.
pub async fn a_refused_rollback_changes_nothing(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let nowhere = block_hash("nowhere");
    let refused = async |target: Option<(u32, BlockHash)>, error: RollbackError| {
        for mode in BOTH {
            let before = s.digest().await;
            let target = target.map(|(height, hash)| (Height(height), hash));
            assert_eq!(s.roll_back(target, mode).await, Err(error.clone()));
            s.assert_unchanged(before, &format!("a rollback refused because \"{error}\"")).await;
        }
    };
    refused(None, RollbackError::Empty).await;
    refused(Some((3, nowhere)), RollbackError::Empty).await;
    let root = coin("root", 1);
    s.start(100, &[&root]).await;
    let low = s.extend(&[&child("tx", &[(&root, 0)], 1)]).await.block;
    s.extend_to(108).await;
    let last = s.last_applied().await.expect("last").expect("a block");
    refused(Some((109, nowhere)), RollbackError::NotBelow { target: Height(109), last }).await;
    refused(Some((108, nowhere)), RollbackError::NotBelow { target: Height(108), last }).await;
    let floor = Height(103);
    refused(Some((102, nowhere)), RollbackError::BelowFloor { target: Height(102), floor }).await;
    refused(Some((101, low.hash)), RollbackError::BelowFloor { target: Height(101), floor }).await;
    refused(Some((0, nowhere)), RollbackError::BelowFloor { target: Height(0), floor }).await;
    refused(None, RollbackError::BelowFloor { target: Height(0), floor }).await;
    let at_105 = s.block_at(Height(105)).await.expect("undo").expect("inside the window").block;
    let other = RollbackError::OtherBlock { target: Height(105), found: at_105.hash, expected: nowhere };
    refused(Some((105, nowhere)), other).await;
    let undo_104 = s.block_at(Height(104)).await.expect("undo").expect("inside the window");
    let at_103 = undo_104.previous.expect("the block below");
    let other = RollbackError::OtherBlock { target: floor, found: at_103.hash, expected: nowhere };
    refused(Some((103, nowhere)), other).await;
    let rolled = back(&s, at_103, RollbackMode::Node).await;
    assert_eq!((rolled.last, rolled.blocks), (Some(at_103), 5), "the floor itself can be reached");
    s.sound().await;
}

/// The floor can be reached after the undo records below it were dropped.
pub async fn the_floor_can_be_reached_after_undo_is_pruned(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    s.start(100, &[]).await;
    s.extend_to(108).await;
    let target =
        s.block_at(Height(104)).await.expect("undo").expect("there").previous.expect("the block below");
    assert_eq!(target.height, Height(103));
    let undo = s.prune_undo(None, Height::MAX, 100).await.expect("prune undo");
    assert_eq!(undo.dropped, 4, "100 to 103");
    let nowhere = block_hash("nowhere");
    let other = RollbackError::OtherBlock { target: Height(103), found: target.hash, expected: nowhere };
    assert_eq!(s.roll_back(Some((Height(103), nowhere)), RollbackMode::Node).await, Err(other));
    assert_eq!(back(&s, target, RollbackMode::Node).await.last, Some(target));
    let below = RollbackError::BelowFloor { target: Height(102), floor: Height(103) };
    assert_eq!(s.roll_back(Some((Height(102), nowhere)), RollbackMode::Node).await, Err(below));
    s.extend_to(109).await;
    s.sound().await;
}

/// To roll back to the last block is nothing to do.
pub async fn to_the_last_block_is_nothing_to_do(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    s.start(10, &[&coin("tx", 1)]).await;
    let last = s.extend(&[]).await.block;
    let before = s.digest().await;
    for mode in BOTH {
        let rolled = back(&s, last, mode).await;
        assert_eq!((rolled.last, rolled.blocks), (Some(last), 0));
        assert_eq!((rolled.unmined, rolled.forgotten, rolled.conflicting), (vec![], vec![], vec![]));
    }
    s.assert_unchanged(before, "a rollback to the last block").await;
    s.sound().await;
}

/// With no target the first block goes too, and the next one may have any height.
pub async fn everything_can_be_taken_back_while_the_floor_is_at_the_first_block(factory: &dyn StoreFactory) {
    for mode in BOTH {
        let s = Subject::new(factory, small()).await;
        let waiting = coin("waiting", 1);
        s.add(&waiting, 9).await;
        let tx = coin("tx", 1);
        s.start(10, &[&tx]).await;
        s.extend_to(15).await;
        let rolled = s.roll_back(None, mode).await.expect("roll back");
        assert_eq!((rolled.last, rolled.blocks), (None, 6));
        assert_eq!(s.last_applied().await, Ok(None));
        assert_eq!(s.rollback_floor().await, Ok(None));
        assert!(s.has(&waiting).await);
        assert_eq!(s.has(&tx).await, mode == RollbackMode::Node, "{mode:?}");
        assert_eq!(s.roll_back(None, mode).await, Err(RollbackError::Empty));
        let again = s.start(3, &[]).await.block;
        assert_eq!((again.height, again.id), (Height(3), 7), "any height, but a new number");
        assert_eq!(s.rollback_floor().await, Ok(Some(Height(3))));
        s.roll_back(None, mode).await.expect("roll back");
        s.start(70, &[]).await;
        assert_eq!(s.rollback_floor().await, Ok(Some(Height(70))));
        let rolled = s.roll_back(None, mode).await.expect("the first block is the one at 70 now");
        assert_eq!((rolled.last, rolled.blocks), (None, 1));
        s.sound().await;
    }
}

/// Back and forth: the same blocks again give the same records again.
pub async fn back_and_forth_comes_to_the_same(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let root = coin("root", 3);
    let base = s.start(10, &[&root]).await.block;
    let a = child("a", &[(&root, 0)], 2);
    let b = child("b", &[(&a, 0), (&root, 1)], 1);
    let c = burn("c", &[(&b, 0)]);
    let all = [&root, &a, &b, &c];
    let mut seen = Vec::new();
    for _ in 0..3 {
        s.extend(&[&a]).await;
        s.extend(&[&b, &c]).await;
        let mut records = s.records(&all).await;
        // Numbers of blocks go up for ever, so they are the one thing that differs.
        records
            .iter_mut()
            .flatten()
            .flat_map(|record| &mut record.head.blocks)
            .for_each(|block| block.block_id = 0);
        seen.push((records, s.due_all().await, s.counts().await));
        back(&s, base, RollbackMode::Follower).await;
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[1], seen[2]);
    s.sound().await;
}

/// What is gone already is passed over: a transaction of the block that was pruned with a shorter retention.
pub async fn what_is_gone_already_is_passed_over(factory: &dyn StoreFactory) {
    for mode in BOTH {
        let s = Subject::new(factory, small()).await;
        let first = s.start(10, &[]).await.block;
        let gone = burn("gone", &[]);
        let tx = coin("tx", 1);
        s.extend(&[&gone, &tx]).await;
        s.extend(&[]).await;
        s.try_longest(&gone, false, 12).await.expect("off the longest chain");
        s.delete(vec![gone.txid]).await.expect("delete");
        let rolled = back(&s, first, mode).await;
        assert_eq!(rolled.blocks, 2, "{mode:?}");
        let expected =
            if mode == RollbackMode::Node { (vec![tx.txid], vec![]) } else { (vec![], vec![tx.txid]) };
        assert_eq!((rolled.unmined, rolled.forgotten), expected, "{mode:?}");
        assert!(!s.has(&gone).await, "{mode:?}");
        s.sound().await;
    }
}

/// What is in another block of the longest chain too stays mined when this one is taken back.
pub async fn what_is_in_another_block_stays_mined(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let root = coin("root", 2);
    let first = s.start(10, &[&root]).await.block;
    let (known, brought) = (child("known", &[(&root, 0)], 1), child("brought", &[(&root, 1)], 1));
    s.add(&known, 10).await;
    s.extend(&[&known, &brought]).await;
    for tx in [&known, &brought] {
        s.try_mine(tx, mined_in(700, 10), false, 11).await.expect("another block");
    }
    let rolled = back(&s, first, RollbackMode::Node).await;
    assert_eq!(rolled.unmined, [], "neither is unmined");
    for (vout, tx) in [(0, &known), (1, &brought)] {
        assert_eq!(s.head(tx).await.blocks.as_slice(), [mined_in(700, 10)]);
        assert_eq!(s.slot(&root, vout).await, spent(tx, 0, Some(10)));
    }
    assert_eq!(s.old_unmined_all(Height::MAX).await, []);
    s.sound().await;
}

/// Since when something is unmined only ever goes down, through blocks and rollbacks too.
pub async fn unmined_since_survives_blocks_and_rollbacks(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let tx = coin("tx", 1);
    s.start(10, &[]).await;
    s.extend_to(12).await;
    s.try_add(CreateRequest::unmined(tx.clone()), 12).await.expect("create");
    let base = s.last_applied().await.expect("last").expect("a block");
    for round in 0..3 {
        s.extend(&[]).await;
        s.extend(&[&tx]).await;
        assert_eq!(s.head(&tx).await.mined_at(), Some(Height(14)), "round {round}");
        back(&s, base, RollbackMode::Node).await;
        assert_eq!(s.head(&tx).await.unmined_since(), Some(Height(12)), "round {round}");
        assert_eq!(s.old_unmined_all(Height(12)).await, [tx.txid], "round {round}");
    }
    s.sound().await;
}

/// A transaction that is forgotten with its block may be mined in another one that somebody named, so deep that nobody remembers who spent
/// what it holds. It gives that back all the same: an output spent by nobody could never be spent again.
pub async fn what_is_forgotten_gives_back_what_was_settled(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let root = coin("root", 2);
    s.start(1, &[&root]).await;
    s.extend_to(7).await;
    let before = s.last_applied().await.expect("last applied").expect("a block");
    let tx = burn("tx", &[(&root, 0)]);
    s.extend(&[&tx]).await;
    s.mark_on_longest_chain(vec![tx.txid], false, Height(8)).await.expect("off the longest chain");
    s.try_mine(&tx, mined_in(700, 2), false, 8).await.expect("another block");
    s.extend(&[&burn("other", &[(&root, 1)])]).await;
    let rolled = back(&s, before, RollbackMode::Follower).await;
    assert!(rolled.forgotten.contains(&tx.txid), "{rolled:?}");
    assert_eq!(s.record(&root).await.slots, [Slot::Unspent, Slot::Unspent]);
    s.sound().await;
}

/// A smaller window moves the floor only with the next block. Until then a rollback can reach the old one, and a write that touches a
/// parent must not make it forget who spent it above that floor.
pub async fn a_smaller_window_forgets_nobody_above_the_old_floor(factory: &dyn StoreFactory) {
    for mode in BOTH {
        let s =
            Subject::new(factory, sapwood_rules::Policy { retention: 10, reorg_window: 10, ..small() }).await;
        let (parent, wide) = (coin("parent", 2), coin("wide", 200));
        s.start(1, &[&parent, &wide]).await;
        let base = s.extend(&[]).await.block;
        let tx = child("tx", &[(&parent, 0), (&wide, 0), (&wide, 150)], 1);
        s.extend(&[&tx]).await;
        s.extend_to(12).await;
        assert_eq!(s.rollback_floor().await, Ok(Some(Height(2))), "the case itself");
        let smaller = sapwood_rules::Policy { retention: 1, reorg_window: 1, ..small() };
        s.set_policy(smaller).await.expect("a smaller window");
        assert_eq!(s.rollback_floor().await, Ok(Some(Height(2))), "until the next block");
        s.freeze(vec![op(&parent, 1), op(&wide, 1), op(&wide, 151)]).await.expect("freeze");
        let slots = async || [s.slot(&parent, 0).await, s.slot(&wide, 0).await, s.slot(&wide, 150).await];
        assert_eq!(slots().await, [0, 1, 2].map(|vin| spent(&tx, vin, Some(3))));
        back(&s, base, mode).await;
        let expected = match mode {
            RollbackMode::Node => [0, 1, 2].map(|vin| spent(&tx, vin, None)),
            RollbackMode::Follower => [Slot::Unspent; 3],
        };
        assert_eq!(slots().await, expected);
        s.sound().await;
    }
}
