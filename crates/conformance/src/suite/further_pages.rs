//! Outputs on every page of a record: what is done to one at the edge of a page is done to that one, and can be undone.

use sapwood_ledger::{InputRefusal, Reassign, RollbackMode, SpendError, SpendInput, SpendRequest};
use sapwood_rules::SpendRefusal;
use sapwood_types::{Height, Slot, Tx};

use super::{StoreFactory, Subject, failures, only};
use crate::fixtures::*;

/// The first and the last output of each of three pages.
const EDGES: [u32; 6] = [0, 127, 128, 255, 256, 299];

/// A record of three pages.
fn wide() -> Tx {
    coin("wide", 300)
}

/// A transaction that spends all edges, the input's number being the edge's place.
fn spends_edges(label: &str, parent: &Tx) -> Tx {
    child(label, &EDGES.map(|vout| (parent, vout)), 1)
}

/// Every edge is as said, by its place, and nothing else was touched.
async fn assert_edges(s: &Subject, parent: &Tx, slot: impl Fn(usize) -> Slot, when: &str) {
    let record = s.record(parent).await;
    for (vout, found) in (0..).zip(&record.slots) {
        let edge = EDGES.iter().position(|edge| *edge == vout);
        assert_eq!(*found, edge.map_or(Slot::Unspent, &slot), "output {vout}, {when}");
    }
}

/// A rollback gives back what was spent on every page, a block applied again takes it again.
pub async fn a_rollback_reaches_every_page(factory: &dyn StoreFactory) {
    for mode in [RollbackMode::Node, RollbackMode::Follower] {
        let s = Subject::new(factory, small()).await;
        let parent = wide();
        let first = s.start(1, &[&parent]).await.block;
        let (before, counts) = (s.record(&parent).await, s.counts().await);
        let tx = spends_edges("tx", &parent);
        for _ in 0..2 {
            s.extend(&[&tx]).await;
            assert_edges(&s, &parent, |vin| spent(&tx, vin as u32, Some(2)), "applied").await;
            s.roll_back(Some((first.height, first.hash)), mode).await.expect("roll back");
            match mode {
                RollbackMode::Node => {
                    assert_edges(&s, &parent, |vin| spent(&tx, vin as u32, None), "rolled back").await;
                }
                RollbackMode::Follower => {
                    assert_eq!(s.record(&parent).await, before);
                    assert_eq!(s.counts().await, counts);
                }
            }
        }
        // Another one takes them at the same height: those that wait for them lose.
        let rival = spends_edges("rival", &parent);
        s.extend(&[&rival]).await;
        assert_edges(&s, &parent, |vin| spent(&rival, vin as u32, Some(2)), "by another").await;
        s.sound().await;
    }
}

/// To mine and unmine a spender tells its parent on every page.
pub async fn mining_reaches_every_page(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = wide();
    s.add_mined(&parent, 1).await;
    let tx = spends_edges("tx", &parent);
    s.add(&tx, 2).await;
    let at = |height| {
        let tx = &tx;
        move |vin: usize| spent(tx, vin as u32, height)
    };
    assert_edges(&s, &parent, at(None), "unmined").await;
    s.mine(&tx, 5).await;
    assert_edges(&s, &parent, at(Some(5)), "mined").await;
    s.try_longest(&tx, false, 6).await.expect("off the longest chain");
    assert_edges(&s, &parent, at(None), "off the longest chain").await;
    s.try_longest(&tx, true, 6).await.expect("on the longest chain");
    assert_edges(&s, &parent, at(Some(5)), "on the longest chain").await;
    s.unmine(&tx, 5, 7).await;
    assert_edges(&s, &parent, at(None), "unmined again").await;
    for (vin, vout) in (0..).zip(EDGES) {
        s.give_back(op(&parent, vout), by(&tx, vin)).await.expect("unspend");
        assert_eq!(s.slot(&parent, vout).await, Slot::Unspent);
    }
    assert_edges(&s, &parent, |_| Slot::Unspent, "given back").await;
    s.sound().await;
}

/// Freezing, unfreezing and giving to another owner change that output and no other.
pub async fn freezing_and_reassigning_reach_every_page(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = wide();
    s.add_mined(&parent, 1).await;
    let before = s.record(&parent).await;
    let edges = EDGES.map(|vout| op(&parent, vout)).to_vec();
    s.freeze(edges.clone()).await.expect("freeze");
    assert_edges(&s, &parent, |_| Slot::Frozen, "frozen").await;
    s.unfreeze(edges.clone()).await.expect("unfreeze");
    assert_eq!(s.record(&parent).await, before);
    s.freeze(edges).await.expect("freeze");
    let to = |vout| Reassign {
        outpoint: op(&parent, vout),
        expected: utxo_hash(&parent, vout),
        script: script("new"),
        credential: None,
    };
    s.reassign(EDGES.map(to).to_vec(), Height(5)).await.expect("reassign");
    let after = s.record(&parent).await;
    for (vout, (was, is)) in (0..).zip(before.outputs.iter().zip(&after.outputs)) {
        let owner = is.as_ref().map(|output| &output.script);
        match EDGES.contains(&vout) {
            true => assert_eq!(owner, Some(&script("new")), "output {vout}"),
            false => assert_eq!(is, was, "output {vout}"),
        }
    }
    let named: Vec<u32> = after.head.reassignments.iter().map(|change| change.vout).collect();
    assert_eq!(named, EDGES);
    assert_edges(&s, &parent, |_| Slot::Unspent, "reassigned").await;
    s.sound().await;
}

/// To lose gives back what was held on every page, and takes the loser's own outputs on every page off the listings.
pub async fn losing_and_winning_reach_every_page(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = wide();
    s.add_mined(&parent, 1).await;
    let tx = child("tx", &EDGES.map(|vout| (&parent, vout)), 300);
    let heir = spends_edges("heir", &tx);
    s.add(&tx, 2).await;
    s.add(&heir, 2).await;
    let lost = s.try_conflicting(&tx, true, 3).await.expect("lose");
    assert_eq!(lost, [tx.txid, heir.txid]);
    assert_edges(&s, &parent, |_| Slot::Unspent, "its child lost").await;
    assert_edges(&s, &tx, |_| Slot::Unspent, "its heir lost").await;
    s.try_conflicting(&tx, false, 4).await.expect("win");
    assert_edges(&s, &parent, |vin| spent(&tx, vin as u32, None), "its child is back").await;
    let rival = spends_edges("rival", &parent);
    s.add_loser(&rival, 4).await;
    assert_eq!(s.try_resolve(&[&rival], 5).await.expect("resolve"), [tx.txid]);
    assert_edges(&s, &parent, |vin| spent(&rival, vin as u32, None), "the rival won").await;
    s.delete(vec![rival.txid]).await.expect("delete");
    assert_edges(&s, &parent, |_| Slot::Unspent, "the rival is forgotten").await;
    s.sound().await;
}

/// An item of a batch that fails at its last input has spent nothing on any page; the items around it are written.
pub async fn a_failed_item_leaves_every_page(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = wide();
    s.add_mined(&parent, 1).await;
    let txs = [
        child("first", &[(&parent, 127), (&parent, 128)], 1),
        child("bad", &[(&parent, 255), (&parent, 256), (&parent, 128)], 1),
        child("last", &[(&parent, 257), (&parent, 299)], 1),
    ];
    for tx in &txs {
        let parts: Vec<u32> = (0..tx.inputs.len() as u32).collect();
        s.add_trusted(tx, 1).await;
        for vin in parts {
            only(
                s.unspend(vec![sapwood_ledger::Unspend {
                    outpoint: tx.inputs[vin as usize].outpoint,
                    spender: by(tx, vin),
                }])
                .await,
            )
            .ok();
        }
    }
    let request = |tx: &Tx| SpendRequest {
        child: tx.txid,
        inputs: (0..)
            .zip(&tx.inputs)
            .map(|(vin, input)| SpendInput { vin, outpoint: input.outpoint, expected: None })
            .collect(),
        overrides: Default::default(),
    };
    let failed = failures(s.spend(txs.iter().map(request).collect(), Height(2)).await, 3);
    let refusal = SpendRefusal::Spent { by: by(&txs[0], 1), mined_at: None };
    let inputs = vec![InputRefusal { vin: 2, outpoint: op(&parent, 128), refusal }];
    assert_eq!(failed, [(1, SpendError::Inputs { child: txs[1].txid, inputs })]);
    let record = s.record(&parent).await;
    for (vout, slot) in (0..).zip(&record.slots) {
        let expected = match vout {
            127 => spent(&txs[0], 0, None),
            128 => spent(&txs[0], 1, None),
            257 => spent(&txs[2], 0, None),
            299 => spent(&txs[2], 1, None),
            _ => Slot::Unspent,
        };
        assert_eq!(*slot, expected, "output {vout}");
    }
    s.sound().await;
}

/// What is spent is counted on every page, through rollbacks and pruning.
pub async fn spent_outputs_are_counted_on_every_page(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = wide();
    let first = s.start(1, &[&parent]).await.block;
    let counted = async || {
        let counts = s.counts().await.expect("counts");
        (counts.created(), counts.spent)
    };
    assert_eq!(counted().await, (300, 0));
    s.extend(&[&spends_edges("tx", &parent)]).await;
    assert_eq!(counted().await, (301, 6));
    s.roll_back(Some((first.height, first.hash)), RollbackMode::Follower).await.expect("roll back");
    assert_eq!(counted().await, (300, 0));
    let all: Vec<_> = (0..300).map(|vout| (&parent, vout)).collect();
    s.extend(&[&child("all", &all, 2)]).await;
    assert_eq!(counted().await, (302, 300));
    s.extend_to(12).await;
    assert_eq!(s.prune(12).await, [parent.txid]);
    assert_eq!(counted().await, (302, 300), "pruning takes nothing from what was");
    s.sound().await;
}
