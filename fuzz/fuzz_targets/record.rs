//! A whole transaction out of several pages. The input is the pages, each after its length.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sapwood_types::{
    DecodeError, FirstPage, FurtherPage, TxId, TxRecord,
    codec::{Reader, Writer},
};

fn read(data: &[u8]) -> Result<TxRecord, DecodeError> {
    let mut from = Reader::new(Bytes::copy_from_slice(data));
    let first = FirstPage::new(&from.sized("first page")?);
    let mut further = Vec::new();
    while from.left() > 0 {
        further.push(FurtherPage::decode(from.sized("further page")?)?);
    }
    TxRecord::assemble(TxId::default(), &first, &further)
}

fn write(record: &TxRecord) -> Vec<u8> {
    let (first, further) = record.to_pages();
    let mut to = Writer::default();
    to.sized(first.bytes());
    further.iter().for_each(|page| to.sized(&page.encode()));
    to.finish()
}

fuzz_target!(|data: &[u8]| {
    if let Ok(record) = read(data) {
        assert_eq!(write(&record), data);
        assert_eq!(record.slots.len(), record.outputs.len());
        assert_eq!(record.slots.len(), record.head.output_count as usize);
    }
});
