//! External bodies in a directory: the body first, then the record.

use std::{
    io::Write,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use sapwood_conformance::fixtures::{burn, coin, small};
use sapwood_ledger::CreateRequest;
use sapwood_pruner::{Bodies, BodyError, BodyLocation, PrunerOptions, StopReason};
use sapwood_types::{External, Height, Tx};

use crate::harness::{World, pruner_options};

fn bodies(directory: &Path) -> Bodies {
    Bodies::open(&BodyLocation::Directory(directory.to_owned())).unwrap()
}

/// A transaction of 40,000 bytes that only its own block at 2 keeps, its body outside.
pub(crate) async fn large(world: &World, label: &str) -> (Tx, External) {
    let spent = coin(&format!("spent by {label}"), 1);
    world.store.create(vec![CreateRequest::mined(spent.clone(), 900, Height(1))], Height(1)).await.unwrap();
    let tx = Tx { size: 40_000, ..burn(label, &[(&spent, 0)]) };
    let body = Bytes::from(format!("the body of {label}"));
    let external = world.bodies.as_ref().unwrap().keep(&tx, body).await.unwrap().unwrap();
    let request =
        CreateRequest { external: Some(external), ..CreateRequest::mined(tx.clone(), 901, Height(2)) };
    world.store.create(vec![request], Height(2)).await.unwrap();
    (tx, external)
}

async fn world_with(directory: &Path) -> World {
    let world = World::with(pruner_options(small()), Some(bodies(directory))).await;
    world.block_at(1, &[]).await;
    world.settle().await;
    world
}

#[tokio::test]
async fn the_body_goes_with_its_record_and_stays_as_long() {
    let directory = tempfile::tempdir().unwrap();
    let world = world_with(directory.path()).await;
    let (tx, external) = large(&world, "large").await;
    assert_eq!(external, External::Tx);
    let bodies = world.bodies.clone().unwrap();
    world.extend_to(6).await;
    world.prune_ok().await;
    assert_eq!(bodies.get(tx.txid, external).await, Ok(Bytes::from_static(b"the body of large")));
    world.extend_to(7).await;
    let explanation = world.pruner.explain(tx.txid).await.unwrap();
    assert!(
        explanation.prunable && explanation.to_string().contains("is there and goes first"),
        "{explanation}"
    );
    let job = world.prune().await;
    assert_eq!((job.counts.bodies_deleted, world.has(&tx).await), (1, false));
    assert_eq!(bodies.exists(tx.txid, external).await, Ok(false));
    world.sound().await;
}

#[tokio::test]
async fn a_transaction_without_inputs_has_its_outputs_outside() {
    let directory = tempfile::tempdir().unwrap();
    let world = world_with(directory.path()).await;
    let bodies = world.bodies.clone().unwrap();
    let tx = Tx { size: 40_000, ..burn("no inputs", &[]) };
    let external = bodies.keep(&tx, Bytes::from_static(b"outputs")).await.unwrap();
    assert_eq!(external, Some(External::Outputs));
    let file = directory.path().join(sapwood_pruner::bodies::key(&tx.txid, External::Outputs).to_string());
    assert!(file.exists() && file.extension().is_some_and(|extension| extension == "outputs"));
    let request = CreateRequest { external, ..CreateRequest::mined(tx.clone(), 901, Height(2)) };
    world.store.create(vec![request], Height(2)).await.unwrap();
    world.extend_to(7).await;
    world.prune_ok().await;
    assert!(!file.exists() && !world.has(&tx).await);
    world.sound().await;
}

#[tokio::test]
async fn a_body_that_is_gone_already_is_fine() {
    let directory = tempfile::tempdir().unwrap();
    let world = world_with(directory.path()).await;
    let (tx, external) = large(&world, "large").await;
    std::fs::remove_file(directory.path().join(sapwood_pruner::bodies::key(&tx.txid, external).to_string()))
        .unwrap();
    world.extend_to(7).await;
    assert_eq!(world.prune_ok().await, 2);
    assert!(!world.has(&tx).await);
    world.sound().await;
}

/// A directory in the place of the file: it cannot be deleted as one, whoever the process runs as.
#[tokio::test]
async fn a_body_that_cannot_be_deleted_keeps_its_record_until_it_can() {
    let directory = tempfile::tempdir().unwrap();
    let world = world_with(directory.path()).await;
    let (tx, external) = large(&world, "large").await;
    let plain = world.burns("plain", 3).await;
    let file = directory.path().join(sapwood_pruner::bodies::key(&tx.txid, external).to_string());
    let body = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir_all(file.join("in the way")).unwrap();
    world.extend_to(9).await;
    let job = world.prune().await;
    assert_eq!((job.counts.retained.get("external_body"), job.counts.bodies_deleted), (Some(&1), 0), "{job}");
    assert!(world.has(&tx).await && !world.has(&plain[0]).await, "only the record with the body stays");
    std::fs::remove_dir_all(&file).unwrap();
    std::fs::write(&file, body).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(world.prune_ok().await, 1, "the next look finds it");
    assert!(!file.exists());
    world.sound().await;
}

#[tokio::test]
async fn without_an_object_store_such_records_stay() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = world_with(directory.path()).await;
    let (tx, external) = large(&world, "large").await;
    let bodies = world.bodies.take().unwrap();
    world.extend_to(7).await;
    let world = world.restart().await;
    world.settle().await;
    let plan = world.pruner.plan(None, 100).await.unwrap();
    assert_eq!((plan.records, plan.retained.get("external_body")), (0, Some(&1)));
    let explanation = world.pruner.explain(tx.txid).await.unwrap();
    assert_eq!((explanation.reason.as_deref(), explanation.prunable), (Some("external_body"), false));
    assert_eq!(world.prune_ok().await, 0);
    assert!(world.has(&tx).await && bodies.exists(tx.txid, external).await.unwrap());
    world.sound().await;
}

/// The record disagrees with its child: then the body must stay as well.
#[tokio::test]
async fn the_body_stays_if_the_record_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let world = world_with(directory.path()).await;
    let (tx, external) = large(&world, "large").await;
    world.store.preserve(vec![tx.txid], Height(50)).await.unwrap();
    world.extend_to(20).await;
    world.prune_ok().await;
    assert!(world.has(&tx).await && world.bodies.as_ref().unwrap().exists(tx.txid, external).await.unwrap());
    world.sound().await;
}

/// A link below the directory led the sweep to a file outside of the data directory, and it was deleted.
#[tokio::test]
async fn l18_a_symlink_below_bodies_is_not_followed() {
    use std::os::unix::fs::symlink;
    let (data, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let bodies_in = data.path().join("bodies");
    let world = world_with(&bodies_in).await;
    let place = |tx: &Tx| sapwood_pruner::bodies::key(&tx.txid, External::Tx).to_string();
    let put = |directory: &Path, tx: &Tx| {
        let file = directory.join(place(tx));
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "no record has this").unwrap();
        file
    };
    // One lies here, three behind links: to a directory of the first level, to one of the second, and to the file itself.
    let [here, first, second, third] = ["here", "first", "second", "third"].map(|label| burn(label, &[]));
    let orphan = put(&bodies_in, &here);
    let others = [&first, &second, &third].map(|tx| put(outside.path(), tx));
    let top = |tx: &Tx| place(tx).split('/').next().unwrap().to_owned();
    assert_eq!(
        [&here, &first, &second, &third].map(top).iter().collect::<std::collections::HashSet<_>>().len(),
        4
    );
    symlink(outside.path().join(top(&first)), bodies_in.join(top(&first))).unwrap();
    std::fs::create_dir(bodies_in.join(top(&second))).unwrap();
    let directory_of = |tx: &Tx| Path::new(&place(tx)).parent().unwrap().to_owned();
    symlink(outside.path().join(directory_of(&second)), bodies_in.join(directory_of(&second))).unwrap();
    std::fs::create_dir_all(bodies_in.join(directory_of(&third))).unwrap();
    symlink(&others[2], bodies_in.join(place(&third))).unwrap();
    // A circle is no reason to stop.
    symlink(&bodies_in, bodies_in.join("circle")).unwrap();
    let job = world.prune().await;
    assert_eq!((job.counts.bodies_deleted, orphan.exists()), (1, false), "{job}");
    for file in &others {
        assert!(file.exists(), "{}", file.display());
    }
    assert!(bodies_in.join(place(&third)).is_symlink());
    let bodies = world.bodies.clone().unwrap();
    for byte in 0..=u8::MAX {
        let mut listing = bodies.list(Some(byte)).await.unwrap();
        while let Some(listed) = listing.next(10).await.unwrap() {
            assert_eq!(listed, [], "{byte:02x}");
        }
    }
    world.sound().await;
}

/// A body that was a link to another file was opened, and a directory that was one led deletions outside.
#[tokio::test]
async fn body_that_is_a_symlink_is_neither_read_nor_deleted() {
    use std::os::unix::fs::symlink;
    let (data, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let bodies_in = data.path().join("bodies");
    let world = world_with(&bodies_in).await;
    let bodies = world.bodies.clone().unwrap();
    let key = |tx: &Tx| sapwood_pruner::bodies::key(&tx.txid, External::Tx).to_string();
    let (file, _) = large(&world, "a file that is a link").await;
    let (directory, external) = large(&world, "a directory that is a link").await;
    let foreign = outside.path().join("foreign");
    std::fs::write(&foreign, "not a body").unwrap();
    std::fs::remove_file(bodies_in.join(key(&file))).unwrap();
    symlink(&foreign, bodies_in.join(key(&file))).unwrap();
    let top = key(&directory).split('/').next().unwrap().to_owned();
    std::fs::rename(bodies_in.join(&top), outside.path().join(&top)).unwrap();
    symlink(outside.path().join(&top), bodies_in.join(&top)).unwrap();
    for tx in [&file, &directory] {
        let read = bodies.get(tx.txid, external).await.unwrap_err();
        assert!(matches!(read, BodyError::Linked { .. }), "{read}");
        assert!(bodies.exists(tx.txid, external).await.is_err());
    }
    let report = bodies.verify(&world.store, &small(), &|_, _| Ok(())).await.unwrap();
    let links = report.damaged.iter().filter(|problem| problem.contains("symbolic link")).count();
    assert_eq!((links, report.found), (2, 0), "{report:?}");
    world.extend_to(7).await;
    world.prune().await;
    assert!(world.has(&file).await && world.has(&directory).await, "their bodies cannot be deleted");
    assert!(foreign.exists() && outside.path().join(key(&directory)).exists(), "nothing outside is deleted");
}

/// The sweep finds the same link each time.
#[tokio::test]
async fn symlink_among_bodies_is_logged_once() {
    let directory = tempfile::tempdir().unwrap();
    let bodies = bodies(directory.path());
    std::os::unix::fs::symlink("/nowhere", directory.path().join("link")).unwrap();
    let written: Arc<Mutex<Vec<u8>>> = Arc::default();
    let writer = Arc::clone(&written);
    let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || Shared(Arc::clone(&writer)));
    let _listening = tracing::subscriber::set_default(log.finish());
    for _ in 0..3 {
        let mut listing = bodies.list(None).await.unwrap();
        while listing.next(10).await.unwrap().is_some() {}
    }
    let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
    assert!(text.matches("is not followed").count() <= 1, "{text}");
}

/// What is logged.
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The directory itself may be a link to another volume.
#[tokio::test]
async fn a_directory_of_bodies_that_is_a_symlink_is_swept() {
    let (data, volume) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let link = data.path().join("bodies");
    std::os::unix::fs::symlink(volume.path(), &link).unwrap();
    let world = world_with(&link).await;
    let bodies = world.bodies.clone().unwrap();
    for label in ["one", "two", "three"] {
        bodies.put(burn(label, &[]).txid, External::Tx, Bytes::from_static(b"orphan")).await.unwrap();
    }
    assert_eq!(world.prune().await.counts.bodies_deleted, 3);
    world.sound().await;
}

/// The job that was asked for may end at its limit before it comes to bodies.
#[tokio::test]
async fn bodies_without_a_record_are_found_by_the_job_that_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let bodies = bodies(directory.path());
    let options = PrunerOptions { chunk_records: 1, records_per_job: 2, ..pruner_options(small()) };
    let world = World::with(options, Some(bodies.clone())).await;
    world.block_at(1, &[]).await;
    world.settle().await;
    world.burns("due", 5).await;
    world.extend_to(10).await;
    let orphan = burn("orphan", &[]).txid;
    bodies.put(orphan, External::Tx, Bytes::from_static(b"left over")).await.unwrap();
    let first = world.pruner.prune_now(None).unwrap();
    assert_eq!(world.pruner.wait(first).await.unwrap().stopped_early, Some(StopReason::RecordLimit));
    loop {
        let newest = world.pruner.jobs(1).pop().unwrap();
        let over = world.pruner.wait(newest.id).await.unwrap();
        if world.pruner.jobs(1)[0].id == over.id {
            break;
        }
    }
    assert_eq!(world.records().await, 0);
    assert!(!bodies.exists(orphan, External::Tx).await.unwrap(), "{:?}", world.pruner.jobs(10));
    world.sound().await;
}
