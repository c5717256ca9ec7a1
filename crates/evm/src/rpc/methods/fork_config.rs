//! `eth_config` (EIP-7910): the forks that were last, are in force and come next.

use std::collections::BTreeMap;

use alloy_eips::eip2124::ForkHash;
use alloy_primitives::{Address, FixedBytes, U64, address};
use serde::Serialize;

use super::Reply;
use crate::{
    chain::{Activation, BlobSchedule, ChainSpec, Fork},
    rpc::{
        args::{Args, BlockRef, Tag},
        context::Context,
    },
};

/// The configuration in force at the newest block, the one after it and the last one known.
pub(super) fn config(context: &Context<'_>, args: &Args) -> Reply {
    args.at_most(0)?;
    let head = context.block(BlockRef::Tag(Tag::Latest))?;
    let time = head.map_or(0, |parts| parts.header.timestamp);
    let spec = context.spec();
    let by_time = |fork: &&Fork| matches!(fork.at, Activation::Time(_));
    let forks: Vec<&Fork> = spec.forks().iter().filter(by_time).collect();
    let active = forks.iter().filter(|fork| fork.is_active(u64::MAX, time)).count();
    let at = |index: Option<usize>| Some(ForkConfig::new(spec, forks.get(index?)?));
    let next = at(Some(active));
    // Without a fork to come the last one is the one in force.
    let last = next.is_some().then(|| at(forks.len().checked_sub(1))).flatten();
    context.reply(&Configs { current: at(active.checked_sub(1)), next, last })
}

#[derive(Serialize)]
struct Configs {
    current: Option<ForkConfig>,
    next: Option<ForkConfig>,
    last: Option<ForkConfig>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ForkConfig {
    activation_time: u64,
    blob_schedule: Option<BlobSchedule>,
    chain_id: U64,
    fork_id: FixedBytes<4>,
    precompiles: BTreeMap<&'static str, Address>,
    system_contracts: BTreeMap<&'static str, Address>,
}

impl ForkConfig {
    fn new(spec: &ChainSpec, fork: &Fork) -> Self {
        let time = match fork.at {
            Activation::Time(time) | Activation::Block(time) => time,
        };
        let active = |name: &str| spec.is_active(name, u64::MAX, time);
        let precompiles = PRECOMPILES.iter().filter(|(since, ..)| since.is_none_or(active));
        let prague = active("prague").then_some(SYSTEM_CONTRACTS).into_iter().flatten();
        let deposits = active("prague").then_some(spec.deposit_contract).flatten();
        let cancun = active("cancun").then_some(("BEACON_ROOTS_ADDRESS", BEACON_ROOTS));
        Self {
            // What is in force from the first block on has no time.
            activation_time: if time <= spec.genesis_time { 0 } else { time },
            blob_schedule: spec.blob_params(time).map(|params| BlobSchedule {
                target: params.target_blob_count,
                max: params.max_blob_count,
                base_fee_update_fraction: params.update_fraction as u64,
            }),
            chain_id: U64::from(spec.chain_id),
            fork_id: fork_id(spec, time),
            precompiles: precompiles.map(|(_, name, at)| (*name, precompile(*at))).collect(),
            system_contracts: prague
                .chain(cancun)
                .chain(deposits.map(|address| ("DEPOSIT_CONTRACT_ADDRESS", address)))
                .collect(),
        }
    }
}

/// The address that ends with a number.
fn precompile(number: u16) -> Address {
    let mut address = Address::ZERO;
    address.0[18..].copy_from_slice(&number.to_be_bytes());
    address
}

/// The fork hash of EIP-2124 and EIP-6122: all forks up to a time, each number once, without those of the first block.
fn fork_id(spec: &ChainSpec, time: u64) -> FixedBytes<4> {
    let mut hash = ForkHash::from(spec.genesis_hash);
    let mut last = None;
    for fork in spec.forks().iter().filter(|fork| fork.is_active(u64::MAX, time)) {
        let at = match fork.at {
            Activation::Block(0) => continue,
            Activation::Time(time) if time <= spec.genesis_time => continue,
            Activation::Block(at) | Activation::Time(at) => at,
        };
        if last != Some(fork.at) {
            hash += at;
        }
        last = Some(fork.at);
    }
    hash.0.into()
}

const BEACON_ROOTS: Address = address!("000f3df6d732807ef1319fb7b8bb8522d0beac02");

const SYSTEM_CONTRACTS: [(&str, Address); 3] = [
    ("CONSOLIDATION_REQUEST_PREDEPLOY_ADDRESS", address!("0000bbddc7ce488642fb579f8b00f3a590007251")),
    ("HISTORY_STORAGE_ADDRESS", address!("0000f90827f1c53a10cb7a02335b175320002935")),
    ("WITHDRAWAL_REQUEST_PREDEPLOY_ADDRESS", address!("00000961ef480eb55e80d19ad83579a64c007002")),
];

/// Precompiled contracts: the fork by time that brought them, if any, their name and the end of their address.
const PRECOMPILES: [(Option<&str>, &str, u16); 18] = [
    (None, "ECREC", 0x01),
    (None, "SHA256", 0x02),
    (None, "RIPEMD160", 0x03),
    (None, "ID", 0x04),
    (None, "MODEXP", 0x05),
    (None, "BN254_ADD", 0x06),
    (None, "BN254_MUL", 0x07),
    (None, "BN254_PAIRING", 0x08),
    (None, "BLAKE2F", 0x09),
    (Some("cancun"), "KZG_POINT_EVALUATION", 0x0a),
    (Some("prague"), "BLS12_G1ADD", 0x0b),
    (Some("prague"), "BLS12_G1MSM", 0x0c),
    (Some("prague"), "BLS12_G2ADD", 0x0d),
    (Some("prague"), "BLS12_G2MSM", 0x0e),
    (Some("prague"), "BLS12_PAIRING_CHECK", 0x0f),
    (Some("prague"), "BLS12_MAP_FP_TO_G1", 0x10),
    (Some("prague"), "BLS12_MAP_FP2_TO_G2", 0x11),
    (Some("osaka"), "P256VERIFY", 0x100),
];

#[cfg(test)]
mod tests {
    use alloy_primitives::{b256, fixed_bytes};

    use super::*;

    /// Ethereum's mainnet: two pairs of forks came with the same block.
    fn mainnet() -> ChainSpec {
        let by_block = [
            ("homestead", 1_150_000),
            ("daoFork", 1_920_000),
            ("eip150", 2_463_000),
            ("eip155", 2_675_000),
            ("eip158", 2_675_000),
            ("byzantium", 4_370_000),
            ("constantinople", 7_280_000),
            ("petersburg", 7_280_000),
            ("istanbul", 9_069_000),
            ("muirGlacier", 9_200_000),
            ("berlin", 12_244_000),
            ("london", 12_965_000),
            ("arrowGlacier", 13_773_000),
            ("grayGlacier", 15_050_000),
        ];
        let by_time = [("shanghai", 1_681_338_455), ("cancun", 1_710_338_135), ("prague", 1_746_612_311)];
        let fork = |name: &str, at| Fork { name: name.to_owned(), at, blobs: BlobSchedule::of_mainnet(name) };
        let by_block = by_block.map(|(name, block)| fork(name, Activation::Block(block)));
        let by_time = by_time.map(|(name, time)| fork(name, Activation::Time(time)));
        let genesis = b256!("d4e56740f876aef8c010b86a40d5f56745a118d0906a34e69aec8c0db1cb8fa3");
        ChainSpec::new(1, genesis, 0, None, [&by_block[..], &by_time].concat()).unwrap()
    }

    #[test]
    fn fork_ids_are_those_of_mainnet() {
        let spec = mainnet();
        let id = |time| fork_id(&spec, time);
        // Gray Glacier, Shanghai, Cancun, Prague, as in EIP-2124 and EIP-6122.
        assert_eq!(id(0), fixed_bytes!("f0afd0e3"));
        assert_eq!(id(1_681_338_455), fixed_bytes!("dce96c2d"));
        assert_eq!(id(1_710_338_134), fixed_bytes!("dce96c2d"));
        assert_eq!(id(1_710_338_135), fixed_bytes!("9f3d2254"));
        assert_eq!(id(1_746_612_311), fixed_bytes!("c376cf8b"));
    }

    #[test]
    fn fork_of_the_first_block_has_no_time() {
        let fork = |time| Fork { name: "shanghai".to_owned(), at: Activation::Time(time), blobs: None };
        let activation = |time| {
            let spec = ChainSpec::new(1, Default::default(), 5, None, vec![fork(time)]).unwrap();
            (ForkConfig::new(&spec, &fork(time)).activation_time, fork_id(&spec, time))
        };
        assert_eq!([activation(3).0, activation(5).0, activation(6).0], [0, 0, 6]);
        // Nor does it change the fork id.
        assert_eq!(activation(3).1, activation(5).1);
        assert_ne!(activation(5).1, activation(6).1);
    }
}
