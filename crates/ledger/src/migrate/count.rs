//! Counting records in parts, for versions that count what the one before did not.

use std::ops::ControlFlow;

use bytes::Bytes;
use sapwood_types::{FurtherPage, RecordHeader};

use super::Part;
use crate::{
    StoreError,
    changes::{CountChanges, Derived},
    engine::{Scan, Table},
    keys::RecordKey,
};

impl Part<'_> {
    /// Counts records from `from` on, up to the limit of the part. Returns the key to go on with, `None` at the end.
    pub(super) fn count_records(
        &mut self,
        from: &[u8],
    ) -> Result<(CountChanges, Option<Vec<u8>>), StoreError> {
        let mut counted = CountChanges::default();
        let (mut next, mut left) = (None, self.limit.max(1));
        let (read, unreadable) = (&mut self.read, &mut self.unreadable);
        self.rows.scan(&Scan { from, ..Scan::all(Table::Tx) }, |key, value| {
            if left == 0 {
                next = Some(key.to_vec());
                return ControlFlow::Break(());
            }
            left -= 1;
            *read += 1;
            *unreadable += u64::from(!count_row(&mut counted, key, value));
            ControlFlow::Continue(())
        })?;
        Ok((counted, next))
    }
}

/// Counts one row. `false` if it cannot be decoded.
fn count_row(counted: &mut CountChanges, key: &[u8], value: &[u8]) -> bool {
    match RecordKey::parse(key) {
        Some(RecordKey::First(_)) => match RecordHeader::decode(value) {
            Ok(header) => counted.add_derived(&Derived::of(header.view()), 1),
            Err(_) => return false,
        },
        Some(RecordKey::Further(..)) => match FurtherPage::decode(Bytes::copy_from_slice(value)) {
            Ok(page) => counted.add_slots(&page.slots, 1),
            Err(_) => return false,
        },
        None => return false,
    }
    true
}
