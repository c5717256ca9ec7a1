//! How long things are kept, as it is kept in a note of the store.
#![no_main]

use std::collections::BTreeMap;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sapwood_rules::{Policy, PolicyField};

// The file and not its crate, which would bring a client of S3 along. What the file encodes is therefore repeated here.
#[path = "../../crates/pruner/src/policy/note.rs"]
mod note;

enum PolicyOrigin {
    RunTime { at: u64, by: String },
    Promise,
}

struct PolicyState {
    policy: Policy,
    configured: Policy,
    origins: BTreeMap<PolicyField, PolicyOrigin>,
}

impl PolicyState {
    fn configured(policy: Policy) -> Self {
        Self { policy, configured: policy, origins: BTreeMap::new() }
    }

    fn origin(&self, field: PolicyField) -> Option<&PolicyOrigin> {
        self.origins.get(&field)
    }
}

fuzz_target!(|data: &[u8]| {
    if let Ok(state) = note::decode(Bytes::copy_from_slice(data)) {
        assert_eq!(note::encode(&state), data);
    }
});
