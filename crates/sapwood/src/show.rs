//! Answers as people read them. What they are made from is the JSON of REST.

use std::fmt::Write as _;

use sapwood_pruner::text::{bytes, counted, figure, reasons};
use sapwood_server::{
    http::{policy::PolicyView, utxo_set::UtxoSetView, verify::VerifyView},
    views::{
        BlockReport, ExplanationView, HoldReport, JobReport, OutputState, OutputView, PlanReport,
        PruneReport, StatusReport, TxView, UtxoPage, UtxoView,
    },
};

/// Lines of a name and a value.
#[derive(Default)]
struct Facts(String);

impl Facts {
    fn add(&mut self, name: &str, value: impl std::fmt::Display) {
        // Writing into text does not fail.
        let _ = writeln!(self.0, "{name:<14}{value}");
    }
}

fn block(block: Option<&BlockReport>) -> String {
    block.map_or("none".into(), |block| format!("{} ({})", figure(block.height), block.hash))
}

fn at(height: Option<u32>) -> String {
    height.map_or("none".into(), figure)
}

/// How a node is doing.
pub(crate) fn status(status: &StatusReport) -> String {
    let mut facts = Facts::default();
    let StatusReport { node, chain, counts, disk, prune, ready, alerts, .. } = status;
    facts.add("chain", &node.chain);
    facts.add("state", chain.state.replace('_', " "));
    facts.add("tip", block(chain.tip.as_ref()));
    facts.add("applied", block(chain.applied.as_ref()));
    if let Some(lag) = chain.lag_blocks {
        facts.add("lag", counted(lag, "block"));
    }
    if let Some(floor) = chain.rollback_floor {
        facts.add("rollback", format!("down to {}", figure(floor)));
    }
    facts.add("records", format!("{}, {} unmined", figure(counts.records), figure(counts.unmined)));
    facts.add("unspent", counted(counts.unspent, "output"));
    facts.add("disk", bytes(disk.total_bytes));
    for part in disk.parts.iter().filter(|part| part.bytes > 0) {
        facts.add("", format!("{:<16}{}", part.part, bytes(part.bytes)));
    }
    facts.add("pruning", if prune.enabled { prune.state.as_str() } else { "disabled" });
    let retention = prune.policy.retention;
    let kept = if retention == 0 { "for ever".into() } else { counted(retention, "block") };
    let window = counted(prune.policy.reorg_window, "block");
    facts.add("policy", format!("retention {kept}, reorg window {window}"));
    match ready.ready {
        true => facts.add("ready", "yes"),
        false => facts.add("ready", format!("no: {}", ready.reasons.join("; "))),
    }
    for alert in alerts {
        facts.add("alert", format!("{}: {}", alert.name, alert.text));
    }
    facts.0
}

fn output_state(output: &OutputView) -> String {
    match (output.state, &output.spent_by) {
        (OutputState::Unspent, _) => "unspent".into(),
        (OutputState::Frozen, _) => "frozen".into(),
        (OutputState::Unspendable, _) => "can never be spent".into(),
        (OutputState::Spent, None) => "spent".into(),
        (OutputState::Spent, Some(by)) => {
            let whom = match (&by.txid, by.vin) {
                (Some(txid), Some(vin)) => format!(" by input {vin} of {txid}"),
                _ => String::new(),
            };
            let mined = by
                .mined_at
                .map_or(", which is not mined".into(), |height| format!(", mined at {}", figure(height)));
            format!("spent{whom}{mined}")
        }
    }
}

/// Amount, address or script, and state of an output.
fn output_line(output: &OutputView) -> String {
    let value = output.value.as_deref().unwrap_or("–");
    let script = output.script.as_ref().map(|script| format!("script:{script}"));
    let place = output.address.clone().or(script).unwrap_or_default();
    format!("{value} {place} {}", output_state(output)).replace("  ", " ")
}

/// A transaction.
pub(crate) fn tx(tx: &TxView) -> String {
    let mut facts = Facts::default();
    facts.add("transaction", &tx.txid);
    let state = match (tx.conflicting_since, tx.mined_at, tx.unmined_since) {
        (Some(since), ..) => format!("lost against another transaction at {}", figure(since)),
        (None, Some(height), _) => format!("mined at {}", figure(height)),
        (None, None, since) => format!("unmined since {}", at(since)),
    };
    facts.add("state", state);
    let coinbase = if tx.coinbase { ", a coinbase" } else { "" };
    facts.add(
        "size",
        format!("{}, version {}, lock time {}{coinbase}", bytes(tx.size.into()), tx.version, tx.locktime),
    );
    if let Some(fee) = &tx.fee {
        facts.add("fee", fee);
    }
    if let Some(height) = tx.spendable_from {
        facts.add("spendable", format!("from {}", figure(height)));
    }
    if let Some(height) = tx.preserve_until {
        facts.add("preserved", format!("until {}", figure(height)));
    }
    if tx.locked {
        facts.add("locked", "yes");
    }
    if let Some(body) = &tx.body {
        facts.add("body", body);
    }
    for input in &tx.inputs {
        let value = input.value.as_deref().unwrap_or_default();
        let address = input.address.as_deref().unwrap_or_default();
        facts.add("input", format!("{}:{} {value} {address}", input.txid, input.vout).trim_end());
    }
    for output in &tx.outputs {
        facts.add("output", format!("{}: {}", output.vout, output_line(output)));
    }
    let (shown, all) = (tx.outputs.len() as u32, tx.output_count);
    if shown < all {
        facts.add("", format!("{} of {} are shown", figure(shown), counted(all, "output")));
    }
    facts.0
}

/// An output.
pub(crate) fn utxo(utxo: &UtxoView) -> String {
    let mut facts = Facts::default();
    let output = &utxo.output;
    facts.add("output", format!("{}:{}", output.txid, output.vout));
    facts.add("state", output_state(output));
    facts.add("value", output.value.as_deref().unwrap_or("–"));
    if let Some(address) = &output.address {
        facts.add("address", address);
    }
    if let Some(script) = &output.script {
        facts.add("script", script);
    }
    facts.add("mined at", at(utxo.mined_at));
    if utxo.coinbase {
        facts.add("coinbase", "yes");
    }
    facts.0
}

/// The UTXO set as a whole.
pub(crate) fn utxo_set(set: &UtxoSetView) -> String {
    let mut facts = Facts::default();
    facts.add("applied", block(set.applied.as_ref()));
    facts.add("outputs", set.outputs.map_or("–".into(), figure));
    facts.add("transactions", set.transactions.map_or("–".into(), figure));
    facts.add("value", set.value.as_deref().unwrap_or("–"));
    facts.add("muhash", set.muhash.as_deref().unwrap_or("–"));
    facts.0
}

/// A page of outputs.
pub(crate) fn utxos(page: &UtxoPage) -> String {
    let mut text = String::new();
    for utxo in &page.items {
        let output = &utxo.output;
        let height = utxo.mined_at.map_or("unmined".into(), |height| format!("mined at {}", figure(height)));
        let value = output.value.as_deref().unwrap_or("–");
        let _ = writeln!(text, "{}:{} {value} {height}", output.txid, output.vout);
    }
    let _ = writeln!(text, "{} worth {}", counted(page.items.len() as u64, "output"), page.value);
    if let Some(note) = &page.note {
        let _ = writeln!(text, "note: {note}");
    }
    if let Some(cursor) = &page.cursor {
        let _ = writeln!(text, "there are more: --cursor {cursor}");
    }
    text
}

/// Why a record is retained.
pub(crate) fn explanation(explained: &ExplanationView) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{}", explained.txid);
    let _ = writeln!(text, "{}", explained.state);
    let _ = writeln!(text, "verdict: {}", explained.verdict);
    for guard in &explained.guards {
        let mark = if guard.retains { "retains" } else { "-" };
        let _ = writeln!(text, "  {mark:<8}{} {}", guard.question, guard.answer);
    }
    if let Some(height) = explained.earliest {
        let _ = writeln!(text, "prunable from {} on, if nothing changes but the height", figure(height));
    }
    if let Some(needs) = &explained.needs {
        let _ = writeln!(text, "first {needs}");
    }
    if let Some(blocked) = &explained.blocked {
        let _ = writeln!(text, "now no record is deleted, because {blocked}");
    }
    text
}

/// What a job would do.
pub(crate) fn plan(plan: &PlanReport) -> String {
    let Some(height) = plan.height else { return "no block has been applied yet".into() };
    let mut text = format!("at {}", figure(height));
    match (plan.safe_height, &plan.decided_by) {
        (Some(safe), Some(hold)) => text += &format!(", safe up to {} because of {hold}", figure(safe)),
        (None, Some(hold)) => text += &format!(", where {hold} retains everything"),
        _ => {}
    }
    let bodies = match plan.bodies {
        0 => String::new(),
        bodies => format!(" and {} outside", counted(bodies, "body")),
    };
    text += &format!(
        ", a job would delete {} ({}){bodies}\n",
        counted(plan.records, "record"),
        bytes(plan.bytes)
    );
    if !plan.retained.is_empty() {
        text += &format!("due by age, but retained: {}\n", reasons(&plan.retained));
    }
    if !plan.complete {
        text += &format!("only {} looked at; there are more\n", counted(plan.looked_at, "due record"));
    }
    if let Some(blocked) = &plan.blocked {
        text += &format!("now it would delete none, because {blocked}\n");
    }
    text
}

/// How long things are kept, and why.
pub(crate) fn policy(view: &PolicyView) -> String {
    let mut text = String::new();
    let numbers = serde_json::to_value(view.policy).unwrap_or_default();
    for (name, origin) in &view.origins {
        let value = numbers[name].as_u64().unwrap_or_default();
        let kept =
            if value == 0 && name == "retention" { "for ever".into() } else { counted(value, "block") };
        let configured = format!("the configuration says {}", figure(origin.configured));
        let whence = match (origin.from.as_str(), origin.at, &origin.by) {
            ("run_time", Some(at), Some(by)) => format!("set by {by} at {}; {configured}", time(at)),
            ("promise", ..) => format!("promised by the data directory; {configured}"),
            _ => "configuration".into(),
        };
        let _ = writeln!(text, "{name:<21}{kept:<16}{whence}");
    }
    text
}

/// A Unix timestamp as people read it.
fn time(at: u64) -> impl std::fmt::Display {
    humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + std::time::Duration::from_secs(at))
}

/// A job.
pub(crate) fn job(job: &JobReport) -> String {
    let mut text = format!("job {} ({}) {}", job.id, job.trigger.replace('_', " "), job.state);
    if let Some(height) = job.height {
        text += &format!(" at {}", figure(height));
    }
    match (job.safe_height, &job.decided_by) {
        (Some(safe), Some(hold)) => text += &format!(", safe up to {} because of {hold}", figure(safe)),
        (None, Some(hold)) => text += &format!(", where {hold} retains everything"),
        _ => {}
    }
    let counts = &job.counts;
    text += &format!(": {} deleted ({})", counted(counts.deleted, "record"), bytes(counts.bytes_freed));
    if !counts.retained.is_empty() {
        text += &format!(", retained: {}", reasons(&counts.retained));
    }
    if let Some(by) = job.superseded_by {
        text += &format!("; job {by} took its place");
    }
    if let Some(reason) = &job.stopped_early {
        text += &format!("; stopped because {reason}");
    }
    if let Some(error) = &job.error {
        text += &format!("; {error}");
    }
    text
}

/// Jobs, the newest first.
pub(crate) fn jobs(jobs: &[JobReport]) -> String {
    if jobs.is_empty() {
        return "no job yet".into();
    }
    jobs.iter().map(job).collect::<Vec<_>>().join("\n")
}

/// How the pruner is doing.
pub(crate) fn prune(prune: &PruneReport) -> String {
    let mut facts = Facts::default();
    facts.add("state", if prune.enabled { prune.state.as_str() } else { "disabled" });
    let because = prune.decided_by.as_ref().map_or(String::new(), |hold| format!(", because of {hold}"));
    facts.add("safe height", format!("{}{because}", at(prune.safe_height)));
    let about = if prune.backlog_estimated { "about " } else { "" };
    let left = match prune.catch_up_seconds {
        Some(seconds) if prune.backlog_records > 0 => format!(", done in about {seconds:.0} s"),
        _ => String::new(),
    };
    facts.add("backlog", format!("{about}{}{left}", counted(prune.backlog_records, "record")));
    if let Some(lag) = prune.lag_blocks {
        facts.add("lag", counted(lag, "block"));
    }
    let totals = &prune.totals;
    let (deleted, jobs) = (counted(totals.deleted, "record"), counted(totals.jobs, "job"));
    facts.add("so far", format!("{deleted} deleted ({}) in {jobs}", bytes(totals.bytes_freed)));
    if !totals.retained.is_empty() {
        facts.add("retained", reasons(&totals.retained));
    }
    if let Some(last) = prune.newest_jobs.iter().find(|job| job.ended_at.is_some()) {
        facts.add("last", job(last));
    }
    for one in &prune.holds {
        facts.add("hold", hold(one));
    }
    facts.0
}

/// A hold.
pub(crate) fn hold(hold: &HoldReport) -> String {
    let from = match hold.keep_from {
        Some(height) => format!("needs everything from {} on", figure(height)),
        None => "has not said what it needs, so it needs everything".into(),
    };
    let end = match (hold.expired, hold.expires) {
        (true, _) => ", expired".into(),
        (false, Some(at)) => format!(", until {}", time(at)),
        (false, None) => String::new(),
    };
    let decides = if hold.decides { "; it decides the safe height" } else { "" };
    format!("{} of {} {from}{end}: {}{decides}", hold.name, hold.owner, hold.reason)
}

/// Holds.
pub(crate) fn holds(holds: &[HoldReport]) -> String {
    if holds.is_empty() {
        return "no holds".into();
    }
    holds.iter().map(hold).collect::<Vec<_>>().join("\n")
}

/// What a verification found.
pub(crate) fn verified(found: &VerifyView) -> String {
    let mut text = format!(
        "{} and {} checked, {} outside\n",
        counted(found.records, "record"),
        counted(found.index_entries, "index entry"),
        counted(found.bodies, "body"),
    );
    let more = [
        (found.bodies_without_record, "without a record, deleted by the next pruning job"),
        (found.bodies_deleted_first, "deleted before their record, which goes next"),
    ];
    for (count, words) in more.iter().filter(|(count, _)| *count > 0) {
        text += &format!("{} {words}\n", counted(*count, "body"));
    }
    for problem in &found.problems {
        text += &format!("broken: {problem}\n");
    }
    if found.more_problems > 0 {
        text += &format!("and {} more\n", counted(found.more_problems, "problem"));
    }
    if found.clean == Some(true) {
        text += "nothing is broken\n";
    }
    text
}
