//! Which files there are, and the key over them.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use crate::{SourceError, bitcoin::BitcoinError};

/// The coarsest clock of a file system in use (FAT). A file changed more recently than that may change again without a new time.
const COARSEST_CLOCK: Duration = Duration::from_secs(2);

/// Newer nodes XOR their block files with a random key, so that virus scanners do not find what strangers wrote into the chain.
const KEY_FILE: &str = "xor.dat";

/// The key over a block file. All zero if there is none.
pub(crate) type Key = [u8; 8];

/// A block file.
#[derive(Clone, Debug)]
pub(crate) struct BlockFile {
    pub(crate) path: PathBuf,
    pub(crate) key: Key,
    /// Where the next record is expected: all before has been read.
    pub(crate) read_to: u64,
    /// How many bytes before that are neither records nor zeros.
    pub(crate) skipped: u64,
    /// What it looked like when it was read last, if any later change would show.
    pub(crate) seen: Option<Looks>,
}

/// By which one sees that a file has been written to. The length alone does not tell: nodes fill files with zeros beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Looks {
    pub(crate) length: u64,
    changed: Option<SystemTime>,
}

impl Looks {
    /// Unless the last change is so recent that another one might look the same.
    pub(crate) fn if_telling(self) -> Option<Looks> {
        let age = self.changed.and_then(|changed| SystemTime::now().duration_since(changed).ok());
        age.is_some_and(|age| age > COARSEST_CLOCK).then_some(self)
    }
}

impl BlockFile {
    fn new(path: PathBuf) -> Result<Self, SourceError> {
        let key = key_beside(&path)?;
        Ok(BlockFile { path, key, read_to: 0, skipped: 0, seen: None })
    }

    /// Returns what the file looks like now. `None` if there is no such file any more.
    pub(crate) fn looks(&self) -> Result<Option<Looks>, SourceError> {
        match fs::metadata(&self.path) {
            // What was taken for a file is a directory with files again.
            Ok(about) if about.is_dir() => Ok(None),
            // Opening a pipe would wait for its writer, for as long as that takes.
            Ok(about) if !about.is_file() => {
                let problem = "it is neither a file nor a directory";
                Err(SourceError::file(&self.path)(io::Error::new(io::ErrorKind::InvalidInput, problem)))
            }
            Ok(about) => Ok(Some(Looks { length: about.len(), changed: about.modified().ok() })),
            // A file that was deleted leaves no link.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(&self.path).is_err() =>
            {
                Ok(None)
            }
            Err(error) => Err(SourceError::file(&self.path)(error)),
        }
    }

    pub(crate) fn open(&self) -> Result<File, SourceError> {
        File::open(&self.path).map_err(SourceError::file(&self.path))
    }
}

/// The block files of the given places, in the order given; those of a directory by their numbers.
pub(crate) fn find(places: &[PathBuf]) -> Result<Vec<BlockFile>, SourceError> {
    let mut files = Vec::new();
    for place in places {
        if !place.is_dir() {
            // Better now than in the middle of a long run.
            fs::metadata(place).map_err(SourceError::file(place))?;
            files.push(BlockFile::new(place.clone())?);
            continue;
        }
        let mut paths = numbered(place)?;
        if paths.is_empty() && place.join("blocks").is_dir() {
            paths = numbered(&place.join("blocks"))?;
        }
        if paths.is_empty() {
            return Err(BitcoinError::NoBlockFiles { path: place.clone() }.into());
        }
        for path in paths {
            files.push(BlockFile::new(path)?);
        }
    }
    Ok(files)
}

/// `blk*.dat` of a directory, by number. Bitcoin Core has five digits and goes on with six.
fn numbered(directory: &Path) -> Result<Vec<PathBuf>, SourceError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(SourceError::file(directory))? {
        let path = entry.map_err(SourceError::file(directory))?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let digits = name.and_then(|name| name.strip_prefix("blk")?.strip_suffix(".dat"));
        if let Some(number) = digits.and_then(|digits| digits.parse::<u64>().ok()) {
            found.push((number, path));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

fn key_beside(file: &Path) -> Result<Key, SourceError> {
    let path = file.with_file_name(KEY_FILE);
    match fs::read(&path) {
        Ok(bytes) => Key::try_from(bytes.as_slice())
            .map_err(|_| BitcoinError::XorKey { path, length: bytes.len() as u64 }.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Key::default()),
        Err(error) => Err(SourceError::file(path)(error)),
    }
}

/// Takes the key off bytes that begin at `offset` of their file, or puts it on.
pub(crate) fn unmask(bytes: &mut [u8], key: Key, offset: u64) {
    if key == Key::default() {
        return;
    }
    let mut turned = key;
    // Below eight, so it fits.
    turned.rotate_left((offset % 8) as usize);
    for (byte, key) in bytes.iter_mut().zip(turned.iter().cycle()) {
        *byte ^= key;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_depends_on_the_place_in_the_file_only() {
        let key = [1, 2, 3, 4, 5, 6, 7, 8];
        let mut whole: Vec<u8> = (0..100).collect();
        unmask(&mut whole, key, 0);
        for from in 0..30 {
            let mut part: Vec<u8> = (from..100).collect();
            unmask(&mut part, key, from.into());
            assert_eq!(part, whole[from as usize..]);
        }
    }
}
