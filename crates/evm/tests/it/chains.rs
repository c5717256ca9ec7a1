//! The real chains that the tests use.

use std::{path::PathBuf, sync::Arc};

use alloy_eips::BlockNumHash;
use alloy_primitives::B256;
use sapwood_evm::{
    ChainSpec, CheckedBlock, Genesis,
    chain::{Activation, Fork},
    read::{Import, Origin, ReceiptsFile},
};
use sapwood_testing::data;

/// A file of the chain of go-ethereum's `ethtest`. `None` without the data.
pub(crate) fn ethtest(file: &str) -> Option<PathBuf> {
    Some(data::evm()?.join("geth-ethtest").join(file))
}

/// The era of Sepolia. `None` without the data.
pub(crate) fn sepolia_era() -> Option<PathBuf> {
    Some(data::evm()?.join("sepolia-era1/sepolia-00021-b8814b14.era1"))
}

/// Sepolia's configuration as far as the era needs it: London from the start, nothing later.
pub(crate) fn sepolia_spec() -> Arc<ChainSpec> {
    let hash = "0x25a5cc106eea7138acab33231d7160d69cb777ee0c2c553fcddf5138993e6dd9".parse::<B256>().unwrap();
    let london = Fork { name: "london".to_owned(), at: Activation::Block(0), blobs: None };
    Arc::new(ChainSpec::new(11_155_111, hash, 1_633_267_481, None, vec![london]).unwrap())
}

/// The genesis of `ethtest`. `None` without the data.
pub(crate) fn ethtest_genesis() -> Option<Genesis> {
    Some(Genesis::parse(&data::read(&ethtest("genesis.json")?)).unwrap())
}

/// All blocks of `ethtest` from block 0 on, imported with receipts. `None` without the data.
pub(crate) fn ethtest_blocks() -> Option<(Arc<ChainSpec>, Vec<CheckedBlock>)> {
    let genesis = ethtest_genesis()?;
    let spec = Arc::new(genesis.spec);
    let receipts = ReceiptsFile::open(&Origin::file(ethtest("geth-ethtest-receipts.rlp.zst")?)).unwrap();
    let stored = Some(BlockNumHash { number: 0, hash: genesis.block.hash });
    let files = vec![Origin::file(ethtest("chain.rlp")?)];
    let import = Import::new(Arc::clone(&spec), stored, files, Some(receipts));
    let blocks = std::iter::once(genesis.block).chain(import.map(Result::unwrap)).collect();
    Some((spec, blocks))
}

/// All blocks of the era of Sepolia. `None` without the data.
pub(crate) fn sepolia_blocks() -> Option<(Arc<ChainSpec>, Vec<CheckedBlock>)> {
    let import = Import::new(sepolia_spec(), None, vec![Origin::file(sepolia_era()?)], None);
    Some((sepolia_spec(), import.map(Result::unwrap).collect()))
}
