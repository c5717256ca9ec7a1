//! How holds are written in a note of the store. Described byte by byte in `docs/formats.md`.

use std::collections::BTreeMap;

use bytes::Bytes;
use sapwood_rules::Hold;
use sapwood_types::{
    DecodeError,
    codec::{Reader, Writer},
};

const VERSION: u8 = 1;
const WHAT: &str = "holds";
const HAS_HEIGHT: u8 = 1 << 0;
const HAS_EXPIRY: u8 = 1 << 1;
/// Three empty texts and the flags.
const LEAST_SIZE: usize = 4;

/// Writes holds, in the order of their names.
pub(super) fn encode(holds: &BTreeMap<String, Hold>) -> Bytes {
    let mut to = Writer::with_capacity(16 + 96 * holds.len());
    to.u8(VERSION);
    to.length(holds.len());
    for hold in holds.values() {
        to.sized(hold.name.as_bytes());
        to.sized(hold.owner.as_bytes());
        let height = if hold.keep_from.is_some() { HAS_HEIGHT } else { 0 };
        let expiry = if hold.expires.is_some() { HAS_EXPIRY } else { 0 };
        to.u8(height | expiry);
        if let Some(height) = hold.keep_from {
            to.height(height);
        }
        if let Some(expires) = hold.expires {
            to.varint(expires);
        }
        to.sized(hold.reason.as_bytes());
    }
    to.finish().into()
}

/// Reads holds.
pub(super) fn decode(bytes: Bytes) -> Result<BTreeMap<String, Hold>, DecodeError> {
    let mut from = Reader::new(bytes);
    from.version(WHAT, VERSION)?;
    let count = from.count(WHAT, LEAST_SIZE)?;
    let mut holds: BTreeMap<String, Hold> = BTreeMap::new();
    for _ in 0..count {
        let name = text(&mut from, "hold name")?;
        let owner = text(&mut from, "hold owner")?;
        let flags = from.u8("hold flags")?;
        if flags & !(HAS_HEIGHT | HAS_EXPIRY) != 0 {
            return Err(DecodeError::UnknownValue { field: "hold flags", value: flags.into() });
        }
        let keep_from = if flags & HAS_HEIGHT != 0 { Some(from.height("hold height")?) } else { None };
        let expires = if flags & HAS_EXPIRY != 0 { Some(from.varint("hold expiry")?) } else { None };
        let reason = text(&mut from, "hold reason")?;
        if holds.last_key_value().is_some_and(|(last, _)| *last >= name) {
            let problem = "names are out of order, or one comes twice";
            return Err(DecodeError::Inconsistent { what: WHAT, problem });
        }
        holds.insert(name.clone(), Hold { name, owner, keep_from, expires, reason });
    }
    from.end(WHAT)?;
    Ok(holds)
}

fn text(from: &mut Reader, field: &'static str) -> Result<String, DecodeError> {
    let bytes = from.sized(field)?;
    let problem = "it is not text";
    String::from_utf8(bytes.to_vec()).map_err(|_| DecodeError::Inconsistent { what: field, problem })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sapwood_types::Height;

    use super::*;

    fn hold(name: &str, keep_from: Option<u32>, expires: Option<u64>) -> (String, Hold) {
        let keep_from = keep_from.map(Height);
        (
            name.into(),
            Hold { name: name.into(), owner: "me".into(), keep_from, expires, reason: "why".into() },
        )
    }

    fn golden() -> (BTreeMap<String, Hold>, &'static [u8]) {
        let holds = [hold("export", Some(0x0102), Some(300)), hold("persister", None, None)].into();
        let bytes = b"\x01\
            \x02\
            \x06export\x02me\x03\x00\x00\x01\x02\xac\x02\x03why\
            \x09persister\x02me\x00\x03why";
        (holds, bytes)
    }

    #[test]
    fn golden_bytes() {
        let (holds, bytes) = golden();
        assert_eq!(encode(&holds), bytes);
        assert_eq!(decode(Bytes::from_static(bytes)), Ok(holds));
        assert_eq!(encode(&BTreeMap::new()), &[1, 0][..]);
        // Fuzzing starts from the same bytes.
        assert_eq!(bytes, include_bytes!("../../../../fuzz/seeds/holds/two"));
        assert_eq!([1, 0], *include_bytes!("../../../../fuzz/seeds/holds/none"));
    }

    #[test]
    fn the_worked_example_of_the_documentation() {
        let page = include_str!("../../../../docs/formats.md");
        let hex: Vec<String> = golden().1.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(page.contains(&hex.join(" ")), "docs/formats.md lacks\n{}", hex.join(" "));
    }

    #[test]
    fn hostile_bytes_are_refused() {
        let (_, golden) = golden();
        for cut in 0..golden.len() {
            assert!(decode(Bytes::from_static(&golden[..cut])).is_err(), "cut at {cut}");
        }
        let with = |place: usize, byte: u8| {
            let mut bytes = golden.to_vec();
            bytes[place] = byte;
            decode(bytes.into())
        };
        assert!(matches!(with(0, 2), Err(DecodeError::UnknownVersion { .. })));
        assert!(matches!(with(12, 7), Err(DecodeError::UnknownValue { field: "hold flags", .. })));
        assert!(matches!(with(3, 0xff), Err(DecodeError::Inconsistent { what: "hold name", .. })));
        assert!(
            matches!(with(3, b'z'), Err(DecodeError::Inconsistent { what: "holds", .. })),
            "out of order"
        );
        let mut longer = golden.to_vec();
        longer.push(0);
        assert!(decode(longer.into()).is_err(), "bytes after the end");
        assert!(decode(Bytes::from_static(b"\x01\xff\xff\xff\xff\x0f")).is_err(), "a count beyond the input");
    }

    proptest! {
        #[test]
        fn every_list_comes_back(list in prop::collection::btree_map(
            "[a-z/]{1,20}", (".{0,10}", any::<Option<u32>>(), any::<Option<u64>>(), ".{0,10}"), 0..8,
        )) {
            let holds: BTreeMap<String, Hold> = list.into_iter().map(|(name, (owner, height, expires, reason))| {
                let hold = Hold { name: name.clone(), owner, keep_from: height.map(Height), expires, reason };
                (name, hold)
            }).collect();
            prop_assert_eq!(decode(encode(&holds)), Ok(holds));
        }

        #[test]
        fn random_bytes_never_panic_and_have_one_encoding(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(holds) = decode(Bytes::from(bytes.clone())) {
                prop_assert_eq!(encode(&holds), bytes);
            }
        }
    }
}
