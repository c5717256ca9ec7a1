//! Chance that comes out the same everywhere.

/// A small fast generator (SplitMix64). Its whole state is one number, and no library can change what it gives.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; zero if that is zero.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// A place in something of this length.
    pub(super) fn place(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// A number from `least` to `most`, both included.
    pub(super) fn between(&mut self, least: u32, most: u32) -> u32 {
        least + self.below(u64::from(most.saturating_sub(least)) + 1) as u32
    }

    /// A number from 0 to below 1. Made by exact operations, so it is the same on every machine.
    pub(super) fn fraction(&mut self) -> f64 {
        const STEPS: f64 = (1_u64 << 53) as f64;
        (self.next() >> 11) as f64 / STEPS
    }

    /// Whether something of this probability happens.
    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.fraction() < probability
    }

    /// One of the values, by its share in a hundred.
    pub(super) fn pick(&mut self, table: &[(u64, usize)]) -> usize {
        let mut roll = self.below(100);
        for (share, value) in table {
            if roll < *share {
                return *value;
            }
            roll -= share;
        }
        table.last().map_or(1, |(_, value)| *value)
    }

    pub(super) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        for chunk in bytes.chunks_mut(8) {
            let drawn = self.next().to_be_bytes();
            chunk.iter_mut().zip(drawn).for_each(|(byte, drawn)| *byte = drawn);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_splitmix64() {
        // The first numbers of the reference implementation for the seed 1234567.
        let mut random = Random::new(1_234_567);
        assert_eq!([random.next(), random.next()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn certain_and_impossible_things_are_just_that() {
        let mut random = Random::new(1);
        assert!((0..10_000).all(|_| random.chance(1.0) && !random.chance(0.0)));
        let half = (0..10_000).filter(|_| random.chance(0.5)).count();
        assert!((4_700..5_300).contains(&half), "{half}");
    }

    #[test]
    fn ranges_include_both_ends() {
        let mut random = Random::new(2);
        let drawn: std::collections::BTreeSet<u32> = (0..100).map(|_| random.between(3, 5)).collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [3, 4, 5]);
        assert_eq!(random.between(7, 7), 7);
    }
}
