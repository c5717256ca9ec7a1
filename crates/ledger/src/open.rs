//! Opening: what the ledger was made with, and what an older one becomes.

use bytes::Bytes;
use sapwood_types::DecodeError;

use crate::{
    AddressIndexing, StoreError, UtxoSet,
    core::{Core, corrupt},
    dump::LOADING_KEY,
    engine::{Engine, Table, WriteSet},
    migrate::{PROGRAM, SCHEMA, SCHEMA_KEY, WRITTEN_BY_KEY},
    read::Snapshot,
    rolling,
    state::{IDENTITY_KEY, INDEXING_KEY, STATE_KEY, State},
};

fn missing(what: &'static str) -> StoreError {
    corrupt(format!("the {what}"), DecodeError::Inconsistent { what, problem: "it is missing" })
}

fn decode_indexing(row: &[u8]) -> AddressIndexing {
    let flags = row.first().copied().unwrap_or(0);
    AddressIndexing { address: flags & 1 != 0, credential: flags & 2 != 0 }
}

/// Reads the address indexes a ledger was made with. `None` if there is no ledger.
pub(crate) fn stored_indexing(engine: &dyn Engine) -> Result<Option<AddressIndexing>, StoreError> {
    let row = Snapshot::new(engine.view()?).get(Table::Meta, INDEXING_KEY)?;
    Ok(row.map(|row| decode_indexing(&row)))
}

impl Core {
    fn meta(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.snapshot()?.get(Table::Meta, key)
    }

    /// Checks what the ledger was made with, or notes it in a new one. An older one is migrated.
    ///
    /// Whatever is refused is refused before anything is written.
    pub(crate) fn check_schema(&mut self) -> Result<State, StoreError> {
        let indexing = self.options.address_index;
        let wanted = [u8::from(indexing.address) | u8::from(indexing.credential) << 1];
        if self.meta(LOADING_KEY)?.is_some() {
            return Err(StoreError::HalfLoaded { place: self.engine.place() });
        }
        let Some(found) = self.stored_schema()? else {
            // Only what is empty may be taken for new: else a damaged ledger would be written over.
            if self.is_read_only() || !self.options.create || self.meta(STATE_KEY)?.is_some() {
                return Err(missing("schema version"));
            }
            return self.create(wanted);
        };
        self.check_indexing(wanted)?;
        self.check_identity()?;
        let migration = self.migration()?;
        if found < SCHEMA || migration.is_some() {
            let place = self.engine.place();
            if self.is_read_only() {
                return Err(StoreError::OlderSchema { place, found, known: SCHEMA });
            }
            self.migrate(found, migration)?;
        }
        let state = self.meta(STATE_KEY)?.ok_or_else(|| missing("store's state"))?;
        let state = State::decode(state).map_err(|cause| corrupt("the store's state", cause))?;
        let settled = self.snapshot()?.settled()?;
        *self.settled.get_mut() = settled;
        Ok(state)
    }

    /// Reads the schema version. `None` if there is none.
    ///
    /// # Errors
    /// [`StoreError::NewerSchema`] if it is newer than this program.
    fn stored_schema(&self) -> Result<Option<u32>, StoreError> {
        let Some(schema) = self.meta(SCHEMA_KEY)? else { return Ok(None) };
        let found = schema.as_ref().try_into().map(u32::from_be_bytes);
        let bad = |cause| corrupt("the schema version", cause);
        let found = found.map_err(|_| bad(DecodeError::BadNumber { field: "schema version" }))?;
        if found == 0 {
            // No program ever wrote it: whatever made it so may have damaged more.
            return Err(bad(DecodeError::UnknownValue { field: "schema version", value: 0 }));
        }
        if found > SCHEMA {
            let written_by = self.meta(WRITTEN_BY_KEY)?;
            let written_by = written_by.map(|name| String::from_utf8_lossy(&name).into_owned());
            let place = self.engine.place();
            return Err(StoreError::NewerSchema { place, found, known: SCHEMA, written_by });
        }
        Ok(Some(found))
    }

    /// Notes what a new ledger is made with.
    fn create(&self, indexing: [u8; 1]) -> Result<State, StoreError> {
        let mut writes = WriteSet::default();
        writes.put(Table::Meta, SCHEMA_KEY, &SCHEMA.to_be_bytes());
        writes.put(Table::Meta, WRITTEN_BY_KEY, PROGRAM.as_bytes());
        writes.put(Table::Meta, INDEXING_KEY, &indexing);
        writes.put(Table::Meta, STATE_KEY, &State::default().encode());
        if let Some(identity) = &self.options.identity {
            writes.put(Table::Meta, IDENTITY_KEY, identity.as_bytes());
        }
        if self.options.utxo_hash {
            rolling::put(&mut writes, Some(&UtxoSet::empty(true)));
        }
        self.commit_rows(writes)?;
        Ok(State::default())
    }

    /// The address indexes are those the ledger was made with. A reader takes what there is.
    fn check_indexing(&mut self, wanted: [u8; 1]) -> Result<(), StoreError> {
        let made_with = self.meta(INDEXING_KEY)?;
        if made_with.as_deref() == Some(&wanted) {
            return Ok(());
        }
        let made_with = made_with.map_or(AddressIndexing::default(), |row| decode_indexing(&row));
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

    /// Reads the network the ledger holds. `None` if it does not say.
    fn stored_identity(&self) -> Result<Option<String>, StoreError> {
        let Some(bytes) = self.meta(IDENTITY_KEY)? else { return Ok(None) };
        let text = String::from_utf8(bytes.to_vec()).map_err(|_| {
            let problem = "it is not text";
            corrupt("the network's identity", DecodeError::Inconsistent { what: "identity", problem })
        })?;
        Ok(Some(text))
    }

    /// Checks that the ledger holds the network it is opened for.
    fn check_identity(&self) -> Result<(), StoreError> {
        match (self.stored_identity()?, self.options.identity.clone()) {
            (Some(found), Some(wanted)) if found != wanted => {
                Err(StoreError::OtherIdentity { place: self.engine.place(), found, wanted })
            }
            _ => Ok(()),
        }
    }

    /// Takes the network that the ledger holds. One that does not say takes the one it is opened for.
    pub(crate) fn take_identity(&mut self) -> Result<(), StoreError> {
        self.identity = self.stored_identity()?;
        if self.identity.is_some() || self.is_read_only() {
            return Ok(());
        }
        let Some(wanted) = self.options.identity.clone() else { return Ok(()) };
        let mut writes = WriteSet::default();
        writes.put(Table::Meta, IDENTITY_KEY, wanted.as_bytes());
        self.commit_rows(writes)?;
        let place = self.engine.place();
        tracing::info!(%place, identity = %wanted, "the store did not say which network it holds: it does now");
        self.identity = Some(wanted);
        Ok(())
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
