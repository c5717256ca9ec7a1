//! The decision, block by block from the oldest upwards. Pure.

use sapwood_types::Height;

use super::{HeightHold, Stop, policy::Policy};

/// What is to be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Goal {
    /// What a policy asks for.
    Policy {
        /// The policy.
        policy: Policy,
        /// The time, a Unix timestamp in seconds.
        now: u64,
        /// The newest block.
        head: Height,
        /// Whether capacity is to be pruned, down to low water. The retention does not count then.
        capacity: bool,
        /// Whether holds that yield in an emergency do.
        emergency: bool,
    },
    /// Everything up to this block. `None`: nothing.
    UpTo(Option<Height>),
}

/// The next block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its height.
    pub height: Height,
    /// Its time, a Unix timestamp in seconds.
    pub time: u64,
    /// Its entries, with one for a gap before it.
    pub ops: u64,
    /// Bytes of its regions.
    pub region_bytes: u64,
}

/// Decides block by block what is pruned.
#[derive(Clone, Debug)]
pub struct Walk<'a> {
    goal: Goal,
    /// The highest block that is below the floor. `None`: no block is.
    below_floor: Option<Height>,
    floor: Option<Height>,
    holds: &'a [HeightHold],
    /// Region bytes that count against the budget and are not pruned yet.
    used: u64,
    max_ops: u64,
    ops: u64,
    blocks: u64,
    overridden: Vec<HeightHold>,
}

impl<'a> Walk<'a> {
    /// Creates a walk over blocks that have `used` region bytes, which deletes `max_ops` entries at most.
    pub fn new(goal: Goal, floor: Option<Height>, holds: &'a [HeightHold], used: u64, max_ops: u64) -> Self {
        let below_floor = floor.and_then(|floor| floor.0.checked_sub(1)).map(Height);
        Self { goal, below_floor, floor, holds, used, max_ops, ops: 0, blocks: 0, overridden: Vec::new() }
    }

    /// Decides about the next block, and counts it as pruned unless it says to stop.
    ///
    /// # Errors
    /// Why pruning ends before this block.
    pub fn next(&mut self, block: &Candidate) -> Result<(), Stop> {
        let wanted = self.is_wanted(block)?;
        if self.below_floor.is_none_or(|last| block.height > last) {
            return Err(Stop::Floor { floor: self.floor });
        }
        for hold in self.holds {
            if hold.keep_from.is_some_and(|from| block.height < from) {
                continue;
            }
            if !(hold.yields_in_emergency && wanted == Wanted::InEmergency) {
                return Err(Stop::Held(hold.clone()));
            }
            if !self.overridden.contains(hold) {
                self.overridden.push(hold.clone());
            }
        }
        // The first block may have more entries than allowed: otherwise nothing would ever be pruned again.
        let fits = self.ops.checked_add(block.ops).is_some_and(|ops| ops <= self.max_ops);
        if !fits && (self.blocks > 0 || self.max_ops == 0) {
            return Err(Stop::Ops { next: block.ops });
        }
        self.ops = self.ops.saturating_add(block.ops);
        self.blocks += 1;
        self.used = self.used.saturating_sub(block.region_bytes);
        Ok(())
    }

    fn is_wanted(&self, block: &Candidate) -> Result<Wanted, Stop> {
        match &self.goal {
            Goal::UpTo(up_to) if up_to.is_some_and(|up_to| block.height <= up_to) => Ok(Wanted::Yes),
            Goal::UpTo(_) => Err(Stop::Done),
            Goal::Policy { policy, now, head, capacity, emergency } => {
                let low = policy.water().filter(|_| *capacity).map(|water| water.low);
                if low.is_some_and(|low| self.used > low) {
                    return Ok(if *emergency { Wanted::InEmergency } else { Wanted::Yes });
                }
                if policy.is_past_retention(block.height, block.time, *head, *now) {
                    return Ok(Wanted::Yes);
                }
                Err(if low.is_some() { Stop::LowWater } else { Stop::Done })
            }
        }
    }

    /// Returns how many entries the blocks had.
    pub fn ops(&self) -> u64 {
        self.ops
    }

    /// Returns how many blocks were decided to be pruned.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns the holds that were passed in an emergency.
    pub fn overridden(&self) -> &[HeightHold] {
        &self.overridden
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Yes,
    InEmergency,
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn candidate(height: u32, ops: u64) -> Candidate {
        Candidate { height: Height(height), time: u64::from(height), ops, region_bytes: 10 }
    }

    fn policy(target: u64) -> Policy {
        Policy { target_bytes: Some(target), ..Policy::default() }
    }

    fn capacity(target: u64, emergency: bool) -> Goal {
        Goal::Policy { policy: policy(target), now: 0, head: Height(100), capacity: true, emergency }
    }

    #[test]
    fn hold_that_yields_does_so_for_capacity_in_an_emergency_only() {
        let hold = HeightHold { yields_in_emergency: true, ..HeightHold::new("export", Some(Height(1))) };
        let holds = std::slice::from_ref(&hold);
        let walk = |goal| Walk::new(goal, Some(Height(50)), holds, 1000, 100);
        let mut calm = walk(capacity(100, false));
        assert_eq!(calm.next(&candidate(0, 1)), Ok(()), "it does not hold block 0");
        assert_eq!(calm.next(&candidate(1, 1)), Err(Stop::Held(hold.clone())));
        let mut emergency = walk(capacity(100, true));
        assert_eq!(emergency.next(&candidate(1, 1)), Ok(()));
        assert_eq!(emergency.next(&candidate(2, 1)), Ok(()));
        assert_eq!(emergency.overridden(), holds, "named once");
        let by_age = Policy { retain_blocks: Some(3), target_bytes: Some(1_000_000), ..Policy::default() };
        let goal =
            Goal::Policy { policy: by_age, now: 0, head: Height(100), capacity: true, emergency: true };
        assert_eq!(walk(goal).next(&candidate(1, 1)), Err(Stop::Held(hold)), "the retention can wait");
    }

    #[test]
    fn floor_comes_before_everything() {
        for (floor, last) in [(None, None), (Some(0), None), (Some(1), Some(0)), (Some(7), Some(6))] {
            let mut walk = Walk::new(capacity(100, true), floor.map(Height), &[], u64::MAX, u64::MAX);
            let pruned = (0..20).take_while(|height| walk.next(&candidate(*height, 1)).is_ok()).last();
            assert_eq!(pruned, last, "floor {floor:?}");
        }
    }

    #[derive(Clone, Debug)]
    struct Case {
        blocks: Vec<(u64, u64, u64)>,
        floor: Option<u32>,
        hold: Option<Option<u32>>,
        used_above: u64,
        max_ops: u64,
        policy: Policy,
        now: u64,
        capacity: bool,
        up_to: Option<Option<u32>>,
    }

    fn case() -> impl Strategy<Value = Case> {
        let block = (0_u64..400_000, 1_u64..20, 0_u64..50_000);
        let policy =
            (prop::option::of(1_u64..2_000_000), prop::option::of(1_u32..3), prop::option::of(1_u32..30));
        let policy = policy.prop_map(|(target_bytes, retain_days, retain_blocks)| Policy {
            target_bytes,
            retain_days,
            retain_blocks,
            ..Policy::default()
        });
        let floor = prop::option::of(0_u32..40);
        let hold = prop::option::of(prop::option::of(0_u32..40));
        let goal =
            (policy, 0_u64..400_000, any::<bool>(), prop::option::weighted(0.3, prop::option::of(0_u32..40)));
        (vec(block, 0..40), floor, hold, 0_u64..100_000, 0_u64..200, goal).prop_map(
            |(blocks, floor, hold, used_above, max_ops, (policy, now, capacity, up_to))| Case {
                blocks,
                floor,
                hold,
                used_above,
                max_ops,
                policy,
                now,
                capacity,
                up_to,
            },
        )
    }

    proptest! {
        /// Each contract on its own, so that a failure names it.
        #[test]
        fn walk_keeps_its_contracts(case in case()) {
            let head = Height(case.blocks.len().saturating_sub(1) as u32);
            let holds: Vec<_> = case.hold.iter().map(|from| HeightHold::new("a", from.map(Height))).collect();
            let used = case.used_above + case.blocks.iter().map(|(_, _, bytes)| bytes).sum::<u64>();
            let goal = match case.up_to {
                Some(up_to) => Goal::UpTo(up_to.map(Height)),
                None => Goal::Policy {
                    policy: case.policy,
                    now: case.now,
                    head,
                    capacity: case.capacity,
                    emergency: false,
                },
            };
            let mut walk = Walk::new(goal, case.floor.map(Height), &holds, used, case.max_ops);
            let candidates: Vec<_> = (0_u32..)
                .zip(&case.blocks)
                .map(|(height, (time, ops, region_bytes))| Candidate {
                    height: Height(height),
                    time: *time,
                    ops: *ops,
                    region_bytes: *region_bytes,
                })
                .collect();
            let mut pruned: Vec<Candidate> = Vec::new();
            let mut stopped = None;
            for block in &candidates {
                match walk.next(block) {
                    Ok(()) => pruned.push(*block),
                    Err(stop) => {
                        stopped = Some((stop, *block));
                        break;
                    }
                }
            }
            // What is pruned and what is retained are all blocks, and pruned ones come first.
            prop_assert_eq!(&candidates[..pruned.len()], &pruned[..]);
            prop_assert_eq!(walk.blocks() as usize, pruned.len());
            let ops: u64 = pruned.iter().map(|block| block.ops).sum();
            prop_assert_eq!(walk.ops(), ops);
            prop_assert!(ops <= case.max_ops || pruned.len() == 1, "{} of {}", ops, case.max_ops);
            let left = |count: usize| used - pruned[..count].iter().map(|block| block.region_bytes).sum::<u64>();
            for (number, block) in pruned.iter().enumerate() {
                prop_assert!(case.floor.is_some_and(|floor| block.height.0 < floor), "below the floor");
                prop_assert!(case.hold.is_none_or(|from| from.is_some_and(|from| block.height.0 < from)), "held");
                let wanted = match case.up_to {
                    Some(up_to) => up_to.is_some_and(|up_to| block.height.0 <= up_to),
                    None => {
                        let too_old = case.policy.is_past_retention(block.height, block.time, head, case.now);
                        let low = case.policy.water().map(|water| water.low);
                        too_old || (case.capacity && low.is_some_and(|low| left(number) > low))
                    }
                };
                prop_assert!(wanted, "{:?} was not to be pruned", block);
            }
            match stopped {
                None => prop_assert_eq!(pruned.len(), candidates.len()),
                Some((Stop::Ops { next }, block)) => {
                    prop_assert_eq!(next, block.ops);
                    prop_assert!(ops + next > case.max_ops, "it would have fitted");
                    prop_assert!(!pruned.is_empty() || case.max_ops == 0, "the first block may have more");
                }
                Some((Stop::Floor { floor }, block)) => {
                    prop_assert_eq!(floor, case.floor.map(Height));
                    prop_assert!(case.floor.is_none_or(|floor| block.height.0 >= floor));
                }
                Some((Stop::Held(hold), block)) => {
                    prop_assert!(hold.keep_from.is_none_or(|from| block.height >= from));
                }
                Some((Stop::LowWater, _)) => {
                    prop_assert!(left(pruned.len()) <= case.policy.water().map_or(0, |water| water.low));
                }
                Some((Stop::Done, block)) => {
                    if case.up_to.is_none() {
                        prop_assert!(!case.policy.is_past_retention(block.height, block.time, head, case.now));
                    }
                }
            }
        }
    }
}
