//! Reading, from a snapshot.

use std::ops::{ControlFlow, RangeInclusive};

use bytes::Bytes;
use sapwood_rules::{SpendStatus, spendability};
use sapwood_types::{
    BlockMark, DecodeError, Height, Input, OutPoint, Output, PrevOutput, TxHead, TxId, TxRecord, Undo,
};

use crate::{
    AddressKind, AddressQuery, Counts, Cursor, EachResult, Ledger, Order, Page, StoreError, UnminedTx, Utxo,
    UtxoSet, WorkingSet, check_limit,
    core::{Core, corrupt},
    engine::{DamagedRange, DamagedRow, Scan, Table, View},
    keys::{self, Pending},
    working_set::{Access, PageKey, Stop},
};

/// The ledger as of one commit.
pub(crate) struct Snapshot<'a> {
    view: Box<dyn View + 'a>,
}

/// A record that lies where the engine finds damage.
fn damaged(txid: &TxId, row: &DamagedRow) -> StoreError {
    damaged_row(format!("transaction {txid}"), row)
}

fn damaged_row(what: String, row: &DamagedRow) -> StoreError {
    tracing::error!(what, error = %row, "the engine finds a row damaged");
    let problem = "the storage engine finds damage where it lies";
    corrupt(what, DecodeError::Inconsistent { what: "row", problem })
}

impl<'a> Snapshot<'a> {
    pub(crate) fn new(view: Box<dyn View + 'a>) -> Self {
        Self { view }
    }

    /// Reads one row.
    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let mut found = Ok(None);
        self.view.get_many(table, &[key], &mut |_, value| {
            found = value.map(|value| value.map(Bytes::copy_from_slice));
        })?;
        found.map_err(|row| damaged_row(format!("a row of {}", table.name()), &row))
    }

    /// Calls `row` with each row of a range, until it breaks.
    pub(crate) fn scan(
        &self,
        scan: &Scan,
        mut row: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        Ok(self.view.scan(scan, &mut row)?)
    }

    /// Calls `row` with each row of a table in order, until it breaks, and returns the parts that the engine finds damaged.
    pub(crate) fn scan_past_damage(
        &self,
        table: Table,
        mut row: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<Vec<DamagedRange>, StoreError> {
        let mut damaged = Vec::new();
        self.view.scan_past_damage(&Scan::all(table), &mut row, &mut |range| damaged.push(range))?;
        Ok(damaged)
    }

    /// Calls `row` with each row of a table, until it fails.
    pub(crate) fn try_scan(
        &self,
        scan: &Scan,
        mut row: impl FnMut(&[u8], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut result = Ok(());
        self.scan(scan, |key, value| {
            result = row(key, value);
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        result
    }

    /// Hands on first pages as they are stored, in the order asked for. A damaged one does not keep the others from being read.
    pub(crate) fn each_first_page(
        &self,
        txids: &[TxId],
        mut page: impl FnMut(&TxId, Result<Option<&[u8]>, StoreError>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let keys: Vec<&[u8]> = txids.iter().map(|txid| &txid.0[..]).collect();
        let mut result = Ok(());
        self.view.get_many(Table::Tx, &keys, &mut |index, value| {
            let txid = &txids[index];
            if result.is_ok() {
                result = page(txid, value.map_err(|row| damaged(txid, &row)));
            }
        })?;
        result
    }

    /// Hands on the rows of pages, in one read and in the order asked for. A damaged one does not keep the others from being read.
    pub(crate) fn each_page(
        &self,
        keys: &[PageKey],
        mut page: impl FnMut(PageKey, Result<Option<&[u8]>, StoreError>),
    ) -> Result<(), StoreError> {
        if keys.is_empty() {
            return Ok(());
        }
        let bytes: Vec<[u8; 36]> = keys.iter().map(|(txid, number)| keys::page(txid, *number)).collect();
        // The key of a first page is that of a further one without the number.
        let length = |number: u32| if number == 0 { TxId::SIZE } else { TxId::SIZE + size_of::<u32>() };
        let rows = bytes.iter().zip(keys).map(|(key, (_, number))| &key[..length(*number)]);
        let rows: Vec<&[u8]> = rows.collect();
        self.view.get_many(Table::Tx, &rows, &mut |index, value| {
            page(keys[index], value.map_err(|row| damaged(&keys[index].0, &row)));
        })?;
        Ok(())
    }

    /// Runs a reading until nothing it touches is missing. It is run from its start each time.
    pub(crate) fn read<T>(
        &self,
        mut reading: impl FnMut(&mut WorkingSet) -> Access<T>,
    ) -> Result<T, StoreError> {
        let mut set = WorkingSet::default();
        loop {
            let run = reading(&mut set);
            if let Some(result) = set.conclude(run) {
                return result;
            }
            let mut keys = set.take_missing()?;
            keys.sort_unstable();
            keys.dedup();
            self.each_page(&keys, |key, row| set.load_row(key, row))?;
        }
    }

    /// Whether a key is there.
    pub(crate) fn contains(&self, table: Table, key: &[u8]) -> Result<bool, StoreError> {
        Ok(self.get(table, key)?.is_some())
    }

    /// Lists up to `limit` keys of `from..to` behind `after`, and says whether there are more.
    pub(crate) fn keys(
        &self,
        table: Table,
        (from, to): (Vec<u8>, Option<Vec<u8>>),
        after: Option<&Cursor>,
        order: Order,
        limit: usize,
    ) -> Result<(Vec<Bytes>, bool), StoreError> {
        check_limit(limit)?;
        let reverse = order == Order::Descending;
        let mut scan = Scan { table, from: &from, to: to.as_deref(), reverse, fill_cache: true };
        match after {
            Some(cursor) if reverse => scan.to = Some(scan.to.map_or(&cursor.0[..], |to| to.min(&cursor.0))),
            Some(cursor) => scan.from = scan.from.max(&cursor.0),
            None => {}
        }
        let (mut found, mut more) = (Vec::with_capacity(limit.min(1024)), false);
        self.scan(&scan, |key, _| {
            if after.is_some_and(|cursor| cursor.0 == key) {
                return ControlFlow::Continue(());
            }
            more = found.len() == limit;
            if more {
                return ControlFlow::Break(());
            }
            found.push(Bytes::copy_from_slice(key));
            ControlFlow::Continue(())
        })?;
        Ok((found, more))
    }

    /// Transactions listed by height within `heights`, oldest first.
    pub(crate) fn by_height(
        &self,
        table: Table,
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
        let (found, more) = self.keys(table, range, after, Order::Ascending, limit)?;
        let parse = |key: &Bytes| keys::parse_due(&key[prefix.len()..]).ok_or_else(|| bad_key(table));
        let items = found.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        Ok(Page::new(items, next_cursor(found, more)))
    }
}

fn bad_key(table: Table) -> StoreError {
    let cause = DecodeError::Inconsistent { what: "key", problem: "it has the wrong length" };
    corrupt(format!("an entry of {}", table.name()), cause)
}

fn next_cursor(mut found: Vec<Bytes>, more: bool) -> Option<Cursor> {
    if more { found.pop().map(Cursor) } else { None }
}

impl Core {
    pub(crate) fn read_undo(&self, height: Height) -> Result<Option<Undo>, StoreError> {
        Ok(self.read_undos(&[height])?.pop().flatten())
    }

    /// Reads undo records in one read, in the order asked for.
    pub(crate) fn read_undos(&self, heights: &[Height]) -> Result<Vec<Option<Undo>>, StoreError> {
        let keys: Vec<[u8; 4]> = heights.iter().map(|height| keys::undo(*height)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let mut undos = Vec::with_capacity(heights.len());
        self.snapshot()?.view.get_many(Table::Undo, &keys, &mut |index, value| {
            let what = || format!("undo of {}", heights[index]);
            let decode = |bytes: &[u8]| {
                Undo::decode(Bytes::copy_from_slice(bytes)).map_err(|cause| corrupt(what(), cause))
            };
            let value = value.map_err(|row| damaged_row(what(), &row));
            undos.push(value.and_then(|bytes| bytes.map(decode).transpose()));
        })?;
        undos.into_iter().collect()
    }

    fn get_many(&self, txids: &[TxId]) -> EachResult<Option<TxRecord>> {
        self.snapshot()?.read(|set| {
            set.want(txids.iter().copied());
            each(set, txids, |set, txid| set.record(*txid))
        })
    }

    fn outputs(&self, outpoints: &[OutPoint]) -> EachResult<Option<Utxo>> {
        self.snapshot()?.read(|set| {
            set.want_outputs(outpoints.iter().copied());
            each(set, outpoints, |set, outpoint| utxo(set, *outpoint))
        })
    }

    fn spend_status(&self, outpoints: &[OutPoint], at: Height) -> EachResult<SpendStatus> {
        self.snapshot()?.read(|set| {
            set.want_outputs(outpoints.iter().copied());
            each(set, outpoints, |set, outpoint| {
                let slot = set.slot(*outpoint)?;
                Ok(set.head(outpoint.txid)?.map_or(SpendStatus::NotFound, |head| {
                    spendability::status(head, outpoint.vout, slot.as_ref(), at)
                }))
            })
        })
    }

    fn unmined(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<UnminedTx>, StoreError> {
        let snapshot = self.snapshot()?;
        let mut found = Page::new(Vec::new(), after.cloned());
        loop {
            // What may not be mined is skipped, so more may have to be read to fill the page.
            let wanted = limit - found.items.len() - found.unreadable.len();
            let page = snapshot.by_height(
                Table::Pending,
                Some(Pending::Unmined),
                Height(0)..=Height::MAX,
                found.next.as_ref(),
                wanted,
            )?;
            let txs = snapshot.read(|set| {
                set.want(page.items.iter().map(|(_, txid)| *txid));
                each(set, &page.items, |set, (since, txid)| minable(set, *txid, *since))
            })?;
            for ((_, txid), tx) in page.items.into_iter().zip(txs) {
                found.add(txid, tx)?;
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
        let snapshot = self.snapshot()?;
        let prefix = keys::address_prefix(query.kind, &query.hash);
        let range = (prefix.to_vec(), keys::after_prefix(&prefix));
        let (found, more) =
            snapshot.keys(Table::Address, range, query.after.as_ref(), query.order, query.limit)?;
        let parse = |key: &Bytes| keys::parse_address(key).ok_or_else(|| bad_key(Table::Address));
        let outpoints = found.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        let utxos = snapshot.read(|set| {
            set.want_outputs(outpoints.iter().copied());
            each(set, &outpoints, |set, outpoint| utxo(set, *outpoint))
        })?;
        let mut page = Page::new(Vec::with_capacity(outpoints.len()), next_cursor(found, more));
        for (outpoint, utxo) in outpoints.into_iter().zip(utxos) {
            page.add(outpoint.txid, utxo)?;
        }
        Ok(page)
    }
}

/// Reads each item. One that needs a record that cannot be read is an error of its own.
pub(crate) fn each<K, T>(
    set: &mut WorkingSet,
    items: &[K],
    mut read: impl FnMut(&mut WorkingSet, &K) -> Access<T>,
) -> Access<Vec<Result<T, StoreError>>> {
    let mut found = Vec::with_capacity(items.len());
    set.each(items, |set, item| {
        match read(set, item) {
            Ok(value) => found.push(Ok(value)),
            Err(Stop::Failed(error)) => found.push(Err(error)),
            Err(Stop::Need) => return Err(Stop::Need),
        }
        Ok(())
    })?;
    Ok(found)
}

/// An output with its state. `None` if its record is not there.
fn utxo(set: &mut WorkingSet, outpoint: OutPoint) -> Access<Option<Utxo>> {
    let Some(output) = set.output(outpoint)? else { return Ok(None) };
    let Some(slot) = set.slot(outpoint)? else { return Ok(None) };
    Ok(set.head(outpoint.txid)?.map(|head| Utxo {
        outpoint,
        output,
        slot,
        created_height: head.created_height,
        mined_at: head.mined_at(),
        coinbase: head.coinbase,
    }))
}

/// An unmined transaction as block assembly wants it; nothing if it can never be mined.
fn minable(set: &mut WorkingSet, txid: TxId, since: Height) -> Access<Option<UnminedTx>> {
    let can_be_mined = |head: &&TxHead| !head.coinbase && !head.is_conflicting();
    let Some(head) = set.head(txid)?.filter(can_be_mined).cloned() else { return Ok(None) };
    let Some(body) = set.body(txid)? else { return Ok(None) };
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

impl Ledger {
    /// Whole records.
    pub async fn get_many(&self, txids: Vec<TxId>) -> EachResult<Option<TxRecord>> {
        self.run(move |core| core.get_many(&txids)).await?
    }

    /// One whole record.
    pub async fn get(&self, txid: TxId) -> Result<Option<TxRecord>, StoreError> {
        self.get_many(vec![txid]).await?.pop().unwrap_or(Ok(None))
    }

    /// A record whose inputs say all that is still known of what they spend: amount and script of every parent's output that is there.
    /// What the record itself says is kept where the parent is gone or cannot be read.
    pub async fn with_inputs(&self, mut record: TxRecord) -> Result<TxRecord, StoreError> {
        let is_known = |input: &&mut Input| matches!(&input.previous, Some(known) if known.script.is_some());
        let unknown: Vec<&mut Input> =
            record.body.inputs.iter_mut().filter(|input| !is_known(input)).collect();
        let found = self.outputs(unknown.iter().map(|input| input.outpoint).collect()).await?;
        for (input, utxo) in unknown.into_iter().zip(found) {
            if let Ok(Some(Utxo { output: Output { value, script, .. }, .. })) = utxo {
                let value = input.previous.as_ref().map_or(value, |known| known.value);
                input.previous = Some(PrevOutput { value, script: Some(script) });
            }
        }
        Ok(record)
    }

    /// Outputs, spent or not, as long as their record is there.
    pub async fn outputs(&self, outpoints: Vec<OutPoint>) -> EachResult<Option<Utxo>> {
        self.run(move |core| core.outputs(&outpoints)).await?
    }

    /// One output, spent or not, as long as its record is there.
    pub async fn output(&self, outpoint: OutPoint) -> Result<Option<Utxo>, StoreError> {
        self.outputs(vec![outpoint]).await?.pop().unwrap_or(Ok(None))
    }

    /// How each output looks at a height.
    pub async fn spend_status(&self, outpoints: Vec<OutPoint>, at: Height) -> EachResult<SpendStatus> {
        self.run(move |core| core.spend_status(&outpoints, at)).await?
    }

    /// Transactions unmined since `cutoff` or before, oldest first. Complete: follow `next` to its end.
    pub async fn old_unmined(
        &self,
        cutoff: Height,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<TxId>, StoreError> {
        self.run(move |core| {
            let snapshot = core.snapshot()?;
            let unmined = Some(Pending::Unmined);
            let page =
                snapshot.by_height(Table::Pending, unmined, Height(0)..=cutoff, after.as_ref(), limit)?;
            Ok(Page::new(page.items.into_iter().map(|(_, txid)| txid).collect(), page.next))
        })
        .await?
    }

    /// Unmined transactions that could be mined: neither conflicting nor coinbase.
    pub async fn unmined(&self, after: Option<Cursor>, limit: usize) -> Result<Page<UnminedTx>, StoreError> {
        self.run(move |core| core.unmined(after.as_ref(), limit)).await?
    }

    /// Unspent outputs of an address or payment credential. Outputs of losing transactions are not listed.
    pub async fn by_address(&self, query: AddressQuery) -> Result<Page<Utxo>, StoreError> {
        self.run(move |core| core.by_address(&query)).await?
    }

    /// The last applied block.
    pub async fn last_applied(&self) -> Result<Option<BlockMark>, StoreError> {
        Ok(self.core.published.read().last())
    }

    /// The lowest height a rollback can reach; nothing before the first block.
    pub async fn rollback_floor(&self) -> Result<Option<Height>, StoreError> {
        Ok(self.core.published.read().floor())
    }

    /// The lowest block a rollback can still take back: the one above the floor, or the first one while the floor is still there. What
    /// settled there or above is not deleted. Nothing before the first block.
    pub async fn undoable_from(&self) -> Result<Option<Height>, StoreError> {
        Ok(self.core.published.read().undoable_from())
    }

    /// Returns the applied block at a height: what it is, and how to roll it back. `None` if its undo record was dropped or never made.
    pub async fn block_at(&self, height: Height) -> Result<Option<Undo>, StoreError> {
        self.run(move |core| core.read_undo(height)).await?
    }

    /// How much there is.
    pub async fn counts(&self) -> Result<Counts, StoreError> {
        Ok(self.core.published.read().counts)
    }

    /// Returns how many stored records settled at a height from `from` to `to`, both included, without reading any of them. 0 if `from`
    /// is above `to`.
    pub async fn settled_between(&self, from: Height, to: Height) -> Result<u64, StoreError> {
        Ok(self.core.settled.read().between(from, to))
    }

    /// The UTXO set, hash and all, as it was kept with each write: at once, however many coins there are. Nothing where it is
    /// not kept, or was not counted yet; [`Ledger::utxo_set`] counts.
    pub async fn rolling_utxo_set(&self) -> Result<Option<UtxoSet>, StoreError> {
        Ok(self.core.published_utxo_set.read().clone())
    }

    /// A note that another part of the program left under a name.
    pub async fn note(&self, name: &str) -> Result<Option<Bytes>, StoreError> {
        let key = keys::note(name);
        self.run(move |core| core.snapshot()?.get(Table::Meta, &key)).await?
    }
}
