//! A whole transaction out of several pages. The input is the pages, each after its length.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sapwood_types::{
    DecodeError, MasterPage, OutputPage, TxId, TxRecord,
    codec::{Reader, Writer},
};

fn read(data: &[u8]) -> Result<TxRecord, DecodeError> {
    let mut from = Reader::new(Bytes::copy_from_slice(data));
    let master = MasterPage::decode(from.sized("first page")?)?;
    let mut extras = Vec::new();
    while from.left() > 0 {
        extras.push(OutputPage::decode(from.sized("further page")?)?);
    }
    TxRecord::assemble(TxId::default(), &master, &extras)
}

fn write(record: &TxRecord) -> Vec<u8> {
    let (master, extras) = record.to_pages();
    let mut to = Writer::default();
    to.sized(&master.encode());
    extras.iter().for_each(|extra| to.sized(&extra.encode()));
    to.finish()
}

fuzz_target!(|data: &[u8]| {
    if let Ok(record) = read(data) {
        assert_eq!(write(&record), data);
        assert_eq!(record.slots.len(), record.outputs.len());
        assert_eq!(record.slots.len(), record.head.output_count as usize);
    }
});
