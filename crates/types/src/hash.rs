//! Hashes: what identifies blocks, transactions, outputs and addresses.

use std::{cmp::Ordering, fmt, str::FromStr};

use blake2::{Blake2b, digest::consts::U28};
use sha2::{Digest, Sha256};

/// Why a text is not a hash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseHashError {
    /// The text has the wrong number of characters.
    #[error("a hash has {expected} hexadecimal digits, this text has {found}")]
    Length {
        /// How many digits the hash has.
        expected: usize,
        /// How many characters there were.
        found: usize,
    },
    /// The text has something else than a hexadecimal digit.
    #[error("character {position} is not a hexadecimal digit")]
    Digit {
        /// Where, counted from 0.
        position: usize,
    },
}

fn parse_hex<const N: usize>(text: &str) -> Result<[u8; N], ParseHashError> {
    let mut bytes = [0; N];
    let mut found = 0;
    for (position, character) in text.chars().enumerate() {
        let digit = character.to_digit(16).ok_or(ParseHashError::Digit { position })?;
        if let Some(byte) = bytes.get_mut(position / 2) {
            *byte = *byte << 4 | digit as u8;
        }
        found += 1;
    }
    if found == 2 * N { Ok(bytes) } else { Err(ParseHashError::Length { expected: 2 * N, found }) }
}

macro_rules! hash {
    ($(#[$doc:meta])* $name:ident, $size:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub [u8; $size]);

        /// Byte by byte. The first eight bytes nearly always decide, and two numbers are compared faster than two pieces of memory.
        impl Ord for $name {
            fn cmp(&self, other: &Self) -> Ordering {
                let first = |hash: &Self| hash.0.first_chunk().copied().map(u64::from_be_bytes);
                first(self).cmp(&first(other)).then_with(|| self.0.cmp(&other.0))
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl $name {
            /// How many bytes it has.
            pub const SIZE: usize = $size;

            /// Its bytes, in the order in which they are written.
            pub fn as_bytes(&self) -> &[u8; $size] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }

        impl FromStr for $name {
            type Err = ParseHashError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                parse_hex(text).map(Self)
            }
        }

        impl From<[u8; $size]> for $name {
            fn from(bytes: [u8; $size]) -> Self {
                Self(bytes)
            }
        }

        /// As hexadecimal digits.
        #[cfg(feature = "serde")]
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        #[cfg(feature = "serde")]
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<str>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        #[cfg(feature = "schema")]
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                let digits = format!("^[0-9a-f]{{{}}}$", 2 * $size);
                let text = utoipa::openapi::schema::SchemaType::new(utoipa::openapi::Type::String);
                utoipa::openapi::ObjectBuilder::new().schema_type(text).pattern(Some(digits)).into()
            }
        }

        #[cfg(feature = "schema")]
        impl utoipa::ToSchema for $name {
            fn name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
        }
    };
}

hash!(
    /// Identifies a transaction.
    TxId,
    32
);
hash!(
    /// Identifies a block.
    BlockHash,
    32
);
hash!(
    /// Binds an output to its owner and amount. Reassigning an output gives it a new one, and the old one no longer spends.
    UtxoHash,
    32
);
hash!(
    /// The key of the address index: Blake2b-224 of a locking script or address, or a payment credential as it is.
    AddressHash,
    28
);

impl UtxoHash {
    /// SHA-256 of transaction id, output number, script and value; the two numbers as variable-length integers.
    pub fn of(txid: &TxId, vout: u32, script: &[u8], value: u64) -> Self {
        let mut buffer = crate::codec::Writer::with_capacity(32 + 5 + script.len() + 10);
        buffer.bytes(&txid.0);
        buffer.varint(vout.into());
        buffer.bytes(script);
        buffer.varint(value);
        Self(Sha256::digest(buffer.finish()).into())
    }
}

impl AddressHash {
    /// The hash under which outputs locked by `script` (or paid to these address bytes) are indexed.
    pub fn of_script(script: &[u8]) -> Self {
        Self(Blake2b::<U28>::digest(script).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_ordered_byte_by_byte() {
        let hashes = [[0; 32], [255; 32], [7; 32]].into_iter().flat_map(|bytes| {
            [0, 1, 7, 8, 30, 31].map(|place| {
                let mut bytes = bytes;
                bytes[place] ^= 1;
                TxId(bytes)
            })
        });
        let hashes: Vec<TxId> = hashes.collect();
        for (one, other) in hashes.iter().flat_map(|one| hashes.iter().map(move |other| (one, other))) {
            assert_eq!(one.cmp(other), one.0.as_slice().cmp(other.0.as_slice()), "{one} and {other}");
        }
    }

    #[test]
    fn text_and_back() {
        let text = "00ff".repeat(16);
        assert_eq!(text.parse::<TxId>().unwrap().to_string(), text);
    }

    #[test]
    fn bad_text_is_a_typed_error() {
        assert_eq!("00".parse::<TxId>(), Err(ParseHashError::Length { expected: 64, found: 2 }));
        assert_eq!("zz".repeat(32).parse::<TxId>(), Err(ParseHashError::Digit { position: 0 }));
        assert_eq!("é".repeat(64).parse::<TxId>(), Err(ParseHashError::Digit { position: 0 }));
        assert_eq!("00".repeat(33).parse::<TxId>(), Err(ParseHashError::Length { expected: 64, found: 66 }));
    }

    #[cfg(feature = "serde")]
    #[test]
    fn hashes_are_hexadecimal_digits_in_json() {
        let (txid, text) = (TxId([0xab; 32]), format!("\"{}\"", "ab".repeat(32)));
        assert_eq!(serde_json::to_string(&txid).unwrap(), text);
        assert_eq!(serde_json::from_str::<TxId>(&text).unwrap(), txid);
        let error = serde_json::from_str::<TxId>("\"ab\"").unwrap_err().to_string();
        assert!(error.starts_with("a hash has 64 hexadecimal digits"), "{error}");
    }

    #[test]
    fn address_hash_is_blake2b_224() {
        // The value of Blake2b-224 for no input, as published with the algorithm's test vectors.
        assert_eq!(
            AddressHash::of_script(b"").to_string(),
            "836cc68931c2e4e3e838602eca1902591d216837bafddfe6f0c8cb07"
        );
    }
}
