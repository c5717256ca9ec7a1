//! The work that a chain of headers claims.

use bitcoin::{CompactTarget, Target, block::Header};

/// A sum of work, compared to find the best chain. It saturates: a header can claim anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChainWork {
    high: u128,
    low: u128,
}

impl ChainWork {
    /// What one header claims: nothing if its target is zero, negative or too great, as in Bitcoin Core.
    pub(crate) fn of(header: &Header) -> ChainWork {
        let Some(target) = target(header.bits) else { return ChainWork::default() };
        let bytes = target.to_work().to_be_bytes();
        let (high, low) = bytes.split_at(16);
        let number = |half: &[u8]| half.iter().fold(0, |sum: u128, byte| sum << 8 | u128::from(*byte));
        ChainWork { high: number(high), low: number(low) }
    }

    pub(crate) fn plus(self, other: ChainWork) -> ChainWork {
        let (low, carry) = self.low.overflowing_add(other.low);
        let high = self.high.checked_add(other.high).and_then(|high| high.checked_add(carry.into()));
        match high {
            Some(high) => ChainWork { high, low },
            None => ChainWork { high: u128::MAX, low: u128::MAX },
        }
    }
}

/// Whether a header's hash meets the target the header itself names. No check of proof of work: any target may be named.
pub(crate) fn meets_own_target(header: &Header) -> bool {
    target(header.bits).is_some_and(|target| target.is_met_by(header.block_hash()))
}

/// The target, unless the compact form overflows, which the library does not look at, or is zero or negative.
fn target(bits: CompactTarget) -> Option<Target> {
    let compact = bits.to_consensus();
    let (size, word) = (compact >> 24, compact & 0x7f_ffff);
    let overflows = word != 0 && (size > 34 || word > 0xff && size > 33 || word > 0xffff && size > 32);
    let target = (!overflows && word != 0).then(|| Target::from_compact(bits))?;
    (target != Target::ZERO).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(bits: u32) -> ChainWork {
        let mut header = bitcoin::constants::genesis_block(bitcoin::Network::Bitcoin).header;
        header.bits = CompactTarget::from_consensus(bits);
        ChainWork::of(&header)
    }

    #[test]
    fn work_is_what_bitcoin_core_prints() {
        // `chainwork` of the first blocks of mainnet and regtest.
        assert_eq!(work(0x1d00ffff), ChainWork { high: 0, low: 0x1_0001_0001 });
        assert_eq!(work(0x207fffff), ChainWork { high: 0, low: 2 });
    }

    #[test]
    fn senseless_targets_are_no_work() {
        for bits in [0, 0x1d000000, 0x1d800001, 0xff123456, 0x22000100, 0x23000001, 0x01003456, u32::MAX] {
            assert_eq!(work(bits), ChainWork::default(), "{bits:08x}");
        }
    }

    #[test]
    fn sums_carry_and_saturate() {
        let low = ChainWork { high: 0, low: u128::MAX };
        let one = ChainWork { high: 0, low: 1 };
        let most = ChainWork { high: u128::MAX, low: u128::MAX };
        assert_eq!(low.plus(one), ChainWork { high: 1, low: 0 });
        assert_eq!(most.plus(one), most);
        assert!(low < low.plus(one));
    }
}
