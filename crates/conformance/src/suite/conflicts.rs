//! Double spends: who loses, who wins, and what becomes of their descendants.

use sapwood_ledger::{ConflictError, InputRefusal};
use sapwood_rules::SpendRefusal;
use sapwood_types::{Height, Slot, Tx, TxId};

use super::{StoreFactory, Subject, failures};
use crate::fixtures::*;

fn in_order(txs: &[&Tx]) -> Vec<TxId> {
    txs.iter().map(|tx| tx.txid).collect()
}

fn refused(tx: &Tx, vin: u32, refusal: SpendRefusal) -> ConflictError {
    let outpoint = tx.inputs[vin as usize].outpoint;
    ConflictError::Inputs { txid: tx.txid, inputs: vec![InputRefusal { vin, outpoint, refusal }] }
}

/// Panics unless exactly these have lost, of all these.
async fn assert_lost(s: &Subject, lost: &[&Tx], of: &[&Tx]) {
    for tx in of {
        let expected = lost.contains(tx);
        assert_eq!(s.head(tx).await.is_conflicting(), expected, "whether {} has lost", tx.txid);
    }
}

/// A store with a mined coin of some outputs.
async fn with_coin(factory: &dyn StoreFactory, outputs: u32) -> (Subject, Tx) {
    let s = Subject::new(factory, small()).await;
    let root = coin("root", outputs);
    s.add_mined(&root, 1).await;
    (s, root)
}

/// What loses gives back what it held, is listed by its parents, and holds nothing; what wins again is as it was.
pub async fn losing_gives_back_and_winning_takes_again(factory: &dyn StoreFactory) {
    let (s, root) = with_coin(factory, 2).await;
    let tx = child("tx", &[(&root, 0), (&root, 1)], 1);
    s.add(&tx, 2).await;
    let before = s.records(&[&root, &tx]).await;
    assert_eq!(s.try_conflicting(&tx, true, 3).await, Ok(vec![tx.txid]));
    let record = s.record(&root).await;
    assert_eq!(record.slots, [Slot::Unspent; 2]);
    assert_eq!(record.head.conflicting_children, [tx.txid], "listed once");
    assert_eq!(s.head(&tx).await.conflicting_since, Some(Height(3)));
    let lost = s.digest().await;
    assert_eq!(s.try_conflicting(&tx, true, 9).await, Ok(vec![]), "it has lost already");
    s.assert_unchanged(lost, "losing again").await;
    assert_eq!(s.try_conflicting(&tx, false, 4).await, Ok(vec![tx.txid]));
    assert_eq!(s.records(&[&root, &tx]).await, before);
    assert_eq!(s.try_conflicting(&tx, false, 5).await, Ok(vec![]), "it has not lost");
    assert_eq!(s.records(&[&root, &tx]).await, before);
    s.sound().await;
}

/// Descendants lose too, breadth first, each once, also where they descend in two ways; strangers do not.
pub async fn descendants_lose_too_breadth_first(factory: &dyn StoreFactory) {
    let (s, root) = with_coin(factory, 2).await;
    let a = child("a", &[(&root, 0)], 2);
    let b = child("b", &[(&a, 0)], 2);
    let c = child("c", &[(&a, 1)], 1);
    let d = child("d", &[(&b, 0), (&c, 0)], 1);
    let e = child("e", &[(&b, 1)], 1);
    let stranger = child("stranger", &[(&root, 1)], 1);
    let all = [&a, &b, &c, &d, &e, &stranger];
    for tx in all {
        s.add(tx, 2).await;
    }
    assert_eq!(s.try_conflicting(&a, true, 3).await, Ok(in_order(&[&a, &b, &c, &d, &e])));
    assert_lost(&s, &[&a, &b, &c, &d, &e], &all).await;
    for tx in [&a, &b, &c] {
        assert!(s.record(tx).await.slots.iter().all(Slot::is_unspent), "losers hold nothing");
    }
    assert_eq!(s.record(&root).await.slots, [Slot::Unspent, spent(&stranger, 0, None)]);
    assert_eq!(s.try_conflicting(&a, false, 4).await, Ok(vec![a.txid]), "coming back is for this one alone");
    assert_lost(&s, &[&b, &c, &d, &e], &all).await;
    let conflicting = |vin, outpoint| {
        let refusal = SpendRefusal::Conflicting { since: Height(3) };
        InputRefusal { vin, outpoint, refusal }
    };
    let both = vec![conflicting(0, op(&b, 0)), conflicting(1, op(&c, 0))];
    let error = ConflictError::Inputs { txid: d.txid, inputs: both };
    assert_eq!(s.try_conflicting(&d, false, 4).await, Err(error), "its parents have lost");
    s.sound().await;
}

/// A transaction that is mined cannot lose, nor one with a mined or frozen descendant. Nothing changes then.
pub async fn mined_and_frozen_ones_cannot_lose(factory: &dyn StoreFactory) {
    let (s, root) = with_coin(factory, 1).await;
    let a = child("a", &[(&root, 0)], 2);
    let b = child("b", &[(&a, 0)], 1);
    let c = child("c", &[(&a, 1)], 1);
    for tx in [&a, &b, &c] {
        s.add(tx, 2).await;
    }
    s.mine(&c, 3).await;
    s.freeze(vec![op(&b, 0)]).await.expect("freeze");
    let before = s.digest().await;
    let frozen = Err(ConflictError::Frozen { outpoint: op(&b, 0) });
    assert_eq!(s.try_conflicting(&a, true, 4).await, frozen, "b comes before c");
    s.assert_unchanged(before, "what cannot lose").await;
    s.unfreeze(vec![op(&b, 0)]).await.expect("unfreeze");
    s.freeze(vec![op(&c, 0)]).await.expect("freeze");
    let before = s.digest().await;
    let mined = Err(ConflictError::Mined { txid: c.txid, mined_at: Height(3) });
    assert_eq!(s.try_conflicting(&a, true, 4).await, mined, "mined comes before frozen");
    assert_eq!(s.try_conflicting(&c, true, 4).await, mined);
    let absent = coin("absent", 1);
    for on in [true, false] {
        let missing = Err(ConflictError::NotFound { txid: absent.txid });
        assert_eq!(s.try_conflicting(&absent, on, 4).await, missing);
    }
    s.assert_unchanged(before, "what cannot lose").await;
    s.sound().await;
}

/// In a batch each stands alone, and what an earlier one took along is not reported twice.
pub async fn each_loser_of_a_batch_stands_alone(factory: &dyn StoreFactory) {
    let (s, root) = with_coin(factory, 2).await;
    let (a, mined) = (child("a", &[(&root, 0)], 1), child("mined", &[(&root, 1)], 1));
    let b = child("b", &[(&a, 0)], 1);
    s.add(&a, 2).await;
    s.add(&b, 2).await;
    s.add_mined(&mined, 2).await;
    let failed = failures(s.set_conflicting(vec![mined.txid, a.txid, b.txid], true, Height(3)).await, 3);
    assert_eq!(failed, [(0, ConflictError::Mined { txid: mined.txid, mined_at: Height(2) })]);
    assert_lost(&s, &[&a, &b], &[&a, &b, &mined]).await;
    let fine = s.set_conflicting(vec![a.txid, b.txid], false, Height(4)).await;
    assert_eq!(fine, Ok(vec![a.txid, b.txid]), "the parent first, then the child can");
    s.sound().await;
}

/// Coming back needs every input: one that is taken or gone is named.
pub async fn coming_back_needs_every_input(factory: &dyn StoreFactory) {
    let (s, root) = with_coin(factory, 3).await;
    let absent = coin("absent", 1);
    let loser = child("loser", &[(&root, 0), (&root, 1), (&absent, 0), (&root, 2)], 1);
    s.add_loser(&loser, 2).await;
    let rival = child("rival", &[(&root, 1)], 1);
    s.add(&rival, 3).await;
    let before = s.digest().await;
    let inputs = vec![
        InputRefusal {
            vin: 1,
            outpoint: op(&root, 1),
            refusal: SpendRefusal::Spent { by: by(&rival, 0), mined_at: None },
        },
        InputRefusal { vin: 2, outpoint: op(&absent, 0), refusal: SpendRefusal::NotFound },
    ];
    let error = Err(ConflictError::Inputs { txid: loser.txid, inputs });
    assert_eq!(s.try_conflicting(&loser, false, 4).await, error);
    s.assert_unchanged(before, "coming back without all inputs").await;
    s.sound().await;
}

/// A single double spend, resolved for the newcomer, and then back for the first: the fork and the fork back.
pub async fn a_double_spend_and_the_fork_back(factory: &dyn StoreFactory) {
    let (s, root) = with_coin(factory, 1).await;
    let (a, b) = (child("a", &[(&root, 0)], 1), child("b", &[(&root, 0)], 1));
    s.add(&a, 2).await;
    s.add_loser(&b, 2).await;
    for (round, (winner, loser)) in [(&b, &a), (&a, &b), (&b, &a)].into_iter().enumerate() {
        assert_eq!(s.try_resolve(&[winner], 3).await, Ok(vec![loser.txid]), "round {round}");
        let record = s.record(&root).await;
        assert_eq!(record.slots, [spent(winner, 0, None)], "round {round}");
        assert_eq!(record.head.conflicting_children, [loser.txid], "round {round}: only who lost is listed");
        assert_eq!(s.head(winner).await.conflicting_since, None, "round {round}");
        assert_eq!(s.head(loser).await.conflicting_since, Some(Height(3)), "round {round}");
        let before = s.digest().await;
        assert_eq!(s.try_resolve(&[winner], 4).await, Ok(vec![]), "it has won already, round {round}");
        s.assert_unchanged(before, "winning again").await;
    }
    s.sound().await;
}

/// Several rivals, noted in different blocks of forks: whichever wins, all others that hold something lose.
pub async fn several_rivals_in_different_blocks(factory: &dyn StoreFactory) {
    let (s, root) = with_coin(factory, 3).await;
    let all = child("all", &[(&root, 0), (&root, 1), (&root, 2)], 1);
    s.add_loser(&all, 2).await;
    let singles = [0, 1, 2].map(|vout| child(&format!("single {vout}"), &[(&root, vout)], 1));
    for (id, tx) in (10..).zip(&singles) {
        s.add(tx, 2).await;
        s.try_mine(tx, forked_in(id, 3), false, 3).await.expect("a fork");
    }
    assert_eq!(s.try_resolve(&[&all], 4).await, Ok(in_order(&[&singles[0], &singles[1], &singles[2]])));
    s.mine(&all, 4).await;
    let slots = [0, 1, 2].map(|vin| spent(&all, vin, Some(4)));
    assert_eq!(s.record(&root).await.slots, slots);
    s.unmine(&all, 4, 5).await;
    assert_eq!(s.try_resolve(&[&singles[2], &singles[0]], 5).await, Ok(vec![all.txid]));
    let slots = [spent(&singles[0], 0, None), Slot::Unspent, spent(&singles[2], 0, None)];
    assert_eq!(s.record(&root).await.slots, slots, "the third is not back: nobody asked for it");
    assert_lost(&s, &[&all, &singles[1]], &[&all, &singles[0], &singles[1], &singles[2]]).await;
    assert_eq!(s.head(&singles[1]).await.blocks.as_slice(), [forked_in(11, 3)], "its block is still noted");
    s.sound().await;
}

/// One chain of transactions wins against another, and back.
pub async fn chains_win_and_lose_as_a_whole(factory: &dyn StoreFactory) {
    let (s, root) = with_coin(factory, 1).await;
    let chain = |name: &str| {
        let first = child(&format!("{name}1"), &[(&root, 0)], 1);
        let second = child(&format!("{name}2"), &[(&first, 0)], 1);
        let third = child(&format!("{name}3"), &[(&second, 0)], 1);
        [first, second, third]
    };
    let (a, b) = (chain("a"), chain("b"));
    for tx in &a {
        s.add(tx, 2).await;
    }
    for tx in &b {
        s.add_loser(tx, 2).await;
    }
    let refs = |chain: &'_ [Tx; 3]| chain.iter().map(|tx| tx.txid).collect::<Vec<_>>();
    for (winners, losers) in [(&b, &a), (&a, &b)] {
        let lost = s.try_resolve(&winners.iter().collect::<Vec<_>>(), 3).await;
        assert_eq!(lost, Ok(refs(losers)), "in order of descent");
        assert_eq!(s.slot(&root, 0).await, spent(&winners[0], 0, None));
        assert_eq!(s.slot(&winners[0], 0).await, spent(&winners[1], 0, None));
        assert_eq!(s.slot(&winners[1], 0).await, spent(&winners[2], 0, None));
        assert_eq!(s.slot(&losers[0], 0).await, Slot::Unspent);
        assert_lost(
            &s,
            &losers.iter().collect::<Vec<_>>(),
            &winners.iter().chain(losers).collect::<Vec<_>>(),
        )
        .await;
    }
    s.sound().await;
}

/// Three ways to spend one coin, with a child each: whoever wins, the other two have lost, with their children.
pub async fn a_triple_fork(factory: &dyn StoreFactory) {
    let (s, root) = with_coin(factory, 1).await;
    let forks = ["a", "b", "c"].map(|name| {
        let first = child(name, &[(&root, 0)], 1);
        let second = child(&format!("{name} next"), &[(&first, 0)], 1);
        (first, second)
    });
    s.add(&forks[0].0, 2).await;
    s.add(&forks[0].1, 2).await;
    for (first, second) in &forks[1..] {
        s.add_loser(first, 2).await;
        s.add_loser(second, 2).await;
    }
    let everyone: Vec<_> = forks.iter().flat_map(|(first, second)| [first, second]).collect();
    let mut holder = 0;
    for next in [1, 2, 0, 2, 1] {
        let (winner, heir) = &forks[next];
        let lost = s.try_resolve(&[winner, heir], 3).await;
        assert_eq!(lost, Ok(in_order(&[&forks[holder].0, &forks[holder].1])), "fork {next} wins");
        let losers: Vec<_> =
            everyone.iter().copied().filter(|tx| ![winner.txid, heir.txid].contains(&tx.txid)).collect();
        assert_lost(&s, &losers, &everyone).await;
        assert_eq!(s.slot(&root, 0).await, spent(winner, 0, None));
        let mut listed = s.head(&root).await.conflicting_children;
        listed.sort();
        let rivals: Vec<_> =
            forks.iter().map(|(first, _)| first).filter(|tx| tx.txid != winner.txid).collect();
        assert_eq!(listed, ids(&rivals));
        holder = next;
    }
    s.sound().await;
}

/// A rival with a frozen or mined descendant cannot lose; the whole resolution is off, also for winners before it.
pub async fn a_resolution_is_all_or_nothing(factory: &dyn StoreFactory) {
    let (s, root) = with_coin(factory, 2).await;
    let (a, b) = (child("a", &[(&root, 0)], 1), child("b", &[(&root, 1)], 1));
    let heir = child("heir", &[(&b, 0)], 1);
    for tx in [&a, &b, &heir] {
        s.add(tx, 2).await;
    }
    let (x, y) = (child("x", &[(&root, 0)], 1), child("y", &[(&root, 1)], 1));
    s.add_loser(&x, 2).await;
    s.add_loser(&y, 2).await;
    s.freeze(vec![op(&heir, 0)]).await.expect("freeze");
    let before = s.digest().await;
    let frozen = Err(ConflictError::Frozen { outpoint: op(&heir, 0) });
    assert_eq!(s.try_resolve(&[&x, &y], 3).await, frozen);
    s.assert_unchanged(before, "a resolution with a frozen loser").await;
    let absent = coin("absent", 1);
    let missing = Err(ConflictError::NotFound { txid: absent.txid });
    assert_eq!(s.try_resolve(&[&x, &absent], 3).await, missing);
    s.assert_unchanged(before, "a resolution with a missing winner").await;
    s.unfreeze(vec![op(&heir, 0)]).await.expect("unfreeze");
    s.mine(&b, 3).await;
    let before = s.digest().await;
    let mined = Err(ConflictError::Mined { txid: b.txid, mined_at: Height(3) });
    assert_eq!(s.try_resolve(&[&x, &y], 3).await, mined);
    s.assert_unchanged(before, "a resolution with a mined loser").await;
    assert_eq!(s.try_resolve(&[&x], 3).await, Ok(vec![a.txid]), "the others were fine");
    s.sound().await;
}

/// Who descends from a loser cannot win against it.
pub async fn a_descendant_of_a_loser_cannot_win(factory: &dyn StoreFactory) {
    let (s, root) = with_coin(factory, 1).await;
    let parent = child("parent", &[(&root, 0)], 1);
    s.add(&parent, 2).await;
    // It wants what its own parent wants: that cannot work out.
    let heir = child("heir", &[(&parent, 0), (&root, 0)], 1);
    s.add_loser(&heir, 2).await;
    let before = s.digest().await;
    let refusal = SpendRefusal::Conflicting { since: Height(3) };
    assert_eq!(s.try_resolve(&[&heir], 3).await, Err(refused(&heir, 0, refusal)));
    s.assert_unchanged(before, "a resolution against one's own parent").await;
    // The same, but for one that holds its parent's output, so that it loses together with its parent.
    let root = coin("other root", 1);
    let other = child("other", &[(&root, 0)], 1);
    let holder = child("holder", &[(&other, 0), (&root, 0)], 1);
    s.add_trusted(&holder, 2).await;
    s.add_mined(&root, 2).await;
    s.add(&other, 2).await;
    s.try_spend(&holder, &[0], 2).await.expect("spend");
    let before = s.digest().await;
    let refusal = SpendRefusal::Conflicting { since: Height(3) };
    assert_eq!(s.try_resolve(&[&holder], 3).await, Err(refused(&holder, 0, refusal)));
    s.assert_unchanged(before, "a resolution against the parent one spends from").await;
    s.sound().await;
}

/// Nor can who descends from one that an earlier winner of the same call has beaten.
pub async fn a_descendant_of_an_earlier_winners_loser_cannot_win(factory: &dyn StoreFactory) {
    let (s, root) = with_coin(factory, 1).await;
    let (a, b) = (child("a", &[(&root, 0)], 1), child("b", &[(&root, 0)], 1));
    let heir = child("heir", &[(&a, 0)], 1);
    s.add(&a, 2).await;
    s.add(&heir, 2).await;
    s.add_loser(&b, 2).await;
    let before = s.digest().await;
    let refusal = SpendRefusal::Conflicting { since: Height(3) };
    assert_eq!(s.try_resolve(&[&b, &heir], 3).await, Err(refused(&heir, 0, refusal)));
    s.assert_unchanged(before, "a resolution that contradicts itself").await;
    s.sound().await;
}

/// Nor can who descends from one that lost long before; together with that one it can, in either order.
pub async fn a_descendant_of_an_old_loser_can_only_win_with_it(factory: &dyn StoreFactory) {
    for parent_first in [false, true] {
        let (s, root) = with_coin(factory, 1).await;
        let (a, b) = (child("a", &[(&root, 0)], 1), child("b", &[(&root, 0)], 1));
        let heir = child("heir", &[(&a, 0)], 1);
        s.add(&a, 2).await;
        s.add(&heir, 2).await;
        s.add_loser(&b, 2).await;
        assert_eq!(s.try_resolve(&[&b], 3).await, Ok(vec![a.txid, heir.txid]));
        let before = s.digest().await;
        let refusal = SpendRefusal::Conflicting { since: Height(3) };
        assert_eq!(s.try_resolve(&[&heir], 4).await, Err(refused(&heir, 0, refusal)));
        s.assert_unchanged(before, "a resolution for who spends from an old loser").await;
        let winners = if parent_first { [&a, &heir] } else { [&heir, &a] };
        assert_eq!(s.try_resolve(&winners, 4).await, Ok(vec![b.txid]));
        assert_eq!(s.slot(&root, 0).await, spent(&a, 0, None));
        assert_eq!(s.slot(&a, 0).await, spent(&heir, 0, None));
        s.sound().await;
    }
}

/// A winner that had lost needs its parents; one that had not passes over those that are gone.
pub async fn a_winner_and_its_absent_parents(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let (root, absent) = (coin("root", 1), coin("absent", 1));
    let (loser, trusted) =
        (child("loser", &[(&absent, 0)], 1), child("trusted", &[(&absent, 0), (&root, 0)], 1));
    s.add_loser(&loser, 1).await;
    s.add_trusted(&trusted, 1).await;
    s.add_mined(&root, 1).await;
    let holder = child("holder", &[(&root, 0)], 1);
    s.add(&holder, 2).await;
    let before = s.digest().await;
    assert_eq!(s.try_resolve(&[&loser], 3).await, Err(refused(&loser, 0, SpendRefusal::NotFound)));
    s.assert_unchanged(before, "a resolution without the parent").await;
    assert_eq!(s.try_resolve(&[&trusted], 3).await, Ok(vec![holder.txid]));
    assert_eq!(s.slot(&root, 0).await, spent(&trusted, 1, None));
    s.sound().await;
}

/// A lock on a parent does not stop a resolution; a frozen output does.
pub async fn a_lock_does_not_stop_a_resolution_but_a_frozen_output_does(factory: &dyn StoreFactory) {
    let (s, root) = with_coin(factory, 2).await;
    let holder = child("holder", &[(&root, 0)], 1);
    s.add(&holder, 2).await;
    let winner = child("winner", &[(&root, 0), (&root, 1)], 1);
    s.add_loser(&winner, 2).await;
    s.set_locked(vec![root.txid], true).await.expect("lock");
    s.freeze(vec![op(&root, 1)]).await.expect("freeze");
    let before = s.digest().await;
    assert_eq!(s.try_resolve(&[&winner], 3).await, Err(refused(&winner, 1, SpendRefusal::Frozen)));
    s.assert_unchanged(before, "a resolution with a frozen input").await;
    s.unfreeze(vec![op(&root, 1)]).await.expect("unfreeze");
    assert_eq!(s.try_resolve(&[&winner], 3).await, Ok(vec![holder.txid]));
    assert_eq!(s.record(&root).await.slots, [spent(&winner, 0, None), spent(&winner, 1, None)]);
    assert!(s.head(&root).await.locked, "the lock is its owner's to take off");
    assert_eq!(s.counts().await.map(|counts| counts.records), Ok(3));
    s.sound().await;
}
