//! Blocks of transactions, and the longest chain.

use sapwood_ledger::{CreateRequest, MineError, MineRequest};
use sapwood_types::{Height, MinedIn, Slot};

use super::{StoreFactory, Subject, failures};
use crate::fixtures::*;

/// Blocks are appended; one on the longest chain makes the transaction mined, at the greatest height.
pub async fn blocks_are_appended_and_the_greatest_height_counts(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 1);
    s.add_mined(&parent, 1).await;
    let tx = child("tx", &[(&parent, 0)], 1);
    s.add(&tx, 2).await;
    s.try_mine(&tx, forked_in(11, 9), false, 9).await.expect("a fork");
    assert_eq!(s.head(&tx).await.mined_at(), None);
    assert_eq!(s.slot(&parent, 0).await, spent(&tx, 0, None), "a fork does not count");
    s.try_mine(&tx, mined_in(12, 8), false, 9).await.expect("the longest chain");
    assert_eq!(s.slot(&parent, 0).await, spent(&tx, 0, Some(8)));
    s.try_mine(&tx, mined_in(13, 6), false, 9).await.expect("another block");
    assert_eq!(s.slot(&parent, 0).await, spent(&tx, 0, Some(8)), "to assume it younger keeps data longer");
    s.try_mine(&tx, mined_in(14, 10), false, 9).await.expect("another block");
    assert_eq!(s.slot(&parent, 0).await, spent(&tx, 0, Some(10)));
    let head = s.head(&tx).await;
    assert_eq!(
        head.blocks.as_slice(),
        [forked_in(11, 9), mined_in(12, 8), mined_in(13, 6), mined_in(14, 10)]
    );
    assert_eq!(head.first_unmined, Some(Height(2)), "kept while it is mined");
    assert_eq!(s.old_unmined_all(Height::MAX).await, []);
    s.sound().await;
}

/// The same block again takes the place of the old entry.
pub async fn the_same_block_again_replaces_its_entry(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let tx = coin("tx", 1);
    s.add(&tx, 2).await;
    s.mine(&tx, 5).await;
    s.try_mine(&tx, forked_in(9, 5), false, 5).await.expect("another block of that height");
    let moved = MinedIn { subtree: 3, ..mined_in(5, 5) };
    s.try_mine(&tx, moved, false, 5).await.expect("the same block");
    assert_eq!(s.head(&tx).await.blocks.as_slice(), [moved, forked_in(9, 5)]);
    s.try_mine(&tx, forked_in(5, 5), false, 7).await.expect("the same block, off the longest chain");
    let head = s.head(&tx).await;
    assert_eq!(head.blocks.as_slice(), [forked_in(5, 5), forked_in(9, 5)]);
    assert_eq!(head.unmined_since(), Some(Height(2)), "so it is unmined again, since the beginning");
    s.sound().await;
}

/// Taking a block back removes the entry of that block and no other; where none is left on the longest chain, the
/// transaction is unmined.
pub async fn unset_removes_the_matching_entry_only(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 1);
    s.add_mined(&parent, 1).await;
    let tx = child("tx", &[(&parent, 0)], 1);
    s.add_mined(&tx, 6).await;
    s.mine(&tx, 7).await;
    let before = s.digest().await;
    s.try_mine(&tx, mined_in(99, 7), true, 8).await.expect("a block it is not in");
    s.assert_unchanged(before, "taking back a block that the transaction is not in").await;
    s.unmine(&tx, 7, 8).await;
    assert_eq!(s.head(&tx).await.blocks.as_slice(), [mined_in(6, 6)]);
    assert_eq!(s.slot(&parent, 0).await, spent(&tx, 0, Some(6)), "the parent follows");
    assert_eq!(s.settled(&parent).await, Some(6));
    s.unmine(&tx, 6, 8).await;
    let head = s.head(&tx).await;
    assert_eq!(head.blocks.as_slice(), []);
    assert_eq!(head.first_unmined, Some(Height(8)), "it was made mined, so this is the first time");
    assert_eq!(s.slot(&parent, 0).await, spent(&tx, 0, None), "still spent, by an unmined transaction");
    assert_eq!(s.settled(&parent).await, None);
    assert_eq!(s.old_unmined_all(Height(8)).await, [tx.txid]);
    s.sound().await;
}

/// Of a transaction that is not there a block can be taken back, but not set.
pub async fn a_missing_transaction_can_be_unset_but_not_set(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let absent = coin("absent", 1);
    let before = s.digest().await;
    let missing = Err(MineError::NotFound { txid: absent.txid });
    assert_eq!(s.try_mine(&absent, mined_in(1, 1), false, 1).await, missing);
    assert_eq!(s.try_mine(&absent, mined_in(1, 1), true, 1).await, Ok(()));
    assert_eq!(s.try_longest(&absent, true, 1).await, missing);
    assert_eq!(s.try_longest(&absent, false, 1).await, missing);
    s.assert_unchanged(before, "mining what is not there").await;
    s.sound().await;
}

/// A batch with one missing: the others are mined, the missing one is named by its place.
pub async fn a_batch_with_one_missing_is_done_in_part(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let txs: Vec<_> = (0..5).map(|number| coin(&format!("tx {number}"), 1)).collect();
    for tx in txs.iter().filter(|tx| tx.txid != txs[3].txid) {
        s.add(tx, 1).await;
    }
    let txids: Vec<_> = txs.iter().map(|tx| tx.txid).collect();
    let request = MineRequest { block: mined_in(2, 2), unset: false };
    let missing = [(3, MineError::NotFound { txid: txs[3].txid })];
    assert_eq!(failures(s.set_mined(txids.clone(), request, Height(2)).await, 5), missing);
    for tx in txs.iter().filter(|tx| tx.txid != txs[3].txid) {
        assert_eq!(s.head(tx).await.mined_at(), Some(Height(2)));
    }
    assert_eq!(failures(s.mark_on_longest_chain(txids, false, Height(3)).await, 5), missing);
    assert_eq!(
        s.old_unmined_all(Height(1)).await.len(),
        4,
        "all but the missing one are off the longest chain"
    );
    s.sound().await;
}

/// Being in a block unlocks a transaction, on a fork too, and so does taking a block back.
pub async fn a_block_unlocks(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let tx = coin("tx", 1);
    let locked = CreateRequest { locked: true, ..CreateRequest::unmined(tx.clone()) };
    s.try_add(locked, 1).await.expect("create");
    for (block, unset) in [(forked_in(2, 2), false), (mined_in(3, 3), false), (mined_in(3, 3), true)] {
        s.set_locked(vec![tx.txid], true).await.expect("lock");
        s.try_mine(&tx, block, unset, 3).await.expect("a block");
        assert!(!s.head(&tx).await.locked, "unlocked by {block:?}, unset: {unset}");
    }
    s.sound().await;
}

/// What lost cannot be mined on the longest chain before the conflict is resolved; on a fork it can.
pub async fn a_loser_cannot_be_mined(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let tx = coin("tx", 1);
    s.add_loser(&tx, 4).await;
    let before = s.digest().await;
    let conflicting = Err(MineError::Conflicting { txid: tx.txid, since: Height(4) });
    assert_eq!(s.try_mine(&tx, mined_in(5, 5), false, 5).await, conflicting);
    s.assert_unchanged(before, "mining a loser").await;
    assert_eq!(s.try_mine(&tx, forked_in(5, 5), false, 5).await, Ok(()));
    assert_eq!(s.try_longest(&tx, true, 5).await, conflicting);
    let head = s.head(&tx).await;
    assert_eq!((head.blocks.as_slice(), head.conflicting_since), (&[forked_in(5, 5)][..], Some(Height(4))));
    s.sound().await;
}

/// A transaction that does not hold one of its inputs cannot be mined: that would be a double spend. Parents that are gone
/// do not matter.
pub async fn what_does_not_hold_its_inputs_cannot_be_mined(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let (p, q, absent) = (coin("p", 1), coin("q", 2), coin("absent", 1));
    let tx = child("tx", &[(&absent, 0), (&p, 0), (&q, 0), (&q, 1)], 1);
    s.add_trusted(&tx, 1).await;
    s.add_mined(&p, 1).await;
    s.add_mined(&q, 1).await;
    s.try_spend(&tx, &[1], 2).await.expect("spend");
    let before = s.digest().await;
    let not_held = Err(MineError::InputNotHeld { txid: tx.txid, outpoint: op(&q, 0) });
    assert_eq!(s.try_mine(&tx, mined_in(3, 3), false, 3).await, not_held, "the first such input");
    s.assert_unchanged(before, "mining what does not hold its inputs").await;
    s.try_mine(&tx, forked_in(3, 3), false, 3).await.expect("on a fork it does not matter");
    assert_eq!(s.try_longest(&tx, true, 3).await, not_held);
    s.try_spend(&tx, &[2, 3], 3).await.expect("spend");
    assert_eq!(s.try_longest(&tx, true, 3).await, Ok(()));
    assert_eq!(s.record(&q).await.slots, [spent(&tx, 2, Some(3)), spent(&tx, 3, Some(3))]);
    s.sound().await;
}

/// Taken on trust before its parent came, a transaction may name an output that the parent turns out not to have. It holds no such output.
pub async fn what_spends_an_output_that_its_parent_does_not_have_cannot_be_mined(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 2);
    let tx = child("tx", &[(&parent, 2)], 1);
    s.add_trusted(&tx, 1).await;
    assert_eq!(
        s.try_mine(&tx, forked_in(2, 2), false, 2).await,
        Ok(()),
        "off the longest chain anything goes"
    );
    s.add_mined(&parent, 1).await;
    let before = s.digest().await;
    let not_held = Err(MineError::InputNotHeld { txid: tx.txid, outpoint: op(&parent, 2) });
    assert_eq!(s.try_longest(&tx, true, 3).await, not_held);
    assert_eq!(s.try_mine(&tx, mined_in(3, 3), false, 3).await, not_held);
    s.assert_unchanged(before, "mining what spends nothing").await;
    s.sound().await;
}

/// A rival's hold is not one's own: the wrong input of the same transaction is not either.
pub async fn a_rivals_hold_does_not_count_as_ones_own(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 1);
    let (tx, rival) = (child("tx", &[(&parent, 0)], 1), child("rival", &[(&parent, 0)], 1));
    s.add_trusted(&tx, 1).await;
    s.add_mined(&parent, 1).await;
    s.add(&rival, 2).await;
    let not_held = Err(MineError::InputNotHeld { txid: tx.txid, outpoint: op(&parent, 0) });
    assert_eq!(s.try_mine(&tx, mined_in(3, 3), false, 3).await, not_held);
    assert_eq!(s.slot(&parent, 0).await, spent(&rival, 0, None));
    s.sound().await;
}

/// On the longest chain, off it, and on it again: parents, due index and unmined index follow each time.
pub async fn on_and_off_the_longest_chain_and_on_again(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let (parent, tx) = (coin("parent", 1), burn("tx", &[(&coin("parent", 1), 0)]));
    s.add_mined(&parent, 1).await;
    s.add(&tx, 2).await;
    s.mine(&tx, 5).await;
    for round in 0..3 {
        assert_eq!(s.slot(&parent, 0).await, spent(&tx, 0, Some(5)), "round {round}");
        assert_eq!(s.settled(&parent).await, Some(5), "round {round}");
        assert_eq!(s.settled(&tx).await, Some(5), "round {round}: it has only data outputs");
        assert_eq!(s.old_unmined_all(Height::MAX).await, [], "round {round}");
        assert_eq!(s.try_longest(&tx, false, 6 + round).await, Ok(()));
        assert_eq!(s.head(&tx).await.blocks.as_slice(), [forked_in(5, 5)], "the block stays noted");
        assert_eq!(s.slot(&parent, 0).await, spent(&tx, 0, None), "round {round}");
        assert_eq!(s.settled(&parent).await, None, "round {round}: what was due is due no longer");
        assert_eq!(s.settled(&tx).await, None, "round {round}");
        assert_eq!(s.old_unmined_all(Height(2)).await, [tx.txid], "since the earliest height, round {round}");
        let before = s.digest().await;
        assert_eq!(s.try_longest(&tx, false, 9).await, Ok(()), "off again is fine");
        s.assert_unchanged(before, "taking off the longest chain what is off it").await;
        assert_eq!(s.try_longest(&tx, true, 7 + round).await, Ok(()));
    }
    s.sound().await;
}

/// Of several blocks the highest goes onto the longest chain, and of several at that height the last.
pub async fn the_highest_block_goes_onto_the_longest_chain(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let tx = coin("tx", 1);
    s.add(&tx, 1).await;
    for block in [forked_in(1, 4), forked_in(2, 6), forked_in(3, 6), forked_in(4, 5)] {
        s.try_mine(&tx, block, false, 6).await.expect("a fork");
    }
    assert_eq!(s.try_longest(&tx, true, 6).await, Ok(()));
    let expected = [forked_in(1, 4), forked_in(2, 6), mined_in(3, 6), forked_in(4, 5)];
    assert_eq!(s.head(&tx).await.blocks.as_slice(), expected);
    assert_eq!(s.try_longest(&tx, false, 7).await, Ok(()));
    assert!(s.head(&tx).await.blocks.iter().all(|block| !block.on_longest_chain), "off means all of them");
    s.sound().await;
}

/// What is in no block cannot be on the longest chain.
pub async fn without_a_block_nothing_is_on_the_longest_chain(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let tx = coin("tx", 1);
    s.add(&tx, 3).await;
    let before = s.digest().await;
    assert_eq!(s.try_longest(&tx, true, 5).await, Err(MineError::NoBlock { txid: tx.txid }));
    assert_eq!(s.try_longest(&tx, false, 5).await, Ok(()), "it was not on it before either");
    s.assert_unchanged(before, "nothing that happened here").await;
    s.sound().await;
}

/// The height since when a transaction is unmined only ever goes down, whatever happens to it.
pub async fn unmined_since_is_the_earliest_height(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let tx = coin("tx", 1);
    s.add(&tx, 50).await;
    s.mine(&tx, 60).await;
    s.unmine(&tx, 60, 61).await;
    assert_eq!(s.head(&tx).await.unmined_since(), Some(Height(50)), "not 61");
    s.mine(&tx, 62).await;
    s.try_longest(&tx, false, 63).await.expect("off");
    assert_eq!(s.head(&tx).await.unmined_since(), Some(Height(50)), "not 63");
    s.try_mine(&tx, forked_in(70, 64), false, 40).await.expect("a fork, seen at a lower height");
    assert_eq!(s.head(&tx).await.unmined_since(), Some(Height(40)), "lower is earlier");
    s.try_longest(&tx, false, 30).await.expect("off");
    assert_eq!(s.head(&tx).await.unmined_since(), Some(Height(30)));
    assert_eq!(s.old_unmined_all(Height(29)).await, []);
    assert_eq!(s.old_unmined_all(Height(30)).await, [tx.txid]);
    s.sound().await;
}

/// All slots of all parents follow their child, whichever of its inputs holds them.
pub async fn every_slot_of_every_parent_follows(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let (p, q) = (coin("p", 3), coin("q", 1));
    s.add_mined(&p, 1).await;
    s.add(&q, 1).await;
    let tx = child("tx", &[(&p, 2), (&q, 0), (&p, 0)], 1);
    let other = child("other", &[(&p, 1)], 1);
    s.add(&tx, 2).await;
    s.add_mined(&other, 4).await;
    let slots = |at: Option<u32>| [spent(&tx, 2, at), spent(&other, 0, Some(4)), spent(&tx, 0, at)];
    assert_eq!(s.record(&p).await.slots, slots(None));
    s.mine(&tx, 6).await;
    assert_eq!(s.record(&p).await.slots, slots(Some(6)));
    assert_eq!(s.slot(&q, 0).await, spent(&tx, 1, Some(6)));
    assert_eq!(s.settled(&p).await, Some(6));
    assert_eq!(s.settled(&q).await, None, "it is not mined itself");
    s.unmine(&tx, 6, 7).await;
    assert_eq!(s.record(&p).await.slots, slots(None));
    assert_eq!(s.slot(&q, 0).await, spent(&tx, 1, None));
    assert_eq!(s.slot(&tx, 0).await, Slot::Unspent, "its own outputs are untouched");
    s.sound().await;
}
