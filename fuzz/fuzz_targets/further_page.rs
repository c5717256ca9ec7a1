//! A further page of a transaction, and the outputs on it.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sapwood_types::FurtherPage;

fuzz_target!(|data: &[u8]| {
    let Ok(mut page) = FurtherPage::decode(Bytes::copy_from_slice(data)) else { return };
    assert_eq!(page.encode(), data);
    let summary = page.summary();
    assert!(summary.claimed <= summary.open);

    let Ok(outputs) = page.view().decode_outputs() else { return };
    assert_eq!(page.view().output(outputs.len()), Ok(None));
    for (place, output) in outputs.into_iter().enumerate() {
        assert_eq!(page.view().output(place).as_ref(), Ok(&output));
        if let Some(output) = output {
            assert_eq!(page.set_output(place, output), Ok(()));
        }
    }
    // Every output was replaced by itself.
    assert_eq!(page.encode(), data);
});
