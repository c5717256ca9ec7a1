//! How the policy is written in a note of the store. Described byte by byte in `docs/formats.md`.

use bytes::Bytes;
use sapwood_rules::{Policy, PolicyField};
use sapwood_types::{
    DecodeError,
    codec::{Reader, Writer},
};

use super::{PolicyOrigin, PolicyState};

const VERSION: u8 = 1;
const WHAT: &str = "policy";

/// Writes a policy with its origins.
pub(super) fn encode(state: &PolicyState) -> Bytes {
    let mut to = Writer::with_capacity(64);
    to.u8(VERSION);
    for field in PolicyField::ALL {
        to.u32(field.of(&state.policy));
        to.u32(field.of(&state.configured));
        match state.origin(field) {
            None => to.u8(0),
            Some(PolicyOrigin::RunTime { at, by }) => {
                to.u8(1);
                to.varint(*at);
                to.sized(by.as_bytes());
            }
            Some(PolicyOrigin::Promise) => to.u8(2),
        }
    }
    to.finish().into()
}

/// Reads a policy with its origins.
///
/// # Errors
/// If the version is not known, or the bytes are damaged.
pub(super) fn decode(bytes: Bytes) -> Result<PolicyState, DecodeError> {
    let mut from = Reader::new(bytes);
    from.version(WHAT, VERSION)?;
    let mut state = PolicyState::configured(Policy::default());
    for field in PolicyField::ALL {
        field.set(&mut state.policy, from.u32("policy number")?);
        field.set(&mut state.configured, from.u32("configured policy number")?);
        let origin = match from.u8("policy origin")? {
            0 => continue,
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
        state.origins.insert(field, origin);
    }
    from.end(WHAT)?;
    Ok(state)
}
