//! Listings of unmined transactions.

use sapwood_ledger::{AddressKind, AddressQuery, Counts, CreateRequest, Order, StoreError, UnminedTx};
use sapwood_types::{Height, TxId};

use super::{StoreFactory, Subject, all_pages};
use crate::{Store, fixtures::*};

async fn assembly(s: &Subject, limit: usize) -> Vec<TxId> {
    let all = all_pages(limit, |after| s.unmined(after, limit)).await;
    all.into_iter().map(|tx| tx.txid).collect()
}

/// An empty store has no unmined transactions, and neither has one in which all are mined.
pub async fn nothing_is_unmined_in_an_empty_or_fully_mined_store(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    assert_eq!(assembly(&s, 10).await, []);
    assert_eq!(s.old_unmined_all(Height::MAX).await, []);
    for number in 0..5 {
        s.add_mined(&coin(&format!("tx {number}"), 1), number).await;
    }
    assert_eq!(assembly(&s, 10).await, []);
    assert_eq!(s.old_unmined_all(Height::MAX).await, []);
    assert_eq!(
        s.counts().await,
        Ok(Counts { records: 5, unspent: 5, unmined: 0, spent: 0, ..Counts::default() })
    );
    s.sound().await;
}

/// A listing with a limit of 0 could neither show anything nor say where to go on.
pub async fn a_page_of_nothing_is_refused(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    s.add_mined(&burn("due", &[]), 3).await;
    s.add(&coin("unmined", 1), 1).await;
    let refused = |problem: Option<StoreError>| matches!(problem, Some(StoreError::BadOption { .. }));
    assert!(refused(s.due(Height(9), None, 0).await.err()));
    assert_eq!(s.due_all().await.len(), 1, "from now on a store may know where the list begins");
    for height in [0, 2, 3, 9] {
        assert!(refused(s.due(Height(height), None, 0).await.err()), "up to {height}");
        assert!(refused(s.old_unmined(Height(height), None, 0).await.err()), "up to {height}");
        assert!(refused(s.expire_preservations(Height(height), 0).await.err()), "up to {height}");
    }
    for kind in [AddressKind::Address, AddressKind::Credential] {
        let query =
            AddressQuery { kind, hash: address("nobody"), order: Order::Ascending, after: None, limit: 0 };
        assert!(refused(s.by_address(query).await.err()), "{kind:?}");
    }
    assert!(refused(s.unmined(None, 0).await.err()));
    assert!(refused(Store::records(&*s, None, 0).await.err()));
    s.sound().await;
}

/// All records, mined or not, with all their pages, whatever the size of a page of the listing.
pub async fn everything_is_listed_once_in_the_order_of_the_ids(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let mut all = vec![coin("many outputs", 300), coin("mined", 1), burn("due", &[])];
    for tx in &all {
        s.add_mined(tx, 1).await;
    }
    all.push(coin("unmined", 1));
    s.add(&all[3], 1).await;
    all.sort_by_key(|tx| tx.txid);
    for limit in [1, 2, 3, 4, 100] {
        let listed = all_pages(limit, |after| Store::records(&*s, after, limit)).await;
        let expected: Vec<_> =
            s.records(&all.iter().collect::<Vec<_>>()).await.into_iter().flatten().collect();
        assert_eq!(listed, expected, "{limit} at a time");
    }
    s.sound().await;
}

/// Block assembly gets what it needs: since when, fee, size, inputs, when it was seen, lock and blocks of forks.
pub async fn block_assembly_gets_what_it_needs(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 2);
    s.add_mined(&parent, 1).await;
    let mut tx = child("tx", &[(&parent, 1), (&parent, 0)], 1);
    tx.fee = None;
    tx.size = 777;
    let request = CreateRequest {
        locked: true,
        created_at: 99,
        mined_in: Some(forked_in(5, 3)),
        ..CreateRequest::unmined(tx.clone())
    };
    s.try_add(request, 4).await.expect("create");
    let found = s.unmined(None, 10).await.expect("unmined");
    let expected = UnminedTx {
        txid: tx.txid,
        since: Height(4),
        fee: None,
        size: 777,
        inputs: vec![op(&parent, 1), op(&parent, 0)],
        created_at: 99,
        locked: true,
        blocks: vec![forked_in(5, 3)],
    };
    assert_eq!(found.items, [expected]);
    s.sound().await;
}

/// Losers and coinbases are not for block assembly; but they are unmined, and old ones are listed as such.
pub async fn losers_and_coinbases_are_not_for_block_assembly(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let (mined, plain, minted, loser) =
        (coin("mined", 1), coin("plain", 1), coinbase("minted", 1), coin("loser", 1));
    s.add_mined(&mined, 1).await;
    s.add(&plain, 4).await;
    s.add(&minted, 3).await;
    s.add_loser(&loser, 2).await;
    for limit in [1, 2, 10] {
        assert_eq!(assembly(&s, limit).await, [plain.txid], "in pages of {limit}");
    }
    assert_eq!(s.old_unmined_all(Height::MAX).await, [loser.txid, minted.txid, plain.txid]);
    assert_eq!(s.counts().await.map(|counts| counts.unmined), Ok(3));
    s.sound().await;
}

/// What is unmined at the cutoff or before is old; what came one block later is not. Oldest first.
pub async fn the_cutoff_is_inclusive(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let at = |height: u32| coin(&format!("since {height}"), 1);
    for height in [12, 9, 11, 10] {
        s.add(&at(height), height).await;
    }
    assert_eq!(s.old_unmined_all(Height(8)).await, []);
    assert_eq!(s.old_unmined_all(Height(9)).await, [at(9).txid]);
    assert_eq!(s.old_unmined_all(Height(10)).await, [at(9).txid, at(10).txid]);
    assert_eq!(s.old_unmined_all(Height::MAX).await, [9, 10, 11, 12].map(|height| at(height).txid));
    s.sound().await;
}

/// The listing of old ones is complete, however many there are and however small its pages. A store that stopped at its
/// page limit left the parents of all others unprotected.
pub async fn old_unmined_is_complete_beyond_any_page_limit(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let mut batches = [Vec::new(), Vec::new()];
    for number in 0..1_500 {
        batches[number % 2].push(CreateRequest::unmined(coin(&format!("tx {number}"), 1)));
    }
    let mut expected = Vec::new();
    for (height, batch) in (5..).zip(batches) {
        let mut txids: Vec<_> = batch.iter().map(|request| request.tx.txid).collect();
        txids.sort();
        expected.append(&mut txids);
        s.create(batch, Height(height)).await.expect("create");
    }
    for limit in [100, 1_000, usize::MAX] {
        let found = all_pages(limit, |after| s.old_unmined(Height(6), after, limit)).await;
        assert_eq!(found.len(), 1_500, "in pages of {limit}");
        assert_eq!(found, expected, "in pages of {limit}");
        let mut for_assembly = assembly(&s, limit).await;
        for_assembly.sort();
        let mut sorted = expected.clone();
        sorted.sort();
        assert_eq!(for_assembly, sorted, "in pages of {limit}");
    }
    s.sound().await;
}

/// Many losers between the others do not end a listing early.
pub async fn excluded_ones_do_not_end_the_listing(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let mut expected = Vec::new();
    for number in 0..60 {
        let tx = coin(&format!("tx {number}"), 1);
        if number % 20 == 19 {
            s.add(&tx, number).await;
            expected.push(tx.txid);
        } else {
            s.add_loser(&tx, number).await;
        }
    }
    for limit in [1, 2, 3, 5, 60] {
        assert_eq!(assembly(&s, limit).await, expected, "in pages of {limit}");
    }
    s.sound().await;
}

/// A cursor holds its place while transactions are mined, unmined and forgotten.
pub async fn an_unmined_cursor_survives_changes(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let txs: Vec<_> = (0..8).map(|number| coin(&format!("tx {number}"), 1)).collect();
    for (height, tx) in (10..).zip(&txs) {
        s.add(tx, height).await;
    }
    let first = s.old_unmined(Height::MAX, None, 3).await.expect("old unmined");
    assert_eq!(first.items, [&txs[0], &txs[1], &txs[2]].map(|tx| tx.txid));
    s.mine(&txs[0], 20).await;
    s.delete(vec![txs[2].txid]).await.expect("the one the cursor stands on");
    s.mine(&txs[4], 20).await;
    s.add(&coin("before", 1), 9).await;
    s.add(&coin("after", 1), 99).await;
    let rest = all_pages(2, |after| s.old_unmined(Height::MAX, after.or(first.next.clone()), 2)).await;
    assert_eq!(rest, [&txs[3], &txs[5], &txs[6], &txs[7], &coin("after", 1)].map(|tx| tx.txid));
    s.sound().await;
}

/// Mined ones leave the listing, and come back with the height they had.
pub async fn mined_ones_leave_and_come_back_with_their_height(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let (a, b) = (coin("a", 1), coin("b", 1));
    s.add(&a, 3).await;
    s.add(&b, 4).await;
    s.mine(&a, 5).await;
    assert_eq!(s.old_unmined_all(Height::MAX).await, [b.txid]);
    s.try_longest(&a, false, 9).await.expect("off the longest chain");
    assert_eq!(s.old_unmined_all(Height::MAX).await, [a.txid, b.txid], "a is still the older one");
    let since: Vec<_> =
        s.unmined(None, 9).await.expect("unmined").items.into_iter().map(|tx| tx.since).collect();
    assert_eq!(since, [Height(3), Height(4)]);
    s.sound().await;
}
