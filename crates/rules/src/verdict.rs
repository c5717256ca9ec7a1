//! May it go? Or why not, with the figures.

use std::fmt;

use sapwood_types::{Height, RecordView, Slot, TxId};

use crate::lifecycle::{delete_at, is_stable, settled_at};

/// What a record is judged by, besides itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PruneContext {
    /// The height of the chain.
    pub current: Height,
    /// The greatest height that every hold lets go: what is due above it stays. `None` if everything is held.
    pub safe: Option<Height>,
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
        /// The height at which the record was due.
        due_at: Height,
        /// The greatest height that every hold lets go. `None` if everything is held.
        safe: Option<Height>,
    },
    /// The block at which it settled can still be taken back, and then it has to be there.
    Undoable {
        /// When it settled.
        settled_at: Height,
        /// The lowest block that can be taken back.
        undoable_from: Height,
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
    /// A record that is needed for the verdict cannot be read: its own, a child's, or a parent's that would change with it.
    Unreadable {
        /// Which record.
        txid: TxId,
        /// What is wrong with it.
        error: String,
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
    /// Every short fixed name there is.
    pub const LABELS: [&str; 17] = [
        "creating",
        "reassigned",
        "locked",
        "preserved",
        "conflict_still_needed",
        "unmined",
        "unspent",
        "child_unmined",
        "child_unstable",
        "too_young",
        "retention_off",
        "held",
        "undoable",
        "child_disagrees",
        "unreadable",
        "body_first",
        "external_body",
    ];

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
            KeepReason::Undoable { .. } => "undoable",
            KeepReason::ChildDisagrees { .. } => "child_disagrees",
            KeepReason::Unreadable { .. } => "unreadable",
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

/// Returns why the record's own content keeps it, looking at nothing else. `None` if it is settled.
pub fn unsettled(record: RecordView) -> Option<KeepReason> {
    let head = record.head;
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
        let claimed = record.claimed();
        let needed = claimed > 0 || record.latest_child().is_some();
        return needed.then_some(KeepReason::ConflictStillNeeded { claimed });
    }
    if head.mined_at().is_none() {
        return Some(KeepReason::Unmined { since: head.unmined_since().unwrap_or(head.created_height) });
    }
    let open = record.open();
    if open == 0 {
        return None;
    }
    let here = record.slots;
    let waits = |slot: &Slot| matches!(slot, Slot::Spent { child_mined_at: None, .. });
    let claimed_by = here.iter().find(|slot| waits(slot)).and_then(Slot::spender).map(|by| by.child);
    let first = here.iter().position(|slot| matches!(slot, Slot::Unspent | Slot::Frozen));
    let unspent = open - waiting_slots(record);
    Some(if unspent > 0 {
        KeepReason::Unspent { outputs: unspent, first: first.map(|place| place as u32) }
    } else {
        KeepReason::ChildUnmined { child: claimed_by }
    })
}

/// Counts the outputs spent by an unmined transaction. Frozen ones that are known only as a sum count here too, which changes the words of
/// the reason, never the verdict.
fn waiting_slots(record: RecordView) -> u32 {
    let frozen = record.slots.iter().filter(|slot| **slot == Slot::Frozen).count() as u32;
    record.claimed() - frozen
}

/// Judges a record by its own content, the chain's height, the holds, and what can still be taken back.
///
/// `undoable_from` is the lowest block that a rollback can still take back; nothing if there is none. Every block that made a record, mined
/// it or spent from it lies at or below the height at which it settled. So what settled below `undoable_from` no rollback asks for.
/// The context is the word of whoever asks, right or wrong; this is the store's own knowledge, and a store that can take blocks back
/// always gives it.
pub fn judge(record: RecordView, context: &PruneContext, undoable_from: Option<Height>) -> Verdict {
    let Some(settled_at) = settled_at(record) else {
        return Verdict::Kept(unsettled(record).unwrap_or(KeepReason::Creating));
    };
    let Some(due_at) = delete_at(settled_at, context.retention) else {
        return Verdict::Kept(KeepReason::RetentionOff);
    };
    if due_at > context.current {
        return Verdict::Kept(not_due_yet(record, settled_at, due_at));
    }
    if Some(due_at) > context.safe {
        return Verdict::Kept(KeepReason::Held { due_at, safe: context.safe });
    }
    match undoable_from {
        Some(undoable_from) if settled_at >= undoable_from => {
            Verdict::Kept(KeepReason::Undoable { settled_at, undoable_from })
        }
        _ => Verdict::MayGo { due_at },
    }
}

fn not_due_yet(record: RecordView, settled_at: Height, due_at: Height) -> KeepReason {
    let waits_for_child = record.head.mined_at().is_some_and(|own| own < settled_at);
    if waits_for_child && !record.head.is_conflicting() {
        let latest = record.slots.iter().find(|slot| slot.child_mined_at() == Some(settled_at));
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

/// The verb after a number.
fn is_or_are(count: u32) -> &'static str {
    if count == 1 { "is" } else { "are" }
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
                let are = is_or_are(*claimed);
                write!(
                    f,
                    "it lost against another transaction, but {claimed} of its outputs {are} still claimed"
                )
            }
            KeepReason::Unmined { since } => write!(f, "it has not been mined since height {since}"),
            KeepReason::Unspent { outputs, .. } => {
                write!(f, "{outputs} of its outputs {} not spent", is_or_are(*outputs))
            }
            KeepReason::ChildUnmined { child } => write!(f, "{} is not mined", child_text(child)),
            KeepReason::ChildUnstable { child, mined_at, stable_at } => {
                write!(f, "{} was mined at {mined_at} and is stable at {stable_at}", child_text(child))
            }
            KeepReason::TooYoung { settled_at, due_at } => {
                write!(f, "it settled at {settled_at} and may go at {due_at}")
            }
            KeepReason::RetentionOff => write!(f, "the retention is 0, so nothing is ever deleted"),
            KeepReason::Held { due_at, safe: None } => {
                write!(f, "it is due at {due_at}, and everything is held")
            }
            KeepReason::Held { due_at, safe: Some(safe) } => {
                write!(f, "it is due at {due_at}, and what is due above {safe} is held")
            }
            KeepReason::Undoable { settled_at, undoable_from } => write!(
                f,
                "it settled at {settled_at}, and every block from {undoable_from} on can still be taken back"
            ),
            KeepReason::ChildDisagrees { child, remembered, found } => {
                let said = |at: &Option<Height>| at.map_or("unmined".into(), |at| format!("mined at {at}"));
                let found = match found {
                    ChildEvidence::Absent => "missing".into(),
                    ChildEvidence::Present { mined_at } => said(mined_at),
                };
                write!(f, "child {child} is remembered as {} but is {found}", said(remembered))
            }
            KeepReason::Unreadable { txid, error } => {
                write!(f, "the record of {txid} cannot be read: {error}")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readings::example::{context, hold, parent_with_child};

    #[test]
    fn every_label_is_listed() {
        let (_, label) = include_str!("verdict.rs").split_once("pub fn label(&self)").unwrap();
        let body = label.split("\n    }\n").next().unwrap();
        let labels: Vec<&str> = body.split("=> \"").skip(1).filter_map(|arm| arm.split('"').next()).collect();
        assert_eq!(labels, KeepReason::LABELS);
    }

    #[test]
    fn what_can_be_taken_back_stays_however_old_it_is_said_to_be() {
        let parent = parent_with_child(Some(1001));
        let at = |current, undoable_from| judge(parent.view(), &context(current, &[]), undoable_from);
        let undoable_from = Height(1001);
        let undoable = KeepReason::Undoable { settled_at: Height(1001), undoable_from };
        assert_eq!(at(u32::MAX, Some(undoable_from)), Verdict::Kept(undoable));
        assert!(at(1289, Some(Height(1002))).may_go());
        assert!(at(1289, None).may_go());
        assert!(!at(1288, Some(Height(1002))).may_go(), "it never makes anything younger");
    }

    #[test]
    fn a_hold_is_named_before_the_rollback() {
        let holds = [hold("export", Some(5))];
        let verdict = judge(parent_with_child(Some(1001)).view(), &context(2000, &holds), Some(Height(1)));
        assert!(matches!(verdict, Verdict::Kept(KeepReason::Held { .. })), "{verdict}");
    }
}
