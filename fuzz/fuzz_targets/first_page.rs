//! The first page of a transaction, decoded as far as a spend or the pruner decodes it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_types::{FirstPage, Scratch};

fuzz_target!(|data: &[u8]| {
    let page = FirstPage::new(data);
    let Ok(header) = page.header() else { return };
    // A block decodes no more than the header, and writes the page with another slot: with the same ones it is the same page.
    assert_eq!(page.with_slots(&header, &mut Scratch::default()), page);
    assert_eq!(page.with_header(&header, &mut Scratch::default()), page);
    // The check of children looks at no more than it needs, and must see the same.
    assert_eq!(FirstPage::peek_mined_at(data), Ok(header.head.mined_at()));

    // What the pruner asks a first page.
    let (view, outputs) = (header.view(), header.head.output_count);
    assert!(view.open() <= outputs);
    assert!(view.claimed() <= view.open());
    assert!(view.latest_child().is_none() || view.open() < outputs);

    // What nobody has changed is found by a changed header too.
    let _ = (page.body(&header), page.view(&header).and_then(|view| view.decode_outputs()));
});
