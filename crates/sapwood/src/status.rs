//! The last block of the source, as it was when it was last asked.

use bytes::Bytes;
use sapwood_ledger::{Ledger, StoreError};
use sapwood_sources::ChainPoint;
use sapwood_types::{BlockHash, Height};

/// The name of the note that remembers the last block of the source.
const TIP_NOTE: &str = "source-tip";

/// Remembers the last block of the source, so that the lag is known without asking it.
pub(crate) async fn note_tip(store: &Ledger, tip: ChainPoint) -> Result<(), StoreError> {
    let note = [tip.height.0.to_be_bytes().as_slice(), &tip.hash.0].concat();
    store.put_notes(vec![(TIP_NOTE.into(), Some(Bytes::from(note)))]).await
}

/// The last block of the source that was noted. `None` if none was.
pub(crate) async fn noted_tip(store: &Ledger) -> Result<Option<ChainPoint>, StoreError> {
    let note = store.note(TIP_NOTE).await?;
    Ok(note.and_then(|note| {
        let (height, hash) = note.split_first_chunk::<4>()?;
        Some(ChainPoint::new(Height(u32::from_be_bytes(*height)), BlockHash(hash.try_into().ok()?)))
    }))
}
