//! The state of a region, as the allocation table has it.

use sapwood_types::{DecodeError, codec::Reader};

/// Who may use a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionState {
    /// A block refers to it.
    Used,
    /// No block refers to it any more, but a reader may still read it or its journal entry is still there.
    Quarantine,
    /// It can be used again.
    Free {
        /// Whether its disk space was given back to the file system.
        punched: bool,
    },
}

/// An entry of the allocation table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Who may use it.
    pub state: RegionState,
    /// Its size in bytes.
    pub class: u32,
    /// How often it was given to an owner.
    pub generation: u32,
}

const USED: u8 = 1;
const QUARANTINE: u8 = 2;
const FREE: u8 = 3;
const FREE_PUNCHED: u8 = 4;

impl Region {
    pub(crate) fn encode(&self) -> [u8; 9] {
        let state = match self.state {
            RegionState::Used => USED,
            RegionState::Quarantine => QUARANTINE,
            RegionState::Free { punched: false } => FREE,
            RegionState::Free { punched: true } => FREE_PUNCHED,
        };
        let mut bytes = [state; 9];
        bytes[1..5].copy_from_slice(&self.class.to_be_bytes());
        bytes[5..].copy_from_slice(&self.generation.to_be_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        const WHAT: &str = "region";
        let mut from = Reader::of_slice(bytes);
        // A state that means nothing must not pass for free: the region would be written over.
        let state = match from.u8("region state")? {
            USED => RegionState::Used,
            QUARANTINE => RegionState::Quarantine,
            FREE => RegionState::Free { punched: false },
            FREE_PUNCHED => RegionState::Free { punched: true },
            value => return Err(DecodeError::UnknownValue { field: "region state", value: value.into() }),
        };
        let region = Self { state, class: from.u32("size class")?, generation: from.u32("generation")? };
        from.end(WHAT)?;
        match region {
            Region { class: 0, .. } => {
                Err(DecodeError::Inconsistent { what: WHAT, problem: "its size is 0" })
            }
            Region { generation: 0, .. } => {
                Err(DecodeError::Inconsistent { what: WHAT, problem: "generation 0 is never used" })
            }
            region => Ok(region),
        }
    }

    pub(crate) fn is_free(&self) -> bool {
        matches!(self.state, RegionState::Free { .. })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn region_is_encoded_as_documented() {
        for (byte, state) in [
            (1, RegionState::Used),
            (2, RegionState::Quarantine),
            (3, RegionState::Free { punched: false }),
            (4, RegionState::Free { punched: true }),
        ] {
            let region = Region { state, class: 0x1_0000, generation: 258 };
            let golden = [byte, 0, 1, 0, 0, 0, 0, 1, 2];
            assert_eq!(region.encode(), golden);
            assert_eq!(Region::decode(&golden[..]), Ok(region));
        }
    }

    #[test]
    fn unknown_state_fails_closed() {
        for state in (0..=u8::MAX).filter(|state| !(1..=4).contains(state)) {
            let found = Region::decode(&[state, 0, 1, 0, 0, 0, 0, 0, 1][..]);
            let unknown = DecodeError::UnknownValue { field: "region state", value: state.into() };
            assert_eq!(found, Err(unknown));
        }
    }

    proptest! {
        #[test]
        fn decoded_region_encodes_to_the_same_bytes(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            if let Ok(region) = Region::decode(&bytes[..]) {
                prop_assert_eq!(&region.encode()[..], bytes);
            }
        }
    }
}
