//! Watches over commits that wait without an end.
//!
//! After a failure in the background, of a full disk above all, RocksDB tries to recover by itself. Until then it makes writes wait once too
//! many files or buffers have piled up: silently, for as long as there is no room. The writer and everyone behind it wait, too. So a thread
//! looks at commits in flight, shows one that waits, and ends it after a while. `docs/decisions/0022-waiting-writes-end.md` says why.
//!
//! # Correctness
//! A commit counts as stalled only if RocksDB has failed in the background, and either failed again while the commit waited or has flushed
//! and compacted nothing for that long. A write that waits for compactions that make progress is left alone. To end a commit, RocksDB is
//! told to stop all work: the commit returns an error and nothing of it was written. After that RocksDB takes no writes, as the ledger,
//! which refuses them after any failed commit.

use std::{
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rocksdb::{DB, Options};

use crate::stats;

/// How often commits in flight are looked at, at most.
const EVERY: Duration = Duration::from_secs(1);
/// A commit that has been stalled for this long is shown, or for a quarter of the time after which it is ended.
const SHOWN_AFTER: Duration = Duration::from_secs(5);

/// A commit that RocksDB makes wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stall {
    /// Since when.
    pub(crate) since: Instant,
    /// How often RocksDB failed in the background since it was opened.
    pub(crate) errors: u64,
}

/// What is known of the commit in flight.
#[derive(Debug, Default)]
struct State {
    /// When it began. `None` if none is in flight.
    in_flight: Option<Instant>,
    stall: Option<Stall>,
}

/// The thread that watches, and what it found. Ends when it is dropped.
pub(crate) struct Watch {
    state: Arc<Mutex<State>>,
    /// Nothing is ever sent: the thread ends when this is dropped.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts the thread. It ends commits that have been stalled for `limit`, or only shows them if there is none.
    ///
    /// # Errors
    /// That of the operating system if it starts no further thread.
    pub(crate) fn start(
        db: Arc<DB>,
        database: Arc<Options>,
        limit: Option<Duration>,
    ) -> std::io::Result<Self> {
        let state = Arc::new(Mutex::new(State::default()));
        let (stop, stopped) = mpsc::channel();
        let mut watcher = Watcher::new(db, database, limit, Arc::clone(&state));
        let every = limit.map_or(EVERY, |limit| EVERY.min(limit / 8));
        let watch = move || {
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                watcher.look(Instant::now());
            }
        };
        let thread = std::thread::Builder::new().name("watch commits".into()).spawn(watch)?;
        Ok(Self { state, stop: Some(stop), thread: Some(thread) })
    }

    /// Watches over a commit while it is made. There is one at a time.
    pub(crate) fn over<T>(&self, commit: impl FnOnce() -> T) -> T {
        self.state.lock().in_flight = Some(Instant::now());
        let done = commit();
        self.state.lock().in_flight = None;
        done
    }

    /// Returns the commit that is made to wait, or was when it was ended. `None` if there is none.
    pub(crate) fn stall(&self) -> Option<Stall> {
        self.state.lock().stall
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported, and nothing depends on what it did.
            let _ = thread.join();
        }
    }
}

/// Background errors, and bytes that were flushed and compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Progress {
    errors: u64,
    bytes: u64,
}

struct Watcher {
    db: Arc<DB>,
    database: Arc<Options>,
    limit: Option<Duration>,
    state: Arc<Mutex<State>>,
    /// When the commit that is watched began, the errors by then, and since when nothing was flushed or compacted.
    watched: Option<(Instant, Progress, Instant)>,
    ended: bool,
}

impl Watcher {
    fn new(db: Arc<DB>, database: Arc<Options>, limit: Option<Duration>, state: Arc<Mutex<State>>) -> Self {
        Self { db, database, limit, state, watched: None, ended: false }
    }

    fn look(&mut self, now: Instant) {
        // That it was ended stays visible.
        if self.ended {
            return;
        }
        let in_flight = self.state.lock().in_flight;
        let shown_after = self.limit.map_or(SHOWN_AFTER, |limit| SHOWN_AFTER.min(limit / 4));
        let stall = in_flight.and_then(|began| self.stalled(began, now));
        let stall = stall.filter(|stall| now.saturating_duration_since(stall.since) >= shown_after);
        let mut state = self.state.lock();
        // Another one than was looked at waits for nothing yet.
        let stall = stall.filter(|_| state.in_flight == in_flight);
        let before = std::mem::replace(&mut state.stall, stall);
        drop(state);
        let Some(Stall { since, errors }) = stall else {
            if before.is_some() {
                tracing::info!("the write that waited goes on");
            }
            return;
        };
        let waited = now.saturating_duration_since(since);
        let seconds = waited.as_secs();
        if before.is_none() {
            tracing::error!(
                seconds,
                errors,
                "a write waits: the storage engine has failed in the background and stopped writes. Make room on the disk"
            );
        }
        if self.limit.is_some_and(|limit| waited >= limit) {
            tracing::error!(seconds, "the write that waits is ended: restart when there is room");
            self.ended = true;
            self.db.cancel_all_background_work(false);
        }
    }

    /// Returns since when the commit in flight has been stalled. `None` if it is not.
    fn stalled(&mut self, began: Instant, now: Instant) -> Option<Stall> {
        let errors = self.db.property_int_value("rocksdb.background-errors").ok().flatten()?;
        let writes = stats::writes(&self.database);
        let found = Progress { errors, bytes: writes.flush_bytes + writes.compaction_bytes };
        let (watched, first, idle) = match self.watched {
            Some(watched) if watched.0 == began => watched,
            _ => *self.watched.insert((began, found, began)),
        };
        if errors == 0 {
            return None;
        }
        if errors > first.errors {
            return Some(Stall { since: watched, errors });
        }
        if found.bytes != first.bytes {
            self.watched = Some((began, found, now));
            return None;
        }
        Some(Stall { since: idle, errors })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests: to panic is how they fail")]
mod tests {
    use std::{fs, path::PathBuf, process::Command};

    use sapwood_ledger::engine::{Engine, EngineError, Maintenance, Scan, Table, WriteSet};

    use super::*;
    use crate::{OpenMode, RocksEngine, RocksOptions};

    /// A file system in memory, unmounted with the guard.
    struct Disk(PathBuf, #[allow(dead_code, reason = "dropped after it is unmounted")] tempfile::TempDir);

    impl Disk {
        /// `None` where nothing can be mounted; `SAPWOOD_DEMAND_MOUNT=1` makes that a failure.
        fn mount(size: &str) -> Option<Self> {
            let directory = tempfile::tempdir().unwrap();
            let at = directory.path().to_owned();
            let mount = Command::new("mount")
                .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
                .arg(&at)
                .status();
            if mount.is_ok_and(|status| status.success()) {
                return Some(Disk(at, directory));
            }
            let why = "a small file system cannot be mounted here";
            assert!(std::env::var_os("SAPWOOD_DEMAND_MOUNT").is_none_or(|demand| demand != "1"), "{why}");
            eprintln!("SKIPPED, nothing was tested: {why}");
            None
        }
    }

    impl Drop for Disk {
        fn drop(&mut self) {
            // Lazily: a failing test may still have files open there.
            let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }

    /// Commits rows of a kilobyte, spread over the whole range of keys.
    fn write(engine: &RocksEngine, rows: u64) -> Result<(), EngineError> {
        let mut writes = WriteSet::default();
        writes.number = engine.position()? + 1;
        for row in 0..rows {
            let key = (u64::MAX / rows * row).to_be_bytes();
            writes.put(Table::Tx, &[&key[..], &writes.number.to_be_bytes()].concat(), &[7; 1024]);
        }
        engine.commit(&writes)
    }

    fn until(mut look: impl FnMut() -> bool) {
        while !look() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Such a commit waited for room without an end, and nothing showed it.
    #[test]
    fn a_commit_that_waits_for_room_is_shown_and_ended() {
        const LIMIT: Duration = Duration::from_secs(2);
        let Some(disk) = Disk::mount("64m") else { return };
        let options = RocksOptions {
            write_buffer_bytes: 8 << 20,
            compression: false,
            stalled_commit_ended_after: LIMIT,
            ..RocksOptions::default()
        };
        let directory = disk.0.join("store");
        let open = || RocksEngine::open(&directory, OpenMode::Create, &options).unwrap();
        let engine = Arc::new(open());
        for _ in 0..20 {
            write(&engine, 1024).unwrap();
        }
        engine.maintain(Maintenance::Flush).unwrap();
        let family = engine.family(Table::Tx).unwrap();
        engine.db().compact_range_cf(family, None::<&[u8]>, None::<&[u8]>);
        // There is room for four small files and two logs, which take 9 MiB each ahead of time, but not for writing all of it once more.
        let ballast = disk.0.join("ballast");
        let free = engine.disk_space().unwrap().unwrap().free_bytes;
        fs::write(&ballast, vec![1; free as usize - (20 << 20)]).unwrap();
        // As many as are compacted together, and large enough to be compacted with what is there instead of among themselves.
        for _ in 0..4 {
            write(&engine, 512).unwrap();
            engine.maintain(Maintenance::Flush).unwrap();
        }
        let errors = || engine.db().property_int_value("rocksdb.background-errors").unwrap().unwrap();
        until(|| errors() > 0);
        assert_eq!(engine.check(), Ok(()), "no commit waits");
        // The files that cannot be compacted are too many from now on.
        let too_many = [("level0_slowdown_writes_trigger", "4"), ("level0_stop_writes_trigger", "4")];
        engine.db().set_options_cf(family, &too_many).unwrap();
        let acknowledged = engine.position().unwrap();
        let waiting = std::thread::spawn({
            let engine = Arc::clone(&engine);
            move || write(&engine, 2)
        });
        until(|| matches!(engine.check(), Err(EngineError::Stalled { .. })));
        let error = waiting.join().unwrap().unwrap_err();
        let EngineError::Stalled { seconds, errors: counted, free_bytes, .. } = error else {
            panic!("{error:?}")
        };
        assert!(seconds >= LIMIT.as_secs() && counted > 0 && free_bytes < 20 << 20, "{error}");
        let mut rows = 0;
        let count = &mut |_: &[u8], _: &[u8]| {
            rows += 1;
            std::ops::ControlFlow::Continue(())
        };
        engine.view().unwrap().scan(&Scan::all(Table::Tx), count).unwrap();
        assert_eq!(rows, 20 * 1024 + 4 * 512, "what was acknowledged can be read");
        drop(engine);
        fs::remove_file(ballast).unwrap();
        let engine = open();
        assert_eq!(engine.position(), Ok(acknowledged));
        write(&engine, 2).unwrap();
    }
}
