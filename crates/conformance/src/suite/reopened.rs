//! A store that was closed and opened again. Each case of the suite ends with that; these look at what else has to go on.

use bytes::Bytes;
use sapwood_ledger::{AddressKind, AddressQuery, Counts, CreateRequest, Order, RollbackMode};
use sapwood_types::Height;

use super::{StoreFactory, Subject, all_pages};
use crate::fixtures::*;

/// A store without anything in it is that again, more than once, and can be used.
pub async fn an_empty_store_is_empty_again(factory: &dyn StoreFactory) {
    let mut s = Subject::new(factory, small()).await;
    for _ in 0..3 {
        s.reopen().await;
        assert_eq!((s.counts().await, s.last_applied().await), (Ok(Counts::default()), Ok(None)));
    }
    s.start(7, &[&coin("first", 1)]).await;
    s.sound().await;
}

/// Records of every kind, lists, notes and marks: all of it answers as before.
pub async fn everything_is_there_again(factory: &dyn StoreFactory) {
    let mut s = Subject::new(factory, small()).await;
    let (parent, wide, frozen) = (coin("parent", 3), coin("wide", 300), coin("frozen", 2));
    s.start(10, &[&parent, &wide, &frozen]).await;
    let settled = burn("settled", &[(&parent, 0), (&parent, 1)]);
    s.extend(&[&settled, &child("of wide", &[(&wide, 0), (&wide, 128), (&wide, 299)], 1)]).await;
    s.freeze(vec![op(&frozen, 1)]).await.expect("freezing");
    s.set_locked(vec![frozen.txid], true).await.expect("locking");
    assert_eq!(s.keep(&[&wide], 40).await, 1);
    let waiting = child("waiting", &[(&parent, 2)], 2);
    s.add(&waiting, 12).await;
    s.add_loser(&child("loser", &[(&parent, 2)], 1), 12).await;
    s.put_notes(vec![("name".into(), Some(Bytes::from_static(b"note")))]).await.expect("a note");

    let txs = [&parent, &wide, &frozen, &settled, &waiting];
    let owner = |hash| AddressQuery {
        kind: AddressKind::Address,
        hash,
        order: Order::Ascending,
        after: None,
        limit: 1_000,
    };
    let owned = address("wide");
    let before = (
        s.records(&txs).await,
        s.by_address(owner(owned)).await,
        s.block_at(Height(11)).await,
        all_pages(2, |after| s.preserved(Height::MAX, after, 2)).await,
        s.note("name").await,
    );
    assert!(before.1.as_ref().is_ok_and(|page| page.items.len() > 200), "the case itself");
    assert!(before.2.as_ref().is_ok_and(Option::is_some), "the case itself");
    s.reopen().await;
    let after = (
        s.records(&txs).await,
        s.by_address(owner(owned)).await,
        s.block_at(Height(11)).await,
        all_pages(2, |after| s.preserved(Height::MAX, after, 2)).await,
        s.note("name").await,
    );
    assert_eq!(after, before);
    s.sound().await;
}

/// Blocks that were applied before roll back, no block id is given twice, and the next block goes on from what is there.
pub async fn blocks_roll_back_and_go_on(factory: &dyn StoreFactory) {
    let mut s = Subject::new(factory, small()).await;
    let parent = coin("parent", 2);
    let first = s.start(1, &[&parent]).await;
    let digest = s.digest().await;
    let taken_back = s.extend(&[&burn("off", &[(&parent, 0)])]).await;
    s.reopen().await;
    let target = (first.block.height, first.block.hash);
    let done = s.roll_back(Some(target), RollbackMode::Follower).await.expect("rolling back");
    assert_eq!((done.blocks, done.last), (1, Some(first.block)));
    s.reopen().await;
    assert_ne!(s.digest().await, digest, "the id of the block that was rolled back is not forgotten");
    let next = s.extend(&[&burn("another", &[(&parent, 1)])]).await;
    assert!(next.block.id > taken_back.block.id, "{next:?} after {taken_back:?}");
    s.sound().await;
}

/// What settled before is pruned after, exactly when it is due, and the cursor is the one that was saved.
pub async fn pruning_goes_on(factory: &dyn StoreFactory) {
    let mut s = Subject::new(factory, small()).await;
    let parent = coin("parent", 1);
    s.start(1, &[&parent]).await;
    s.extend(&[&burn("off", &[(&parent, 0)])]).await;
    s.extend_to(6).await;
    s.reopen().await;
    assert_eq!(s.prune(6).await, [], "settled at 2, and due at 7");
    s.extend_to(8).await;
    let mut expected = vec![parent.txid, burn("off", &[(&parent, 0)]).txid];
    expected.sort_unstable();
    s.reopen().await;
    let mut pruned = s.prune(8).await;
    pruned.sort_unstable();
    assert_eq!(pruned, expected);
    s.reopen().await;
    assert_eq!(s.prune(8).await, []);
    assert!(!s.has(&parent).await);
    let request = CreateRequest::unmined(burn("late", &[(&parent, 0)]));
    assert!(s.try_add(request, 9).await.is_err(), "what was pruned is not there again");
    s.sound().await;
}
