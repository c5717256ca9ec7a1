//! How the node and its source get on: what is told of it, what there is an alert for, and what keeps the node from being ready.

use std::time::Instant;

use sapwood_chain::{BelowFloor, Failing, RefusedBlock, SourceHealth, SourceState};
use sapwood_pruner::text::counted;
use sapwood_sources::Gap;
use sapwood_types::Height;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    alerts::{Alert, AlertLevel},
    report::ChainReport,
};

/// How the node and its source get on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SourceReport {
    /// In a word.
    pub state: SourceState,
    /// The greatest height the source knows of: headers without blocks, refused blocks with what is built on them and blocks behind a gap
    /// included. `None` until the source was asked, or if it has no block.
    pub best_height: Option<Height>,
    /// Seconds since the source answered last. `None` if it never did.
    pub last_contact_seconds: Option<f64>,
    /// How often the source failed to answer since the start.
    pub errors: u64,
    /// The source cannot be read. `None` if it answered when it was asked last.
    pub unreachable: Option<FailingReport>,
    /// The place for bodies of large transactions cannot be written. `None` if it can.
    pub bodies: Option<FailingReport>,
    /// The block at which the source's chain cannot be followed further. `None` if there is none.
    pub refused: Option<RefusedBlock>,
    /// Blocks the source has and that cannot be connected. `None` if there are none.
    pub gap: Option<Gap>,
    /// The source's chain left the applied one below the lowest height a rollback can reach. `None` if it did not.
    pub below_floor: Option<BelowFloor>,
}

/// Something that failed and is tried again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FailingReport {
    /// Seconds since it failed first.
    pub seconds: f64,
    /// How often it has failed since then.
    pub attempts: u64,
    /// The last error.
    pub error: String,
}

impl From<&Failing> for FailingReport {
    fn from(failing: &Failing) -> Self {
        let Failing { since, attempts, error } = failing;
        Self { seconds: since.elapsed().as_secs_f64(), attempts: *attempts, error: error.clone() }
    }
}

impl SourceReport {
    /// What is known of a source. `silent` says that no block came for longer than the operator allows.
    pub(crate) fn new(health: &SourceHealth, silent: bool) -> Self {
        let seconds = |at: Instant| at.elapsed().as_secs_f64();
        let state = match health.state() {
            SourceState::Following if silent => SourceState::Silent,
            state => state,
        };
        Self {
            state,
            best_height: health.best_height,
            last_contact_seconds: health.last_contact.map(seconds),
            errors: health.errors,
            unreachable: health.unreachable.as_ref().map(FailingReport::from),
            bodies: health.bodies.as_ref().map(FailingReport::from),
            refused: health.refused.clone(),
            gap: health.gap.clone(),
            below_floor: health.below_floor,
        }
    }
}

/// An error as a sentence that another one can follow. Some end with a question.
fn sentence(error: &str) -> String {
    let ended = error.ends_with(['.', '?', '!']);
    format!("{error}{}", if ended { "" } else { "." })
}

/// What there is an alert for between the node and its source.
pub(crate) fn alerts(chain: &ChainReport, no_block_after: Option<f64>) -> Vec<Alert> {
    let mut found = Vec::new();
    let mut alert = |level, name: &str, text: String| found.push(Alert { level, name: name.into(), text });
    let Some(source) = &chain.source else { return found };
    if let Some(FailingReport { seconds, attempts, error }) = &source.unreachable {
        let text = format!(
            "the source has been unusable for {seconds:.0} s, tried {}: {} It is tried again every few seconds",
            counted(*attempts, "time"),
            sentence(error)
        );
        alert(AlertLevel::Critical, "source_unreachable", text);
    }
    if let Some(FailingReport { seconds, error, .. }) = &source.bodies {
        let text =
            format!("no block has been applied for {seconds:.0} s, because a body cannot be kept: {error}");
        alert(AlertLevel::Critical, "bodies_unreachable", text);
    }
    if let Some(refused) = &source.refused {
        let RefusedBlock { height, hash, reason, descendants, insisted, .. } = refused;
        let (level, name) = match *insisted || *descendants > 0 {
            true => (AlertLevel::Critical, "block_refused"),
            false => (AlertLevel::Warning, "lone_block_refused"),
        };
        let built = counted(*descendants, "block");
        let again = match insisted {
            true => "It is tried again by itself",
            false => "Restart to try the block again",
        };
        let text = format!(
            "block {height} ({hash}) of the source cannot be applied, and the source has {built} on top of it: {reason}. \
             Either the source is wrong, or this node is: `sapwood verify` checks the data directory. {again}"
        );
        alert(level, name, text);
    }
    if let Some(Gap { missing, child, waiting, damaged }) = &source.gap {
        let fix = match damaged {
            Some(place) => {
                format!("{place} is damaged, and may be where it was: get that file again from another node")
            }
            None => "Bring the missing block files back".into(),
        };
        let text = format!(
            "block {missing} is not in the source, which has {} on top of it; the first is {child}. {fix}",
            counted(*waiting, "block")
        );
        alert(AlertLevel::Critical, "source_gap", text);
    }
    if let Some(BelowFloor { floor, tip }) = &source.below_floor {
        let text = format!(
            "the source's chain, which ends with block {} ({}), leaves the applied one below height {floor}, the lowest a \
             rollback can reach. If that chain is the right one, import it into a new data directory; if not, check the \
             source and its network. Following goes on by itself when the source is back on the applied chain",
            tip.height, tip.hash
        );
        alert(AlertLevel::Critical, "fork_below_floor", text);
    }
    if let (Some(limit), Some(seconds)) = (no_block_after, chain.last_block_seconds)
        && seconds > limit
    {
        let text = format!(
            "the last block came {seconds:.0} s ago, more than the {limit:.0} s of source.no_block_alert: compare the \
             source with others of its network"
        );
        alert(AlertLevel::Critical, "no_new_block", text);
    }
    found
}

/// Why a node whose source is like this is not ready.
pub(crate) fn not_ready(chain: &ChainReport, no_block_after: Option<f64>) -> Vec<String> {
    // What is critical keeps the node from its work.
    let critical = |alert: &Alert| alert.level == AlertLevel::Critical;
    alerts(chain, no_block_after).into_iter().filter(critical).map(|alert| alert.text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_become_sentences_whatever_they_end_with() {
        assert_eq!(sentence("no route to host"), "no route to host.");
        assert_eq!(sentence("Is it the RPC address?"), "Is it the RPC address?");
    }

    #[test]
    fn alert_of_a_gap_names_the_place_of_the_damage() {
        let damaged = Some("blocks/blk00007.dat at byte 4711".to_owned());
        let hash = Default::default();
        let gap = Some(Gap { missing: hash, child: hash, waiting: 3, damaged });
        let source = Some(SourceReport { gap, ..SourceReport::default() });
        let found = alerts(&ChainReport { source, ..ChainReport::default() }, None);
        assert!(found[0].text.contains("blk00007.dat at byte 4711 is damaged"), "{found:?}");
        assert!(!found[0].text.contains("Bring the missing"), "{found:?}");
    }
}
