//! What an operator may set.

use std::time::Duration;

use sapwood_rules::{Policy, PolicyError};
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};
#[cfg(feature = "schema")]
use utoipa::ToSchema;

#[cfg(feature = "serde")]
use crate::span;

/// Everything that can be set. How long things are kept is the [`Policy`]'s.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(default))]
#[cfg_attr(feature = "schema", derive(ToSchema))]
pub struct PrunerOptions {
    /// How long things are kept.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub policy: Policy,
    /// Whether a pruner that was never enabled or disabled prunes. What an operator said last is kept in the store and wins.
    pub enabled: bool,
    /// How long a job may take. What it has done by then stays done, and the job counts as failed.
    #[cfg_attr(feature = "serde", serde(with = "span"))]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub job_timeout: Duration,
    /// Records judged and deleted in one write.
    pub chunk_records: usize,
    /// Chunks in flight at the same time while no block is being applied.
    pub parallel_chunks: usize,
    /// How often a long job tells how far it is. `None` for never.
    #[cfg_attr(feature = "serde", serde(with = "span::or_never"))]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub progress_log: Option<Duration>,
    /// Read the children of each record before it is deleted, and keep it if they do not bear out what it remembers.
    pub child_check: bool,
    /// Delete due records. Without it parents are preserved and preservations expire, but every record stays.
    pub delete_due: bool,
    /// Prune while old blocks are being caught up on. No branch is exchanged then, and a store that is not pruned for the
    /// whole of a first synchronisation outgrows its disk.
    pub while_catching_up: bool,
    /// How long a report of block assembly counts, in whole seconds. Once the last one is older, block assembly counts as not running.
    #[cfg_attr(feature = "serde", serde(with = "span"))]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub block_assembly_ttl: Duration,
    /// The coinbase maturity that the chain's rules want. `None` where any will do.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub required_maturity: Option<u32>,
    /// How often to look through everything that is due, whatever happened. `None` for never.
    #[cfg_attr(feature = "serde", serde(with = "span::or_never"))]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub look_every: Option<Duration>,
    /// Records a job looks at before it makes room for a newer request.
    pub records_per_job: u64,
    /// How long a job works before it makes room for a newer request.
    #[cfg_attr(feature = "serde", serde(with = "span"))]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub time_per_job: Duration,
    /// Jobs that are remembered after they ended, in memory.
    pub job_history: usize,
    /// How much of the time is spent on pruning while blocks are being applied.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub pacing: Pacing,
}

/// How the pruner makes way for blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(default))]
#[cfg_attr(feature = "schema", derive(ToSchema))]
pub struct Pacing {
    /// The share of the time in which it works while blocks are being applied, above 0 and at most 1.
    pub busy_share: f64,
    /// After this long without a block it works all the time, on as many chunks as allowed.
    #[cfg_attr(feature = "serde", serde(with = "span"))]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub quiet_after: Duration,
    /// With more due records than this it works all the time whatever the blocks do: a full disk is worse than a slow block.
    pub full_speed_above: u64,
}

impl Default for Pacing {
    fn default() -> Self {
        Self { busy_share: 0.25, quiet_after: Duration::from_millis(100), full_speed_above: 20_000_000 }
    }
}

impl Default for PrunerOptions {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            enabled: true,
            job_timeout: Duration::from_secs(600),
            chunk_records: 1000,
            parallel_chunks: 10,
            progress_log: Some(Duration::from_secs(30)),
            child_check: true,
            delete_due: true,
            while_catching_up: true,
            block_assembly_ttl: Duration::from_secs(60),
            required_maturity: None,
            look_every: Some(Duration::from_secs(60)),
            records_per_job: 250_000,
            time_per_job: Duration::from_secs(30),
            job_history: 1000,
            pacing: Pacing::default(),
        }
    }
}

/// Why options are refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OptionsError {
    /// The policy is unsafe.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A number is out of range.
    #[error("{name} is {found}: set it to {allowed}")]
    OutOfRange {
        /// Which setting, as the configuration calls it.
        name: &'static str,
        /// What it is.
        found: String,
        /// What it may be.
        allowed: &'static str,
    },
}

impl PrunerOptions {
    /// Options with this policy and all else as it comes.
    pub fn with_policy(policy: Policy) -> Self {
        Self { policy, ..Self::default() }
    }

    /// Refuses what is unsafe or cannot work.
    pub fn validate(&self) -> Result<(), OptionsError> {
        self.policy.validate_for(self.required_maturity)?;
        let refuse = |name, found: String, allowed| Err(OptionsError::OutOfRange { name, found, allowed });
        let counts = [
            ("pruner.chunk_records", self.chunk_records, 100_000, "1 to 100,000"),
            ("pruner.parallel_chunks", self.parallel_chunks, 64, "1 to 64"),
            ("pruner.job_history", self.job_history, 100_000, "1 to 100,000"),
        ];
        for (name, value, most, allowed) in counts {
            if value == 0 || value > most {
                return refuse(name, value.to_string(), allowed);
            }
        }
        if self.records_per_job == 0 {
            return refuse("pruner.records_per_job", "0".into(), "1 or more");
        }
        let durations = [
            ("pruner.job_timeout", Some(self.job_timeout)),
            ("pruner.time_per_job", Some(self.time_per_job)),
            ("pruner.block_assembly_ttl", Some(self.block_assembly_ttl)),
            ("pruner.look_every", self.look_every),
            ("pruner.progress_log", self.progress_log),
        ];
        for (name, value) in durations {
            if value.is_some_and(|value| value.is_zero()) {
                return refuse(name, "0".into(), "more than 0");
            }
        }
        let share = self.pacing.busy_share;
        if !(share > 0.0 && share <= 1.0) {
            return refuse("pruner.busy_share", share.to_string(), "more than 0 and at most 1");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_documents() {
        let options = PrunerOptions::default();
        assert_eq!(options.validate(), Ok(()));
        assert_eq!(options.job_timeout, Duration::from_secs(10 * 60));
        assert_eq!((options.chunk_records, options.parallel_chunks), (1000, 10));
        assert_eq!(options.progress_log, Some(Duration::from_secs(30)));
        assert_eq!(options.job_history, 1000);
        assert!(options.child_check && options.delete_due && options.enabled);
        let Policy { retention, unmined_retention, parent_preservation, .. } = options.policy;
        assert_eq!((retention, unmined_retention, parent_preservation), (288, 144, 1440));
    }

    #[cfg(feature = "serde")]
    #[test]
    fn options_read_back_from_json_and_what_is_missing_is_the_default() {
        let options = PrunerOptions {
            look_every: None,
            // As a pruner has it that is opened offline.
            job_timeout: Duration::MAX,
            pacing: Pacing { busy_share: 1.0, ..Pacing::default() },
            ..PrunerOptions::default()
        };
        let written = serde_json::to_value(&options).unwrap();
        assert_eq!((&written["look_every"], &written["time_per_job"]), (&"never".into(), &"30s".into()));
        assert_eq!((&written["busy_share"], &written["quiet_after"]), (&1.0.into(), &"100ms".into()));
        assert_eq!(serde_json::from_value::<PrunerOptions>(written).unwrap(), options);
        assert_eq!(serde_json::from_str::<PrunerOptions>("{}").unwrap(), PrunerOptions::default());
        let refused = serde_json::from_str::<PrunerOptions>(r#"{"look_every": "soon"}"#);
        assert!(refused.unwrap_err().to_string().contains("nor \"never\""));
    }

    #[test]
    fn what_cannot_work_is_refused_by_name() {
        type Spoil = fn(&mut PrunerOptions);
        let spoiled: [(Spoil, &str); 8] = [
            (|o| o.chunk_records = 0, "pruner.chunk_records"),
            (|o| o.parallel_chunks = 65, "pruner.parallel_chunks"),
            (|o| o.records_per_job = 0, "pruner.records_per_job"),
            (|o| o.job_timeout = Duration::ZERO, "pruner.job_timeout"),
            (|o| o.block_assembly_ttl = Duration::ZERO, "pruner.block_assembly_ttl"),
            (|o| o.look_every = Some(Duration::ZERO), "pruner.look_every"),
            (|o| o.pacing.busy_share = 0.0, "pruner.busy_share"),
            (|o| o.pacing.busy_share = f64::NAN, "pruner.busy_share"),
        ];
        for (spoil, expected) in spoiled {
            let mut options = PrunerOptions::default();
            spoil(&mut options);
            match options.validate() {
                Err(OptionsError::OutOfRange { name, .. }) => assert_eq!(name, expected),
                other => panic!("{expected}: {other:?}"),
            }
        }
        let policy = Policy { reorg_window: 10, ..Policy::with_retention(5) };
        assert!(matches!(PrunerOptions::with_policy(policy).validate(), Err(OptionsError::Policy(_))));
    }
}
