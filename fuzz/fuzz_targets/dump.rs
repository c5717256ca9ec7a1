//! A frame of a dump, and a whole dump.
#![no_main]

use std::ops::ControlFlow;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sapwood_ledger::{dump::DumpReader, formats::dump_frame};

fuzz_target!(|data: &[u8]| {
    if let Ok(written) = dump_frame(Bytes::copy_from_slice(data)) {
        assert_eq!(written, data);
    }
    let _ = DumpReader::open(data).and_then(|dump| dump.check(&|_| ControlFlow::Continue(())));
});
