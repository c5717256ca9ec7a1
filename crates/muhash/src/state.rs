//! The stored form of a [`MuHash`].
//!
//! | bytes | what |
//! |---|---|
//! | 0 | version, 1 |
//! | 1..385 | numerator |
//! | 385..769 | denominator |
//!
//! Both numbers are little-endian and lie in 1..p. Little-endian, unlike other records of this project, because that is
//! how MuHash itself and Bitcoin Core's coin statistics index write them: the bytes can be compared directly.

use std::array;
use std::fmt;

use thiserror::Error;

use crate::MuHash;
use crate::num::{LIMBS, Num};

const VERSION: u8 = 1;

impl MuHash {
    /// Length of the stored form.
    pub const STATE_LEN: usize = 1 + 2 * 8 * LIMBS;

    /// The stored form: a version byte, numerator, denominator (both 384 bytes, little-endian).
    ///
    /// It remembers how the set came about, so equal sets may have different bytes. Compare values or digests instead.
    pub fn to_bytes(&self) -> [u8; Self::STATE_LEN] {
        let mut out = [VERSION; Self::STATE_LEN];
        let limbs = self.numerator.limbs().iter().chain(self.denominator.limbs());
        for (word, limb) in out[1..].as_chunks_mut().0.iter_mut().zip(limbs) {
            *word = limb.to_le_bytes();
        }
        out
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote.
    ///
    /// # Errors
    ///
    /// An unknown version, a wrong length, or a number that no sequence of updates can give.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, StateError> {
        // The version first: another version may well have another length.
        match bytes.first() {
            Some(&VERSION) | None => {}
            Some(&found) => return Err(StateError::Version { found }),
        }
        if bytes.len() != Self::STATE_LEN {
            return Err(StateError::Length { found: bytes.len() });
        }
        let (numerator, denominator) = bytes[1..].as_chunks().0.split_at(LIMBS);
        Ok(Self {
            numerator: number(numerator, Part::Numerator)?,
            denominator: number(denominator, Part::Denominator)?,
        })
    }
}

fn number(words: &[[u8; 8]], part: Part) -> Result<Num, StateError> {
    let limbs = array::from_fn(|i| u64::from_le_bytes(words[i]));
    Num::in_range(limbs).ok_or(StateError::OutOfRange { part })
}

/// Why stored bytes are not a [`MuHash`].
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum StateError {
    /// Not as long as this version's form.
    #[error(
        "a stored MuHash has {} bytes, not {found}; the record is damaged or of another kind, rebuild it from the set",
        MuHash::STATE_LEN
    )]
    Length {
        /// How many bytes there were.
        found: usize,
    },
    /// Written by a program that knows a newer form, or not a MuHash.
    #[error(
        "stored MuHash has version {found}, this program reads version {VERSION}; a newer program wrote it"
    )]
    Version {
        /// The version byte.
        found: u8,
    },
    /// Zero would swallow every later update, and numbers from p on have a smaller form: neither is ever written.
    #[error(
        "the {part} of a stored MuHash is not in 1..2^3072-1103717; the record is damaged, rebuild it from the set"
    )]
    OutOfRange {
        /// Which of the two numbers.
        part: Part,
    },
}

/// One of the two numbers of a stored [`MuHash`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// What was inserted.
    Numerator,
    /// What was removed.
    Denominator,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Numerator => "numerator",
            Self::Denominator => "denominator",
        })
    }
}
