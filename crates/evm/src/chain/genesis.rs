//! Block 0, computed from a `genesis.json` of go-ethereum.

use alloy_consensus::{Header, constants::EMPTY_OMMER_ROOT_HASH};
use alloy_eips::eip7685::EMPTY_REQUESTS_HASH;
use alloy_primitives::{Address, B64, B256, keccak256};
use alloy_trie::{EMPTY_ROOT_HASH, root::state_root_ref_unhashed};
use bytes::Bytes;
use serde_json::{Map, Value};

use super::{
    forks::{Activation, BlobSchedule, Fork},
    spec::{ChainSpec, SpecError},
};
use crate::{check::CheckedBlock, rlp, tx_index::TxIndex};

/// The base fee of the first block with one, in wei.
pub(crate) const INITIAL_BASE_FEE: u64 = 1_000_000_000;

/// A chain's configuration and its first block.
#[derive(Clone, Debug)]
pub struct Genesis {
    /// The configuration.
    pub spec: ChainSpec,
    /// Block 0.
    pub block: CheckedBlock,
}

/// Why a genesis file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GenesisError {
    /// Not the JSON of one.
    #[error("not a genesis file: {cause}")]
    Json {
        /// What the parser said.
        cause: String,
    },
    /// Something that must be there is not.
    #[error("the genesis file has no {field}: take the one that the chain was started with")]
    Missing {
        /// Where it should be.
        field: &'static str,
    },
    /// A number that is none.
    #[error("config.{field} is {value}, which is not a block number, timestamp or id")]
    NotANumber {
        /// The key.
        field: String,
        /// What is there.
        value: String,
    },
    /// The first block is not block 0.
    #[error(
        "the genesis block has the number {found}; chains that do not begin at block 0 are not supported"
    )]
    NotZero {
        /// The number.
        found: u64,
    },
    /// A base fee beyond 64 bits.
    #[error("the base fee {found} of the genesis block does not fit into 64 bits")]
    BaseFee {
        /// The base fee.
        found: u128,
    },
    /// A fork is in force in block 0, but not the one before it.
    #[error("config has {fork} in force in block 0, but not {before}, on which it builds")]
    ForkOrder {
        /// The fork.
        fork: &'static str,
        /// The fork before it.
        before: &'static str,
    },
    /// The configuration makes no sense.
    #[error(transparent)]
    Spec(#[from] SpecError),
}

impl Genesis {
    /// Reads a `genesis.json` and computes block 0 from it.
    ///
    /// # Errors
    /// JSON of another shape, no configuration or chain id, a fork or blob schedule that is none.
    pub fn parse(json: &[u8]) -> Result<Self, GenesisError> {
        let bad = |error: serde_json::Error| GenesisError::Json { cause: error.to_string() };
        let mut file: Map<String, Value> = serde_json::from_slice(json).map_err(bad)?;
        // The configuration is read here: alloy would drop forks that it does not know.
        let Some(Value::Object(config)) = file.remove("config") else {
            return Err(GenesisError::Missing { field: "config" });
        };
        let genesis: alloy_genesis::Genesis = serde_json::from_value(file.into()).map_err(bad)?;
        let chain_id = config.get("chainId").ok_or(GenesisError::Missing { field: "config.chainId" })?;
        let chain_id = number("chainId", chain_id)?;
        let deposit_contract = match config.get("depositContractAddress") {
            None | Some(Value::Null) => None,
            Some(address) => Some(serde_json::from_value::<Address>(address.clone()).map_err(bad)?),
        };
        let forks = forks(&config)?;
        // The hash is known once the header is.
        let mut spec = ChainSpec::new(chain_id, B256::ZERO, genesis.timestamp, deposit_contract, forks)?;
        let header = header(&genesis, &spec)?;
        let header_rlp = alloy_rlp::encode(&header);
        spec.genesis_hash = keccak256(&header_rlp);
        let lists: &[u8] = if header.withdrawals_root.is_some() { &[0xc0; 3] } else { &[0xc0; 2] };
        let block = CheckedBlock {
            number: 0,
            hash: spec.genesis_hash,
            parent_hash: header.parent_hash,
            timestamp: header.timestamp,
            block: rlp::wrap_list(&[&header_rlp, lists]).into(),
            receipts: Some(Bytes::from_static(&[0xc0])),
            tx_index: TxIndex::default(),
        };
        Ok(Self { spec, block })
    }
}

/// Every `…Block` and `…Time` of the configuration is a fork.
fn forks(config: &Map<String, Value>) -> Result<Vec<Fork>, GenesisError> {
    let schedules = match config.get("blobSchedule") {
        Some(Value::Object(schedules)) => schedules.clone(),
        _ => Map::new(),
    };
    let mut forks = Vec::new();
    for (key, value) in config.iter().filter(|(_, value)| !value.is_null()) {
        let (name, at) = if let Some(name) = key.strip_suffix("Block") {
            (name, Activation::Block(number(key, value)?))
        } else if let Some(name) = key.strip_suffix("Time") {
            (name, Activation::Time(number(key, value)?))
        } else {
            continue;
        };
        let blobs = match schedules.get(name) {
            Some(schedule) => Some(
                serde_json::from_value::<BlobSchedule>(schedule.clone())
                    .map_err(|error| GenesisError::Json { cause: format!("blobSchedule.{name}: {error}") })?,
            ),
            None => BlobSchedule::of_mainnet(name),
        };
        forks.push(Fork { name: name.to_owned(), at, blobs });
    }
    Ok(forks)
}

fn number(field: &str, value: &Value) -> Result<u64, GenesisError> {
    let found = match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        },
        _ => None,
    };
    found.ok_or_else(|| GenesisError::NotANumber { field: field.to_owned(), value: value.to_string() })
}

/// The header of block 0, with the fields that its forks call for.
fn header(genesis: &alloy_genesis::Genesis, spec: &ChainSpec) -> Result<Header, GenesisError> {
    let number = genesis.number.unwrap_or(0);
    if number != 0 {
        return Err(GenesisError::NotZero { found: number });
    }
    let active = |fork| spec.is_active(fork, 0, genesis.timestamp);
    // Each of them appends to the header: without the one before the fields after it would be taken for others.
    for pair in ["london", "shanghai", "cancun", "prague", "amsterdam"].windows(2) {
        if let [before, fork] = *pair
            && active(fork)
            && !active(before)
        {
            return Err(GenesisError::ForkOrder { fork, before });
        }
    }
    let base_fee = genesis.base_fee_per_gas.unwrap_or(INITIAL_BASE_FEE.into());
    let base_fee = u64::try_from(base_fee).map_err(|_| GenesisError::BaseFee { found: base_fee })?;
    Ok(Header {
        parent_hash: genesis.parent_hash.unwrap_or_default(),
        ommers_hash: EMPTY_OMMER_ROOT_HASH,
        beneficiary: genesis.coinbase,
        state_root: state_root_ref_unhashed(&genesis.alloc),
        transactions_root: EMPTY_ROOT_HASH,
        receipts_root: EMPTY_ROOT_HASH,
        difficulty: genesis.difficulty,
        gas_limit: genesis.gas_limit,
        timestamp: genesis.timestamp,
        extra_data: genesis.extra_data.clone(),
        mix_hash: genesis.mix_hash,
        nonce: B64::from(genesis.nonce),
        base_fee_per_gas: active("london").then_some(base_fee),
        withdrawals_root: active("shanghai").then_some(EMPTY_ROOT_HASH),
        blob_gas_used: active("cancun").then(|| genesis.blob_gas_used.unwrap_or(0)),
        excess_blob_gas: active("cancun").then(|| genesis.excess_blob_gas.unwrap_or(0)),
        parent_beacon_block_root: active("cancun").then_some(B256::ZERO),
        requests_hash: active("prague").then_some(EMPTY_REQUESTS_HASH),
        // The hash of an empty list.
        block_access_list_hash: active("amsterdam").then_some(EMPTY_OMMER_ROOT_HASH),
        slot_number: active("amsterdam").then(|| genesis.slot_number.unwrap_or(0)),
        ..Header::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(config: &str, rest: &str) -> Result<Genesis, GenesisError> {
        let zeros = |digits| format!("0x{}", "0".repeat(digits));
        let file = format!(
            r#"{{ "config": {config}, "nonce": "0x42", "timestamp": "0x5", "extraData": "0x01", "gasLimit": "0x1000", "difficulty": "0x7",
                "mixHash": "{}", "coinbase": "{}", "alloc": {{}} {rest} }}"#,
            zeros(64),
            zeros(40)
        );
        Genesis::parse(file.as_bytes())
    }

    #[test]
    fn every_block_and_time_of_the_configuration_is_a_fork() {
        let config = r#"{ "chainId": "0x10", "londonBlock": 5, "daoForkBlock": "7", "newTime": "0xff", "offTime": null, "ethash": {},
            "terminalTotalDifficulty": 58750000000000000000000, "depositContractAddress": "0x00000000219ab540356cbb839cbe05303d7705fa" }"#;
        let spec = parse(config, "").unwrap().spec;
        let forks: Vec<_> = spec.forks().iter().map(|fork| (fork.name.as_str(), fork.at)).collect();
        let expected = [
            ("london", Activation::Block(5)),
            ("daoFork", Activation::Block(7)),
            ("new", Activation::Time(255)),
        ];
        assert_eq!((spec.chain_id, forks), (16, expected.to_vec()));
        assert!(spec.deposit_contract.is_some());
    }

    #[test]
    fn blob_schedules_belong_to_their_forks() {
        let config = r#"{ "chainId": 1, "cancunTime": 100, "bpo1Time": 200, "unusedBlock": 1,
            "blobSchedule": { "bpo1": { "target": 1, "max": 2, "baseFeeUpdateFraction": 3 }, "later": {} } }"#;
        let spec = parse(config, "").unwrap().spec;
        let blobs =
            |time| spec.blob_params(time).map(|params| (params.target_blob_count, params.max_blob_count));
        // Cancun has no schedule of its own here: that of mainnet.
        assert_eq!([blobs(99), blobs(100), blobs(200)], [None, Some((3, 6)), Some((1, 2))]);
    }

    #[test]
    fn unusable_genesis_is_refused() {
        let refused = |config: &str, rest: &str| parse(config, rest).unwrap_err();
        assert_eq!(Genesis::parse(b"{}").unwrap_err(), GenesisError::Missing { field: "config" });
        assert_eq!(refused("{}", ""), GenesisError::Missing { field: "config.chainId" });
        let number =
            |value: &str| GenesisError::NotANumber { field: "xTime".to_owned(), value: value.to_owned() };
        assert_eq!(refused(r#"{ "chainId": 1, "xTime": "soon" }"#, ""), number("\"soon\""));
        assert_eq!(refused(r#"{ "chainId": 1, "xTime": -1 }"#, ""), number("-1"));
        let order = GenesisError::ForkOrder { fork: "shanghai", before: "london" };
        assert_eq!(refused(r#"{ "chainId": 1, "shanghaiTime": 0 }"#, ""), order);
        assert_eq!(
            refused(r#"{ "chainId": 1 }"#, r#", "number": "0x3""#),
            GenesisError::NotZero { found: 3 }
        );
        let blobs = r#"{ "chainId": 1, "aTime": 0, "blobSchedule": { "a": { "target": 3, "max": 0, "baseFeeUpdateFraction": 1 } } }"#;
        assert!(matches!(refused(blobs, ""), GenesisError::Spec(SpecError::BadBlobSchedule { .. })));
        assert!(matches!(refused("{\"chainId\": 1", ""), GenesisError::Json { .. }));
    }
}
