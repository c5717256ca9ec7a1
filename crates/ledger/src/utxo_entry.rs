//! How the figures of the UTXO set are written. Described byte by byte in `docs/formats.md`.

use crate::UtxoSet;
use bytes::Bytes;
use sapwood_muhash::MuHash;
use sapwood_types::{
    DecodeError,
    codec::{Reader, Writer},
};

const VERSION: u8 = 1;

/// The bytes of the entry. Which block it is for stands in the store's state. Nothing of a set without its hash: none is kept.
pub(crate) fn encode(set: &UtxoSet) -> Option<Vec<u8>> {
    let hash = set.hash.as_ref()?;
    let mut to = Writer::with_capacity(64 + MuHash::STATE_LEN);
    to.u8(VERSION);
    to.varint(set.coins);
    to.varint(set.transactions);
    to.bytes(&set.amount.to_be_bytes());
    to.bytes(&hash.to_bytes());
    Some(to.finish())
}

/// What the bytes of the entry say.
pub(crate) fn decode(bytes: Bytes) -> Result<UtxoSet, DecodeError> {
    const WHAT: &str = "UTXO set";
    let mut from = Reader::new(bytes);
    from.version(WHAT, VERSION)?;
    let (coins, transactions) = (from.varint("coins")?, from.varint("transactions")?);
    let amount = u128::from_be_bytes(from.array("amount")?);
    let hash: [u8; MuHash::STATE_LEN] = from.array("hash")?;
    from.end(WHAT)?;
    let damaged = |_| DecodeError::Inconsistent { what: WHAT, problem: "its hash cannot be read" };
    let hash = Some(MuHash::from_bytes(&hash).map_err(damaged)?);
    Ok(UtxoSet { last: None, coins, transactions, amount, hash })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_set() -> UtxoSet {
        let mut hash = MuHash::new();
        hash.insert(b"a coin that stays");
        hash.insert(b"a coin that goes");
        hash.remove(b"a coin that goes");
        UtxoSet { coins: 300, transactions: 2, amount: 1 << 64 | 7, hash: Some(hash), last: None }
    }

    fn encoded(set: &UtxoSet) -> Vec<u8> {
        encode(set).unwrap_or_default()
    }

    #[test]
    fn the_entry_is_written_as_documented() {
        let figures: [&[u8]; 4] = [&[1], &[0xac, 2], &[2], &[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7]];
        let hash = a_set().hash.map(|hash| hash.to_bytes().to_vec()).unwrap_or_default();
        assert_eq!(hash.len(), 769);
        assert_eq!(encoded(&a_set()), [&figures.concat()[..], &hash].concat());
        // A set nothing was ever put into: numerator and denominator are one.
        let one = [&[1][..], &[0; 383]].concat();
        assert_eq!(encoded(&UtxoSet::empty(true)), [&[1, 0, 0][..], &[0; 16], &[1], &one, &one].concat());
        assert_eq!(encode(&UtxoSet::empty(false)), None);
        // Fuzzing starts from the same bytes.
        assert_eq!(encoded(&a_set()), include_bytes!("../../../fuzz/seeds/utxo_entry/figures"));
        assert_eq!(encoded(&UtxoSet::empty(true)), include_bytes!("../../../fuzz/seeds/utxo_entry/empty"));
    }

    #[test]
    fn the_entry_survives_and_damage_is_noticed() {
        for set in [UtxoSet::empty(true), a_set()] {
            let bytes = encoded(&set);
            assert_eq!(decode(Bytes::from(bytes.clone())), Ok(set));
            for end in 0..bytes.len() {
                assert!(decode(Bytes::copy_from_slice(&bytes[..end])).is_err(), "cut at {end}");
            }
            assert!(decode(Bytes::from([&bytes[..], &[0]].concat())).is_err(), "a byte more");
        }
        let changed = |places: std::ops::Range<usize>, value: u8| {
            let mut bytes = encoded(&a_set());
            bytes[places].fill(value);
            decode(Bytes::from(bytes))
        };
        let version = DecodeError::UnknownVersion { what: "UTXO set", found: 2, known: 1 };
        assert_eq!(changed(0..1, 2), Err(version));
        assert!(changed(20..21, 2).is_err(), "a hash of another version");
        // No sequence of updates gives zero, or a number from the modulus on.
        for number in [21..405, 405..789] {
            assert!(changed(number.clone(), 0).is_err(), "{number:?} is zero");
            assert!(changed(number.clone(), 0xff).is_err(), "{number:?} is too great");
        }
    }
}
