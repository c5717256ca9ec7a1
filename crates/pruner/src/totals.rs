//! How totals are written in a note of the store. Described byte by byte in `docs/formats.md`.

use std::collections::BTreeMap;

use bytes::Bytes;
use sapwood_types::{
    DecodeError,
    codec::{Reader, Writer},
};

const VERSION: u8 = 1;
const WHAT: &str = "totals of the pruner";

/// Jobs, records deleted, bytes freed and bodies deleted.
pub(crate) type Counts = [u64; 4];

/// Writes counts, and how often a record was retained by reason, in the order of the reasons.
pub(crate) fn encode(counts: Counts, retained: &BTreeMap<String, u64>) -> Bytes {
    let mut to = Writer::with_capacity(64);
    to.u8(VERSION);
    for count in counts {
        to.varint(count);
    }
    for (reason, count) in retained {
        to.sized(reason.as_bytes());
        to.varint(*count);
    }
    to.finish().into()
}

/// Reads what [`encode`] wrote.
///
/// # Errors
/// If the version is not known, or the bytes are damaged.
pub(crate) fn decode(bytes: Bytes) -> Result<(Counts, BTreeMap<String, u64>), DecodeError> {
    let mut from = Reader::new(bytes);
    from.version(WHAT, VERSION)?;
    let mut counts = Counts::default();
    for count in &mut counts {
        *count = from.varint("count of the pruner")?;
    }
    let mut retained: BTreeMap<String, u64> = BTreeMap::new();
    while from.left() > 0 {
        let reason = String::from_utf8(from.sized("reason")?.to_vec())
            .map_err(|_| DecodeError::Inconsistent { what: "reason", problem: "it is not text" })?;
        if retained.last_key_value().is_some_and(|(last, _)| *last >= reason) {
            let problem = "reasons are out of order, or one comes twice";
            return Err(DecodeError::Inconsistent { what: WHAT, problem });
        }
        retained.insert(reason, from.varint("times retained")?);
    }
    from.end(WHAT)?;
    Ok((counts, retained))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN: &[u8] = b"\x01\x03\xac\x02\x80\x80\x01\x01\x0fchild_disagrees\x02\x04held\x07";

    fn totals() -> (Counts, BTreeMap<String, u64>) {
        ([3, 300, 16_384, 1], [("child_disagrees".to_owned(), 2), ("held".to_owned(), 7)].into())
    }

    #[test]
    fn golden_bytes() {
        let (counts, retained) = totals();
        assert_eq!(encode(counts, &retained), GOLDEN);
        assert_eq!(decode(Bytes::from_static(GOLDEN)), Ok(totals()));
        assert_eq!(encode(Counts::default(), &BTreeMap::new()), &[1, 0, 0, 0, 0][..]);
        // Fuzzing starts from the same bytes.
        assert_eq!(GOLDEN, include_bytes!("../../../fuzz/seeds/pruner_totals/two_reasons"));
        assert_eq!([1, 0, 0, 0, 0], *include_bytes!("../../../fuzz/seeds/pruner_totals/none"));
    }

    #[test]
    fn totals_that_could_not_have_been_written_are_refused() {
        let decode = |bytes: &[u8]| decode(Bytes::copy_from_slice(bytes));
        // Between two reasons it may end.
        for cut in (0..GOLDEN.len()).filter(|cut| ![8, 25].contains(cut)) {
            assert!(decode(&GOLDEN[..cut]).is_err(), "cut at {cut}");
        }
        assert!(decode(&[GOLDEN, &[0]].concat()).is_err(), "a byte more");
        assert!(matches!(decode(b"\x02"), Err(DecodeError::UnknownVersion { .. })));
        assert!(decode(b"\x01\x01\x02\x03\x04\x01\xff\x05").is_err(), "a reason that is not text");
        assert!(decode(b"\x01\x01\x02\x03\x04\x01a\x05\x01a\x06").is_err(), "a reason twice");
        assert!(decode(b"\x01\x01\x02\x03\x04\x01b\x05\x01a\x06").is_err(), "reasons out of order");
    }
}
