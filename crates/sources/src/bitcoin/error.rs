//! What can go wrong with block files and nodes of Bitcoin.

use std::path::PathBuf;

use sapwood_types::BlockHash;

use super::{ConvertError, Network, network, rpc::RpcError};
use crate::{SourceError, error::Place};

/// Files or a node of Bitcoin cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BitcoinError {
    /// There are no block files.
    #[error(
        "{path} has no block files (blk00000.dat and so on): give the `blocks` directory of a node, or the files themselves",
        path = path.display()
    )]
    NoBlockFiles {
        /// Where they were looked for.
        path: PathBuf,
    },
    /// The block files have no blocks.
    #[error(
        "no block of {network} was found in {path} or any file beside it; its first bytes are {first}. \
         {fix}",
        path = path.display(),
        fix = no_blocks_fix(first)
    )]
    NoBlocks {
        /// The network that was asked for.
        network: Network,
        /// The first file that is not empty.
        path: PathBuf,
        /// What it begins with.
        first: String,
    },
    /// The key file does not hold a key.
    #[error(
        "{path} should hold 8 bytes, the key over the block files, but has {length}: copy it again from the node",
        path = path.display()
    )]
    XorKey {
        /// The key file.
        path: PathBuf,
        /// How many bytes it has.
        length: u64,
    },
    /// The blocks are another network's.
    #[error(
        "{path} begins with {magic}, not with that of {wanted}: {fix}",
        path = path.display(), magic = network::describe_magic(*magic), fix = network_fix(*magic, *wanted)
    )]
    WrongNetwork {
        /// The file.
        path: PathBuf,
        /// The network that was asked for.
        wanted: Network,
        /// The magic that was found.
        magic: [u8; 4],
    },
    /// The node could not be asked.
    #[error(transparent)]
    Rpc(#[from] RpcError),
}

impl From<RpcError> for SourceError {
    fn from(error: RpcError) -> Self {
        SourceError::Bitcoin(error.into())
    }
}

/// Says where a block that cannot be used came from.
pub(super) fn bad_block(place: Place, hash: Option<BlockHash>, cause: ConvertError) -> SourceError {
    SourceError::BadBlock { place, hash, cause: Box::new(cause.into()) }
}

/// What to do about files that begin with these bytes.
fn no_blocks_fix(first: &str) -> &'static str {
    // gzip, zstd, bzip2 and xz.
    let packed = ["1f8b", "28b52ffd", "425a68", "fd377a58"].iter().any(|magic| first.starts_with(magic));
    match packed {
        true => "It is compressed: unpack it first",
        false => "If a newer node wrote the files, copy its xor.dat too",
    }
}

fn network_fix(magic: [u8; 4], wanted: Network) -> String {
    match Network::of_magic(magic) {
        Some(found) => format!(
            "set the network to {found} (`--network` of an import, `chain.network` in the configuration), or give the files of {wanted}"
        ),
        None => format!("give the files of {wanted}"),
    }
}
