//! One output, read as a whole and only looked at.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sapwood_types::{
    Output, OutputRef,
    codec::{Reader, Writer},
};

fuzz_target!(|data: &[u8]| {
    let mut from = Reader::new(Bytes::copy_from_slice(data));
    let output = Output::decode(&mut from);

    // Both take the same for an output, down to the error, and end at the same place.
    let mut left = data;
    let seen = OutputRef::decode(&mut left);
    assert_eq!(
        seen,
        output.as_ref().map(|output| output.as_ref().map(OutputRef::from)).map_err(Clone::clone)
    );
    assert!(output.is_err() || left.len() == from.left());

    if let Ok(output) = output {
        let mut to = Writer::default();
        output.unwrap_or_else(|| Output::data(Bytes::new())).encode(&mut to);
        assert_eq!(to.finish(), data[..data.len() - from.left()]);
    }
});
