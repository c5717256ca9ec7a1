//! A reserve of disk space: a file that is there only to be deleted when the disk fills, so that pruning has room to
//! work.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use rustix::fs::{FallocateFlags, fallocate};
use sapwood_ledger::engine::DiskSpace;

/// A file that keeps disk space for emergencies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserve {
    path: PathBuf,
    bytes: u64,
}

impl Reserve {
    /// Describes a reserve of `bytes` bytes. Does nothing yet.
    pub fn new(path: impl Into<PathBuf>, bytes: u64) -> Self {
        Self { path: path.into(), bytes }
    }

    /// Returns the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the bytes that the file has now. 0 if it is not there.
    ///
    /// # Errors
    /// If the file cannot be looked at.
    pub fn held(&self) -> io::Result<u64> {
        match fs::metadata(&self.path) {
            Ok(metadata) => Ok(metadata.len()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Takes the space, if at least as much is free besides it. Returns whether the reserve is there in full.
    ///
    /// # Errors
    /// If the file cannot be made. Then it is not there.
    pub fn fill(&self, space: DiskSpace) -> io::Result<bool> {
        let missing = self.bytes.saturating_sub(self.held()?);
        if missing == 0 {
            return Ok(true);
        }
        if space.free_bytes < missing.saturating_add(self.bytes) {
            return Ok(false);
        }
        let file = File::options().write(true).create(true).truncate(false).open(&self.path)?;
        // Allocates without writing: a file of zeros could be sparse, and would hold nothing.
        let taken = fallocate(&file, FallocateFlags::empty(), 0, self.bytes).map_err(io::Error::from);
        let taken = taken.and_then(|()| file.sync_all());
        if taken.is_err() {
            drop(file);
            self.release()?;
        }
        taken.map(|()| true)
    }

    /// Gives the space back. Returns how many bytes it was.
    ///
    /// # Errors
    /// If the file cannot be deleted. One that is not there is fine.
    pub fn release(&self) -> io::Result<u64> {
        let held = self.held()?;
        match fs::remove_file(&self.path) {
            Ok(()) => Ok(held),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error),
        }
    }
}

/// Whether blocks are written, by the free space: stops at one mark and goes on at a higher one, so that it does not
/// flicker. Pure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteGate {
    /// Writing stops below this many free bytes.
    pub stop_below: u64,
    /// Writing goes on from this many free bytes on. At least `stop_below`.
    pub resume_at: u64,
    is_closed: bool,
}

impl WriteGate {
    /// Creates an open gate.
    pub fn new(stop_below: u64, resume_at: u64) -> Self {
        Self { stop_below, resume_at: resume_at.max(stop_below), is_closed: false }
    }

    /// Looks at the free space, and returns whether blocks may be written.
    pub fn check(&mut self, free_bytes: u64) -> bool {
        let mark = if self.is_closed { self.resume_at } else { self.stop_below };
        self.is_closed = free_bytes < mark;
        !self.is_closed
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn reserve_takes_real_space_and_gives_it_back() {
        let directory = tempfile::tempdir().unwrap();
        let reserve = Reserve::new(directory.path().join("reserve"), 1 << 20);
        let space = DiskSpace { free_bytes: 2 << 20, total_bytes: 4 << 20 };
        assert_eq!(reserve.held().unwrap(), 0);
        let too_little = DiskSpace { free_bytes: (2 << 20) - 1, ..space };
        assert!(!reserve.fill(too_little).unwrap(), "it would take the last of the disk");
        assert!(!reserve.path().exists());
        assert!(reserve.fill(space).unwrap());
        assert!(reserve.fill(too_little).unwrap(), "it is there already");
        assert_eq!(reserve.held().unwrap(), 1 << 20);
        assert!(fs::metadata(reserve.path()).unwrap().blocks() * 512 >= 1 << 20, "it is not sparse");
        assert_eq!(reserve.release().unwrap(), 1 << 20);
        assert_eq!(reserve.release().unwrap(), 0, "twice is fine");
    }

    #[test]
    fn gate_stops_at_one_mark_and_resumes_at_a_higher_one() {
        let mut gate = WriteGate::new(100, 200);
        let seen = [150, 100, 99, 150, 199, 200, 150].map(|free| gate.check(free));
        assert_eq!(seen, [true, true, false, false, false, true, true]);
    }
}
