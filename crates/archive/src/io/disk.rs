//! A file on disk.

use std::{
    fs::{File, TryLockError},
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
};

use super::{ArenaFile, DiskSpace};

/// Bytes of one block of `st_blocks`.
const STAT_BLOCK: u64 = 512;

/// A file on disk, locked for this process while it is open.
#[derive(Debug)]
pub struct DiskFile {
    file: File,
    path: PathBuf,
}

impl DiskFile {
    /// Opens a file for reading and writing, and makes an empty one if there is none. The entry of a new file in its
    /// directory is on the device when this returns.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if another process has the file open.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            File::open(directory)?.sync_all()?;
        }
        locked(file.try_lock())?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Opens an existing file for reading only.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is none, [`io::ErrorKind::WouldBlock`] if another process writes it.
    pub fn read_only(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        locked(file.try_lock_shared())?;
        Ok(Self { file, path: path.to_owned() })
    }
}

fn locked(lock: Result<(), TryLockError>) -> io::Result<()> {
    lock.map_err(|error| match error {
        TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
        TryLockError::Error(error) => error,
    })
}

impl ArenaFile for DiskFile {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    #[cfg(target_os = "linux")]
    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.file, flags, offset, bytes)?)
    }

    #[cfg(not(target_os = "linux"))]
    fn punch(&self, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn allocated(&self) -> io::Result<Option<u64>> {
        Ok(Some(self.file.metadata()?.blocks().saturating_mul(STAT_BLOCK)))
    }

    fn disk_space(&self) -> io::Result<Option<DiskSpace>> {
        let stat = rustix::fs::fstatvfs(&self.file)?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Ok(Some(DiskSpace { free_bytes: bytes(stat.f_bavail), total_bytes: bytes(stat.f_blocks) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn punched_range_reads_as_zeros_and_gives_its_space_back() {
        let directory = tempfile::tempdir().unwrap();
        let file = DiskFile::create(&directory.path().join("arena")).unwrap();
        file.set_size(1 << 20).unwrap();
        file.write_at(0, &vec![7; 1 << 20]).unwrap();
        file.sync().unwrap();
        let before = file.allocated().unwrap().unwrap();
        match file.punch(256 << 10, 512 << 10) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                return eprintln!("skipped: the file system of the temporary directory cannot punch holes");
            }
            punched => punched.unwrap(),
        }
        assert!(file.allocated().unwrap().unwrap() <= before - (512 << 10));
        assert_eq!(file.size().unwrap(), 1 << 20);
        let mut bytes = vec![1; 1 << 20];
        file.read_at(0, &mut bytes).unwrap();
        assert!(bytes[256 << 10..768 << 10].iter().all(|byte| *byte == 0));
        assert!(bytes[..256 << 10].iter().chain(&bytes[768 << 10..]).all(|byte| *byte == 7));
    }

    #[test]
    fn second_writer_of_a_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("arena");
        let _file = DiskFile::create(&path).unwrap();
        assert_eq!(DiskFile::create(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(DiskFile::read_only(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn read_past_the_end_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let file = DiskFile::create(&directory.path().join("arena")).unwrap();
        file.set_size(10).unwrap();
        let error = file.read_at(5, &mut [0; 6]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
