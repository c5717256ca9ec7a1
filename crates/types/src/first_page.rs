//! The first page of a record as it is stored, in one piece of memory.
//!
//! A block looks at thousands of records that lie anywhere in memory, and waits for memory most of the time. So a page stays as small as on
//! disk and in one piece. Its parts are decoded when they are asked for: the header, which is all that changes, the body, the outputs. A spend
//! decodes the header and copies the page with another slot.

use std::{fmt, sync::Arc};

use crate::{
    DecodeError, FurtherPage, Height, Output, PAGE_SIZE, PageSummary, PageView, RecordHeader, Slot, Slots,
    Tx, TxBody, TxHead, TxRecord, codec::Writer, header, page::encode_outputs, tx::take_sized,
};

/// A first page, encoded. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct FirstPage(Arc<[u8]>);

/// Memory to put pages together in. It is used again and again, so it is in the processor's cache.
#[derive(Debug, Default)]
pub struct Scratch {
    page: Writer,
    part: Writer,
}

impl FirstPage {
    /// Takes these bytes for a page. Whether they are one shows when their parts are decoded.
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether both are the same piece of memory.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Decodes the header.
    pub fn header(&self) -> Result<RecordHeader, DecodeError> {
        RecordHeader::decode(&self.0)
    }

    /// Cuts out body and outputs, both encoded. `header` is the one of this page.
    fn body_and_outputs(&self, header: &RecordHeader) -> Result<(&[u8], &[u8]), DecodeError> {
        let mut rest = self.0.get(header.slots_at.end..).unwrap_or_default();
        let body = take_sized(&mut rest, "body")?;
        Ok((body, rest))
    }

    /// Decodes the body. `header` is the one of this page, changed or not.
    pub fn body(&self, header: &RecordHeader) -> Result<TxBody, DecodeError> {
        TxBody::decode_slice(self.body_and_outputs(header)?.0)
    }

    /// Shows the outputs on this page, with the slots that `header` has for them. It is the header of this page, changed or not.
    pub fn view<'a>(&'a self, header: &'a RecordHeader) -> Result<PageView<'a>, DecodeError> {
        Ok(PageView { slots: &header.slots, outputs: self.body_and_outputs(header)?.1 })
    }

    /// Returns when the transaction of an encoded page was mined on the longest chain, without decoding the rest. `None` if it is not.
    /// Parents are deleted on the strength of this: flags that are not known, and contradictions about mining, are refused as by
    /// [`FirstPage::header`].
    pub fn peek_mined_at(bytes: &[u8]) -> Result<Option<Height>, DecodeError> {
        header::peek_mined_at(bytes)
    }

    /// Returns the page with other slots: as many as [`header`](Self::header) found on it.
    #[must_use]
    pub fn with_slots(&self, header: &RecordHeader, scratch: &mut Scratch) -> Self {
        let to = &mut scratch.page;
        to.clear();
        to.bytes(&self.0[..header.slots_at.start]);
        header.slots.iter().for_each(|slot| slot.encode(to));
        to.bytes(&self.0[header.slots_at.end..]);
        Self::new(to.written())
    }

    /// Returns the page with another header, which was the one of this page before it was changed.
    #[must_use]
    pub fn with_header(&self, header: &RecordHeader, scratch: &mut Scratch) -> Self {
        let to = &mut scratch.page;
        to.clear();
        header.encode(to);
        to.bytes(&self.0[header.slots_at.end..]);
        Self::new(to.written())
    }

    /// Returns the page with another output in the place of one that was kept. `header` is the one of this page, changed or not; it is the
    /// header of the new page too. Refused where the page could not be read again afterwards: no output was kept in that place, or none
    /// would be.
    pub fn with_output(
        &self,
        header: &RecordHeader,
        place: usize,
        output: Output,
    ) -> Result<Self, DecodeError> {
        let view = self.view(header)?;
        let kept = self.0.len() - view.outputs.len();
        Ok(Self([&self.0[..kept], &view.with_output(place, output)?].concat().into()))
    }
}

/// Returns the pages of a transaction of which no output is spent yet. Most have no further page: making those is the hottest path there is.
pub fn pages_of(tx: &Tx, head: TxHead, scratch: &mut Scratch) -> (FirstPage, Vec<FurtherPage>) {
    const SIZE: usize = PAGE_SIZE as usize;
    let slot = |output: &Output| if output.spendable { Slot::Unspent } else { Slot::Unspendable };
    let head = TxHead { output_count: tx.outputs.len() as u32, ..head };
    let (here, rest) = tx.outputs.split_at(tx.outputs.len().min(SIZE));
    let further =
        |outputs: &[Output]| FurtherPage::new(outputs.iter().map(slot).collect(), outputs.iter().map(Some));
    let further: Vec<FurtherPage> = rest.chunks(SIZE).map(further).collect();
    scratch.part.clear();
    TxBody::encode_tx(tx, &mut scratch.part);
    let first = put_together(&head, here.iter().map(slot), here.iter().map(Some), &further, scratch);
    (first, further)
}

pub(crate) fn split(record: &TxRecord) -> (FirstPage, Vec<FurtherPage>) {
    const SIZE: usize = PAGE_SIZE as usize;
    let mut scratch = Scratch::default();
    let mut slots = record.slots.chunks(SIZE);
    let mut outputs = record.outputs.chunks(SIZE).map(|outputs| outputs.iter().map(Option::as_ref));
    let (here, outputs_here) = (slots.next().unwrap_or_default(), outputs.next().into_iter().flatten());
    let further: Vec<FurtherPage> = slots
        .zip(outputs)
        .map(|(slots, outputs)| FurtherPage::new(Slots::from_slice(slots), outputs))
        .collect();
    record.body.encode_to(&mut scratch.part);
    let first = put_together(&record.head, here.iter().copied(), outputs_here, &further, &mut scratch);
    (first, further)
}

/// Puts a first page together, its body from `scratch.part`.
fn put_together<'a>(
    head: &TxHead,
    slots: impl Iterator<Item = Slot>,
    outputs: impl Iterator<Item = Option<&'a Output>>,
    further: &[FurtherPage],
    scratch: &mut Scratch,
) -> FirstPage {
    let Scratch { page, part } = scratch;
    let summaries: Vec<PageSummary> = further.iter().map(FurtherPage::summary).collect();
    page.clear();
    header::encode(head, &summaries, slots, page);
    page.sized(part.written());
    encode_outputs(outputs, page);
    FirstPage::new(page.written())
}

impl fmt::Debug for FirstPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.header() {
            Ok(header) => f.debug_tuple("FirstPage").field(&header).finish(),
            Err(error) => write!(f, "{} bytes that are no page: {error}", self.0.len()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests: to panic is how they fail")]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{Input, OutPoint, Spender, TxId};

    fn tx(outputs: usize) -> Tx {
        let output = |vout: usize| match vout % 5 {
            4 => Output::data(&b"data"[..]),
            _ => Output::new(7 + vout as u64, vec![vout as u8; vout % 60]),
        };
        Tx {
            txid: TxId([3; 32]),
            version: 2,
            locktime: 9,
            fee: Some(300),
            size: 200,
            coinbase: false,
            inputs: (0..3).map(|vin| Input::of(OutPoint::new(TxId([vin; 32]), 1000))).collect(),
            outputs: (0..outputs).map(output).collect(),
            raw: Bytes::new(),
        }
    }

    #[test]
    fn new_pages_are_those_of_the_new_record() {
        let head = TxHead { created_height: Height(7), first_unmined: Some(Height(7)), ..TxHead::default() };
        let mut scratch = Scratch::default();
        for outputs in [0, 1, 2, 3, 127, 128, 129, 300] {
            let record = TxRecord::new(&tx(outputs), head.clone());
            let pages = pages_of(&tx(outputs), head.clone(), &mut scratch);
            assert_eq!(pages, record.to_pages(), "{outputs} outputs");
            assert_eq!(TxRecord::assemble(record.txid, &pages.0, &pages.1), Ok(record));
        }
    }

    #[test]
    fn page_with_another_slot_is_the_page_with_another_header() {
        let mut record = TxRecord::new(&tx(300), TxHead::default());
        let (mut page, further) = record.to_pages();
        for (place, mined_at) in [(0, None), (127, Some(Height(9))), (0, Some(Height(200))), (65, None)] {
            let slot = Slot::spent(Spender::new(TxId([8; 32]), 77), mined_at);
            let mut header = page.header().unwrap();
            header.slots[place] = slot;
            record.slots[place] = slot;
            let changed = page.with_slots(&header, &mut Scratch::default());
            assert_eq!(changed, page.with_header(&header, &mut Scratch::default()));
            assert_eq!(TxRecord::assemble(record.txid, &changed, &further).as_ref(), Ok(&record));
            page = changed;
        }
    }

    #[test]
    fn page_with_another_head_keeps_body_and_outputs() {
        let mut record = TxRecord::new(&tx(130), TxHead::default());
        let (page, further) = record.to_pages();
        let mut header = page.header().unwrap();
        for head in [&mut header.head, &mut record.head] {
            head.preserve_until = Some(Height(40));
            head.conflicting_children = vec![TxId([9; 32]); 3];
        }
        let changed = page.with_header(&header, &mut Scratch::default());
        assert_eq!(changed.body(&changed.header().unwrap()).as_ref(), Ok(&record.body));
        assert_eq!(
            page.body(&header).as_ref(),
            Ok(&record.body),
            "a changed header finds what did not change"
        );
        assert_eq!(TxRecord::assemble(record.txid, &changed, &further), Ok(record));
    }
}
