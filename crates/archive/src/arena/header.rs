//! The first page of the arena: which archive the file belongs to.

use sapwood_types::{DecodeError, codec::Reader};

use super::PAGE;

const MAGIC: [u8; 8] = *b"SAPARENA";
const VERSION: u8 = 1;
const SIZE: usize = 8 + 1 + 16 + 4;

/// What ties an arena file to the rows that describe it.
pub(crate) type ArenaId = [u8; 16];

/// Where the first region begins.
pub(crate) const FIRST_OFFSET: u64 = PAGE;

/// Encodes the beginning of the first page. The rest of the page is zeros.
pub(crate) fn encode(id: &ArenaId) -> [u8; SIZE] {
    let mut bytes = [0; SIZE];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8] = VERSION;
    bytes[9..25].copy_from_slice(id);
    let checksum = crc32c::crc32c(&bytes[..25]);
    bytes[25..].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

/// Decodes the beginning of the first page, of which `bytes` has at least [`SIZE`].
pub(crate) fn decode(bytes: &[u8]) -> Result<ArenaId, DecodeError> {
    const WHAT: &str = "arena header";
    let mut from = Reader::of_slice(bytes);
    if from.array("magic")? != MAGIC {
        return Err(DecodeError::Inconsistent { what: WHAT, problem: "the file is no arena" });
    }
    from.version(WHAT, VERSION)?;
    let id = from.array("arena id")?;
    let expected = crc32c::crc32c(&bytes[..25]);
    match from.u32("checksum")? {
        found if found == expected => Ok(id),
        _ => Err(DecodeError::Inconsistent { what: WHAT, problem: "its checksum does not match" }),
    }
}

/// Bytes to read of the first page.
pub(crate) const READ: usize = SIZE;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_is_encoded_as_documented() {
        let golden = [b"SAPARENA\x01".as_slice(), &[7; 16], &[0x50, 0x21, 0x66, 0x57]].concat();
        assert_eq!(encode(&[7; 16]), golden[..]);
        assert_eq!(decode(&golden), Ok([7; 16]));
        assert_eq!(golden, include_bytes!("../../../../fuzz/seeds/archive_header/example"));
    }

    #[test]
    fn damaged_header_is_refused() {
        let good = encode(&[7; 16]);
        for at in 0..good.len() {
            let mut bad = good;
            bad[at] ^= 1;
            assert!(decode(&bad).is_err(), "byte {at}");
        }
        assert!(decode(&[0; SIZE]).is_err());
        assert!(decode(&good[..SIZE - 1]).is_err());
    }
}
