//! One output.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sapwood_types::{
    Output,
    codec::{Reader, Writer},
};

fuzz_target!(|data: &[u8]| {
    let mut from = Reader::new(Bytes::copy_from_slice(data));
    if let Ok(output) = Output::decode(&mut from) {
        let mut to = Writer::default();
        output.unwrap_or_else(|| Output::data(Bytes::new())).encode(&mut to);
        assert_eq!(to.finish(), data[..data.len() - from.left()]);
    }
});
