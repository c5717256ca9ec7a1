//! Reading, from a snapshot.

use std::{ops::RangeInclusive, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use rocksdb::{Direction, IteratorMode, ReadOptions};
use sapwood_rules::{SpendStatus, spendability};
use sapwood_store::{
    AddressKind, AddressQuery, Counts, Cursor, Order, Page, PageSource, StoreError, StoreRead, UnminedTx,
    Utxo, UtxoSet, WorkingSet, check_limit,
    working_set::{PageKey, readable},
};
use sapwood_types::{
    BlockMark, DecodeError, Height, OutPoint, OutputPage, StoredMaster, TxBody, TxId, TxRecord, Undo,
};

use crate::{
    EmbeddedStore,
    columns::Column,
    engine::{Engine, corrupt, engine_error},
    keys::{self, Pending},
};

/// The store as it is at one moment.
pub(crate) struct Snapshot<'a> {
    engine: &'a Engine,
    snapshot: rocksdb::Snapshot<'a>,
}

impl<'a> Snapshot<'a> {
    pub(crate) fn new(engine: &'a Engine) -> Self {
        Self { engine, snapshot: engine.db().snapshot() }
    }

    /// Makes reads with these options see this moment.
    pub(crate) fn pin(&self, options: &mut ReadOptions) {
        options.set_snapshot(&self.snapshot);
    }

    fn options(&self) -> ReadOptions {
        let mut options = ReadOptions::default();
        self.pin(&mut options);
        options
    }

    /// First pages as they are stored; one that is damaged does not keep the others from being read.
    pub(crate) fn each_master(
        &self,
        txids: &[TxId],
        page: impl FnMut(&TxId, Result<Option<&[u8]>, StoreError>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.engine.read_each_master(txids, &self.options(), page)
    }

    /// Whether a key is there.
    pub(crate) fn contains(&self, column: Column, key: &[u8]) -> Result<bool, StoreError> {
        let family = self.engine.column(column)?;
        let found = self.engine.db().get_pinned_cf_opt(family, key, &self.options());
        Ok(found.map_err(engine_error("looking for an entry"))?.is_some())
    }

    /// Up to `limit` keys from `start` on (or down, `start` excluded) within `from..to`, and whether there are more.
    pub(crate) fn keys(
        &self,
        column: Column,
        range: (Vec<u8>, Option<Vec<u8>>),
        after: Option<&Cursor>,
        order: Order,
        limit: usize,
    ) -> Result<(Vec<Bytes>, bool), StoreError> {
        check_limit(limit)?;
        let (from, to) = range;
        let mut options = self.options();
        options.set_total_order_seek(true);
        let mode_start: Option<Vec<u8>> = match (order, after) {
            (Order::Ascending, None) => Some(from.clone()),
            (_, Some(cursor)) => Some(cursor.0.to_vec()),
            (Order::Descending, None) => to.clone(),
        };
        options.set_iterate_lower_bound(from);
        if let Some(to) = to {
            options.set_iterate_upper_bound(to);
        }
        let mode = match (&mode_start, order) {
            (Some(start), Order::Ascending) => IteratorMode::From(start, Direction::Forward),
            (Some(start), Order::Descending) => IteratorMode::From(start, Direction::Reverse),
            (None, _) => IteratorMode::End,
        };
        let mut found = Vec::with_capacity(limit.min(1024));
        for entry in self.engine.db().iterator_cf_opt(self.engine.column(column)?, options, mode) {
            let (key, _) = entry.map_err(engine_error("listing"))?;
            if after.is_some_and(|cursor| cursor.0 == *key) {
                continue;
            }
            if found.len() == limit {
                return Ok((found, true));
            }
            found.push(Bytes::from(key));
        }
        Ok((found, false))
    }

    /// Transactions listed by height within `heights`, oldest first.
    pub(crate) fn by_height(
        &self,
        column: Column,
        tag: Option<Pending>,
        heights: RangeInclusive<Height>,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<(Height, TxId)>, StoreError> {
        // Before all else: whether a request is refused must not depend on what there is to list.
        check_limit(limit)?;
        let prefix: Vec<u8> = tag.map(|tag| tag as u8).into_iter().collect();
        if heights.is_empty() {
            return Ok(Page::new(Vec::new(), None));
        }
        let key = |height: &Height| [&prefix[..], &height.0.to_be_bytes()].concat();
        let range = (key(heights.start()), keys::after_prefix(&key(heights.end())));
        let (found, more) = self.keys(column, range, after, Order::Ascending, limit)?;
        let parse = |key: &Bytes| keys::parse_due(&key[prefix.len()..]).ok_or_else(|| bad_key(column));
        let items = found.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        Ok(Page::new(items, next_cursor(found, more)))
    }
}

fn bad_key(column: Column) -> StoreError {
    let cause = DecodeError::Inconsistent { what: "key", problem: "it has the wrong length" };
    corrupt(format!("an entry of {}", column.name()), cause)
}

fn next_cursor(mut found: Vec<Bytes>, more: bool) -> Option<Cursor> {
    if more { found.pop().map(Cursor) } else { None }
}

impl PageSource for Snapshot<'_> {
    fn masters(&self, txids: &[TxId]) -> Result<Vec<Option<StoredMaster>>, StoreError> {
        self.engine.read_masters(txids, &self.options())
    }

    fn extras(&self, keys: &[PageKey]) -> Result<Vec<Option<Arc<OutputPage>>>, StoreError> {
        let found = self.engine.read_extras(keys, &self.options())?;
        Ok(found.into_iter().map(|page| page.map(Arc::new)).collect())
    }
}

impl Engine {
    pub(crate) fn read_undo(&self, height: Height) -> Result<Option<Undo>, StoreError> {
        let bytes = self.get(Column::Undo, &keys::undo(height))?;
        let decode = |bytes| Undo::decode(bytes).map_err(|cause| corrupt(format!("undo of {height}"), cause));
        bytes.map(decode).transpose()
    }

    fn get_many(&self, txids: &[TxId]) -> Result<Vec<Result<Option<TxRecord>, StoreError>>, StoreError> {
        let snapshot = Snapshot::new(self);
        let mut set = WorkingSet::new(&snapshot);
        readable(set.load_all_pages(txids))?;
        let record = |txid: &TxId| match set.record(*txid) {
            Err(error) if !error.is_of_one_record() => Err(error),
            record => Ok(record),
        };
        txids.iter().map(record).collect()
    }

    fn outputs(&self, outpoints: &[OutPoint]) -> Result<Vec<Option<Utxo>>, StoreError> {
        let snapshot = Snapshot::new(self);
        let mut set = WorkingSet::new(&snapshot);
        set.load_outputs(outpoints.iter().copied())?;
        outpoints.iter().map(|outpoint| utxo(&mut set, *outpoint)).collect()
    }

    fn spend_status(&self, outpoints: &[OutPoint], at: Height) -> Result<Vec<SpendStatus>, StoreError> {
        let snapshot = Snapshot::new(self);
        let mut set = WorkingSet::new(&snapshot);
        set.load_outputs(outpoints.iter().copied())?;
        let status = |outpoint: &OutPoint| {
            let slot = set.slot(*outpoint)?;
            Ok(set.master(outpoint.txid)?.map_or(SpendStatus::NotFound, |master| {
                spendability::status(&master.head, outpoint.vout, slot.as_ref(), at)
            }))
        };
        outpoints.iter().map(status).collect()
    }

    fn unmined(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<UnminedTx>, StoreError> {
        let snapshot = Snapshot::new(self);
        let mut set = WorkingSet::new(&snapshot);
        let mut found = Page::new(Vec::new(), after.cloned());
        loop {
            // What may not be mined is skipped, so more may have to be read to fill the page.
            let wanted = limit - found.items.len() - found.unreadable.len();
            let page = snapshot.by_height(
                Column::Pending,
                Some(Pending::Unmined),
                Height(0)..=Height::MAX,
                found.next.as_ref(),
                wanted,
            )?;
            set.load_readable(page.items.iter().map(|(_, txid)| *txid))?;
            for (since, txid) in page.items {
                found.add(txid, minable(&mut set, txid, since))?;
            }
            found.next = page.next;
            if found.next.is_none() || found.items.len() + found.unreadable.len() == limit {
                return Ok(found);
            }
        }
    }

    fn by_address(&self, query: &AddressQuery) -> Result<Page<Utxo>, StoreError> {
        let (kept, by) = match query.kind {
            AddressKind::Address => (self.options.address_index.address, "address"),
            AddressKind::Credential => (self.options.address_index.credential, "credential"),
        };
        if !kept {
            // An empty page would be a lie.
            let problem =
                format!("this store keeps no index by {by}: make a new one with that index to ask by it");
            return Err(StoreError::BadOption { problem });
        }
        let snapshot = Snapshot::new(self);
        let prefix = keys::address_prefix(query.kind, &query.hash);
        let range = (prefix.to_vec(), keys::after_prefix(&prefix));
        let (found, more) =
            snapshot.keys(Column::Address, range, query.after.as_ref(), query.order, query.limit)?;
        let parse = |key: &Bytes| keys::parse_address(key).ok_or_else(|| bad_key(Column::Address));
        let outpoints = found.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        let mut set = WorkingSet::new(&snapshot);
        readable(set.load_outputs(outpoints.iter().copied()))?;
        let mut page = Page::new(Vec::with_capacity(outpoints.len()), next_cursor(found, more));
        for outpoint in outpoints {
            page.add(outpoint.txid, utxo(&mut set, outpoint))?;
        }
        Ok(page)
    }
}

/// An output with its state. `None` if its record is not there.
fn utxo(set: &mut WorkingSet, outpoint: OutPoint) -> Result<Option<Utxo>, StoreError> {
    let Some(output) = set.output(outpoint)? else { return Ok(None) };
    let Some(slot) = set.slot(outpoint)? else { return Ok(None) };
    Ok(set.master(outpoint.txid)?.map(|master| Utxo {
        outpoint,
        output,
        slot,
        created_height: master.head.created_height,
        mined_at: master.head.mined_at(),
        coinbase: master.head.coinbase,
    }))
}

/// An unmined transaction as block assembly wants it; nothing if it can never be mined.
fn minable(set: &mut WorkingSet, txid: TxId, since: Height) -> Result<Option<UnminedTx>, StoreError> {
    let Some(master) = set.master(txid)? else { return Ok(None) };
    let head = &master.head;
    if head.coinbase || head.is_conflicting() {
        return Ok(None);
    }
    let body = TxBody::decode(master.body.clone())
        .map_err(|cause| corrupt(format!("the body of transaction {txid}"), cause))?;
    Ok(Some(UnminedTx {
        txid,
        since,
        fee: body.fee,
        size: body.size,
        inputs: body.inputs.iter().map(|input| input.outpoint).collect(),
        created_at: head.created_at,
        locked: head.locked,
        blocks: head.blocks.to_vec(),
    }))
}

#[async_trait]
impl StoreRead for EmbeddedStore {
    async fn get_many(
        &self,
        txids: Vec<TxId>,
    ) -> Result<Vec<Result<Option<TxRecord>, StoreError>>, StoreError> {
        self.run(move |engine| engine.get_many(&txids)).await?
    }

    async fn outputs(&self, outpoints: Vec<OutPoint>) -> Result<Vec<Option<Utxo>>, StoreError> {
        self.run(move |engine| engine.outputs(&outpoints)).await?
    }

    async fn spend_status(
        &self,
        outpoints: Vec<OutPoint>,
        at: Height,
    ) -> Result<Vec<SpendStatus>, StoreError> {
        self.run(move |engine| engine.spend_status(&outpoints, at)).await?
    }

    async fn old_unmined(
        &self,
        cutoff: Height,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<TxId>, StoreError> {
        self.run(move |engine| {
            let snapshot = Snapshot::new(engine);
            let unmined = Some(Pending::Unmined);
            let page =
                snapshot.by_height(Column::Pending, unmined, Height(0)..=cutoff, after.as_ref(), limit)?;
            Ok(Page::new(page.items.into_iter().map(|(_, txid)| txid).collect(), page.next))
        })
        .await?
    }

    async fn unmined(&self, after: Option<Cursor>, limit: usize) -> Result<Page<UnminedTx>, StoreError> {
        self.run(move |engine| engine.unmined(after.as_ref(), limit)).await?
    }

    async fn by_address(&self, query: AddressQuery) -> Result<Page<Utxo>, StoreError> {
        self.run(move |engine| engine.by_address(&query)).await?
    }

    async fn last_applied(&self) -> Result<Option<BlockMark>, StoreError> {
        Ok(self.engine.published.read().last())
    }

    async fn rollback_floor(&self) -> Result<Option<Height>, StoreError> {
        Ok(self.engine.published.read().floor())
    }

    async fn undoable_from(&self) -> Result<Option<Height>, StoreError> {
        Ok(self.engine.published.read().undoable_from())
    }

    async fn undo(&self, height: Height) -> Result<Option<Undo>, StoreError> {
        self.run(move |engine| engine.read_undo(height)).await?
    }

    async fn counts(&self) -> Result<Counts, StoreError> {
        Ok(self.engine.published.read().counts)
    }

    async fn rolling_utxo_set(&self) -> Result<Option<UtxoSet>, StoreError> {
        Ok(self.engine.published_utxo_set.read().clone())
    }

    async fn note(&self, name: &str) -> Result<Option<Bytes>, StoreError> {
        let key = keys::note(name);
        self.run(move |engine| engine.get(Column::Meta, &key)).await?
    }
}
