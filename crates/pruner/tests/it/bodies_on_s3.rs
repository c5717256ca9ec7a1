//! External bodies on a real S3 server, and every way in which it can fail.

use std::time::Duration;

use bytes::Bytes;
use sapwood_conformance::fixtures::small;
use sapwood_pruner::{Bodies, BodyError, BodyLocation, Job, JobState, S3Config, S3Credentials};
use sapwood_types::{External, Tx, TxId};

use crate::{
    bodies_in_a_directory::large,
    harness::{World, pruner_options},
    s3_server::{S3Server, Trouble},
};

/// Three large transactions with their bodies on the server, due, and the three they spend from.
async fn three_due(bodies: Bodies) -> (World, Vec<(Tx, External)>) {
    let world = World::with(pruner_options(small()), Some(bodies)).await;
    world.block_at(1, &[]).await;
    world.settle().await;
    let mut txs = Vec::new();
    for number in 0..3 {
        txs.push(large(&world, &format!("large {number}")).await);
    }
    world.extend_to(7).await;
    (world, txs)
}

async fn assert_kept(world: &World, txs: &[(Tx, External)], job: &Job) {
    assert_eq!(job.state, JobState::Completed, "{job}");
    assert_eq!(job.counts.retained.get("external_body"), Some(&3), "{job}");
    for (tx, _) in txs {
        assert!(world.has(tx).await);
    }
}

#[tokio::test]
async fn bodies_are_written_read_and_deleted_with_signed_requests() {
    let server = S3Server::start().await;
    let (world, txs) = three_due(server.bodies()).await;
    assert_eq!(server.objects(), 3);
    let (tx, external) = &txs[1];
    let body = world.bodies.as_ref().unwrap().get(tx.txid, *external).await;
    assert_eq!(body, Ok(Bytes::from_static(b"the body of large 1")));
    let job = world.prune().await;
    assert_eq!((job.counts.bodies_deleted, server.objects()), (3, 0));
    assert!(
        server.seen.lock().iter().any(|seen| seen.starts_with("DELETE /bodies/") && seen.ends_with(".tx"))
    );
    world.sound().await;
}

#[tokio::test]
async fn a_wrong_secret_is_refused_by_the_server() {
    let server = S3Server::start().await;
    let credentials = S3Credentials { access_key_id: "sapwood".into(), secret_access_key: "wrong".into() };
    let config = S3Config { credentials: Some(credentials), ..server.config() };
    let bodies = Bodies::open(&BodyLocation::S3(config)).unwrap();
    let refused = bodies.put(TxId([1; 32]), External::Tx, Bytes::from_static(b"x")).await;
    assert!(matches!(refused, Err(BodyError::Denied { .. })), "{refused:?}");
    assert_eq!(server.objects(), 0);
}

#[tokio::test]
async fn denied_keeps_the_record_until_it_is_allowed() {
    let server = S3Server::start().await;
    let (world, txs) = three_due(server.bodies()).await;
    server.set(Trouble::DenyDeletes);
    let job = world.prune().await;
    assert_kept(&world, &txs, &job).await;
    assert_eq!(server.objects(), 3);
    server.set(Trouble::None);
    assert_eq!(world.prune_ok().await, 3);
    assert_eq!(server.objects(), 0);
    world.sound().await;
}

#[tokio::test]
async fn no_answer_keeps_the_record() {
    let server = S3Server::start().await;
    let (world, txs) = three_due(server.bodies()).await;
    server.set(Trouble::Silence);
    // Time passes as soon as nothing else is left to do.
    tokio::time::pause();
    let job = world.prune().await;
    tokio::time::resume();
    assert_kept(&world, &txs, &job).await;
    server.set(Trouble::None);
    assert_eq!(world.prune_ok().await, 3);
    world.sound().await;
}

#[tokio::test]
async fn not_found_is_fine() {
    let server = S3Server::start().await;
    let (world, txs) = three_due(server.bodies()).await;
    server.set(Trouble::NotFound);
    assert_eq!(world.prune_ok().await, 6);
    for (tx, _) in &txs {
        assert!(!world.has(tx).await);
    }
    world.sound().await;
}

#[tokio::test]
async fn slow_is_waited_for() {
    let server = S3Server::start().await;
    let (world, _) = three_due(server.bodies()).await;
    server.set(Trouble::Slow(Duration::from_millis(300)));
    assert_eq!(world.prune_ok().await, 6);
    assert_eq!(server.objects(), 0);
    world.sound().await;
}

#[tokio::test]
async fn a_passing_failure_is_tried_again() {
    let server = S3Server::start().await;
    let (world, _) = three_due(server.bodies()).await;
    server.set(Trouble::FailTimes(2));
    assert_eq!(world.prune_ok().await, 6);
    assert_eq!((server.objects(), *server.trouble.lock()), (0, Trouble::FailTimes(0)));
    world.sound().await;
}

#[tokio::test]
async fn a_lasting_failure_keeps_the_record() {
    let server = S3Server::start().await;
    let (world, txs) = three_due(server.bodies()).await;
    server.set(Trouble::FailTimes(1000));
    let job = world.prune().await;
    assert_kept(&world, &txs, &job).await;
    server.set(Trouble::None);
    assert_eq!(world.prune_ok().await, 3);
    world.sound().await;
}

/// A dead object store is not asked for each of thousands of records.
#[tokio::test]
async fn a_dead_object_store_is_left_alone_for_the_rest_of_the_job() {
    let server = S3Server::start().await;
    let world = World::with(pruner_options(small()), Some(server.bodies())).await;
    world.block_at(1, &[]).await;
    world.settle().await;
    for number in 0..60 {
        large(&world, &format!("large {number}")).await;
    }
    world.extend_to(7).await;
    server.set(Trouble::DenyDeletes);
    server.seen.lock().clear();
    let job = world.prune().await;
    assert_eq!(job.counts.retained.get("external_body"), Some(&60));
    let asked = server.seen.lock().len();
    assert!(asked < 60, "asked {asked} times");
    server.set(Trouble::None);
    assert_eq!(world.prune_ok().await, 60);
    world.sound().await;
}

#[tokio::test]
async fn nobody_listens() {
    let server = S3Server::start().await;
    let config = S3Config { endpoint: Some("http://127.0.0.1:1".into()), retries: 0, ..server.config() };
    let bodies = Bodies::open(&BodyLocation::S3(config)).unwrap();
    let failed = bodies.exists(TxId([1; 32]), External::Tx).await;
    assert!(matches!(failed, Err(BodyError::Failed { .. })), "{failed:?}");
}
