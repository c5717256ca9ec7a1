//! What is written is read back, and nothing else is: for arbitrary values, every format is
//! - *faithful*: reading what was written gives the value;
//! - *closed*: neither a part of an encoding nor one with something after it is read, and the refusal is an error value;
//! - *canonical*: whatever bytes are read, writing the value gives the same bytes. So no value has two encodings, and
//!   states can be compared by their bytes.

use bytes::Bytes;
use proptest::{collection::vec, prelude::*, sample::Index, test_runner::FileFailurePersistence};
use sapwood_types::{
    BlockMark, DecodeError, FirstPage, FurtherPage, Output, OutputRef, Scratch, Slot, Tx, TxBody, TxId,
    TxRecord, Undo,
    codec::{Reader, Writer},
    first_page::pages_of,
    page::further_pages,
    tx_file,
};

use crate::strategies;

fn config() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    }
}

/// Reads bytes to the end, and writes what was read.
type Again = fn(Bytes) -> Result<Vec<u8>, DecodeError>;

/// The encoding of some value.
#[derive(Clone, Debug)]
struct Sample {
    bytes: Vec<u8>,
    again: Again,
}

fn whole<T>(
    bytes: Bytes,
    read: impl Fn(&mut Reader) -> Result<T, DecodeError>,
    write: impl Fn(T, &mut Writer),
) -> Result<Vec<u8>, DecodeError> {
    let mut from = Reader::new(bytes);
    let value = read(&mut from)?;
    from.end("sample")?;
    Ok(written(|to| write(value, to)))
}

fn written(write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut to = Writer::default();
    write(&mut to);
    to.finish()
}

fn slot_again(bytes: Bytes) -> Result<Vec<u8>, DecodeError> {
    whole(bytes, Slot::decode, |slot, to| slot.encode(to))
}

fn output_again(bytes: Bytes) -> Result<Vec<u8>, DecodeError> {
    let not_kept = Output::data(Bytes::new());
    whole(bytes, Output::decode, |output, to| output.as_ref().unwrap_or(&not_kept).encode(to))
}

/// Looking at an output comes to the same as reading it, errors and what is left included.
fn assert_looks_alike(bytes: &[u8]) -> Result<(), TestCaseError> {
    let mut reader = Reader::new(Bytes::copy_from_slice(bytes));
    let read = Output::decode(&mut reader);
    let mut rest = bytes;
    let looked = OutputRef::decode(&mut rest);
    let as_read = read.as_ref().map(|output| output.as_ref().map(OutputRef::from));
    prop_assert_eq!(looked.as_ref(), as_read.as_ref().map_err(|error| *error));
    if looked.is_ok() {
        prop_assert_eq!(rest.len(), reader.left());
    }
    Ok(())
}

fn mark_again(bytes: Bytes) -> Result<Vec<u8>, DecodeError> {
    whole(bytes, BlockMark::decode, |mark, to| mark.encode(to))
}

fn body_again(bytes: Bytes) -> Result<Vec<u8>, DecodeError> {
    TxBody::decode(bytes).map(|body| body.encode().into())
}

fn undo_again(bytes: Bytes) -> Result<Vec<u8>, DecodeError> {
    Undo::decode(bytes).map(|undo| undo.encode())
}

/// The pages of a record, each after its length.
fn framed((first, further): (FirstPage, Vec<FurtherPage>)) -> Vec<u8> {
    written(|to| {
        to.sized(first.bytes());
        further.iter().for_each(|page| to.sized(&page.encode()));
    })
}

fn record_again(bytes: Bytes) -> Result<Vec<u8>, DecodeError> {
    let mut from = Reader::new(bytes);
    let first = FirstPage::new(&from.sized("first page")?);
    let mut further = Vec::new();
    while from.left() > 0 {
        further.push(FurtherPage::decode(from.sized("further page")?)?);
    }
    TxRecord::assemble(TxId::default(), &first, &further).map(|record| framed(record.to_pages()))
}

/// Reads a first page only as far as a spend does.
fn first_page_again(bytes: Bytes) -> Result<Vec<u8>, DecodeError> {
    let page = FirstPage::new(&bytes);
    let header = page.header()?;
    page.view(&header)?;
    let slots_written = page.with_slots(&header, &mut Scratch::default());
    assert_eq!(slots_written, page.with_header(&header, &mut Scratch::default()));
    Ok(slots_written.bytes().to_vec())
}

/// Reads a further page only as far as a spend does.
fn further_page_again(bytes: Bytes) -> Result<Vec<u8>, DecodeError> {
    FurtherPage::decode(bytes).map(|page| page.encode())
}

/// Of every format that knows its own end.
fn closed_sample() -> impl Strategy<Value = Sample> {
    prop_oneof![
        strategies::slot()
            .prop_map(|slot| Sample { bytes: written(|to| slot.encode(to)), again: slot_again }),
        strategies::kept_output()
            .prop_map(|output| Sample { bytes: written(|to| output.encode(to)), again: output_again }),
        strategies::mark()
            .prop_map(|mark| Sample { bytes: written(|to| mark.encode(to)), again: mark_again }),
        strategies::body().prop_map(|body| Sample { bytes: body.encode().into(), again: body_again }),
        strategies::undo().prop_map(|undo| Sample { bytes: undo.encode(), again: undo_again }),
        strategies::some_record()
            .prop_map(|record| Sample { bytes: framed(record.to_pages()), again: record_again }),
    ]
}

/// Of every format. Single pages are only cut up when they are read: their outputs are looked at by whoever needs them.
fn sample() -> impl Strategy<Value = Sample> {
    prop_oneof![
        3 => closed_sample(),
        1 => strategies::some_record()
            .prop_map(|record| Sample { bytes: record.to_pages().0.bytes().to_vec(), again: first_page_again }),
        1 => strategies::record(129..=140)
            .prop_map(|record| Sample { bytes: record.to_pages().1[0].encode(), again: further_page_again }),
    ]
}

/// A small change to an encoding.
#[derive(Clone, Debug)]
enum Change {
    Set(Index, u8),
    Flip(Index, u8),
    Insert(Index, u8),
    Remove(Index),
    Swap(Index, Index),
    CopyOver(Index, Index, usize),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let size = bytes.len();
        match self {
            Change::Set(at, value) => bytes[at.index(size)] = *value,
            Change::Flip(at, bit) => bytes[at.index(size)] ^= 1 << (bit % 8),
            Change::Insert(at, value) => bytes.insert(at.index(size), *value),
            Change::Remove(at) => drop(bytes.remove(at.index(size))),
            Change::Swap(one, other) => bytes.swap(one.index(size), other.index(size)),
            Change::CopyOver(from, to, length) => {
                let (from, to) = (from.index(size), to.index(size));
                let length = (*length).min(size - from).min(size - to);
                bytes.copy_within(from..from + length, to);
            }
        }
    }
}

fn change() -> impl Strategy<Value = Change> {
    // Most of what a decoder decides, it decides by small numbers near the start.
    let value = || prop_oneof![0..8u8, 0x7e..0x83u8, any::<u8>()];
    let place = any::<Index>;
    prop_oneof![
        (place(), value()).prop_map(|(at, value)| Change::Set(at, value)),
        (place(), value()).prop_map(|(at, bit)| Change::Flip(at, bit)),
        (place(), value()).prop_map(|(at, value)| Change::Insert(at, value)),
        place().prop_map(Change::Remove),
        (place(), place()).prop_map(|(one, other)| Change::Swap(one, other)),
        (place(), place(), 1..40usize).prop_map(|(from, to, length)| Change::CopyOver(from, to, length)),
    ]
}

/// All lengths shorter than `size`, or, if those are many, the ones near both ends and some in between.
fn prefixes(size: usize) -> impl Iterator<Item = usize> {
    let step = size / 200 + 1;
    (0..size).filter(move |&length| length < 100 || length + 100 >= size || length % step == 0)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_is_written_is_read_back(sample in sample()) {
        prop_assert_eq!((sample.again)(sample.bytes.clone().into()), Ok(sample.bytes));
    }

    #[test]
    fn no_part_of_an_encoding_is_read(sample in closed_sample()) {
        let bytes = Bytes::from(sample.bytes);
        for length in prefixes(bytes.len()) {
            let result = (sample.again)(bytes.slice(..length));
            prop_assert!(result.is_err(), "the first {length} of {} bytes were read", bytes.len());
        }
    }

    #[test]
    fn nothing_may_follow_an_encoding(sample in closed_sample(), more in vec(any::<u8>(), 1..4)) {
        let bytes = [sample.bytes, more].concat();
        let result = (sample.again)(bytes.into());
        prop_assert!(result.is_err(), "bytes after the end were passed over: {result:?}");
    }

    #[test]
    fn arbitrary_bytes_are_refused_or_canonical(sample in sample(), bytes in vec(any::<u8>(), 0..300)) {
        // Only the decoder of the sample is used, so that the formats take their turns.
        if let Ok(again) = (sample.again)(bytes.clone().into()) {
            prop_assert_eq!(again, bytes);
        }
    }

    #[test]
    fn values_survive(
        slot in strategies::slot(),
        output in strategies::kept_output(),
        body in strategies::body(),
        undo in strategies::undo(),
    ) {
        let reader = |bytes: Vec<u8>| Reader::new(bytes.into());
        prop_assert_eq!(Slot::decode(&mut reader(written(|to| slot.encode(to)))), Ok(slot));
        prop_assert_eq!(Output::decode(&mut reader(written(|to| output.encode(to)))), Ok(Some(output)));
        prop_assert_eq!(TxBody::decode(body.encode()), Ok(body));
        prop_assert_eq!(Undo::decode(undo.encode().into()), Ok(undo));
    }

    #[test]
    fn a_transaction_file_loses_nothing(tx in strategies::tx(0..=5), cut in any::<Index>()) {
        let file = tx_file::encode(&tx);
        prop_assert_eq!(tx_file::decode(file.clone()), Ok(tx.clone()));
        prop_assert_eq!(tx.body_bytes(), file.clone());
        prop_assert!(tx_file::decode(file.slice(..cut.index(file.len()))).is_err());
        let raw = Tx { raw: file.slice(..7), ..tx };
        prop_assert_eq!(raw.body_bytes(), file.slice(..7));
    }

    #[test]
    fn a_new_transaction_survives(
        (tx, head) in (strategies::tx(0..=140), strategies::head(0)),
    ) {
        let expected = TxRecord::new(&tx, head.clone());
        let pages = pages_of(&tx, head, &mut Scratch::default());
        prop_assert_eq!(&pages, &expected.to_pages());
        prop_assert_eq!(stored_and_read(&expected), Ok(expected));
    }

    #[test]
    fn one_output_is_found_and_replaced(record in strategies::record(1..=20), at: Index, new in strategies::kept_output()) {
        let (mut first, _) = record.to_pages();
        let header = first.header().unwrap();
        let place = at.index(record.outputs.len());
        prop_assert_eq!(first.view(&header).and_then(|view| view.output(place)), Ok(record.outputs[place].clone()));
        let result = first.with_output(&header, place, new.clone());
        let mut expected = record;
        if let Some(old) = &mut expected.outputs[place] {
            first = result.unwrap();
            *old = new;
        } else {
            prop_assert!(result.is_err(), "an output that was not kept was replaced");
        }
        prop_assert_eq!(TxRecord::assemble(expected.txid, &first, &[]), Ok(expected));
    }
}

proptest! {
    // Few changes leave an encoding readable, so it takes many.
    #![proptest_config(ProptestConfig { cases: 32 * config().cases, ..config() })]

    #[test]
    fn looking_at_an_output_is_as_good_as_reading_it(
        output in strategies::kept_output(),
        changes in vec(change(), 0..3),
        more in vec(any::<u8>(), 0..40),
    ) {
        let mut bytes = written(|to| output.encode(to));
        changes.iter().for_each(|change| change.apply(&mut bytes));
        assert_looks_alike(&bytes)?;
        assert_looks_alike(&more)?;
    }

    #[test]
    fn looking_when_it_was_mined_is_as_good_as_reading_the_page(
        record in strategies::some_record(),
        changes in vec(change(), 0..3),
    ) {
        let mut bytes = record.to_pages().0.bytes().to_vec();
        prop_assert_eq!(FirstPage::peek_mined_at(&bytes), Ok(record.head.mined_at()));
        changes.iter().for_each(|change| change.apply(&mut bytes));
        if let Ok(header) = FirstPage::new(&bytes).header() {
            prop_assert_eq!(FirstPage::peek_mined_at(&bytes), Ok(header.head.mined_at()));
        }
    }

    #[test]
    fn whatever_is_read_has_one_encoding(sample in sample(), changes in vec(change(), 1..4)) {
        let mut bytes = sample.bytes;
        changes.iter().for_each(|change| change.apply(&mut bytes));
        if let Ok(again) = (sample.again)(bytes.clone().into()) {
            prop_assert_eq!(again, bytes);
        }
    }
}

fn stored_and_read(record: &TxRecord) -> Result<TxRecord, DecodeError> {
    let (first, further) = record.to_pages();
    let further: Vec<FurtherPage> =
        further.iter().map(|page| FurtherPage::decode(page.encode().into())).collect::<Result<_, _>>()?;
    TxRecord::assemble(record.txid, &FirstPage::new(first.bytes()), &further)
}

proptest! {
    // Each case is large, and what matters is the number of outputs.
    #![proptest_config(ProptestConfig { cases: 8, ..config() })]

    #[test]
    fn records_survive_at_the_edges_of_pages(
        records in [0, 1, 127, 128, 129, 256, 257, 1001].map(|count| strategies::record(count..=count))
    ) {
        for record in records {
            let count = record.outputs.len();
            prop_assert_eq!(record.to_pages().1.len(), further_pages(count as u32) as usize);
            prop_assert_eq!(stored_and_read(&record), Ok(record), "{} outputs", count);
        }
    }

    #[test]
    fn both_forms_of_a_record_show_all_outputs(record in strategies::record(250..=400)) {
        let header = record.to_pages().0.header().unwrap();
        let count = |wanted: fn(&Slot) -> bool| record.slots.iter().filter(|slot| wanted(slot)).count() as u32;
        for view in [header.view(), record.view()] {
            prop_assert_eq!((view.head, view.slots), (&record.head, &record.slots[..128]));
            prop_assert_eq!(view.open(), count(Slot::is_open));
            prop_assert_eq!(view.claimed(), count(Slot::is_claimed));
            prop_assert_eq!(view.latest_child(), record.slots.iter().filter_map(Slot::child_mined_at).max());
        }
    }
}

#[test]
fn a_transaction_of_1001_outputs_has_seven_further_pages() {
    assert_eq!([0, 1, 128, 129, 1001].map(further_pages), [0, 0, 0, 1, 7]);
    assert_eq!(further_pages(u32::MAX), u32::MAX / 128);
}
