//! Answers as people read them. What they are made from is the JSON of REST.

use std::fmt::Write as _;

use sapwood_pruner::{
    HoldStatus, Job,
    text::{self, bytes, counted, figure},
};
use sapwood_rules::Policy;
use sapwood_server::{
    http::{utxo_set::UtxoSetView, verify::VerifyView},
    views::{BlockView, OutputState, OutputView, StatusReport, TxView, UtxoPage, UtxoView},
};
use sapwood_types::{ChainPoint, Height};

/// Lines of a name and a value.
#[derive(Default)]
struct Facts(String);

impl Facts {
    fn add(&mut self, name: &str, value: impl std::fmt::Display) {
        // Writing into text does not fail.
        let _ = writeln!(self.0, "{name:<14}{value}");
    }
}

fn block(block: Option<&ChainPoint>) -> String {
    block.map_or("none".into(), |block| format!("{} ({})", figure(block.height), block.hash))
}

/// An amount as the page shows it, in the unit of Bitcoin, the only chain there is so far. `–` if it is not known.
fn amount(value: Option<&str>) -> String {
    const SATS: u64 = 100_000_000;
    match value.map(|text| (text, text.parse::<u64>())) {
        None => "–".into(),
        Some((_, Ok(value))) => format!("{}.{:08} BTC", figure(value / SATS), value % SATS),
        Some((text, Err(_))) => text.into(),
    }
}

fn at(height: Option<Height>) -> String {
    height.map_or("none".into(), figure)
}

/// How a node is doing.
pub(crate) fn status(status: &StatusReport) -> String {
    let mut facts = Facts::default();
    let StatusReport { node, chain, counts, disk, prune, ready, alerts, .. } = status;
    facts.add("chain", &node.chain);
    facts.add("state", chain.state.name().replace('_', " "));
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
    // Without an engine that tells its parts all is one part, and that is the total.
    let parts = disk.parts.iter().filter(|part| part.bytes > 0 && part.bytes < disk.total_bytes);
    for part in parts {
        facts.add("", format!("{:<16}{}", part.part, bytes(part.bytes)));
    }
    facts.add("pruning", if prune.enabled { prune.state.as_str() } else { "disabled" });
    let Policy { retention, reorg_window, .. } = prune.policy.policy();
    let kept = if retention == 0 { "never pruned".into() } else { counted(retention, "block") };
    let window = counted(reorg_window, "block");
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
    let value = amount(output.value.as_deref());
    let script = output.script.as_ref().map(|script| format!("script:{script}"));
    let place = output.address.clone().or(script).unwrap_or_default();
    format!("{value} {place} {}", output_state(output)).replace("  ", " ")
}

/// A transaction.
pub(crate) fn tx(tx: &TxView) -> String {
    let mut facts = Facts::default();
    facts.add("transaction", tx.txid);
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
        facts.add("fee", amount(Some(fee)));
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
        let value = input.value.as_deref().map_or(String::new(), |value| amount(Some(value)));
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
    facts.add("value", amount(output.value.as_deref()));
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

/// A block and the ids of its transactions.
pub(crate) fn block_view(view: &BlockView) -> String {
    let mut facts = Facts::default();
    let summary = &view.summary;
    facts.add("block", block(Some(&summary.point)));
    facts.add("parent", summary.parent.map_or("none".into(), |parent| parent.to_string()));
    facts.add("time", summary.time.map_or("not known".into(), text::time));
    facts.add("transactions", figure(summary.tx_count));
    for txid in &view.txids {
        facts.add("", txid);
    }
    let (shown, all) = (view.txids.len() as u64, summary.tx_count);
    if shown < all {
        facts.add(
            "",
            format!("{} of {} are shown: --from and --limit", figure(shown), counted(all, "transaction")),
        );
    }
    facts.0
}

/// The UTXO set as a whole.
pub(crate) fn utxo_set(view: &UtxoSetView) -> String {
    let Some(set) = &view.set else { return "not known".into() };
    let mut facts = Facts::default();
    facts.add("applied", block(set.applied.as_ref()));
    facts.add("outputs", figure(set.outputs));
    facts.add("transactions", figure(set.transactions));
    facts.add("value", amount(Some(&set.value)));
    facts.add("muhash", set.muhash.as_deref().unwrap_or("–"));
    facts.0
}

/// A page of outputs.
pub(crate) fn utxos(page: &UtxoPage) -> String {
    let mut text = String::new();
    for utxo in &page.items {
        let output = &utxo.output;
        let height = utxo.mined_at.map_or("unmined".into(), |height| format!("mined at {}", figure(height)));
        let value = amount(output.value.as_deref());
        let _ = writeln!(text, "{}:{} {value} {height}", output.txid, output.vout);
    }
    let _ =
        writeln!(text, "{} worth {}", counted(page.items.len() as u64, "output"), amount(Some(&page.value)));
    if let Some(note) = &page.note {
        let _ = writeln!(text, "note: {note}");
    }
    if let Some(cursor) = &page.cursor {
        let _ = writeln!(text, "there are more: --cursor {cursor}");
    }
    text
}

/// Jobs, the newest first.
pub(crate) fn jobs(jobs: &[Job]) -> String {
    if jobs.is_empty() {
        return "no job yet".into();
    }
    jobs.iter().map(Job::to_string).collect::<Vec<_>>().join("\n")
}

/// Holds.
pub(crate) fn holds(holds: &[HoldStatus]) -> String {
    if holds.is_empty() {
        return "no holds".into();
    }
    holds.iter().map(HoldStatus::to_string).collect::<Vec<_>>().join("\n")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n5_amounts_have_a_unit() {
        assert_eq!(amount(Some("123450000000001")), "1,234,500.00000001 BTC");
        assert_eq!((amount(None), amount(Some("1.5"))), ("–".into(), "1.5".into()));
    }
}
