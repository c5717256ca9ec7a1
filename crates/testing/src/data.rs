//! Chains and blocks that tests need and that are too large for the repository, and block files made of them.

use std::{
    env, fs,
    io::Read as _,
    ops::ControlFlow,
    path::{Path, PathBuf},
    time::Duration,
};

use sapwood_sources::bitcoin::{
    BlkOptions, BlkSource, Network,
    blk::{FileOrder, RawBlock},
};
use serde_json::Value;

/// Returns the directory with the data of Bitcoin. `None` without the data.
pub fn bitcoin() -> Option<PathBuf> {
    directory("bitcoin")
}

/// Returns the directory with the data of EVM chains. `None` without the data.
pub fn evm() -> Option<PathBuf> {
    directory("evm")
}

/// Returns the directory with the data of a chain: in `SAPWOOD_TEST_DATA`, or in `shared/data` beside the repository. `None` if
/// there is none, which is reported: the test is to be skipped. With `SAPWOOD_DEMAND_DATA` it fails instead.
fn directory(chain: &str) -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = match env::var_os("SAPWOOD_TEST_DATA") {
        Some(directory) => Some(PathBuf::from(directory)),
        None => here.ancestors().map(|parent| parent.join("shared/data")).find(|path| path.is_dir()),
    };
    if found.is_none() {
        // Continuous integration sets it, so that a missing directory does not pass for a test that passed.
        let demanded = env::var_os("SAPWOOD_DEMAND_DATA").is_some_and(|demanded| demanded != "0");
        assert!(!demanded, "SAPWOOD_DEMAND_DATA is set, but there is no shared/data above this crate");
        eprintln!("skipped: no shared/data above this crate; set SAPWOOD_TEST_DATA to its path");
    }
    found.map(|directory| directory.join(chain))
}

/// A file of the data, unpacked.
pub fn read(path: &Path) -> Vec<u8> {
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

/// A JSON file of the data.
pub fn json(path: &Path) -> Value {
    serde_json::from_slice(&read(path)).unwrap()
}

/// The bytes of a text of hexadecimal digits.
pub fn hex(text: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

/// A record of a block file.
pub fn record(network: Network, block: &[u8]) -> Vec<u8> {
    let length = u32::try_from(block.len()).unwrap();
    [&network.magic(), length.to_le_bytes().as_slice(), block].concat()
}

/// The first blocks of mainnet, as they go over the wire. `None` without the data.
pub fn first_blocks(count: usize) -> Option<Vec<Vec<u8>>> {
    let path = bitcoin()?.join("chain-mainnet-0-4312/blk00000.dat");
    let order = FileOrder::open(Network::Mainnet, &[path]).unwrap();
    Some(order.take(count).map(|raw| raw.unwrap().bytes).collect())
}

/// Block files as a source that looks for more of them often enough for a test.
pub fn open(network: Network, places: impl IntoIterator<Item = impl Into<PathBuf>>) -> BlkSource {
    open_with(BlkOptions { poll: Duration::from_millis(10), ..BlkOptions::new(network, places) })
}

/// The same with other options.
pub fn open_with(options: BlkOptions) -> BlkSource {
    BlkSource::open(options, |_| ControlFlow::Continue(())).unwrap()
}

/// Block files in a directory of their own.
#[derive(Debug)]
pub struct Files(tempfile::TempDir);

impl Default for Files {
    fn default() -> Self {
        Self::new()
    }
}

impl Files {
    /// With no file.
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// With one file.
    pub fn of(bytes: &[u8]) -> Self {
        let files = Self::new();
        files.write(0, bytes);
        files
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes the block file with this number.
    pub fn write(&self, number: usize, bytes: &[u8]) -> PathBuf {
        self.write_as(&format!("blk{number:05}.dat"), bytes)
    }

    /// Writes a file of this name.
    pub fn write_as(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// Them as a source.
    pub fn open(&self, network: Network) -> BlkSource {
        open(network, [self.path()])
    }

    /// Their blocks in the order of the files.
    pub fn in_order(&self, network: Network) -> Vec<RawBlock> {
        let order = FileOrder::open(network, &[self.path().to_owned()]).unwrap();
        order.collect::<Result<_, _>>().unwrap()
    }
}
