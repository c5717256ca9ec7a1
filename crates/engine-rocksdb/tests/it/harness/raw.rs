//! The database without the store: to see what is there, and to damage it.

use std::{collections::BTreeSet, path::Path};

use rocksdb::{DB, IteratorMode, Options};

/// The database of a store that is closed.
pub(crate) struct Raw {
    db: DB,
}

impl Raw {
    pub(crate) fn open(directory: &Path) -> Self {
        let families = DB::list_cf(&Options::default(), directory).unwrap();
        Raw { db: DB::open_cf(&Options::default(), directory, families).unwrap() }
    }

    pub(crate) fn get(&self, family: &str, key: impl AsRef<[u8]>) -> Option<Vec<u8>> {
        self.db.get_cf(self.db.cf_handle(family).unwrap(), key).unwrap()
    }

    pub(crate) fn put(&self, family: &str, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.db.put_cf(self.db.cf_handle(family).unwrap(), key, value).unwrap();
    }

    pub(crate) fn delete(&self, family: &str, key: impl AsRef<[u8]>) {
        let key = key.as_ref();
        assert!(self.get(family, key).is_some(), "there is nothing to delete in {family}");
        self.db.delete_cf(self.db.cf_handle(family).unwrap(), key).unwrap();
    }

    /// The levels at which a column family has files.
    pub(crate) fn levels(&self, family: &str) -> BTreeSet<i32> {
        let files = self.db.live_files().unwrap().into_iter();
        files.filter(|file| file.column_family_name == family).map(|file| file.level).collect()
    }

    /// The names of a column family's files, and their sizes.
    pub(crate) fn files(&self, family: &str) -> Vec<(String, usize)> {
        let files = self.db.live_files().unwrap().into_iter();
        let files = files.filter(|file| file.column_family_name == family);
        files.map(|file| (file.name.trim_start_matches('/').to_owned(), file.size)).collect()
    }

    /// Compacts a column family into its last level and writes each of its rows once more, into level 0.
    pub(crate) fn write_twice(&self, family: &str) {
        let handle = self.db.cf_handle(family).unwrap();
        self.db.compact_range_cf(handle, None::<&[u8]>, None::<&[u8]>);
        self.db.set_options_cf(handle, &[("disable_auto_compactions", "true")]).unwrap();
        for key in self.keys(family) {
            let value = self.get(family, &key).unwrap();
            self.put(family, key, value);
        }
        self.db.flush_cf(handle).unwrap();
    }

    /// All keys of a column family.
    pub(crate) fn keys(&self, family: &str) -> Vec<Vec<u8>> {
        let family = self.db.cf_handle(family).unwrap();
        let entries = self.db.iterator_cf(family, IteratorMode::Start);
        entries.map(|entry| entry.unwrap().0.into_vec()).collect()
    }
}

/// Changes the value of a row in the file where it lies, so that the checksum of its block is wrong. Neither key nor value may compress.
pub(crate) fn damage_in_files(directory: &Path, key: &[u8]) {
    // The start of a key can be left out where the key before it begins alike.
    let rest = &key[4..];
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    for file in files.filter(|path| path.extension().is_some_and(|extension| extension == "sst")) {
        let mut bytes = std::fs::read(&file).unwrap();
        let place = bytes.windows(rest.len()).position(|window| window == rest);
        if let Some(place) = place {
            bytes[place + rest.len() + 20] ^= 1;
            return std::fs::write(&file, bytes).unwrap();
        }
    }
    panic!("no file has this row");
}
