//! Preservations whose list is damaged.

use sapwood_conformance::fixtures::coin;
use sapwood_ledger::engine::Table;
use sapwood_types::{Height, TxId};

use crate::World;

/// A row of the pending table: the tag of preservations, height, transaction id. See `docs/formats.md`.
fn preserved(until: u32, txid: TxId) -> Vec<u8> {
    [&[1][..], &until.to_be_bytes(), &txid.0].concat()
}

/// A pruner goes on as long as it gets as many as it asks for.
#[tokio::test]
async fn stray_preservations_are_worked_off_and_those_behind_them_end() {
    let world = World::new();
    let ledger = &world.ledger;
    let parent = coin("parent", 1);
    world.apply(1, vec![parent.clone()]).await;
    ledger.preserve(vec![parent.txid], Height(8)).await.unwrap();
    let no_record = [2, 3, 9].map(|until| (until, coin("never stored", 1).txid));
    let other_height = [4, 9].map(|until| (until, parent.txid));
    for (until, txid) in no_record.into_iter().chain(other_height) {
        world.engine.damage(Table::Pending, &preserved(until, txid), Some(&[]));
    }
    assert!(!world.verify().await.is_clean(), "the case itself");

    let until = async || ledger.get(parent.txid).await.unwrap().unwrap().head.preserve_until;
    let expire =
        async |height, limit| ledger.expire_preservations(Height(height), limit).await.unwrap().worked_off;
    assert_eq!(expire(4, 2).await, 2);
    assert_eq!(expire(4, 2).await, 1);
    assert_eq!(until().await, Some(Height(8)), "an entry that is not its own ends nothing");
    assert_eq!((expire(10, 2).await, until().await), (2, None));
    assert_eq!((expire(10, 2).await, expire(10, 2).await), (1, 0));
    assert_eq!(world.verify().await.problems, Vec::<String>::new());
}
