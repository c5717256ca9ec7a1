//! The segment `tx_index` of an EVM block: who sent which transaction.
//!
//! What lives here: the byte format, version 1, described in `docs/formats.md`. Where a transaction hash is found is the archive's.
//!
//! # Correctness
//! Entries stand in the order of the block, so an entry's place is the transaction's index. A value has one encoding.

use alloy_primitives::{Address, B256};
use bytes::Bytes;
use sapwood_types::{
    DecodeError,
    codec::{Reader, Writer},
};

const VERSION: u8 = 1;
const WHAT: &str = "EVM transaction index";
/// A hash and an address.
const ENTRY: usize = 32 + 20;

/// The transactions of one block, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxIndex {
    /// An entry for each transaction.
    pub entries: Vec<TxEntry>,
}

/// One transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxEntry {
    /// The hash of its EIP-2718 bytes.
    pub hash: B256,
    /// The address that signed it.
    pub sender: Address,
}

impl TxIndex {
    /// Encodes the index.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::with_capacity(1 + 10 + self.entries.len() * ENTRY);
        to.u8(VERSION);
        to.length(self.entries.len());
        for entry in &self.entries {
            to.bytes(entry.hash.as_slice());
            to.bytes(entry.sender.as_slice());
        }
        to.finish()
    }

    /// Decodes an index.
    ///
    /// # Errors
    /// Any byte that [`encode`](Self::encode) would not write: an unknown version, a count that is not in its shortest form or not that of
    /// the entries.
    pub fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        let mut from = Reader::of_slice(bytes);
        from.version(WHAT, VERSION)?;
        let count = from.varint("transaction count")?;
        let needed = usize::try_from(count).ok().and_then(|count| count.checked_mul(ENTRY));
        let left = from.left();
        let needed = needed.filter(|needed| *needed <= left).ok_or(DecodeError::Truncated {
            field: "transactions",
            needed: needed.unwrap_or(usize::MAX),
            left,
        })?;
        let mut entries = Vec::with_capacity(needed / ENTRY);
        for _ in 0..needed / ENTRY {
            let hash = from.array("transaction hash").map(B256::new)?;
            let sender = from.array("sender").map(Address::new)?;
            entries.push(TxEntry { hash, sender });
        }
        from.end(WHAT)?;
        Ok(Self { entries })
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn example() -> TxIndex {
        let entry =
            |hash, sender| TxEntry { hash: B256::repeat_byte(hash), sender: Address::repeat_byte(sender) };
        TxIndex { entries: vec![entry(0xa1, 0xb1), entry(0xa2, 0xb2)] }
    }

    #[test]
    fn index_is_encoded_as_documented() {
        let golden: [&[u8]; 6] = [&[1], &[2], &[0xa1; 32], &[0xb1; 20], &[0xa2; 32], &[0xb2; 20]];
        let golden = Bytes::from(golden.concat());
        assert_eq!(example().encode(), golden);
        assert_eq!(TxIndex::decode(&golden), Ok(example()));
        assert_eq!(TxIndex::default().encode(), [1, 0]);
        // Fuzzing starts from the same bytes.
        assert_eq!(golden, &include_bytes!("../../../fuzz/seeds/evm_tx_index/example")[..]);
    }

    #[test]
    fn damaged_index_is_refused() {
        let bytes = Bytes::from(example().encode());
        for end in 0..bytes.len() {
            assert!(TxIndex::decode(&bytes.slice(..end)).is_err(), "cut at {end}");
        }
        assert_eq!(
            TxIndex::decode(&[&bytes[..], &[0]].concat().into()),
            Err(DecodeError::TrailingBytes { what: WHAT, left: 1 })
        );
        assert_eq!(
            TxIndex::decode(&[&[2], &bytes[1..]].concat().into()),
            Err(DecodeError::UnknownVersion { what: WHAT, found: 2, known: 1 })
        );
        // A count that nothing backs allocates nothing.
        let huge = [1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert!(TxIndex::decode(&huge.to_vec().into()).is_err());
    }

    proptest! {
        #[test]
        fn index_round_trips(entries in vec(any::<([u8; 32], [u8; 20])>(), 0..300)) {
            let entries = entries.into_iter().map(|(hash, sender)| TxEntry { hash: hash.into(), sender: sender.into() });
            let index = TxIndex { entries: entries.collect() };
            prop_assert_eq!(TxIndex::decode(&index.encode().into()), Ok(index));
        }
    }
}
