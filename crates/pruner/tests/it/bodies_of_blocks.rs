//! Bodies of the large transactions of blocks: there before the record, gone before it, and never one record without.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::FutureExt;
use object_store::memory::InMemory;
use sapwood_chain::{BodyKeeper, Chain, ChainError, ChainOptions};
use sapwood_conformance::fixtures::{block_hash, burn, child, coin, small};
use sapwood_ledger::{Applied, ApplyOptions, CreateRequest, RollbackMode};
use sapwood_pruner::{Bodies, BodyError, BodyLocation, JobState};
use sapwood_types::{Block, BlockHash, External, Height, Tx, tx_file};

use crate::{
    harness::{World, pruner_options},
    s3_server::{S3Server, Trouble},
};

/// A world whose blocks come through a chain that keeps bodies outside.
struct Chained {
    world: World,
    chain: Chain,
}

impl Chained {
    async fn new(bodies: Bodies, rollback: RollbackMode) -> Self {
        let world = World::with(pruner_options(small()), Some(bodies.clone())).await;
        let (store, events) = (world.store.clone(), world.events.clone());
        let options = ChainOptions { rollback, ..ChainOptions::default() };
        let chain = Chain::with_bodies(store, events, options, Arc::new(bodies));
        let chained = Chained { world, chain };
        chained.apply(&[&coin("first", 1)]).await.unwrap();
        chained.world.settle().await;
        chained
    }

    async fn next(&self, txs: &[&Tx]) -> Arc<Block> {
        let last = self.world.store.last_applied().await.unwrap();
        let height = last.map_or(Height(1), |last| last.height.next());
        let names: Vec<String> = txs.iter().map(|tx| tx.txid.to_string()).collect();
        Arc::new(Block {
            height,
            hash: block_hash(&format!("{height} {names:?}")),
            parent: last.map_or(BlockHash::default(), |last| last.hash),
            time: 0,
            txs: txs.iter().map(|tx| (*tx).clone()).collect(),
        })
    }

    async fn apply(&self, txs: &[&Tx]) -> Result<Option<Applied>, ChainError> {
        self.chain.apply(self.next(txs).await, ApplyOptions::default()).await
    }

    async fn fillers(&self, count: u32) {
        for number in 0..count {
            self.apply(&[&burn(&format!("filler {} {number}", self.world.tip().await), &[])]).await.unwrap();
        }
    }

    fn bodies(&self) -> &Bodies {
        self.world.bodies.as_ref().unwrap()
    }

    async fn has_body(&self, tx: &Tx) -> bool {
        self.bodies().exists(tx.txid, self.bodies().belongs_outside(tx).unwrap()).await.unwrap()
    }
}

fn in_memory() -> Bodies {
    Bodies::over(Arc::new(InMemory::new()), "memory")
}

fn large(label: &str) -> Tx {
    Tx { size: 40_000, raw: Bytes::from(format!("the bytes of {label}")), ..burn(label, &[]) }
}

#[tokio::test]
async fn the_body_is_what_the_source_handed_over_and_goes_with_its_record() {
    let directory = tempfile::tempdir().unwrap();
    let bodies = Bodies::open(&BodyLocation::Directory(directory.path().to_owned())).unwrap();
    let chained = Chained::new(bodies, RollbackMode::Node).await;
    let (large, small) = (large("large"), burn("small", &[]));
    let parent = coin("parent", 1);
    let many = Tx { size: 500, ..child("many outputs", &[(&parent, 0)], 129) };
    chained.apply(&[&large, &small, &parent, &many]).await.unwrap();
    let external = async |tx: &Tx| chained.world.record(tx).await.unwrap().head.external;
    assert_eq!(external(&large).await, Some(External::Outputs), "it has no inputs");
    assert_eq!((external(&small).await, external(&parent).await), (None, None));
    assert_eq!(external(&many).await, Some(External::Tx), "it has more than one page");
    let body = chained.bodies().get(large.txid, External::Outputs).await;
    assert_eq!(body, Ok(Bytes::from_static(b"the bytes of large")));
    let body = chained.bodies().get(many.txid, External::Tx).await.unwrap();
    assert_eq!(
        tx_file::decode(body),
        Ok(many.clone()),
        "no bytes were handed over: nothing is lost all the same"
    );
    chained.fillers(6).await;
    // Each block was a reason to prune already.
    chained.world.prune_ok().await;
    assert_eq!(chained.world.pruner.status().await.unwrap().totals.bodies_deleted, 1);
    assert!(!chained.world.has(&large).await && !chained.has_body(&large).await);
    assert!(chained.world.has(&many).await && chained.has_body(&many).await, "its outputs are unspent");
    chained.world.sound().await;
}

/// Whatever the object store does: an error that names the transaction, nothing written, and the same block again once it works.
async fn fails_and_is_tried_again(bodies: Bodies, server: &S3Server, trouble: Trouble, words: &str) {
    let chained = Chained::new(bodies, RollbackMode::Node).await;
    let large = large("large");
    let block = chained.next(&[&coin("before", 1), &large]).await;
    server.set(trouble);
    if trouble == Trouble::Silence {
        // Time passes as soon as nothing else is left to do.
        tokio::time::pause();
    }
    let before = chained.world.store.last_applied().await.unwrap();
    let error = chained.chain.apply(Arc::clone(&block), ApplyOptions::default()).await.unwrap_err();
    assert!(matches!(error, ChainError::Body { txid, .. } if txid == large.txid), "{error}");
    assert!(error.may_pass() && error.bad_block().is_none(), "{error}");
    assert!(
        error.to_string().contains(&large.txid.to_string()) && error.to_string().contains(words),
        "{error}"
    );
    assert_eq!(chained.world.store.last_applied().await.unwrap(), before);
    assert!(!chained.world.has(&large).await);
    let created = chained.chain.create(vec![CreateRequest::unmined(large.clone())], Height(2)).await;
    assert!(matches!(created, Err(ChainError::Body { txid, .. }) if txid == large.txid), "{created:?}");
    assert!(!chained.world.has(&large).await);
    if trouble == Trouble::Silence {
        tokio::time::resume();
    }
    server.set(Trouble::None);
    chained.chain.apply(block, ApplyOptions::default()).await.unwrap();
    assert!(chained.world.has(&large).await && chained.has_body(&large).await);
    chained.world.sound().await;
}

#[tokio::test]
async fn denied_writes_nothing() {
    let server = S3Server::start().await;
    fails_and_is_tried_again(server.bodies(), &server, Trouble::DenyPuts, "does not allow").await;
}

#[tokio::test]
async fn no_answer_writes_nothing() {
    let server = S3Server::start().await;
    // Shorter than one attempt of the client, and long enough for a busy machine.
    let bodies = server.bodies().with_call_timeout(Duration::from_secs(15));
    fails_and_is_tried_again(bodies, &server, Trouble::Silence, "did not answer within 15 s").await;
}

#[tokio::test]
async fn a_lasting_failure_writes_nothing() {
    let server = S3Server::start().await;
    fails_and_is_tried_again(server.bodies(), &server, Trouble::FailTimes(1000), "failed while writing")
        .await;
}

#[tokio::test]
async fn a_bucket_that_is_not_there_writes_nothing() {
    let server = S3Server::start().await;
    fails_and_is_tried_again(server.bodies(), &server, Trouble::NoBucket, "there is no object").await;
}

#[tokio::test]
async fn slow_and_passing_failures_are_waited_for() {
    let server = S3Server::start().await;
    let chained = Chained::new(server.bodies(), RollbackMode::Node).await;
    for (number, trouble) in
        [Trouble::Slow(Duration::from_millis(300)), Trouble::FailTimes(2)].into_iter().enumerate()
    {
        server.set(trouble);
        let tx = large(&format!("large {number}"));
        chained.apply(&[&tx]).await.unwrap();
        server.set(Trouble::None);
        assert!(chained.has_body(&tx).await);
    }
    assert_eq!(server.objects(), 2);
    chained.world.sound().await;
}

#[tokio::test]
async fn a_body_whose_block_was_refused_is_found_and_deleted() {
    let chained = Chained::new(in_memory(), RollbackMode::Node).await;
    let (large, kept) = (large("large"), Tx { size: 40_000, ..coin("kept", 1) });
    chained.apply(&[&kept]).await.unwrap();
    let bad = child("bad", &[(&coin("never seen", 1), 0)], 1);
    let error = chained.apply(&[&large, &bad]).await.unwrap_err();
    assert!(error.bad_block().is_some() && chained.has_body(&large).await, "{error}");
    let job = chained.world.prune().await;
    assert_eq!((job.state, job.counts.bodies_deleted), (JobState::Completed, 1), "{job}");
    assert!(!chained.has_body(&large).await);
    assert!(chained.has_body(&kept).await, "that of a record stays");
    chained.world.sound().await;
}

#[tokio::test]
async fn nothing_is_put_for_a_block_that_cannot_come_next() {
    let chained = Chained::new(in_memory(), RollbackMode::Node).await;
    let large = large("large");
    let block = chained.next(&[&large]).await;
    chained.fillers(1).await;
    let error = chained.chain.apply(block, ApplyOptions::default()).await.unwrap_err();
    assert!(matches!(error, ChainError::Apply(_)), "{error}");
    assert!(!chained.has_body(&large).await);
}

#[tokio::test]
async fn a_forgotten_transaction_comes_back_with_its_body() {
    let chained = Chained::new(in_memory(), RollbackMode::Follower).await;
    let large = large("large");
    let before = chained.world.store.last_applied().await.unwrap().unwrap();
    let block = chained.next(&[&large]).await;
    let back = sapwood_sources::ChainPoint::new(before.height, before.hash);
    for prune in [false, true] {
        chained.chain.apply(Arc::clone(&block), ApplyOptions::default()).await.unwrap();
        assert!(chained.world.has(&large).await && chained.has_body(&large).await);
        chained.chain.roll_back(Some(back)).await.unwrap();
        assert!(!chained.world.has(&large).await && chained.has_body(&large).await);
        if prune {
            assert_eq!(chained.world.prune().await.counts.bodies_deleted, 1);
            assert!(!chained.has_body(&large).await);
        }
    }
    chained.chain.apply(block, ApplyOptions::default()).await.unwrap();
    assert!(chained.world.has(&large).await && chained.has_body(&large).await);
    chained.world.sound().await;
}

#[tokio::test]
async fn a_transaction_that_waits_for_its_block_keeps_its_body_and_one_that_is_deleted_does_not() {
    let chained = Chained::new(in_memory(), RollbackMode::Node).await;
    let (waits, gone) = (large("waits"), large("gone"));
    let batch = [&waits, &gone].map(|tx| CreateRequest::unmined(tx.clone())).to_vec();
    chained.chain.create(batch, Height(1)).await.unwrap().unwrap();
    chained.world.store.delete(vec![gone.txid]).await.unwrap();
    assert_eq!(chained.world.prune().await.counts.bodies_deleted, 1);
    assert!(chained.has_body(&waits).await && !chained.has_body(&gone).await);
    chained.apply(&[&waits]).await.unwrap();
    assert_eq!(chained.world.record(&waits).await.unwrap().head.external, Some(External::Outputs));
    assert!(chained.has_body(&waits).await);
    chained.world.sound().await;
}

/// A pruner that looks for bodies without a record just between a body and its record.
#[tokio::test]
async fn a_body_whose_record_is_about_to_come_is_left_alone() {
    let chained = Chained::new(in_memory(), RollbackMode::Node).await;
    let large = large("large");
    let held = chained.world.hook.hold_write(1);
    let block = chained.next(&[&large]).await;
    let applying = tokio::spawn({
        let chain = chained.chain.clone();
        async move { chain.apply(block, ApplyOptions::default()).await }
    });
    let let_go = held.arrived().await;
    assert!(chained.has_body(&large).await && !chained.world.has(&large).await);
    let claimed = BodyKeeper::claim(chained.bodies(), vec![large.txid]).now_or_never();
    assert!(claimed.is_none(), "whoever wants to delete it has to wait");
    let job = chained.world.pruner.prune_now(None).unwrap();
    drop(let_go);
    applying.await.unwrap().unwrap();
    assert_eq!(chained.world.pruner.wait(job).await.unwrap().counts.bodies_deleted, 0);
    assert!(chained.world.has(&large).await && chained.has_body(&large).await);
    chained.world.sound().await;
}

#[tokio::test]
async fn a_place_with_the_bodies_of_another_store_is_refused() {
    let objects = Arc::new(InMemory::new());
    let place = || Bodies::over(Arc::clone(&objects) as _, "the bucket of the tests");
    let (one, other) = (World::new(small()).await, World::new(small()).await);
    let mine = place().of_store(&one.store).await.unwrap();
    let tx = large("large");
    mine.put(tx.txid, External::Outputs, Bytes::from_static(b"mine")).await.unwrap();
    let theirs = place().of_store(&other.store).await.unwrap();
    let refused = theirs.put(tx.txid, External::Outputs, Bytes::from_static(b"theirs")).await.unwrap_err();
    assert!(matches!(refused, BodyError::Configuration { .. }), "{refused}");
    assert!(
        refused.to_string().contains("the bucket of the tests holds the bodies of another store"),
        "{refused}"
    );
    assert!(theirs.list(None).await.is_err());
    let again = place().of_store(&one.store).await.unwrap();
    assert_eq!(again.get(tx.txid, External::Outputs).await, Ok(Bytes::from_static(b"mine")));
    again.put(tx.txid, External::Outputs, Bytes::from_static(b"mine")).await.unwrap();
}
