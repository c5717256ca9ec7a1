//! Records in pages: how a transaction lies in the store.
//!
//! Page 0, the master, holds the state of the whole transaction and its first [`PAGE_SIZE`] outputs; each further page holds
//! as many more. The master keeps a summary of every further page, so the master alone says whether the transaction is
//! settled. What never changes stays encoded: a spend decodes the head and the slots, and copies the rest.

use bytes::Bytes;
use smallvec::SmallVec;

use crate::{
    DecodeError, Height, Output, PAGE_SIZE, Slot, Tx, TxHead, TxRecord,
    codec::{Reader, Writer},
    front::{self, AllSlots, MasterFront},
    tx::TxBody,
};

/// The version of both kinds of page.
pub(crate) const VERSION: u8 = 1;

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
        front::encode(&self.head, &self.summaries, self.page.slots.iter().copied(), to);
        to.sized(&self.body);
        to.bytes(&self.page.outputs);
    }

    /// Reads a page. The body and the outputs are only cut out; [`TxRecord::assemble`] reads them too.
    pub fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        let mut from = Reader::new(bytes);
        let MasterFront { head, summaries, slots, .. } = MasterFront::read(&mut from)?;
        let body = from.sized("body")?;
        Ok(MasterPage { head, summaries, body, page: OutputPage { slots, outputs: from.rest() } })
    }

    /// When the transaction of an encoded page was mined on the longest chain, if it is, without reading the rest. Parents are
    /// deleted on the strength of this: flags that are not known, and contradictions about mining, are refused as by
    /// [`MasterPage::decode`].
    pub fn peek_mined_at(bytes: &[u8]) -> Result<Option<Height>, DecodeError> {
        front::peek_mined_at(bytes)
    }

    /// The outputs on all pages, as far as this one knows them.
    pub fn all_slots(&self) -> AllSlots<'_> {
        AllSlots { here: &self.page.slots, further: &self.summaries }
    }

    /// See [`AllSlots::open`].
    pub fn open_slots(&self) -> u32 {
        self.all_slots().open()
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
        let slots = front::decode_slots(&mut from, count)?;
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

pub(crate) fn encode_outputs<'a>(outputs: impl Iterator<Item = Option<&'a Output>>, to: &mut Writer) {
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
