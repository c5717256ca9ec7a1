//! A record whose bytes are damaged is an error of those items that need it. Its neighbours are read, listed and changed.

use crate::harness::{options, raw::Raw};
use sapwood_conformance::fixtures::{address, child, coin, mined_in, op, paying, small};
use sapwood_engine_rocksdb::{OpenMode, open_ledger};
use sapwood_ledger::{
    AddressKind, AddressQuery, BatchError, BatchResult, CreateRequest, Ledger, MineRequest, Order,
    StoreError, Unspend,
};
use sapwood_rules::SpendStatus;
use sapwood_types::{Height, Spender, Tx, TxHead, TxId, TxRecord};
use tempfile::TempDir;

/// Cuts the first page off, or gives it a version that no program knows.
type Damage = fn(&mut Vec<u8>);
const DAMAGES: [Damage; 2] = [|page| page.truncate(5), |page| page[0] = 0xee];

/// Five unmined transactions of one owner. The third is damaged.
struct Scene {
    _directory: TempDir,
    store: Ledger,
    txs: Vec<Tx>,
}

const BAD: usize = 2;

impl Scene {
    async fn new(damage: Damage) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let txs: Vec<Tx> = (0..5).map(|number| paying(&format!("tx {number}"), &[], &["owner"])).collect();
        let open = || open_ledger(directory.path(), OpenMode::Create, small(), options()).unwrap();
        let store = open();
        let created = txs.iter().map(|tx| CreateRequest::unmined(tx.clone())).collect();
        store.create(created, Height(3)).await.unwrap();
        drop(store);
        let raw = Raw::open(directory.path());
        let mut page = raw.get("tx", txs[BAD].txid.0).unwrap();
        damage(&mut page);
        raw.put("tx", txs[BAD].txid.0, page);
        drop(raw);
        Scene { store: open(), _directory: directory, txs }
    }

    fn txids(&self) -> Vec<TxId> {
        self.txs.iter().map(|tx| tx.txid).collect()
    }

    /// All but the damaged one.
    fn good(&self) -> Vec<TxId> {
        let mut good = self.txids();
        good.remove(BAD);
        good.sort();
        good
    }
}

/// Exactly the damaged item failed, and says that it cannot be read.
fn assert_only_bad_failed<T: std::fmt::Debug, E: std::fmt::Debug + std::fmt::Display>(
    scene: &Scene,
    result: BatchResult<T, E>,
) {
    let Err(BatchError::Items { failed, total }) = result else { panic!("not of single items: {result:?}") };
    assert_eq!((failed.len(), failed[0].0, total), (1, BAD, scene.txs.len()), "{failed:?}");
    let (text, bad) = (failed[0].1.to_string(), scene.txs[BAD].txid.to_string());
    assert!(text.contains(&bad) && text.contains("cannot be read"), "{text}");
}

#[tokio::test]
async fn an_unreadable_record_is_an_error_of_its_own_when_read_with_others() {
    for damage in DAMAGES {
        let scene = Scene::new(damage).await;
        let found = scene.store.get_many(scene.txids()).await.unwrap();
        assert_eq!(found.len(), scene.txs.len());
        for (number, (record, tx)) in found.into_iter().zip(&scene.txs).enumerate() {
            match record {
                Ok(record) => assert_eq!((record.unwrap().txid, number != BAD), (tx.txid, true)),
                Err(StoreError::Corrupt { what, .. }) => {
                    assert!(number == BAD && what.contains(&tx.txid.to_string()), "{number}: {what}");
                }
                Err(error) => panic!("{error}"),
            }
        }
        let alone = scene.store.get(scene.txs[BAD].txid).await;
        assert!(matches!(alone, Err(StoreError::Corrupt { .. })), "{alone:?}");
    }
}

#[tokio::test]
async fn an_unreadable_record_is_an_error_of_its_own_outputs() {
    for damage in DAMAGES {
        let scene = Scene::new(damage).await;
        let bad = scene.txs[BAD].txid.to_string();
        let is_named =
            |error: &StoreError| matches!(error, StoreError::Corrupt { what, .. } if what.contains(&bad));
        let outpoints: Vec<_> = scene.txs.iter().map(|tx| op(tx, 0)).collect();
        let outputs = scene.store.outputs(outpoints.clone()).await.unwrap();
        let statuses = scene.store.spend_status(outpoints.clone(), Height(5)).await.unwrap();
        assert_eq!((outputs.len(), statuses.len()), (scene.txs.len(), scene.txs.len()));
        for (number, (output, status)) in outputs.into_iter().zip(statuses).enumerate() {
            if number == BAD {
                assert!(is_named(&output.unwrap_err()) && is_named(&status.unwrap_err()));
            } else {
                assert_eq!(output.unwrap().unwrap().outpoint, outpoints[number]);
                assert_eq!(status.unwrap(), SpendStatus::Spendable);
            }
        }
        let alone = scene.store.output(outpoints[BAD]).await;
        assert!(is_named(alone.as_ref().unwrap_err()), "{alone:?}");
    }
}

/// What other parents say of inputs is still known.
#[tokio::test]
async fn inputs_of_an_unreadable_parent_are_not_known_and_the_others_are() {
    for damage in DAMAGES {
        let scene = Scene::new(damage).await;
        let parents: Vec<(&Tx, u32)> = scene.txs.iter().map(|tx| (tx, 0)).collect();
        let tx = child("of all", &parents, 1);
        let record = scene.store.with_inputs(TxRecord::new(&tx, TxHead::default())).await.unwrap();
        let known: Vec<bool> = record.body.inputs.iter().map(|input| input.previous.is_some()).collect();
        assert_eq!(known, [true, true, false, true, true]);
    }
}

#[tokio::test]
async fn an_unreadable_record_is_named_by_every_listing_and_hides_no_other() {
    for damage in DAMAGES {
        let scene = Scene::new(damage).await;
        let bad = scene.txs[BAD].txid;
        for limit in [1, 2, 10] {
            let (mut listed, mut named, mut after) = (Vec::new(), Vec::new(), None);
            loop {
                let page = scene.store.unmined(after, limit).await.unwrap();
                assert!(page.items.len() + page.unreadable.len() <= limit);
                listed.extend(page.items.iter().map(|tx| tx.txid));
                named.extend(page.unreadable.iter().map(|record| record.txid));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            listed.sort();
            assert_eq!((listed, named), (scene.good(), vec![bad]), "unmined by {limit}");

            for order in [Order::Ascending, Order::Descending] {
                let (mut listed, mut named, mut after) = (Vec::new(), Vec::new(), None);
                loop {
                    let (kind, hash) = (AddressKind::Address, address("owner"));
                    let page = scene
                        .store
                        .by_address(AddressQuery { kind, hash, order, after, limit })
                        .await
                        .unwrap();
                    listed.extend(page.items.iter().map(|utxo| utxo.outpoint.txid));
                    named.extend(page.unreadable.iter().map(|record| record.txid));
                    after = page.next;
                    if after.is_none() {
                        break;
                    }
                }
                listed.sort();
                assert_eq!((listed, named), (scene.good(), vec![bad]), "address by {limit}, {order:?}");
            }
        }
        let page = scene.store.records(None, 10).await.unwrap();
        assert_eq!(page.items.iter().map(|record| record.txid).collect::<Vec<_>>(), scene.good());
        assert_eq!(page.unreadable.iter().map(|record| record.txid).collect::<Vec<_>>(), [bad]);
        assert!(page.unreadable[0].error.contains(&bad.to_string()), "{:?}", page.unreadable);
    }
}

#[tokio::test]
async fn an_unreadable_record_fails_its_own_item_of_a_batch_and_no_other() {
    for damage in DAMAGES {
        let scene = Scene::new(damage).await;
        let (store, txids) = (&scene.store, scene.txids());
        assert_only_bad_failed(&scene, store.preserve(txids.clone(), Height(40)).await);
        assert_only_bad_failed(&scene, store.set_locked(txids.clone(), true).await);
        assert_only_bad_failed(&scene, store.set_locked(txids.clone(), false).await);
        let outpoints: Vec<_> = scene.txs.iter().map(|tx| op(tx, 0)).collect();
        assert_only_bad_failed(&scene, store.freeze(outpoints.clone()).await);
        assert_only_bad_failed(&scene, store.unfreeze(outpoints.clone()).await);
        let spender = Spender::new(TxId([7; 32]), 0);
        let unspends = outpoints.iter().map(|outpoint| Unspend { outpoint: *outpoint, spender }).collect();
        assert_only_bad_failed(&scene, store.unspend(unspends).await);
        let request = MineRequest { block: mined_in(1, 4), unset: false };
        assert_only_bad_failed(&scene, store.set_mined(txids.clone(), request, Height(4)).await);
        assert_only_bad_failed(&scene, store.mark_on_longest_chain(txids.clone(), false, Height(5)).await);
        assert_only_bad_failed(&scene, store.mark_on_longest_chain(txids.clone(), true, Height(6)).await);
        for txid in scene.good() {
            let head = store.get(txid).await.unwrap().unwrap().head;
            assert_eq!((head.preserve_until, head.mined_at()), (Some(Height(40)), Some(Height(4))));
        }
    }
}

#[tokio::test]
async fn a_transaction_that_needs_an_unreadable_parent_fails_alone() {
    for damage in DAMAGES {
        let scene = Scene::new(damage).await;
        let children: Vec<Tx> =
            scene.txs.iter().map(|tx| child(&format!("child of {}", tx.txid), &[(tx, 0)], 1)).collect();
        let created = children.iter().map(|tx| CreateRequest::unmined(tx.clone())).collect();
        let Err(BatchError::Items { failed, total: 5 }) = scene.store.create(created, Height(4)).await else {
            panic!("the children of four parents can be created, that of the damaged one cannot");
        };
        assert_eq!(failed.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [BAD], "{failed:?}");
        for (number, tx) in children.iter().enumerate() {
            assert_eq!(scene.store.get(tx.txid).await.unwrap().is_some(), number != BAD);
        }
        // A batch that touches nothing damaged goes through whole.
        scene.store.create(vec![CreateRequest::unmined(coin("later", 1))], Height(5)).await.unwrap();
        assert_only_bad_failed(&scene, scene.store.delete(scene.txids()).await.map_err(only_unreadable));
    }
}

/// The good ones cannot be deleted either: their children spend them.
fn only_unreadable<E: std::fmt::Display>(error: BatchError<E>) -> BatchError<E> {
    match error {
        BatchError::Items { mut failed, total } => {
            assert_eq!(failed.len(), total);
            failed.retain(|(_, error)| error.to_string().contains("cannot be read"));
            BatchError::Items { failed, total }
        }
        error => error,
    }
}
