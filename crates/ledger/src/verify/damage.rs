//! Going on behind damage.
//!
//! The keys of rows that the engine cannot read are unknown, so records there are named by what leads to them: index entries, undo records,
//! parents and children.

use std::ops::ControlFlow;

use sapwood_types::{DecodeError, TxId};

use super::Verifier;
use crate::{
    StoreError,
    engine::{DamagedRange, Table},
};

impl Verifier<'_> {
    /// Reads a whole table, until `row` fails. Reports the parts that cannot be read, and returns them.
    pub(super) fn scan(
        &mut self,
        table: Table,
        mut row: impl FnMut(&mut Self, &[u8], &[u8]) -> Result<(), StoreError>,
    ) -> Result<Vec<DamagedRange>, StoreError> {
        let mut result = Ok(());
        let damaged = self.snapshot.scan_past_damage(table, |key, value| {
            result = row(self, key, value);
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        result?;
        for DamagedRange { after, before, cause } in &damaged {
            let end = |key: &Option<Vec<u8>>, none| key.as_ref().map_or(String::from(none), |key| hex(key));
            let (after, before, table) = (end(after, "the start"), end(before, "the end"), table.name());
            self.report
                .problem(format!("rows of {table} between {after} and {before} cannot be read: {cause}"));
        }
        Ok(damaged)
    }

    /// Names a record that cannot be read, once.
    pub(super) fn name_unreadable(&mut self, txid: TxId, cause: &DecodeError) {
        if !self.report.is_full() && self.unreadable.insert(txid) {
            self.report.problem(format!("transaction {txid} cannot be read: {cause}"));
        }
    }

    /// Returns `None` where a record cannot be read that another row leads to, and names it: what is broken must not keep the rest from
    /// being checked.
    pub(super) fn readable<T>(
        &mut self,
        txid: TxId,
        found: Result<Option<T>, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        match found {
            Err(StoreError::Corrupt { cause, .. }) => {
                self.name_unreadable(txid, &cause);
                Ok(None)
            }
            other => other,
        }
    }

    /// Whether a record could not be read, or lies where none could.
    pub(super) fn is_unreadable(&self, txid: &TxId) -> bool {
        // They are in order and apart: only the last one that begins before it can have it.
        let begins_before =
            |range: &DamagedRange| range.after.as_ref().is_none_or(|after| after[..] < txid.0[..]);
        let last = self
            .damaged
            .partition_point(begins_before)
            .checked_sub(1)
            .and_then(|place| self.damaged.get(place));
        let is_within =
            |range: &DamagedRange| range.before.as_ref().is_none_or(|before| txid.0[..] < before[..]);
        self.unreadable.contains(txid) || last.is_some_and(is_within)
    }

    /// Names those of these records that lie where nothing can be read.
    pub(super) fn name_damaged<'t>(
        &mut self,
        txids: impl Iterator<Item = &'t TxId>,
    ) -> Result<(), StoreError> {
        for txid in txids {
            if self.is_unreadable(txid) {
                let found = self.snapshot.read(|set| Ok(set.head(*txid)?.is_some()));
                self.readable(*txid, found.map(Some))?;
            }
        }
        Ok(())
    }
}

fn hex(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}
