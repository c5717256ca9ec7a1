//! Forks: names, and when they are active.
//!
//! # Correctness
//! No list of forks is built in: every `…Block` and `…Time` of a genesis configuration is one, as in go-ethereum, so a fork that this
//! program has never heard of still counts where only the order matters. Names matter to break ties and for what a block of genesis has.

use serde::{Deserialize, Serialize};

/// A change of the rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fork {
    /// Its name in a genesis configuration, without `Block` or `Time`.
    pub name: String,
    /// When it comes into force.
    pub at: Activation,
    /// How many blobs a block has from then on. `None` if the fork does not change that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blobs: Option<BlobSchedule>,
}

/// When a fork comes into force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Activation {
    /// With the block of this number.
    Block(u64),
    /// With the first block whose Unix timestamp is at least this.
    Time(u64),
}

/// The blobs of a block and how their price moves (EIP-7840).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BlobSchedule {
    /// How many blobs leave the price as it is.
    pub target: u64,
    /// How many blobs fit.
    pub max: u64,
    /// The greater, the slower the price moves.
    pub base_fee_update_fraction: u64,
}

impl BlobSchedule {
    /// Far above any real schedule, far below what overflows when it is multiplied by the gas of a blob.
    const MOST: u64 = 1 << 20;

    /// Whether fees can be computed with it.
    pub(crate) fn is_valid(&self) -> bool {
        self.base_fee_update_fraction > 0 && self.target <= self.max && (1..=Self::MOST).contains(&self.max)
    }

    /// Returns the schedule of Ethereum's mainnet for a fork, which configurations from before EIP-7840 leave out.
    pub(crate) fn of_mainnet(fork: &str) -> Option<Self> {
        match fork {
            "cancun" => Some(Self { target: 3, max: 6, base_fee_update_fraction: 3_338_477 }),
            "prague" | "osaka" => Some(Self { target: 6, max: 9, base_fee_update_fraction: 5_007_716 }),
            _ => None,
        }
    }
}

/// Forks by time in the order in which they were made: of two that are active from the same second on, the later one counts.
const BY_TIME: [&str; 11] =
    ["shanghai", "cancun", "prague", "osaka", "bpo1", "bpo2", "bpo3", "bpo4", "bpo5", "amsterdam", "verkle"];

impl Fork {
    /// What forks are sorted by.
    pub(crate) fn rank(&self) -> (Activation, usize, &str) {
        let known = BY_TIME.iter().position(|name| *name == self.name);
        (self.at, known.unwrap_or(BY_TIME.len()), &self.name)
    }

    /// Whether the fork is in force for a block.
    pub fn is_active(&self, number: u64, time: u64) -> bool {
        match self.at {
            Activation::Block(block) => block <= number,
            Activation::Time(from) => from <= time,
        }
    }
}
