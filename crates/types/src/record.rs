//! What the store keeps of a transaction.

use std::borrow::Borrow;

use smallvec::SmallVec;

use crate::{
    AddressHash, BlockMark, DecodeError, FirstPage, FurtherPage, Height, OutPoint, Output, PageView,
    RecordHeader, RecordView, Slot, Tx, TxId, UtxoHash, first_page,
    page::{further_pages, outputs_on},
    tx::TxBody,
};

/// Where the body of a large transaction lives instead of in the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum External {
    /// In a `.tx` file: the whole transaction.
    Tx,
    /// In an `.outputs` file: a transaction without inputs.
    Outputs,
}

/// One block a transaction is mined in. Under forks there can be several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MinedIn {
    /// The block's number in this store. Two blocks at one height have different ones.
    pub block_id: u32,
    /// The block's height.
    pub height: Height,
    /// Which part of the block, for chains that divide theirs.
    pub subtree: u32,
    /// Whether the block is on the longest chain.
    pub on_longest_chain: bool,
}

impl MinedIn {
    /// Mined in the block with this mark, on the longest chain.
    pub fn block(mark: &BlockMark) -> Self {
        Self { block_id: mark.id, height: mark.height, subtree: 0, on_longest_chain: true }
    }
}

/// The blocks of a transaction. Nearly all are mined in one, which needs no memory of its own.
pub type Blocks = SmallVec<[MinedIn; 1]>;

/// One change of an output's owner: the audit trail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reassignment {
    /// Which output.
    pub vout: u32,
    /// Its hash before, which no longer spends.
    pub old: UtxoHash,
    /// Its hash from now on.
    pub new: UtxoHash,
    /// The height at which it was done.
    pub at: Height,
    /// The first height at which the output may be spent again.
    pub spendable_from: Height,
}

/// The changing state of a stored transaction.
///
/// In this order in memory: what a spender asks comes first, so that it lies together. A block looks at thousands of records that
/// lie anywhere, and waits for memory most of the time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct TxHead {
    /// The blocks it is mined in.
    pub blocks: Blocks,
    /// The first height at which a coinbase's outputs may be spent.
    pub spending_height: Option<Height>,
    /// Since when it is known to lose against another transaction.
    pub conflicting_since: Option<Height>,
    /// Whether it mints coins.
    pub coinbase: bool,
    /// Whether its outputs are locked until block assembly accepts it or a block mines it.
    pub locked: bool,
    /// Whether the record is not complete yet. Only engines that cannot write all pages at once ever show this.
    pub creating: bool,
    /// Where its body lives, if not here.
    pub external: Option<External>,
    /// How many outputs it has, on all pages.
    pub output_count: u32,
    /// Changes of ownership of its outputs, oldest first.
    pub reassignments: Vec<Reassignment>,
    /// The height at which the record was made. It never changes, so address pages ordered by it are stable.
    pub created_height: Height,
    /// The first height at which it was known to be unmined. It is kept through mining and reorganisations: stamping it
    /// again would restart the clock that protects its parents.
    pub first_unmined: Option<Height>,
    /// Up to which height it must not be deleted.
    pub preserve_until: Option<Height>,
    /// When the record was made, in milliseconds since 1970; given by the caller.
    pub created_at: u64,
    /// Transactions that would have spent its outputs and lost.
    pub conflicting_children: Vec<TxId>,
}

impl TxHead {
    /// Since when it is not mined on the longest chain, if it is not.
    pub fn unmined_since(&self) -> Option<Height> {
        if self.mined_at().is_some() { None } else { self.first_unmined.or(Some(self.created_height)) }
    }

    /// The height at which it is mined on the longest chain, if it is. Of several blocks the highest counts: to assume it
    /// younger than it is keeps data longer, never shorter.
    pub fn mined_at(&self) -> Option<Height> {
        self.blocks.iter().filter(|block| block.on_longest_chain).map(|block| block.height).max()
    }

    /// Whether it lost against another transaction.
    pub fn is_conflicting(&self) -> bool {
        self.conflicting_since.is_some()
    }

    /// The first height at which output `vout` may be spent, if it was ever reassigned.
    pub fn reassigned_until(&self, vout: u32) -> Option<Height> {
        self.reassignments.iter().rev().find(|entry| entry.vout == vout).map(|entry| entry.spendable_from)
    }
}

/// A stored transaction, decoded: all pages put together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxRecord {
    /// Which transaction.
    pub txid: TxId,
    /// Its changing state.
    pub head: TxHead,
    /// What never changes.
    pub body: TxBody,
    /// Its outputs; nothing for one that can never be spent.
    pub outputs: Vec<Option<Output>>,
    /// The state of each output.
    pub slots: Vec<Slot>,
}

impl TxRecord {
    /// The record of a transaction of which nothing is spent yet.
    pub fn new(tx: &Tx, head: TxHead) -> Self {
        let kept = |output: &Output| output.spendable.then(|| output.clone());
        let slot = |output: &Output| if output.spendable { Slot::Unspent } else { Slot::Unspendable };
        TxRecord {
            txid: tx.txid,
            head: TxHead { output_count: tx.outputs.len() as u32, ..head },
            body: TxBody {
                version: tx.version,
                locktime: tx.locktime,
                fee: tx.fee,
                size: tx.size,
                inputs: tx.inputs.clone(),
            },
            outputs: tx.outputs.iter().map(kept).collect(),
            slots: tx.outputs.iter().map(slot).collect(),
        }
    }

    /// Puts a record together from its pages, checking everything that decoding single pages does not.
    pub fn assemble(txid: TxId, first: &FirstPage, further: &[FurtherPage]) -> Result<Self, DecodeError> {
        Self::assemble_with(txid, first, &first.header()?, further)
    }

    /// Puts a record together as [`assemble`](Self::assemble) does. `header` is the one of the first page, changed or not.
    pub fn assemble_with<P: Borrow<FurtherPage>>(
        txid: TxId,
        first: &FirstPage,
        header: &RecordHeader,
        further: &[P],
    ) -> Result<Self, DecodeError> {
        const WHAT: &str = "record";
        let refuse = |problem| Err(DecodeError::Inconsistent { what: WHAT, problem });
        let count = header.head.output_count;
        if further.len() != further_pages(count) as usize {
            return refuse("a page is missing or left over");
        }
        let pages: Vec<PageView> = std::iter::once(first.view(header))
            .chain(further.iter().map(|page| Ok(page.borrow().view())))
            .collect::<Result<_, _>>()?;
        // An output is found by its number alone, so each page must have its own share, not only all together.
        if pages.iter().zip(0..).any(|(page, number)| page.slots.len() != outputs_on(number, count)) {
            return refuse("a page has too few or too many outputs");
        }
        if further.iter().zip(&header.summaries).any(|(page, summary)| page.borrow().summary() != *summary) {
            return refuse("a page summary is stale");
        }
        let (mut outputs, mut slots) = (Vec::new(), Vec::new());
        for page in pages {
            outputs.append(&mut page.decode_outputs()?);
            slots.extend_from_slice(page.slots);
        }
        let body = first.body(header)?;
        Ok(TxRecord { txid, head: header.head.clone(), body, outputs, slots })
    }

    /// Encodes the record: its first page, then the others in order.
    pub fn to_pages(&self) -> (FirstPage, Vec<FurtherPage>) {
        first_page::split(self)
    }

    /// Shows the record to the rules.
    pub fn view(&self) -> RecordView<'_> {
        RecordView::of_record(self)
    }

    /// Which output this is.
    pub fn outpoint(&self, vout: u32) -> OutPoint {
        OutPoint::new(self.txid, vout)
    }

    /// The hash under which output `vout` is found by address.
    pub fn address_hash(&self, vout: u32) -> Option<AddressHash> {
        let output = self.outputs.get(vout as usize)?.as_ref()?;
        Some(AddressHash::of_script(&output.script))
    }
}
