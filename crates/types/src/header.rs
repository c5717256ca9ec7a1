//! The header of a first page: the state of the whole transaction and of its outputs. All that ever changes is here, before what
//! stays as it is, so a spender reads it without the rest.

use std::ops::Range;

use bytes::Buf;

use crate::{
    Blocks, DecodeError, External, Height, MinedIn, PageSummary, Reassignment, RecordView, Slot, Slots,
    TxHead,
    codec::{Reader, Writer},
    page::{VERSION, further_pages, outputs_on},
};

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

/// What changes of a record, decoded: the cheap view of its first page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// The state of the whole transaction.
    pub head: TxHead,
    /// What is known of the further pages.
    pub summaries: Vec<PageSummary>,
    /// The state of the outputs on the first page.
    pub slots: Slots,
    /// Where in the page the slots are. Body and outputs follow them.
    pub(crate) slots_at: Range<usize>,
}

impl RecordHeader {
    /// Shows the record to the rules.
    pub fn view(&self) -> RecordView<'_> {
        RecordView::new(&self.head, &self.slots, &self.summaries)
    }

    /// Decodes the header of the first page that these bytes are. What follows it is not looked at.
    pub fn decode(page: &[u8]) -> Result<Self, DecodeError> {
        Self::read(&mut Reader::of_slice(page))
    }

    /// Encodes the header.
    pub(crate) fn encode(&self, to: &mut Writer) {
        encode(&self.head, &self.summaries, self.slots.iter().copied(), to);
    }

    /// Reads the header of a page, and leaves the rest.
    pub(crate) fn read<B: Buf>(from: &mut Reader<B>) -> Result<Self, DecodeError> {
        let length = from.left();
        let flags = decode_flags(from)?;
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
            blocks: decode_blocks(from)?,
            conflicting_children: if has(flag::CONFLICTING_CHILDREN) {
                decode_list(from, "conflicting children", 32, |from| from.txid("conflicting child"))?
            } else {
                Vec::new()
            },
            reassignments: if has(flag::REASSIGNMENTS) {
                decode_list(from, "reassignments", 73, decode_reassignment)?
            } else {
                Vec::new()
            },
            output_count,
        };
        check_head(&head)?;
        let pages = further_pages(output_count);
        let needed = pages as usize * LEAST_SUMMARY;
        if needed > from.left() {
            return Err(DecodeError::Truncated { field: "page summaries", needed, left: from.left() });
        }
        let summaries = (1..=pages)
            .map(|page| decode_summary(from, outputs_on(page, output_count)))
            .collect::<Result<_, _>>()?;
        let start = length - from.left();
        let slots = decode_slots(from, outputs_on(0, output_count))?;
        Ok(RecordHeader { head, summaries, slots, slots_at: start..length - from.left() })
    }
}

/// Writes the header of a page.
pub(crate) fn encode(
    head: &TxHead,
    summaries: &[PageSummary],
    slots: impl Iterator<Item = Slot>,
    to: &mut Writer,
) {
    to.u8(VERSION);
    to.u16(flags(head));
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
    for summary in summaries {
        to.u8(summary.open);
        to.u8(summary.claimed);
        to.u8(summary.latest_child.is_some().into());
        if let Some(height) = summary.latest_child {
            to.height(height);
        }
    }
    slots.for_each(|slot| slot.encode(to));
}

fn flags(head: &TxHead) -> u16 {
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

/// See [`FirstPage::peek_mined_at`](crate::FirstPage::peek_mined_at).
pub(crate) fn peek_mined_at(bytes: &[u8]) -> Result<Option<Height>, DecodeError> {
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

fn decode_list<T, B: Buf>(
    from: &mut Reader<B>,
    field: &'static str,
    least: usize,
    item: impl Fn(&mut Reader<B>) -> Result<T, DecodeError>,
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

fn decode_reassignment<B: Buf>(from: &mut Reader<B>) -> Result<Reassignment, DecodeError> {
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

fn decode_summary<B: Buf>(from: &mut Reader<B>, outputs: usize) -> Result<PageSummary, DecodeError> {
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

pub(crate) fn decode_slots<B: Buf>(from: &mut Reader<B>, count: usize) -> Result<Slots, DecodeError> {
    if count > from.left() {
        return Err(DecodeError::Truncated { field: "slots", needed: count, left: from.left() });
    }
    (0..count).map(|_| Slot::decode(from)).collect()
}
