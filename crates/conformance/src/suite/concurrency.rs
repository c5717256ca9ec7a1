//! Many tasks at once. Whatever order the store takes them in, the answers must fit that order.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::Store;
use sapwood_ledger::{
    ApplyError, ApplyOptions, ConflictError, CreateError, CreateRequest, FreezeError, InputRefusal,
    MineRequest, PruneRequest, RollbackMode, SpendError, SpendInput, SpendRequest,
};
use sapwood_rules::{KeepReason, SpendRefusal, Verdict};
use sapwood_types::{Height, Slot, Tx, TxId};
use tokio::{sync::Barrier, task::JoinSet};

use super::{StoreFactory, Subject, only};
use crate::fixtures::*;

const TASKS: usize = 20;
const ROUNDS: usize = 40;

/// Runs one task for each number at the same moment, and returns what they answered, by number.
async fn at_once<T, Fut>(tasks: usize, task: impl Fn(usize) -> Fut) -> Vec<T>
where
    T: Send + 'static,
    Fut: Future<Output = T> + Send + 'static,
{
    let barrier = Arc::new(Barrier::new(tasks));
    let mut set = JoinSet::new();
    for number in 0..tasks {
        let (barrier, work) = (barrier.clone(), task(number));
        set.spawn(async move {
            barrier.wait().await;
            (number, work.await)
        });
    }
    let mut answers: Vec<_> = set.join_all().await;
    answers.sort_by_key(|(number, _)| *number);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// Runs two different tasks at the same moment.
async fn both<A, B>(
    a: impl Future<Output = A> + Send + 'static,
    b: impl Future<Output = B> + Send + 'static,
) -> (A, B)
where
    A: Send + 'static,
    B: Send + 'static,
{
    let (a, b) = (tokio::spawn(a), tokio::spawn(b));
    (a.await.expect("a task"), b.await.expect("a task"))
}

fn spend_all(tx: &Tx) -> SpendRequest {
    let input = |(vin, input): (u32, &sapwood_types::Input)| SpendInput {
        vin,
        outpoint: input.outpoint,
        expected: None,
    };
    SpendRequest {
        child: tx.txid,
        inputs: (0..).zip(&tx.inputs).map(input).collect(),
        overrides: Default::default(),
    }
}

fn delete(txid: TxId, current: u32) -> PruneRequest {
    PruneRequest::records(vec![txid], context(current, 5, &[]))
}

async fn delete_one(store: Arc<dyn Store>, txid: TxId, current: u32) -> Verdict {
    store.prune(delete(txid, current)).await.expect("prune").judged.remove(0).verdict
}

/// The same spend from twenty tasks is fine for all of them; its rival fails in all of its own.
pub async fn the_same_spend_twenty_times_and_its_rival_always_fails(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 200);
    let (tx, rival) = (child("tx", &[(&parent, 0), (&parent, 150)], 1), child("rival", &[(&parent, 150)], 1));
    s.add_trusted(&tx, 1).await;
    s.add_trusted(&rival, 1).await;
    s.add_mined(&parent, 1).await;
    s.try_spend(&tx, &[0, 1], 2).await.expect("spend");
    let answers = at_once(2 * TASKS, |number| {
        let (store, request) = (s.shared(), spend_all(if number % 2 == 0 { &tx } else { &rival }));
        async move { only(store.spend(vec![request], Height(2)).await) }
    })
    .await;
    let refusal = SpendRefusal::Spent { by: by(&tx, 1), mined_at: None };
    let inputs = vec![InputRefusal { vin: 0, outpoint: op(&parent, 150), refusal }];
    let refused = Err(SpendError::Inputs { child: rival.txid, inputs });
    for (number, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer, if number % 2 == 0 { Ok(()) } else { refused.clone() }, "task {number}");
    }
    assert_eq!(s.counts().await.map(|counts| counts.unspent), Ok(198 + 2));
    s.sound().await;
}

/// Of twenty tasks that want the same output, one gets it, and all others are told that very one.
pub async fn of_twenty_rivals_one_wins_and_the_others_know_which(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 1);
    s.add_mined(&parent, 1).await;
    let rivals: Vec<_> =
        (0..TASKS).map(|number| child(&format!("rival {number}"), &[(&parent, 0)], 1)).collect();
    let answers = at_once(TASKS, |number| {
        let (store, tx) = (s.shared(), rivals[number].clone());
        async move { only(store.create(vec![CreateRequest::unmined(tx)], Height(2)).await) }
    })
    .await;
    let winners: Vec<_> = (0..TASKS).filter(|number| answers[*number].is_ok()).collect();
    let [winner] = winners[..] else { panic!("exactly one may win, not {winners:?}") };
    for (number, answer) in answers.into_iter().enumerate().filter(|(number, _)| *number != winner) {
        let refusal = SpendRefusal::Spent { by: by(&rivals[winner], 0), mined_at: None };
        let inputs = vec![InputRefusal { vin: 0, outpoint: op(&parent, 0), refusal }];
        assert_eq!(answer, Err(CreateError::Inputs { txid: rivals[number].txid, inputs }));
        assert!(!s.has(&rivals[number]).await);
    }
    assert_eq!(s.slot(&parent, 0).await, spent(&rivals[winner], 0, None));
    s.sound().await;
}

/// The same transaction from twenty tasks is stored once, whole, also one of many pages.
pub async fn the_same_create_twenty_times_stores_once(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 1);
    s.add_mined(&parent, 1).await;
    let tx = child("tx", &[(&parent, 0)], 1_001);
    let answers = at_once(TASKS, |_| {
        let (store, tx) = (s.shared(), tx.clone());
        async move { only(store.create(vec![CreateRequest::unmined(tx)], Height(2)).await) }
    })
    .await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "stored once");
    let exists = Err(CreateError::Exists { txid: tx.txid });
    assert_eq!(answers.iter().filter(|answer| **answer == exists).count(), TASKS - 1);
    assert_eq!(s.record(&tx).await.slots, vec![Slot::Unspent; 1_001]);
    assert!(!s.head(&tx).await.creating, "and completely");
    assert_eq!(s.slot(&parent, 0).await, spent(&tx, 0, None));
    s.sound().await;
}

/// Twenty tasks that store and spend different things do not lose anything of each other.
pub async fn different_work_at_once_is_all_done(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let root = coin("root", TASKS as u32 * 10);
    s.add_mined(&root, 1).await;
    let txs: Vec<_> =
        (0..TASKS as u32 * 10).map(|vout| child(&format!("tx {vout}"), &[(&root, vout)], 1)).collect();
    at_once(TASKS, |number| {
        let store = s.shared();
        let mine = txs[number * 10..(number + 1) * 10].to_vec();
        async move {
            for tx in mine {
                let txid = tx.txid;
                store.create(vec![CreateRequest::unmined(tx)], Height(2)).await.expect("create");
                let request = MineRequest { block: mined_in(3, 3), unset: false };
                store.set_mined(vec![txid], request, Height(3)).await.expect("mine");
            }
        }
    })
    .await;
    let slots: Vec<_> = txs.iter().map(|tx| spent(tx, 0, Some(3))).collect();
    assert_eq!(s.record(&root).await.slots, slots, "no update of the shared parent is lost");
    assert_eq!(s.settled(&root).await, Some(3));
    s.sound().await;
}

/// On and off the longest chain from many tasks at once: the last word counts, and all indexes agree with it.
pub async fn on_and_off_the_longest_chain_at_once(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 1);
    s.add_mined(&parent, 1).await;
    let tx = child("tx", &[(&parent, 0)], 1);
    s.add_mined(&tx, 5).await;
    at_once(TASKS, |number| {
        let (store, txid) = (s.shared(), tx.txid);
        async move {
            for round in 0..5 {
                let on = (number + round) % 2 == 0;
                store.mark_on_longest_chain(vec![txid], on, Height(6)).await.expect("mark");
            }
        }
    })
    .await;
    let on = s.head(&tx).await.mined_at();
    assert_eq!(s.slot(&parent, 0).await, spent(&tx, 0, on.map(|height| height.0)));
    assert_eq!(s.settled(&parent).await, on.map(|height| height.0));
    s.sound().await;
}

/// Of two different blocks after the same one, one is applied and the other is refused.
pub async fn of_two_next_blocks_one_is_applied(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let root = coin("root", 1);
    s.start(1, &[&root]).await;
    let txs: Vec<_> = (0..TASKS).map(|number| child(&format!("tx {number}"), &[(&root, 0)], 1)).collect();
    let mut blocks = Vec::new();
    for tx in &txs {
        blocks.push(Arc::new(s.next_block(&[tx]).await));
    }
    let answers = at_once(TASKS, |number| {
        let (store, block) = (s.shared(), blocks[number].clone());
        async move { store.apply_block(block, ApplyOptions::default()).await }
    })
    .await;
    let applied: Vec<_> = (0..TASKS).filter(|number| answers[*number].is_ok()).collect();
    let [winner] = applied[..] else { panic!("exactly one block may follow, not {applied:?}") };
    for (number, answer) in answers.into_iter().enumerate().filter(|(number, _)| *number != winner) {
        let hash = blocks[number].hash;
        let refused = ApplyError::NotNext { hash, height: Height(2), expected: Height(3) };
        assert_eq!(answer, Err(refused), "block {number}");
    }
    assert_eq!(s.slot(&root, 0).await, spent(&txs[winner], 0, Some(2)));
    s.sound().await;
}

/// A parent that is due, with its child.
async fn due_parent(s: &Subject, round: usize) -> (Tx, Tx) {
    let parent = coin(&format!("parent {round}"), 1);
    s.add_mined(&parent, 1).await;
    let tx = child(&format!("child {round}"), &[(&parent, 0)], 1);
    s.add_mined(&tx, 2).await;
    (parent, tx)
}

/// A child is unmined while its parent is deleted: either the parent went first, or it is kept. What is answered is what is
/// done.
pub async fn deleting_while_the_child_is_unmined(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    for round in 0..ROUNDS {
        let (parent, tx) = due_parent(&s, round).await;
        let (store, other) = (s.shared(), s.shared());
        let (parent_id, child_id) = (parent.txid, tx.txid);
        let request = MineRequest { block: mined_in(2, 2), unset: true };
        let (verdict, unset) = both(delete_one(store, parent_id, 7), async move {
            other.set_mined(vec![child_id], request, Height(7)).await
        })
        .await;
        unset.expect("unset");
        let kept = Verdict::Kept(KeepReason::ChildUnmined { child: Some(tx.txid) });
        if s.has(&parent).await {
            assert_eq!(verdict, kept, "round {round}: it is there, so it was kept, and for that reason");
            assert_eq!(s.slot(&parent, 0).await, spent(&tx, 0, None));
            assert_eq!(s.settled(&parent).await, None);
        } else {
            assert_eq!(verdict, Verdict::MayGo { due_at: Height(7) }, "round {round}: it is gone");
        }
    }
    s.sound().await;
}

/// A record is preserved while it is deleted: exactly one of the two comes first, and both answers say which.
pub async fn deleting_while_it_is_preserved(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    for round in 0..ROUNDS {
        let (parent, _) = due_parent(&s, round).await;
        let (store, other, txid) = (s.shared(), s.shared(), parent.txid);
        let (verdict, preserved) =
            both(delete_one(store, txid, 7), async move { other.preserve(vec![txid], Height(50)).await })
                .await;
        let there = s.has(&parent).await;
        assert_eq!(preserved, Ok(usize::from(there)), "round {round}: a promise that was given is kept");
        let expected = if there {
            Verdict::Kept(KeepReason::Preserved { until: Height(50) })
        } else {
            Verdict::MayGo { due_at: Height(7) }
        };
        assert_eq!(verdict, expected, "round {round}");
    }
    s.sound().await;
}

/// A record is locked while it is deleted.
pub async fn deleting_while_it_is_locked(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    for round in 0..ROUNDS {
        let (parent, _) = due_parent(&s, round).await;
        let (store, other, txid) = (s.shared(), s.shared(), parent.txid);
        let (verdict, locked) =
            both(delete_one(store, txid, 7), async move { only(other.set_locked(vec![txid], true).await) })
                .await;
        let (expected, lock) = if s.has(&parent).await {
            (Verdict::Kept(KeepReason::Locked), Ok(()))
        } else {
            (Verdict::MayGo { due_at: Height(7) }, Err(FreezeError::NotFound { txid }))
        };
        assert_eq!((verdict, locked), (expected, lock), "round {round}");
    }
    s.sound().await;
}

/// A loser wins after all while it is deleted: it cannot come back half.
pub async fn deleting_a_loser_while_it_comes_back(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    for round in 0..ROUNDS {
        let parent = coin(&format!("parent {round}"), 1);
        s.add_mined(&parent, 1).await;
        let tx = child(&format!("loser {round}"), &[(&parent, 0)], 1);
        s.add_loser(&tx, 2).await;
        let (store, other, txid) = (s.shared(), s.shared(), tx.txid);
        let (verdict, back) = both(delete_one(store, txid, 7), async move {
            only(other.set_conflicting(vec![txid], false, Height(7)).await)
        })
        .await;
        let record = s.record(&parent).await;
        assert_eq!(record.head.conflicting_children, [], "round {round}: listed no longer, either way");
        if s.has(&tx).await {
            let kept = Verdict::Kept(KeepReason::Unmined { since: Height(2) });
            assert_eq!((verdict, back), (kept, Ok(vec![txid])), "round {round}");
            assert_eq!(record.slots, [spent(&tx, 0, None)]);
        } else {
            let gone = Verdict::MayGo { due_at: Height(7) };
            assert_eq!((verdict, back), (gone, Err(ConflictError::NotFound { txid })), "round {round}");
            assert_eq!(record.slots, [Slot::Unspent]);
        }
    }
    s.sound().await;
}

/// Two pruners at work on the same records: each record goes once.
pub async fn two_pruners_delete_each_record_once(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let txs: Vec<_> = (0..100).map(|number| burn(&format!("tx {number}"), &[])).collect();
    for tx in &txs {
        s.add_mined(tx, 1).await;
    }
    let txids: Vec<_> = txs.iter().map(|tx| tx.txid).collect();
    let answers = at_once(4, |_| {
        let request = PruneRequest::records(txids.clone(), context(6, 5, &[]));
        let store = s.shared();
        async move { store.prune(request).await.expect("prune").judged }
    })
    .await;
    for (number, txid) in txids.iter().enumerate() {
        let verdicts: Vec<_> = answers.iter().map(|judged| &judged[number].verdict).collect();
        let went = verdicts.iter().filter(|verdict| verdict.may_go()).count();
        let gone = verdicts.iter().filter(|verdict| ***verdict == Verdict::Gone).count();
        assert_eq!((went, gone), (1, 3), "{txid}: {verdicts:?}");
    }
    assert_eq!(s.counts().await.map(|counts| counts.records), Ok(0));
    s.sound().await;
}

/// An output is frozen while it is spent: exactly one of the two happens.
pub async fn freezing_while_it_is_spent(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    for round in 0..ROUNDS {
        let parent = coin(&format!("parent {round}"), 1);
        s.add_mined(&parent, 1).await;
        let tx = child(&format!("tx {round}"), &[(&parent, 0)], 1);
        let (store, other, request) = (s.shared(), s.shared(), CreateRequest::unmined(tx.clone()));
        let outpoint = op(&parent, 0);
        let (created, frozen) =
            both(async move { only(store.create(vec![request], Height(2)).await) }, async move {
                only(other.freeze(vec![outpoint]).await)
            })
            .await;
        let inputs = vec![InputRefusal { vin: 0, outpoint, refusal: SpendRefusal::Frozen }];
        match s.slot(&parent, 0).await {
            Slot::Frozen => {
                let refused = CreateError::Inputs { txid: tx.txid, inputs };
                assert_eq!((created, frozen), (Err(refused), Ok(())), "round {round}");
            }
            slot => {
                assert_eq!(slot, spent(&tx, 0, None), "round {round}");
                let refused = FreezeError::NotUnspent { outpoint };
                assert_eq!((created, frozen), (Ok(()), Err(refused)), "round {round}");
            }
        }
    }
    s.sound().await;
}

/// Who reads a record of many pages while a block spends all of it sees it before or after, never in between.
pub async fn readers_never_see_half_a_block(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let roots: Vec<_> = (0..5).map(|number| coin(&format!("root {number}"), 600)).collect();
    s.start(1, &roots.iter().collect::<Vec<_>>()).await;
    for root in &roots {
        let spends: Vec<_> = (0..600).map(|vout| (root, vout)).collect();
        let sweep = burn(&format!("sweep {}", root.txid), &spends);
        let block = Arc::new(s.next_block(&[&sweep]).await);
        let height = block.height.0;
        let store = s.shared();
        let apply = tokio::spawn(async move { store.apply_block(block, ApplyOptions::default()).await });
        loop {
            let done = apply.is_finished();
            let slots = s.record(root).await.slots;
            let fresh = slots.iter().filter(|slot| slot.is_unspent()).count();
            assert!(fresh == 0 || fresh == 600, "{fresh} of 600 outputs are unspent: half a block");
            if done {
                break;
            }
        }
        apply.await.expect("a task").expect("apply");
        let slots: Vec<_> = (0..600).map(|vin| spent(&sweep, vin, Some(height))).collect();
        assert_eq!(s.record(root).await.slots, slots);
    }
    s.sound().await;
}

/// Who reads two records that one block changes sees both before it or both after it, 10,000 times while it is applied and rolled back.
pub async fn two_records_of_one_block_are_never_torn(factory: &dyn StoreFactory) {
    const READS: usize = 10_000;
    let s = Subject::new(factory, small()).await;
    let roots = [coin("left", 1), coin("right", 1)];
    let first = s.start(1, &roots.iter().collect::<Vec<_>>()).await.block;
    let spends = [burn("left spent", &[(&roots[0], 0)]), burn("right spent", &[(&roots[1], 0)])];
    let block = Arc::new(s.next_block(&spends.iter().collect::<Vec<_>>()).await);
    let done = Arc::new(AtomicBool::new(false));
    let writing = tokio::spawn({
        let (store, done) = (s.shared(), Arc::clone(&done));
        async move {
            while !done.load(Ordering::Relaxed) {
                store.apply_block(block.clone(), ApplyOptions::default()).await.expect("apply");
                let target = Some((first.height, first.hash));
                store.roll_back(target, RollbackMode::Follower).await.expect("roll back");
            }
        }
    });
    let [left, right] = [&roots[0], &roots[1]].map(|root| root.txid);
    let txids = vec![left, spends[0].txid, spends[1].txid, right];
    let mut seen = [0; 2];
    while seen.iter().sum::<usize>() < READS || seen.contains(&0) {
        let found = s.get_many(txids.clone()).await.expect("get many");
        let mut found = found.into_iter().map(|record| record.expect("a record that can be read"));
        let mut next = || found.next().expect("four answers");
        let (left, spends, right) = (next(), [next().is_some(), next().is_some()], next());
        let spent = [left, right].map(|root| !root.expect("a root").slots[0].is_unspent());
        assert_eq!(
            [spent, spends],
            [[spent[0]; 2]; 2],
            "torn, after {seen:?} reads before and after the block"
        );
        seen[usize::from(spent[0])] += 1;
        assert!(!writing.is_finished(), "the block is no longer applied");
    }
    done.store(true, Ordering::Relaxed);
    writing.await.expect("a task");
    s.sound().await;
}
