//! Where a data directory stands, as people and programs read it.

use std::{collections::BTreeMap, fmt, fs, path::Path};

use bytes::Bytes;
use sapwood_sources::ChainPoint;
use sapwood_store::{StoreDiagnose, StoreError, StoreRead, StoreWrite, UtxoProgress};
use sapwood_store_embedded::EmbeddedStore;
use sapwood_types::{BlockHash, BlockMark, Height};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::node::{Directory, NodeFile};

/// The name of the note that remembers the last block of the source.
const TIP_NOTE: &str = "source-tip";

/// Remembers the last block of the source, so that the lag is known without asking it.
pub(crate) async fn note_tip(store: &EmbeddedStore, tip: ChainPoint) -> Result<(), StoreError> {
    let note = [tip.height.0.to_be_bytes().as_slice(), &tip.hash.0].concat();
    store.put_notes(vec![(TIP_NOTE.into(), Some(Bytes::from(note)))]).await
}

async fn noted_tip(store: &EmbeddedStore) -> Result<Option<ChainPoint>, StoreError> {
    let note = store.note(TIP_NOTE).await?;
    Ok(note.and_then(|note| {
        let (height, hash) = note.split_first_chunk::<4>()?;
        Some(ChainPoint::new(Height(u32::from_be_bytes(*height)), BlockHash(hash.try_into().ok()?)))
    }))
}

/// A block.
#[derive(Debug, Serialize)]
pub(crate) struct BlockRef {
    height: u32,
    hash: String,
}

impl From<BlockMark> for BlockRef {
    fn from(block: BlockMark) -> Self {
        Self { height: block.height.0, hash: block.hash.to_string() }
    }
}

/// The UTXO set.
#[derive(Debug, Serialize)]
pub(crate) struct UtxoStatus {
    count: u64,
    /// In whole coins, as Bitcoin Core prints it.
    total_amount: Coins,
    /// In the smallest unit.
    total_amount_sat: u128,
    #[serde(skip_serializing_if = "Option::is_none")]
    muhash: Option<String>,
}

/// An amount in the smallest unit, shown in whole coins with eight decimals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coins(u128);

impl fmt::Display for Coins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const COIN: u128 = 100_000_000;
        write!(f, "{}.{:08}", self.0 / COIN, self.0 % COIN)
    }
}

impl Serialize for Coins {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // A number with all its digits, which a float would round.
        RawValue::from_string(self.to_string()).map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

/// Bytes on disk.
#[derive(Debug, Default, Serialize)]
pub(crate) struct DiskStatus {
    total: u64,
    /// What each part has, as far as it is in files of its own.
    parts: BTreeMap<String, u64>,
}

/// Where a data directory stands.
#[derive(Debug, Serialize)]
pub(crate) struct Status {
    chain: String,
    network: String,
    /// The last block of the source, as far as it is known here.
    tip: Option<BlockRef>,
    last_applied: Option<BlockRef>,
    /// How many blocks the last applied one is behind the tip.
    lag: u32,
    /// The lowest height that can be gone back to.
    rollback_floor: Option<u32>,
    utxo: UtxoStatus,
    records: u64,
    unmined: u64,
    disk: DiskStatus,
}

impl Status {
    pub(crate) async fn of(
        directory: &Directory,
        node: &NodeFile,
        store: &EmbeddedStore,
        with_hash: bool,
        progress: UtxoProgress,
    ) -> anyhow::Result<Self> {
        let last = store.last_applied().await?;
        let counts = store.counts().await?;
        let rolling = store.rolling_utxo_set().await?;
        let set = match rolling.filter(|set| !with_hash || set.hash.is_some()) {
            Some(set) => set,
            None => store.utxo_set(with_hash, progress).await?,
        };
        let noted =
            noted_tip(store).await?.map(|tip| BlockRef { height: tip.height.0, hash: tip.hash.to_string() });
        let applied: Option<BlockRef> = last.map(BlockRef::from);
        // What is applied is known for sure; the source was somewhere when it was last asked.
        let tip = match (noted, last.map(BlockRef::from)) {
            (Some(noted), Some(applied)) if noted.height > applied.height => Some(noted),
            (noted, None) => noted,
            (_, applied) => applied,
        };
        let height = |block: &Option<BlockRef>| block.as_ref().map_or(0, |block| u64::from(block.height) + 1);
        Ok(Status {
            chain: node.chain.clone(),
            network: node.network.clone(),
            lag: u32::try_from(height(&tip).saturating_sub(height(&applied))).unwrap_or(u32::MAX),
            tip,
            last_applied: applied,
            rollback_floor: store.rollback_floor().await?.map(|height| height.0),
            utxo: UtxoStatus {
                count: set.coins,
                total_amount: Coins(set.amount),
                total_amount_sat: set.amount,
                muhash: if with_hash { set.digest() } else { None },
            },
            records: counts.records,
            unmined: counts.unmined,
            disk: disk(directory, store).await?,
        })
    }
}

/// Bytes on disk, by column family as far as they are in its files, and the rest by kind of file.
async fn disk(directory: &Directory, store: &EmbeddedStore) -> anyhow::Result<DiskStatus> {
    let mut disk = DiskStatus::default();
    for part in store.engine_stats(None).await? {
        let bytes = part.figures.get("sst_bytes").copied().unwrap_or(0);
        disk.parts.insert(part.part, bytes);
    }
    let tables = disk.parts.values().sum::<u64>();
    let log = files(&directory.store(), &|path| path.extension().is_some_and(|extension| extension == "log"));
    disk.total = files(directory.path(), &|_| true);
    disk.parts.insert("write_ahead_log".into(), log);
    disk.parts.insert("other".into(), disk.total.saturating_sub(tables + log));
    Ok(disk)
}

/// The bytes of all files below a directory that are wanted. What goes away meanwhile does not count.
fn files(directory: &Path, wanted: &dyn Fn(&Path) -> bool) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let of = |entry: fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => files(&entry.path(), wanted),
        Ok(kind) if kind.is_file() && wanted(&entry.path()) => entry.metadata().map_or(0, |meta| meta.len()),
        _ => 0,
    };
    entries.flatten().map(of).sum()
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let block = |block: &Option<BlockRef>| {
            block.as_ref().map_or("none".into(), |block| format!("{} ({})", block.height, block.hash))
        };
        writeln!(f, "chain            {} {}", self.chain, self.network)?;
        writeln!(f, "tip              {}", block(&self.tip))?;
        writeln!(f, "last applied     {}", block(&self.last_applied))?;
        writeln!(f, "behind           {} blocks", self.lag)?;
        if let Some(floor) = self.rollback_floor {
            writeln!(f, "can go back to   {floor}")?;
        }
        writeln!(f, "coins            {}", self.utxo.count)?;
        writeln!(f, "their amount     {}", self.utxo.total_amount)?;
        if let Some(muhash) = &self.utxo.muhash {
            writeln!(f, "muhash           {muhash}")?;
        }
        writeln!(f, "records          {}, {} of them unmined", self.records, self.unmined)?;
        writeln!(f, "on disk          {} bytes", self.disk.total)?;
        for (part, bytes) in &self.disk.parts {
            writeln!(f, " {part:<16}{bytes}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_keep_all_their_digits() {
        assert_eq!(Coins(0).to_string(), "0.00000000");
        assert_eq!(Coins(2_100_000_000_000_001).to_string(), "21000000.00000001");
        assert_eq!(serde_json::to_string(&Coins(21_560_000_000_000)).unwrap(), "215600.00000000");
    }
}
