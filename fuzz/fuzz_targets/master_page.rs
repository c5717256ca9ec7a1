//! The first page of a transaction, read as far as a spend or the pruner reads it.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sapwood_types::{MasterPage, Scratch, StoredMaster};

fuzz_target!(|data: &[u8]| {
    // A block reads no more than the front, and writes it back with another slot: with the same ones it is the same page.
    let stored = StoredMaster::new(data);
    if let Ok(front) = stored.front() {
        assert_eq!(stored.with_slots(&front, &mut Scratch::default()).bytes(), data);
    }
    if let Ok(master) = MasterPage::decode(Bytes::copy_from_slice(data)) {
        assert_eq!(master.encode(), data);
        // The check of children looks at no more than it needs, and must see the same.
        assert_eq!(MasterPage::peek_mined_at(data), Ok(master.head.mined_at()));
        let front = stored.front().map(|front| (front.head, front.slots));
        assert_eq!(front, Ok((master.head.clone(), master.page.slots.clone())));

        // What the pruner asks a first page.
        let open = master.open_slots();
        assert!(open <= master.head.output_count);
        assert!(master.all_slots().claimed() <= open);
        assert!(master.all_slots().latest_child().is_none() || open < master.head.output_count);
    }
});
