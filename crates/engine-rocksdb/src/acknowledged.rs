//! The number of the last acknowledged commit, kept outside the database's log.
//!
//! RocksDB reads its log up to the first damaged record and drops the rest without an error: after a power failure that is how it gets
//! consistent again. Holds, policies and blocks that were acknowledged would be gone, and nothing would tell. So the number of each commit is
//! written to a small file, too, and compared when the database is opened.
//!
//! # Correctness
//! The file is written after the commit and before its acknowledgement, so it is never ahead of what the log had. While the machine is up, a
//! database that opens with a lower number than the file has is damaged. Once the machine went down, writes that were not synced can be
//! missing from both; only those that were are demanded. Without a log ([`Durability::CleanStopOnly`](crate::Durability::CleanStopOnly))
//! only a clean stop counts.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use sapwood_ledger::engine::EngineError;

const FILE: &str = "acknowledged";
const MAGIC: [u8; 8] = *b"sapwack1";
const LENGTH: usize = 48;
/// Changes with every start of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// What the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    /// The last commit that was acknowledged.
    number: u64,
    /// The last commit that was synced to the device.
    synced: u64,
    /// The start of the machine during which it was written. Zero where that is not known.
    boot: [u8; 16],
}

impl Mark {
    fn encode(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.number.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.synced.to_be_bytes());
        bytes[24..40].copy_from_slice(&self.boot);
        let sum = checksum(&bytes[..40]);
        bytes[40..].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    /// Reads the bytes of the file. `None` if they are damaged.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; LENGTH] = bytes.try_into().ok()?;
        let number = |from: usize| Some(u64::from_be_bytes(bytes[from..from + 8].try_into().ok()?));
        if bytes[..8] != MAGIC || number(40)? != checksum(&bytes[..40]) {
            return None;
        }
        Some(Mark { number: number(8)?, synced: number(16)?, boot: bytes[24..40].try_into().ok()? })
    }
}

/// FNV-1a: it finds a torn write of 48 bytes, and nothing else is asked of it.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// Returns the identity of this start of the machine, zero where there is none.
fn boot_id() -> [u8; 16] {
    let text = fs::read_to_string(BOOT_ID).unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).unwrap_or_default().to_be_bytes()
}

/// The file, open for writing.
#[derive(Debug)]
pub(crate) struct Acknowledged {
    file: File,
    path: PathBuf,
    boot: [u8; 16],
}

impl Acknowledged {
    /// Compares what the file of a database says with the commit that was found last in the database. A database without the file was
    /// written by an older version, or is a copy.
    ///
    /// # Errors
    /// [`EngineError::WritesLost`] if acknowledged commits are missing that no power failure explains.
    pub(crate) fn check(directory: &Path, found: u64) -> Result<(), EngineError> {
        let path = directory.join(FILE);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed(&path, &error)),
        };
        let Some(mark) = Mark::decode(&bytes) else {
            tracing::warn!(file = %path.display(), "the number of the last acknowledged write cannot be read: it is not checked");
            return Ok(());
        };
        let same_boot = mark.boot != [0; 16] && mark.boot == boot_id();
        if found < mark.synced || same_boot && found < mark.number {
            let place = directory.display().to_string();
            let file = path.display().to_string();
            return Err(EngineError::WritesLost { place, acknowledged: mark.number, found, file });
        }
        if found < mark.number {
            tracing::warn!(
                acknowledged = mark.number,
                found,
                "the last writes before the machine went down are lost: blocks come again from the source, holds and settings of that time do not"
            );
        }
        Ok(())
    }

    /// Opens the file for writing, and makes it if it is not there.
    pub(crate) fn open(directory: &Path) -> Result<Self, EngineError> {
        let path = directory.join(FILE);
        let opened = File::options().create(true).truncate(false).write(true).open(&path);
        let file = opened.map_err(|error| failed(&path, &error))?;
        Ok(Self { file, path, boot: boot_id() })
    }

    /// Notes that a commit is written, and up to which one all are synced.
    pub(crate) fn note(&self, number: u64, synced: u64) -> Result<(), EngineError> {
        let mark = Mark { number, synced, boot: self.boot };
        self.file.write_all_at(&mark.encode(), 0).map_err(|error| failed(&self.path, &error))
    }

    /// Makes the file last. For a clean stop.
    pub(crate) fn sync(&self) -> Result<(), EngineError> {
        self.file.sync_data().map_err(|error| failed(&self.path, &error))
    }
}

fn failed(path: &Path, error: &io::Error) -> EngineError {
    EngineError::Failed { doing: "noting the last write", cause: format!("{}: {error}", path.display()) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests: to panic is how they fail")]
mod tests {
    use super::*;

    fn write(directory: &Path, mark: Mark) {
        fs::write(directory.join(FILE), mark.encode()).unwrap();
    }

    #[test]
    fn fewer_writes_than_acknowledged_are_refused_within_one_boot() {
        let directory = tempfile::tempdir().unwrap();
        let check = |found| Acknowledged::check(directory.path(), found);
        assert_eq!(check(0), Ok(()), "no file yet");
        let file = Acknowledged::open(directory.path()).unwrap();
        file.note(7, 3).unwrap();
        assert_eq!((check(7), check(8)), (Ok(()), Ok(())));
        let refused = check(6).unwrap_err();
        assert!(matches!(refused, EngineError::WritesLost { acknowledged: 7, found: 6, .. }), "{refused}");
    }

    #[test]
    fn only_synced_writes_are_demanded_after_the_machine_went_down() {
        let directory = tempfile::tempdir().unwrap();
        for boot in [[0; 16], [9; 16]] {
            write(directory.path(), Mark { number: 7, synced: 3, boot });
            assert_eq!(Acknowledged::check(directory.path(), 3), Ok(()));
            assert!(Acknowledged::check(directory.path(), 2).is_err());
        }
    }

    #[test]
    fn a_damaged_mark_is_not_read_as_a_number() {
        let mark = Mark { number: 7, synced: 3, boot: [1; 16] };
        let bytes = mark.encode();
        assert_eq!(Mark::decode(&bytes), Some(mark));
        for bit in 0..LENGTH * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Mark::decode(&flipped), None, "bit {bit}");
        }
        assert_eq!((Mark::decode(&bytes[1..]), Mark::decode(&[])), (None, None));
    }
}
