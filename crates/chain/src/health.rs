//! How a follower and its source get on: whether the source can be reached, and what keeps its blocks from being applied.

use std::{fmt, time::Instant};

use sapwood_sources::{ChainPoint, Gap, SourceView};
use sapwood_types::{BlockHash, Height};

/// Something that was tried and failed, and is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failing {
    /// When it failed first.
    pub since: Instant,
    /// How often it has failed since then.
    pub attempts: u64,
    /// The last error.
    pub error: String,
}

impl Failing {
    /// Notes one more failure.
    fn again(before: Option<Failing>, error: String) -> Failing {
        let (since, attempts) = before.map_or((Instant::now(), 0), |before| (before.since, before.attempts));
        Failing { since, attempts: attempts + 1, error }
    }
}

/// A block of the source that cannot be applied, although the source has more on top of it than what is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RefusedBlock {
    /// Its height.
    pub height: Height,
    /// Its hash.
    pub hash: BlockHash,
    /// Why it cannot be applied.
    pub reason: String,
    /// How many blocks are built on it, one after the other.
    pub descendants: u32,
    /// Whether the source stands by it, as a node does whose active chain has it.
    pub insisted: bool,
    /// How often it was tried.
    pub attempts: u32,
}

/// The source's chain left the applied one below the lowest height a rollback can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BelowFloor {
    /// The last block of the source.
    pub tip: ChainPoint,
    /// The lowest height a rollback can reach.
    pub floor: Height,
}

/// How a follower and its source get on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceHealth {
    /// The last block of the source's best chain. `None` until the source was asked, or if it has no block.
    pub tip: Option<ChainPoint>,
    /// The greatest height the source knows of: headers without blocks, refused blocks with what is built on them and blocks behind
    /// a gap included. `None` until the source was asked, or if it has no block.
    pub best_height: Option<Height>,
    /// The source cannot be read. `None` if it could when it was tried last.
    pub unreachable: Option<Failing>,
    /// The place where bodies of large transactions are kept cannot be written. `None` if it can.
    pub bodies: Option<Failing>,
    /// The block at which the source's chain cannot be followed further. `None` if there is none.
    pub refused: Option<RefusedBlock>,
    /// Blocks the source has and that cannot be connected. `None` if there are none.
    pub gap: Option<Gap>,
    /// The source is on a chain that cannot be reached by a rollback. `None` if it can.
    pub below_floor: Option<BelowFloor>,
    /// When the source answered last. `None` if it never did.
    pub last_contact: Option<Instant>,
    /// How often the source failed to answer since the follower was made.
    pub errors: u64,
}

/// How a follower and its source get on, in a word. The worst comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum SourceState {
    /// The source cannot be read.
    Unreachable,
    /// The source is on a chain that cannot be reached by a rollback.
    BelowFloor,
    /// The source's chain has a block that cannot be applied.
    Refused,
    /// Blocks of the source are missing.
    Gap,
    /// No block came for longer than the operator allows. [`SourceHealth::state`] does not know how long that is.
    Silent,
    /// It has not been asked yet.
    #[default]
    Opening,
    /// All is well.
    Following,
}

impl SourceState {
    /// Every state there is.
    pub const ALL: [SourceState; 7] = [
        SourceState::Unreachable,
        SourceState::BelowFloor,
        SourceState::Refused,
        SourceState::Gap,
        SourceState::Silent,
        SourceState::Opening,
        SourceState::Following,
    ];

    /// The name used in messages and interfaces.
    pub fn name(self) -> &'static str {
        match self {
            SourceState::Unreachable => "unreachable",
            SourceState::BelowFloor => "below_floor",
            SourceState::Refused => "refused",
            SourceState::Gap => "gap",
            SourceState::Silent => "silent",
            SourceState::Opening => "opening",
            SourceState::Following => "following",
        }
    }
}

impl fmt::Display for SourceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl SourceHealth {
    /// How it is, in a word.
    pub fn state(&self) -> SourceState {
        match self {
            SourceHealth { unreachable: Some(_), .. } => SourceState::Unreachable,
            SourceHealth { below_floor: Some(_), .. } => SourceState::BelowFloor,
            SourceHealth { refused: Some(_), .. } => SourceState::Refused,
            SourceHealth { gap: Some(_), .. } => SourceState::Gap,
            SourceHealth { last_contact: None, .. } => SourceState::Opening,
            _ => SourceState::Following,
        }
    }

    /// Whether the source's chain cannot be followed as things are. A refused block on which nothing is built may be one that
    /// everyone refuses: that alone does not count.
    pub fn is_stalled(&self) -> bool {
        let built_on = |refused: &RefusedBlock| refused.insisted || refused.descendants > 0;
        self.unreachable.is_some()
            || self.bodies.is_some()
            || self.below_floor.is_some()
            || self.gap.is_some()
            || self.refused.as_ref().is_some_and(built_on)
    }

    /// How many blocks the source knows of that are not applied. `None` if it is not known what the source has.
    pub fn lag(&self, applied: Option<Height>) -> Option<u64> {
        let blocks = |height: Height| u64::from(height.0) + 1;
        self.best_height.map(|best| blocks(best).saturating_sub(applied.map_or(0, blocks)))
    }

    /// Notes what the source told, and the refusals of blocks it names.
    pub(crate) fn saw(&mut self, view: SourceView, reason: impl Fn(&BlockHash) -> Option<String>) {
        (self.tip, self.best_height, self.gap) = (view.tip, view.best_height, view.gap);
        self.last_contact = Some(Instant::now());
        // A block the source stands by is cleared by the round that applies past it.
        if self.refused.as_ref().is_none_or(|refused| !refused.insisted) {
            self.refused = view.rejected.map(|branch| RefusedBlock {
                height: branch.block.height,
                hash: branch.block.hash,
                reason: reason(&branch.block.hash).unwrap_or_else(|| "it was rejected".into()),
                descendants: branch.descendants,
                insisted: false,
                attempts: 1,
            });
        } else if let (Some(refused), Some(tip)) = (&mut self.refused, view.tip) {
            refused.descendants = tip.height.above(refused.height);
        }
    }

    /// Notes that the source stands by a block that cannot be applied.
    pub(crate) fn insists(&mut self, block: ChainPoint, reason: String) {
        let before = self.refused.take().filter(|before| before.hash == block.hash);
        let descendants = self.tip.map_or(0, |tip| tip.height.above(block.height));
        let attempts = before.map_or(0, |before| before.attempts).saturating_add(1);
        let (height, hash) = (block.height, block.hash);
        self.refused = Some(RefusedBlock { height, hash, reason, descendants, insisted: true, attempts });
    }

    /// Notes that the source could be used. That it answers what it has is not enough: its blocks may be out of reach.
    pub(crate) fn works(&mut self) {
        self.unreachable = None;
    }

    pub(crate) fn failed(&mut self, error: String) {
        self.errors += 1;
        self.unreachable = Some(Failing::again(self.unreachable.take(), error));
    }

    pub(crate) fn bodies_failed(&mut self, error: String) {
        self.bodies = Some(Failing::again(self.bodies.take(), error));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(descendants: u32, insisted: bool) -> SourceHealth {
        let (height, hash) = (Height(7), BlockHash([7; 32]));
        let refused = RefusedBlock { height, hash, reason: "no".into(), descendants, insisted, attempts: 1 };
        SourceHealth { refused: Some(refused), ..SourceHealth::default() }
    }

    #[test]
    fn lag_is_counted_from_the_best_height_known() {
        let mut health = SourceHealth::default();
        assert_eq!(health.lag(None), None);
        health.best_height = Some(Height(9));
        assert_eq!((health.lag(None), health.lag(Some(Height(4)))), (Some(10), Some(5)));
        assert_eq!(health.lag(Some(Height(12))), Some(0));
    }

    #[test]
    fn a_refused_block_stalls_when_something_is_built_on_it_or_the_source_stands_by_it() {
        assert!(!refused(0, false).is_stalled());
        assert!(refused(1, false).is_stalled() && refused(0, true).is_stalled());
        assert_eq!(refused(0, false).state(), SourceState::Refused);
    }

    #[test]
    fn failures_in_a_row_are_counted_from_the_first() {
        let mut health = SourceHealth::default();
        health.failed("one".into());
        let since = health.unreachable.as_ref().unwrap().since;
        health.failed("two".into());
        let failing = health.unreachable.clone().unwrap();
        assert_eq!((failing.attempts, failing.error.as_str(), failing.since), (2, "two", since));
        assert_eq!((health.errors, health.state()), (2, SourceState::Unreachable));
        health.saw(SourceView::default(), |_| None);
        assert_eq!(health.state(), SourceState::Unreachable, "an answer alone is not enough");
        health.works();
        assert_eq!((health.errors, health.state()), (2, SourceState::Following));
    }
}
