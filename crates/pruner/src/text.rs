//! How heights, ids and figures are written for people and machines.

use std::{
    collections::BTreeMap,
    time::{Duration, UNIX_EPOCH},
};

use sapwood_types::Height;

/// A figure with its thousands set apart.
pub fn figure(value: impl Into<u64>) -> String {
    let digits = value.into().to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of things: `1 block`, `2 blocks`, `3 bodies`.
pub fn counted(value: impl Into<u64>, word: &str) -> String {
    let value = value.into();
    let (stem, ending) = match word.strip_suffix('y') {
        _ if value == 1 => (word, ""),
        Some(stem) => (stem, "ies"),
        None => (word, "s"),
    };
    format!("{} {stem}{ending}", figure(value))
}

/// A height with its thousands set apart.
pub(crate) fn at(height: Height) -> String {
    figure(height.0)
}

/// A number of bytes in the unit that suits it.
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut scaled = value as f64;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    if unit == 0 { counted(value, "byte") } else { format!("{scaled:.1} {}", UNITS[unit]) }
}

/// A Unix timestamp as people read it. One beyond the year 9999 stays a number.
pub fn time(at: u64) -> String {
    const YEAR_10000: u64 = 253_402_300_800;
    match at {
        YEAR_10000.. => format!("Unix timestamp {at}"),
        _ => humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(at)).to_string(),
    }
}

/// Counts by reason, the most frequent first.
pub fn reasons(counts: &BTreeMap<String, u64>) -> String {
    let mut counts: Vec<_> = counts.iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let each =
        counts.iter().map(|(reason, count)| format!("{} {}", figure(**count), reason.replace('_', " ")));
    each.collect::<Vec<_>>().join(", ")
}

/// A duration as a number of seconds.
#[cfg(feature = "serde")]
pub(crate) mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(duration.as_secs_f64())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(from)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_timestamp_is_shown() {
        assert_eq!(time(1_794_975_948), "2026-11-18T04:25:48Z");
        assert_eq!(time(253_402_300_799), "9999-12-31T23:59:59Z");
        for far in [253_402_300_800, 99_999_999_999_999_999, u64::MAX] {
            assert_eq!(time(far), format!("Unix timestamp {far}"));
        }
    }

    #[test]
    fn figures_are_set_in_thousands() {
        assert_eq!(
            ["0", "999", "1,000", "1,234,567"],
            [0u64, 999, 1000, 1_234_567].map(figure).each_ref().map(String::as_str)
        );
        assert_eq!(bytes(1023), "1,023 bytes");
        assert_eq!(bytes(1), "1 byte");
        let words = [counted(1u64, "block"), counted(0u64, "block"), counted(2_000u64, "body")];
        assert_eq!(words, ["1 block", "0 blocks", "2,000 bodies"]);
        assert_eq!(bytes(1536), "1.5 KiB");
    }
}
