//! Why is this record still there?

use std::{borrow::Cow, fmt};

use sapwood_ledger::StoreError;
use sapwood_rules::{KeepReason, Verdict, delete_at, judge, settled_at};
use sapwood_types::{External, Height, RecordView, Slot, TxId, TxRecord};
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};
#[cfg(feature = "schema")]
use utoipa::ToSchema;

#[cfg(feature = "schema")]
use crate::jobs::Stopped;
#[cfg(feature = "serde")]
use crate::jobs::stopped;
use crate::{
    handle::PrunerHandle,
    holds::{HoldStatus, PERSISTER},
    jobs::StopReason,
    safety::{Situation, after_preservation},
    text,
};

/// One thing that could retain a record, and whether it does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "schema", derive(ToSchema))]
pub struct Guard {
    /// What it is about, such as `children` or `hold`.
    pub name: Cow<'static, str>,
    /// What was asked.
    pub question: Cow<'static, str>,
    /// The answer, with its numbers.
    pub answer: String,
    /// Whether this alone retains the record.
    pub retains: bool,
}

/// Why a record is retained, or that it is not.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "schema", derive(ToSchema))]
pub struct Explanation {
    /// The id of the transaction.
    pub txid: TxId,
    /// Whether there is a record of it.
    pub stored: bool,
    /// Its state in words.
    pub state: String,
    /// Whether a job now would delete it.
    pub prunable: bool,
    /// The verdict in words.
    pub verdict: String,
    /// The short fixed name of what retains it. `None`: it is prunable, or not stored.
    pub reason: Option<Cow<'static, str>>,
    /// Each guard, also those that do not retain it.
    pub guards: Vec<Guard>,
    /// The earliest height at which it becomes prunable if nothing changes but the height. `None`: see `needs`.
    pub earliest: Option<Height>,
    /// What has to happen first. `None`: the height alone is enough.
    pub needs: Option<String>,
    /// Why no record at all is deleted now. `None`: records are deleted.
    #[cfg_attr(feature = "serde", serde(default, with = "stopped"))]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Stopped>))]
    pub blocked: Option<StopReason>,
}

impl PrunerHandle {
    /// Why a record is still there.
    pub async fn explain(&self, txid: TxId) -> Result<Explanation, StoreError> {
        let shared = &self.shared;
        let mut explanation = Explanation {
            txid,
            stored: false,
            state: String::new(),
            prunable: false,
            verdict: Verdict::Gone.to_string(),
            reason: None,
            guards: Vec::new(),
            earliest: None,
            needs: None,
            blocked: shared.nothing_deleted(),
        };
        let record = match shared.store.get(txid).await {
            Err(StoreError::Corrupt { what, cause }) => {
                return Ok(unreadable(explanation, &format!("{what}: {cause}")));
            }
            record => record?,
        };
        let Some(record) = record else {
            explanation.state =
                "there is no record of it: it was never seen, was forgotten, or has been pruned".into();
            return Ok(explanation);
        };
        explanation.stored = true;
        explanation.state = state_in_words(&record);
        let Some(situation) = Situation::of(shared, None).await? else {
            explanation.verdict = "kept because no block has been applied yet".into();
            explanation.needs = Some("a block has to be applied".into());
            return Ok(explanation);
        };
        let ends = after_preservation(shared, &record, situation.height);
        let ends_with_next = ends.is_some();
        let next = ends.as_ref().unwrap_or(&record).view();
        let mut judged =
            shared.store.judge(vec![txid], situation.context(), shared.options.child_check).await?;
        let mut verdict = judged.pop().map_or(Verdict::Gone, |judged| judged.verdict);
        if ends_with_next {
            // What can be taken back is among its holds.
            verdict = judge(next, &situation.context(), None);
        }
        let body = match record.head.external {
            None => None,
            Some(external) => Some(self.body_guard(txid, external).await),
        };
        if let (true, Some(body)) = (verdict.may_go(), body.as_ref().filter(|body| body.retains)) {
            verdict = Verdict::Kept(KeepReason::ExternalBody { error: body.answer.clone() });
        }
        explanation.prunable = verdict.may_go();
        explanation.verdict = situation.in_words(&verdict);
        if let Verdict::Kept(reason) = &verdict {
            explanation.reason = Some(reason.label().into());
        }
        explanation.guards = guards(&record, next, &situation);
        if let (true, Some(guard)) =
            (ends_with_next, explanation.guards.iter_mut().find(|guard| guard.name == "preserved"))
        {
            guard.answer += match record.head.preserve_until {
                Some(until) if until <= situation.height => ", which is over: it ends with the next job",
                _ => ", but only for an unmined child, and all are mined now: it ends with the next job",
            };
            guard.retains = false;
        }
        explanation.guards.extend(children_guard(&verdict, shared.options.child_check));
        explanation.guards.extend(body);
        (explanation.earliest, explanation.needs) = outlook(next, &situation, &verdict);
        Ok(explanation)
    }

    async fn body_guard(&self, txid: TxId, external: External) -> Guard {
        let (retains, answer) = match &self.shared.bodies {
            None => (true, "no object store is configured, so it cannot be".into()),
            Some(bodies) => match bodies.exists(txid, external).await {
                Ok(true) => {
                    (false, format!("{} is there and goes first", crate::bodies::key(&txid, external)))
                }
                Ok(false) => (false, "it is gone already".into()),
                Err(error) => (true, error.to_string()),
            },
        };
        Guard { name: "body".into(), question: "Can its external body be deleted?".into(), answer, retains }
    }
}

/// A record that is there and cannot be read.
fn unreadable(explanation: Explanation, error: &str) -> Explanation {
    let reason = KeepReason::Unreadable { txid: explanation.txid, error: error.into() };
    let guard = Guard {
        name: "readable".into(),
        question: "Can it be read?".into(),
        answer: format!("no: {error}"),
        retains: true,
    };
    Explanation {
        stored: true,
        state: "its record is damaged".into(),
        reason: Some(reason.label().into()),
        verdict: Verdict::Kept(reason).to_string(),
        guards: vec![guard],
        needs: Some(
            "its record has to be restored from a backup; `sapwood verify` shows what else is damaged".into(),
        ),
        ..explanation
    }
}

/// The state of a record in words.
fn state_in_words(record: &TxRecord) -> String {
    let head = &record.head;
    let mut words = Vec::new();
    match (head.conflicting_since, head.mined_at()) {
        (Some(since), _) => words.push(format!("lost against another transaction at {}", text::at(since))),
        (None, Some(height)) => words.push(format!("mined at {}", text::at(height))),
        (None, None) => {
            let since = head.unmined_since().unwrap_or(head.created_height);
            words.push(format!("unmined since {}", text::at(since)));
        }
    }
    let count = |wanted: fn(&Slot) -> bool| record.slots.iter().filter(|slot| wanted(slot)).count() as u64;
    let states: [(u64, &str); 5] = [
        (count(Slot::is_unspent), "unspent"),
        (count(|slot| *slot == Slot::Frozen), "frozen"),
        (
            count(|slot| matches!(slot, Slot::Spent { child_mined_at: None, .. })),
            "spent by unmined transactions",
        ),
        (count(|slot| slot.child_mined_at().is_some()), "spent by mined transactions"),
        (count(|slot| *slot == Slot::Unspendable), "never spendable"),
    ];
    let outputs = states.iter().filter(|(count, _)| *count > 0);
    let outputs: Vec<String> =
        outputs.map(|(count, state)| format!("{} {state}", text::figure(*count))).collect();
    words.push(format!("{}: {}", text::counted(record.slots.len() as u64, "output"), outputs.join(", ")));
    words.extend(head.locked.then(|| "locked".into()));
    words.extend(head.preserve_until.map(|until| format!("preserved until {}", text::at(until))));
    words.extend(head.external.map(|_| "its body lives outside".into()));
    words.join("; ")
}

/// Each guard that the record, the chain and the holds make.
fn guards(record: &TxRecord, next: RecordView, situation: &Situation) -> Vec<Guard> {
    let head = &record.head;
    let mut guards = Vec::new();
    let mut guard = |name: &'static str, question: &'static str, retains, answer: String| {
        guards.push(Guard { name: name.into(), question: question.into(), answer, retains });
    };
    let yes_no = |value: bool| if value { "yes" } else { "no" }.to_owned();
    if head.creating {
        guard("written", "Is it completely written?", true, "no".into());
    }
    if let Some(last) = head.reassignments.last() {
        let answer = format!("yes, {} at {}; this is never forgotten", last.vout, text::at(last.at));
        guard("reassigned", "Was one of its outputs reassigned?", true, answer);
    }
    guard("locked", "Is it locked?", head.locked, yes_no(head.locked));
    let preserved =
        head.preserve_until.map_or("no".into(), |until| format!("yes, until {}", text::at(until)));
    guard("preserved", "Is it preserved?", head.preserve_until.is_some(), preserved);
    let waiting = |slot: &Slot| matches!(slot, Slot::Spent { child_mined_at: None, .. });
    let unmined_children = record.slots.iter().filter(|slot| waiting(slot)).count() as u64;
    let first_waiting = record.slots.iter().find(|slot| waiting(slot)).and_then(Slot::spender);
    let by_whom = first_waiting.map_or(String::new(), |by| format!(", the first by {}", by.child));
    if let Some(since) = head.conflicting_since {
        guard(
            "mined",
            "Did it lose against another transaction?",
            false,
            format!("yes, at {}", text::at(since)),
        );
        let claimed = u64::from(next.claimed());
        let needed = claimed > 0 || next.latest_child().is_some();
        let answer = format!("{} spent or frozen", text::counted(claimed, "output"));
        guard("spent", "Does anything depend on it, although it lost?", needed, answer);
    } else {
        let mined = head.mined_at().map_or_else(
            || format!("no, unmined since {}", text::at(head.unmined_since().unwrap_or(head.created_height))),
            |height| format!("yes, at {}", text::at(height)),
        );
        guard("mined", "Is it mined on the longest chain?", head.mined_at().is_none(), mined);
        let open =
            record.slots.iter().filter(|slot| matches!(slot, Slot::Unspent | Slot::Frozen)).count() as u64;
        let answer = format!(
            "{} of {} unspent or frozen",
            text::figure(open),
            text::counted(head.output_count, "output")
        );
        guard("spent", "Is every output spent?", open > 0, answer);
        let answer =
            format!("{} spent by unmined transactions{by_whom}", text::counted(unmined_children, "output"));
        guard("children", "Is every child mined?", unmined_children > 0, answer);
    }
    let due_at = due_at(next, situation);
    if situation.policy.retention == 0 {
        guard("age", "Is it old enough?", true, "the retention is 0, so nothing is ever deleted".into());
    } else if let (Some(settled), Some(due_at)) = (settled_at(next), due_at) {
        let (settled, due) = (text::at(settled), text::at(due_at));
        let answer = format!(
            "it settled at {settled} and is due at {due}; the chain is at {}",
            text::at(situation.tip)
        );
        guard("age", "Is it old enough?", due_at > situation.tip, answer);
    }
    for hold in &situation.holds {
        let view = HoldStatus::new(hold, situation.now, None);
        let lets_go = due_at.is_none_or(|due_at| hold.lets_go_up_to().is_some_and(|up_to| due_at <= up_to));
        let (name, question) = match hold.name.as_str() {
            PERSISTER => ("persister", "Is what it needs persisted?"),
            _ => ("hold", "Does this hold let go?"),
        };
        guard(name, question, !view.expired && !lets_go, view.to_string());
    }
    guards
}

/// The independent check, if it is done and came out with something.
fn children_guard(verdict: &Verdict, checked: bool) -> Option<Guard> {
    let (retains, answer) = match verdict {
        _ if !checked => (false, "not checked: the check is turned off".into()),
        Verdict::Kept(reason @ (KeepReason::ChildDisagrees { .. } | KeepReason::Unreadable { .. })) => {
            (true, reason.to_string())
        }
        Verdict::MayGo { .. } | Verdict::Kept(KeepReason::ExternalBody { .. }) => (false, "yes".into()),
        // The check is made only once everything else lets go.
        _ => return None,
    };
    let question = "Do the children's own records bear out what it remembers?".into();
    Some(Guard { name: "child_check".into(), question, answer, retains })
}

fn due_at(record: RecordView, situation: &Situation) -> Option<Height> {
    delete_at(settled_at(record)?, situation.policy.retention)
}

/// The earliest height at which the record could go if nothing changes, or what has to happen first.
fn outlook(record: RecordView, situation: &Situation, verdict: &Verdict) -> (Option<Height>, Option<String>) {
    match verdict {
        Verdict::MayGo { due_at } => return (Some(*due_at), None),
        Verdict::Gone => return (None, None),
        Verdict::Kept(
            reason @ (KeepReason::ChildDisagrees { .. }
            | KeepReason::ExternalBody { .. }
            | KeepReason::Unreadable { .. }
            | KeepReason::BodyFirst
            | KeepReason::RetentionOff),
        ) => return (None, Some(format!("this has to be fixed first: {reason}"))),
        Verdict::Kept(reason @ KeepReason::Undoable { .. }) => {
            return (None, Some(format!("more blocks have to come: {reason}")));
        }
        Verdict::Kept(reason @ KeepReason::Reassigned { .. }) => {
            return (None, Some(format!("it is never deleted: {reason}")));
        }
        Verdict::Kept(_) => {}
    }
    // A preservation ends by itself at its height.
    let mut later = record.head.clone();
    let preserved_until = later.preserve_until.take();
    let Some(due_at) = due_at(record.with_head(&later), situation) else {
        let reason = match verdict {
            Verdict::Kept(KeepReason::Preserved { .. }) => {
                "after its preservation it is still needed".to_owned()
            }
            Verdict::Kept(reason) => reason.to_string(),
            _ => String::new(),
        };
        return (None, Some(format!("something has to happen first: {reason}")));
    };
    let earliest = preserved_until.map_or(due_at, |until| until.max(due_at));
    let in_the_way = |hold: &&sapwood_rules::Hold| {
        // That of the window moves with the chain.
        let moves = hold.name == crate::holds::REORG_WINDOW;
        !moves && !hold.is_expired(situation.now) && hold.lets_go_up_to().is_none_or(|up_to| up_to < due_at)
    };
    let holds: Vec<&str> = situation.holds.iter().filter(in_the_way).map(|hold| hold.name.as_str()).collect();
    if holds.is_empty() {
        return (Some(earliest), None);
    }
    let (holds, due) = (holds.join(" and "), text::at(due_at));
    (None, Some(format!("{holds} must let go of height {due}; by age it could go at {}", text::at(earliest))))
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.txid)?;
        writeln!(f, "{}", self.state)?;
        if !self.stored {
            return Ok(());
        }
        writeln!(f, "verdict: {}", self.verdict)?;
        for guard in &self.guards {
            let mark = if guard.retains { "retains" } else { "-" };
            writeln!(f, "  {mark:<8}{} {}", guard.question, guard.answer)?;
        }
        if let Some(height) = self.earliest {
            writeln!(f, "prunable from {} on, if nothing changes but the height", text::at(height))?;
        }
        if let Some(needs) = &self.needs {
            writeln!(f, "{needs}")?;
        }
        match &self.blocked {
            Some(reason) => writeln!(f, "now no record is deleted, because {reason}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained() -> Explanation {
        Explanation {
            txid: TxId([7; 32]),
            stored: true,
            state: "mined at 5".into(),
            prunable: false,
            verdict: "retained".into(),
            reason: Some("unspent".into()),
            guards: vec![Guard {
                name: "spent".into(),
                question: "Is every output spent?".into(),
                answer: "1 of 2 outputs unspent or frozen".into(),
                retains: true,
            }],
            earliest: None,
            needs: Some("something has to happen first: 1 of its outputs is not spent".into()),
            blocked: Some(StopReason::Disabled),
        }
    }

    #[test]
    fn n5_a_need_is_not_announced_twice() {
        let text = Explanation { blocked: None, ..explained() }.to_string();
        assert!(text.ends_with("\nsomething has to happen first: 1 of its outputs is not spent\n"), "{text}");
        assert!(text.contains("\n  retains Is every output spent? 1 of 2"), "{text}");
    }

    #[cfg(feature = "serde")]
    #[test]
    fn an_explanation_reads_back_from_json() {
        let written = serde_json::to_value(explained()).unwrap();
        assert_eq!(written["blocked"]["reason"], "disabled");
        assert_eq!(written["txid"], "07".repeat(32));
        assert_eq!(serde_json::from_value::<Explanation>(written).unwrap(), explained());
    }
}
