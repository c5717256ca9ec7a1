//! Durations as people write them, for serde: `30s`, `10m`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer, de::Error};

/// Writes a duration.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&humantime::format_duration(*duration))
}

/// Reads a duration.
///
/// # Errors
/// If the text is no duration.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    humantime::parse_duration(&text)
        .map_err(|_| D::Error::custom(format!("{text:?} is not a duration like 30s or 10m")))
}

/// A duration, or `never` for `None`.
pub mod or_never {
    use super::*;

    const NEVER: &str = "never";

    /// Writes a duration, or `never`.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(duration: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => super::serialize(duration, to),
            None => to.serialize_str(NEVER),
        }
    }

    /// Reads a duration, or `never`.
    ///
    /// # Errors
    /// If the text is neither.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        let text = String::deserialize(from)?;
        if text == NEVER {
            return Ok(None);
        }
        humantime::parse_duration(&text).map(Some).map_err(|_| {
            D::Error::custom(format!("{text:?} is not a duration like 30s or 10m, nor \"{NEVER}\""))
        })
    }
}
