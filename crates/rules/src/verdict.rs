//! May it go? Or why not, with the figures.

use std::fmt;

use sapwood_types::{Height, MasterPage, Slot, TxId};

use crate::{
    holds::{Hold, SafeHeight},
    lifecycle::{delete_at, is_stable, settled_at},
};

/// What a record is judged by, besides itself.
#[derive(Clone, Debug)]
pub struct PruneContext {
    /// The height of the chain.
    pub current: Height,
    /// Up to which height the holds let go.
    pub safe: SafeHeight,
    /// Blocks a record is kept after it settled.
    pub retention: u32,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The record may go: it has been due since this height.
    MayGo {
        /// The height at which it became due.
        due_at: Height,
    },
    /// The record stays.
    Kept(KeepReason),
    /// There is no such record.
    Gone,
}

impl Verdict {
    /// Whether the record may go.
    pub fn may_go(&self) -> bool {
        matches!(self, Verdict::MayGo { .. })
    }
}

/// Why a record is still there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeepReason {
    /// It is not completely written.
    Creating,
    /// An output was given to another owner. The note of that is kept for ever, and its record with it.
    Reassigned {
        /// Which output: the last one to be reassigned.
        vout: u32,
        /// At which height.
        at: Height,
    },
    /// It is locked.
    Locked,
    /// It is preserved for somebody who may still need it.
    Preserved {
        /// Up to which height.
        until: Height,
    },
    /// It lost against another transaction, and something still depends on it.
    ConflictStillNeeded {
        /// How many of its outputs are spent by an unmined transaction, or frozen.
        claimed: u32,
    },
    /// It is not mined on the longest chain.
    Unmined {
        /// Since when.
        since: Height,
    },
    /// Some outputs are unspent (or frozen).
    Unspent {
        /// How many.
        outputs: u32,
        /// The first of them on the first page.
        first: Option<u32>,
    },
    /// A transaction that spends from it is not mined.
    ChildUnmined {
        /// Which, if it is on the first page.
        child: Option<TxId>,
    },
    /// A transaction that spends from it is mined, but not deep enough.
    ChildUnstable {
        /// Which, if it is still known.
        child: Option<TxId>,
        /// When it was mined.
        mined_at: Height,
        /// When it will be deep enough.
        stable_at: Height,
    },
    /// It settled too recently: its own block, or the conflict it lost.
    TooYoung {
        /// When it settled.
        settled_at: Height,
        /// When it may go.
        due_at: Height,
    },
    /// Nothing is ever deleted: the retention is 0.
    RetentionOff,
    /// A hold does not let go.
    Held {
        /// The hold.
        hold: Hold,
        /// The height at which the record was due.
        due_at: Height,
    },
    /// The chain is not there yet.
    AboveTip {
        /// When it may go.
        due_at: Height,
    },
    /// The independent check found a child that is not where its parent remembers it.
    ChildDisagrees {
        /// Which.
        child: TxId,
        /// What the parent remembers.
        remembered: Option<Height>,
        /// What the child's own record says.
        found: ChildEvidence,
    },
    /// Its body lives outside and has to go first.
    BodyFirst,
    /// Its external body could not be deleted.
    ExternalBody {
        /// What went wrong.
        error: String,
    },
}

impl KeepReason {
    /// A short fixed name, for metrics and counters.
    pub fn label(&self) -> &'static str {
        match self {
            KeepReason::Creating => "creating",
            KeepReason::Reassigned { .. } => "reassigned",
            KeepReason::Locked => "locked",
            KeepReason::Preserved { .. } => "preserved",
            KeepReason::ConflictStillNeeded { .. } => "conflict_still_needed",
            KeepReason::Unmined { .. } => "unmined",
            KeepReason::Unspent { .. } => "unspent",
            KeepReason::ChildUnmined { .. } => "child_unmined",
            KeepReason::ChildUnstable { .. } => "child_unstable",
            KeepReason::TooYoung { .. } => "too_young",
            KeepReason::RetentionOff => "retention_off",
            KeepReason::Held { .. } => "held",
            KeepReason::AboveTip { .. } => "above_tip",
            KeepReason::ChildDisagrees { .. } => "child_disagrees",
            KeepReason::BodyFirst => "body_first",
            KeepReason::ExternalBody { .. } => "external_body",
        }
    }
}

/// What the independent check found out about a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildEvidence {
    /// Its record is there.
    Present {
        /// When it was mined on the longest chain, if it is.
        mined_at: Option<Height>,
    },
    /// Its record is not there.
    Absent,
}

/// Why the record's own content keeps it, looking at nothing else. `None` if it is settled.
fn unsettled(record: &MasterPage) -> Option<KeepReason> {
    let head = &record.head;
    if head.creating {
        return Some(KeepReason::Creating);
    }
    // Before the reasons that may go away, or one of those would promise that the record goes with it.
    if let Some(last) = head.reassignments.last() {
        return Some(KeepReason::Reassigned { vout: last.vout, at: last.at });
    }
    if head.locked {
        return Some(KeepReason::Locked);
    }
    if let Some(until) = head.preserve_until {
        return Some(KeepReason::Preserved { until });
    }
    if head.is_conflicting() {
        let claimed = record.all_slots().claimed();
        let needed = claimed > 0 || record.all_slots().latest_child().is_some();
        return needed.then_some(KeepReason::ConflictStillNeeded { claimed });
    }
    if head.mined_at().is_none() {
        return Some(KeepReason::Unmined { since: head.unmined_since().unwrap_or(head.created_height) });
    }
    let open = record.open_slots();
    if open == 0 {
        return None;
    }
    let slots = &record.page.slots;
    let waits = |slot: &Slot| matches!(slot, Slot::Spent { child_mined_at: None, .. });
    let claimed_by = slots.iter().find(|slot| waits(slot)).and_then(Slot::spender).map(|by| by.child);
    let first = slots.iter().position(|slot| matches!(slot, Slot::Unspent | Slot::Frozen));
    let unspent = open - waiting_slots(record);
    Some(if unspent > 0 {
        KeepReason::Unspent { outputs: unspent, first: first.map(|place| place as u32) }
    } else {
        KeepReason::ChildUnmined { child: claimed_by }
    })
}

/// Outputs spent by an unmined transaction. Frozen ones on further pages are not told apart and count here too, which
/// changes the words of the reason, never the verdict.
fn waiting_slots(record: &MasterPage) -> u32 {
    let frozen = record.page.slots.iter().filter(|slot| **slot == Slot::Frozen).count() as u32;
    record.all_slots().claimed() - frozen
}

/// Judges a record by its own content, the chain's height and the holds.
pub fn judge(record: &MasterPage, context: &PruneContext) -> Verdict {
    let Some(settled) = settled_at(record) else {
        return Verdict::Kept(unsettled(record).unwrap_or(KeepReason::Creating));
    };
    let Some(due_at) = delete_at(settled, context.retention) else {
        return Verdict::Kept(KeepReason::RetentionOff);
    };
    if due_at > context.current {
        return Verdict::Kept(not_due_yet(record, settled, due_at));
    }
    if context.safe.allows(due_at) {
        return Verdict::MayGo { due_at };
    }
    Verdict::Kept(match &context.safe.decided_by {
        Some(hold) => KeepReason::Held { hold: hold.clone(), due_at },
        None => KeepReason::AboveTip { due_at },
    })
}

fn not_due_yet(record: &MasterPage, settled_at: Height, due_at: Height) -> KeepReason {
    let waits_for_child = record.head.mined_at().is_some_and(|own| own < settled_at);
    if waits_for_child && !record.head.is_conflicting() {
        let latest = record.page.slots.iter().find(|slot| slot.child_mined_at() == Some(settled_at));
        let child = latest.and_then(Slot::spender).map(|by| by.child);
        return KeepReason::ChildUnstable { child, mined_at: settled_at, stable_at: due_at };
    }
    KeepReason::TooYoung { settled_at, due_at }
}

/// The independent check of one slot: does the child's own record bear out what the parent remembers?
///
/// A child that is there must be mined where the parent says, and be deep enough. A child that is not there is fine only if
/// the parent remembers it as mined and deep enough: then it was pruned after it had become stable. Everything else keeps
/// the parent.
pub fn check_child(
    slot: &Slot,
    evidence: impl FnOnce(&TxId) -> ChildEvidence,
    context: &PruneContext,
) -> Result<(), KeepReason> {
    let Slot::Spent { spender, child_mined_at: remembered } = *slot else { return Ok(()) };
    let child = spender.child;
    let Some(mined_at) = remembered else { return Err(KeepReason::ChildUnmined { child: Some(child) }) };
    match evidence(&child) {
        ChildEvidence::Present { mined_at: Some(found) } if found == mined_at => {}
        ChildEvidence::Absent => {}
        found => return Err(KeepReason::ChildDisagrees { child, remembered, found }),
    }
    if is_stable(mined_at, context.current, context.retention) {
        return Ok(());
    }
    let stable_at = mined_at.plus(context.retention);
    Err(KeepReason::ChildUnstable { child: Some(child), mined_at, stable_at })
}

impl fmt::Display for KeepReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let child_text =
            |child: &Option<TxId>| child.map_or("a child".to_owned(), |txid| format!("child {txid}"));
        match self {
            KeepReason::Creating => write!(f, "its record is still being written"),
            KeepReason::Reassigned { vout, at } => {
                write!(f, "its output {vout} was reassigned at height {at}, which must never be forgotten")
            }
            KeepReason::Locked => write!(f, "it is locked"),
            KeepReason::Preserved { until } => write!(f, "it is preserved until height {until}"),
            KeepReason::ConflictStillNeeded { claimed } => {
                write!(
                    f,
                    "it lost against another transaction, but {claimed} of its outputs are still claimed"
                )
            }
            KeepReason::Unmined { since } => write!(f, "it has not been mined since height {since}"),
            KeepReason::Unspent { outputs, .. } => write!(f, "{outputs} of its outputs are not spent"),
            KeepReason::ChildUnmined { child } => write!(f, "{} is not mined", child_text(child)),
            KeepReason::ChildUnstable { child, mined_at, stable_at } => {
                write!(f, "{} was mined at {mined_at} and is stable at {stable_at}", child_text(child))
            }
            KeepReason::TooYoung { settled_at, due_at } => {
                write!(f, "it settled at {settled_at} and may go at {due_at}")
            }
            KeepReason::RetentionOff => write!(f, "the retention is 0, so nothing is ever deleted"),
            KeepReason::Held { hold, due_at } => {
                write!(f, "hold {} of {} does not let go of height {due_at}", hold.name, hold.owner)
            }
            KeepReason::AboveTip { due_at } => write!(f, "it is due at {due_at}, above the safe height"),
            KeepReason::ChildDisagrees { child, remembered, found } => {
                let said = |at: &Option<Height>| at.map_or("unmined".into(), |at| format!("mined at {at}"));
                let found = match found {
                    ChildEvidence::Absent => "missing".into(),
                    ChildEvidence::Present { mined_at } => said(mined_at),
                };
                write!(f, "child {child} is remembered as {} but is {found}", said(remembered))
            }
            KeepReason::BodyFirst => write!(f, "its external body has to go first"),
            KeepReason::ExternalBody { error } => {
                write!(f, "its external body could not be deleted: {error}")
            }
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::MayGo { due_at } => write!(f, "may go, due since height {due_at}"),
            Verdict::Kept(reason) => write!(f, "kept because {reason}"),
            Verdict::Gone => write!(f, "already gone"),
        }
    }
}
