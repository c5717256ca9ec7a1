//! A file in memory that crashes, fills up and tears writes on demand: for tests.

use std::{
    collections::BTreeSet,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::RwLock;

use super::{ArenaFile, DiskSpace};

/// Bytes that the file takes on its disk at a time.
const BLOCK: u64 = 4096;
const NEVER: u64 = u64::MAX;

/// Counts the steps of everything that shares it, and makes one of them the last.
#[derive(Debug)]
pub struct Faults {
    steps: AtomicU64,
    crash_at: AtomicU64,
}

impl Default for Faults {
    fn default() -> Self {
        Self { steps: AtomicU64::new(0), crash_at: AtomicU64::new(NEVER) }
    }
}

impl Faults {
    /// Makes the step with this number, counted from 0, and all later ones fail.
    pub fn crash_at(&self, step: u64) {
        self.crash_at.store(step, Ordering::SeqCst);
    }

    /// Returns how many steps there were.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::SeqCst)
    }

    /// Counts a step.
    ///
    /// # Errors
    /// From the step on that was named as the last one. The error says whether it is that one, which may be done in
    /// part.
    pub fn step(&self) -> Result<(), Crashed> {
        let step = self.steps.fetch_add(1, Ordering::SeqCst);
        let last = self.crash_at.load(Ordering::SeqCst);
        if step < last { Ok(()) } else { Err(Crashed { in_part: step == last }) }
    }
}

/// The process has ended at this step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("crashed by a test")]
pub struct Crashed {
    /// Whether this is the step it ended in, and not a later one.
    pub in_part: bool,
}

impl From<Crashed> for io::Error {
    fn from(crashed: Crashed) -> Self {
        io::Error::other(crashed)
    }
}

/// What a power loss does to a write that was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is on the device.
    Kept,
    /// It never reached the device.
    Lost,
    /// Only this many bytes of it did.
    Torn(usize),
}

#[derive(Clone, Debug)]
enum Change {
    Write(u64, Vec<u8>),
    Resize(u64),
    Punch(u64, u64),
}

#[derive(Clone, Debug, Default)]
struct Image {
    bytes: Vec<u8>,
    /// Blocks of the disk that the file takes.
    blocks: BTreeSet<u64>,
}

impl Image {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Resize(size) => self.bytes.resize(*size as usize, 0),
            Change::Write(offset, bytes) => {
                let (from, to) = (*offset as usize, *offset as usize + bytes.len());
                if self.bytes.len() < to {
                    self.bytes.resize(to, 0);
                }
                self.bytes[from..to].copy_from_slice(bytes);
                self.blocks.extend(blocks_of(*offset, bytes.len() as u64));
            }
            Change::Punch(offset, length) => {
                let end = (offset + length).min(self.bytes.len() as u64);
                self.bytes[(*offset).min(end) as usize..end as usize].fill(0);
                for block in offset.div_ceil(BLOCK)..end / BLOCK {
                    self.blocks.remove(&block);
                }
            }
        }
    }
}

fn blocks_of(offset: u64, length: u64) -> std::ops::Range<u64> {
    offset / BLOCK..(offset + length).div_ceil(BLOCK)
}

#[derive(Debug, Default)]
struct Inner {
    now: Image,
    synced: Image,
    unsynced: Vec<Change>,
}

/// A file in memory.
#[derive(Debug)]
pub struct MemoryFile {
    inner: RwLock<Inner>,
    faults: Arc<Faults>,
    /// Whether changes since the last sync are remembered, so that a power loss can lose them.
    loses_power: bool,
    /// Bytes of the disk.
    capacity: AtomicU64,
}

impl Default for MemoryFile {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryFile {
    /// Creates an empty file that never fails.
    pub fn new() -> Self {
        Self::with(Inner::default(), Arc::default(), false)
    }

    /// Creates an empty file that fails as `faults` say, and can lose what was not synced.
    pub fn with_faults(faults: Arc<Faults>) -> Self {
        Self::with(Inner::default(), faults, true)
    }

    fn with(inner: Inner, faults: Arc<Faults>, loses_power: bool) -> Self {
        Self { inner: RwLock::new(inner), faults, loses_power, capacity: AtomicU64::new(NEVER) }
    }

    /// Sets the size of the disk in bytes.
    pub fn set_capacity(&self, bytes: u64) {
        self.capacity.store(bytes, Ordering::SeqCst);
    }

    /// Returns what another process finds after this one ended: everything written.
    pub fn after_exit(&self, faults: Arc<Faults>) -> Self {
        let inner = self.inner.read();
        Self::with(
            Inner { now: inner.now.clone(), synced: inner.synced.clone(), unsynced: inner.unsynced.clone() },
            faults,
            self.loses_power,
        )
    }

    /// Returns what is on the device after a power loss: everything synced, and of each later change what `fate` says
    /// of its number.
    pub fn after_power_loss(&self, faults: Arc<Faults>, mut fate: impl FnMut(usize) -> Fate) -> Self {
        let inner = self.inner.read();
        let mut image = inner.synced.clone();
        for (number, change) in inner.unsynced.iter().enumerate() {
            match (fate(number), change) {
                (Fate::Lost, _) => {}
                (Fate::Torn(length), Change::Write(offset, bytes)) => {
                    image.apply(&Change::Write(*offset, bytes[..length.min(bytes.len())].to_vec()));
                }
                (Fate::Kept | Fate::Torn(_), change) => image.apply(change),
            }
        }
        let inner = Inner { now: image.clone(), synced: image, unsynced: Vec::new() };
        Self::with(inner, faults, self.loses_power)
    }

    /// Returns how many changes a power loss could lose.
    pub fn unsynced(&self) -> usize {
        self.inner.read().unsynced.len()
    }

    /// Writes over bytes without any step: damage for tests.
    pub fn damage(&self, offset: u64, bytes: &[u8]) {
        let mut inner = self.inner.write();
        let change = Change::Write(offset, bytes.to_vec());
        inner.now.apply(&change);
        inner.synced.apply(&change);
    }

    fn change(&self, change: Change) {
        let mut inner = self.inner.write();
        inner.now.apply(&change);
        if self.loses_power {
            inner.unsynced.push(change);
        }
    }
}

impl ArenaFile for MemoryFile {
    fn place(&self) -> String {
        "memory".into()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.inner.read().now.bytes.len() as u64)
    }

    fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.faults.step()?;
        self.change(Change::Resize(bytes));
        Ok(())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let inner = self.inner.read();
        let end = offset.saturating_add(buffer.len() as u64);
        let found = inner.now.bytes.get(offset as usize..end as usize);
        buffer.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let cut_short = |length: usize| self.change(Change::Write(offset, bytes[..length].to_vec()));
        if let Err(crashed) = self.faults.step() {
            if crashed.in_part {
                cut_short(bytes.len() / 2);
            }
            return Err(crashed.into());
        }
        let room = self.disk_space()?.map_or(NEVER, |space| space.free_bytes) / BLOCK;
        let new: Vec<u64> = {
            let inner = self.inner.read();
            blocks_of(offset, bytes.len() as u64).filter(|block| !inner.now.blocks.contains(block)).collect()
        };
        if let Some(block) = new.get(usize::try_from(room).unwrap_or(usize::MAX)) {
            cut_short((block * BLOCK).saturating_sub(offset) as usize);
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.change(Change::Write(offset, bytes.to_vec()));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.faults.step()?;
        let mut inner = self.inner.write();
        for change in std::mem::take(&mut inner.unsynced) {
            inner.synced.apply(&change);
        }
        Ok(())
    }

    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.faults.step()?;
        self.change(Change::Punch(offset, bytes));
        Ok(())
    }

    fn allocated(&self) -> io::Result<Option<u64>> {
        Ok(Some(self.inner.read().now.blocks.len() as u64 * BLOCK))
    }

    fn disk_space(&self) -> io::Result<Option<DiskSpace>> {
        let total_bytes = self.capacity.load(Ordering::SeqCst);
        let taken = self.inner.read().now.blocks.len() as u64 * BLOCK;
        let space = DiskSpace { free_bytes: total_bytes.saturating_sub(taken), total_bytes };
        Ok((total_bytes != NEVER).then_some(space))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(file: &MemoryFile) -> Vec<u8> {
        let mut bytes = vec![0; file.size().unwrap() as usize];
        file.read_at(0, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn power_loss_keeps_what_was_synced_and_tears_the_rest() {
        let file = MemoryFile::with_faults(Arc::default());
        file.write_at(0, b"aaaa").unwrap();
        file.sync().unwrap();
        file.write_at(0, b"bbbb").unwrap();
        file.write_at(4, b"cccc").unwrap();
        assert_eq!(file.unsynced(), 2);
        assert_eq!(content(&file.after_power_loss(Arc::default(), |_| Fate::Lost)), b"aaaa");
        assert_eq!(content(&file.after_power_loss(Arc::default(), |_| Fate::Kept)), b"bbbbcccc");
        let torn = |number| if number == 0 { Fate::Torn(1) } else { Fate::Lost };
        assert_eq!(content(&file.after_power_loss(Arc::default(), torn)), b"baaa");
        assert_eq!(content(&file.after_exit(Arc::default())), b"bbbbcccc");
    }

    #[test]
    fn crash_tears_its_write_and_fails_all_later_steps() {
        let faults = Arc::new(Faults::default());
        let file = MemoryFile::with_faults(Arc::clone(&faults));
        faults.crash_at(1);
        file.write_at(0, b"aaaa").unwrap();
        file.write_at(0, b"bbbb").unwrap_err();
        file.write_at(0, b"cccc").unwrap_err();
        file.sync().unwrap_err();
        assert_eq!(content(&file), b"bbaa");
        assert_eq!(faults.steps(), 4);
    }

    #[test]
    fn full_disk_cuts_a_write_short() {
        let file = MemoryFile::new();
        file.set_capacity(2 * BLOCK);
        file.write_at(0, &[1; BLOCK as usize]).unwrap();
        let error = file.write_at(BLOCK, &[2; 2 * BLOCK as usize]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(file.size().unwrap(), 2 * BLOCK);
        file.write_at(0, &[3; 2 * BLOCK as usize]).unwrap();
        file.punch(0, BLOCK).unwrap();
        assert_eq!(file.disk_space().unwrap().unwrap().free_bytes, BLOCK);
    }
}
