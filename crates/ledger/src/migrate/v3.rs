//! Version 3 counts what is retained, by reason, and how many records settled at each height.

use std::collections::BTreeMap;

use bytes::Bytes;
use sapwood_types::{
    DecodeError, Height,
    codec::{Reader, Writer},
};

use super::{Invalid, Next, Part, Step, state::OlderState};
use crate::{
    Counts, StoreError,
    core::corrupt,
    engine::{Scan, Table},
    keys,
    read::Snapshot,
    settled,
};

pub(super) struct CountRetained;

/// The next record to count, and what was counted before it. Settled records are added to their rows with each part.
struct Resume {
    next: Bytes,
    /// Records that are locked, preserved, and have an unmined child.
    retained: [u64; 3],
}

impl Resume {
    fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        if bytes.is_empty() {
            return Ok(Self { next: bytes, retained: [0; 3] });
        }
        let mut from = Reader::new(bytes);
        let next = from.sized("next record")?;
        let retained = [from.varint("locked")?, from.varint("preserved")?, from.varint("child unmined")?];
        from.end("place to resume")?;
        Ok(Self { next, retained })
    }
}

impl Step for CountRetained {
    fn version(&self) -> u32 {
        3
    }

    fn summary(&self) -> &'static str {
        "retained and settled records are counted"
    }

    fn run(&self, part: &mut Part<'_>) -> Result<Next, StoreError> {
        let resume = Resume::decode(part.resume.clone());
        let Resume { next, mut retained } =
            resume.map_err(|cause| corrupt("the migration to version 3", cause))?;
        let (counted, next) = part.count_records(&next)?;
        let Counts { locked, preserved, child_unmined, .. } = Counts::default().changed(&counted);
        for (sum, counted) in retained.iter_mut().zip([locked, preserved, child_unmined]) {
            *sum += counted;
        }
        let mut settled = Vec::with_capacity(counted.settled.len());
        for (height, records) in counted.settled {
            settled.push((height, part.rows.settled_at(height)?.saturating_add_signed(records)));
        }
        settled::put(&mut part.writes, settled);
        if let Some(next) = next {
            let mut to = Writer::default();
            to.sized(&next);
            retained.iter().for_each(|count| to.varint(*count));
            return Ok(Next::Resume(to.finish()));
        }
        let state = OlderState::read(part.rows, 2)?;
        OlderState { retained: Some(retained), ..state }.put(part);
        Ok(Next::Done)
    }

    /// The index of due records lists each settled record: it was kept all along, and has to agree with what was counted.
    fn validate(&self, rows: &Snapshot<'_>, unreadable: u64) -> Result<(), Invalid> {
        OlderState::read(rows, 3)?;
        let mut missing: BTreeMap<Height, i128> =
            rows.settled()?.iter().map(|(height, records)| (height, -i128::from(records))).collect();
        rows.try_scan(&Scan::all(Table::Due), |key, _| {
            if let Some((height, _)) = keys::parse_due(key) {
                *missing.entry(height).or_default() += 1;
            }
            Ok(())
        })?;
        if let Some((height, more)) = missing.iter().find(|(_, missing)| **missing < 0) {
            let more = more.unsigned_abs();
            let problem =
                format!("{more} settled records of height {height} are counted but not listed as due");
            return Err(Invalid::Problem(problem));
        }
        let missing: i128 = missing.values().sum();
        if missing > i128::from(unreadable) {
            let problem = format!(
                "{missing} records are listed as due but not counted as settled, and only {unreadable} cannot be read"
            );
            return Err(Invalid::Problem(problem));
        }
        Ok(())
    }
}
