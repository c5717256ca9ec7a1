//! What a job would do now, without doing it.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
};

use sapwood_ledger::{PruneFrom, PruneRequest, StoreError};
use sapwood_rules::{Policy, Verdict, judge};
use sapwood_types::{Height, TxId, TxRecord, page::further_pages};
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
    jobs::StopReason,
    retained::readable,
    safety::{Situation, after_preservation},
    text,
};

/// What a job would do now.
///
/// It goes through what is due as a job does, with the same check of children, and through the preservations that a job ends. Bodies that
/// cannot be deleted it does not foresee.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "schema", derive(ToSchema))]
pub struct Plan {
    /// The height it would work at. `None` before the first block.
    pub height: Option<Height>,
    /// Up to which height deletion is safe. `None`: no record is prunable.
    pub safe_height: Option<Height>,
    /// The hold that decides it. `None`: it is the height itself.
    pub decided_by: Option<String>,
    /// Why a job would delete no record now. `None`: it would delete.
    #[cfg_attr(feature = "serde", serde(default, with = "stopped"))]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Stopped>))]
    pub blocked: Option<StopReason>,
    /// Due records looked at, up to the greatest height that is due by age, and those whose preservation ends with the job.
    pub looked_at: u64,
    /// Records it would delete.
    pub records: u64,
    /// Bytes of their pages.
    pub bytes: u64,
    /// External bodies it would delete.
    pub bodies: u64,
    /// Records that are due by age and would be retained, by reason.
    pub retained: BTreeMap<String, u64>,
    /// Whether everything was looked at. If not, there is more than the limit allowed to look at.
    pub complete: bool,
}

impl PrunerHandle {
    /// What a job at a height, or at that of the chain, would do now. Looks at no more than `limit` due records. Deletes nothing.
    pub async fn plan(&self, height: Option<Height>, limit: u64) -> Result<Plan, StoreError> {
        self.plan_with(self.policy(), height, limit).await
    }

    /// What a job would do now if another policy were in force. Deletes nothing.
    pub async fn plan_with(
        &self,
        policy: Policy,
        height: Option<Height>,
        limit: u64,
    ) -> Result<Plan, StoreError> {
        let shared = &self.shared;
        let mut plan = Plan { blocked: shared.nothing_deleted(), complete: true, ..Plan::default() };
        let Some(situation) = Situation::with_policy(shared, height, policy).await? else { return Ok(plan) };
        plan.height = Some(situation.height);
        plan.safe_height = situation.safe.height;
        plan.decided_by = situation.decided_by();
        // Beyond what the holds let go, so that one sees what they keep.
        let Some(up_to) = situation.due_by_age() else { return Ok(plan) };
        let mut from = PruneFrom::Oldest;
        loop {
            let left = usize::try_from(limit - plan.looked_at).unwrap_or(usize::MAX);
            let limit_of_page = left.min(shared.options.chunk_records);
            let request = PruneRequest {
                check_children: shared.options.child_check,
                dry_run: true,
                ..PruneRequest::settled(from, up_to, limit_of_page, situation.context())
            };
            let outcome = shared.store.prune(request).await?;
            for judged in outcome.judged {
                plan.looked_at += 1;
                match judged.verdict {
                    Verdict::MayGo { .. } if judged.external.is_some() && shared.bodies.is_none() => {
                        plan.keep("external_body")
                    }
                    Verdict::MayGo { .. } => {
                        plan.records += 1;
                        plan.bytes += judged.bytes;
                        plan.bodies += u64::from(judged.external.is_some());
                    }
                    Verdict::Kept(reason) => plan.keep(reason.label()),
                    Verdict::Gone => {}
                }
            }
            from = match outcome.next {
                Some(next) => PruneFrom::After(next),
                None => break,
            };
            if plan.looked_at >= limit {
                plan.complete = false;
                return Ok(plan);
            }
        }
        self.plan_preservations(&situation, limit, &mut plan).await?;
        Ok(plan)
    }

    /// Records whose preservation ends with the job: it is over, or this pruner made it and its reason is gone.
    async fn plan_preservations(
        &self,
        situation: &Situation,
        limit: u64,
        plan: &mut Plan,
    ) -> Result<(), StoreError> {
        let own: Vec<TxId> = self.shared.preserved.lock().keys().copied().collect();
        for chunk in own.chunks(self.shared.options.chunk_records) {
            self.plan_ended(situation, chunk.to_vec(), plan).await?;
        }
        let own: HashSet<TxId> = own.into_iter().collect();
        let mut after = None;
        loop {
            let page = self
                .shared
                .store
                .preserved(situation.height, after, self.shared.options.chunk_records)
                .await?;
            let others = page.items.into_iter().filter(|txid| !own.contains(txid)).collect();
            self.plan_ended(situation, others, plan).await?;
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
            if plan.looked_at >= limit {
                plan.complete = false;
                return Ok(());
            }
        }
    }

    async fn plan_ended(
        &self,
        situation: &Situation,
        txids: Vec<TxId>,
        plan: &mut Plan,
    ) -> Result<(), StoreError> {
        for record in readable(&self.shared.store, txids, &mut Vec::new()).await? {
            let ended = after_preservation(&self.shared, &record, situation.height);
            let may_go = |ended: &TxRecord| judge(ended.view(), &situation.context(), None).may_go();
            let Some(ended) = ended.filter(may_go) else { continue };
            let pages = u64::from(1 + further_pages(ended.head.output_count));
            plan.looked_at += 1;
            plan.records += 1;
            plan.bytes += ended.to_pages().0.bytes().len() as u64 * pages;
            plan.bodies += u64::from(record.head.external.is_some());
        }
        Ok(())
    }
}

impl Plan {
    fn keep(&mut self, reason: &str) {
        *self.retained.entry(reason.to_owned()).or_default() += 1;
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(height) = self.height else { return write!(f, "no block has been applied yet") };
        write!(f, "at {}", text::at(height))?;
        match (self.safe_height, &self.decided_by) {
            (Some(safe), Some(hold)) => write!(f, ", safe up to {} because of {hold}", text::at(safe))?,
            (None, Some(hold)) => write!(f, ", where {hold} retains everything")?,
            _ => {}
        }
        let (records, bytes) = (text::counted(self.records, "record"), text::bytes(self.bytes));
        write!(f, ", a job would delete {records} ({bytes})")?;
        if self.bodies > 0 {
            write!(f, " and {} outside", text::counted(self.bodies, "body"))?;
        }
        writeln!(f)?;
        if !self.retained.is_empty() {
            writeln!(f, "due by age, but retained: {}", text::reasons(&self.retained))?;
        }
        if !self.complete {
            let looked_at = text::counted(self.looked_at, "due record");
            writeln!(f, "only {looked_at} looked at; there are more")?;
        }
        match &self.blocked {
            Some(reason) => writeln!(f, "now it would delete none, because {reason}"),
            None => Ok(()),
        }
    }
}
