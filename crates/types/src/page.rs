//! Records in pages: how a transaction lies in the store.
//!
//! The first page ([`FirstPage`](crate::FirstPage)) holds the state of the whole transaction and its first [`PAGE_SIZE`] outputs; each
//! [`FurtherPage`] holds as many more. The first page keeps a summary of every further page, so it alone says whether the transaction is
//! settled. What never changes stays encoded: a spend decodes the header, and copies the rest.

use bytes::Bytes;
use smallvec::SmallVec;

use crate::{
    DecodeError, Height, Output, OutputRef, PAGE_SIZE, Slot,
    codec::{Reader, Writer},
    header,
};

/// The version of both kinds of page.
pub(crate) const VERSION: u8 = 1;

/// What the first page knows of a further page.
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

/// Counts the further pages that this many outputs need.
pub fn further_pages(output_count: u32) -> u32 {
    output_count.saturating_sub(1) / PAGE_SIZE
}

/// Counts the outputs on page `page` of a transaction with `output_count` of them.
pub(crate) fn outputs_on(page: u32, output_count: u32) -> usize {
    output_count.saturating_sub(page * PAGE_SIZE).min(PAGE_SIZE) as usize
}

/// The outputs on a page of either kind, and their state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageView<'a> {
    /// The state of the outputs.
    pub slots: &'a [Slot],
    /// The outputs, encoded one after the other.
    pub outputs: &'a [u8],
}

impl PageView<'_> {
    /// Decodes the outputs: `None` for one that was not kept.
    pub fn decode_outputs(&self) -> Result<Vec<Option<Output>>, DecodeError> {
        const WHAT: &str = "outputs";
        // One copy, which all scripts share.
        let mut from = Reader::new(Bytes::copy_from_slice(self.outputs));
        let mut outputs = Vec::with_capacity(self.slots.len());
        for slot in self.slots {
            let output = Output::decode(&mut from)?;
            if output.is_none() != (*slot == Slot::Unspendable) {
                return Err(DecodeError::Inconsistent { what: WHAT, problem: "slot and output disagree" });
            }
            outputs.push(output);
        }
        from.end(WHAT)?;
        Ok(outputs)
    }

    /// Decodes the output at one place. `None` if the page does not reach that far, or the output was not kept.
    pub fn output(&self, place: usize) -> Result<Option<Output>, DecodeError> {
        if place >= self.slots.len() {
            return Ok(None);
        }
        let mut rest = self.outputs;
        for _ in 0..place {
            OutputRef::decode(&mut rest)?;
        }
        Output::decode(&mut Reader::of_slice(rest))
    }

    /// Encodes the outputs with another one in the place of one that was kept. Refused where the page could not be read again afterwards:
    /// no output was kept in that place, or none would be.
    pub(crate) fn with_output(&self, place: usize, output: Output) -> Result<Vec<u8>, DecodeError> {
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
        Ok(to.finish())
    }
}

/// A page of up to [`PAGE_SIZE`] outputs behind the first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FurtherPage {
    /// The state of the outputs.
    pub slots: Slots,
    /// The outputs, encoded one after the other.
    pub outputs: Bytes,
}

impl FurtherPage {
    /// Puts a page together.
    pub(crate) fn new<'a>(slots: Slots, outputs: impl Iterator<Item = Option<&'a Output>>) -> Self {
        const TYPICAL_OUTPUT: usize = 48;
        let mut to = Writer::with_capacity(slots.len() * TYPICAL_OUTPUT);
        encode_outputs(outputs, &mut to);
        Self { slots, outputs: to.finish().into() }
    }

    /// Encodes the page.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::with_capacity(4 + self.slots.len() * 42 + self.outputs.len());
        to.u8(VERSION);
        to.length(self.slots.len());
        self.slots.iter().for_each(|slot| slot.encode(&mut to));
        to.bytes(&self.outputs);
        to.finish()
    }

    /// Decodes the slots of a page. The outputs are only cut out.
    pub fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        const WHAT: &str = "page";
        let mut from = Reader::new(bytes);
        from.version(WHAT, VERSION)?;
        let count = from.count("slots", Slot::LEAST_SIZE)?;
        if count == 0 || count > PAGE_SIZE as usize {
            return Err(DecodeError::Inconsistent { what: WHAT, problem: "a page has 1 to 128 slots" });
        }
        let slots = header::decode_slots(&mut from, count)?;
        Ok(FurtherPage { slots, outputs: from.rest() })
    }

    /// Returns what the first page should know of this page.
    pub fn summary(&self) -> PageSummary {
        PageSummary::of(&self.slots)
    }

    /// Shows the outputs and their state.
    pub fn view(&self) -> PageView<'_> {
        PageView { slots: &self.slots, outputs: &self.outputs }
    }

    /// Puts another output in the place of one that was kept. Refused where the page could not be read again afterwards: no output was
    /// kept in that place, or none would be.
    pub fn set_output(&mut self, place: usize, output: Output) -> Result<(), DecodeError> {
        self.outputs = self.view().with_output(place, output)?.into();
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
