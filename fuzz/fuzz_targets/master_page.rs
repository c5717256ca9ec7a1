//! The first page of a transaction, read as far as a spend or the pruner reads it.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sapwood_types::MasterPage;

fuzz_target!(|data: &[u8]| {
    if let Ok(master) = MasterPage::decode(Bytes::copy_from_slice(data)) {
        assert_eq!(master.encode(), data);
        // The check of children looks at no more than it needs, and must see the same.
        assert_eq!(MasterPage::peek_mined_at(data), Ok(master.head.mined_at()));

        assert_eq!(MasterPage::peek_mined_at(data), Ok(master.head.mined_at()));

        // What the pruner asks a first page.
        let open = master.open_slots();
        assert!(open <= master.head.output_count);
        assert!(master.all_slots().claimed() <= open);
        assert!(master.all_slots().latest_child().is_none() || open < master.head.output_count);
    }
});
