//! What the files take, and what the process takes.

use std::{fs, io, path::Path};

use sapwood_ledger::TableStats;

use super::report::{DiskPart, DiskReport, ProcessReport};

/// What belongs to no part of the engine.
pub(crate) const OTHER: &str = "other";

/// Disk by part, as the engine tells it, and what else is in the directory.
pub(crate) fn disk(engine: &[TableStats], directory: Option<u64>) -> DiskReport {
    let part = |stats: &TableStats| DiskPart { part: stats.table.name().into(), bytes: stats.disk_bytes };
    let mut parts: Vec<DiskPart> = engine.iter().map(part).collect();
    let in_parts: u64 = parts.iter().map(|part| part.bytes).sum();
    if let Some(all) = directory {
        // The two are not read at the same moment: what was deleted in between must not make the rest negative.
        parts.push(DiskPart { part: OTHER.into(), bytes: all.saturating_sub(in_parts) });
    }
    let total_bytes = parts.iter().map(|part| part.bytes).sum();
    DiskReport { total_bytes, parts, without_pruning_bytes: total_bytes, limit_bytes: None, room: None }
}

/// The bytes of all files of a data directory. A link in it is followed, so that a store on another volume counts; one further below is
/// not. What vanishes while it is looked at counts as 0.
pub(crate) fn bytes_of_data(directory: &Path) -> io::Result<u64> {
    sum_entries(directory, |entry| match fs::metadata(entry.path()) {
        // A link that leads nowhere has a size of its own.
        Err(error) if error.kind() == io::ErrorKind::NotFound => entry.metadata(),
        metadata => metadata,
    })
}

/// The bytes of all files in a directory and below, without following links.
fn bytes_below(directory: &Path) -> io::Result<u64> {
    sum_entries(directory, fs::DirEntry::metadata)
}

fn sum_entries(
    directory: &Path,
    look: impl Fn(&fs::DirEntry) -> io::Result<fs::Metadata>,
) -> io::Result<u64> {
    let mut total = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = match look(&entry) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        total += if metadata.is_dir() { bytes_below(&entry.path())? } else { metadata.len() };
    }
    Ok(total)
}

/// What the process takes, where the system tells.
pub(crate) fn process() -> ProcessReport {
    let resident_bytes = fs::read_to_string("/proc/self/status").ok().and_then(|status| resident(&status));
    ProcessReport { resident_bytes }
}

fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use sapwood_ledger::engine::Table;

    use super::*;

    #[test]
    fn the_rest_of_the_directory_is_a_part_of_its_own() {
        let stats = |table, disk_bytes| TableStats {
            table,
            disk_bytes,
            memory_bytes: 0,
            rows: 0,
            details: Default::default(),
            text: String::new(),
        };
        let engine = [stats(Table::Tx, 70), stats(Table::Undo, 20)];
        let parts = |report: DiskReport| -> Vec<(String, u64)> {
            report.parts.into_iter().map(|part| (part.part, part.bytes)).collect()
        };
        let all = disk(&engine, Some(100));
        assert_eq!(all.total_bytes, 100);
        assert_eq!(parts(all), [("tx".into(), 70), ("undo".into(), 20), (OTHER.into(), 10)]);
        let shrunk = disk(&engine, Some(80));
        assert_eq!(parts(shrunk).pop(), Some((OTHER.into(), 0)));
        assert_eq!(disk(&engine, None).total_bytes, 90);
    }

    #[test]
    fn memory_is_read_where_linux_tells_it() {
        assert_eq!(resident("Name:\tx\nVmRSS:\t    2048 kB\n"), Some(2 << 20));
        assert_eq!(resident("Name:\tx\n"), None);
    }

    #[test]
    fn files_below_count_too() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("a"), [0; 10]).unwrap();
        fs::create_dir(directory.path().join("below")).unwrap();
        fs::write(directory.path().join("below/b"), [0; 5]).unwrap();
        assert_eq!(bytes_of_data(directory.path()).unwrap(), 15);
    }

    /// The store was a link to another volume, and the total was that of the link.
    #[test]
    fn l18_a_store_that_is_a_symlink_counts() {
        use std::os::unix::fs::symlink;
        let (directory, volume) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let elsewhere = tempfile::tempdir().unwrap();
        fs::write(elsewhere.path().join("large"), [0; 10_000]).unwrap();
        fs::write(volume.path().join("a"), [0; 1_000]).unwrap();
        fs::create_dir(volume.path().join("below")).unwrap();
        fs::write(volume.path().join("below/b"), [0; 500]).unwrap();
        symlink(volume.path(), directory.path().join("store")).unwrap();
        assert_eq!(bytes_of_data(directory.path()).unwrap(), 1_500);
        // A link further below belongs to another owner, and may lead in a circle.
        symlink(elsewhere.path(), volume.path().join("link")).unwrap();
        symlink(volume.path(), volume.path().join("circle")).unwrap();
        let total = bytes_of_data(directory.path()).unwrap();
        assert!((1_500..3_000).contains(&total), "{total}");
    }
}
