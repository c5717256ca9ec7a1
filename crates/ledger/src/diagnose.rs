//! Looking inside: the state's digest, all records, the engine's statistics, copies.

use std::{ops::ControlFlow, path::Path, sync::Arc};

use bytes::Bytes;
use sapwood_types::{DecodeError, FirstPage, TxId, TxRecord};

use crate::{
    Cursor, DiskRoom, Ledger, Page, StoreError, UtxoProgress, UtxoSet, VerifyReport, check_limit,
    core::{Core, corrupt},
    digest::StateDigest,
    engine::{EngineWrites, Maintenance, Scan, Table, TableStats},
    keys::{self, RecordKey},
    read::each,
    working_set::decode_further,
};

fn bad_record_key() -> StoreError {
    corrupt("a record's key", DecodeError::BadNumber { field: "key" })
}

impl Core {
    /// Hashes everything, as of one commit.
    fn state_digest(&self) -> Result<[u8; 32], StoreError> {
        let writer = self.writer.lock();
        let state = writer.state.clone();
        let snapshot = self.snapshot()?;
        drop(writer);
        // Spenders are forgotten only at or below the floor. Unlike the height they are forgotten at, it depends neither on the
        // policy of the moment nor on how far the chain had got before it was rolled back.
        let mut digest = StateDigest::new(state.floor());
        snapshot.try_scan(&Scan::all(Table::Tx), |key, value| {
            match RecordKey::parse(key) {
                Some(RecordKey::First(txid)) => digest
                    .first_page(&txid, &FirstPage::new(value))
                    .map_err(|cause| corrupt(format!("transaction {txid}"), cause))?,
                Some(RecordKey::Further(txid, number)) => {
                    digest.further_page(decode_further((txid, number), value)?);
                }
                None => return Err(bad_record_key()),
            }
            Ok(())
        })?;
        let mut undo_heights = Vec::new();
        snapshot.try_scan(&Scan::all(Table::Undo), |key, _| {
            undo_heights.extend(keys::parse_undo(key));
            Ok(())
        })?;
        Ok(digest.finish(
            state.last(),
            state.floor(),
            state.greatest_block_id,
            state.prune_cursor,
            undo_heights,
        ))
    }

    fn records(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<TxRecord>, StoreError> {
        check_limit(limit)?;
        let snapshot = self.snapshot()?;
        // Behind the further pages of the last record shown.
        let from = after.map(|cursor| [&cursor.0[..], &[0xff; 5]].concat()).unwrap_or_default();
        let (mut txids, mut more) = (Vec::<TxId>::new(), Ok(false));
        snapshot.scan(&Scan { from: &from, ..Scan::all(Table::Tx) }, |key, _| {
            match RecordKey::parse(key) {
                Some(RecordKey::First(_)) if txids.len() == limit => more = Ok(true),
                Some(RecordKey::First(txid)) => {
                    txids.push(txid);
                    return ControlFlow::Continue(());
                }
                Some(RecordKey::Further(..)) => return ControlFlow::Continue(()),
                None => more = Err(bad_record_key()),
            }
            ControlFlow::Break(())
        })?;
        let more = more?;
        let next = txids.last().filter(|_| more).map(|txid| Cursor(Bytes::copy_from_slice(&txid.0)));
        let records = snapshot.read(|set| {
            set.want(txids.iter().copied());
            each(set, &txids, |set, txid| set.record(*txid))
        })?;
        let mut page = Page::new(Vec::with_capacity(txids.len()), next);
        for (txid, record) in txids.into_iter().zip(records) {
            page.add(txid, record)?;
        }
        Ok(page)
    }

    fn engine_stats(&self, table: Option<&str>) -> Result<Vec<TableStats>, StoreError> {
        let wanted = match table {
            None => None,
            Some(name) => {
                Some(Table::ALL.into_iter().find(|table| table.name() == name).ok_or_else(|| {
                    let names: Vec<&str> = Table::ALL.into_iter().map(Table::name).collect();
                    let problem = format!("there is no table {name:?}: the tables are {}", names.join(", "));
                    StoreError::BadOption { problem }
                })?)
            }
        };
        Ok(self.engine.stats(wanted)?.tables)
    }

    fn disk_room(&self) -> Result<Option<DiskRoom>, StoreError> {
        let space = self.engine.disk_space()?;
        Ok(space.map(|space| DiskRoom {
            free_bytes: space.free_bytes,
            total_bytes: space.total_bytes,
            reserve_bytes: self.options.disk_reserve_bytes,
        }))
    }

    /// Refuses to take more in while the disk is nearly full. A disk that cannot be measured stops nothing.
    pub(crate) fn check_room(&self) -> Result<(), StoreError> {
        if self.options.disk_reserve_bytes == 0 {
            return Ok(());
        }
        match self.disk_room() {
            Ok(Some(room)) if room.is_short() => Err(StoreError::NoRoom {
                place: self.engine.place(),
                free_bytes: room.free_bytes,
                reserve_bytes: room.reserve_bytes,
            }),
            _ => Ok(()),
        }
    }

    fn backup(&self, directory: &Path) -> Result<(), StoreError> {
        if directory.exists() {
            let problem =
                format!("{} exists already: a copy is written to a new directory", directory.display());
            return Err(StoreError::BadOption { problem });
        }
        // The engine may have to flush first, and then nothing may be committed in between.
        let _no_writes = self.writer.lock();
        Ok(self.engine.backup(directory)?)
    }
}

impl Ledger {
    /// A hash of everything that can be observed. Equal states have equal hashes, whatever way led to them.
    pub async fn state_digest(&self) -> Result<[u8; 32], StoreError> {
        self.run(Core::state_digest).await?
    }

    /// Whole records of everything there is, in the order of their ids. Not one moment: each page is as it is when it is asked for.
    pub async fn records(&self, after: Option<Cursor>, limit: usize) -> Result<Page<TxRecord>, StoreError> {
        self.run(move |core| core.records(after.as_ref(), limit)).await?
    }

    /// Checks every record, every index and how they belong together. `progress` is called with done and estimated total.
    pub async fn verify(
        &self,
        progress: Arc<dyn Fn(u64, u64) + Send + Sync>,
    ) -> Result<VerifyReport, StoreError> {
        self.run(move |core| core.verify(progress.as_ref())).await?
    }

    /// The error that every write gets at the moment, or what it waits for, if there is one. Waits for no write.
    pub async fn writable(&self) -> Result<(), StoreError> {
        self.core.check_poison()?;
        Ok(self.run(|core| core.engine.check()).await??)
    }

    /// Counts the UTXO set as it is at one moment, while others read and write. Reads every record. Ends early with
    /// [`StoreError::Stopped`] if `progress` says so, and soon after the call is dropped. A store that keeps the set but does
    /// not know it yet goes on from what was counted here, if that was with the hash.
    pub async fn utxo_set(&self, with_hash: bool, progress: UtxoProgress) -> Result<UtxoSet, StoreError> {
        self.counted_utxo_set(with_hash, progress).await
    }

    /// What kind of engine it is, such as `rocksdb` or `memory`.
    pub fn engine_kind(&self) -> &'static str {
        self.core.engine.kind()
    }

    /// Returns the engine's statistics by table; with a name, of that table only.
    pub async fn engine_stats(&self, table: Option<String>) -> Result<Vec<TableStats>, StoreError> {
        self.run(move |core| core.engine_stats(table.as_deref())).await?
    }

    /// What the engine wrote since the store was opened. `None` for a store that does not count it.
    pub async fn engine_writes(&self) -> Result<Option<EngineWrites>, StoreError> {
        Ok(self.core.engine.writes())
    }

    /// The room on the disk that holds the store. `None` for a store that is on none.
    pub async fn disk_room(&self) -> Result<Option<DiskRoom>, StoreError> {
        self.run(Core::disk_room).await?
    }

    /// Writes a consistent copy of the store to a new directory while it runs.
    pub async fn checkpoint(&self, directory: &Path) -> Result<(), StoreError> {
        let directory = directory.to_owned();
        self.run(move |core| core.backup(&directory)).await?
    }
}

impl Ledger {
    /// Waits until the engine has nothing left to flush or compact, so that disk use can be measured.
    pub async fn settle_disk(&self) -> Result<(), StoreError> {
        self.run(|core| Ok(core.engine.maintain(Maintenance::Settle)?)).await?
    }
}
