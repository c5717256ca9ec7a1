//! Records in pages: how a transaction lies in the store.
//!
//! Page 0, the master, holds the state of the whole transaction and its first [`PAGE_SIZE`] outputs; each further page holds
//! as many more. The master keeps a summary of every further page, so the master alone says whether the transaction is
//! settled. What never changes stays encoded: a spend decodes the head and the slots, and copies the rest.

use bytes::{Buf, Bytes};
use smallvec::SmallVec;

use crate::{
    Blocks, DecodeError, External, Height, MinedIn, Output, PAGE_SIZE, Reassignment, Slot, Tx, TxHead,
    TxRecord,
    codec::{Reader, Writer},
    tx::TxBody,
};

const VERSION: u8 = 1;

/// What the master knows of a further page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSummary {
    /// How many of its slots are open, see [`Slot::is_open`].
    pub open: u8,
    /// How many of its slots are claimed, see [`Slot::is_claimed`].
    pub claimed: u8,
    /// The greatest height at which a spender of one of its outputs was mined.
    pub latest_child: Option<Height>,
}

impl PageSummary {
    /// The summary of these slots.
    pub fn of(slots: &[Slot]) -> Self {
        let count = |wanted: fn(&Slot) -> bool| slots.iter().filter(|slot| wanted(slot)).count() as u8;
        PageSummary {
            open: count(Slot::is_open),
            claimed: count(Slot::is_claimed),
            latest_child: slots.iter().filter_map(Slot::child_mined_at).max(),
        }
    }
}

/// The states of the outputs on a page. Most transactions have two, which need no memory of their own.
pub type Slots = SmallVec<[Slot; 2]>;

/// Up to [`PAGE_SIZE`] outputs and their state: all there is on a further page, and the last part of the master.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct OutputPage {
    /// The state of the outputs.
    pub slots: Slots,
    /// The outputs, encoded one after the other.
    pub outputs: Bytes,
}

/// The first page of a transaction. In this order in memory, see [`TxHead`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct MasterPage {
    /// Its first outputs.
    pub page: OutputPage,
    /// The state of the whole transaction.
    pub head: TxHead,
    /// What is known of the further pages.
    pub summaries: Vec<PageSummary>,
    /// [`TxBody`], encoded.
    pub body: Bytes,
}

mod flag {
    pub(super) const COINBASE: u16 = 1 << 0;
    pub(super) const LOCKED: u16 = 1 << 1;
    pub(super) const CREATING: u16 = 1 << 2;
    pub(super) const FIRST_UNMINED: u16 = 1 << 3;
    pub(super) const CONFLICTING: u16 = 1 << 4;
    pub(super) const PRESERVED: u16 = 1 << 5;
    pub(super) const SPENDING_HEIGHT: u16 = 1 << 6;
    pub(super) const EXTERNAL_TX: u16 = 1 << 7;
    pub(super) const EXTERNAL_OUTPUTS: u16 = 1 << 8;
    pub(super) const CONFLICTING_CHILDREN: u16 = 1 << 9;
    pub(super) const REASSIGNMENTS: u16 = 1 << 10;
    pub(super) const ALL: u16 = (1 << 11) - 1;
}

/// How many further pages this many outputs need.
pub fn extra_pages(output_count: u32) -> u32 {
    output_count.saturating_sub(1) / PAGE_SIZE
}

/// How many outputs page `page` of so many has.
pub(crate) fn outputs_on(page: u32, output_count: u32) -> usize {
    output_count.saturating_sub(page * PAGE_SIZE).min(PAGE_SIZE) as usize
}

impl MasterPage {
    /// The page as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::with_capacity(
            48 + self.page.slots.len() * 42 + self.body.len() + self.page.outputs.len(),
        );
        self.encode_to(&mut to);
        to.finish()
    }

    /// Writes the page.
    pub fn encode_to(&self, to: &mut Writer) {
        let head = &self.head;
        to.u8(VERSION);
        to.u16(self.flags());
        to.height(head.created_height);
        to.varint(head.created_at);
        to.varint(head.output_count.into());
        let heights = [head.first_unmined, head.conflicting_since, head.preserve_until, head.spending_height];
        for height in heights.into_iter().flatten() {
            to.height(height);
        }
        to.length(head.blocks.len());
        for block in &head.blocks {
            to.varint(block.block_id.into());
            to.height(block.height);
            to.varint(u64::from(block.subtree) << 1 | u64::from(block.on_longest_chain));
        }
        if !head.conflicting_children.is_empty() {
            to.length(head.conflicting_children.len());
            head.conflicting_children.iter().for_each(|child| to.bytes(&child.0));
        }
        if !head.reassignments.is_empty() {
            to.length(head.reassignments.len());
            for entry in &head.reassignments {
                to.varint(entry.vout.into());
                to.bytes(&entry.old.0);
                to.bytes(&entry.new.0);
                to.height(entry.at);
                to.height(entry.spendable_from);
            }
        }
        for summary in &self.summaries {
            to.u8(summary.open);
            to.u8(summary.claimed);
            to.u8(summary.latest_child.is_some().into());
            if let Some(height) = summary.latest_child {
                to.height(height);
            }
        }
        self.page.slots.iter().for_each(|slot| slot.encode(to));
        to.sized(&self.body);
        to.bytes(&self.page.outputs);
    }

    fn flags(&self) -> u16 {
        let head = &self.head;
        let set = |condition: bool, flag: u16| if condition { flag } else { 0 };
        set(head.coinbase, flag::COINBASE)
            | set(head.locked, flag::LOCKED)
            | set(head.creating, flag::CREATING)
            | set(head.first_unmined.is_some(), flag::FIRST_UNMINED)
            | set(head.conflicting_since.is_some(), flag::CONFLICTING)
            | set(head.preserve_until.is_some(), flag::PRESERVED)
            | set(head.spending_height.is_some(), flag::SPENDING_HEIGHT)
            | set(head.external == Some(External::Tx), flag::EXTERNAL_TX)
            | set(head.external == Some(External::Outputs), flag::EXTERNAL_OUTPUTS)
            | set(!head.conflicting_children.is_empty(), flag::CONFLICTING_CHILDREN)
            | set(!head.reassignments.is_empty(), flag::REASSIGNMENTS)
    }

    /// Reads a page. The body and the outputs are only cut out; [`TxRecord::assemble`] reads them too.
    pub fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        let mut from = Reader::new(bytes);
        let flags = decode_flags(&mut from)?;
        let has = |flag: u16| flags & flag != 0;
        let created_height = from.height("created height")?;
        let created_at = from.varint("created at")?;
        let output_count = from.varint_u32("output count")?;
        let mut height = |flag: u16, field| has(flag).then(|| from.height(field)).transpose();
        let first_unmined = height(flag::FIRST_UNMINED, "first unmined")?;
        let conflicting_since = height(flag::CONFLICTING, "conflicting since")?;
        let preserve_until = height(flag::PRESERVED, "preserve until")?;
        let spending_height = height(flag::SPENDING_HEIGHT, "spending height")?;
        let external = match (has(flag::EXTERNAL_TX), has(flag::EXTERNAL_OUTPUTS)) {
            (false, false) => None,
            (true, false) => Some(External::Tx),
            (false, true) => Some(External::Outputs),
            (true, true) => {
                let problem = "two kinds of external body";
                return Err(DecodeError::Inconsistent { what: "record", problem });
            }
        };
        let head = TxHead {
            coinbase: has(flag::COINBASE),
            locked: has(flag::LOCKED),
            creating: has(flag::CREATING),
            external,
            created_height,
            created_at,
            first_unmined,
            conflicting_since,
            preserve_until,
            spending_height,
            blocks: decode_blocks(&mut from)?,
            conflicting_children: if has(flag::CONFLICTING_CHILDREN) {
                decode_list(&mut from, "conflicting children", 32, |from| from.txid("conflicting child"))?
            } else {
                Vec::new()
            },
            reassignments: if has(flag::REASSIGNMENTS) {
                decode_list(&mut from, "reassignments", 73, decode_reassignment)?
            } else {
                Vec::new()
            },
            output_count,
        };
        check_head(&head)?;
        let pages = extra_pages(output_count);
        let needed = pages as usize * LEAST_SUMMARY;
        if needed > from.left() {
            return Err(DecodeError::Truncated { field: "page summaries", needed, left: from.left() });
        }
        let summaries = (1..=pages)
            .map(|page| decode_summary(&mut from, outputs_on(page, output_count)))
            .collect::<Result<_, _>>()?;
        let slots = decode_slots(&mut from, outputs_on(0, output_count))?;
        let body = from.sized("body")?;
        Ok(MasterPage { head, summaries, body, page: OutputPage { slots, outputs: from.rest() } })
    }

    /// When the transaction of an encoded page was mined on the longest chain, if it is, without reading the rest. Parents are
    /// deleted on the strength of this: flags that are not known, and contradictions about mining, are refused as by
    /// [`MasterPage::decode`].
    pub fn peek_mined_at(bytes: &[u8]) -> Result<Option<Height>, DecodeError> {
        let mut from = Reader::of_slice(bytes);
        let flags = decode_flags(&mut from)?;
        from.height("created height")?;
        from.varint("created at")?;
        from.varint_u32("output count")?;
        let mut height = |flag: u16| (flags & flag != 0).then(|| from.height("record heights")).transpose();
        height(flag::FIRST_UNMINED)?;
        let conflicting_since = height(flag::CONFLICTING)?;
        height(flag::PRESERVED)?;
        height(flag::SPENDING_HEIGHT)?;
        let head = TxHead { conflicting_since, blocks: decode_blocks(&mut from)?, ..TxHead::default() };
        check_head(&head)?;
        Ok(head.mined_at())
    }

    /// How many outputs, on all pages, stand in the way of deletion, see [`Slot::is_open`].
    pub fn open_slots(&self) -> u32 {
        let here = self.page.slots.iter().filter(|slot| slot.is_open()).count() as u32;
        here + self.summaries.iter().map(|summary| u32::from(summary.open)).sum::<u32>()
    }

    /// How many outputs, on all pages, keep even a losing transaction, see [`Slot::is_claimed`].
    pub fn claimed_slots(&self) -> u32 {
        let here = self.page.slots.iter().filter(|slot| slot.is_claimed()).count() as u32;
        here + self.summaries.iter().map(|summary| u32::from(summary.claimed)).sum::<u32>()
    }

    /// The greatest height at which a spender of one of the outputs, on any page, was mined.
    pub fn latest_child(&self) -> Option<Height> {
        let here = self.page.slots.iter().filter_map(Slot::child_mined_at);
        here.chain(self.summaries.iter().filter_map(|summary| summary.latest_child)).max()
    }
}

impl OutputPage {
    /// Writes the page.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::with_capacity(4 + self.slots.len() * 42 + self.outputs.len());
        to.u8(VERSION);
        to.length(self.slots.len());
        self.slots.iter().for_each(|slot| slot.encode(&mut to));
        to.bytes(&self.outputs);
        to.finish()
    }

    /// Reads a page. The outputs are only cut out.
    pub fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        const WHAT: &str = "page";
        let mut from = Reader::new(bytes);
        from.version(WHAT, VERSION)?;
        let count = from.count("slots", Slot::LEAST_SIZE)?;
        if count == 0 || count > PAGE_SIZE as usize {
            return Err(DecodeError::Inconsistent { what: WHAT, problem: "a page has 1 to 128 slots" });
        }
        let slots = decode_slots(&mut from, count)?;
        Ok(OutputPage { slots, outputs: from.rest() })
    }

    /// What the master should know of this page.
    pub fn summary(&self) -> PageSummary {
        PageSummary::of(&self.slots)
    }

    /// The outputs on this page.
    pub fn decode_outputs(&self) -> Result<Vec<Option<Output>>, DecodeError> {
        const WHAT: &str = "outputs";
        let mut from = Reader::new(self.outputs.clone());
        let mut outputs = Vec::with_capacity(self.slots.len());
        for slot in &self.slots {
            let output = Output::decode(&mut from)?;
            if output.is_none() != (*slot == Slot::Unspendable) {
                return Err(DecodeError::Inconsistent { what: WHAT, problem: "slot and output disagree" });
            }
            outputs.push(output);
        }
        from.end(WHAT)?;
        Ok(outputs)
    }

    /// The output at one place, if the page reaches that far and the output was kept.
    pub fn output(&self, place: usize) -> Result<Option<Output>, DecodeError> {
        if place >= self.slots.len() {
            return Ok(None);
        }
        let mut from = Reader::new(self.outputs.clone());
        for _ in 0..place {
            Output::decode(&mut from)?;
        }
        Output::decode(&mut from)
    }

    /// Puts another output in the place of one that was kept. Refused where the page could not be read again afterwards:
    /// nothing was kept in that place, or nothing would be.
    pub fn set_output(&mut self, place: usize, output: Output) -> Result<(), DecodeError> {
        let mut outputs = self.decode_outputs()?;
        match outputs.get_mut(place) {
            Some(Some(old)) if output.spendable => *old = output,
            _ => {
                let problem = "only a spendable output can be replaced, and only by another";
                return Err(DecodeError::Inconsistent { what: "outputs", problem });
            }
        }
        let mut to = Writer::with_capacity(self.outputs.len());
        encode_outputs(outputs.iter().map(Option::as_ref), &mut to);
        self.outputs = to.finish().into();
        Ok(())
    }
}

/// What a first page begins with. A flag that is not known may mean fields that are not known either, and then nothing behind it
/// is what it seems.
fn decode_flags<B: Buf>(from: &mut Reader<B>) -> Result<u16, DecodeError> {
    from.version("record", VERSION)?;
    let flags = from.u16("record flags")?;
    if flags & !flag::ALL != 0 {
        return Err(DecodeError::UnknownValue { field: "record flags", value: flags.into() });
    }
    Ok(flags)
}

/// Refuses contradictions from which a reader would draw a wrong conclusion, most of all that the record may go.
fn check_head(head: &TxHead) -> Result<(), DecodeError> {
    let refuse = |problem| Err(DecodeError::Inconsistent { what: "record", problem });
    // Taking the block back removes one entry; with a second one the transaction would pass for mined ever after.
    if head.blocks.len() > 1 {
        let mut ids: Vec<u32> = head.blocks.iter().map(|block| block.block_id).collect();
        ids.sort_unstable();
        if ids.windows(2).any(|pair| pair[0] == pair[1]) {
            return refuse("mined twice in one block");
        }
    }
    // A loser may go although its outputs are unspent. If it were mined, those would be coins.
    if head.is_conflicting() && head.mined_at().is_some() {
        return refuse("lost against another, yet mined on the longest chain");
    }
    if head.reassignments.iter().any(|entry| entry.vout >= head.output_count) {
        return refuse("an output that does not exist was reassigned");
    }
    Ok(())
}

fn decode_list<T>(
    from: &mut Reader,
    field: &'static str,
    least: usize,
    item: impl Fn(&mut Reader) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    match from.count(field, least)? {
        0 => Err(DecodeError::Inconsistent { what: field, problem: "announced but empty" }),
        count => (0..count).map(|_| item(from)).collect(),
    }
}

fn decode_blocks<B: Buf>(from: &mut Reader<B>) -> Result<Blocks, DecodeError> {
    let count = from.count("blocks", 6)?;
    let block = |from: &mut Reader<B>| {
        let block_id = from.varint_u32("block id")?;
        let height = from.height("block height")?;
        let place = from.varint("subtree")?;
        let subtree = u32::try_from(place >> 1).map_err(|_| DecodeError::BadNumber { field: "subtree" })?;
        Ok(MinedIn { block_id, height, subtree, on_longest_chain: place & 1 == 1 })
    };
    (0..count).map(|_| block(from)).collect()
}

fn decode_reassignment(from: &mut Reader) -> Result<Reassignment, DecodeError> {
    const FIELD: &str = "reassignment";
    Ok(Reassignment {
        vout: from.varint_u32(FIELD)?,
        old: from.utxo_hash(FIELD)?,
        new: from.utxo_hash(FIELD)?,
        at: from.height(FIELD)?,
        spendable_from: from.height(FIELD)?,
    })
}

/// Two counts and whether a height follows.
const LEAST_SUMMARY: usize = 3;

fn decode_summary(from: &mut Reader, outputs: usize) -> Result<PageSummary, DecodeError> {
    const FIELD: &str = "page summary";
    let open = from.u8(FIELD)?;
    let claimed = from.u8(FIELD)?;
    let latest_child = match from.u8(FIELD)? {
        0 => None,
        1 => Some(from.height(FIELD)?),
        value => return Err(DecodeError::UnknownValue { field: FIELD, value: value.into() }),
    };
    // What no slots add up to is refused. That also keeps the sum over all pages within the count of outputs.
    let mined = usize::from(latest_child.is_some());
    if claimed > open || usize::from(open) + mined > outputs {
        return Err(DecodeError::Inconsistent {
            what: FIELD,
            problem: "it counts slots the page cannot have",
        });
    }
    Ok(PageSummary { open, claimed, latest_child })
}

fn decode_slots(from: &mut Reader, count: usize) -> Result<Slots, DecodeError> {
    if count > from.left() {
        return Err(DecodeError::Truncated { field: "slots", needed: count, left: from.left() });
    }
    (0..count).map(|_| Slot::decode(from)).collect()
}

fn encode_outputs<'a>(outputs: impl Iterator<Item = Option<&'a Output>>, to: &mut Writer) {
    for output in outputs {
        match output {
            Some(output) => output.encode(to),
            None => Output::data(Bytes::new()).encode(to),
        }
    }
}

/// The pages of a transaction of which nothing is spent yet.
pub fn pages_of(tx: &Tx, head: TxHead) -> (MasterPage, Vec<OutputPage>) {
    let slot = |output: &Output| if output.spendable { Slot::Unspent } else { Slot::Unspendable };
    let mut pages = tx
        .outputs
        .chunks(PAGE_SIZE as usize)
        .map(|outputs| (outputs.iter().map(slot).collect::<Slots>(), outputs.iter().map(Some)));
    let head = TxHead { output_count: tx.outputs.len() as u32, ..head };
    put_together(head, |to| TxBody::encode_tx(tx, to), &mut pages)
}

pub(crate) fn split(record: &TxRecord) -> (MasterPage, Vec<OutputPage>) {
    let size = PAGE_SIZE as usize;
    let outputs = record.outputs.chunks(size).map(|outputs| outputs.iter().map(Option::as_ref));
    let mut pages = record.slots.chunks(size).map(Slots::from_slice).zip(outputs);
    put_together(record.head.clone(), |to| record.body.encode_to(to), &mut pages)
}

/// Body and outputs of the first page share one piece of memory: most transactions have no other page, and making them is the
/// hottest path there is.
fn put_together<'a, O: Iterator<Item = Option<&'a Output>>>(
    head: TxHead,
    body: impl FnOnce(&mut Writer),
    pages: &mut impl Iterator<Item = (Slots, O)>,
) -> (MasterPage, Vec<OutputPage>) {
    const TYPICAL_OUTPUT: usize = 48;
    const TYPICAL_BODY: usize = 128;
    let first = pages.next();
    let count = first.as_ref().map_or(0, |(slots, _)| slots.len());
    let mut to = Writer::with_capacity(TYPICAL_BODY + count * TYPICAL_OUTPUT);
    body(&mut to);
    let body_length = to.written().len();
    let (slots, outputs) = first.map_or((Slots::new(), None), |(slots, outputs)| (slots, Some(outputs)));
    encode_outputs(outputs.into_iter().flatten(), &mut to);
    let mut outputs = Bytes::from(to.finish());
    let body = outputs.split_to(body_length);
    let extra = |(slots, outputs): (Slots, O)| {
        let mut to = Writer::with_capacity(slots.len() * TYPICAL_OUTPUT);
        encode_outputs(outputs, &mut to);
        OutputPage { slots, outputs: to.finish().into() }
    };
    let extras: Vec<OutputPage> = pages.map(extra).collect();
    let summaries = extras.iter().map(OutputPage::summary).collect();
    (MasterPage { head, summaries, body, page: OutputPage { slots, outputs } }, extras)
}
