//! What a job would do now, without doing it.

use std::{collections::BTreeMap, fmt};

use sapwood_rules::{Policy, Verdict, judge};
use sapwood_store::StoreError;
use sapwood_types::{Height, TxId, page::extra_pages};
use serde::Serialize;

use crate::{
    handle::PrunerHandle,
    jobs::StopReason,
    retained::readable,
    safety::{Situation, after_own_preservation},
    text,
};

/// What a job would do now.
///
/// It goes through what is due as a job does, with the same check of children. Two things it does not foresee: records whose preservation
/// is over by height, and bodies that cannot be deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// The height it would work at. Nothing before the first block.
    #[serde(serialize_with = "text::height_option")]
    pub height: Option<Height>,
    /// Up to which height deletion is safe. Nothing: nothing may go.
    #[serde(serialize_with = "text::height_option")]
    pub safe_height: Option<Height>,
    /// The hold that decides it.
    pub decided_by: Option<String>,
    /// Why a job would not delete anything now, if so.
    pub blocked: Option<StopReason>,
    /// Due records looked at, up to the greatest height that is due by age.
    pub looked_at: u64,
    /// Records it would delete.
    pub records: u64,
    /// Bytes of their pages.
    pub bytes: u64,
    /// External bodies it would delete.
    pub bodies: u64,
    /// Records that are due by age and would be kept, by reason.
    pub kept: BTreeMap<String, u64>,
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
        let mut plan = Plan {
            height: None,
            safe_height: None,
            decided_by: None,
            blocked: shared.stop_reason(None),
            looked_at: 0,
            records: 0,
            bytes: 0,
            bodies: 0,
            kept: BTreeMap::new(),
            complete: true,
        };
        let Some(situation) = Situation::with_policy(shared, height, policy).await? else { return Ok(plan) };
        plan.height = Some(situation.height);
        plan.safe_height = situation.safe.height;
        plan.decided_by = situation.decided_by();
        // Beyond what the holds let go, so that one sees what they keep.
        let Some(up_to) = situation.due_by_age() else { return Ok(plan) };
        let mut after = None;
        loop {
            let left = usize::try_from(limit - plan.looked_at).unwrap_or(usize::MAX);
            let page = shared.store.due(up_to, after, left.min(shared.options.chunk_records)).await?;
            let txids = page.items.iter().map(|record| record.txid).collect();
            let judged =
                shared.store.judge(txids, situation.context(), shared.options.check_children).await?;
            for judged in judged {
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
            after = page.next;
            if after.is_none() {
                break;
            }
            if plan.looked_at >= limit {
                plan.complete = false;
                return Ok(plan);
            }
        }
        self.plan_own_preservations(&situation, &mut plan).await?;
        Ok(plan)
    }

    /// Records whose preservation this pruner made and will end with the job.
    async fn plan_own_preservations(&self, situation: &Situation, plan: &mut Plan) -> Result<(), StoreError> {
        let own: Vec<TxId> = self.shared.preserved.lock().keys().copied().collect();
        for chunk in own.chunks(self.shared.options.chunk_records) {
            let records = readable(&*self.shared.store, chunk.to_vec(), &mut Vec::new()).await?;
            for record in records {
                let Some(master) = after_own_preservation(&self.shared, &record) else { continue };
                if judge(&master, &situation.context(), None).may_go() {
                    let pages = u64::from(1 + extra_pages(master.head.output_count));
                    plan.looked_at += 1;
                    plan.records += 1;
                    plan.bytes += master.encode().len() as u64 * pages;
                    plan.bodies += u64::from(record.head.external.is_some());
                }
            }
        }
        Ok(())
    }
}

impl Plan {
    fn keep(&mut self, reason: &str) {
        *self.kept.entry(reason.to_owned()).or_default() += 1;
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(height) = self.height else { return write!(f, "no block has been applied yet") };
        write!(f, "at {}", text::at(height))?;
        match (self.safe_height, &self.decided_by) {
            (Some(safe), Some(hold)) => write!(f, ", safe up to {} because of {hold}", text::at(safe))?,
            (None, Some(hold)) => write!(f, ", where {hold} lets nothing go")?,
            _ => {}
        }
        let (records, bytes) = (text::figure(self.records), text::bytes(self.bytes));
        writeln!(
            f,
            ", a job would delete {records} records ({bytes}) and {} external bodies",
            text::figure(self.bodies)
        )?;
        if !self.kept.is_empty() {
            writeln!(f, "due by age, but kept: {}", text::reasons(&self.kept))?;
        }
        if !self.complete {
            writeln!(f, "only {} due records were looked at; there are more", text::figure(self.looked_at))?;
        }
        match &self.blocked {
            Some(reason) => writeln!(f, "now it would delete nothing, because {reason}"),
            None => Ok(()),
        }
    }
}
