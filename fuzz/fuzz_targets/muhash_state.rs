//! The stored form of a set's hash.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_muhash::MuHash;

fuzz_target!(|data: &[u8]| {
    if let Ok(set) = MuHash::from_bytes(data) {
        assert_eq!(set.to_bytes(), data);

        // What is read can be worked with: taking out what came in gives the same set, by another way.
        let mut again = set.clone();
        again.insert(b"a coin");
        assert_ne!(again, set);
        again.remove(b"a coin");
        assert_eq!(again, set);
    }
});
