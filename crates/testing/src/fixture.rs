//! Stores that older versions wrote, in `crates/engine-rocksdb/tests/fixtures`.
//!
//! Each has blocks, reorganisations, pruned records, records of two pages, and some that are locked, frozen, preserved, unmined or settled, with a
//! promise to keep 4,000 blocks. The file beside it says what the version that wrote it saw in it.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use serde_json::Value;
use tempfile::TempDir;

/// The schemas there are fixtures of.
pub const SCHEMAS: [u32; 3] = [1, 2, 3];

/// A store as an older version left it.
pub struct Fixture {
    /// Its schema version.
    pub schema: u32,
    directory: TempDir,
    expected: Value,
}

impl Fixture {
    /// Unpacks the store of a schema.
    pub fn unpack(schema: u32) -> Self {
        Self::unpack_from(
            Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../engine-rocksdb/tests/fixtures")),
            schema,
        )
    }

    /// Unpacks the store of a schema that [`pack`](Self::pack) put into a directory.
    pub fn unpack_from(fixtures: &Path, schema: u32) -> Self {
        let expected = fixtures.join(format!("schema-{schema}.json"));
        let expected = serde_json::from_reader(File::open(expected).unwrap()).unwrap();
        let packed = File::open(fixtures.join(format!("schema-{schema}.tar.zst"))).unwrap();
        let directory = tempfile::tempdir().unwrap();
        tar::Archive::new(zstd::Decoder::new(packed).unwrap()).unpack(directory.path()).unwrap();
        Self { schema, directory, expected }
    }

    /// Packs a store that no process has open, and what is expected of it, into the directory `to`.
    pub fn pack(schema: u32, store: &Path, expected: &Value, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        let text = serde_json::to_string_pretty(expected).unwrap() + "\n";
        std::fs::write(to.join(format!("schema-{schema}.json")), text).unwrap();
        let packed = File::create(to.join(format!("schema-{schema}.tar.zst"))).unwrap();
        let mut archive = tar::Builder::new(zstd::Encoder::new(packed, 19).unwrap());
        archive.mode(tar::HeaderMode::Deterministic);
        archive.append_dir_all("store", store).unwrap();
        archive.into_inner().unwrap().finish().unwrap();
    }

    /// Returns the directory of the store.
    pub fn store(&self) -> PathBuf {
        self.directory.path().join("store")
    }

    /// Returns a number that the version that wrote it saw.
    pub fn number(&self, name: &str) -> u64 {
        self.expected[name].as_u64().unwrap()
    }

    /// Returns a text that the version that wrote it saw.
    pub fn text(&self, name: &str) -> &str {
        self.expected[name].as_str().unwrap()
    }
}
