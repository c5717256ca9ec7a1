//! What an operator should look at, and whether the node is ready. Pure: everything follows from the report.

use sapwood_chain::ChainState;
use sapwood_ledger::DiskRoom;
use sapwood_pruner::{HoldKind, HoldStatus};
use sapwood_rules::Hold;
use sapwood_types::Height;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    report::{ChainReport, StatusReport},
    source,
};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AlertLevel {
    /// The node does not do its work.
    Critical,
    /// It will not for long, or does less than it could.
    Warning,
}

/// Something that an operator should look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Alert {
    /// How bad it is.
    pub level: AlertLevel,
    /// A short fixed name, the same as in the operations guide.
    pub name: String,
    /// What is the matter and what to do.
    pub text: String,
}

/// The name of every alert there is.
pub const NAMES: [&str; 24] = [
    "status_incomplete",
    "store_refuses_writes",
    "engine_errors",
    "chain_stopped",
    "source_unreachable",
    "block_refused",
    "lone_block_refused",
    "source_gap",
    "fork_below_floor",
    "bodies_unreachable",
    "no_new_block",
    "lag",
    "disk_limit",
    "disk_room",
    "disk_room_low",
    "job_failed",
    "child_disagrees",
    "record_unreadable",
    "pruning_disabled",
    "hold_expired",
    "hold_not_reported",
    "consumer_silent",
    "block_assembly_silent",
    "prune_behind",
];

/// Whether the node is ready to be used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Readiness {
    /// Whether it is.
    pub ready: bool,
    /// Why not.
    pub reasons: Vec<String>,
}

/// Whether the node is ready: reconciled with its source, able to write, and not too far behind.
pub(crate) fn readiness(
    chain: &ChainReport,
    ready_lag: u64,
    no_block_after: Option<f64>,
    refuses_writes: Option<&str>,
    room: Option<DiskRoom>,
) -> Readiness {
    let mut reasons = Vec::new();
    match chain.state {
        ChainState::Resetting if chain.source.is_none() => reasons.push(
            "the chain was not set running yet by the client that feeds it: call SetState with RUNNING"
                .to_owned(),
        ),
        ChainState::Resetting => reasons.push("the chain is not reconciled with its source yet".to_owned()),
        ChainState::Stopped => reasons.push("the chain is not followed any more".to_owned()),
        ChainState::Offline => reasons.push("no node runs on this data directory".to_owned()),
        ChainState::Stalled if chain.source.is_none() => {
            reasons.push("the chain cannot go on for now".to_owned());
        }
        ChainState::CatchingUp | ChainState::Running | ChainState::Reorganising | ChainState::Stalled => {}
    }
    reasons.extend(source::not_ready(chain, no_block_after));
    reasons.extend(refuses_writes.map(str::to_owned));
    if let Some(lag) = chain.lag_blocks.filter(|lag| *lag > ready_lag) {
        reasons.push(format!("{lag} blocks are not applied yet; ready from {ready_lag} on"));
        reasons.extend(room.filter(DiskRoom::is_short).map(no_room));
    }
    Readiness { ready: reasons.is_empty(), reasons }
}

/// Everything that an operator should look at, the worst first.
pub(crate) fn alerts(
    report: &StatusReport,
    ready_lag: u64,
    no_block_after: Option<f64>,
    refuses_writes: Option<&str>,
    unreadable: &[String],
) -> Vec<Alert> {
    use AlertLevel::*;
    let mut found = source::alerts(&report.chain, no_block_after);
    let mut alert = |level, name: &str, text: String| found.push(Alert { level, name: name.into(), text });
    for problem in unreadable {
        alert(Critical, "status_incomplete", format!("the status could not be read in full: {problem}"));
    }
    if let Some(error) = refuses_writes {
        alert(Critical, "store_refuses_writes", error.to_owned());
    }
    for part in &report.engine {
        if let Some(errors) = part.stats.get("background_errors").filter(|errors| **errors > 0) {
            let text = format!(
                "the engine had {errors} errors while flushing or compacting {}: check the device",
                part.part
            );
            alert(Critical, "engine_errors", text);
        }
    }
    if report.chain.state == ChainState::Stopped {
        alert(Critical, "chain_stopped", "the chain is not followed any more: the log says why".into());
    }
    if let Some(lag) = report.chain.lag_blocks.filter(|lag| *lag > ready_lag) {
        alert(Warning, "lag", format!("{lag} blocks are not applied yet; more than {ready_lag} is too many"));
    }
    let disk = &report.disk;
    if let Some(limit) = disk.limit_bytes.filter(|limit| disk.total_bytes > *limit) {
        let text = format!(
            "the store takes {} bytes, more than its limit of {limit}: see which hold keeps the pruner back, shorten the \
             retention, or give it more room",
            disk.total_bytes
        );
        alert(Critical, "disk_limit", text);
    }
    if let Some(room) = disk.room {
        let (free, reserve) = (room.free_bytes, room.reserve_bytes);
        if room.is_short() {
            alert(Critical, "disk_room", no_room(room));
        } else if free < reserve.saturating_mul(2) {
            let text = format!(
                "{free} bytes are free on the disk of the store, less than twice the reserve of {reserve}: below the reserve no \
                 block is applied"
            );
            alert(Warning, "disk_room_low", text);
        }
    }
    let prune = &report.prune;
    if let Some(error) = prune.last_job.as_ref().and_then(|job| job.error.as_ref()) {
        alert(Critical, "job_failed", format!("the last pruning job failed: {error}"));
    }
    if let Some(count) = prune.blocked.get("child_disagrees").filter(|count| **count > 0) {
        let text = format!(
            "{count} due records have a child that is not where they remember it; they are retained. Run `sapwood verify`"
        );
        alert(Critical, "child_disagrees", text);
    }
    if let Some(first) = prune.unreadable.first() {
        let more = match prune.blocked.get("unreadable").map_or(0, |count| count.saturating_sub(1)) {
            0 => String::new(),
            more => format!(", and {more} more records are retained because of damage"),
        };
        let text = format!(
            "the record of {} cannot be read: {}{more}. It is retained and all else goes on. Run `sapwood verify`, and restore a backup",
            first.txid, first.error
        );
        alert(Critical, "record_unreadable", text);
    }
    if !prune.enabled {
        alert(Warning, "pruning_disabled", "pruning is disabled, so the store only grows".into());
    }
    for status in &prune.holds {
        let Hold { name, owner, keep_from, .. } = &status.hold;
        if status.expired {
            let text = format!("hold {name} of {owner} has expired and holds nothing: renew or release it");
            alert(Warning, "hold_expired", text);
        } else if let Some(seconds) = expired_report(status, prune.settings.block_assembly_ttl.as_secs()) {
            let text = format!(
                "block assembly is registered and has not reported for {seconds} s, so nothing is pruned: start it again, or, if there is \
                 none any more, release its hold (`sapwood hold release {name} --data DIR`)"
            );
            alert(Warning, "block_assembly_silent", text);
        } else if keep_from.is_none() {
            let text = format!(
                "hold {name} of {owner} has not said what it needs, so it needs everything: start its owner, or release it"
            );
            alert(Warning, "hold_not_reported", text);
        } else if let Some(seconds) =
            silent_behind(status, report.chain.applied.as_ref().map(|block| block.height))
        {
            let text = format!(
                "{owner} has not reported for {seconds} s and holds everything from {} on: start it again, or, if there is none any more, \
                 release its hold (`sapwood hold release {name} --data DIR`)",
                keep_from.unwrap_or_default()
            );
            alert(Warning, "consumer_silent", text);
        }
    }
    if prune.lag_blocks > prune.policy.policy().retention.max(1) {
        let (lag, state) = (prune.lag_blocks, &prune.state);
        let text = format!("what is due has waited for up to {lag} blocks, more than the retention: {state}");
        alert(Warning, "prune_behind", text);
    }
    found.sort_by_key(|alert| alert.level);
    found
}

/// Says that blocks wait for room on the disk.
fn no_room(room: DiskRoom) -> String {
    let DiskRoom { free_bytes, reserve_bytes, .. } = room;
    format!(
        "{free_bytes} bytes are free on the disk of the store, less than the reserve of {reserve_bytes}: no block is applied until \
         there is more. Free some, or shorten the retention"
    )
}

/// For how many seconds block assembly has been silent, if that is its hold and its last report counts no longer.
fn expired_report(hold: &HoldStatus, ttl: u64) -> Option<u64> {
    hold.silent_seconds.filter(|seconds| hold.kind == HoldKind::BlockAssembly && *seconds > ttl)
}

/// A consumer that is behind the chain and has not reported for so many seconds has probably left.
const SILENT_AFTER: u64 = 600;

/// For how many seconds the consumer of a hold has been silent although there were blocks to report. `None` if it has not been, or not
/// for long.
fn silent_behind(hold: &HoldStatus, applied: Option<Height>) -> Option<u64> {
    let behind = applied >= Some(hold.hold.keep_from?);
    hold.silent_seconds.filter(|seconds| behind && *seconds >= SILENT_AFTER)
}

#[cfg(test)]
mod tests {
    use sapwood_chain::{BelowFloor, RefusedBlock, SourceState};
    use sapwood_ledger::Unreadable;
    use sapwood_pruner::{Job, JobCounts, JobDurations, JobId, JobState, Trigger};
    use sapwood_sources::Gap;
    use sapwood_types::{BlockHash, ChainPoint, TxId};

    use super::*;
    use crate::status::{SourceReport, report::EngineReport, source::FailingReport};

    fn healthy() -> StatusReport {
        let mut report = StatusReport::default();
        report.prune.enabled = true;
        report.chain.state = ChainState::Running;
        report.chain.source = Some(SourceReport { state: SourceState::Following, ..SourceReport::default() });
        report.chain.last_block_seconds = Some(60.0);
        report
    }

    /// Spoils what is known of the source.
    fn source(spoil: impl FnOnce(&mut SourceReport)) -> impl FnOnce(&mut StatusReport) {
        |report| spoil(report.chain.source.as_mut().unwrap())
    }

    fn hold(name: &str, keep_from: Option<u32>, expired: bool) -> HoldStatus {
        HoldStatus {
            hold: Hold {
                name: name.into(),
                owner: "operator".into(),
                keep_from: keep_from.map(Height),
                expires: None,
                reason: "because".into(),
            },
            kind: HoldKind::of(name),
            expired,
            decides: false,
            silent_seconds: None,
            retained_records: 0,
            unchanged_seconds: None,
        }
    }

    fn failed() -> Job {
        Job {
            id: JobId(1),
            trigger: Trigger::Timer,
            state: JobState::Failed,
            asked: None,
            height: None,
            safe_height: None,
            decided_by: None,
            whole: true,
            counts: JobCounts::default(),
            durations: JobDurations::default(),
            created_at: 0,
            started_at: Some(1),
            ended_at: Some(2),
            stopped_early: None,
            error: Some("no".into()),
            superseded_by: None,
        }
    }

    /// The names of the alerts of a report that is healthy but for one thing.
    fn names(spoil: impl FnOnce(&mut StatusReport)) -> Vec<String> {
        let mut report = healthy();
        spoil(&mut report);
        alerts(&report, 10, Some(60.0), None, &[]).into_iter().map(|alert| alert.name).collect()
    }

    #[test]
    fn a_healthy_node_has_no_alerts() {
        assert_eq!(names(|_| ()), [""; 0]);
        assert_eq!(names(|report| report.chain.lag_blocks = Some(10)), [""; 0]);
        assert_eq!(names(|report| report.disk.room = room(20, 10)), [""; 0]);
        assert_eq!(names(|report| report.disk.room = room(0, 0)), [""; 0], "the reserve is turned off");
        assert_eq!(names(|report| report.prune.holds = vec![hold("x", Some(1), false)]), [""; 0]);
    }

    #[test]
    fn each_thing_that_is_wrong_has_its_alert() {
        let background_errors =
            EngineReport { part: "tx".into(), stats: [("background_errors".to_owned(), 1)].into() };
        let mut seen: Vec<String> = [
            names(|report| report.engine = vec![background_errors]),
            names(|report| report.chain.state = ChainState::Stopped),
            names(source(|source| source.unreachable = Some(FailingReport::default()))),
            names(source(|source| source.bodies = Some(FailingReport::default()))),
            names(source(|source| source.refused = Some(refused(0, false)))),
            names(source(|source| {
                source.refused = Some(refused(1, false));
            })),
            names(source(|source| source.gap = Some(gap()))),
            names(source(|source| source.below_floor = Some(below_floor()))),
            names(|report| report.chain.last_block_seconds = Some(61.0)),
            names(|report| report.chain.lag_blocks = Some(11)),
            names(|report| (report.disk.total_bytes, report.disk.limit_bytes) = (11, Some(10))),
            names(|report| report.disk.room = room(9, 10)),
            names(|report| report.disk.room = room(19, 10)),
            names(|report| report.prune.last_job = Some(failed())),
            names(|report| report.prune.blocked = [("child_disagrees".to_owned(), 1)].into()),
            names(|report| {
                report.prune.unreadable = vec![Unreadable { txid: TxId([7; 32]), error: "cut".into() }];
            }),
            names(|report| {
                report.chain.applied = Some(block(10));
                report.prune.holds =
                    vec![HoldStatus { silent_seconds: Some(600), ..hold("persister", Some(10), false) }];
            }),
            names(|report| {
                let silent = HoldStatus { silent_seconds: Some(61), ..hold("block-assembly", None, false) };
                report.prune.holds = vec![silent];
            }),
            names(|report| report.prune.enabled = false),
            names(|report| report.prune.holds = vec![hold("x", Some(1), true)]),
            names(|report| report.prune.holds = vec![hold("x", None, false)]),
            names(|report| report.prune.lag_blocks = 289),
            alerts(&healthy(), 10, None, Some("full"), &["x".into()])
                .into_iter()
                .map(|alert| alert.name)
                .collect(),
        ]
        .concat();
        seen.sort();
        let mut all = NAMES.map(str::to_owned).to_vec();
        all.sort();
        assert_eq!(seen, all, "every alert once, and none that is not listed");
    }

    fn room(free_bytes: u64, reserve_bytes: u64) -> Option<DiskRoom> {
        Some(DiskRoom { free_bytes, total_bytes: 100, reserve_bytes })
    }

    fn block(height: u32) -> ChainPoint {
        ChainPoint::new(Height(height), BlockHash([0xab; 32]))
    }

    fn below_floor() -> BelowFloor {
        BelowFloor { floor: Height(7), tip: block(9) }
    }

    fn refused(descendants: u32, insisted: bool) -> RefusedBlock {
        let ChainPoint { height, hash } = block(6);
        let reason = "the coinbase takes 51".into();
        RefusedBlock { height, hash, reason, descendants, insisted, attempts: 1 }
    }

    fn gap() -> Gap {
        Gap { missing: BlockHash::default(), child: BlockHash::default(), waiting: 3, damaged: None }
    }

    /// What keeps the node from being ready, of a report that is healthy but for one thing.
    fn reasons(spoil: impl FnOnce(&mut StatusReport)) -> Vec<String> {
        let mut report = healthy();
        spoil(&mut report);
        let ready = readiness(&report.chain, 10, Some(60.0), None, report.disk.room);
        assert_eq!(ready.ready, ready.reasons.is_empty());
        ready.reasons
    }

    #[test]
    fn c1_a_node_that_does_not_follow_its_source_is_not_ready_and_says_why() {
        assert_eq!(reasons(|_| ()), [""; 0]);
        let quiet = reasons(|report| report.chain.last_block_seconds = Some(61.0)).join("");
        assert!(quiet.contains("the last block came 61 s ago"), "{quiet}");
        let allowed = ChainReport { last_block_seconds: Some(1e9), ..healthy().chain };
        assert!(readiness(&allowed, 10, None, None, None).ready, "a chain that may be quiet");
        let failing = FailingReport { seconds: 7.0, attempts: 3, error: "refused by the peer".into() };
        let said = |source_report: fn(&mut SourceReport, FailingReport)| {
            let failing = failing.clone();
            reasons(source(move |report| source_report(report, failing))).join("\n")
        };
        assert!(said(|source, failing| source.unreachable = Some(failing)).contains("refused by the peer"));
        assert!(said(|source, failing| source.bodies = Some(failing)).contains("refused by the peer"));
        let built = reasons(source(|source| source.refused = Some(refused(53, false)))).join("");
        for part in ["block 6", &"ab".repeat(32), "the coinbase takes 51", "53 blocks"] {
            assert!(built.contains(part), "{part} is not in: {built}");
        }
        assert_eq!(reasons(source(|source| source.refused = Some(refused(0, true)))).len(), 1);
        assert_eq!(
            reasons(source(|source| source.refused = Some(refused(0, false)))),
            [""; 0],
            "a block that nobody builds on is one that everybody refuses"
        );
        assert!(reasons(source(|source| source.gap = Some(gap())))[0].contains("not in the source"));
        assert!(
            reasons(source(|source| source.below_floor = Some(below_floor())))[0].contains("below height 7")
        );
        assert!(reasons(|report| report.chain.lag_blocks = Some(11))[0].contains("11 blocks"));
    }

    #[test]
    fn blocks_that_wait_for_room_on_the_disk_say_so() {
        let full = |lag| {
            reasons(move |report| (report.chain.lag_blocks, report.disk.room) = (Some(lag), room(9, 10)))
        };
        assert!(full(11).join("").contains("9 bytes are free"), "{:?}", full(11));
        assert_eq!(full(0), [""; 0], "nothing waits");
    }

    #[test]
    fn fed_node_names_the_call_that_it_waits_for() {
        let said =
            reasons(|report| (report.chain.state, report.chain.source) = (ChainState::Resetting, None));
        assert!(said[0].contains("SetState") && !said[0].contains("source"), "{said:?}");
    }

    /// The page, the rule and readiness go by one thing: whether the source stands by the block or builds on it.
    #[test]
    fn m4_a_refused_block_is_critical_only_if_the_source_goes_on_with_it() {
        let alert = |descendants, insisted| {
            let mut report = healthy();
            source(|source| source.refused = Some(refused(descendants, insisted)))(&mut report);
            let mut found = alerts(&report, 10, None, None, &[]);
            let Alert { level, name, text } = found.remove(0);
            assert!(found.is_empty());
            (level, name, text.contains("Restart to try"), text.contains("tried again by itself"))
        };
        let is = |level, name: &str, restart: bool| (level, name.to_owned(), restart, !restart);
        assert_eq!(alert(0, false), is(AlertLevel::Warning, "lone_block_refused", true));
        assert_eq!(alert(1, false), is(AlertLevel::Critical, "block_refused", true));
        assert_eq!(alert(0, true), is(AlertLevel::Critical, "block_refused", false));
    }

    /// The totals only grow, and are kept over restarts: an alert by them would never end.
    #[test]
    fn m5_what_disagreed_once_and_was_deleted_since_is_no_alert() {
        assert_eq!(
            names(|report| report.prune.totals.retained = [("child_disagrees".to_owned(), 9)].into()),
            [""; 0]
        );
    }

    /// A consumer that reported all there is may be silent for as long as no block comes.
    #[test]
    fn teranode_673_silence_is_an_alert_only_behind_the_chain() {
        let with = |keep_from, silent_seconds, applied| {
            names(|report| {
                report.chain.applied = Some(block(applied));
                report.prune.holds =
                    vec![HoldStatus { silent_seconds, ..hold("persister", Some(keep_from), false) }];
            })
        };
        assert_eq!(with(10, Some(599), 10), [""; 0]);
        assert_eq!(with(10, Some(600), 9), [""; 0], "it has reported the last block");
        assert_eq!(with(10, None, 10), [""; 0], "an operator's hold");
        assert_eq!(with(10, Some(600), 10), ["consumer_silent"]);
    }

    #[test]
    fn the_worst_comes_first() {
        let mut report = healthy();
        report.prune.enabled = false;
        report.chain.state = ChainState::Stopped;
        let levels: Vec<AlertLevel> =
            alerts(&report, 10, Some(60.0), None, &[]).iter().map(|alert| alert.level).collect();
        assert_eq!(levels, [AlertLevel::Critical, AlertLevel::Warning]);
    }
}
