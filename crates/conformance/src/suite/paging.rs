//! Transactions of many pages: 128 outputs each.

use sapwood_ledger::{Counts, CreateError, CreateRequest, InputRefusal, RollbackMode};
use sapwood_rules::SpendRefusal;
use sapwood_types::{Height, Slot, Tx, TxHead, TxRecord};

use super::{StoreFactory, Subject};
use crate::fixtures::*;

/// Outputs to make, and the numbers next to the edges of their pages.
const SIZES: [(u32, &[u32]); 4] = [
    (128, &[0, 127]),
    (129, &[0, 127, 128]),
    (257, &[0, 127, 128, 255, 256]),
    (1_001, &[0, 127, 128, 255, 256, 895, 896, 1_000]),
];

/// A transaction that spends every output of another.
fn sweep(label: &str, parent: &Tx) -> Tx {
    let inputs: Vec<_> = (0..parent.outputs.len() as u32).map(|vout| (parent, vout)).collect();
    burn(label, &inputs)
}

/// Records of one page, of one page and a bit, of two pages and a bit, and of eight: each comes back whole, and outputs at
/// the edges of pages are found.
pub async fn records_of_any_number_of_pages_come_back_whole(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    for (outputs, edges) in SIZES {
        let mut tx = coin(&format!("of {outputs}"), outputs);
        tx.outputs[1] = data_output();
        s.add(&tx, 1).await;
        let head = TxHead { created_height: Height(1), first_unmined: Some(Height(1)), ..TxHead::default() };
        assert_eq!(s.record(&tx).await, TxRecord::new(&tx, head), "{outputs} outputs");
        for &vout in edges {
            let found = s.outputs(vec![op(&tx, vout)]).await.expect("outputs").remove(0).expect("an output");
            assert_eq!(found.output, tx.outputs[vout as usize], "output {vout} of {outputs}");
        }
        let beyond = s.outputs(vec![op(&tx, outputs), op(&tx, u32::MAX)]).await;
        assert_eq!(beyond, Ok(vec![None, None]), "there is no output beyond the last of {outputs}");
    }
    s.sound().await;
}

/// Outputs at the edges of pages are spent where they are and nowhere else.
pub async fn outputs_at_page_edges_are_spent_where_they_are(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    for (outputs, edges) in SIZES {
        let parent = coin(&format!("of {outputs}"), outputs);
        s.add_mined(&parent, 1).await;
        let spends: Vec<_> = edges.iter().map(|vout| (&parent, *vout)).collect();
        let tx = child(&format!("spends from {outputs}"), &spends, 1);
        s.add(&tx, 2).await;
        let mut expected = vec![Slot::Unspent; outputs as usize];
        for (vin, vout) in (0..).zip(edges) {
            expected[*vout as usize] = spent(&tx, vin, None);
        }
        assert_eq!(s.record(&parent).await.slots, expected, "{outputs} outputs");
        s.mine(&tx, 3).await;
        for (vin, vout) in (0..).zip(edges) {
            expected[*vout as usize] = spent(&tx, vin, Some(3));
        }
        assert_eq!(s.record(&parent).await.slots, expected, "{outputs} outputs, mined");
        s.unmine(&tx, 3, 4).await;
        s.delete(vec![tx.txid]).await.expect("delete");
        assert_eq!(s.record(&parent).await.slots, vec![Slot::Unspent; outputs as usize], "and given back");
    }
    s.sound().await;
}

/// A record is due only once every page is spent by mined transactions, whichever page comes last.
pub async fn due_only_once_every_page_is_spent(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    for last in [0u32, 1, 2] {
        let parent = coin(&format!("last page {last}"), 300);
        s.add_mined(&parent, 1).await;
        let mut pages: Vec<u32> = (0..3).filter(|page| *page != last).collect();
        pages.push(last);
        for (height, page) in (10..).zip(pages) {
            assert_eq!(s.settled(&parent).await, None, "page {page} is unspent");
            let vouts = (page * 128)..((page + 1) * 128).min(300);
            let spends: Vec<_> = vouts.map(|vout| (&parent, vout)).collect();
            let tx = child(&format!("page {page}, {last} last"), &spends, 1);
            s.add(&tx, height).await;
            assert_eq!(s.settled(&parent).await, None, "the spender of page {page} is unmined");
            s.mine(&tx, height).await;
        }
        assert_eq!(s.settled(&parent).await, Some(12), "page {last} came last");
    }
    s.sound().await;
}

/// The page whose child was mined last decides, whichever page it is, and its unmining takes it back.
pub async fn the_latest_child_of_any_page_decides(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 300);
    s.add_mined(&parent, 1).await;
    let spenders: Vec<_> = (0..300).map(|vout| child(&format!("{vout}"), &[(&parent, vout)], 1)).collect();
    let batch = spenders.iter().map(|tx| CreateRequest::mined(tx.clone(), 5, Height(5))).collect();
    s.create(batch, Height(5)).await.expect("create");
    assert_eq!(s.settled(&parent).await, Some(5));
    for (vout, height) in [(299, 20), (130, 30), (0, 40)] {
        s.mine(&spenders[vout], height).await;
        assert_eq!(s.settled(&parent).await, Some(height), "output {vout}");
    }
    for (vout, height, before) in [(0, 40, 30), (130, 30, 20), (299, 20, 5)] {
        s.unmine(&spenders[vout], height, 41).await;
        assert_eq!(s.settled(&parent).await, Some(before), "its spender is still mined at 5");
    }
    s.unmine(&spenders[299], 5, 41).await;
    assert_eq!(s.settled(&parent).await, None);
    s.sound().await;
}

/// Spends repeated on any page are counted once: the record is neither due too early nor kept too long.
pub async fn repeated_spends_do_not_inflate_the_counters(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 257);
    s.add_mined(&parent, 1).await;
    let spends: Vec<_> = (0..256).map(|vout| (&parent, vout)).collect();
    let tx = child("tx", &spends, 1);
    s.add(&tx, 2).await;
    let vins: Vec<u32> = (0..256).collect();
    for round in 0..3 {
        s.try_spend(&tx, &vins, 2).await.expect("a repeat");
        let counts = Counts { records: 2, unspent: 2, unmined: 1, spent: 256, ..Counts::default() };
        assert_eq!(s.counts().await, Ok(counts), "round {round}");
    }
    s.mine(&tx, 3).await;
    s.mine(&tx, 3).await;
    s.try_spend(&tx, &vins, 3).await.expect("a repeat");
    assert_eq!(s.settled(&parent).await, None, "one output on the last page is left");
    s.add_mined(&burn("last", &[(&parent, 256)]), 4).await;
    assert_eq!(s.settled(&parent).await, Some(4));
    assert_eq!(s.prune(9).await.len(), 2);
    assert_eq!(
        s.counts().await,
        Ok(Counts { records: 1, unspent: 1, unmined: 0, spent: 257, ..Counts::default() })
    );
    s.sound().await;
}

/// A lock is on all pages, and so is its end.
pub async fn lock_and_unlock_reach_every_page(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 1_001);
    s.add_mined(&parent, 1).await;
    s.set_locked(vec![parent.txid], true).await.expect("lock");
    let edges = [0, 127, 128, 500, 1_000];
    for vout in edges {
        let tx = child(&format!("{vout}"), &[(&parent, vout)], 1);
        let inputs =
            vec![InputRefusal { vin: 0, outpoint: op(&parent, vout), refusal: SpendRefusal::Locked }];
        let locked = Err(CreateError::Inputs { txid: tx.txid, inputs });
        assert_eq!(s.try_add(CreateRequest::unmined(tx), 2).await, locked, "output {vout}");
    }
    s.set_locked(vec![parent.txid], false).await.expect("unlock");
    for vout in edges {
        s.add(&child(&format!("{vout}"), &[(&parent, vout)], 1), 2).await;
    }
    s.sound().await;
}

/// A loser's descendants are found on every page, and what they held is given back there.
pub async fn descendants_are_found_on_every_page(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let (root, other) = (coin("root", 1), coin("other", 300));
    s.add_mined(&root, 1).await;
    s.add_mined(&other, 1).await;
    let middle = child("middle", &[(&root, 0)], 300);
    s.add(&middle, 2).await;
    let heirs =
        [299, 128, 5].map(|vout| child(&format!("heir {vout}"), &[(&middle, vout), (&other, vout)], 1));
    for heir in &heirs {
        s.add(heir, 3).await;
    }
    let lost = s.try_conflicting(&middle, true, 4).await.expect("lose");
    let in_output_order = [&middle, &heirs[2], &heirs[1], &heirs[0]].map(|tx| tx.txid);
    assert_eq!(lost, in_output_order);
    assert_eq!(s.record(&other).await.slots, vec![Slot::Unspent; 300]);
    assert_eq!(s.record(&middle).await.slots, vec![Slot::Unspent; 300]);
    let mut listed = s.head(&other).await.conflicting_children;
    listed.sort();
    assert_eq!(listed, ids(&[&heirs[0], &heirs[1], &heirs[2]]));
    s.sound().await;
}

/// A loser of many pages with a frozen output on the last one stays.
pub async fn a_claim_on_the_last_page_keeps_a_loser(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let tx = coin("tx", 1_001);
    s.add_loser(&tx, 1).await;
    assert_eq!(s.settled(&tx).await, Some(1));
    s.freeze(vec![op(&tx, 1_000)]).await.expect("freeze");
    assert_eq!(s.settled(&tx).await, None);
    s.unfreeze(vec![op(&tx, 1_000)]).await.expect("unfreeze");
    assert_eq!(s.settled(&tx).await, Some(1));
    s.sound().await;
}

/// Deleting removes every page, whichever way it is deleted.
pub async fn deleting_removes_every_page(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let (forgotten, pruned) = (coin("forgotten", 1_001), coin("pruned", 1_001));
    s.add(&forgotten, 1).await;
    s.add_mined(&pruned, 1).await;
    s.add_mined(&sweep("sweep", &pruned), 2).await;
    s.delete(vec![forgotten.txid]).await.expect("delete");
    assert_eq!(s.prune(7).await.len(), 2);
    assert_eq!(s.counts().await, Ok(Counts { spent: 1_001, ..Counts::default() }));
    for tx in [&forgotten, &pruned] {
        let outputs = s.outputs((0..1_001).map(|vout| op(tx, vout)).collect()).await.expect("outputs");
        assert!(outputs.iter().all(Option::is_none), "a page is left over");
    }
    // Anything left over from the larger record would show in a smaller one of the same id.
    let smaller = Tx { outputs: coin("x", 129).outputs, ..forgotten.clone() };
    s.add(&smaller, 3).await;
    assert_eq!(s.record(&smaller).await.slots, vec![Slot::Unspent; 129]);
    assert_eq!(s.outputs(vec![op(&forgotten, 500)]).await, Ok(vec![None]));
    s.sound().await;
}

/// A block that makes and sweeps a transaction of many pages can be taken back, both ways.
pub async fn blocks_with_many_pages_can_be_taken_back(factory: &dyn StoreFactory) {
    for mode in [RollbackMode::Node, RollbackMode::Follower] {
        let s = Subject::new(factory, small()).await;
        let old = coin("old", 300);
        let first = s.start(1, &[&old]).await.block;
        let before = s.record(&old).await;
        let fresh = coin("fresh", 1_001);
        let (a, b) = (sweep("a", &old), sweep("b", &fresh));
        s.extend(&[&fresh, &a, &b]).await;
        assert_eq!(s.settled(&old).await, Some(2));
        assert_eq!(s.settled(&fresh).await, Some(2));
        s.roll_back(Some((first.height, first.hash)), mode).await.expect("roll back");
        match mode {
            RollbackMode::Node => {
                let slots: Vec<_> = (0..300).map(|vin| spent(&a, vin, None)).collect();
                assert_eq!(s.record(&old).await.slots, slots);
                let slots: Vec<_> = (0..1_001).map(|vin| spent(&b, vin, None)).collect();
                assert_eq!(s.record(&fresh).await.slots, slots);
            }
            RollbackMode::Follower => {
                assert_eq!(s.record(&old).await, before, "as it was before the block");
                assert_eq!(s.records(&[&fresh, &a, &b]).await, [None, None, None]);
            }
        }
        assert_eq!(s.due_all().await, [], "{mode:?}");
        s.sound().await;
    }
}
