//! The seam between the arena and the file that holds its bytes.
//!
//! **What lives here.** [`ArenaFile`], the file on disk ([`DiskFile`]) and one in memory that can crash, fill up and
//! tear writes ([`MemoryFile`]). **What may not.** Where regions lie and who owns them.

mod disk;
mod memory;

use std::io;

pub use sapwood_ledger::engine::DiskSpace;

pub use self::{
    disk::DiskFile,
    memory::{Fate, Faults, MemoryFile},
};

/// A file of bytes at offsets. Calls block and can come from any thread.
pub trait ArenaFile: Send + Sync + 'static {
    /// Names the file in messages.
    fn place(&self) -> String;

    /// Returns the length in bytes.
    fn size(&self) -> io::Result<u64>;

    /// Changes the length. What is added reads as zeros.
    fn set_size(&self, bytes: u64) -> io::Result<()>;

    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] if the file ends before the buffer is full.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`. After an error any part of them can be there.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Waits until everything written before is on the device, with what is needed to find it.
    fn sync(&self) -> io::Result<()>;

    /// Gives the disk space of a range back to the file system. The range then reads as zeros, and the length stays.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] where the file system cannot do it.
    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()>;

    /// Returns the bytes that the file takes on its disk. `None` where this is not known.
    fn allocated(&self) -> io::Result<Option<u64>>;

    /// Measures the disk that holds the file. `None` if there is no such disk.
    fn disk_space(&self) -> io::Result<Option<DiskSpace>>;
}
