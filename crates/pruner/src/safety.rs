//! Up to which height deletion is safe right now, and what records are judged by.

use sapwood_ledger::StoreError;
use sapwood_rules::{
    Hold, KeepReason, Policy, PruneContext, SafeHeight, Verdict, lifecycle::due_up_to, safe_height,
    settled_at,
};
use sapwood_types::{Height, TxRecord};

use crate::{
    holds::{PERSISTER, REORG_WINDOW},
    service::Shared,
    text,
};

/// The chain, the holds and the policy at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Situation {
    /// The height of the last applied block.
    pub(crate) tip: Height,
    /// The height to work at: the one asked for, but not above the chain.
    pub(crate) height: Height,
    pub(crate) policy: Policy,
    /// Every hold, that of the reorganisation window first.
    pub(crate) holds: Vec<Hold>,
    pub(crate) safe: SafeHeight,
    pub(crate) now: u64,
}

impl Situation {
    /// The situation with a height asked for. Nothing before the first block.
    pub(crate) async fn of(shared: &Shared, asked: Option<Height>) -> Result<Option<Self>, StoreError> {
        let policy = *shared.policy.read();
        Self::with_policy(shared, asked, policy).await
    }

    /// The situation as it would be under a policy.
    pub(crate) async fn with_policy(
        shared: &Shared,
        asked: Option<Height>,
        policy: Policy,
    ) -> Result<Option<Self>, StoreError> {
        let Some(last) = shared.store.last_applied().await? else { return Ok(None) };
        let undoable_from = shared.store.undoable_from().await?.unwrap_or(Height::GENESIS);
        let tip = last.height;
        let height = asked.map_or(tip, |asked| asked.min(tip));
        let mut holds = vec![reorg_window(undoable_from, &policy)];
        holds.extend(shared.holds.all());
        let now = shared.clock.now();
        let safe = safe_height(height, &holds, now);
        Ok(Some(Self { tip, height, policy, holds, safe, now }))
    }

    pub(crate) fn context(&self) -> PruneContext {
        PruneContext { current: self.height, safe: self.safe.height, retention: self.policy.retention }
    }

    /// The greatest settled height that may go; nothing if none may.
    ///
    /// A record's own block lies at or below the height at which it settled, and that at or below what is persisted: the rule
    /// already says so, as what is due at the persisted height settled a retention before it. It is said again here, because it is
    /// the one thing that a mistake in the rule could not be made good after.
    pub(crate) fn settled_up_to(&self) -> Option<Height> {
        let up_to = due_up_to(self.safe.height?, self.policy.retention)?;
        match self.persister() {
            None => Some(up_to),
            Some(persister) => persister.lets_go_up_to().map(|persisted| persisted.min(up_to)),
        }
    }

    /// The hold of the persister, if one is registered.
    pub(crate) fn persister(&self) -> Option<&Hold> {
        self.holds.iter().find(|hold| hold.name == PERSISTER)
    }

    /// The greatest settled height that is due by age alone.
    pub(crate) fn due_by_age(&self) -> Option<Height> {
        due_up_to(self.height, self.policy.retention)
    }

    /// A verdict in words. The ledger knows heights only; where a hold decides, it is named here.
    pub(crate) fn in_words(&self, verdict: &Verdict) -> String {
        match (verdict, &self.safe.decided_by) {
            (Verdict::Kept(KeepReason::Held { due_at, .. }), Some(hold)) => {
                format!(
                    "kept because hold {} of {} does not let go of height {due_at}",
                    hold.name, hold.owner
                )
            }
            _ => verdict.to_string(),
        }
    }

    pub(crate) fn decided_by(&self) -> Option<String> {
        self.safe.decided_by.as_ref().map(|hold| hold.name.clone())
    }
}

/// What settled in a block that can be taken back can be unsettled by a reorganisation, so it must not go. The store would not let it; as
/// a hold it is seen. Holds are about the heights at which records are due, which is a retention later.
fn reorg_window(undoable_from: Height, policy: &Policy) -> Hold {
    Hold {
        name: REORG_WINDOW.into(),
        owner: "chain".into(),
        keep_from: Some(undoable_from.plus(policy.retention)),
        expires: None,
        reason: format!(
            "blocks from {} on can be taken back, and what settled there is due {} blocks later",
            text::at(undoable_from),
            text::figure(policy.retention)
        ),
    }
}

/// The record as it will be after the next job at a height, if that ends its preservation: one that is over by then, or one that this
/// pruner made and every child is mined now. `None` if it stays preserved, or is not.
pub(crate) fn after_preservation(shared: &Shared, record: &TxRecord, height: Height) -> Option<TxRecord> {
    let until = record.head.preserve_until?;
    let own = shared.preserved.lock().get(&record.txid) == Some(&until);
    let mut ended = record.clone();
    ended.head.preserve_until = None;
    (until <= height || (own && settled_at(ended.view()).is_some())).then_some(ended)
}
