//! What is needed to take a block back.
//!
//! Little has to be remembered: a parent's record outlives the reorganisation window, and every record knows what it spends.
//! So the undo of a block is the list of what it created and what it mined, and the few records it wrote over.

use bytes::Bytes;

use crate::{
    BlockMark, DecodeError, FirstPage, FurtherPage, TxId, TxRecord,
    codec::{Reader, Writer},
};

const VERSION: u8 = 1;

/// How to take one block back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undo {
    /// The block.
    pub block: BlockMark,
    /// The block before it, which is the last applied one again afterwards. Nothing for the first block.
    pub previous: Option<BlockMark>,
    /// Transactions the store learned of from this block.
    pub created: Vec<TxId>,
    /// Transactions the store knew already, and that this block mined.
    pub mined: Vec<TxId>,
    /// Records this block wrote over (a coinbase with the id of an older one, as Bitcoin had before BIP 34).
    pub replaced: Vec<TxRecord>,
}

impl Undo {
    /// Writes the undo record.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::with_capacity(96 + 32 * (self.created.len() + self.mined.len()));
        to.u8(VERSION);
        self.block.encode(&mut to);
        to.u8(self.previous.is_some().into());
        if let Some(previous) = &self.previous {
            previous.encode(&mut to);
        }
        for list in [&self.created, &self.mined] {
            to.length(list.len());
            list.iter().for_each(|txid| to.bytes(&txid.0));
        }
        to.length(self.replaced.len());
        for record in &self.replaced {
            let (first, further) = record.to_pages();
            to.bytes(&record.txid.0);
            to.sized(first.bytes());
            to.length(further.len());
            further.iter().for_each(|page| to.sized(&page.encode()));
        }
        to.finish()
    }

    /// Reads an undo record.
    pub fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        const WHAT: &str = "undo record";
        let mut from = Reader::new(bytes);
        from.version(WHAT, VERSION)?;
        let block = BlockMark::decode(&mut from)?;
        let previous = match from.u8("previous block")? {
            0 => None,
            1 => Some(BlockMark::decode(&mut from)?),
            value => return Err(DecodeError::UnknownValue { field: "previous block", value: value.into() }),
        };
        let mut txids = |field| {
            let count = from.count(field, TxId::SIZE)?;
            (0..count).map(|_| from.txid(field)).collect::<Result<Vec<_>, _>>()
        };
        let created = txids("created transactions")?;
        let mined = txids("mined transactions")?;
        let count = from.count("replaced records", TxId::SIZE + 2)?;
        let replaced = (0..count).map(|_| replaced_record(&mut from)).collect::<Result<_, _>>()?;
        from.end(WHAT)?;
        Ok(Undo { block, previous, created, mined, replaced })
    }
}

/// Reads a record that was written over. It goes back into the store as it is, so all of it is checked.
fn replaced_record(from: &mut Reader) -> Result<TxRecord, DecodeError> {
    let txid = from.txid("replaced record")?;
    let first = FirstPage::new(&from.sized("replaced record")?);
    let count = from.count("replaced pages", 2)?;
    let further = (0..count)
        .map(|_| FurtherPage::decode(from.sized("replaced page")?))
        .collect::<Result<Vec<_>, _>>()?;
    TxRecord::assemble(txid, &first, &further)
}
