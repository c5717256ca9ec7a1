//! How the policy is written in a note of the store. Described byte by byte in `docs/formats.md`.

use std::fmt;

use bytes::Bytes;
use sapwood_types::{
    DecodeError,
    codec::{Reader, Writer},
};
use serde::Serialize;

const VERSION: u8 = 1;
const WHAT: &str = "policy";

/// Where a number of the policy comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "from")]
pub enum PolicyOrigin {
    /// The configuration.
    Configuration,
    /// A change at run time. It stays until the configuration is changed to something else.
    RunTime {
        /// When, as a Unix timestamp in seconds.
        at: u64,
        /// Who: the interface and, where known, the client.
        by: String,
    },
    /// The directory was promised more than the configuration asks for, and keeps it.
    Promise,
}

impl fmt::Display for PolicyOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyOrigin::Configuration => write!(f, "configuration"),
            PolicyOrigin::RunTime { at, by } => write!(f, "set at run time by {by} at {at}"),
            PolicyOrigin::Promise => write!(f, "promised by the data directory"),
        }
    }
}

/// A number of the policy with where it comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PolicyNumber {
    /// The number in force, in blocks.
    pub value: u32,
    /// What the configuration said last, in blocks.
    pub configured: u32,
    /// Where the number in force comes from.
    pub origin: PolicyOrigin,
}

/// Writes the numbers of a policy.
pub(super) fn encode(numbers: &[PolicyNumber; 6]) -> Bytes {
    let mut to = Writer::with_capacity(64);
    to.u8(VERSION);
    for number in numbers {
        to.u32(number.value);
        to.u32(number.configured);
        match &number.origin {
            PolicyOrigin::Configuration => to.u8(0),
            PolicyOrigin::RunTime { at, by } => {
                to.u8(1);
                to.varint(*at);
                to.sized(by.as_bytes());
            }
            PolicyOrigin::Promise => to.u8(2),
        }
    }
    to.finish().into()
}

/// Reads the numbers of a policy.
///
/// # Errors
/// If the version is not known, or the bytes are damaged.
pub(super) fn decode(bytes: Bytes) -> Result<[PolicyNumber; 6], DecodeError> {
    let mut from = Reader::new(bytes);
    from.version(WHAT, VERSION)?;
    let nothing = PolicyNumber { value: 0, configured: 0, origin: PolicyOrigin::Configuration };
    let mut numbers = [(); 6].map(|()| nothing.clone());
    for number in &mut numbers {
        number.value = from.u32("policy number")?;
        number.configured = from.u32("configured policy number")?;
        number.origin = match from.u8("policy origin")? {
            0 => PolicyOrigin::Configuration,
            1 => {
                let at = from.varint("policy change")?;
                let by = String::from_utf8(from.sized("policy client")?.to_vec()).map_err(|_| {
                    DecodeError::Inconsistent { what: "policy client", problem: "it is not text" }
                })?;
                PolicyOrigin::RunTime { at, by }
            }
            2 => PolicyOrigin::Promise,
            value => {
                return Err(DecodeError::UnknownValue { field: "policy origin", value: value.into() });
            }
        };
    }
    from.end(WHAT)?;
    Ok(numbers)
}
