//! The root of a block's transactions.

use bitcoin::hashes::{Hash, sha256d};

/// A computed root.
pub(crate) struct Root {
    pub(crate) hash: [u8; 32],
    /// Two neighbours on some level were equal. A list of transactions with its end repeated then has the same root as
    /// the list without (CVE-2012-2459), so the root proves nothing.
    pub(crate) ambiguous: bool,
}

/// The root over transaction ids in wire order, as Bitcoin Core's `ComputeMerkleRoot`.
pub(crate) fn root(mut level: Vec<[u8; 32]>) -> Root {
    let mut ambiguous = false;
    while level.len() > 1 {
        ambiguous |= level.as_chunks::<2>().0.iter().any(|[left, right]| left == right);
        level = level
            .chunks(2)
            .map(|pair| {
                let mut both = [0; 64];
                let (left, right) = both.split_at_mut(32);
                // An odd one out is paired with itself.
                for (half, hash) in [left, right].into_iter().zip(pair.iter().chain(pair)) {
                    half.copy_from_slice(hash);
                }
                sha256d::Hash::hash(&both).to_byte_array()
            })
            .collect();
    }
    Root { hash: level.pop().unwrap_or_default(), ambiguous }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_end_gives_the_same_root_and_is_noticed() {
        let ids: Vec<[u8; 32]> = (1..=6).map(|n| [n; 32]).collect();
        let honest = root(ids.clone());
        assert!(!honest.ambiguous);
        let repeated = root(ids.iter().chain(&ids[4..]).copied().collect());
        assert_eq!(repeated.hash, honest.hash);
        assert!(repeated.ambiguous);
    }

    #[test]
    fn one_transaction_is_its_own_root() {
        assert_eq!(root(vec![[7; 32]]).hash, [7; 32]);
        assert_eq!(root(Vec::new()).hash, [0; 32]);
    }
}
