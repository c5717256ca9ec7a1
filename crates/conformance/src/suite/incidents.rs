//! Incidents in public trackers that a store can show. Each case has the incident's name and tells what happened there.

use sapwood_ledger::{
    Counts, CreateError, CreateRequest, DeleteError, InputRefusal, PruneFrom, PruneRequest, RollbackMode,
    StoreError, error::TxProblem,
};
use sapwood_rules::{KeepReason, Policy, SpendRefusal, Verdict, lifecycle::due_up_to};
use sapwood_types::{Height, Slot, Tx, TxId};

use super::{StoreFactory, Subject, all_pages, only, refused_tx};
use crate::fixtures::*;

/// teranode 1768: a fork of one block stamped `unmined_since` of a whole mempool anew. The clock that protects parents of old
/// unmined transactions started again at each reorganisation, and never rang.
pub async fn teranode_1768_fork_must_not_restamp_unmined_since(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let txs: Vec<_> = (0..20).map(|number| coin(&format!("waiting {number}"), 1)).collect();
    s.start(100, &[]).await;
    for tx in &txs {
        s.add(tx, 100).await;
    }
    let base = s.last_applied().await.expect("last").expect("a block");
    for _ in 0..3 {
        s.extend(&txs.iter().collect::<Vec<_>>()).await;
        s.extend(&[]).await;
        s.roll_back(Some((base.height, base.hash)), RollbackMode::Node).await.expect("roll back");
    }
    s.mark_on_longest_chain(txs.iter().map(|tx| tx.txid).collect(), false, Height(140)).await.expect("mark");
    let old = s.old_unmined_all(Height(100)).await;
    assert_eq!(old.len(), 20, "all are as old as when they were first seen");
    s.sound().await;
}

/// teranode 1772: the same fork let the parent of a live unmined child become due. It was deleted, the child could not be
/// validated, and the node stood still for good.
pub async fn teranode_1772_parent_of_a_live_unmined_child_is_never_deleted(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 1);
    let base = s.start(100, &[&parent]).await.block;
    let tx = child("child", &[(&parent, 0)], 1);
    s.extend(&[&tx]).await;
    s.extend(&[]).await;
    assert_eq!(s.settled(&parent).await, Some(101));
    s.roll_back(Some((base.height, base.hash)), RollbackMode::Node).await.expect("roll back");
    s.extend_to(200).await;
    for current in [106, 107, 200, u32::MAX] {
        assert_eq!(s.prune(current).await, [], "at {current}");
    }
    // To name it directly does not help either: it is judged again when it is deleted.
    let judged = s.try_prune(&[&parent], u32::MAX, &[]).await;
    let reason = KeepReason::ChildUnmined { child: Some(tx.txid) };
    assert_eq!(judged[0].verdict, Verdict::Kept(reason));
    s.extend(&[&tx]).await;
    assert_eq!(s.slot(&parent, 0).await, spent(&tx, 0, Some(201)));
    s.sound().await;
}

/// teranode 1214: the record of a loser was deleted while its parents still named it as their spender, so that their outputs
/// could never be spent.
pub async fn teranode_1214_no_deletion_leaves_a_dangling_spender(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 3);
    s.add_mined(&parent, 1).await;
    let lost = child("lost", &[(&parent, 0)], 1);
    let forgotten = child("forgotten", &[(&parent, 1)], 1);
    let born_lost = child("born lost", &[(&parent, 2)], 1);
    s.add(&lost, 2).await;
    s.add(&forgotten, 2).await;
    s.add_loser(&born_lost, 2).await;
    s.try_conflicting(&lost, true, 2).await.expect("lose");
    assert_eq!(s.prune(7).await, ids(&[&lost, &born_lost]));
    s.delete(vec![forgotten.txid]).await.expect("delete");
    let record = s.record(&parent).await;
    assert_eq!(record.slots, [Slot::Unspent; 3], "no slot names a transaction that is gone");
    assert_eq!(record.head.conflicting_children, [], "and no list does");
    s.add(&child("next", &[(&parent, 0), (&parent, 1), (&parent, 2)], 1), 8).await;
    s.sound().await;
}

/// teranode 1214, the other way: what has a child cannot be forgotten under it.
pub async fn teranode_1214_a_parent_is_not_forgotten_under_its_child(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 1);
    s.add(&parent, 1).await;
    let tx = child("child", &[(&parent, 0)], 1);
    s.add(&tx, 1).await;
    let error = DeleteError::HasChild { txid: parent.txid, child: Some(tx.txid) };
    assert_eq!(only(s.delete(vec![parent.txid]).await), Err(error));
    assert!(s.has(&parent).await);
    s.sound().await;
}

/// A mined child, pruned; its parent is still there.
async fn pruned_child(factory: &dyn StoreFactory) -> (Subject, Tx, Tx) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 2);
    s.start(1, &[&parent]).await;
    let tx = burn("child", &[(&parent, 0)]);
    s.extend(&[&tx]).await;
    s.extend_to(7).await;
    assert_eq!(s.prune(7).await, [tx.txid]);
    (s, parent, tx)
}

fn pruned(parent: &Tx, tx: &Tx) -> InputRefusal {
    let refusal = SpendRefusal::SpenderPruned { by: by(tx, 0), mined_at: Height(2) };
    InputRefusal { vin: 0, outpoint: op(parent, 0), refusal }
}

/// teranode 1701: a pruned child was offered again, its parent took the spend for a repeat, and it came back as unmined with
/// unspent outputs.
pub async fn teranode_1701_a_pruned_child_is_not_taken_for_a_repeat(factory: &dyn StoreFactory) {
    let (s, parent, tx) = pruned_child(factory).await;
    let before = s.digest().await;
    let error = Err(CreateError::Inputs { txid: tx.txid, inputs: vec![pruned(&parent, &tx)] });
    assert_eq!(s.try_add(CreateRequest::unmined(tx.clone()), 8).await, error);
    assert_eq!(s.try_add(CreateRequest::mined(tx.clone(), 9, Height(8)), 8).await, error, "nor as mined");
    s.assert_unchanged(before, "the replay of a pruned child").await;
    s.sound().await;
}

/// teranode 1701: nor can it come back as a loser, to be made to win later.
pub async fn teranode_1701_a_pruned_child_does_not_come_back_as_a_loser(factory: &dyn StoreFactory) {
    let (s, parent, tx) = pruned_child(factory).await;
    let before = s.digest().await;
    let error = Err(CreateError::Inputs { txid: tx.txid, inputs: vec![pruned(&parent, &tx)] });
    let loser = CreateRequest { conflicting: true, ..CreateRequest::unmined(tx.clone()) };
    assert_eq!(s.try_add(loser, 8).await, error);
    s.assert_unchanged(before, "the replay of a pruned child as a loser").await;
    s.sound().await;
}

/// teranode 1702: the same through a block.
pub async fn teranode_1702_a_pruned_child_is_not_mined_again_by_a_block(factory: &dyn StoreFactory) {
    let (s, parent, tx) = pruned_child(factory).await;
    let before = s.digest().await;
    let block = s.next_block(&[&tx]).await;
    let error = refused_tx(&block, &tx, TxProblem::Input(pruned(&parent, &tx)));
    assert_eq!(s.try_apply(&block).await, Err(error));
    s.assert_unchanged(before, "the block with a pruned child").await;
    s.sound().await;
}

/// teranode 1113: the preservation of a record ended, its deletion height was stamped without another look, and a live coin
/// was deleted.
pub async fn teranode_1113_expired_preservation_must_not_delete_a_live_coin(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let (live, waited_for) = (coin("live", 2), coin("waited for", 1));
    s.add_mined(&live, 1).await;
    s.add_mined(&waited_for, 1).await;
    s.add_mined(&burn("half", &[(&live, 0)]), 2).await;
    s.add(&child("waiting", &[(&waited_for, 0)], 1), 2).await;
    s.keep(&[&live, &waited_for], 20).await;
    assert_eq!(s.expire_preservations(Height(20), 100).await.map(|expired| expired.worked_off), Ok(2));
    assert_eq!((s.settled(&live).await, s.settled(&waited_for).await), (None, None));
    s.prune(u32::MAX).await;
    assert!(
        s.has(&live).await && s.has(&waited_for).await,
        "one has an unspent output, one an unmined child"
    );
    s.sound().await;
}

/// teranode 1186: the height of deletion was computed from a cached tip that lagged behind the block just mined, so records
/// went too early.
pub async fn teranode_1186_due_height_comes_from_the_mined_block(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    for (name, caller) in [("lags", 40), ("leads", 900)] {
        let parent = coin(&format!("parent, {name}"), 1);
        s.try_add(CreateRequest::mined(parent.clone(), 1, Height(90)), caller).await.expect("create");
        let tx = child(&format!("child, {name}"), &[(&parent, 0)], 1);
        s.add(&tx, caller).await;
        s.try_mine(&tx, mined_in(2, 100), false, caller).await.expect("mine");
        assert_eq!(s.slot(&parent, 0).await, spent(&tx, 0, Some(100)), "the caller's idea of the tip {name}");
        assert_eq!(s.settled(&parent).await, Some(100), "the caller's idea of the tip {name}");
        assert!(!s.verdict(&parent, 104).await.may_go());
        assert_eq!(s.verdict(&parent, 105).await, Verdict::MayGo { due_at: Height(105) });
    }
    s.sound().await;
}

/// teranode 489: pruning ran as soon as block assembly was "running", although that was far behind. What counts is the height
/// a consumer has reached.
pub async fn teranode_489_the_consumers_height_decides(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let tx = burn("tx", &[]);
    s.add_mined(&tx, 10).await;
    for keep_from in [Some(0), Some(1), Some(15), None] {
        let running_but_behind = hold("block assembly", keep_from);
        let safe = running_but_behind.lets_go_up_to();
        let judged = s.try_prune(&[&tx], 500, &[running_but_behind]).await;
        let held = KeepReason::Held { due_at: Height(15), safe };
        assert_eq!(judged[0].verdict, Verdict::Kept(held));
    }
    assert!(s.has(&tx).await);
    let caught_up = hold("block assembly", Some(16));
    assert!(s.try_prune(&[&tx], 500, &[caught_up]).await[0].verdict.may_go());
    s.sound().await;
}

/// teranode 498: pruning was triggered by events only, and what had become due before a restart stayed until the next one.
/// The backlog is a question to the store, which needs no event.
pub async fn teranode_498_the_backlog_is_listed_without_any_event(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    for number in 0..100 {
        s.add_mined(&burn(&format!("tx {number}"), &[]), number).await;
    }
    let up_to = due_up_to(Height(54), 5).expect("a height");
    let backlog = all_pages(30, |after| s.due(up_to, after, 30)).await;
    assert_eq!(
        backlog.iter().map(|entry| entry.settled_at.0).collect::<Vec<_>>(),
        (0..50).collect::<Vec<_>>()
    );
    assert_eq!(s.prune(54).await.len(), 50);
    assert_eq!(s.due(up_to, None, 30).await.map(|page| page.items), Ok(vec![]));
    s.sound().await;
}

/// teranode 712: a zero hash was looked up, not found, and looked up again for ever. What is not there is a plain answer.
pub async fn teranode_712_a_zero_hash_is_answered_at_once(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let zero = TxId([0; 32]);
    assert_eq!(s.get(zero).await, Ok(None));
    for check_children in [true, false] {
        let context = context(500, 5, &[]);
        let request = PruneRequest { check_children, ..PruneRequest::records(vec![zero, zero], context) };
        let judged = s.pruned(request).await;
        let found: Vec<_> = judged.iter().map(|judged| (judged.txid, &judged.verdict)).collect();
        assert_eq!(found, [(zero, &Verdict::Gone); 2]);
    }
    s.delete(vec![zero]).await.expect("already gone is fine");
    s.sound().await;
}

/// teranode 882, 1774: what was deleted could not be brought back. Records can be stored again from a file or a peer, parents
/// first, and those that are there spend them as before.
pub async fn teranode_882_deleted_records_can_be_restored(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let unknown = coin("before all history", 1);
    let grandparent = child("grandparent", &[(&unknown, 0)], 1);
    let parent = child("parent", &[(&grandparent, 0)], 1);
    let tx = child("child", &[(&parent, 0)], 1);
    let history = [(1, &grandparent), (2, &parent), (3, &tx)];
    let restore = async |(height, tx): (u32, &Tx)| {
        let request = CreateRequest::mined(tx.clone(), height, Height(height));
        s.try_add(CreateRequest { trust_inputs: true, ..request }, 9).await.expect("store");
    };
    for entry in history {
        restore(entry).await;
    }
    let before = s.digest().await;
    assert_eq!(s.prune(8).await, ids(&[&grandparent, &parent]));
    restore(history[0]).await;
    restore(history[1]).await;
    assert_eq!(s.slot(&grandparent, 0).await, spent(&parent, 0, Some(2)));
    s.try_spend(&tx, &[0], 9).await.expect("the child that stayed spends it as before");
    assert_eq!(s.slot(&parent, 0).await, spent(&tx, 0, Some(3)));
    s.assert_unchanged(before, "deleting and restoring").await;
    s.sound().await;
}

/// teranode 1469: each pruned block cost a scan of the whole table. A page of due records starts where the last one ended, and
/// ends after as many as asked for.
pub async fn teranode_1469_a_page_of_due_records_is_a_range(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    for number in 0..30 {
        s.add_mined(&burn(&format!("due {number}"), &[]), number).await;
        s.add_mined(&coin(&format!("live {number}"), 1), number).await;
    }
    let mut after = None;
    for start in [0, 10, 20] {
        let page = s.due(Height::MAX, after, 10).await.expect("due");
        let heights: Vec<_> = page.items.iter().map(|entry| entry.settled_at.0).collect();
        assert_eq!(heights, (start..start + 10).collect::<Vec<_>>());
        after = page.next;
    }
    s.sound().await;
}

/// teraslab, measured: pruning a child turned its parent's slot into one that never counted as spent, and 15 % of what was
/// due stayed for ever. After a quiet period every record that may go is gone.
pub async fn teraslab_after_a_quiet_period_every_deletable_record_is_gone(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let mut chains: Vec<Tx> = (0..20).map(|number| coin(&format!("chain {number}"), 2)).collect();
    s.start(1, &chains.iter().collect::<Vec<_>>()).await;
    for height in 2..40 {
        // One output goes on, the other one is burnt by a transaction of its own: children of very different age.
        let spends = |tx: &Tx| {
            [child(&format!("{} on", tx.txid), &[(tx, 0)], 2), burn(&format!("{} off", tx.txid), &[(tx, 1)])]
        };
        let txs: Vec<Tx> = chains.iter().flat_map(spends).collect();
        s.extend(&txs.iter().collect::<Vec<_>>()).await;
        chains = txs.into_iter().step_by(2).collect();
        s.prune(height).await;
    }
    let ends: Vec<Tx> =
        chains.iter().map(|tx| burn(&format!("{} end", tx.txid), &[(tx, 0), (tx, 1)])).collect();
    s.extend(&ends.iter().collect::<Vec<_>>()).await;
    s.extend_to(60).await;
    s.prune(60).await;
    assert_eq!(
        s.counts().await,
        Ok(Counts { spent: 20 * 39 * 2, ..Counts::default() }),
        "nothing is alive, so nothing may be left"
    );
    s.sound().await;
}

/// teraslab, measured: deleting an unmined child before its spend was taken back left the parent's output unusable for ever.
pub async fn teraslab_deleting_an_unmined_child_gives_its_inputs_back(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 200);
    s.add_mined(&parent, 1).await;
    let fresh = s.record(&parent).await;
    let tx = child("child", &[(&parent, 0), (&parent, 199)], 1);
    s.add(&tx, 2).await;
    s.delete(vec![tx.txid]).await.expect("delete");
    assert_eq!(s.record(&parent).await, fresh);
    s.add(&child("next", &[(&parent, 199), (&parent, 0)], 1), 3).await;
    s.sound().await;
}

/// teraslab, measured: a pruned child could be made again, with fresh unspent outputs that nobody had a right to.
pub async fn teraslab_a_pruned_child_cannot_be_made_again(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 2);
    s.add_mined(&parent, 1).await;
    let tx = child("child", &[(&parent, 0)], 1);
    s.add_mined(&tx, 2).await;
    s.add_mined(&burn("grandchild", &[(&tx, 0)]), 2).await;
    assert_eq!(s.prune(7).await.len(), 2);
    let before = s.digest().await;
    let error = CreateError::Inputs { txid: tx.txid, inputs: vec![pruned(&parent, &tx)] };
    assert_eq!(s.try_add(CreateRequest::unmined(tx.clone()), 8).await, Err(error));
    s.assert_unchanged(before, "making a pruned child again").await;
    let rival = child("rival", &[(&parent, 0)], 1);
    let refusal = SpendRefusal::Spent { by: by(&tx, 0), mined_at: Some(Height(2)) };
    let inputs = vec![InputRefusal { vin: 0, outpoint: op(&parent, 0), refusal }];
    let error = CreateError::Inputs { txid: rival.txid, inputs };
    assert_eq!(
        s.try_add(CreateRequest::unmined(rival), 8).await,
        Err(error),
        "nor can a rival take its place"
    );
    s.sound().await;
}

/// bitcoin 22733: 300 GB on disk where 20 GB were configured. When everything has been pruned, nothing is left: no record, no
/// index entry, no undo record.
pub async fn bitcoin_22733_nothing_is_left_behind(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let root = paying("root", &[], &["alice", "bob"]);
    s.start(1, &[&root]).await;
    let rival = child("rival", &[(&root, 0)], 1);
    s.add(&rival, 1).await;
    s.keep(&[&root], 10).await;
    s.extend(&[&burn("end", &[(&root, 0), (&root, 1)])]).await;
    s.extend_to(20).await;
    assert_eq!(s.expire_preservations(Height(20), 100).await.map(|expired| expired.worked_off), Ok(1));
    s.prune(20).await;
    s.prune_undo(None, Height::MAX, 100).await.expect("prune undo");
    let report = s.verify(std::sync::Arc::new(|_, _| ())).await.expect("verify");
    assert_eq!((report.records, report.index_entries), (0, 0), "{report}");
    for height in 1..=15 {
        assert_eq!(s.block_at(Height(height)).await, Ok(None), "the undo record of {height}");
    }
    s.sound().await;
}

/// reth 20130: one prune run took 19 minutes. A tick does what it is asked to and no more, and the rest waits in order.
pub async fn reth_20130_a_tick_is_bounded(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    for number in 0..50 {
        s.add_mined(&burn(&format!("tx {number}"), &[]), number).await;
    }
    for left in [40, 30, 20, 10, 0] {
        let request = PruneRequest::settled(PruneFrom::Cursor, Height::MAX, 10, context(500, 5, &[]));
        assert_eq!(s.pruned(request).await.len(), 10);
        assert_eq!(s.counts().await.map(|counts| counts.records), Ok(left));
    }
    s.sound().await;
}

/// reth 22803: pruning inside the commit of a block lost blocks. Pruning is a write of its own, which leaves the chain alone.
pub async fn reth_22803_pruning_leaves_the_chain_alone(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    s.start(1, &[&burn("tx", &[])]).await;
    s.extend_to(9).await;
    let chain = async || (s.last_applied().await, s.rollback_floor().await, s.block_at(Height(9)).await);
    let before = chain().await;
    assert_eq!(s.prune(9).await.len(), 1);
    assert_eq!(chain().await, before);
    s.extend(&[]).await;
    s.sound().await;
}

/// kaspa 680, sui 27768: the pruner fell behind, and nobody could see how far. The lag is a question to the store: the oldest
/// entry that is due.
pub async fn kaspa_680_the_lag_can_be_seen(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    for number in 10..40 {
        s.add_mined(&burn(&format!("tx {number}"), &[]), number).await;
    }
    for (current, oldest) in [(14, Some(10)), (20, Some(10)), (30, Some(16)), (60, Some(26))] {
        let page = s.due(Height::MAX, None, 1).await.expect("due");
        assert_eq!(page.items.first().map(|entry| entry.settled_at.0), oldest, "before pruning at {current}");
        s.prune(current).await;
    }
    assert_eq!(s.due_all().await, []);
    s.sound().await;
}

/// waterfalls 96: undo records were not written while catching up, and the first reorganisation could not be taken back.
pub async fn waterfalls_96_undo_is_written_for_every_block(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let mut previous = coin("root", 1);
    s.start(100, &[&previous]).await;
    let mut txs = vec![previous.clone()];
    for height in 101..=150 {
        let tx = child(&format!("at {height}"), &[(&previous, 0)], 1);
        s.extend(&[&tx]).await;
        let undo = s.block_at(Height(height)).await.expect("undo").expect("written with its block");
        assert_eq!((undo.created, undo.mined), (vec![tx.txid], vec![]), "height {height}");
        txs.push(tx.clone());
        previous = tx;
    }
    let at_145 = s.block_at(Height(145)).await.expect("undo").expect("inside the window").block;
    let rolled =
        s.roll_back(Some((at_145.height, at_145.hash)), RollbackMode::Follower).await.expect("roll back");
    assert_eq!(rolled.blocks, 5, "the whole window, right after catching up");
    assert_eq!(s.slot(&txs[45], 0).await, Slot::Unspent);
    s.sound().await;
}

/// erigon 3658: prune settings could not be changed without a resync. A policy takes effect at once, on old records too.
pub async fn erigon_3658_policy_changes_at_run_time(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, Policy::default()).await;
    let tx = burn("tx", &[]);
    let root = coin("root", 2);
    s.start(100, &[&tx, &root]).await;
    s.extend_to(120).await;
    assert_eq!(s.rollback_floor().await, Ok(Some(Height(100))));
    assert_eq!(s.prune_with(120, 288).await, [], "kept for 288 blocks");
    s.set_policy(small()).await.expect("a shorter retention");
    assert_eq!(s.settled(&tx).await, Some(100), "the record is as it was");
    let still = s.judge(vec![tx.txid], context(120, 5, &[]), true).await.expect("judge").remove(0).verdict;
    let undoable = KeepReason::Undoable { settled_at: Height(100), undoable_from: Height(100) };
    assert_eq!(still, Verdict::Kept(undoable), "a rollback can still reach all of the old window");
    let minted = coinbase("minted", 1);
    s.extend(&[&minted]).await;
    assert_eq!(s.prune_with(121, 5).await, [tx.txid], "and goes with the next block");
    assert_eq!(
        s.rollback_floor().await,
        Ok(Some(Height(116))),
        "the new window counts from the next block on"
    );
    assert_eq!(s.head(&minted).await.spending_height, Some(Height(124)), "and so does the new maturity");
    s.set_policy(Policy::default()).await.expect("a longer one again");
    s.extend(&[]).await;
    assert_eq!(s.rollback_floor().await, Ok(Some(Height(116))), "what is gone does not come back");
    s.sound().await;
}

/// erigon 3658, the other edge: a policy that is not safe is refused at run time as it is at the start.
pub async fn erigon_3658_an_unsafe_policy_is_refused_at_run_time(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    for unsafe_policy in [Policy { retention: 4, ..small() }, Policy { reorg_window: 0, ..small() }] {
        let refused = s.set_policy(unsafe_policy).await;
        assert!(matches!(refused, Err(StoreError::BadOption { .. })), "{unsafe_policy:?} gave {refused:?}");
    }
    s.start(100, &[]).await;
    s.extend_to(106).await;
    assert_eq!(s.rollback_floor().await, Ok(Some(Height(101))), "the old window of 5 still counts");
    s.sound().await;
}

/// Of eight inputs five were marked as spent, one failed, the spender never existed, and the node stood still two weeks later. Whichever
/// input fails, whatever the reason, and however the transaction comes: nothing of it is left.
pub async fn teranode_1769_failure_at_each_input(factory: &dyn StoreFactory) {
    const INPUTS: usize = 8;
    let parents: Vec<_> = (0..INPUTS).map(|number| coin(&format!("parent {number}"), 200)).collect();
    // On the first page, and on a further one.
    let vout = |number: usize| if number.is_multiple_of(2) { 3 } else { 150 };
    for failing in 0..INPUTS {
        let s = Subject::new(factory, small()).await;
        s.start(1, &parents.iter().collect::<Vec<_>>()).await;
        let taken = (&parents[failing], vout(failing));
        let frozen = op(&parents[(failing + 1) % INPUTS], 7);
        let rival = child("rival", &[taken], 1);
        s.extend(&[&rival]).await;
        s.freeze(vec![frozen]).await.expect("freeze");
        let outputs = |bad: (&Tx, u32)| -> Vec<(Tx, u32)> {
            let of = |number: usize| {
                if number == failing {
                    (bad.0.clone(), bad.1)
                } else {
                    (parents[number].clone(), vout(number))
                }
            };
            (0..INPUTS).map(of).collect()
        };
        let missing = coin("missing", 1);
        let frozen_parent = parents[(failing + 1) % INPUTS].clone();
        for (why, bad) in [("spent", taken), ("frozen", (&frozen_parent, 7)), ("missing", (&missing, 0))] {
            let spends = outputs(bad);
            let spends: Vec<(&Tx, u32)> = spends.iter().map(|(tx, vout)| (tx, *vout)).collect();
            let tx = child(&format!("{why} at {failing}"), &spends, 1);
            let before = s.digest().await;
            let when = format!("{why} at input {failing}");
            s.try_add(CreateRequest::unmined(tx.clone()), 3).await.expect_err(&when);
            s.assert_unchanged(before, &when).await;
            let block = s.next_block(&[&tx]).await;
            s.try_apply(&block).await.expect_err(&when);
            s.assert_unchanged(before, &when).await;
            assert!(!s.has(&tx).await, "{when}");
            // Each of the others can still be spent by another transaction.
            for number in (0..INPUTS).filter(|number| *number != failing) {
                assert_eq!(s.slot(&parents[number], vout(number)).await, Slot::Unspent, "{when}: {number}");
            }
        }
        s.sound().await;
    }
}

/// A filter that sometimes says "known" for what it does not know dropped the mark of a transaction that was still needed. Children whose
/// ids differ in one bit only are told apart: of each parent its own child decides.
pub async fn teranode_1705_nothing_probable_decides(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parents: Vec<_> = (0..256).map(|number| coin(&format!("parent {number}"), 1)).collect();
    let children: Vec<_> = (0..=255u8)
        .zip(&parents)
        .map(|(number, parent)| {
            let mut tx = burn("child", &[(parent, 0)]);
            tx.txid.0[31] = number;
            tx
        })
        .collect();
    s.start(1, &parents.iter().collect::<Vec<_>>()).await;
    let is_mined = |number: usize| !number.is_multiple_of(3);
    let of = |mined: bool| (0..256).filter(move |number| is_mined(*number) == mined).collect::<Vec<_>>();
    let batch = children.iter().map(|tx| CreateRequest::unmined(tx.clone())).collect();
    s.create(batch, Height(1)).await.expect("create");
    s.extend(&of(true).into_iter().map(|number| &children[number]).collect::<Vec<_>>()).await;
    s.extend_to(12).await;
    s.try_prune(&parents.iter().collect::<Vec<_>>(), 12, &[]).await;
    for (number, parent) in parents.iter().enumerate() {
        assert_eq!(s.has(parent).await, !is_mined(number), "parent {number}");
    }
    // And the children that are left are those that are not mined.
    s.prune(12).await;
    for (number, tx) in children.iter().enumerate() {
        assert_eq!(s.has(tx).await, !is_mined(number), "child {number}");
    }
    for number in of(true).into_iter().take(20) {
        let again = s.try_add(CreateRequest::unmined(children[number].clone()), 13).await;
        assert!(again.is_err(), "a pruned child came back: {number}");
    }
    s.sound().await;
}
