//! The state of one output.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sapwood_types::{
    Height, Slot,
    codec::{Reader, Writer},
};

fuzz_target!(|data: &[u8]| {
    let mut from = Reader::new(Bytes::copy_from_slice(data));
    if let Ok(slot) = Slot::decode(&mut from) {
        let mut to = Writer::default();
        slot.encode(&mut to);
        assert_eq!(to.finish(), data[..data.len() - from.left()]);

        // An output that counts as open is one that settling does not touch.
        assert!(!slot.is_open() || slot.settle(Height::MAX) == slot);
        assert!(!slot.is_claimed() || slot.is_open());
    }
});
