//! The floor: batches the store once wrote, written straight into RocksDB with the same settings. What the store takes beyond
//! this is what reading, checking and encoding cost.

use std::path::Path;

use rocksdb::{DB, WriteBatch, WriteBatchIteratorCf, WriteOptions};
use sapwood_store::StoreError;

use crate::{
    columns::{self, Column},
    engine::engine_error,
    open::Access,
    options::EmbeddedOptions,
};

/// A database that only writes.
pub struct Floor {
    db: DB,
    write_options: WriteOptions,
}

/// What one batch of the store does, taken apart.
pub struct Operations(Vec<(u32, Vec<u8>, Option<Vec<u8>>)>);

impl WriteBatchIteratorCf for Operations {
    fn put_cf(&mut self, column: u32, key: &[u8], value: &[u8]) {
        self.0.push((column, key.to_vec(), Some(value.to_vec())));
    }

    fn delete_cf(&mut self, column: u32, key: &[u8]) {
        self.0.push((column, key.to_vec(), None));
    }

    fn merge_cf(&mut self, _: u32, _: &[u8], _: &[u8]) {}
}

impl Operations {
    /// Takes a batch apart, given as RocksDB encodes it.
    pub fn of(batch: &[u8]) -> Self {
        let mut operations = Operations(Vec::new());
        WriteBatch::from_data(batch).iterate_cf(&mut operations);
        operations
    }
}

impl Floor {
    /// Opens a copy of a store, made with a checkpoint.
    pub fn open(directory: &Path, options: &EmbeddedOptions) -> Result<Self, StoreError> {
        let database = columns::database_options(options, Access::Existing);
        let db = DB::open_cf_descriptors(&database, directory, columns::descriptors(options))
            .map_err(engine_error("opening the copy"))?;
        Ok(Self { db, write_options: WriteOptions::default() })
    }

    /// Puts the operations into one batch and writes it.
    pub fn write(&self, operations: &Operations) -> Result<(), StoreError> {
        // RocksDB numbers column families in the order in which they were made, after the unused default one.
        let families: Vec<_> =
            Column::ALL.into_iter().map(|column| self.db.cf_handle(column.name())).collect();
        let mut batch = WriteBatch::default();
        for (column, key, value) in &operations.0 {
            let family = (*column as usize).checked_sub(1).and_then(|at| families.get(at).copied().flatten());
            let family = family.ok_or_else(|| StoreError::Engine {
                doing: "writing a batch again",
                cause: format!("column family {column} is not known"),
            })?;
            match value {
                Some(value) => batch.put_cf(family, key, value),
                None => batch.delete_cf(family, key),
            }
        }
        self.db.write_opt(batch, &self.write_options).map_err(engine_error("writing a batch again"))
    }
}
