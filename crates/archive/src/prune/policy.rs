//! How much is kept, and when that is too much. Pure.

use bytes::Buf;
use sapwood_types::{
    DecodeError, Height,
    codec::{Reader, Writer},
};

const VERSION: u8 = 1;
const WHAT: &str = "archive policy";
const SECONDS_PER_DAY: u64 = 86_400;

/// Pruning runs after this many blocks by default.
pub const DEFAULT_TICK_BLOCKS: u32 = 84;
/// And after this many seconds, because blocks stop coming when a chain stalls.
pub const DEFAULT_TICK_SECONDS: u32 = 60;
/// Entries that one tick deletes by default. 84 blocks of 3,000 transactions have 252,252 entries: twice that, so that
/// pruning catches up.
pub const DEFAULT_MAX_OPS: u64 = 500_000;
/// The part of the target that stays empty after pruning, by default.
pub const DEFAULT_HEADROOM: u8 = 20;
/// Half of the target and more would be pruned in one go.
const GREATEST_HEADROOM: u8 = 50;
/// A target below this many bytes holds less than a few regions.
pub const LEAST_TARGET: u64 = 1 << 20;

/// How much is kept. `target_bytes` comes before `retain_days`, and that before `retain_blocks`: above high water the
/// oldest blocks are pruned whatever the retention says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Policy {
    /// Whether ticks prune.
    pub enabled: bool,
    /// Region bytes that are not exceeded. `None`: no limit.
    pub target_bytes: Option<u64>,
    /// Blocks older than this many days are pruned. `None`: age does not matter.
    pub retain_days: Option<u32>,
    /// Blocks but for this many are pruned. `None`: their number does not matter. Where `retain_days` is set, too, a
    /// block goes that either of the two allows: the shorter one decides.
    pub retain_blocks: Option<u32>,
    /// The part of the target, in percent, that is empty after pruning. High water is half of it below the target.
    pub headroom_percent: u8,
    /// Entries that one tick deletes at most. Its first block can have more.
    pub max_ops_per_tick: u64,
    /// Blocks from one tick to the next.
    pub tick_blocks: u32,
    /// Seconds from one tick to the next where no blocks come.
    pub tick_seconds: u32,
    /// Whether blocks are kept until every consumer of the export has acknowledged them. Without a consumer nothing is
    /// pruned then.
    pub export_hold: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            enabled: true,
            target_bytes: None,
            retain_days: None,
            retain_blocks: None,
            headroom_percent: DEFAULT_HEADROOM,
            max_ops_per_tick: DEFAULT_MAX_OPS,
            tick_blocks: DEFAULT_TICK_BLOCKS,
            tick_seconds: DEFAULT_TICK_SECONDS,
            export_hold: false,
        }
    }
}

/// Why a policy is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// A number is out of its range.
    #[error("{field} is {value}, and has to be from {least} to {most}")]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The least value.
        least: u64,
        /// The greatest value.
        most: u64,
    },
    /// Blocks could be pruned that a reorg still replaces.
    #[error(
        "retain_blocks is {retain_blocks}, but a reorg can replace {reorg_window} blocks: set it to at least {}, \
         or lower the reorg window",
        u64::from(*reorg_window) + 1
    )]
    BelowWindow {
        /// Blocks to be retained.
        retain_blocks: u32,
        /// Blocks that a reorg can replace.
        reorg_window: u32,
    },
}

impl Policy {
    /// Refuses what is unsafe or cannot work.
    ///
    /// # Errors
    /// [`PolicyError`], naming the field and its range.
    pub fn validate(&self, reorg_window: u32) -> Result<(), PolicyError> {
        let ranges = [
            ("target_bytes", self.target_bytes, LEAST_TARGET, i64::MAX as u64),
            ("retain_days", self.retain_days.map(u64::from), 1, 1_000_000),
            ("headroom_percent", Some(self.headroom_percent.into()), 1, GREATEST_HEADROOM.into()),
            ("max_ops_per_tick", Some(self.max_ops_per_tick), 1, u64::MAX),
            ("tick_blocks", Some(self.tick_blocks.into()), 1, u32::MAX.into()),
            ("tick_seconds", Some(self.tick_seconds.into()), 1, u32::MAX.into()),
        ];
        for (field, value, least, most) in ranges {
            if let Some(value) = value.filter(|value| !(least..=most).contains(value)) {
                return Err(PolicyError::OutOfRange { field, value, least, most });
            }
        }
        match self.retain_blocks {
            Some(retain_blocks) if retain_blocks <= reorg_window => {
                Err(PolicyError::BelowWindow { retain_blocks, reorg_window })
            }
            _ => Ok(()),
        }
    }

    /// Returns the water marks of the target. `None` without one.
    pub fn water(&self) -> Option<WaterMarks> {
        self.target_bytes.map(|target| WaterMarks::new(target, self.headroom_percent))
    }

    /// Returns the time before which blocks are too old at `now`, both Unix timestamps in seconds. `None` if age does
    /// not matter.
    pub fn cutoff(&self, now: u64) -> Option<u64> {
        self.retain_days.map(|days| now.saturating_sub(u64::from(days) * SECONDS_PER_DAY))
    }

    /// Returns the highest block that there are too many blocks above. `None` if there is none.
    pub fn surplus_up_to(&self, head: Height) -> Option<Height> {
        self.retain_blocks.and_then(|blocks| head.0.checked_sub(blocks)).map(Height)
    }

    /// Whether a block is older than the retention, or one too many.
    pub fn is_past_retention(&self, block: Height, time: u64, head: Height, now: u64) -> bool {
        self.cutoff(now).is_some_and(|cutoff| time < cutoff)
            || self.surplus_up_to(head).is_some_and(|up_to| block <= up_to)
    }

    /// Whether there is something to prune, enabled or not: the oldest block is older than the retention or one too
    /// many, or the estimate is above high water.
    pub fn need_prune(&self, usage: &Usage, now: u64) -> bool {
        let past = usage.oldest.zip(usage.head).is_some_and(|((oldest, time), head)| {
            oldest < head && self.is_past_retention(oldest, time, head, now)
        });
        past || self.water().is_some_and(|water| usage.estimated_bytes > water.high)
    }

    /// Whether less is kept than with another policy.
    pub fn shortens(&self, before: &Policy) -> bool {
        fn less<T: Ord>(now: Option<T>, before: Option<T>) -> bool {
            now.is_some_and(|now| before.is_none_or(|before| now < before))
        }
        less(self.target_bytes, before.target_bytes)
            || less(self.retain_days, before.retain_days)
            || less(self.retain_blocks, before.retain_blocks)
            || (self.target_bytes.is_some() && self.headroom_percent > before.headroom_percent)
            || (before.export_hold && !self.export_hold)
            || (self.enabled && !before.enabled)
    }

    fn write(&self, to: &mut Writer) {
        let flags = [
            self.enabled,
            self.export_hold,
            self.target_bytes.is_some(),
            self.retain_days.is_some(),
            self.retain_blocks.is_some(),
        ];
        to.u8(flags.into_iter().enumerate().map(|(bit, set)| u8::from(set) << bit).sum());
        let optional =
            [self.target_bytes, self.retain_days.map(Into::into), self.retain_blocks.map(Into::into)];
        optional.into_iter().flatten().for_each(|number| to.varint(number));
        to.u8(self.headroom_percent);
        to.varint(self.max_ops_per_tick);
        to.varint(self.tick_blocks.into());
        to.varint(self.tick_seconds.into());
    }

    fn read<B: Buf>(from: &mut Reader<B>) -> Result<Self, DecodeError> {
        let flags = from.u8("policy flags")?;
        if flags >= 1 << 5 {
            return Err(DecodeError::UnknownValue { field: "policy flags", value: flags.into() });
        }
        let has = |bit: u8| flags & 1 << bit != 0;
        Ok(Self {
            enabled: has(0),
            export_hold: has(1),
            target_bytes: has(2).then(|| from.varint("target")).transpose()?,
            retain_days: has(3).then(|| from.varint_u32("days")).transpose()?,
            retain_blocks: has(4).then(|| from.varint_u32("blocks")).transpose()?,
            headroom_percent: from.u8("headroom")?,
            max_ops_per_tick: from.varint("max ops")?,
            tick_blocks: from.varint_u32("tick blocks")?,
            tick_seconds: from.varint_u32("tick seconds")?,
        })
    }
}

/// What a policy is compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Region bytes that count against the budget.
    pub estimated_bytes: u64,
    /// The oldest block that is kept, and its time.
    pub oldest: Option<(Height, u64)>,
    /// The newest block.
    pub head: Option<Height>,
}

/// Bytes at which pruning by capacity begins, ends, and becomes urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WaterMarks {
    /// Not to be exceeded.
    pub target: u64,
    /// Above it, each block is followed by a tick, and consumers of the export are not waited for: the target less a
    /// quarter of the headroom.
    pub hard: u64,
    /// Above it, pruning begins: the target less half of the headroom.
    pub high: u64,
    /// Down to it, pruning goes on: the target less the headroom.
    pub low: u64,
}

impl WaterMarks {
    /// Computes the marks of a target: 95 %, 90 % and 80 % of it with a headroom of 20 %.
    pub fn new(target: u64, headroom_percent: u8) -> Self {
        let headroom = u128::from(target) * u128::from(headroom_percent);
        let less = |parts: u128| target.saturating_sub((headroom / (100 * parts)) as u64);
        Self { target, hard: less(4), high: less(2), low: less(1) }
    }
}

/// A policy with where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredPolicy {
    pub(crate) in_force: Policy,
    /// What the options said last.
    pub(crate) configured: Policy,
    /// When and by whom it was changed at run time.
    pub(crate) changed: Option<(u64, String)>,
}

impl StoredPolicy {
    /// The policy of the options, until it is changed.
    pub(crate) fn configured(policy: Policy) -> Self {
        Self { in_force: policy, configured: policy, changed: None }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = Writer::with_capacity(64);
        to.u8(VERSION);
        self.in_force.write(&mut to);
        self.configured.write(&mut to);
        match &self.changed {
            None => to.u8(0),
            Some((at, by)) => {
                to.u8(1);
                to.varint(*at);
                to.sized(by.as_bytes());
            }
        }
        to.finish()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Reader::of_slice(bytes);
        from.version(WHAT, VERSION)?;
        let (in_force, configured) = (Policy::read(&mut from)?, Policy::read(&mut from)?);
        let changed = match from.u8("changed")? {
            0 => None,
            1 => {
                let at = from.varint("changed at")?;
                let by = String::from_utf8(from.sized("changed by")?.into());
                let by =
                    by.map_err(|_| DecodeError::Inconsistent { what: WHAT, problem: "a name is not UTF-8" })?;
                Some((at, by))
            }
            value => return Err(DecodeError::UnknownValue { field: "changed", value: value.into() }),
        };
        from.end(WHAT)?;
        Ok(Self { in_force, configured, changed })
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    const DAY: u64 = SECONDS_PER_DAY;

    #[test]
    fn water_marks_are_those_of_the_documents() {
        let marks = WaterMarks::new(500_000_000_000, 20);
        assert_eq!(marks.hard, 475_000_000_000, "95 %");
        assert_eq!(marks.high, 450_000_000_000, "90 %");
        assert_eq!(marks.low, 400_000_000_000, "80 %");
    }

    #[test]
    fn need_prune_ignores_enabled() {
        let usage = Usage { estimated_bytes: 950_000, oldest: Some((Height(1), 0)), head: Some(Height(9)) };
        for enabled in [true, false] {
            let policy = Policy { enabled, target_bytes: Some(1_000_000), ..Policy::default() };
            assert!(policy.need_prune(&usage, 0), "above high water");
            assert!(!policy.need_prune(&Usage { estimated_bytes: 900_000, ..usage }, 0), "at high water");
            let policy = Policy { enabled, retain_days: Some(2), ..Policy::default() };
            assert!(!policy.need_prune(&usage, 2 * DAY), "just as old as that");
            assert!(policy.need_prune(&usage, 2 * DAY + 1), "older");
        }
    }

    #[test]
    fn retain_blocks_alone_triggers_and_keeps_exactly_that_many() {
        let policy = Policy { retain_blocks: Some(10), ..Policy::default() };
        let usage =
            |oldest| Usage { oldest: Some((Height(oldest), 0)), head: Some(Height(100)), ..Usage::default() };
        assert!(policy.need_prune(&usage(90), 0));
        assert!(!policy.need_prune(&usage(91), 0), "91 to 100 are ten blocks");
        assert_eq!(policy.surplus_up_to(Height(9)), None);
    }

    #[test]
    fn shorter_of_two_retentions_decides() {
        let policy = Policy { retain_blocks: Some(10), retain_days: Some(1), ..Policy::default() };
        let past = |block, time| policy.is_past_retention(Height(block), time, Height(100), 10 * DAY);
        assert!(past(90, 10 * DAY), "one too many, though young");
        assert!(past(95, 9 * DAY - 1), "too old, though among the last ten");
        assert!(!past(91, 9 * DAY));
    }

    #[test]
    fn unsafe_policies_are_refused_with_their_range() {
        let refused = |policy: Policy| policy.validate(6).unwrap_err().to_string();
        assert_eq!(Policy::default().validate(6), Ok(()));
        let ok = Policy { retain_blocks: Some(7), ..Policy::default() };
        assert_eq!(ok.validate(6), Ok(()));
        let text = refused(Policy { retain_blocks: Some(6), ..Policy::default() });
        assert!(text.contains("set it to at least 7"), "{text}");
        for (policy, field) in [
            (Policy { target_bytes: Some(0), ..ok }, "target_bytes"),
            (Policy { target_bytes: Some(u64::MAX), ..ok }, "target_bytes"),
            (Policy { retain_days: Some(0), ..ok }, "retain_days"),
            (Policy { headroom_percent: 0, ..ok }, "headroom_percent"),
            (Policy { headroom_percent: 51, ..ok }, "headroom_percent"),
            (Policy { max_ops_per_tick: 0, ..ok }, "max_ops_per_tick"),
            (Policy { tick_blocks: 0, ..ok }, "tick_blocks"),
            (Policy { tick_seconds: 0, ..ok }, "tick_seconds"),
        ] {
            assert!(refused(policy).starts_with(field), "{policy:?}");
        }
    }

    #[test]
    fn policy_that_keeps_less_is_recognised() {
        let all = Policy::default();
        let some = Policy { target_bytes: Some(1 << 30), retain_days: Some(7), ..all };
        assert!(some.shortens(&all) && !all.shortens(&some) && !some.shortens(&some));
        assert!(Policy { retain_days: Some(6), ..some }.shortens(&some));
        assert!(Policy { headroom_percent: 30, ..some }.shortens(&some));
        assert!(!Policy { target_bytes: Some(1 << 31), ..some }.shortens(&some));
        assert!(all.shortens(&Policy { export_hold: true, ..all }));
    }

    fn example() -> StoredPolicy {
        let configured = Policy { retain_blocks: Some(300), ..Policy::default() };
        let in_force =
            Policy { enabled: false, target_bytes: Some(1 << 20), export_hold: true, ..configured };
        StoredPolicy { in_force, configured, changed: Some((300, "me".into())) }
    }

    #[test]
    fn policy_is_encoded_as_documented() {
        let golden: [&[u8]; 4] = [
            &[1],
            // Flags, target, blocks, headroom, max ops, tick blocks, tick seconds.
            &[0b1_0110, 0x80, 0x80, 0x40, 0xac, 2, 20, 0xa0, 0xc2, 0x1e, 84, 60],
            &[0b1_0001, 0xac, 2, 20, 0xa0, 0xc2, 0x1e, 84, 60],
            // Changed at and by.
            &[1, 0xac, 2, 2, b'm', b'e'],
        ];
        assert_eq!(example().encode(), golden.concat());
        assert_eq!(StoredPolicy::decode(&golden.concat()), Ok(example()));
        assert_eq!(golden.concat(), include_bytes!("../../../../fuzz/seeds/archive_policy/example"));
    }

    proptest! {
        #[test]
        fn decoded_policy_encodes_to_the_same_bytes(rest in vec(any::<u8>(), 0..60)) {
            let bytes = [&[VERSION], &rest[..]].concat();
            if let Ok(policy) = StoredPolicy::decode(&bytes) {
                prop_assert_eq!(policy.encode(), bytes);
            }
        }

        #[test]
        fn water_marks_are_in_order(target in LEAST_TARGET..i64::MAX as u64, headroom in 1..=GREATEST_HEADROOM) {
            let marks = WaterMarks::new(target, headroom);
            prop_assert!(marks.low < marks.high && marks.high < marks.hard && marks.hard < marks.target);
        }
    }
}
