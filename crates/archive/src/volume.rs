//! What lies on a volume, item by item. Pure.

use sapwood_ledger::engine::DiskSpace;

use crate::forecast::Forecast;

/// Something that takes space.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct VolumeItem {
    /// Its name, as interfaces show it: `arena_used`, `undo`.
    pub name: String,
    /// Bytes on disk, or bytes that have to stay free for it.
    pub bytes: u64,
    /// What it is.
    pub kind: ItemKind,
}

/// What an item of a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum ItemKind {
    /// Data that pruning makes smaller.
    Prunable,
    /// Data that pruning does not change.
    Fixed,
    /// Space that is taken and can be used again.
    Reusable,
    /// Room that has to stay free, such as what an engine needs to compact.
    Room,
}

/// The budget of a volume, item by item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Volume {
    /// What there is.
    pub items: Vec<VolumeItem>,
    /// Bytes that the file system has free. `None` if it is not known.
    pub free_bytes: Option<u64>,
    /// Bytes of the file system. `None` if it is not known.
    pub total_bytes: Option<u64>,
}

impl Volume {
    /// Adds an item. One without bytes is listed, too.
    pub fn add(&mut self, name: impl Into<String>, bytes: u64, kind: ItemKind) {
        self.items.push(VolumeItem { name: name.into(), bytes, kind });
    }

    /// Sets the size of the file system.
    pub fn set_disk(&mut self, space: Option<DiskSpace>) {
        self.free_bytes = space.map(|space| space.free_bytes);
        self.total_bytes = space.map(|space| space.total_bytes);
    }

    /// Returns the bytes of a kind.
    pub fn of(&self, kind: ItemKind) -> u64 {
        self.items.iter().filter(|item| item.kind == kind).map(|item| item.bytes).sum()
    }

    /// Returns the bytes on disk: everything but room.
    pub fn on_disk(&self) -> u64 {
        self.items.iter().filter(|item| item.kind != ItemKind::Room).map(|item| item.bytes).sum()
    }

    /// Returns the bytes that others have on the file system. `None` if its size is not known.
    pub fn of_others(&self) -> Option<u64> {
        let taken = self.total_bytes?.checked_sub(self.free_bytes?)?;
        Some(taken.saturating_sub(self.on_disk()))
    }

    /// Returns the bytes that can still be written: what is free or can be used again, less the room that has to stay.
    /// `None` if the free space is not known.
    pub fn writable(&self) -> Option<u64> {
        let free = self.free_bytes?.saturating_add(self.of(ItemKind::Reusable));
        Some(free.saturating_sub(self.of(ItemKind::Room)))
    }

    /// Forecasts when the volume is full at a rate, if nothing is pruned.
    pub fn forecast(&self, bytes_per_second: Option<f64>) -> Forecast {
        Forecast::new(bytes_per_second, 0, self.writable(), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volume_adds_up() {
        let mut volume = Volume::default();
        volume.add("arena_used", 500, ItemKind::Prunable);
        volume.add("arena_free", 100, ItemKind::Reusable);
        volume.add("index", 50, ItemKind::Fixed);
        volume.add("compaction", 80, ItemKind::Room);
        assert_eq!((volume.on_disk(), volume.writable(), volume.of_others()), (650, None, None));
        volume.set_disk(Some(DiskSpace { free_bytes: 300, total_bytes: 1000 }));
        assert_eq!(volume.of_others(), Some(50));
        assert_eq!(volume.writable(), Some(320), "300 free and 100 to use again, less 80");
        let forecast = volume.forecast(Some(1.0 / 270.0));
        assert_eq!(forecast.days_until_full, Some(1.0));
    }

    #[test]
    fn volume_without_room_has_nothing_to_write() {
        let mut volume = Volume::default();
        volume.add("compaction", 80, ItemKind::Room);
        volume.set_disk(Some(DiskSpace { free_bytes: 30, total_bytes: 1000 }));
        assert_eq!(volume.writable(), Some(0));
        assert_eq!(volume.forecast(Some(1.0)).days_until_full, Some(0.0));
    }
}
