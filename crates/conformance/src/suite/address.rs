//! Finding outputs by address and by credential.

use sapwood_ledger::{AddressKind, AddressQuery, CreateRequest, Cursor, Order, Page, RollbackMode, Utxo};
use sapwood_types::{AddressHash, Height, OutPoint, Output, Slot, Tx};

use super::{StoreFactory, Subject, all_pages};
use crate::fixtures::*;

async fn page(s: &Subject, owner: &str, order: Order, after: Option<Cursor>, limit: usize) -> Page<Utxo> {
    let query = AddressQuery { kind: AddressKind::Address, hash: address(owner), order, after, limit };
    s.by_address(query).await.expect("by address")
}

async fn query(s: &Subject, kind: AddressKind, hash: AddressHash) -> Vec<OutPoint> {
    let query = |after| AddressQuery { kind, hash, order: Order::Ascending, after, limit: 10 };
    let found = all_pages(10, |after| s.by_address(query(after))).await;
    found.into_iter().map(|utxo| utxo.outpoint).collect()
}

async fn owned(s: &Subject, owner: &str) -> Vec<OutPoint> {
    query(s, AddressKind::Address, address(owner)).await
}

/// Everything about an unspent output is in the listing, whether it is mined or not, frozen or not.
pub async fn an_entry_says_everything_about_its_output(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let mut mined = paying("mined", &[], &["alice", "bob", "alice"]);
    mined.coinbase = true;
    mined.outputs[2].extra = (&b"tokens"[..]).into();
    let unmined = paying("unmined", &[], &["alice"]);
    s.add_mined(&mined, 3).await;
    s.add(&unmined, 5).await;
    s.freeze(vec![op(&mined, 0)]).await.expect("freeze");
    let utxo = |tx: &Tx, vout: u32, slot, height, mined_at| Utxo {
        outpoint: op(tx, vout),
        output: tx.outputs[vout as usize].clone(),
        slot,
        created_height: Height(height),
        mined_at,
        coinbase: tx.coinbase,
    };
    let found = page(&s, "alice", Order::Ascending, None, 10).await;
    let expected = [
        utxo(&mined, 0, Slot::Frozen, 3, Some(Height(3))),
        utxo(&mined, 2, Slot::Unspent, 3, Some(Height(3))),
        utxo(&unmined, 0, Slot::Unspent, 5, None),
    ];
    assert_eq!(found.items, expected);
    assert_eq!(found.next, None);
    assert_eq!(owned(&s, "bob").await, [op(&mined, 1)]);
    assert_eq!(owned(&s, "carol").await, [], "whom nobody paid");
    s.sound().await;
}

/// Spent outputs leave, given-back ones return; data outputs were never there.
pub async fn spending_removes_and_giving_back_returns(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let mut tx = paying("tx", &[], &["alice", "alice"]);
    tx.outputs.push(Output { spendable: false, ..Output::new(0, script("alice")) });
    s.add_mined(&tx, 1).await;
    let spender = paying("spender", &[(&tx, 0)], &["bob"]);
    s.add(&spender, 2).await;
    assert_eq!(owned(&s, "alice").await, [op(&tx, 1)]);
    assert_eq!(owned(&s, "bob").await, [op(&spender, 0)]);
    s.give_back(op(&tx, 0), by(&spender, 0)).await.expect("unspend");
    assert_eq!(owned(&s, "alice").await, [op(&tx, 0), op(&tx, 1)]);
    s.try_spend(&spender, &[0], 2).await.expect("spend");
    s.mine(&spender, 3).await;
    assert_eq!(owned(&s, "alice").await, [op(&tx, 1)]);
    s.delete(vec![spender.txid]).await.expect_err("it is mined");
    s.unmine(&spender, 3, 4).await;
    s.delete(vec![spender.txid]).await.expect("delete");
    assert_eq!(owned(&s, "alice").await, [op(&tx, 0), op(&tx, 1)]);
    assert_eq!(owned(&s, "bob").await, []);
    s.sound().await;
}

/// Outputs of losers are not listed; they come back if their transaction does, and what a loser held is listed again.
pub async fn outputs_of_losers_are_not_listed(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = paying("parent", &[], &["alice"]);
    s.add_mined(&parent, 1).await;
    let tx = paying("tx", &[(&parent, 0)], &["bob"]);
    s.add(&tx, 2).await;
    assert_eq!((owned(&s, "alice").await, owned(&s, "bob").await), (vec![], vec![op(&tx, 0)]));
    s.try_conflicting(&tx, true, 3).await.expect("lose");
    assert_eq!((owned(&s, "alice").await, owned(&s, "bob").await), (vec![op(&parent, 0)], vec![]));
    s.freeze(vec![op(&tx, 0)]).await.expect("freeze");
    assert_eq!(owned(&s, "bob").await, [], "nor when they are frozen");
    s.unfreeze(vec![op(&tx, 0)]).await.expect("unfreeze");
    s.try_conflicting(&tx, false, 4).await.expect("win");
    assert_eq!((owned(&s, "alice").await, owned(&s, "bob").await), (vec![], vec![op(&tx, 0)]));
    s.sound().await;
}

/// An output is found by its payment credential too, and both indexes stay apart.
pub async fn credentials_are_an_index_of_their_own(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let mut tx = paying("tx", &[], &["alice", "bob", "carol"]);
    tx.outputs[0].credential = Some(credential("shared"));
    tx.outputs[2].credential = Some(credential("shared"));
    // A credential with the bytes of somebody's address must not mix with that address.
    tx.outputs[1].credential = Some(address("alice"));
    s.add_mined(&tx, 1).await;
    let by_credential = async |hash| query(&s, AddressKind::Credential, hash).await;
    assert_eq!(by_credential(credential("shared")).await, [op(&tx, 0), op(&tx, 2)]);
    assert_eq!(by_credential(address("alice")).await, [op(&tx, 1)]);
    assert_eq!(owned(&s, "alice").await, [op(&tx, 0)]);
    s.add(&child("spender", &[(&tx, 0)], 1), 2).await;
    assert_eq!(by_credential(credential("shared")).await, [op(&tx, 2)]);
    s.sound().await;
}

/// Twenty outputs of one owner at several heights, in the order in which they have to be listed.
async fn twenty(s: &Subject) -> Vec<OutPoint> {
    let mut expected = Vec::new();
    for number in 0..10 {
        let tx = paying(&format!("tx {number}"), &[], &["alice", "bob", "alice"]);
        let height = 20 - number / 3;
        if number % 2 == 0 {
            s.add_mined(&tx, height).await
        } else {
            s.add(&tx, height).await
        };
        expected.extend([0, 2].map(|vout| (height, op(&tx, vout))));
    }
    expected.sort();
    expected.into_iter().map(|(_, outpoint)| outpoint).collect()
}

/// Oldest first and newest first are each other's reverse, in pages of any size, with none missing and none twice.
pub async fn both_orders_are_complete_in_pages_of_any_size(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let expected = twenty(&s).await;
    for order in [Order::Ascending, Order::Descending] {
        for limit in [1, 2, 3, 7, 19, 20, 21, usize::MAX] {
            let mut found = Vec::new();
            let mut after = None;
            loop {
                let part = page(&s, "alice", order, after, limit).await;
                assert!(part.items.len() <= limit, "{} entries, the limit is {limit}", part.items.len());
                let more = part.next.is_some();
                assert!(!more || !part.items.is_empty(), "an empty page that goes on, {order:?}, {limit}");
                found.extend(part.items.iter().map(|utxo| utxo.outpoint));
                after = part.next;
                if !more {
                    break;
                }
            }
            if order == Order::Descending {
                found.reverse();
            }
            assert_eq!(found, expected, "{order:?}, in pages of {limit}");
        }
    }
    s.sound().await;
}

/// A cursor holds its place in both directions while outputs before, at and after it are spent and made.
pub async fn a_cursor_survives_changes_in_both_orders(factory: &dyn StoreFactory) {
    for order in [Order::Ascending, Order::Descending] {
        let s = Subject::new(factory, small()).await;
        let mut listed = twenty(&s).await;
        if order == Order::Descending {
            listed.reverse();
        }
        let first = page(&s, "alice", order, None, 8).await;
        assert_eq!(first.items.iter().map(|utxo| utxo.outpoint).collect::<Vec<_>>(), listed[..8]);
        let taken = [listed[2], listed[7], listed[11]];
        let inputs = taken.map(sapwood_types::Input::of).to_vec();
        s.add(&Tx { inputs, ..paying("spender", &[], &["bob"]) }, 30).await;
        s.add(&paying("newest", &[], &["alice"]), 40).await;
        s.add(&paying("oldest", &[], &["alice"]), 1).await;
        let mut rest: Vec<_> =
            listed[8..].iter().copied().filter(|outpoint| !taken.contains(outpoint)).collect();
        let beyond = if order == Order::Ascending { "newest" } else { "oldest" };
        rest.push(OutPoint::new(txid(beyond), 0));
        let mut found = Vec::new();
        let mut after = first.next;
        while let Some(cursor) = after {
            let part = page(&s, "alice", order, Some(cursor), 3).await;
            found.extend(part.items.iter().map(|utxo| utxo.outpoint));
            after = part.next;
        }
        assert_eq!(found, rest, "{order:?}");
        s.sound().await;
    }
}

/// Mining does not move an output in the listing: its place is the height at which its record was made.
pub async fn mining_does_not_move_an_output(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let (a, b) = (paying("a", &[], &["alice"]), paying("b", &[], &["alice"]));
    s.add(&a, 1).await;
    s.add(&b, 2).await;
    s.mine(&a, 9).await;
    assert_eq!(owned(&s, "alice").await, [op(&a, 0), op(&b, 0)]);
    s.start(10, &[&b]).await;
    assert_eq!(owned(&s, "alice").await, [op(&a, 0), op(&b, 0)]);
    s.roll_back(None, RollbackMode::Node).await.expect("roll back");
    assert_eq!(owned(&s, "alice").await, [op(&a, 0), op(&b, 0)]);
    s.sound().await;
}

/// A block's outputs are found, those spent inside the block are not, and a rollback takes all of it back.
pub async fn blocks_and_rollbacks_are_followed(factory: &dyn StoreFactory) {
    for mode in [RollbackMode::Node, RollbackMode::Follower] {
        let s = Subject::new(factory, small()).await;
        let parent = paying("parent", &[], &["alice", "alice"]);
        s.start(1, &[&parent]).await;
        let mark = s.last_applied().await.expect("last").expect("a block");
        let between = paying("between", &[(&parent, 0)], &["bob"]);
        let last = paying("last", &[(&between, 0)], &["carol"]);
        s.extend(&[&between, &last]).await;
        let lists = async || [owned(&s, "alice").await, owned(&s, "bob").await, owned(&s, "carol").await];
        assert_eq!(lists().await, [vec![op(&parent, 1)], vec![], vec![op(&last, 0)]]);
        s.roll_back(Some((mark.height, mark.hash)), mode).await.expect("roll back");
        let expected = match mode {
            RollbackMode::Node => [vec![op(&parent, 1)], vec![], vec![op(&last, 0)]],
            RollbackMode::Follower => [vec![op(&parent, 0), op(&parent, 1)], vec![], vec![]],
        };
        assert_eq!(lists().await, expected, "{mode:?}");
        s.sound().await;
    }
}

/// An owner with many outputs: a page is as long as asked for, and the listing goes on.
pub async fn an_owner_of_thousands_is_listed_completely(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let txs: Vec<_> = (0..8)
        .map(|number| Tx { outputs: coin("alice", 500).outputs, ..coin(&format!("tx {number}"), 1) })
        .collect();
    let batch = txs.iter().map(|tx| CreateRequest::mined(tx.clone(), 1, Height(1))).collect();
    s.create(batch, Height(1)).await.expect("create");
    let first = page(&s, "alice", Order::Ascending, None, 100).await;
    assert_eq!(first.items.len(), 100);
    assert!(first.next.is_some());
    let mut expected: Vec<_> = txs.iter().flat_map(|tx| (0..500).map(|vout| op(tx, vout))).collect();
    expected.sort();
    assert_eq!(owned(&s, "alice").await, expected);
    s.sound().await;
}
