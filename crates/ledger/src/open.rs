//! Opening: what the ledger was made with, and what an older one becomes.

use bytes::Bytes;
use sapwood_types::{DecodeError, FurtherPage, RecordHeader};

use crate::{
    AddressIndexing, Counts, StoreError, UtxoSet,
    changes::{CountChanges, Derived},
    core::{Core, corrupt},
    engine::{Scan, Table, WriteSet},
    keys::RecordKey,
    rolling,
    settled::{self, Settled},
    state::{IDENTITY_KEY, INDEXING_KEY, SCHEMA, SCHEMA_KEY, STATE_KEY, State},
};

fn missing(what: &'static str) -> StoreError {
    corrupt(format!("the {what}"), DecodeError::Inconsistent { what, problem: "it is missing" })
}

impl Core {
    fn meta(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.snapshot()?.get(Table::Meta, key)
    }

    /// Checks what the ledger was made with, or notes it in a new one. An older one is migrated.
    pub(crate) fn check_schema(&mut self) -> Result<State, StoreError> {
        let indexing = self.options.address_index;
        let wanted = [u8::from(indexing.address) | u8::from(indexing.credential) << 1];
        let Some(schema) = self.meta(SCHEMA_KEY)? else {
            // Only what is empty may be taken for new: else a damaged ledger would be written over.
            if self.is_read_only() || !self.options.create || self.meta(STATE_KEY)?.is_some() {
                return Err(missing("schema version"));
            }
            let mut writes = WriteSet::default();
            writes.put(Table::Meta, SCHEMA_KEY, &SCHEMA.to_be_bytes());
            writes.put(Table::Meta, INDEXING_KEY, &wanted);
            writes.put(Table::Meta, STATE_KEY, &State::default().encode());
            if let Some(identity) = &self.options.identity {
                writes.put(Table::Meta, IDENTITY_KEY, identity.as_bytes());
            }
            if self.options.utxo_hash {
                rolling::put(&mut writes, Some(&UtxoSet::empty(true)));
            }
            self.commit_rows(writes)?;
            return Ok(State::default());
        };
        let found =
            schema.as_ref().try_into().map(u32::from_be_bytes).map_err(|_| {
                corrupt("the schema version", DecodeError::BadNumber { field: "schema version" })
            })?;
        if found == 0 {
            // No program ever wrote it: whatever made it so may have damaged more.
            let cause = DecodeError::UnknownValue { field: "schema version", value: 0 };
            return Err(corrupt("the schema version", cause));
        }
        if found > SCHEMA {
            return Err(StoreError::NewerSchema { place: self.engine.place(), found, known: SCHEMA });
        }
        self.check_indexing(wanted)?;
        let state = self.meta(STATE_KEY)?.ok_or_else(|| missing("store's state"))?;
        let state = State::decode(state).map_err(|cause| corrupt("the store's state", cause))?;
        if found < SCHEMA {
            return self.migrate(found, state);
        }
        let settled = self.snapshot()?.settled()?;
        *self.settled.get_mut() = settled;
        Ok(state)
    }

    /// The address indexes are those the ledger was made with. A reader takes what there is.
    fn check_indexing(&mut self, wanted: [u8; 1]) -> Result<(), StoreError> {
        let made_with = self.meta(INDEXING_KEY)?;
        if made_with.as_deref() == Some(&wanted) {
            return Ok(());
        }
        let made_with = made_with.and_then(|bytes| bytes.first().copied()).unwrap_or(0);
        let made_with = AddressIndexing { address: made_with & 1 != 0, credential: made_with & 2 != 0 };
        if self.is_read_only() {
            self.options.address_index = made_with;
            return Ok(());
        }
        let problem = format!(
            "{} was made with address indexes {made_with:?}, but {:?} was asked for: use the same setting, or import into a new \
             directory",
            self.engine.place(),
            self.options.address_index
        );
        Err(StoreError::BadOption { problem })
    }

    /// Schema 1 did not count spent outputs, and schema 2 not what is retained and why: they are counted once, from the records that are
    /// there. A reader counts each time.
    fn migrate(&mut self, from: u32, mut state: State) -> Result<State, StoreError> {
        let place = self.engine.place();
        tracing::info!(%place, from, to = SCHEMA, "the store is of an older version: it is migrated");
        let counted = self.count_records()?;
        let found = Counts::default().changed(&counted);
        // What was counted all along includes records that were pruned since.
        let spent = if from == 1 { found.spent } else { state.counts.spent };
        let Counts { locked, preserved, child_unmined, .. } = found;
        state.counts = Counts { spent, locked, preserved, child_unmined, ..state.counts };
        let settled = Settled::from_iter(counted.settled);
        if !self.is_read_only() {
            let mut writes = WriteSet::default();
            writes.put(Table::Meta, SCHEMA_KEY, &SCHEMA.to_be_bytes());
            writes.put(Table::Meta, STATE_KEY, &state.encode());
            settled::put(&mut writes, settled.iter());
            self.commit_rows(writes)?;
        }
        *self.settled.get_mut() = settled;
        tracing::info!(%place, schema = SCHEMA, counts = ?state.counts, "the store is migrated");
        Ok(state)
    }

    fn count_records(&self) -> Result<CountChanges, StoreError> {
        let mut counted = CountChanges::default();
        self.snapshot()?.try_scan(&Scan::all(Table::Tx), |key, value| {
            // What cannot be read is left to `verify`, which names it.
            match RecordKey::parse(key) {
                Some(RecordKey::First(_)) => {
                    if let Ok(header) = RecordHeader::decode(value) {
                        counted.add_derived(&Derived::of(header.view()), 1);
                    }
                }
                Some(RecordKey::Further(..)) => {
                    if let Ok(page) = FurtherPage::decode(Bytes::copy_from_slice(value)) {
                        counted.add_slots(&page.slots, 1);
                    }
                }
                None => {}
            }
            Ok(())
        })?;
        Ok(counted)
    }

    /// Checks that the ledger holds the network it is opened for. One that does not say takes the one it is opened for.
    pub(crate) fn check_identity(&mut self) -> Result<(), StoreError> {
        let found = match self.meta(IDENTITY_KEY)? {
            Some(bytes) => Some(String::from_utf8(bytes.to_vec()).map_err(|_| {
                let problem = "it is not text";
                corrupt("the network's identity", DecodeError::Inconsistent { what: "identity", problem })
            })?),
            None => None,
        };
        match (found, self.options.identity.clone()) {
            (Some(found), Some(wanted)) if found != wanted => {
                Err(StoreError::OtherIdentity { place: self.engine.place(), found, wanted })
            }
            (None, Some(wanted)) if !self.is_read_only() => {
                let mut writes = WriteSet::default();
                writes.put(Table::Meta, IDENTITY_KEY, wanted.as_bytes());
                self.commit_rows(writes)?;
                let place = self.engine.place();
                tracing::info!(%place, identity = %wanted, "the store did not say which network it holds: it does now");
                self.identity = Some(wanted);
                Ok(())
            }
            (found, _) => {
                self.identity = found;
                Ok(())
            }
        }
    }

    /// Logs what the ledger runs with, in one line.
    pub(crate) fn log_options(&self) {
        let options = &self.options;
        let mib = |bytes: u64| bytes >> 20;
        tracing::info!(
            place = %self.engine.place(),
            engine = self.engine.kind(),
            identity = self.identity.as_deref().unwrap_or("not named"),
            read_only = self.is_read_only(),
            record_cache_mib = mib(options.record_cache_bytes),
            mined_heights_mib = mib(options.mined_heights_bytes),
            address_index = options.address_index.address,
            credential_index = options.address_index.credential,
            utxo_hash = options.utxo_hash,
            disk_reserve_mib = mib(options.disk_reserve_bytes),
            "the store is open"
        );
    }
}
