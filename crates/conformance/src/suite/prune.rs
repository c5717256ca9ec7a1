//! Deleting what is due: holds, cursors, what is left behind. And forgetting unmined transactions.

use sapwood_ledger::{
    Counts, CreateRequest, DeleteError, InputRefusal, Judged, PruneFrom, PruneRequest, PruneWhat,
    RollbackMode, StoreError,
};
use sapwood_rules::{KeepReason, PruneContext, Verdict};
use sapwood_types::{External, Height, Slot};

use super::{StoreFactory, Subject, failures, only};
use crate::fixtures::*;

/// Two records due at 3 and at 4: pruning at 2 deletes nothing, at 3 the first, at 4 the second.
pub async fn due_at_3_and_4_pruned_at_2_3_and_4(factory: &dyn StoreFactory) {
    let policy = sapwood_rules::Policy { retention: 1, reorg_window: 1, ..small() };
    let s = Subject::new(factory, policy).await;
    let (three, four) = (burn("due at 3", &[]), burn("due at 4", &[]));
    s.add_mined(&three, 2).await;
    s.add_mined(&four, 3).await;
    assert_eq!(s.prune(0).await, [], "height 0 prunes nothing");
    assert_eq!(s.prune(2).await, []);
    assert_eq!(s.prune(3).await, [three.txid]);
    assert!(s.has(&four).await);
    assert_eq!(s.prune(4).await, [four.txid]);
    assert_eq!(s.counts().await, Ok(Counts::default()));
    s.sound().await;
}

/// A parent remembers a pruned child as mined; an absent parent is not made.
pub async fn a_parent_remembers_its_pruned_child(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let (parent, gone) = (coin("parent", 2), coin("gone", 1));
    s.add_mined(&parent, 1).await;
    s.add_mined(&gone, 1).await;
    let tx = burn("tx", &[(&parent, 0), (&gone, 0)]);
    s.add_mined(&tx, 2).await;
    assert_eq!(s.prune(7).await, ids(&[&tx, &gone]));
    assert_eq!(s.record(&parent).await.slots, [spent(&tx, 0, Some(2)), Slot::Unspent]);
    assert!(!s.has(&gone).await, "an absent parent is not made");
    let last = burn("last", &[(&parent, 1)]);
    s.add_mined(&last, 8).await;
    assert_eq!(s.prune(13).await, ids(&[&last, &parent]), "the pruned child counts as spent");
    assert_eq!(s.counts().await, Ok(Counts { spent: 3, ..Counts::default() }));
    s.sound().await;
}

/// A child pruned before its parent leaves no trace of itself but in the parent; order of deletion does not matter.
pub async fn parents_and_children_may_go_in_any_order(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 1);
    let middle = child("middle", &[(&parent, 0)], 1);
    let last = burn("last", &[(&middle, 0)]);
    for (height, tx) in [(1, &parent), (2, &middle), (3, &last)] {
        s.add_mined(tx, height).await;
    }
    let may_go = |judged: &[sapwood_ledger::Judged]| {
        judged.iter().map(|judged| judged.verdict.may_go()).collect::<Vec<_>>()
    };
    assert_eq!(may_go(&s.try_prune(&[&middle], 20, &[]).await), [true], "the one between first");
    assert_eq!(s.slot(&parent, 0).await, spent(&middle, 0, Some(2)));
    assert_eq!(may_go(&s.try_prune(&[&last, &parent, &middle], 20, &[]).await), [true, true, false]);
    assert_eq!(s.counts().await, Ok(Counts { spent: 2, ..Counts::default() }));
    s.sound().await;
}

/// The persister decides: behind the due height it keeps the record, at it or past it lets go.
pub async fn a_persister_holds_until_it_has_caught_up(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let tx = burn("tx", &[]);
    s.add_mined(&tx, 10).await;
    // A persister that has written height n still needs everything from n + 1 on. The record is due at 15.
    let persisted = |height: u32| hold("persister", Some(height + 1));
    let held = Verdict::Kept(KeepReason::Held { due_at: Height(15), safe: Some(Height(14)) });
    assert_eq!(s.try_prune(&[&tx], 100, &[persisted(14)]).await[0].verdict, held);
    assert!(s.has(&tx).await, "the persister is behind");
    let further = [hold("export", Some(90)), persisted(15)];
    assert_eq!(s.verdict_held(&tx, 100, &further).await, Verdict::MayGo { due_at: Height(15) });
    assert!(s.try_prune(&[&tx], 100, &further).await[0].verdict.may_go());
    assert!(!s.has(&tx).await, "it has caught up");
    s.sound().await;
}

/// A consumer at height 0 needs everything, and so does one that has not reported; without a consumer nothing is held.
pub async fn a_consumer_at_zero_or_silent_holds_everything(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let tx = burn("tx", &[]);
    s.add_mined(&tx, 0).await;
    for silent in [hold("persister", Some(0)), hold("persister", None)] {
        let judged = s.try_prune(&[&tx], 1_000, &[silent]).await;
        let held = Verdict::Kept(KeepReason::Held { due_at: Height(5), safe: None });
        assert_eq!(judged[0].verdict, held);
    }
    assert!(s.has(&tx).await);
    assert_eq!(s.prune(1_000).await, [tx.txid]);
    s.sound().await;
}

/// What is due above the safe height stays, and says so.
pub async fn what_is_due_above_the_safe_height_stays(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let tx = burn("tx", &[]);
    s.add_mined(&tx, 10).await;
    let context = PruneContext { safe: Some(Height(14)), ..context(20, 5, &[]) };
    let request = PruneRequest::records(vec![tx.txid], context);
    let judged = s.pruned(request).await;
    assert_eq!(
        judged[0].verdict,
        Verdict::Kept(KeepReason::Held { due_at: Height(15), safe: Some(Height(14)) })
    );
    assert!(s.has(&tx).await);
    s.sound().await;
}

/// What settled in a block that can be taken back stays, whatever height, holds and retention the one who asks goes by; and the
/// rollback finds it.
pub async fn what_a_rollback_may_need_stays_whatever_is_asked(factory: &dyn StoreFactory) {
    for mode in [RollbackMode::Node, RollbackMode::Follower] {
        let s = Subject::new(factory, small()).await;
        let root = coin("root", 1);
        let first = s.start(10, &[&root]).await.block;
        let spender = burn("spender", &[(&root, 0)]);
        s.extend(&[&spender]).await;
        let at_any_rate = |undoable_from: u32| {
            let undoable =
                KeepReason::Undoable { settled_at: Height(11), undoable_from: Height(undoable_from) };
            [Verdict::Kept(undoable.clone()), Verdict::Kept(undoable)]
        };
        let asked = |current, retention| {
            let request =
                PruneRequest::records(vec![root.txid, spender.txid], context(current, retention, &[]));
            async {
                let judged = s.pruned(request).await;
                judged.into_iter().map(|judged| judged.verdict).collect::<Vec<_>>()
            }
        };
        for height in 11..=15 {
            s.extend_to(height).await;
            assert_eq!(asked(1_000, 5).await, at_any_rate(10), "{mode:?}, the chain at {height}");
            assert_eq!(asked(12, 1).await, at_any_rate(10), "a shorter retention, {mode:?}");
        }
        s.roll_back(Some((first.height, first.hash)), mode).await.expect("roll back");
        let forgotten = mode == RollbackMode::Follower;
        let slot = if forgotten { Slot::Unspent } else { spent(&spender, 0, None) };
        assert_eq!(s.slot(&root, 0).await, slot, "{mode:?}");

        s.extend(&[&spender]).await;
        s.extend_to(15).await;
        assert_eq!(asked(1_000, 5).await, at_any_rate(10), "{mode:?}");
        s.extend_to(16).await;
        assert_eq!(asked(16, 5).await, vec![Verdict::MayGo { due_at: Height(16) }; 2], "{mode:?}");
        s.sound().await;
    }
}

/// What wrote over an older record of the same id stays as long as the older one can come back. Once it was deleted too early; its
/// parent remembered it ever after, although the older one was there again.
pub async fn what_wrote_over_another_stays_while_that_can_come_back(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let root = coin("root", 1);
    let tx = burn("tx", &[(&root, 0)]);
    s.start(10, &[]).await;
    let first = s.extend(&[&root, &tx]).await.block;
    let before = s.records(&[&root, &tx]).await;
    s.extend(&[&root, &tx]).await;
    assert_eq!(s.slot(&root, 0).await, spent(&tx, 0, Some(12)));
    for judged in s.try_prune(&[&tx, &root], 1_000, &[]).await {
        let undoable = KeepReason::Undoable { settled_at: Height(12), undoable_from: Height(10) };
        assert_eq!(judged.verdict, Verdict::Kept(undoable));
    }
    s.roll_back(Some((first.height, first.hash)), RollbackMode::Node).await.expect("roll back");
    assert_eq!(s.records(&[&root, &tx]).await, before);
    s.sound().await;
}

/// Of a batch exactly those go that may, each with its verdict, in the order asked for.
pub async fn of_a_batch_exactly_those_go_that_may(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let (old, young, live, absent) =
        (burn("old", &[]), burn("young", &[]), coin("live", 1), coin("absent", 1));
    s.add_mined(&old, 1).await;
    s.add_mined(&young, 9).await;
    s.add_mined(&live, 1).await;
    let judged = s.try_prune(&[&young, &absent, &old, &live], 10, &[]).await;
    let found: Vec<_> = judged.into_iter().map(|judged| (judged.txid, judged.verdict)).collect();
    let expected = [
        (young.txid, Verdict::Kept(KeepReason::TooYoung { settled_at: Height(9), due_at: Height(14) })),
        (absent.txid, Verdict::Gone),
        (old.txid, Verdict::MayGo { due_at: Height(6) }),
        (live.txid, Verdict::Kept(KeepReason::Unspent { outputs: 1, first: Some(0) })),
    ];
    assert_eq!(found, expected);
    let there = s.records(&[&old, &young, &live]).await;
    assert_eq!(there.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, true]);
    s.sound().await;
}

/// The check of the children changes nothing where parents and children agree, which in a sound store they do.
pub async fn with_and_without_the_child_check_the_same_goes(factory: &dyn StoreFactory) {
    for check_children in [true, false] {
        let s = Subject::new(factory, small()).await;
        let parent = coin("parent", 200);
        s.add_mined(&parent, 1).await;
        let children: Vec<_> =
            (0..200).map(|vout| child(&format!("{vout}"), &[(&parent, vout)], 1)).collect();
        let batch = children.iter().map(|tx| CreateRequest::mined(tx.clone(), 2, Height(2))).collect();
        s.create(batch, Height(2)).await.expect("create");
        s.unmine(&children[150], 2, 3).await;
        let request = |current| PruneRequest {
            check_children,
            ..PruneRequest::records(vec![parent.txid], context(current, 5, &[]))
        };
        let judged = s.pruned(request(1_000)).await;
        let waits = Verdict::Kept(KeepReason::ChildUnmined { child: None });
        assert_eq!(judged[0].verdict, waits, "the child is not on the first page; check: {check_children}");
        s.mine(&children[150], 4).await;
        let judged = s.pruned(request(8)).await;
        let unstable = KeepReason::ChildUnstable { child: None, mined_at: Height(4), stable_at: Height(9) };
        assert_eq!(judged[0].verdict, Verdict::Kept(unstable), "check: {check_children}");
        let judged = s.pruned(request(9)).await;
        assert_eq!(judged[0].verdict, Verdict::MayGo { due_at: Height(9) }, "check: {check_children}");
        assert!(!s.has(&parent).await);
        s.sound().await;
    }
}

/// A loser that is deleted is no longer listed by its parents.
pub async fn a_pruned_loser_is_listed_no_longer(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 1);
    s.add_mined(&parent, 1).await;
    let (loser, other) = (child("loser", &[(&parent, 0)], 1), child("other", &[(&parent, 0)], 1));
    s.add_loser(&loser, 2).await;
    s.add_loser(&other, 3).await;
    assert_eq!(s.head(&parent).await.conflicting_children, [loser.txid, other.txid]);
    assert_eq!(s.prune(7).await, [loser.txid]);
    assert_eq!(s.head(&parent).await.conflicting_children, [other.txid]);
    s.sound().await;
}

/// Pruning goes on where the call before got to, part by part; from the oldest it begins again.
pub async fn pruning_goes_on_at_the_cursor(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let txs: Vec<_> = (0..9).map(|number| burn(&format!("tx {number}"), &[])).collect();
    for (height, tx) in (1..).zip(&txs) {
        s.add_mined(tx, height).await;
    }
    let prune = async |from, limit, current| {
        let settled = PruneRequest::settled(from, Height::MAX, limit, context(current, 5, &[]));
        let PruneWhat::Settled { from, up_to, limit, .. } = settled.what.clone() else { unreachable!() };
        let what = PruneWhat::Settled { from, up_to, limit, per_write: 2 };
        let outcome = s.shared().prune(PruneRequest { what, ..settled }).await.expect("prune");
        assert_eq!((outcome.done, &outcome.stopped_by), (outcome.judged.len(), &None));
        let looked_at: Vec<_> = outcome.judged.iter().map(|judged| judged.txid).collect();
        (looked_at, outcome.next.is_some())
    };
    let ids = |range: std::ops::Range<usize>| txs[range].iter().map(|tx| tx.txid).collect::<Vec<_>>();
    assert_eq!(s.prune_cursor().await, Ok(None));
    // The first two are due at 6 and 7, the others are too young: they are looked at, kept, and passed.
    assert_eq!(prune(PruneFrom::Cursor, 4, 7).await, (ids(0..4), true));
    assert_eq!(s.counts().await.map(|counts| counts.records), Ok(7));
    assert!(s.prune_cursor().await.is_ok_and(|cursor| cursor.is_some()));
    assert_eq!(prune(PruneFrom::Cursor, 4, 9).await, (ids(4..8), true));
    assert_eq!(prune(PruneFrom::Cursor, 4, 9).await, (ids(8..9), false));
    assert_eq!(prune(PruneFrom::Cursor, 4, 9).await, (ids(8..9), false), "the last part comes again");
    assert_eq!(s.counts().await.map(|counts| counts.records), Ok(7), "what is kept lies before the cursor");
    assert_eq!(prune(PruneFrom::Oldest, 9, 9).await, (ids(2..9), false));
    assert_eq!(s.counts().await.map(|counts| counts.records), Ok(5));
    assert_eq!(prune(PruneFrom::Oldest, 9, 20).await, (ids(4..9), false));
    assert_eq!(prune(PruneFrom::Oldest, 9, 20).await, (vec![], false));
    assert_eq!(s.prune_cursor().await, Ok(None), "nothing is left");
    s.sound().await;
}

/// A dry run answers as the run would, deletes nothing, and leaves the cursor where it is. It goes on where it is told to.
pub async fn a_dry_run_changes_nothing(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    for number in 1..=5 {
        s.add_mined(&burn(&format!("tx {number}"), &[]), number).await;
    }
    let prune = async |from, limit, dry_run| {
        let request = PruneRequest::settled(from, Height::MAX, limit, context(8, 5, &[]));
        s.shared().prune(PruneRequest { dry_run, ..request }).await.expect("prune")
    };
    let before = s.digest().await;
    let (mut would, mut from) = (Vec::new(), PruneFrom::Oldest);
    loop {
        let outcome = prune(from, 2, true).await;
        would.extend(outcome.judged);
        match outcome.next {
            Some(next) => from = PruneFrom::After(next),
            None => break,
        }
    }
    s.assert_unchanged(before, "a dry run").await;
    assert_eq!(would.iter().filter(|judged| judged.verdict.may_go()).count(), 3, "{would:?}");
    assert_eq!(prune(PruneFrom::Oldest, 9, false).await.judged, would);
    assert_eq!(s.counts().await.map(|counts| counts.records), Ok(2));
    s.sound().await;
}

/// A limit of 0, in all or for a write, is refused.
pub async fn pruning_none_at_a_time_is_refused(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    for (limit, per_write) in [(0, 1), (1, 0)] {
        let what = PruneWhat::Settled { from: PruneFrom::Cursor, up_to: Height::MAX, limit, per_write };
        let request = PruneRequest { what, ..PruneRequest::records(vec![], context(8, 5, &[])) };
        let refused = s.shared().prune(request).await;
        assert!(matches!(refused, Err(StoreError::BadOption { .. })), "{refused:?}");
    }
    s.sound().await;
}

/// Whoever deletes bodies first can have the records that have one spared. They say so, and the cursor stays before them.
pub async fn records_with_a_body_outside_are_spared_on_request(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let (plain, with_body, young) = (burn("plain", &[]), burn("with body", &[]), burn("young", &[]));
    let outside = |tx: &sapwood_types::Tx, height| CreateRequest {
        external: Some(External::Tx),
        ..CreateRequest::mined(tx.clone(), height, Height(height))
    };
    s.add_mined(&plain, 1).await;
    s.try_add(outside(&with_body, 1), 1).await.expect("create");
    s.try_add(outside(&young, 2), 2).await.expect("create");
    let settled = |limit| PruneRequest {
        spare_external: true,
        ..PruneRequest::settled(PruneFrom::Cursor, Height::MAX, limit, context(6, 5, &[]))
    };
    let not_due = Verdict::Kept(KeepReason::TooYoung { settled_at: Height(2), due_at: Height(7) });
    let may_go = Verdict::MayGo { due_at: Height(6) };
    let body = Some(External::Tx);
    let spared = Verdict::Kept(KeepReason::BodyFirst);
    let outcome = s.shared().prune(settled(2)).await.expect("prune");
    let found = |judged: &[Judged]| {
        let mut found: Vec<_> =
            judged.iter().map(|judged| (judged.txid, judged.verdict.clone(), judged.external)).collect();
        found.sort_by_key(|(txid, ..)| *txid);
        found
    };
    let mut expected = vec![(plain.txid, may_go.clone(), None), (with_body.txid, spared.clone(), body)];
    expected.sort_by_key(|(txid, ..)| *txid);
    assert_eq!(found(&outcome.judged), expected);
    assert!(!s.has(&plain).await && s.has(&with_body).await);
    assert!(outcome.next.is_some(), "the young one comes behind");
    assert_eq!(s.prune_cursor().await, Ok(None), "or what was spared would be passed over");
    let again = s.shared().prune(settled(9)).await.expect("prune");
    let expected = [(with_body.txid, spared, body), (young.txid, not_due, body)];
    assert_eq!(again.judged.len(), 2);
    assert!(expected.iter().all(|expected| found(&again.judged).contains(expected)), "{again:?}");
    // Its body is deleted now.
    let what = PruneWhat::Records { txids: vec![with_body.txid], cursor: outcome.next.clone() };
    let request = PruneRequest { what, ..PruneRequest::records(vec![], context(6, 5, &[])) };
    assert_eq!(found(&s.pruned(request).await), [(with_body.txid, may_go, body)]);
    assert!(!s.has(&with_body).await && s.has(&young).await);
    assert_eq!(s.prune_cursor().await, Ok(outcome.next));
    s.sound().await;
}

/// What is deleted is gone everywhere: records, outputs, addresses, listings.
pub async fn what_is_deleted_is_gone_everywhere(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let loser = paying("loser", &[], &["alice", "bob"]);
    let parent = coin("parent", 1);
    s.add_mined(&parent, 1).await;
    s.add_loser(&loser, 1).await;
    s.add_mined(&burn("spender", &[(&parent, 0)]), 1).await;
    assert_eq!(s.prune(6).await.len(), 3);
    assert_eq!(s.counts().await, Ok(Counts { spent: 1, ..Counts::default() }));
    assert_eq!(s.outputs(vec![op(&loser, 0), op(&parent, 0)]).await, Ok(vec![None, None]));
    assert_eq!(s.due_all().await, []);
    assert_eq!(s.old_unmined_all(Height::MAX).await, [], "a loser was unmined too");
    s.sound().await;
}

/// What is forgotten gives back what it held and is listed no longer; to forget it again is fine.
pub async fn forgetting_gives_the_inputs_back(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let (p, q) = (coin("p", 1), coin("q", 1));
    s.add_mined(&p, 1).await;
    s.add_mined(&q, 1).await;
    let fresh = s.records(&[&p, &q]).await;
    let tx = child("tx", &[(&p, 0), (&q, 0)], 1);
    let loser = child("loser", &[(&q, 0)], 1);
    s.add(&tx, 2).await;
    s.add_loser(&loser, 2).await;
    s.delete(vec![tx.txid, loser.txid]).await.expect("delete");
    assert_eq!(s.records(&[&p, &q]).await, fresh, "as if neither had ever been there");
    let before = s.digest().await;
    s.delete(vec![tx.txid]).await.expect("already gone is fine");
    s.assert_unchanged(before, "forgetting what is gone").await;
    s.add(&tx, 3).await;
    assert_eq!(s.slot(&q, 0).await, spent(&tx, 1, None), "it was not mined, so it may come back");
    s.sound().await;
}

/// What is mined, frozen or spent from cannot be forgotten. Of a chain the last one goes first.
pub async fn what_cannot_be_forgotten(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let (mined, parent) = (coin("mined", 1), coin("parent", 2));
    s.add_mined(&mined, 1).await;
    s.add(&parent, 1).await;
    let tx = child("tx", &[(&parent, 1)], 2);
    s.add(&tx, 2).await;
    s.freeze(vec![op(&tx, 1)]).await.expect("freeze");
    let before = s.digest().await;
    let failed = failures(s.delete(vec![mined.txid, parent.txid, tx.txid]).await, 3);
    let expected = [
        (0, DeleteError::Mined { txid: mined.txid, mined_at: Height(1) }),
        (1, DeleteError::HasChild { txid: parent.txid, child: Some(tx.txid) }),
        (2, DeleteError::Frozen { outpoint: op(&tx, 1) }),
    ];
    assert_eq!(failed, expected);
    s.assert_unchanged(before, "forgetting what cannot be").await;
    s.unfreeze(vec![op(&tx, 1)]).await.expect("unfreeze");
    let failed = failures(s.delete(vec![parent.txid, tx.txid]).await, 2);
    assert_eq!(failed, [(0, DeleteError::HasChild { txid: parent.txid, child: Some(tx.txid) })]);
    assert!(!s.has(&tx).await, "the last of the chain is gone");
    s.delete(vec![parent.txid]).await.expect("now it is the last one itself");
    assert_eq!(
        s.counts().await,
        Ok(Counts { records: 1, unspent: 1, unmined: 0, spent: 0, ..Counts::default() })
    );
    s.sound().await;
}

/// A mined child that was pruned is a child as well.
pub async fn a_pruned_child_still_keeps_its_unmined_parent(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 1);
    s.add(&parent, 1).await;
    let tx = burn("tx", &[(&parent, 0)]);
    s.add_mined(&tx, 2).await;
    assert_eq!(s.prune(7).await, [tx.txid]);
    let error = DeleteError::HasChild { txid: parent.txid, child: Some(tx.txid) };
    assert_eq!(only(s.delete(vec![parent.txid]).await), Err(error));
    s.sound().await;
}

/// A child whose parent was pruned can be forgotten, mined again, and lose; nothing makes the parent again.
pub async fn life_goes_on_without_a_pruned_parent(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 1);
    s.add_mined(&parent, 1).await;
    let tx = child("tx", &[(&parent, 0)], 1);
    s.add_mined(&tx, 2).await;
    assert_eq!(s.prune(7).await, [parent.txid]);
    s.unmine(&tx, 2, 8).await;
    s.mine(&tx, 9).await;
    s.unmine(&tx, 9, 10).await;
    assert_eq!(s.try_conflicting(&tx, true, 10).await, Ok(vec![tx.txid]));
    let refusal = sapwood_rules::SpendRefusal::NotFound;
    let inputs = vec![InputRefusal { vin: 0, outpoint: op(&parent, 0), refusal }];
    let error = sapwood_ledger::ConflictError::Inputs { txid: tx.txid, inputs };
    assert_eq!(s.try_conflicting(&tx, false, 11).await, Err(error), "it cannot win without its parent");
    s.delete(vec![tx.txid]).await.expect("delete");
    assert_eq!(s.counts().await, Ok(Counts { spent: 1, ..Counts::default() }));
    s.sound().await;
}
