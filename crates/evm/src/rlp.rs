//! RLP items as borrowed bytes.
//!
//! What lives here: taking one item off the front of bytes, and the lists that blocks and receipts are made of. Decoding what is inside
//! an item is alloy's.
//!
//! # Correctness
//! `alloy_rlp::Header` refuses lengths that are not in their shortest form and lengths beyond the input, so an item has one encoding and
//! never reaches past the bytes it came from.

use alloy_rlp::{Error, Header};
use bytes::Bytes;

/// One item with its own header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item<'a> {
    /// Whether it is a list.
    pub(crate) list: bool,
    /// What is inside.
    pub(crate) payload: &'a [u8],
    /// Header and payload.
    pub(crate) raw: &'a [u8],
}

/// Takes the next item off the front.
pub(crate) fn item<'a>(from: &mut &'a [u8]) -> Result<Item<'a>, Error> {
    let start = *from;
    let header = Header::decode(from)?;
    let (payload, rest) = from.split_at_checked(header.payload_length).ok_or(Error::InputTooShort)?;
    let (raw, _) = start.split_at_checked(start.len() - rest.len()).ok_or(Error::InputTooShort)?;
    *from = rest;
    Ok(Item { list: header.list, payload, raw })
}

/// Takes the next item off the front and requires a list.
pub(crate) fn list<'a>(from: &mut &'a [u8]) -> Result<Item<'a>, Error> {
    match item(from)? {
        item if item.list => Ok(item),
        _ => Err(Error::UnexpectedString),
    }
}

/// Requires that `bytes` are exactly one list.
pub(crate) fn only_list(mut bytes: &[u8]) -> Result<Item<'_>, Error> {
    let found = list(&mut bytes)?;
    if bytes.is_empty() { Ok(found) } else { Err(Error::UnexpectedLength) }
}

/// Splits the payload of a list of transactions or receipts into their EIP-2718 bytes: a list is a legacy one and stands as it is, a
/// string wraps a typed one.
pub(crate) fn envelopes(source: &Bytes, mut payload: &[u8]) -> Result<Vec<Bytes>, Error> {
    let mut found = Vec::new();
    while !payload.is_empty() {
        let next = item(&mut payload)?;
        let bytes = match (next.list, next.payload.first()) {
            (true, _) => next.raw,
            // A type byte is below 0x80. A string around a legacy one has the same root and would be a second encoding of the block.
            (false, Some(..0x80)) => next.payload,
            (false, _) => return Err(Error::UnexpectedString),
        };
        // The shortest transaction and the shortest receipt are longer. Without this bound a list of empty items would
        // take sixteen times its own size in memory.
        if next.payload.len() < 4 {
            return Err(Error::InputTooShort);
        }
        found.push(source.slice_ref(bytes));
    }
    Ok(found)
}

/// Counts the items of a list's payload.
pub(crate) fn count(mut payload: &[u8]) -> Result<usize, Error> {
    let mut found = 0;
    while !payload.is_empty() {
        item(&mut payload)?;
        found += 1;
    }
    Ok(found)
}

/// Wraps `payload` into a list.
pub(crate) fn wrap_list(parts: &[&[u8]]) -> Vec<u8> {
    let payload_length = parts.iter().map(|part| part.len()).sum();
    let mut out = Vec::with_capacity(payload_length + 9);
    Header { list: true, payload_length }.encode(&mut out);
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn item_ends_where_its_header_says() {
        let mut from: &[u8] = &[0xc2, 1, 2, 0x83, 7, 8, 9, 5];
        let first = item(&mut from).unwrap();
        assert_eq!((first.list, first.payload, first.raw), (true, &[1, 2][..], &[0xc2, 1, 2][..]));
        let second = item(&mut from).unwrap();
        assert_eq!((second.list, second.payload, second.raw), (false, &[7, 8, 9][..], &[0x83, 7, 8, 9][..]));
        let third = item(&mut from).unwrap();
        assert_eq!((third.list, third.payload, third.raw), (false, &[5][..], &[5][..]));
        assert_eq!(item(&mut from), Err(Error::InputTooShort));
    }

    #[test]
    fn length_beyond_the_input_is_refused() {
        for bytes in [&[0xc5, 1][..], &[0xff; 9], &[0xf8, 0xff, 0], &[0xb9, 0xff]] {
            assert!(item(&mut &*bytes).is_err(), "{bytes:02x?}");
        }
    }

    #[test]
    fn trailing_bytes_after_a_list_are_refused() {
        assert!(only_list(&[0xc1, 1]).is_ok());
        assert_eq!(only_list(&[0xc1, 1, 0]), Err(Error::UnexpectedLength));
        assert_eq!(only_list(&[0x81, 0x80]), Err(Error::UnexpectedString));
    }

    #[test]
    fn list_of_empty_items_is_refused_at_once() {
        let bytes = Bytes::from(vec![0xc0; 100]);
        assert!(envelopes(&bytes, &bytes).is_err());
    }

    #[test]
    fn string_around_a_legacy_transaction_is_refused() {
        let legacy = Bytes::from_static(&[0xc5, 1, 2, 3, 4, 5]);
        assert_eq!(envelopes(&legacy, &legacy).unwrap(), std::slice::from_ref(&legacy));
        let wrapped = Bytes::from([&[0x86], &legacy[..]].concat());
        assert_eq!(envelopes(&wrapped, &wrapped), Err(Error::UnexpectedString));
        let typed = Bytes::from_static(&[0x86, 2, 0xc4, 1, 2, 3, 4]);
        assert_eq!(envelopes(&typed, &typed).unwrap(), [typed.slice(1..)]);
    }
}
