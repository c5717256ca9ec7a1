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
