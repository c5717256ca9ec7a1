//! What retains records, by reason and by hold, from counts that the store keeps with each write. No record is read for it.

use std::collections::BTreeMap;

use sapwood_ledger::StoreError;
use sapwood_rules::{Hold, lifecycle::due_up_to};
use sapwood_types::Height;

use crate::{holds::HoldStatus, safety::Situation, service::Shared};

/// Settled, but less than the retention ago: by its own block, or by that of a child.
const NOT_DEEP_ENOUGH: &str = "not_deep_enough";

/// Every reason that [`PrunerStatus::blocked`](crate::PrunerStatus::blocked) can name.
pub const BLOCKED_REASONS: [&str; 9] = [
    "child_unmined",
    "preserved",
    "locked",
    NOT_DEEP_ENOUGH,
    "retention_off",
    "held",
    "unreadable",
    "external_body",
    "child_disagrees",
];

impl Shared {
    /// Returns how many records each reason retains that would be deleted otherwise: what stops them from settling, that they are not deep
    /// enough, a hold, and what a job found when it came to delete them. Reasons that retain none are left out.
    pub(crate) async fn blocked(
        &self,
        situation: Option<&Situation>,
    ) -> Result<BTreeMap<String, u64>, StoreError> {
        let counts = self.store.counts().await?;
        let due = situation.and_then(Situation::due_by_age);
        let never_pruned = situation.is_some_and(|situation| situation.policy.retention == 0);
        let young = if never_pruned { "retention_off" } else { NOT_DEEP_ENOUGH };
        let counted = [
            ("child_unmined", counts.child_unmined),
            ("preserved", counts.preserved),
            ("locked", counts.locked),
            (young, self.store.settled_between(after(due), Height::MAX).await?),
            ("held", self.due_after(situation, situation.and_then(Situation::settled_up_to)).await?),
        ];
        let mut blocked = self.found.lock().by_reason();
        blocked.extend(counted.into_iter().map(|(reason, records)| (reason.to_owned(), records)));
        blocked.retain(|_, records| *records > 0);
        Ok(blocked)
    }

    /// Returns every hold of a situation with how many due records it retains by itself.
    pub(crate) async fn hold_views(&self, situation: &Situation) -> Result<Vec<HoldStatus>, StoreError> {
        let mut views = Vec::with_capacity(situation.holds.len());
        for hold in &situation.holds {
            let view = HoldStatus::new(hold, situation.now, situation.safe.decided_by.as_ref());
            let retained_records = if view.expired { 0 } else { self.retained_by(situation, hold).await? };
            views.push(HoldStatus { retained_records, ..view.heard_by(&self.holds) });
        }
        Ok(views)
    }

    async fn retained_by(&self, situation: &Situation, hold: &Hold) -> Result<u64, StoreError> {
        let lets_go = hold.lets_go_up_to().and_then(|height| due_up_to(height, situation.policy.retention));
        self.due_after(Some(situation), lets_go).await
    }

    /// How many records are due by age and settled above a height, or at any if there is none.
    async fn due_after(
        &self,
        situation: Option<&Situation>,
        settled: Option<Height>,
    ) -> Result<u64, StoreError> {
        match situation.and_then(Situation::due_by_age) {
            Some(due) => self.store.settled_between(after(settled), due).await,
            None => Ok(0),
        }
    }
}

fn after(height: Option<Height>) -> Height {
    height.map_or(Height::GENESIS, Height::next)
}
