//! Fees that follow from a header and the chain's forks.
//!
//! # Correctness
//! Headers come from outside and consensus rules are not checked on the way in, so no header, however absurd, may make this panic.

use alloy_consensus::Header;
use alloy_eips::{eip4844::DATA_GAS_PER_BLOB, eip7840::BlobParams};

use super::{ChainSpec, genesis::INITIAL_BASE_FEE};

impl ChainSpec {
    /// Returns the base fee of the block after this one, in wei. `None` before London.
    pub fn next_base_fee(&self, header: &Header) -> Option<u64> {
        if !self.is_active("london", header.number.saturating_add(1), header.timestamp) {
            return None;
        }
        let Some(base_fee) = header.base_fee_per_gas else { return Some(INITIAL_BASE_FEE) };
        let target = header.gas_limit / 2;
        if target == 0 {
            return Some(base_fee);
        }
        let change =
            u128::from(base_fee) * u128::from(header.gas_used.abs_diff(target)) / u128::from(target) / 8;
        let change = u64::try_from(change).unwrap_or(u64::MAX);
        Some(match header.gas_used.cmp(&target) {
            std::cmp::Ordering::Equal => base_fee,
            std::cmp::Ordering::Greater => base_fee.saturating_add(change.max(1)),
            std::cmp::Ordering::Less => base_fee.saturating_sub(change),
        })
    }

    /// Returns how blobs are priced and limited at a Unix timestamp. `None` before Cancun.
    pub fn blob_params(&self, time: u64) -> Option<BlobParams> {
        let active = self.forks().iter().filter(|fork| fork.is_active(u64::MAX, time));
        let blobs = active.filter_map(|fork| fork.blobs).next_back()?;
        let params =
            if self.is_active("osaka", u64::MAX, time) { BlobParams::osaka() } else { BlobParams::cancun() };
        Some(BlobParams {
            target_blob_count: blobs.target,
            max_blob_count: blobs.max,
            update_fraction: blobs.base_fee_update_fraction.into(),
            ..params
        })
    }

    /// Returns the price of blob gas in a block, in wei. `None` before Cancun.
    pub fn blob_fee(&self, header: &Header) -> Option<u128> {
        Some(self.blob_params(header.timestamp)?.calc_blob_fee(header.excess_blob_gas?))
    }

    /// Returns the price of blob gas in the block after this one, in wei, if that has the blob schedule of this one. `None` before Cancun.
    pub fn next_blob_fee(&self, header: &Header) -> Option<u128> {
        let params = self.blob_params(header.timestamp)?;
        let (excess, used) = (header.excess_blob_gas?, header.blob_gas_used?);
        // More gas than the blobs that fit: alloy multiplies by their number.
        if excess.checked_add(used).is_none()
            || used > params.max_blob_count.saturating_mul(DATA_GAS_PER_BLOB)
        {
            return Some(u128::MAX);
        }
        let next =
            params.next_block_excess_blob_gas_osaka(excess, used, header.base_fee_per_gas.unwrap_or(0));
        Some(params.calc_blob_fee(next))
    }
}

#[cfg(test)]
mod tests {
    use alloy_primitives::B256;
    use proptest::prelude::*;

    use super::*;
    use crate::chain::{Activation, BlobSchedule, Fork};

    fn spec() -> ChainSpec {
        let fork = |name: &str, at, blobs| Fork { name: name.to_owned(), at, blobs };
        let forks = vec![
            fork("london", Activation::Block(10), None),
            fork("cancun", Activation::Time(100), BlobSchedule::of_mainnet("cancun")),
            fork("osaka", Activation::Time(200), BlobSchedule::of_mainnet("osaka")),
        ];
        ChainSpec::new(1, B256::ZERO, 0, None, forks).unwrap()
    }

    #[test]
    fn base_fee_begins_with_london() {
        let header = |number| Header { number, gas_limit: 100, ..Header::default() };
        assert_eq!(spec().next_base_fee(&header(8)), None);
        assert_eq!(spec().next_base_fee(&header(9)), Some(INITIAL_BASE_FEE));
    }

    #[test]
    fn base_fee_moves_an_eighth_at_most() {
        let header = |gas_used| Header {
            number: 20,
            gas_limit: 200,
            gas_used,
            base_fee_per_gas: Some(800),
            ..Header::default()
        };
        let next = [0, 50, 100, 101, 150, 200].map(|used| spec().next_base_fee(&header(used)));
        assert_eq!(next, [700, 750, 800, 801, 850, 900].map(Some));
    }

    #[test]
    fn blob_schedule_follows_the_clock() {
        let max =
            |time| spec().blob_params(time).map(|params| (params.max_blob_count, params.blob_base_cost));
        assert_eq!(
            [max(99), max(100), max(199), max(200)],
            [None, Some((6, 0)), Some((6, 0)), Some((9, 8192))]
        );
    }

    proptest! {
        #[test]
        fn fees_of_absurd_headers_do_not_panic(
            number: u64, timestamp: u64, gas_limit: u64, gas_used: u64,
            base_fee_per_gas: Option<u64>, excess_blob_gas: Option<u64>, blob_gas_used: Option<u64>,
        ) {
            let header = Header {
                number, timestamp, gas_limit, gas_used, base_fee_per_gas, excess_blob_gas, blob_gas_used, ..Header::default()
            };
            let spec = spec();
            prop_assert_eq!(spec.next_base_fee(&header).is_some(), number >= 9);
            spec.blob_fee(&header);
            spec.next_blob_fee(&header);
        }
    }
}
