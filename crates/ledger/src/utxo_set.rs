//! Totals of the chain's UTXO set: how many coins, how much they are worth, and their hash as Bitcoin Core prints it.
//!
//! A coin is an output of a transaction mined on the longest chain that no mined transaction spends
//! ([`Slot::is_coin`](sapwood_types::Slot::is_coin)). [`UtxoCounter`] counts them record by record; [`UtxoChange`] says what a write did to them, from the
//! pages before and after. Both go through the same walk over a page, so nothing can be a coin to one and not to the other.
//!
//! # Correctness
//! The hash is a product, in which neither order nor grouping matters ([`MuHash`]). So a count that takes an hour and the changes
//! made meanwhile add up to the set as it is at the end, and several threads can share one block's coins.
//!
//! What decides about all coins of a record (at which height it is mined, and whether it is a coinbase) stands on its first
//! page. When that changes, coins change on pages that the write itself did not touch: [`UtxoChange`] needs those too.

use std::{
    collections::HashMap,
    fmt,
    ops::Range,
    sync::{Arc, OnceLock},
    thread::{self, ScopedJoinHandle},
};

use sapwood_muhash::{MuHash, display_hex};
use sapwood_types::{
    BlockMark, DecodeError, FirstPage, FurtherPage, Height, OutPoint, OutputRef, PAGE_SIZE, PageView, TxHead,
    TxId, coin::write_coin, page::further_pages,
};

use crate::{Changes, StoreError, changes::PageVersion, working_set::PageKey};

/// Below so many coins for each, further threads cost more than they save: starting one takes as long as hashing about twenty.
const COINS_PER_THREAD: usize = 64;
/// Coins are written down up to this size before they are hashed together.
const PENDING_BYTES: usize = 1 << 20;

/// Totals of the UTXO set of the chain.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct UtxoSet {
    /// The last applied block.
    pub last: Option<BlockMark>,
    /// How many coins there are.
    pub coins: u64,
    /// How many transactions they belong to.
    pub transactions: u64,
    /// What they are worth, in the chain's smallest unit.
    pub amount: u128,
    /// Their hash, where it is kept or was asked for. [`UtxoSet::digest`] is what people compare.
    pub hash: Option<MuHash>,
}

impl UtxoSet {
    /// A set without coins.
    pub fn empty(with_hash: bool) -> Self {
        Self { hash: with_hash.then(MuHash::new), ..Self::default() }
    }

    /// The hash as `gettxoutsetinfo muhash` of Bitcoin Core prints it. Takes milliseconds.
    pub fn digest(&self) -> Option<String> {
        self.hash.as_ref().map(|hash| display_hex(&hash.finalize()))
    }

    /// The coins of both sets, which have none in common.
    #[must_use]
    pub fn joined(self, other: UtxoSet) -> UtxoSet {
        let hash = self.hash.zip(other.hash).map(|(mut hash, other)| {
            hash.combine(&other);
            hash
        });
        UtxoSet {
            last: self.last,
            coins: self.coins + other.coins,
            transactions: self.transactions + other.transactions,
            amount: self.amount + other.amount,
            hash,
        }
    }

    /// The set after a change. Nothing if it cannot have been the set before it: less would be left than nothing.
    pub fn changed(&self, by: &UtxoChange) -> Option<UtxoSet> {
        let hash = self.hash.clone().map(|mut hash| {
            hash.combine(&by.hash);
            hash
        });
        Some(UtxoSet {
            last: self.last,
            coins: self.coins.checked_add_signed(by.coins)?,
            transactions: self.transactions.checked_add_signed(by.transactions)?,
            amount: self.amount.checked_add_signed(by.amount)?,
            hash,
        })
    }
}

impl fmt::Debug for UtxoSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UtxoSet")
            .field("last", &self.last)
            .field("coins", &self.coins)
            .field("transactions", &self.transactions)
            .field("amount", &self.amount)
            .field("hash", &self.digest())
            .finish()
    }
}

impl fmt::Display for UtxoSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UtxoSet { coins, transactions, amount, .. } = self;
        write!(f, "{coins} coins of {transactions} transactions, {amount} in all")?;
        self.digest().map_or(Ok(()), |digest| write!(f, ", muhash {digest}"))
    }
}

/// What decides about all coins of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Minted {
    height: Height,
    coinbase: bool,
}

/// Returns when and how the coins of a record were made. `None` if it is not mined: then it has no coins.
fn minted(head: &TxHead) -> Option<Minted> {
    head.mined_at().map(|height| Minted { height, coinbase: head.coinbase })
}

/// Calls `coin` with the wanted coins of one page.
fn page_coins(
    txid: TxId,
    number: u32,
    page: PageView,
    wanted: impl Fn(usize) -> bool,
    mut coin: impl FnMut(OutPoint, OutputRef),
) -> Result<(), StoreError> {
    let corrupt = |cause| StoreError::Corrupt { what: format!("transaction {txid}"), cause };
    let is_wanted = |place: usize| page.slots[place].is_coin() && wanted(place);
    let Some(last) = (0..page.slots.len()).rev().find(|place| is_wanted(*place)) else { return Ok(()) };
    let mut outputs = page.outputs;
    for place in 0..=last {
        let output = OutputRef::decode(&mut outputs).map_err(corrupt)?;
        if is_wanted(place) {
            let disagree = DecodeError::Inconsistent { what: "outputs", problem: "slot and output disagree" };
            let output = output.ok_or_else(|| corrupt(disagree))?;
            coin(OutPoint::new(txid, number * PAGE_SIZE + place as u32), output);
        }
    }
    Ok(())
}

/// Counts coins record by record: each first page is followed by the further pages of its record, in order.
pub struct UtxoCounter {
    set: UtxoSet,
    current: Option<Current>,
    coin: Vec<u8>,
}

/// The record whose pages are being read.
struct Current {
    txid: TxId,
    minted: Option<Minted>,
    next_page: u32,
    last_page: u32,
    has_coins: bool,
}

fn missing_page(txid: TxId) -> StoreError {
    let cause = DecodeError::Inconsistent { what: "record", problem: "a page is missing or left over" };
    StoreError::Corrupt { what: format!("transaction {txid}"), cause }
}

impl UtxoCounter {
    /// A counter that has seen nothing yet.
    pub fn new(with_hash: bool) -> Self {
        Self { set: UtxoSet::empty(with_hash), current: None, coin: Vec::new() }
    }

    /// The first page of the next record.
    pub fn first_page(&mut self, txid: TxId, page: &FirstPage) -> Result<(), StoreError> {
        self.end_record()?;
        let corrupt = |cause| StoreError::Corrupt { what: format!("transaction {txid}"), cause };
        let header = page.header().map_err(corrupt)?;
        let last_page = further_pages(header.head.output_count);
        let minted = minted(&header.head);
        self.current = Some(Current { txid, minted, next_page: 1, last_page, has_coins: false });
        self.page(0, page.view(&header).map_err(corrupt)?)
    }

    /// The next further page of the same record.
    pub fn further_page(&mut self, txid: TxId, number: u32, page: &FurtherPage) -> Result<(), StoreError> {
        let expected = |current: &&mut Current| current.txid == txid && current.next_page == number;
        let current = self.current.as_mut().filter(expected).ok_or_else(|| missing_page(txid))?;
        current.next_page += 1;
        self.page(number, page.view())
    }

    fn page(&mut self, number: u32, page: PageView) -> Result<(), StoreError> {
        let Some(current) = &mut self.current else { return Ok(()) };
        let Some(Minted { height, coinbase }) = current.minted else { return Ok(()) };
        let set = &mut self.set;
        let bytes = &mut self.coin;
        page_coins(
            current.txid,
            number,
            page,
            |_| true,
            |outpoint, output| {
                set.coins += 1;
                set.transactions += u64::from(!current.has_coins);
                current.has_coins = true;
                set.amount += u128::from(output.value);
                if let Some(hash) = &mut set.hash {
                    bytes.clear();
                    write_coin(outpoint, height, coinbase, output, bytes);
                    hash.insert(bytes);
                }
            },
        )
    }

    fn end_record(&mut self) -> Result<(), StoreError> {
        match self.current.take() {
            Some(current) if current.next_page != current.last_page + 1 => Err(missing_page(current.txid)),
            _ => Ok(()),
        }
    }

    /// All coins seen. The caller knows at which block.
    pub fn finish(mut self) -> Result<UtxoSet, StoreError> {
        self.end_record()?;
        Ok(self.set)
    }
}

/// What a write did to the UTXO set.
#[derive(Clone, Debug, Default)]
pub struct UtxoChange {
    coins: i64,
    transactions: i64,
    amount: i128,
    hash: MuHash,
    /// How many coins came or went: the totals can be the same although the coins are not.
    moved: u64,
}

impl UtxoChange {
    /// Whether no coin came or went.
    pub fn is_none(&self) -> bool {
        self.moved == 0
    }

    /// This change, and then another one.
    pub fn then(&mut self, other: &UtxoChange) {
        self.coins += other.coins;
        self.transactions += other.transactions;
        self.amount += other.amount;
        self.moved += other.moved;
        self.hash.combine(&other.hash);
    }

    /// Derives what these changes do to the coins. `read` reads pages that did not change and were not loaded, but whose record came onto
    /// the longest chain or left it. It is called once at most.
    pub(crate) fn of(
        changes: &Changes,
        read: impl FnOnce(&[PageKey]) -> Result<Vec<Option<Arc<FurtherPage>>>, StoreError>,
    ) -> Result<Self, StoreError> {
        let wanted = untouched_pages(changes)?;
        let pages = if wanted.is_empty() { Vec::new() } else { read(&wanted)? };
        let found = wanted.into_iter().zip(pages).filter_map(|(key, page)| Some((key, page?)));
        let mut walk =
            Walk { change: Self::default(), pending: Pending::default(), untouched: found.collect() };
        for (txid, change) in &changes.first {
            let corrupt = |cause| StoreError::Corrupt { what: format!("transaction {txid}"), cause };
            let headers = change.headers().map_err(corrupt)?;
            let [before, now] = headers.each_ref().map(Option::as_ref);
            let minted = [before, now].map(|header| header.and_then(|header| minted(&header.head)));
            if minted == [None, None] {
                continue;
            }
            let moved_before = walk.change.moved;
            walk.page(*txid, 0, minted, change.views(&headers).map_err(corrupt)?)?;
            let further =
                [before, now].map(|header| header.map_or(0, |it| further_pages(it.head.output_count)));
            if further != [0, 0] {
                walk.further_pages(changes, *txid, minted, further)?;
            }
            if walk.change.moved > moved_before {
                let has_coins = |version: &Option<PageVersion>, minted: Option<Minted>| {
                    let open = version.as_ref().map_or(0, |version| version.derived.open);
                    i64::from(minted.is_some() && open > 0)
                };
                walk.change.transactions +=
                    has_coins(&change.now, minted[1]) - has_coins(&change.before, minted[0]);
            }
        }
        walk.pending.hash_into(&mut walk.change.hash);
        Ok(walk.change)
    }
}

/// Lists the further pages that did not change and are not loaded, of records that came onto the longest chain or left it.
fn untouched_pages(changes: &Changes) -> Result<Vec<PageKey>, StoreError> {
    let mut pages = Vec::new();
    for (txid, change) in &changes.first {
        let (Some(before), Some(now)) = (&change.before, &change.now) else { continue };
        if before.derived.mined_at == now.derived.mined_at {
            continue;
        }
        let corrupt = |cause| StoreError::Corrupt { what: format!("transaction {txid}"), cause };
        let [Some(before), Some(now)] = change.headers().map_err(corrupt)? else { continue };
        let count = before.head.output_count.min(now.head.output_count);
        let keys = (1..=further_pages(count)).map(|page| (*txid, page));
        pages.extend(
            keys.filter(|key| changes.further_page(key).is_none() && !changes.unchanged.contains_key(key)),
        );
    }
    Ok(pages)
}

/// A walk over changed pages.
struct Walk {
    /// Pages that were read for this.
    untouched: HashMap<PageKey, Arc<FurtherPage>>,
    change: UtxoChange,
    pending: Pending,
}

impl Walk {
    /// The further pages of a record whose first page changed. A transition that changes a further page changes the first one too.
    fn further_pages(
        &mut self,
        changes: &Changes,
        txid: TxId,
        minted: [Option<Minted>; 2],
        further: [u32; 2],
    ) -> Result<(), StoreError> {
        let from = changes.further.partition_point(|(key, _)| *key < (txid, 0));
        for ((_, number), page) in changes.further[from..].iter().take_while(|((of, _), _)| *of == txid) {
            let pages = [&page.before, &page.now].map(|page| page.as_deref().map(FurtherPage::view));
            self.page(txid, *number, minted, pages)?;
        }
        if minted[0] != minted[1] {
            // A page that is there before and after without being changed. Coming and going records change all of theirs.
            let is_changed =
                |key: &PageKey| changes.further.binary_search_by_key(key, |(key, _)| *key).is_ok();
            let pages = (1..=further[0].min(further[1])).map(|number| (txid, number));
            for key in pages.filter(|key| !is_changed(key)) {
                let page = changes.unchanged.get(&key).or_else(|| self.untouched.get(&key)).cloned();
                let page = page.ok_or_else(|| missing_page(txid))?;
                self.page(txid, key.1, minted, [Some(page.view()); 2])?;
            }
        }
        Ok(())
    }

    /// One page before and after. Coins that stay as they are are passed over without being looked at.
    fn page(
        &mut self,
        txid: TxId,
        number: u32,
        minted: [Option<Minted>; 2],
        pages: [Option<PageView>; 2],
    ) -> Result<(), StoreError> {
        let same =
            minted[0] == minted[1] && matches!(pages, [Some(before), Some(now)] if same_outputs(before, now));
        let is_coin = |page: Option<PageView>, place: usize| {
            page.is_some_and(|page| page.slots.get(place).is_some_and(|slot| slot.is_coin()))
        };
        let moves = |place: usize| !(same && is_coin(pages[0], place) && is_coin(pages[1], place));
        for (comes, (minted, page)) in [false, true].into_iter().zip(minted.into_iter().zip(pages)) {
            let (Some(minted), Some(page)) = (minted, page) else { continue };
            page_coins(txid, number, page, moves, |outpoint, output| {
                self.coin(comes, outpoint, minted, output)
            })?;
        }
        Ok(())
    }

    fn coin(&mut self, comes: bool, outpoint: OutPoint, minted: Minted, output: OutputRef) {
        let sign = if comes { 1 } else { -1 };
        self.change.moved += 1;
        self.change.coins += sign;
        self.change.amount += i128::from(sign) * i128::from(output.value);
        let Pending { bytes, coins } = &mut self.pending;
        let start = bytes.len();
        write_coin(outpoint, minted.height, minted.coinbase, output, bytes);
        coins.push(PendingCoin { bytes: start..bytes.len(), comes });
        if bytes.len() > PENDING_BYTES {
            self.pending.hash_into(&mut self.change.hash);
        }
    }
}

/// Whether two pages have the same outputs. Mostly they share them.
fn same_outputs(one: PageView, other: PageView) -> bool {
    std::ptr::eq(one.outputs, other.outputs) || one.outputs == other.outputs
}

/// Coins written down one after the other, to be hashed together.
#[derive(Default)]
struct Pending {
    bytes: Vec<u8>,
    coins: Vec<PendingCoin>,
}

/// Where a coin lies, and whether it comes or goes.
struct PendingCoin {
    bytes: Range<usize>,
    comes: bool,
}

impl Pending {
    /// Hashes all that is written down, on all cores if it is much.
    fn hash_into(&mut self, hash: &mut MuHash) {
        let share = self.coins.len().div_ceil(cores()).max(COINS_PER_THREAD);
        let mut shares = self.coins.chunks(share);
        let own = shares.next().unwrap_or_default();
        let hash_share = |coins: &[PendingCoin]| {
            let mut hash = MuHash::new();
            for PendingCoin { bytes, comes } in coins {
                let coin = &self.bytes[bytes.clone()];
                if *comes { hash.insert(coin) } else { hash.remove(coin) }
            }
            hash
        };
        thread::scope(|scope| {
            let start =
                |coins| (coins, thread::Builder::new().spawn_scoped(scope, move || hash_share(coins)));
            let others: Vec<_> = shares.map(start).collect();
            hash.combine(&hash_share(own));
            for (coins, other) in others {
                // If no other thread could be started, this one does its share.
                let other = other.map_or_else(|_| Ok(hash_share(coins)), ScopedJoinHandle::join);
                hash.combine(&other.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
        });
        self.bytes.clear();
        self.coins.clear();
    }
}

/// How many threads hash at once. Asking the system reads files, so it is asked once.
pub fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| thread::available_parallelism().map_or(1, usize::from))
}
