//! The shared data, which is not part of the repository, and block files made of it.

use std::{
    env, fs,
    io::Read,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use sapwood_sources::{
    SourceError,
    bitcoin::{BlkOptions, BlkSource, Network, blk::FileOrder, blk::RawBlock, convert::ConvertError},
};

/// The path of shared data. Says so if there is none; the test is skipped then.
pub(crate) fn bitcoin() -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = match env::var_os("SAPWOOD_TEST_DATA") {
        Some(dir) => Some(PathBuf::from(dir)),
        None => here.ancestors().map(|dir| dir.join("shared/data")).find(|dir| dir.is_dir()),
    };
    if found.is_none() {
        // Continuous integration sets it, so that a missing directory does not pass for a test that passed.
        let demanded = env::var_os("SAPWOOD_DEMAND_DATA").is_some_and(|demanded| demanded != "0");
        assert!(!demanded, "SAPWOOD_DEMAND_DATA is set, but there is no shared/data above this crate");
        eprintln!("skipped: no shared/data above this crate; set SAPWOOD_TEST_DATA to its path");
    }
    found.map(|dir| dir.join("bitcoin"))
}

/// A file of the shared data, unpacked.
pub(crate) fn read(path: &Path) -> Vec<u8> {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("zst") => zstd::decode_all(bytes.as_slice()).unwrap(),
        Some("bz2") => {
            let mut unpacked = Vec::new();
            bzip2::read::BzDecoder::new(bytes.as_slice()).read_to_end(&mut unpacked).unwrap();
            unpacked
        }
        _ => bytes,
    }
}

pub(crate) fn json(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&read(path)).unwrap()
}

/// Block files in a directory of their own.
pub(crate) struct Files {
    directory: tempfile::TempDir,
}

impl Files {
    pub(crate) fn new() -> Self {
        Files { directory: tempfile::tempdir().unwrap() }
    }

    /// With one file.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let files = Files::new();
        files.write("blk00000.dat", bytes);
        files
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    pub(crate) fn open(&self, network: Network) -> BlkSource {
        open(network, [self.path()])
    }

    pub(crate) fn in_order(&self, network: Network) -> Vec<RawBlock> {
        let order = FileOrder::open(network, &[self.path().to_owned()]).unwrap();
        order.collect::<Result<_, _>>().unwrap()
    }
}

pub(crate) fn open(network: Network, places: impl IntoIterator<Item = impl Into<PathBuf>>) -> BlkSource {
    BlkSource::open(BlkOptions::new(network, places), |_| ControlFlow::Continue(())).unwrap()
}

/// A record of a block file.
pub(crate) fn record(network: Network, block: &[u8]) -> Vec<u8> {
    let length = u32::try_from(block.len()).unwrap();
    [&network.magic(), length.to_le_bytes().as_slice(), block].concat()
}

/// The first blocks of mainnet, as they go over the wire.
pub(crate) fn first_blocks(count: usize) -> Option<Vec<Vec<u8>>> {
    let path = bitcoin()?.join("chain-mainnet-0-4312/blk00000.dat");
    let order = FileOrder::open(Network::Mainnet, &[path]).unwrap();
    Some(order.take(count).map(|raw| raw.unwrap().bytes).collect())
}

pub(crate) fn from_hex(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// What is wrong with a bad block.
pub(crate) fn cause(error: &SourceError) -> Option<ConvertError> {
    match error {
        SourceError::BadBlock { cause, .. } => Some((**cause).clone()),
        _ => None,
    }
}
