//! When pruning runs.

use std::sync::atomic::Ordering;

use super::{
    Alert, HeightHold, Pruning, Stop,
    policy::{Policy, StoredPolicy, Usage},
    run::goal,
    walk::Walk,
};
use crate::{Archive, draft::Draft, error::ArchiveError, export::consumers, state::State};

/// What asks for a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// A block has come. Every [`Policy::tick_blocks`] of them make a tick, and each one above the hard limit.
    Block,
    /// Time has passed.
    Timer,
}

/// What became of a tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tick {
    /// Not enough blocks have come.
    NotDue,
    /// Another tick is running.
    Busy,
    /// Pruning is disabled.
    Disabled {
        /// Whether there would be something to prune.
        need_prune: bool,
    },
    /// There is nothing to prune.
    Idle,
    /// Something was to be pruned.
    Pruned(Pruning),
}

/// RAII guard: no other prune runs until it is dropped.
pub(super) struct Running<'a>(&'a Archive);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.core.pruning.store(false, Ordering::Release);
    }
}

impl Archive {
    /// Prunes what the policy asks for, [`Policy::max_ops_per_tick`] entries at most, if it is time. `now` is a Unix
    /// timestamp in seconds. Regions that readers have left since are freed in any case.
    ///
    /// # Errors
    /// Those of a commit. What was pruned before the error stays pruned.
    pub fn tick(&self, trigger: Trigger, now: u64, holds: &[HeightHold]) -> Result<Tick, ArchiveError> {
        if trigger == Trigger::Block && !self.tick_is_due() {
            return Ok(Tick::NotDue);
        }
        let Some(_running) = self.begin_pruning() else { return Ok(Tick::Busy) };
        self.core.since_tick.store(0, Ordering::Relaxed);
        self.sample(now);
        self.release()?;
        let policy = self.policy();
        let need_prune = self.need_prune(now);
        if !policy.enabled {
            return Ok(Tick::Disabled { need_prune });
        }
        if !need_prune && !self.core.published().state.latched {
            self.core.alerts.lock().clear();
            return Ok(Tick::Idle);
        }
        self.prune_by_policy(&policy, now, holds, policy.max_ops_per_tick).map(Tick::Pruned)
    }

    /// Prunes what the policy asks for at once, whether it is time or not. `max_ops` takes the place of the policy's.
    ///
    /// # Errors
    /// [`ArchiveError::Disabled`] and [`ArchiveError::Busy`], and those of a commit.
    pub fn prune_now(
        &self,
        max_ops: Option<u64>,
        now: u64,
        holds: &[HeightHold],
    ) -> Result<Pruning, ArchiveError> {
        let policy = self.policy();
        if !policy.enabled {
            return Err(ArchiveError::Disabled);
        }
        let _running = self.begin_pruning().ok_or(ArchiveError::Busy)?;
        self.sample(now);
        self.release()?;
        self.prune_by_policy(&policy, now, holds, max_ops.unwrap_or(policy.max_ops_per_tick))
    }

    fn prune_by_policy(
        &self,
        policy: &Policy,
        now: u64,
        holds: &[HeightHold],
        max_ops: u64,
    ) -> Result<Pruning, ArchiveError> {
        let state = self.core.published().state;
        let Some(head) = state.head else {
            let boundary = state.boundary;
            let none = Pruning {
                blocks: 0,
                ops: 0,
                region_bytes: 0,
                boundary,
                stopped: Stop::Done,
                unreadable: Vec::new(),
                overridden: Vec::new(),
            };
            return Ok(none);
        };
        let holds = self.holds_under(policy, holds)?;
        let goal = goal(policy, &state, head.height, now);
        let walk = Walk::new(goal, state.floor, &holds, state.prunable_used(), max_ops);
        let pruned = self.run(walk, now)?;
        self.release()?;
        let alerts = alerts(policy, &self.core.published().state, &pruned);
        alerts.iter().for_each(|alert| tracing::warn!("{alert}"));
        *self.core.alerts.lock() = alerts;
        Ok(pruned)
    }

    /// Whether enough blocks have come for a tick, or the archive is above its hard limit.
    pub fn tick_is_due(&self) -> bool {
        let policy = self.policy();
        let is_urgent = || {
            let estimate = self.core.published().state.prunable_estimate();
            policy.water().is_some_and(|water| estimate > water.hard)
        };
        self.core.since_tick.load(Ordering::Relaxed) >= policy.tick_blocks.into() || is_urgent()
    }

    /// Whether there is something to prune at `now`, a Unix timestamp in seconds: enabled or not.
    pub fn need_prune(&self, now: u64) -> bool {
        let state = self.core.published().state;
        self.policy().need_prune(&usage(&state), now)
    }

    /// Returns the policy in force.
    pub fn policy(&self) -> Policy {
        self.core.published.read().policy.in_force
    }

    /// Changes the policy at run time. It stays in force until the one in the options changes. `at` is a Unix timestamp
    /// in seconds and `by` who asked. Returns the policy before. See [`plan`](Self::plan) for what it would prune, and
    /// [`Policy::shortens`].
    ///
    /// # Errors
    /// [`ArchiveError::Policy`] if it is unsafe; nothing was changed.
    pub fn set_policy(&self, policy: Policy, at: u64, by: &str) -> Result<Policy, ArchiveError> {
        policy.validate(self.core.options.reorg_window)?;
        let mut writer = self.core.writer.lock();
        let mut draft = Draft::new(&self.core, &mut writer)?;
        let before = draft.policy().clone();
        if before.in_force != policy {
            let changed = Some((at, by.to_owned()));
            draft.set_policy(StoredPolicy { in_force: policy, configured: before.configured, changed });
        }
        draft.commit_if_changed()?;
        Ok(before.in_force)
    }

    /// Begins a prune. `None` if one is running.
    pub(super) fn begin_pruning(&self) -> Option<Running<'_>> {
        let began = self.core.pruning.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        began.is_ok().then(|| Running(self))
    }

    /// The caller's holds, and those of the export under the policy in force.
    pub(super) fn all_holds(&self, holds: &[HeightHold]) -> Result<Vec<HeightHold>, ArchiveError> {
        self.holds_under(&self.policy(), holds)
    }

    pub(super) fn holds_under(
        &self,
        policy: &Policy,
        holds: &[HeightHold],
    ) -> Result<Vec<HeightHold>, ArchiveError> {
        let mut all = holds.to_vec();
        if policy.export_hold {
            all.extend(consumers::holds(self)?);
        }
        Ok(all)
    }

    /// Notes how much was written, for the forecast.
    fn sample(&self, now: u64) {
        let written = self.core.published().state.totals.written_bytes;
        self.core.meter.lock().sample(now, written);
    }
}

/// What a policy is compared with.
pub(crate) fn usage(state: &State) -> Usage {
    Usage {
        estimated_bytes: state.prunable_estimate(),
        oldest: state.oldest.map(|oldest| (oldest.height, oldest.time)),
        head: state.head.map(|head| head.height),
    }
}

/// What an operator should know after a prune.
fn alerts(policy: &Policy, state: &State, pruned: &Pruning) -> Vec<Alert> {
    let mut alerts = Vec::new();
    if let Some(water) = policy.water() {
        let (used, high, target) = (state.prunable_used(), water.high, water.target);
        let head = state.head.map(|head| head.height).unwrap_or_default();
        match &pruned.stopped {
            Stop::Floor { floor } if used > high => {
                alerts.push(Alert::FloorOverBudget { used, high, target, floor: *floor, head });
            }
            Stop::Held(hold) if used > high => {
                alerts.push(Alert::HoldOverBudget { used, high, target, hold: hold.clone() });
            }
            _ => {}
        }
        let estimated = state.prunable_estimate();
        if estimated > water.hard {
            alerts.push(Alert::HardLimit { estimated, hard: water.hard, target });
        }
        for hold in &pruned.overridden {
            let boundary = state.boundary.unwrap_or_default();
            alerts.push(Alert::HoldOverridden { hold: hold.clone(), boundary, hard: water.hard });
        }
    }
    if let Some(height) = pruned.unreadable.last() {
        alerts.push(Alert::Unreadable { count: state.totals.unreadable, height: *height });
    }
    alerts
}
