//! Reading, from a snapshot.

use std::{
    ops::{ControlFlow, RangeInclusive},
    sync::Arc,
};

use bytes::Bytes;
use sapwood_rules::{SpendStatus, spendability};
use sapwood_types::{
    BlockMark, DecodeError, FirstPage, FurtherPage, Height, Input, OutPoint, Output, PrevOutput, TxHead,
    TxId, TxRecord, Undo,
};

use crate::{
    AddressKind, AddressQuery, Counts, Cursor, EachResult, Ledger, Order, Page, PageSource, StoreError,
    UnminedTx, Utxo, UtxoSet, WorkingSet,
    beside::beside,
    check_limit,
    core::{Core, corrupt, decode_further},
    engine::{DamagedRow, Scan, Table, View},
    keys::{self, Pending},
    working_set::{PageKey, readable},
};

/// The ledger as of one commit.
pub(crate) struct Snapshot<'a> {
    view: Box<dyn View + 'a>,
    two_cores_from: usize,
}

/// A record that lies where the engine finds damage.
fn damaged(txid: &TxId, row: &DamagedRow) -> StoreError {
    tracing::error!(%txid, error = %row, "the engine finds a record damaged");
    let problem = "the storage engine finds damage where it lies";
    corrupt(format!("transaction {txid}"), DecodeError::Inconsistent { what: "record", problem })
}

impl<'a> Snapshot<'a> {
    pub(crate) fn new(view: Box<dyn View + 'a>, two_cores_from: usize) -> Self {
        Self { view, two_cores_from }
    }

    /// Reads one row.
    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let mut found = Ok(None);
        self.view.get_many(table, &[key], &mut |_, value| {
            found = value.map(|value| value.map(Bytes::copy_from_slice));
        })?;
        found.map_err(|row| {
            tracing::error!(table = table.name(), error = %row, "the engine finds a row damaged");
            let problem = "the storage engine finds damage where it lies";
            corrupt(format!("a row of {}", table.name()), DecodeError::Inconsistent { what: "row", problem })
        })
    }

    /// Calls `row` with each row of a range, until it breaks.
    pub(crate) fn scan(
        &self,
        scan: &Scan,
        mut row: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        Ok(self.view.scan(scan, &mut row)?)
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

    fn read_first_pages(&self, txids: &[TxId]) -> Result<Vec<Option<FirstPage>>, StoreError> {
        let mut pages = Vec::with_capacity(txids.len());
        self.each_first_page(txids, |_, bytes| {
            pages.push(bytes?.map(FirstPage::new));
            Ok(())
        })?;
        Ok(pages)
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

impl PageSource for Snapshot<'_> {
    fn first_pages(&self, txids: &[TxId]) -> Result<Vec<Option<FirstPage>>, StoreError> {
        let (first, second) = txids.split_at(txids.len() / 2);
        let large = txids.len() >= self.two_cores_from;
        let (first, second) =
            beside(large, || self.read_first_pages(first), || self.read_first_pages(second));
        let mut pages = first?;
        pages.append(&mut second?);
        Ok(pages)
    }

    fn further_pages(&self, pages: &[PageKey]) -> Result<Vec<Option<Arc<FurtherPage>>>, StoreError> {
        let keys: Vec<[u8; 36]> = pages.iter().map(|(txid, number)| keys::page(txid, *number)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let mut found = Vec::with_capacity(pages.len());
        self.view.get_many(Table::Tx, &keys, &mut |index, value| {
            let (txid, number) = &pages[index];
            let value = value.map_err(|row| damaged(txid, &row));
            found.push(value.and_then(|value| {
                let page = value.map(|bytes| decode_further(txid, *number, Bytes::copy_from_slice(bytes)));
                Ok(page.transpose()?.map(Arc::new))
            }));
        })?;
        found.into_iter().collect()
    }
}

impl Core {
    pub(crate) fn read_undo(&self, height: Height) -> Result<Option<Undo>, StoreError> {
        let bytes = self.snapshot()?.get(Table::Undo, &keys::undo(height))?;
        let decode = |bytes| Undo::decode(bytes).map_err(|cause| corrupt(format!("undo of {height}"), cause));
        bytes.map(decode).transpose()
    }

    fn get_many(&self, txids: &[TxId]) -> EachResult<Option<TxRecord>> {
        let snapshot = self.snapshot()?;
        let mut set = WorkingSet::new(&snapshot);
        readable(set.load_all_pages(txids))?;
        each(txids, |txid| set.record(*txid))
    }

    fn outputs(&self, outpoints: &[OutPoint]) -> EachResult<Option<Utxo>> {
        let snapshot = self.snapshot()?;
        let mut set = WorkingSet::new(&snapshot);
        readable(set.load_outputs(outpoints.iter().copied()))?;
        each(outpoints, |outpoint| utxo(&mut set, *outpoint))
    }

    fn spend_status(&self, outpoints: &[OutPoint], at: Height) -> EachResult<SpendStatus> {
        let snapshot = self.snapshot()?;
        let mut set = WorkingSet::new(&snapshot);
        readable(set.load_outputs(outpoints.iter().copied()))?;
        each(outpoints, |outpoint| {
            let slot = set.slot(*outpoint)?;
            Ok(set.head(outpoint.txid)?.map_or(SpendStatus::NotFound, |head| {
                spendability::status(head, outpoint.vout, slot.as_ref(), at)
            }))
        })
    }

    fn unmined(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<UnminedTx>, StoreError> {
        let snapshot = self.snapshot()?;
        let mut set = WorkingSet::new(&snapshot);
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
        let snapshot = self.snapshot()?;
        let prefix = keys::address_prefix(query.kind, &query.hash);
        let range = (prefix.to_vec(), keys::after_prefix(&prefix));
        let (found, more) =
            snapshot.keys(Table::Address, range, query.after.as_ref(), query.order, query.limit)?;
        let parse = |key: &Bytes| keys::parse_address(key).ok_or_else(|| bad_key(Table::Address));
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

/// Reads each item. An error of one record is that item's, any other ends it all.
fn each<K, T>(items: &[K], mut read: impl FnMut(&K) -> Result<T, StoreError>) -> EachResult<T> {
    let one = |item| match read(item) {
        Err(error) if !error.is_of_one_record() => Err(error),
        found => Ok(found),
    };
    items.iter().map(one).collect()
}

/// An output with its state. `None` if its record is not there.
fn utxo(set: &mut WorkingSet, outpoint: OutPoint) -> Result<Option<Utxo>, StoreError> {
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
fn minable(set: &mut WorkingSet, txid: TxId, since: Height) -> Result<Option<UnminedTx>, StoreError> {
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
