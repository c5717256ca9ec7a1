//! How heights, ids and figures are written for people and machines.

use std::{collections::BTreeMap, time::Duration};

use sapwood_types::{Height, TxId};
use serde::Serializer;

/// A figure with its thousands set apart.
pub(crate) fn figure(value: impl Into<u64>) -> String {
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

/// A number of things: the word with an `s` unless it is one.
pub(crate) fn counted(value: impl Into<u64>, word: &str) -> String {
    let value = value.into();
    format!("{} {word}{}", figure(value), if value == 1 { "" } else { "s" })
}

/// A height with its thousands set apart.
pub(crate) fn at(height: Height) -> String {
    figure(height.0)
}

/// A number of bytes in the unit that suits it.
pub(crate) fn bytes(value: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut scaled = value as f64;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{} bytes", figure(value)) } else { format!("{scaled:.1} {}", UNITS[unit]) }
}

/// Counts by reason, the most frequent first.
pub(crate) fn reasons(counts: &BTreeMap<String, u64>) -> String {
    let mut counts: Vec<_> = counts.iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let each =
        counts.iter().map(|(reason, count)| format!("{} {}", figure(**count), reason.replace('_', " ")));
    each.collect::<Vec<_>>().join(", ")
}

pub(crate) fn height_option<S: Serializer>(height: &Option<Height>, to: S) -> Result<S::Ok, S::Error> {
    match height {
        Some(height) => to.serialize_some(&height.0),
        None => to.serialize_none(),
    }
}

pub(crate) fn txid_text<S: Serializer>(txid: &TxId, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(txid)
}

pub(crate) fn seconds<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(duration.as_secs_f64())
}

pub(crate) fn seconds_option<S: Serializer>(duration: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    match duration {
        Some(duration) => to.serialize_some(&duration.as_secs_f64()),
        None => to.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_set_in_thousands() {
        assert_eq!(
            ["0", "999", "1,000", "1,234,567"],
            [0u64, 999, 1000, 1_234_567].map(figure).each_ref().map(String::as_str)
        );
        assert_eq!(bytes(1023), "1,023 bytes");
        assert_eq!(bytes(1536), "1.5 KiB");
    }
}
