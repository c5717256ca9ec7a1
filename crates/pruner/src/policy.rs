//! How long things are kept, where each number comes from, and that it is never shortened silently.
//!
//! The policy in force is a note in the store. The configuration is compared with it whenever the pruner starts or the configuration
//! is read again: what was changed at run time stays until the configuration says something new, and a configuration that keeps less
//! than the directory promised does not take effect until an operator confirms it.

mod note;

use std::{collections::BTreeMap, fmt};

use bytes::Bytes;
use sapwood_chain::ChainState;
use sapwood_ledger::{EngineError, Ledger, StoreError};
use sapwood_rules::{Policy, PolicyChange, PolicyField};
use sapwood_types::DecodeError;
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};
#[cfg(feature = "schema")]
use utoipa::ToSchema;

use crate::{
    handle::PrunerHandle,
    jobs::Trigger,
    options::OptionsError,
    plan::Plan,
    service::{PrunerError, Shared},
    text,
};

/// The name of the note with the policy in force.
pub const POLICY_NOTE: &str = "pruner/policy";
/// Who changed something is written down up to this many bytes.
const LONGEST_NAME: usize = 256;
/// Due records that are looked at to tell what a shorter policy would delete.
const LOOKED_AT: u64 = 100_000;

/// Where a number of the policy comes from, if not from the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(rename_all = "snake_case", tag = "from"))]
#[cfg_attr(feature = "schema", derive(ToSchema))]
pub enum PolicyOrigin {
    /// A change at run time. It stays until the configuration is changed to something else.
    RunTime {
        /// When, as a Unix timestamp.
        at: u64,
        /// The interface and, where known, the client that changed it.
        by: String,
    },
    /// The data directory was promised more than the configuration asks for, and keeps it.
    Promise,
}

impl fmt::Display for PolicyOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyOrigin::RunTime { at, by } => write!(f, "set by {by} at {}", text::time(*at)),
            PolicyOrigin::Promise => write!(f, "promised by the data directory"),
        }
    }
}

/// The policy in force, and where each number comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "schema", derive(ToSchema))]
pub struct PolicyState {
    /// The numbers in force.
    #[cfg_attr(feature = "serde", serde(flatten))]
    policy: Policy,
    /// What the configuration said last.
    configured: Policy,
    /// Where numbers come from, by name. Those that are not here come from the configuration.
    origins: BTreeMap<PolicyField, PolicyOrigin>,
}

/// The default policy, as if configured.
impl Default for PolicyState {
    fn default() -> Self {
        Self::configured(Policy::default())
    }
}

impl PolicyState {
    /// A policy that is in force because the configuration says so.
    pub fn configured(policy: Policy) -> Self {
        Self { policy, configured: policy, origins: BTreeMap::new() }
    }

    /// Returns where a number comes from. `None`: from the configuration.
    pub fn origin(&self, field: PolicyField) -> Option<&PolicyOrigin> {
        self.origins.get(&field)
    }

    /// The numbers in force.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// What the configuration said last.
    pub fn configuration(&self) -> Policy {
        self.configured
    }

    /// What is in force once the configuration says this: a number that the configuration did not change stays as it is, and one
    /// that would keep less than before stays as the directory's promise.
    pub fn reconfigured(&self, configured: &Policy) -> Self {
        let mut next = self.clone();
        for field in PolicyField::ALL {
            let wanted = field.of(configured);
            if field.of(&self.configured) == wanted {
                continue;
            }
            field.set(&mut next.configured, wanted);
            // It changed only because the retention did, which it follows there, and here it does not.
            let follows = configured.unmined_follows() && self.configured.unmined_follows();
            let set_apart = !self.policy.unmined_follows() && self.origin(field).is_some();
            if field == PolicyField::UnminedRetention && follows && set_apart {
                continue;
            }
            if field.shortens(field.of(&self.policy), wanted) {
                next.origins.insert(field, PolicyOrigin::Promise);
            } else {
                field.set(&mut next.policy, wanted);
                next.origins.remove(&field);
            }
        }
        // Two numbers from different places must go together: what keeps more wins.
        let Policy { retention, reorg_window, .. } = next.policy;
        if retention != 0 && retention < reorg_window {
            next.policy.retention = reorg_window;
            next.origins.insert(PolicyField::Retention, PolicyOrigin::Promise);
        }
        if configured.unmined_follows() && next.origin(PolicyField::UnminedRetention).is_none() {
            next.policy.unmined_retention = next.policy.retention / 2;
        }
        next
    }

    /// What is in force after a change at run time.
    fn changed(&self, change: &PolicyChange, by: &str, at: u64) -> Self {
        let mut next = Self { policy: change.apply(&self.policy), ..self.clone() };
        for field in PolicyField::ALL {
            // A number that was named is from now on what the client said, also if it is the same.
            if change.of(field).is_some() || field.of(&next.policy) != field.of(&self.policy) {
                next.origins.insert(field, PolicyOrigin::RunTime { at, by: by.to_owned() });
            }
        }
        next
    }

    /// The numbers that keep less in another policy: field, now and then.
    pub fn shortened(&self, policy: &Policy) -> Vec<(PolicyField, u32, u32)> {
        let both = PolicyField::ALL.map(|field| (field, field.of(&self.policy), field.of(policy)));
        both.into_iter().filter(|(field, now, then)| field.shortens(*now, *then)).collect()
    }

    /// Numbers that differ from what the configuration says, for people: one line each.
    pub fn differences(&self) -> Vec<String> {
        let line = |(field, origin): (&PolicyField, &PolicyOrigin)| {
            let (value, configured) = (field.of(&self.policy), field.of(&self.configured));
            (value != configured).then(|| {
                format!("{} is {value} ({origin}); the configuration says {configured}", field.name())
            })
        };
        self.origins.iter().filter_map(line).collect()
    }

    /// The bytes of the note. Described byte by byte in `docs/formats.md`.
    pub fn encode(&self) -> Bytes {
        note::encode(self)
    }

    /// Reads the note.
    ///
    /// # Errors
    /// If the version is not known, or the bytes are damaged.
    pub fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        note::decode(bytes)
    }

    /// Reads the policy in force from a store. `None` if none was ever written down.
    ///
    /// # Errors
    /// If the store fails, or the note is damaged.
    pub async fn load(store: &Ledger) -> Result<Option<Self>, StoreError> {
        let Some(note) = store.note(POLICY_NOTE).await? else { return Ok(None) };
        let damaged = |cause| StoreError::Corrupt { what: format!("note {POLICY_NOTE}"), cause };
        Self::decode(note).map(Some).map_err(damaged)
    }

    async fn save(&self, store: &Ledger) -> Result<(), StoreError> {
        store.put_notes(vec![(POLICY_NOTE.into(), Some(self.encode()))]).await
    }
}

/// Brings the policy that a store has written down together with the configuration, writes down what is in force, and tells the store.
///
/// # Errors
/// If the store fails.
pub async fn settle_policy(store: &Ledger, configured: &Policy) -> Result<PolicyState, StoreError> {
    let before = PolicyState::load(store).await?;
    let state = match &before {
        None => PolicyState::configured(*configured),
        Some(before) => before.reconfigured(configured),
    };
    if before.as_ref() != Some(&state) {
        state.save(store).await?;
    }
    for difference in state.differences() {
        tracing::warn!("the policy in force is not that of the configuration: {difference}");
    }
    match store.set_policy(state.policy()).await {
        // A reader was opened with the policy it has.
        Ok(()) | Err(StoreError::Engine(EngineError::ReadOnly { .. })) => Ok(state),
        Err(error) => Err(error),
    }
}

/// A line for each number: its name, how long it is, and where it comes from.
impl fmt::Display for PolicyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for field in PolicyField::ALL {
            write!(f, "{:<21}{:<16}", field.name(), in_blocks(field, field.of(&self.policy)))?;
            match self.origin(field) {
                None => writeln!(f, "configuration")?,
                Some(origin) if field.of(&self.policy) == field.of(&self.configured) => {
                    writeln!(f, "{origin}, as the configuration says")?;
                }
                Some(origin) => {
                    let configured = text::figure(field.of(&self.configured));
                    writeln!(f, "{origin}; the configuration says {configured}")?;
                }
            }
        }
        Ok(())
    }
}

/// A number of the policy in words.
fn in_blocks(field: PolicyField, value: u32) -> String {
    match (field, value) {
        (PolicyField::Retention, 0) => "never pruned".to_owned(),
        (_, value) => text::counted(value, "block"),
    }
}

/// A change of the policy that deletes something, and was not confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortening {
    /// The numbers that keep less: which, now and then.
    pub numbers: Vec<(PolicyField, u32, u32)>,
    /// What a job would delete at once under the new policy.
    pub plan: Plan,
}

impl fmt::Display for Shortening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (field, now, then)) in self.numbers.iter().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(
                f,
                "{comma}{} goes from {} to {}",
                field.name(),
                in_blocks(*field, *now),
                in_blocks(*field, *then)
            )?;
        }
        let more = if self.plan.complete { "" } else { "at least " };
        write!(
            f,
            ": that would delete {more}{} ({}) at once, and more as the chain grows. Nothing was changed: confirm it to go on",
            text::counted(self.plan.records, "record"),
            text::bytes(self.plan.bytes)
        )
    }
}

impl Shared {
    async fn adopt(&self, state: PolicyState) -> Result<(), PrunerError> {
        state.save(&self.store).await?;
        self.store.set_policy(state.policy()).await?;
        *self.policy.write() = state.policy();
        *self.policy_state.write() = state;
        // Offline only `prune_now` prunes.
        if self.events.state() != ChainState::Offline {
            self.trigger(Trigger::OnDemand, None, true);
        }
        Ok(())
    }
}

impl PrunerHandle {
    /// How long things are kept.
    pub fn policy(&self) -> Policy {
        *self.shared.policy.read()
    }

    /// How long things are kept, with where each number comes from.
    pub fn policy_state(&self) -> PolicyState {
        self.shared.policy_state.read().clone()
    }

    /// Changes how long things are kept, and writes it down. Takes effect at the next chunk, and everything is looked through again.
    /// `by` says who changes it.
    ///
    /// # Errors
    /// [`PrunerError::Shortens`] if less would be kept and that is not `confirmed`; a policy that is unsafe; a failing store. Nothing
    /// is changed then.
    pub async fn change_policy(
        &self,
        change: PolicyChange,
        by: &str,
        confirmed: bool,
    ) -> Result<PolicyState, PrunerError> {
        let _changing = self.shared.changing_policy.lock().await;
        let before = self.policy_state();
        let policy = change.apply(&before.policy());
        policy.validate_for(self.shared.options.required_maturity).map_err(OptionsError::Policy)?;
        let numbers = before.shortened(&policy);
        if !confirmed && !numbers.is_empty() {
            let plan = self.plan_with(policy, None, LOOKED_AT).await?;
            return Err(PrunerError::Shortens(Box::new(Shortening { numbers, plan })));
        }
        let mut by = by.to_owned();
        by.truncate(by.floor_char_boundary(LONGEST_NAME));
        let state = before.changed(&change, &by, self.shared.clock.now());
        self.shared.adopt(state.clone()).await?;
        Ok(state)
    }

    /// Takes over a configuration that was read again, as at a start: see [`PolicyState::reconfigured`].
    ///
    /// # Errors
    /// If the policy is unsafe, or the store fails. Nothing is changed then.
    pub async fn reconfigure(&self, configured: Policy) -> Result<PolicyState, PrunerError> {
        configured.validate_for(self.shared.options.required_maturity).map_err(OptionsError::Policy)?;
        let _changing = self.shared.changing_policy.lock().await;
        let before = self.policy_state();
        let state = before.reconfigured(&configured);
        if state != before {
            self.shared.adopt(state.clone()).await?;
        }
        for difference in state.differences() {
            tracing::warn!("the policy in force is not that of the configuration: {difference}");
        }
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(retention: u32, reorg_window: u32) -> Policy {
        Policy { reorg_window, ..Policy::with_retention(retention) }
    }

    fn run_time() -> PolicyOrigin {
        PolicyOrigin::RunTime { at: 300, by: "HTTP".into() }
    }

    fn changed(state: &PolicyState, retention: u32) -> PolicyState {
        let change = PolicyChange { retention: Some(retention), ..PolicyChange::default() };
        state.changed(&change, "HTTP", 300)
    }

    #[test]
    fn h5_a_run_time_change_stays_until_the_configuration_says_something_new() {
        let start = PolicyState::configured(policy(288, 288));
        let raised = changed(&start, 500);
        assert_eq!(raised.policy(), policy(500, 288));
        assert_eq!(raised.origin(PolicyField::Retention), Some(&run_time()));
        assert_eq!(raised.reconfigured(&policy(288, 288)), raised, "the configuration is as it was");
        let longer = raised.reconfigured(&policy(700, 288));
        assert_eq!(longer.policy(), policy(700, 288));
        assert_eq!(longer.origin(PolicyField::Retention), None);
        let shorter = raised.reconfigured(&policy(400, 288));
        assert_eq!(shorter.policy(), policy(500, 288), "shortening wants a confirmation");
        assert_eq!(shorter.origin(PolicyField::Retention), Some(&PolicyOrigin::Promise));
        assert_eq!(shorter.differences().len(), 1, "{:?}", shorter.differences());
        assert_eq!(shorter.configuration(), policy(400, 288));
    }

    /// A configuration that changed the retention, and never set the other, dropped it.
    #[test]
    fn unmined_retention_of_run_time_stays_when_the_retention_changes() {
        let start = PolicyState::configured(policy(288, 288));
        let change = PolicyChange { unmined_retention: Some(7), ..PolicyChange::default() };
        let set = start.changed(&change, "HTTP", 300);
        let longer = set.reconfigured(&policy(700, 288));
        assert_eq!(longer.policy(), Policy { unmined_retention: 7, ..policy(700, 288) });
        assert_eq!(longer.origin(PolicyField::UnminedRetention), Some(&run_time()));
        assert_eq!(longer.configuration(), policy(700, 288));
        let named = Policy { unmined_retention: 50, ..policy(700, 288) };
        assert_eq!(longer.reconfigured(&named).policy(), named, "the configuration says something new");
    }

    #[test]
    fn number_of_run_time_that_is_configured_too_is_no_difference() {
        let change = PolicyChange { reorg_window: Some(20), ..PolicyChange::default() };
        let state = PolicyState::configured(policy(288, 20)).changed(&change, "HTTP", 300);
        let text = state.to_string();
        assert!(text.contains("set by HTTP") && !text.contains("the configuration says 20"), "{text}");
        assert_eq!(state.differences(), [""; 0]);
    }

    #[test]
    fn h5_a_configuration_never_shortens_a_promise() {
        let promised = PolicyState::configured(policy(4000, 4000));
        let kept = promised.reconfigured(&Policy::default());
        assert_eq!(kept.policy(), policy(4000, 4000));
        assert_eq!(kept.reconfigured(&Policy::default()), kept, "nor at the next start");
        let never_pruned = PolicyState::configured(policy(0, 10));
        assert_eq!(never_pruned.reconfigured(&policy(1_000_000, 10)).policy().retention, 0);
    }

    #[test]
    fn h5_numbers_from_different_places_go_together() {
        let shortened = changed(&PolicyState::configured(policy(500, 200)), 300);
        let merged = shortened.reconfigured(&policy(500, 400));
        assert_eq!(merged.policy().validate(), Ok(()));
        assert_eq!((merged.policy().retention, merged.policy().reorg_window), (400, 400));
    }

    #[test]
    fn a_shortening_says_in_words_what_it_would_do() {
        let numbers = vec![(PolicyField::Retention, 0, 288), (PolicyField::ParentPreservation, 1440, 0)];
        let plan = Plan { records: 3, bytes: 700, complete: true, ..Plan::default() };
        let said = Shortening { numbers, plan }.to_string();
        let expected = "retention goes from never pruned to 288 blocks, parent_preservation goes from 1,440 blocks to 0 blocks: \
                        that would delete 3 records";
        assert!(said.starts_with(expected), "{said}");
    }

    #[test]
    fn the_note_is_written_as_documented() {
        let state = changed(&PolicyState::configured(policy(288, 288)), 500).reconfigured(&policy(288, 100));
        let golden: [&[u8]; 7] = [
            &[1],
            b"\x00\x00\x01\xf4\x00\x00\x01\x20\x01\xac\x02\x04HTTP",
            &[0, 0, 1, 32, 0, 0, 0, 100, 2],
            &[0, 0, 0, 100, 0, 0, 0, 100, 0],
            &[0, 0, 3, 232, 0, 0, 3, 232, 0],
            b"\x00\x00\x00\xfa\x00\x00\x00\x90\x01\xac\x02\x04HTTP",
            &[0, 0, 5, 160, 0, 0, 5, 160, 0],
        ];
        assert_eq!(state.encode(), golden.concat());
        assert_eq!(PolicyState::decode(golden.concat().into()), Ok(state.clone()));
        // Fuzzing starts from the same bytes.
        assert_eq!(golden.concat(), include_bytes!("../../../fuzz/seeds/pruner_policy/every_origin"));
        let bytes = state.encode();
        for end in 0..bytes.len() {
            assert!(PolicyState::decode(bytes.slice(..end)).is_err(), "cut at {end}");
        }
        assert!(PolicyState::decode([&bytes[..], &[0]].concat().into()).is_err(), "a byte more");
    }
}
