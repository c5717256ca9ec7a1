//! The hash of the whole state. Cases that say "nothing has changed" stand on it, so it must see everything.

use bytes::Bytes;
use sapwood_ledger::{ApplyOptions, CreateRequest, Cursor, PruneRequest, PruneWhat, Reassign, RollbackMode};
use sapwood_rules::PruneContext;
use sapwood_types::{External, Height, Output};

use super::{StoreFactory, Subject};
use crate::fixtures::*;

/// The digests seen so far, by what led to them.
#[derive(Default)]
struct Seen(Vec<(String, [u8; 32])>);

impl Seen {
    /// A state that has not been seen before.
    async fn fresh(&mut self, s: &Subject, what: &str) {
        let digest = s.digest().await;
        if let Some((earlier, _)) = self.0.iter().find(|(_, seen)| *seen == digest) {
            panic!("\"{what}\" has the same digest as \"{earlier}\"");
        }
        self.0.push((what.into(), digest));
    }

    /// A state that has been seen before.
    async fn again(&self, s: &Subject, what: &str, earlier: &str) {
        let (_, seen) = self.0.iter().find(|(seen, _)| seen == earlier).expect("an earlier state");
        assert_eq!(s.digest().await, *seen, "\"{what}\" leads back to \"{earlier}\"");
    }
}

/// Every kind of change changes the digest, and what takes it back brings the old one back.
pub async fn every_kind_of_change_is_seen(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let mut seen = Seen::default();
    seen.fresh(&s, "empty").await;
    let (parent, tx) = (coin("parent", 300), child("tx", &[(&coin("parent", 300), 299)], 1));
    s.add_mined(&parent, 1).await;
    seen.fresh(&s, "created").await;
    s.add(&tx, 2).await;
    seen.fresh(&s, "a child").await;
    s.give_back(op(&parent, 299), by(&tx, 0)).await.expect("unspend");
    seen.fresh(&s, "unspent").await;
    s.try_spend(&tx, &[0], 2).await.expect("spend");
    seen.again(&s, "spent", "a child").await;
    s.try_mine(&tx, forked_in(3, 3), false, 3).await.expect("a fork");
    seen.fresh(&s, "on a fork").await;
    s.try_longest(&tx, true, 3).await.expect("on");
    seen.fresh(&s, "on the longest chain").await;
    s.try_longest(&tx, false, 3).await.expect("off");
    seen.again(&s, "off", "on a fork").await;
    s.unmine(&tx, 3, 3).await;
    seen.again(&s, "unmined", "a child").await;
    s.set_locked(vec![tx.txid], true).await.expect("lock");
    seen.fresh(&s, "locked").await;
    s.set_locked(vec![tx.txid], false).await.expect("unlock");
    seen.again(&s, "unlocked", "a child").await;
    s.freeze(vec![op(&parent, 200)]).await.expect("freeze");
    seen.fresh(&s, "frozen").await;
    s.unfreeze(vec![op(&parent, 200)]).await.expect("unfreeze");
    seen.again(&s, "unfrozen", "a child").await;
    s.keep(&[&parent], 9).await;
    seen.fresh(&s, "preserved").await;
    s.keep(&[&parent], 10).await;
    seen.fresh(&s, "preserved longer").await;
    s.expire_preservations(Height(10), 9).await.expect("expire");
    seen.again(&s, "expired", "a child").await;
    s.try_conflicting(&tx, true, 4).await.expect("lose");
    seen.fresh(&s, "lost").await;
    s.try_conflicting(&tx, false, 4).await.expect("win");
    seen.again(&s, "won", "a child").await;
    s.freeze(vec![op(&parent, 0)]).await.expect("freeze");
    let reassign = Reassign {
        outpoint: op(&parent, 0),
        expected: utxo_hash(&parent, 0),
        script: script("new"),
        credential: None,
    };
    s.reassign(vec![reassign], Height(4)).await.expect("reassign");
    seen.fresh(&s, "reassigned").await;
    s.delete(vec![tx.txid]).await.expect("delete");
    seen.fresh(&s, "deleted").await;
    s.sound().await;
}

/// So do blocks, rollbacks, what is needed for them, and the place of the pruner.
pub async fn blocks_undo_and_cursor_are_seen(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let mut seen = Seen::default();
    let first = s.start(10, &[]).await.block;
    seen.fresh(&s, "an empty block").await;
    let block = s.next_block(&[]).await;
    s.try_apply(&block).await.expect("apply");
    seen.fresh(&s, "another empty block").await;
    s.roll_back(Some((first.height, first.hash)), RollbackMode::Node).await.expect("roll back");
    seen.fresh(&s, "rolled back: the next block has another number").await;
    let options = ApplyOptions { block_id: Some(40), ..ApplyOptions::default() };
    s.apply_block(std::sync::Arc::new(block), options).await.expect("apply");
    seen.fresh(&s, "the same block with another number").await;
    s.extend_to(20).await;
    seen.fresh(&s, "more blocks").await;
    s.prune_undo(None, Height(12), 9).await.expect("prune undo");
    seen.fresh(&s, "without old undo records").await;
    let context: PruneContext = context(20, 5, &[]);
    let save_cursor = Some(Cursor((&b"here"[..]).into()));
    s.pruned(PruneRequest {
        what: PruneWhat::Records { txids: vec![], cursor: save_cursor },
        ..PruneRequest::records(vec![], context)
    })
    .await;
    seen.fresh(&s, "with a cursor").await;
    s.sound().await;
}

/// Everything a transaction brings is seen: each of these differs from the others in one thing only.
pub async fn every_field_of_a_transaction_is_seen(factory: &dyn StoreFactory) {
    let mut seen = Seen::default();
    let plain = coin("tx", 1);
    let with = |change: fn(&mut CreateRequest)| {
        let mut request = CreateRequest::unmined(plain.clone());
        change(&mut request);
        request
    };
    let requests = [
        ("plain", with(|_| ())),
        ("another version", with(|request| request.tx.version += 1)),
        ("another lock time", with(|request| request.tx.locktime += 1)),
        ("no fee", with(|request| request.tx.fee = None)),
        ("another size", with(|request| request.tx.size += 1)),
        ("a coinbase", with(|request| request.tx.coinbase = true)),
        ("another value", with(|request| request.tx.outputs[0].value += 1)),
        ("another script", with(|request| request.tx.outputs[0].script = script("other"))),
        ("extra data", with(|request| request.tx.outputs[0].extra = script("extra"))),
        ("a credential", with(|request| request.tx.outputs[0].credential = Some(credential("x")))),
        ("one more output", with(|request| request.tx.outputs.push(Output::new(1, script("x"))))),
        ("a data output", with(|request| request.tx.outputs.push(data_output()))),
        ("a lock", with(|request| request.locked = true)),
        ("frozen", with(|request| request.frozen = true)),
        ("lost", with(|request| request.conflicting = true)),
        ("a body elsewhere", with(|request| request.external = Some(External::Tx))),
        ("outputs elsewhere", with(|request| request.external = Some(External::Outputs))),
        ("seen later", with(|request| request.created_at = 1)),
        ("mined", with(|request| request.mined_in = Some(mined_in(1, 1)))),
        ("mined in another block", with(|request| request.mined_in = Some(mined_in(2, 1)))),
        ("on a fork", with(|request| request.mined_in = Some(forked_in(1, 1)))),
    ];
    for (what, request) in requests {
        let s = Subject::new(factory, small()).await;
        s.try_add(request, 1).await.expect("create");
        seen.fresh(&s, what).await;
        s.sound().await;
    }
}

/// The same state has the same digest, whichever way led to it.
pub async fn the_way_to_a_state_does_not_matter(factory: &dyn StoreFactory) {
    let (a, b) = (coin("a", 130), coin("b", 1));
    let tx = child("tx", &[(&a, 0), (&a, 129), (&b, 0)], 1);
    let one = Subject::new(factory, small()).await;
    let batch = [&a, &b].map(|tx| CreateRequest::mined(tx.clone(), 1, Height(1))).to_vec();
    one.create(batch, Height(1)).await.expect("create");
    one.add(&tx, 2).await;
    one.mine(&tx, 3).await;

    let other = Subject::new(factory, small()).await;
    let passing = child("passing", &[(&a, 5)], 200);
    other.add_trusted(&tx, 2).await;
    other.add_mined(&b, 1).await;
    other.try_spend(&tx, &[2], 2).await.expect("spend");
    other.add_mined(&a, 1).await;
    other.add(&passing, 2).await;
    other.keep(&[&a, &passing], 90).await;
    other.try_spend(&tx, &[1, 0], 2).await.expect("spend");
    other.delete(vec![passing.txid]).await.expect("delete");
    other.expire_preservations(Height(90), 9).await.expect("expire");
    other.mine(&tx, 3).await;

    assert_eq!(one.records(&[&a, &b, &tx]).await, other.records(&[&a, &b, &tx]).await, "the case itself");
    assert_eq!(one.counts().await, other.counts().await);
    assert_eq!(one.digest().await, other.digest().await);
    one.sound().await;
    other.sound().await;
}

/// Notes come back, can be removed, and are no part of the state.
pub async fn notes_are_kept_and_are_not_state(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let before = s.digest().await;
    let note = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
    s.put_notes(vec![("a".into(), note("one")), ("b".into(), note("two"))]).await.expect("notes");
    s.put_notes(vec![("a".into(), None), ("b".into(), note("three")), ("c".into(), note(""))])
        .await
        .expect("notes");
    assert_eq!(s.note("a").await, Ok(None));
    assert_eq!(s.note("b").await, Ok(note("three")));
    assert_eq!(s.note("c").await, Ok(note("")));
    assert_eq!(s.note("").await, Ok(None));
    assert_eq!(s.digest().await, before);
    s.sound().await;
}
