//! Version 2 counts spent outputs in the state row.
//!
//! It also named the network, in a row that is written when the store is opened for one, and knew amounts of inputs without their scripts, which
//! older records do not have. So there is nothing else to migrate.

use bytes::Bytes;
use sapwood_types::{
    DecodeError,
    codec::{Reader, Writer},
};

use super::{Invalid, Next, Part, Step, state::OlderState};
use crate::{Counts, StoreError, core::corrupt, read::Snapshot};

pub(super) struct CountSpent;

/// The next record to count, and the spent outputs before it.
struct Resume {
    next: Bytes,
    spent: u64,
}

impl Resume {
    fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        if bytes.is_empty() {
            return Ok(Self { next: bytes, spent: 0 });
        }
        let mut from = Reader::new(bytes);
        let (next, spent) = (from.sized("next record")?, from.varint("spent outputs")?);
        from.end("place to resume")?;
        Ok(Self { next, spent })
    }
}

impl Step for CountSpent {
    fn version(&self) -> u32 {
        2
    }

    fn summary(&self) -> &'static str {
        "spent outputs are counted"
    }

    fn run(&self, part: &mut Part<'_>) -> Result<Next, StoreError> {
        let resume = Resume::decode(part.resume.clone());
        let Resume { next, mut spent } =
            resume.map_err(|cause| corrupt("the migration to version 2", cause))?;
        let (counted, next) = part.count_records(&next)?;
        spent += Counts::default().changed(&counted).spent;
        if let Some(next) = next {
            let mut to = Writer::default();
            to.sized(&next);
            to.varint(spent);
            return Ok(Next::Resume(to.finish()));
        }
        let state = OlderState::read(part.rows, 1)?;
        OlderState { spent: Some(spent), ..state }.put(part);
        Ok(Next::Done)
    }

    fn validate(&self, rows: &Snapshot<'_>, _: u64) -> Result<(), Invalid> {
        OlderState::read(rows, 2)?;
        Ok(())
    }
}
