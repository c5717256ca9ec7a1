//! Who pulls, and how far they got.

use sapwood_types::{
    DecodeError, Height,
    codec::{Reader, Writer},
};

use crate::{Archive, HeightHold, draft::Draft, error::ArchiveError, keys, rows};

const VERSION: u8 = 1;
/// How many consumers there can be.
const MOST: u64 = 256;
/// Bytes of the longest name.
const LONGEST_NAME: u64 = 128;

/// A consumer of the export.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Consumer {
    /// Its name.
    pub name: String,
    /// The last block that it acknowledged. `None` if a reorg replaced all of them.
    pub acknowledged: Option<Height>,
    /// When it acknowledged last, a Unix timestamp in seconds.
    pub at: u64,
}

/// The row of a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ack {
    pub(crate) height: Option<Height>,
    pub(crate) at: u64,
}

impl Ack {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = Writer::with_capacity(16);
        to.u8(VERSION);
        to.u8(self.height.is_some().into());
        if let Some(height) = self.height {
            to.height(height);
        }
        to.varint(self.at);
        to.finish()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        const WHAT: &str = "export consumer";
        let mut from = Reader::of_slice(bytes);
        from.version(WHAT, VERSION)?;
        let height = match from.u8("acknowledged")? {
            0 => None,
            1 => Some(from.height("acknowledged block")?),
            value => return Err(DecodeError::UnknownValue { field: "acknowledged", value: value.into() }),
        };
        let ack = Self { height, at: from.varint("acknowledged at")? };
        from.end(WHAT)?;
        Ok(ack)
    }
}

impl Archive {
    /// Notes that a consumer has everything up to a block, and returns how far it has got. A lower block than before
    /// changes nothing. With [`Policy::export_hold`](crate::Policy::export_hold) blocks are kept until every consumer
    /// has acknowledged them.
    ///
    /// # Errors
    /// [`ArchiveError::BadHeight`] if the archive does not have the block yet, [`ArchiveError::TooMany`] for one
    /// consumer too many or a name that is too long.
    pub fn ack_exported(&self, consumer: &str, block: u64, now: u64) -> Result<Height, ArchiveError> {
        if consumer.len() as u64 > LONGEST_NAME {
            let hint = "Choose a shorter name";
            return Err(ArchiveError::TooMany {
                what: "bytes of a consumer's name",
                limit: LONGEST_NAME,
                hint,
            });
        }
        let mut writer = self.core.writer.lock();
        let mut draft = Draft::new(&self.core, &mut writer)?;
        let head = draft.state.head.map(|head| head.height);
        let height = u32::try_from(block).ok().map(Height).filter(|height| Some(*height) <= head);
        let Some(height) = height else {
            let problem = match head {
                Some(head) => format!("the newest block is {head}"),
                None => "the archive is empty".into(),
            };
            return Err(ArchiveError::BadHeight { what: "an acknowledgement", height: block, problem });
        };
        let all = all(draft.view.as_ref())?;
        let before = all.iter().find(|known| known.name == consumer);
        if before.is_none() && all.len() as u64 >= MOST {
            let hint = "Remove one that no longer pulls";
            return Err(ArchiveError::TooMany { what: "consumers of the export", limit: MOST, hint });
        }
        let height = before.and_then(|before| before.acknowledged).map_or(height, |known| known.max(height));
        let ack = Ack { height: Some(height), at: now };
        draft.writes.put(keys::META, &keys::consumer(consumer), &ack.encode());
        draft.commit()?;
        Ok(height)
    }

    /// Forgets a consumer, so that it holds nothing. Returns whether it was known.
    ///
    /// # Errors
    /// Those of a commit.
    pub fn remove_consumer(&self, consumer: &str) -> Result<bool, ArchiveError> {
        let mut writer = self.core.writer.lock();
        let mut draft = Draft::new(&self.core, &mut writer)?;
        let known = rows::get(draft.view.as_ref(), keys::META, &keys::consumer(consumer))?.is_some();
        if known {
            draft.writes.delete(keys::META, &keys::consumer(consumer));
        }
        draft.commit_if_changed()?;
        Ok(known)
    }

    /// Lists the consumers by name.
    ///
    /// # Errors
    /// Those of reading.
    pub fn consumers(&self) -> Result<Vec<Consumer>, ArchiveError> {
        all(self.view()?.rows())
    }
}

fn all(view: &dyn sapwood_ledger::engine::View) -> Result<Vec<Consumer>, ArchiveError> {
    let mut all = Vec::new();
    rows::scan_all(view, &keys::ALL_CONSUMERS, |key, value| {
        let name = keys::consumer_in(key).unwrap_or_default().to_owned();
        let Ack { height, at } =
            Ack::decode(value).map_err(ArchiveError::damaged(format!("the export consumer {name:?}")))?;
        all.push(Consumer { name, acknowledged: height, at });
        Ok(())
    })?;
    Ok(all)
}

/// What consumers hold. One that acknowledged nothing, or no consumer at all, holds everything.
pub(crate) fn holds(archive: &Archive) -> Result<Vec<HeightHold>, ArchiveError> {
    let hold = |name: String, keep_from| HeightHold { name, keep_from, yields_in_emergency: true };
    let consumers = archive.consumers()?;
    if consumers.is_empty() {
        return Ok(vec![hold("export".into(), None)]);
    }
    let of = |consumer: Consumer| {
        hold(format!("export of {}", consumer.name), consumer.acknowledged.map(Height::next))
    };
    Ok(consumers.into_iter().map(of).collect())
}

/// Lowers acknowledgements to the last block that is left of a reorg: what replaces the others was not exported.
pub(crate) fn lower(draft: &mut Draft<'_>, left: Option<Height>) -> Result<(), ArchiveError> {
    for consumer in all(draft.view.as_ref())? {
        if consumer.acknowledged > left {
            let ack = Ack { height: left, at: consumer.at };
            draft.writes.put(keys::META, &keys::consumer(&consumer.name), &ack.encode());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    #[test]
    fn consumer_is_encoded_as_documented() {
        let ack = Ack { height: Some(Height(258)), at: 300 };
        let golden = [1, 1, 0, 0, 1, 2, 0xac, 2];
        assert_eq!(ack.encode(), golden);
        assert_eq!(Ack::decode(&golden), Ok(ack));
        assert_eq!(golden, *include_bytes!("../../../../fuzz/seeds/archive_consumer/example"));
        assert_eq!(Ack { height: None, at: 0 }.encode(), [1, 0, 0]);
    }

    proptest! {
        #[test]
        fn decoded_consumer_encodes_to_the_same_bytes(bytes in vec(any::<u8>(), 0..20)) {
            if let Ok(ack) = Ack::decode(&bytes) {
                prop_assert_eq!(ack.encode(), bytes);
            }
        }
    }
}
