//! Who has the directory.

use std::{
    fs::{File, TryLockError},
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use sapwood_ledger::engine::EngineError;

const LOCK_FILE: &str = "sapwood.lock";
/// A file that every RocksDB database has.
const DATABASE_FILE: &str = "CURRENT";

/// What a database is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Reading and writing. One that is not there is made.
    Create,
    /// Reading and writing what is there.
    Existing,
    /// Reading what is there. Nothing in the directory changes, and none of it has to be writable, as with copies on read-only media.
    ReadOnly,
}

/// Fails if the lock file of a directory is another one than that which is open: the directory was deleted, moved or replaced, and what is
/// written goes to files that no later start finds. A directory that cannot be looked at stops nothing.
pub(crate) fn check_in_place(lock: &File, directory: &Path) -> Result<(), EngineError> {
    let displaced = || EngineError::Displaced { place: directory.display().to_string() };
    let (open, found) = match (lock.metadata(), std::fs::metadata(directory.join(LOCK_FILE))) {
        (Ok(open), Ok(found)) => (open, found),
        (_, Err(error)) if error.kind() == std::io::ErrorKind::NotFound => return Err(displaced()),
        _ => return Ok(()),
    };
    let same = (open.dev(), open.ino()) == (found.dev(), found.ino());
    if same { Ok(()) } else { Err(displaced()) }
}

impl OpenMode {
    /// Takes the directory for this process. RocksDB has a lock of its own, but no error kind to tell it by. A reader shares the
    /// lock with other readers, and needs none where there is no lock file.
    pub(crate) fn lock(self, directory: &Path) -> Result<Option<File>, EngineError> {
        let failed = |error: std::io::Error| EngineError::Failed {
            doing: "locking the data directory",
            cause: format!("{}: {error}", directory.display()),
        };
        let place = || directory.display().to_string();
        match self {
            OpenMode::Create => std::fs::create_dir_all(directory).map_err(failed)?,
            OpenMode::Existing | OpenMode::ReadOnly if directory.join(DATABASE_FILE).exists() => {}
            OpenMode::Existing | OpenMode::ReadOnly => return Err(EngineError::Absent { place: place() }),
        }
        let path = directory.join(LOCK_FILE);
        let file = match self {
            OpenMode::Create | OpenMode::Existing => {
                File::options().create(true).truncate(false).write(true).open(path).map_err(failed)?
            }
            OpenMode::ReadOnly => match File::open(path) {
                Ok(file) => file,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(failed(error)),
            },
        };
        let locked = if self == OpenMode::ReadOnly { file.try_lock_shared() } else { file.try_lock() };
        match locked {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Err(EngineError::Locked { place: place() }),
            // A medium without locks has no writers either.
            Err(TryLockError::Error(_)) if self == OpenMode::ReadOnly => Ok(None),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}
