//! The configuration of a chain, as the archive stores it.

use alloy_primitives::{Address, B256};
use serde::{Deserialize, Serialize};

use super::forks::Fork;

const VERSION: u64 = 1;

/// What is fixed about a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChainSpec {
    version: u64,
    /// The chain id of EIP-155.
    pub chain_id: u64,
    /// The hash of block 0.
    pub genesis_hash: B256,
    /// The Unix timestamp of block 0, in seconds.
    pub genesis_time: u64,
    /// Where validators deposit. `None` if the configuration does not say.
    pub deposit_contract: Option<Address>,
    /// All forks: those by block first, each kind in the order of activation.
    forks: Vec<Fork>,
}

/// Why bytes are not a stored chain configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Not the JSON of one.
    #[error("the stored chain configuration cannot be read: {cause}")]
    Json {
        /// What the parser said.
        cause: String,
    },
    /// A version that this program does not know.
    #[error(
        "the stored chain configuration has version {found}, this program knows {VERSION}: a newer program wrote it, or it is damaged"
    )]
    UnknownVersion {
        /// The version found.
        found: u64,
    },
    /// The same configuration in other words.
    #[error("the stored chain configuration is not as this program writes it")]
    NotCanonical,
    /// A blob schedule that no fee can be computed with.
    #[error(
        "fork {fork}: a blob schedule of {target} of at most {max} blobs with update fraction {fraction} is impossible"
    )]
    BadBlobSchedule {
        /// The fork.
        fork: String,
        /// Its target.
        target: u64,
        /// Its maximum.
        max: u64,
        /// Its update fraction.
        fraction: u64,
    },
}

impl ChainSpec {
    /// Creates a configuration. The order of `forks` does not matter.
    ///
    /// # Errors
    /// A blob schedule that no fee can be computed with.
    pub fn new(
        chain_id: u64,
        genesis_hash: B256,
        genesis_time: u64,
        deposit_contract: Option<Address>,
        mut forks: Vec<Fork>,
    ) -> Result<Self, SpecError> {
        forks.sort_by(|a, b| a.rank().cmp(&b.rank()));
        let spec = Self { version: VERSION, chain_id, genesis_hash, genesis_time, deposit_contract, forks };
        spec.check().map(|()| spec)
    }

    fn check(&self) -> Result<(), SpecError> {
        let mut schedules = self.forks.iter().filter_map(|fork| Some((fork, fork.blobs?)));
        match schedules.find(|(_, blobs)| !blobs.is_valid()) {
            None => Ok(()),
            Some((fork, blobs)) => Err(SpecError::BadBlobSchedule {
                fork: fork.name.clone(),
                target: blobs.target,
                max: blobs.max,
                fraction: blobs.base_fee_update_fraction,
            }),
        }
    }

    /// Encodes the configuration as JSON without white space.
    pub fn encode(&self) -> Vec<u8> {
        // Keys are fixed and values are numbers and texts: there is nothing that JSON could not hold.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Decodes a configuration.
    ///
    /// # Errors
    /// Any bytes that [`encode`](Self::encode) would not write, an unknown version among them.
    pub fn decode(bytes: &[u8]) -> Result<Self, SpecError> {
        #[derive(Deserialize)]
        struct Version {
            version: u64,
        }
        let json = |error: serde_json::Error| SpecError::Json { cause: error.to_string() };
        let Version { version: found } = serde_json::from_slice(bytes).map_err(json)?;
        if found != VERSION {
            return Err(SpecError::UnknownVersion { found });
        }
        let spec: Self = serde_json::from_slice(bytes).map_err(json)?;
        spec.check()?;
        let sorted = spec.forks.is_sorted_by(|a, b| a.rank() < b.rank());
        if sorted && spec.encode() == bytes { Ok(spec) } else { Err(SpecError::NotCanonical) }
    }

    /// Returns all forks: those by block first, each kind in the order of activation.
    pub fn forks(&self) -> &[Fork] {
        &self.forks
    }

    /// Whether the fork of this name is in force for a block.
    pub fn is_active(&self, fork: &str, number: u64, time: u64) -> bool {
        self.forks.iter().any(|known| known.name == fork && known.is_active(number, time))
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, option, prelude::*};

    use super::*;
    use crate::chain::{Activation, BlobSchedule};

    fn example() -> ChainSpec {
        let blobs = BlobSchedule { target: 3, max: 6, base_fee_update_fraction: 3_338_477 };
        let fork = |name: &str, at, blobs| Fork { name: name.to_owned(), at, blobs };
        let forks = vec![
            fork("cancun", Activation::Time(420), Some(blobs)),
            fork("london", Activation::Block(27), None),
            fork("shanghai", Activation::Time(390), None),
        ];
        ChainSpec::new(7, B256::repeat_byte(0xab), 5, Some(Address::repeat_byte(0xcd)), forks).unwrap()
    }

    #[test]
    fn chain_spec_is_encoded_as_documented() {
        let golden = format!(
            r#"{{"version":1,"chainId":7,"genesisHash":"0x{}","genesisTime":5,"depositContract":"0x{}","forks":[{}]}}"#,
            "ab".repeat(32),
            "cd".repeat(20),
            [
                r#"{"name":"london","at":{"block":27}}"#,
                r#"{"name":"shanghai","at":{"time":390}}"#,
                r#"{"name":"cancun","at":{"time":420},"blobs":{"target":3,"max":6,"baseFeeUpdateFraction":3338477}}"#,
            ]
            .join(",")
        );
        assert_eq!(String::from_utf8(example().encode()).unwrap(), golden);
        assert_eq!(ChainSpec::decode(golden.as_bytes()), Ok(example()));
        // Fuzzing starts from the same bytes.
        assert_eq!(golden.as_bytes(), include_bytes!("../../../../fuzz/seeds/evm_chain_spec/example"));
    }

    #[test]
    fn damaged_chain_spec_is_refused() {
        let golden = String::from_utf8(example().encode()).unwrap();
        let with = |from: &str, to: &str| {
            assert!(golden.contains(from), "{from}");
            ChainSpec::decode(golden.replacen(from, to, 1).as_bytes())
        };
        assert_eq!(with("\"version\":1", "\"version\":2"), Err(SpecError::UnknownVersion { found: 2 }));
        assert_eq!(with("{\"version\"", " {\"version\""), Err(SpecError::NotCanonical));
        assert!(matches!(with("\"chainId\":7", "\"chainId\":7,\"more\":1"), Err(SpecError::Json { .. })));
        assert!(matches!(with("\"target\":3", "\"target\":7"), Err(SpecError::BadBlobSchedule { .. })));
        assert!(matches!(with(":3338477", ":0"), Err(SpecError::BadBlobSchedule { .. })));
        assert_eq!(with("\"time\":390", "\"time\":421"), Err(SpecError::NotCanonical));
        for end in 0..golden.len() {
            assert!(ChainSpec::decode(&golden.as_bytes()[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn of_two_forks_at_the_same_time_the_later_one_counts() {
        let fork = |name: &str| Fork { name: name.to_owned(), at: Activation::Time(0), blobs: None };
        let forks = ["prague", "zebra", "cancun", "shanghai"].map(fork).to_vec();
        let spec = ChainSpec::new(1, B256::ZERO, 0, None, forks).unwrap();
        let names: Vec<_> = spec.forks().iter().map(|fork| fork.name.as_str()).collect();
        assert_eq!(names, ["shanghai", "cancun", "prague", "zebra"]);
    }

    fn fork() -> impl Strategy<Value = Fork> {
        let at =
            prop_oneof![any::<u64>().prop_map(Activation::Block), any::<u64>().prop_map(Activation::Time)];
        let blobs = (0..9_u64, 1..9_u64, 1..u64::MAX).prop_map(|(target, more, base_fee_update_fraction)| {
            BlobSchedule { target, max: target + more, base_fee_update_fraction }
        });
        ("[a-z]{1,12}", at, option::of(blobs)).prop_map(|(name, at, blobs)| Fork { name, at, blobs })
    }

    proptest! {
        #[test]
        fn chain_spec_round_trips(chain_id: u64, time: u64, hash: [u8; 32], forks in vec(fork(), 0..20)) {
            let mut forks = forks;
            forks.dedup_by(|a, b| a.rank() == b.rank());
            let spec = ChainSpec::new(chain_id, hash.into(), time, None, forks).unwrap();
            prop_assert_eq!(ChainSpec::decode(&spec.encode()), Ok(spec));
        }
    }
}
