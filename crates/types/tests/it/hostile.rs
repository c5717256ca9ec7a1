//! Bytes that nobody should have written: each is refused with the error that says why, and none makes a decoder allocate
//! more than a small multiple of what it was given.

use crate::hex::hex;
use bytes::Bytes;
use sapwood_types::{
    BlockMark, DecodeError, FirstPage, FurtherPage, Height, Output, RecordHeader, Scratch, Slot, Spender,
    TxBody, TxHead, TxId, TxRecord, Undo,
    codec::{Reader, Writer},
};

fn slot(text: &str) -> Result<Slot, DecodeError> {
    Slot::decode(&mut Reader::new(hex(text).into()))
}

fn output(text: &str) -> Result<Option<Output>, DecodeError> {
    Output::decode(&mut Reader::new(hex(text).into()))
}

fn body(text: &str) -> Result<TxBody, DecodeError> {
    TxBody::decode(hex(text).into())
}

fn page(text: &str) -> Result<FurtherPage, DecodeError> {
    FurtherPage::decode(hex(text).into())
}

fn undo(text: &str) -> Result<Undo, DecodeError> {
    Undo::decode(hex(text).into())
}

/// A first page: version, these flags, made at height 0 and time 0, so many outputs, then the rest.
fn first_page_bytes(flags: &str, output_count: &str, rest: &str) -> Vec<u8> {
    hex(&format!("01 {flags} 00000000 00 {output_count} {rest}"))
}

/// Reads the header of a page, and cuts out the rest.
fn header_of(bytes: &[u8]) -> Result<RecordHeader, DecodeError> {
    let page = FirstPage::new(bytes);
    let header = page.header()?;
    page.view(&header)?;
    Ok(header)
}

/// Reads such a page.
fn first_page(flags: &str, output_count: &str, rest: &str) -> Result<RecordHeader, DecodeError> {
    header_of(&first_page_bytes(flags, output_count, rest))
}

/// Looks at such a page only for when its transaction was mined.
fn mined_at(flags: &str, output_count: &str, rest: &str) -> Result<Option<Height>, DecodeError> {
    FirstPage::peek_mined_at(&first_page_bytes(flags, output_count, rest))
}

fn inconsistent<T>(what: &'static str, problem: &'static str) -> Result<T, DecodeError> {
    Err(DecodeError::Inconsistent { what, problem })
}

fn unknown<T>(field: &'static str, value: u64) -> Result<T, DecodeError> {
    Err(DecodeError::UnknownValue { field, value })
}

fn bad_number<T>(field: &'static str) -> Result<T, DecodeError> {
    Err(DecodeError::BadNumber { field })
}

/// A body without inputs, and its length before it.
const BODY: &str = "0b 00 00000001 00000000 00 00";

fn record(slots: Vec<Slot>) -> TxRecord {
    let output = |slot: &Slot| (*slot != Slot::Unspendable).then(|| Output::new(1, Bytes::new()));
    TxRecord {
        txid: TxId([1; 32]),
        head: TxHead { output_count: slots.len() as u32, ..TxHead::default() },
        body: TxBody { version: 1, locktime: 0, fee: None, size: 0, inputs: vec![] },
        outputs: slots.iter().map(output).collect(),
        slots,
    }
}

fn assemble(first: &FirstPage, further: &[FurtherPage]) -> Result<TxRecord, DecodeError> {
    TxRecord::assemble(TxId([1; 32]), first, further)
}

// ------------------------------------------------------------------------------------------- versions, flags and states

#[test]
fn another_version_is_refused() {
    let block = "00*8 b0*32";
    for (version, found) in [("00", 0), ("02", 2), ("ff", 255)] {
        let refused = |what| DecodeError::UnknownVersion { what, found, known: 1 };
        let first = format!("{version} 0000 00000000 00 00 00 {BODY}");
        assert_eq!(header_of(&hex(&first)), Err(refused("record")));
        assert_eq!(page(&format!("{version} 01 00 000100")), Err(refused("page")));
        assert_eq!(undo(&format!("{version} {block} 00 00 00 00")), Err(refused("undo record")));
    }
}

#[test]
fn flags_and_states_without_a_meaning_are_refused() {
    for bit in 11..16 {
        let flags = 1u16 << bit;
        let (text, rest) = (format!("{flags:04x}"), format!("00 {BODY}"));
        assert_eq!(first_page(&text, "00", &rest), unknown("record flags", flags.into()));
        assert_eq!(mined_at(&text, "00", &rest), unknown("record flags", flags.into()));
    }
    for tag in 6..=255u8 {
        assert_eq!(slot(&format!("{tag:02x} c1*40")), unknown("slot", tag.into()));
    }
    // 4 stands for "not kept", and then nothing else may be set.
    for flags in 5..=255u8 {
        assert_eq!(output(&format!("{flags:02x} 00*60")), unknown("output flags", flags.into()));
    }
    for flags in 2..=255u8 {
        assert_eq!(body(&format!("{flags:02x} 00*20")), unknown("body flags", flags.into()));
        // 2 stands for an input whose value is known without its script.
        if flags > 2 {
            let input = format!("00 00000001 00000000 00 01 11*32 00 {flags:02x}");
            assert_eq!(body(&input), unknown("input flags", flags.into()));
        }
        let first = format!("01 00*8 b0*32 {flags:02x} 00*50");
        assert_eq!(undo(&first), unknown("previous block", flags.into()));
        let summary = format!("00 00 00 {flags:02x} 00*128 {BODY} 000100*128");
        assert_eq!(first_page("0000", "8101", &summary), unknown("page summary", flags.into()));
    }
}

// -------------------------------------------------------------------------------------------------------------- numbers

#[test]
fn numbers_out_of_range_or_padded_are_refused() {
    let two_to_the_32 = "8080808010";
    let padded = "8000";
    for number in [two_to_the_32, padded] {
        assert_eq!(first_page("0000", number, &format!("00 {BODY}")), bad_number("output count"));
        assert_eq!(slot(&format!("03 c1*32 {number}")), bad_number("slot"));
        assert_eq!(body(&format!("00 00*8 {number} 00")), bad_number("size"));
        let block = format!("01 {number} 00000001 01 {BODY}");
        assert_eq!(first_page("0000", "00", &block), bad_number("block id"));
    }
    assert_eq!(output("00 8000 00"), bad_number("output value"));
    assert_eq!(output("00 01 8000"), bad_number("output script"));
    // Twice 2^32: a subtree is written together with one more bit.
    assert_eq!(first_page("0000", "00", &format!("01 07 00000001 8080808020 {BODY}")), bad_number("subtree"));
}

/// Counts and lengths that a short input cannot hold: one that fits anything, one that overflows when it is multiplied,
/// and some in between that an allocator might even grant.
#[test]
fn huge_counts_in_short_inputs_are_refused_at_once() {
    for count in [1_000, 1 << 20, u32::MAX.into(), 1 << 40, 1 << 59, u64::MAX / 32, u64::MAX] {
        let mut to = Writer::default();
        to.varint(count);
        let count: String = to.finish().iter().map(|byte| format!("{byte:02x}")).collect();
        let refused = [
            ("inputs", body(&format!("00 00*8 00 {count} 11*33 00")).err()),
            ("input script", body(&format!("00 00*8 00 01 11*32 00 01 00 {count} 51")).err()),
            ("output script", output(&format!("00 01 {count} 51")).err()),
            ("output extra", output(&format!("01 01 00 {count} ee")).err()),
            ("blocks", first_page("0000", "00", &format!("{count} 00*100")).err()),
            ("conflicting children", first_page("0200", "00", &format!("00 {count} 00*100")).err()),
            ("reassignments", first_page("0400", "01", &format!("00 {count} 00*100")).err()),
            ("body", first_page("0000", "00", &format!("00 {count} 00*100")).err()),
            ("slots", page(&format!("01 {count} 00*100")).err()),
            ("created transactions", undo(&format!("01 00*8 b0*32 00 {count} 00*100")).err()),
            ("mined transactions", undo(&format!("01 00*8 b0*32 00 00 {count} 00*100")).err()),
            ("replaced records", undo(&format!("01 00*8 b0*32 00 00 00 {count} 00*100")).err()),
        ];
        for (expected, error) in refused {
            match error {
                Some(DecodeError::Truncated { field, .. } | DecodeError::BadNumber { field }) => {
                    assert_eq!(field, expected);
                }
                other => panic!("{count} {expected}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_page_of_a_replaced_record_cannot_be_longer_than_the_undo_record() {
    let block = "00*8 b0*32";
    for count in ["e807", "ffffffff0f"] {
        let first_page = undo(&format!("01 {block} 00 00 00 01 ee*32 {count} 00*20"));
        assert!(matches!(first_page, Err(DecodeError::Truncated { field: "replaced record", .. })));
        let pages = format!("01 {block} 00 00 00 01 ee*32 16 01 0000 00000000 00 00 00 {BODY} {count} 00*20");
        assert!(matches!(undo(&pages), Err(DecodeError::Truncated { field: "replaced pages", .. })));
    }
}

#[test]
fn four_billion_outputs_need_more_than_a_few_bytes() {
    let summaries = 33_554_431;
    assert_eq!(
        first_page("0000", "ffffffff0f", "00 00*300"),
        Err(DecodeError::Truncated { field: "page summaries", needed: 3 * summaries, left: 300 })
    );
    assert_eq!(
        first_page("0000", "8001", "00 00*127"),
        Err(DecodeError::Truncated { field: "slots", needed: 128, left: 127 })
    );
}

// ------------------------------------------------------------------------------------------------------- contradictions

#[test]
fn a_body_cannot_be_in_two_places() {
    assert_eq!(
        first_page("0180", "00", &format!("00 {BODY}")),
        inconsistent("record", "two kinds of external body")
    );
}

#[test]
fn what_is_announced_must_follow() {
    let empty = "announced but empty";
    assert_eq!(
        first_page("0200", "00", &format!("00 00 {BODY}")),
        inconsistent("conflicting children", empty)
    );
    assert_eq!(first_page("0400", "00", &format!("00 00 {BODY}")), inconsistent("reassignments", empty));
    assert_eq!(output("01 01 00 00"), inconsistent("output", "extra data announced but empty"));
}

#[test]
fn a_transaction_is_mined_in_a_block_once() {
    let blocks = |first: &str, second: &str| {
        first_page(
            "0000",
            "00",
            &format!("03 {first} 00000005 01 08 00000006 00 {second} 00000007 00 {BODY}"),
        )
    };
    assert_eq!(blocks("07", "07"), inconsistent("record", "mined twice in one block"));
    assert_eq!(blocks("07", "09").map(|page| page.head.blocks.len()), Ok(3));
}

#[test]
fn a_loser_is_not_mined_on_the_longest_chain() {
    let loser = |place: &str| first_page("0010", "00", &format!("00000009 01 07 00000005 {place} {BODY}"));
    assert_eq!(loser("01"), inconsistent("record", "lost against another, yet mined on the longest chain"));
    assert_eq!(loser("00").map(|page| page.head.conflicting_since), Ok(Some(Height(9))));
}

/// The pruner deletes parents by what this says of their children.
#[test]
fn a_look_at_when_it_was_mined_refuses_what_contradicts_it() {
    let loser = mined_at("0010", "00", "00000009 01 07 00000005 01");
    assert_eq!(loser, inconsistent("record", "lost against another, yet mined on the longest chain"));
    let twice = mined_at("0000", "00", "02 07 00000005 01 07 00000006 01");
    assert_eq!(twice, inconsistent("record", "mined twice in one block"));
    assert_eq!(mined_at("0000", "00", "02 07 00000005 01 08 00000006 00"), Ok(Some(Height(5))));
}

#[test]
fn only_an_output_that_exists_is_reassigned() {
    let reassigned =
        |vout: &str| first_page("0400", "02", &format!("00 01 {vout} a1*32 a2*32 00*8 00*2 {BODY} 000100*2"));
    assert_eq!(reassigned("02"), inconsistent("record", "an output that does not exist was reassigned"));
    assert_eq!(reassigned("01").map(|page| page.head.reassignments[0].vout), Ok(1));
}

/// With 130 outputs the further page has two. If more could be claimed, the sum over all pages could overflow, and a
/// record could be kept for ever by outputs it does not have.
#[test]
fn a_summary_cannot_count_what_its_page_cannot_hold() {
    let summary = |text: &str| first_page("0000", "8201", &format!("00 {text} 00*128 {BODY} 000100*128"));
    let refused = || inconsistent("page summary", "it counts slots the page cannot have");
    assert_eq!(summary("03 00 00"), refused(), "three open slots of two");
    assert_eq!(summary("80 00 00"), refused(), "a full page of open slots");
    assert_eq!(summary("01 02 00"), refused(), "more claimed than open");
    assert_eq!(summary("02 00 01 00000009"), refused(), "a mined spender, and yet all are open");
    for possible in ["02 02 00", "01 00 01 00000009", "00 00 00", "00 00 01 00000009"] {
        assert!(summary(possible).is_ok(), "{possible}: {:?}", summary(possible));
    }
}

#[test]
fn a_further_page_has_1_to_128_slots() {
    let refused = || inconsistent("page", "a page has 1 to 128 slots");
    assert_eq!(page("01 00"), refused());
    assert_eq!(page("01 8101 00*129 000100*129"), refused());
    assert_eq!(page("01 8001 00*128 000100*128").map(|page| page.slots.len()), Ok(128));
}

#[test]
fn slot_and_output_agree_on_what_was_kept() {
    let disagree = || inconsistent("outputs", "slot and output disagree");
    let kept_as_unspendable = page("01 01 02 000100").unwrap();
    assert_eq!(kept_as_unspendable.view().decode_outputs(), disagree());
    let lost_as_unspent = page("01 01 00 04").unwrap();
    assert_eq!(lost_as_unspent.view().decode_outputs(), disagree());
}

#[test]
fn an_output_that_was_not_kept_cannot_be_replaced() {
    let refused = || inconsistent("outputs", "only a spendable output can be replaced, and only by another");
    let mut page = page("01 02 00 02 000100 04").unwrap();
    let before = page.clone();
    let new = || Output::new(7, &b"new"[..]);
    assert_eq!(page.set_output(1, new()), refused(), "it was not kept");
    assert_eq!(page.set_output(2, new()), refused(), "it does not exist");
    assert_eq!(page.set_output(0, Output::data(&b"new"[..])), refused(), "it could not be spent afterwards");
    assert_eq!(page, before, "a refused change changes nothing");
    assert_eq!(page.set_output(0, new()), Ok(()));
    assert_eq!(page.view().decode_outputs(), Ok(vec![Some(new()), None]));
}

// -------------------------------------------------------------------------------------------------------- whole records

#[test]
fn every_page_of_a_record_is_there_and_no_other() {
    let refused = || inconsistent("record", "a page is missing or left over");
    let (first, further) = record(vec![Slot::Unspent; 300]).to_pages();
    assert_eq!(assemble(&first, &further[..1]), refused());
    assert_eq!(assemble(&first, &[]), refused());
    assert_eq!(assemble(&first, &[further.clone(), vec![further[0].clone()]].concat()), refused());
    assert!(assemble(&first, &further).is_ok());
    let mut header = first.header().unwrap();
    header.summaries.pop();
    let forgetful = first.with_header(&header, &mut Scratch::default());
    assert!(assemble(&forgetful, &further[..1]).is_err(), "its summary is missing too");
}

/// 300 outputs lie as 128 + 128 + 44. As 128 + 44 + 128 the sum is right too, but output 200 would not be found.
#[test]
fn pages_of_a_record_are_in_their_order() {
    let pages = |slot| {
        let (first, mut further) = record(vec![slot; 300]).to_pages();
        let mut header = first.header().unwrap();
        further.reverse();
        header.summaries.reverse();
        (first.with_header(&header, &mut Scratch::default()), further)
    };
    let (first, further) = pages(Slot::Settled { child_mined_at: Height(9) });
    assert_eq!(assemble(&first, &further), inconsistent("record", "a page has too few or too many outputs"));
    // Where summaries count slots, it is found even earlier.
    let (first, _) = pages(Slot::Unspent);
    assert_eq!(first.header(), inconsistent("page summary", "it counts slots the page cannot have"));
}

#[test]
fn a_summary_that_does_not_fit_its_page_is_stale() {
    let mut slots = vec![Slot::Unspent; 130];
    let (first, mut further) = record(slots.clone()).to_pages();
    slots[129] = Slot::spent(Spender::new(TxId([2; 32]), 0), Some(Height(9)));
    further[0].slots[1] = slots[129];
    assert_eq!(assemble(&first, &further), inconsistent("record", "a page summary is stale"));
    let (first, further) = record(slots).to_pages();
    assert!(assemble(&first, &further).is_ok());
}

#[test]
fn bytes_after_the_outputs_or_the_body_are_found_when_the_record_is_read() {
    let (first, further) = record(vec![Slot::Unspent; 130]).to_pages();
    let left_over = |what| Err(DecodeError::TrailingBytes { what, left: 1 });
    let longer = FirstPage::new(&[first.bytes(), &[0]].concat());
    assert_eq!(assemble(&longer, &further), left_over("outputs"));
    let mut longer = further.clone();
    longer[0].outputs = Bytes::from([&longer[0].outputs[..], &[0]].concat());
    assert_eq!(assemble(&first, &longer), left_over("outputs"));
    // The body is behind the slots: its length, 11, and as many bytes.
    let bytes = first.bytes();
    let start = bytes.len() - 128 * 3 - 12;
    let (before, body, outputs) = (&bytes[..start], &bytes[start + 1..start + 12], &bytes[start + 12..]);
    assert_eq!(bytes[start], 11);
    let longer = FirstPage::new(&[before, &[12], body, &[0], outputs].concat());
    assert_eq!(assemble(&longer, &further), left_over("transaction body"));
}

/// A replaced record goes back into the store as it is, so it is read in full before.
#[test]
fn an_undo_record_does_not_bring_back_a_broken_record() {
    let (first, further) = record(vec![Slot::Unspent; 130]).to_pages();
    let block = BlockMark { id: 1, height: Height(1), hash: Default::default() };
    let txid = TxId([1; 32]);
    let undo = |further: &[FurtherPage]| {
        let undo = Undo { block, previous: None, created: vec![txid], mined: vec![], replaced: vec![] };
        let (mut bytes, mut to) = (undo.encode(), Writer::default());
        assert_eq!(bytes.pop(), Some(0), "the number of replaced records");
        to.length(1);
        to.bytes(&txid.0);
        to.sized(first.bytes());
        to.length(further.len());
        further.iter().for_each(|page| to.sized(&page.encode()));
        bytes.extend(to.finish());
        Undo::decode(bytes.into()).map(|undo| undo.replaced)
    };
    assert_eq!(undo(&further), Ok(vec![record(vec![Slot::Unspent; 130])]));
    assert_eq!(undo(&[]), inconsistent("record", "a page is missing or left over"));
    let mut short = further.clone();
    short[0].outputs.truncate(4);
    let refused = undo(&short);
    assert!(matches!(refused, Err(DecodeError::Truncated { .. })), "{refused:?}");
}

// ----------------------------------------------------------------------------------------------------------- for people

#[test]
fn a_refusal_says_what_is_wrong() {
    let text = |error: Option<DecodeError>| error.map(|error| error.to_string()).unwrap_or_default();
    assert_eq!(
        text(page("02 01 00 000100").err()),
        "page has format version 2, this program knows 1: a newer program wrote it, or it is damaged"
    );
    assert_eq!(text(slot("09").err()), "slot has the unknown value 9");
    assert_eq!(text(slot("05 0000").err()), "the input ends inside slot: 4 bytes needed, 2 left");
}
