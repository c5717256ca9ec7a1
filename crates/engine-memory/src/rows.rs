//! Tables of rows with the versions that live views can see.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

use sapwood_ledger::engine::{DamagedRow, Scan, Table};

/// A key, and its value or why that cannot be read.
pub(crate) type Row = (Vec<u8>, Read<Arc<[u8]>>);

/// A value, and the number of the commit that wrote it. `None` for a deletion.
type Version = (u64, Option<Arc<[u8]>>);

#[derive(Default)]
pub(crate) struct Rows {
    tables: [BTreeMap<Vec<u8>, Vec<Version>>; Table::ALL.len()],
    position: u64,
    /// How many views there are of each commit.
    pinned: BTreeMap<u64, usize>,
    /// Rows with versions that no view may need any more.
    stale: BTreeSet<(Table, Vec<u8>)>,
    /// Rows that tests made unreadable.
    broken: BTreeSet<(Table, Vec<u8>)>,
}

/// A value as a view sees it.
type Read<T> = Result<T, DamagedRow>;

impl Rows {
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Keeps the rows as of the last commit until [`unpin`](Self::unpin), and returns its number.
    pub(crate) fn pin(&mut self) -> u64 {
        *self.pinned.entry(self.position).or_default() += 1;
        self.position
    }

    pub(crate) fn unpin(&mut self, number: u64) {
        if let Some(views) = self.pinned.get_mut(&number) {
            *views -= 1;
            if *views == 0 {
                self.pinned.remove(&number);
            }
        }
    }

    pub(crate) fn set(&mut self, number: u64, table: Table, key: &[u8], value: Option<&[u8]>) {
        let versions = self.tables[table as usize].entry(key.to_vec()).or_default();
        versions.retain(|(written, _)| *written != number);
        versions.push((number, value.map(Arc::from)));
        self.broken.remove(&(table, key.to_vec()));
        self.stale.insert((table, key.to_vec()));
    }

    pub(crate) fn delete_range(&mut self, number: u64, table: Table, from: &[u8], to: &[u8]) {
        let range = (Bound::Included(from), Bound::Excluded(to));
        let keys: Vec<Vec<u8>> =
            self.tables[table as usize].range::<[u8], _>(range).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.set(number, table, &key, None);
        }
    }

    /// Ends a commit: drops the versions that no view can see.
    pub(crate) fn committed(&mut self, number: u64) {
        self.position = number;
        let oldest = self.pinned.keys().next().copied().unwrap_or(number);
        for (table, key) in std::mem::take(&mut self.stale) {
            let Some(versions) = self.tables[table as usize].get_mut(&key) else { continue };
            let needed = versions.iter().rposition(|(written, _)| *written <= oldest).unwrap_or(0);
            versions.drain(..needed);
            match versions.as_slice() {
                [(written, None)] if *written <= oldest => _ = self.tables[table as usize].remove(&key),
                [(written, Some(_))] if *written <= oldest => {}
                _ => _ = self.stale.insert((table, key)),
            }
        }
    }

    /// Writes over a row in all versions.
    pub(crate) fn overwrite(&mut self, table: Table, key: &[u8], value: Option<&[u8]>) {
        let versions = value.map(|value| vec![(0, Some(Arc::from(value)))]);
        match versions {
            Some(versions) => _ = self.tables[table as usize].insert(key.to_vec(), versions),
            None => _ = self.tables[table as usize].remove(key),
        }
    }

    /// Makes a row unreadable until it is written again.
    pub(crate) fn break_row(&mut self, table: Table, key: &[u8]) {
        self.broken.insert((table, key.to_vec()));
    }

    fn check(&self, table: Table, key: &[u8]) -> Read<()> {
        match self.broken.is_empty() || !self.broken.contains(&(table, key.to_vec())) {
            true => Ok(()),
            false => Err(DamagedRow { cause: "a test made it unreadable".into() }),
        }
    }

    pub(crate) fn get(&self, number: u64, table: Table, key: &[u8]) -> Read<Option<Arc<[u8]>>> {
        self.check(table, key)?;
        Ok(self.tables[table as usize].get(key).and_then(|versions| visible(versions, number)))
    }

    /// Returns up to `limit` rows of a scan, those behind `after`.
    pub(crate) fn range(&self, number: u64, scan: &Scan, after: Option<&[u8]>, limit: usize) -> Vec<Row> {
        let (mut from, mut to) =
            (Bound::Included(scan.from), scan.to.map_or(Bound::Unbounded, Bound::Excluded));
        match (after, scan.reverse) {
            (Some(after), false) => from = Bound::Excluded(after),
            (Some(after), true) => to = Bound::Excluded(after),
            (None, _) => {}
        }
        // An empty range is no range of a `BTreeMap`.
        if let (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(to)) = (from, to)
            && from >= to
        {
            return Vec::new();
        }
        let range = self.tables[scan.table as usize].range::<[u8], _>((from, to));
        let row = |(key, versions): (&Vec<u8>, &Vec<Version>)| {
            let value = visible(versions, number)?;
            Some((key.clone(), self.check(scan.table, key).map(|()| value)))
        };
        match scan.reverse {
            false => range.filter_map(row).take(limit).collect(),
            true => range.rev().filter_map(row).take(limit).collect(),
        }
    }

    /// Returns the number of rows and their bytes, as of the last commit.
    pub(crate) fn size(&self, table: Table) -> (u64, u64) {
        let rows = self.tables[table as usize].iter();
        rows.filter_map(|(key, versions)| Some(key.len() + visible(versions, self.position)?.len()))
            .fold((0, 0), |(rows, bytes), row| (rows + 1, bytes + row as u64))
    }
}

fn visible(versions: &[Version], number: u64) -> Option<Arc<[u8]>> {
    versions.iter().rfind(|(written, _)| *written <= number)?.1.clone()
}
