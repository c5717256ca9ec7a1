//! The journal of regions that no block refers to any more.
//!
//! **What lives here.** The row that is written in the commit that takes references away, and deleted in the commit
//! that frees the regions.
//!
//! # Correctness
//! While the row is there its regions are in quarantine, so they cannot be given out. It names them itself: nothing
//! that was deleted has to be read to finish the work after a crash.

use sapwood_types::{
    DecodeError, Height,
    codec::{Reader, Writer},
};

use crate::arena::BlobPtr;

const VERSION: u8 = 1;

/// Why a block is no longer there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    Pruned,
    Replaced,
}

/// A journal entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) removal: Removal,
    pub(crate) height: Height,
    pub(crate) pointers: Vec<BlobPtr>,
}

impl Entry {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = Writer::with_capacity(8 + self.pointers.len() * BlobPtr::SIZE);
        to.u8(VERSION);
        to.u8(match self.removal {
            Removal::Pruned => 0,
            Removal::Replaced => 1,
        });
        to.height(self.height);
        to.length(self.pointers.len());
        self.pointers.iter().for_each(|pointer| to.bytes(&pointer.encode()));
        to.finish()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        const WHAT: &str = "journal entry";
        let mut from = Reader::of_slice(bytes);
        from.version(WHAT, VERSION)?;
        let removal = match from.u8("removal")? {
            0 => Removal::Pruned,
            1 => Removal::Replaced,
            value => return Err(DecodeError::UnknownValue { field: "removal", value: value.into() }),
        };
        let height = from.height("height")?;
        let count = from.count("pointers", BlobPtr::SIZE)?;
        let pointers = (0..count).map(|_| BlobPtr::read(&mut from)).collect::<Result<_, _>>()?;
        from.end(WHAT)?;
        Ok(Self { removal, height, pointers })
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn example() -> Entry {
        let pointer = BlobPtr { offset: 1 << 16, len: 5, class: 1 << 16, generation: 2 };
        Entry { removal: Removal::Replaced, height: Height(258), pointers: vec![pointer] }
    }

    #[test]
    fn journal_entry_is_encoded_as_documented() {
        let golden: [&[u8]; 3] = [
            // Version, removal, height, count.
            &[1, 1, 0, 0, 1, 2, 1],
            // Offset.
            &[0, 0, 0, 0, 0, 1, 0, 0],
            // Length, class, generation.
            &[0, 0, 0, 5, 0, 1, 0, 0, 0, 0, 0, 2],
        ];
        assert_eq!(example().encode(), golden.concat());
        assert_eq!(Entry::decode(&golden.concat()), Ok(example()));
        assert_eq!(golden.concat(), include_bytes!("../../../fuzz/seeds/archive_journal/example"));
    }

    #[test]
    fn damaged_journal_entry_is_refused() {
        let bytes = example().encode();
        for end in 0..bytes.len() {
            assert!(Entry::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        assert!(Entry::decode(&[&bytes[..], &[0]].concat()).is_err(), "a byte more");
        for (place, value) in [(0, 2), (1, 2), (6, 2)] {
            let mut bytes = bytes.clone();
            bytes[place] = value;
            assert!(Entry::decode(&bytes).is_err(), "byte {place} is {value}");
        }
    }

    proptest! {
        #[test]
        fn decoded_journal_entry_encodes_to_the_same_bytes(bytes in vec(any::<u8>(), 0..80)) {
            if let Ok(entry) = Entry::decode(&bytes) {
                prop_assert_eq!(entry.encode(), bytes);
            }
        }
    }
}
