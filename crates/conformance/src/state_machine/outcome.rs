//! What came of an operation, to be compared and counted.

use std::{collections::BTreeMap, fmt};

use sapwood_ledger::{
    Applied, AppliedBlocks, ApplyError, BatchError, BatchResult, ConflictError, CreateError, DeleteError,
    FreezeError, InputRefusal, Judged, MineError, PreserveError, PruneOutcome, ReassignError, RollbackError,
    RolledBack, SpendError, StoreError, UnspendError, error::TxProblem,
};
use sapwood_types::TxId;

use crate::model::Model;

/// What came of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the answer of one kind of call")]
pub enum Outcome {
    Create(BatchResult<(), CreateError>),
    Spend(BatchResult<(), SpendError>),
    Unspend(BatchResult<(), UnspendError>),
    Mine(BatchResult<(), MineError>),
    Conflict(BatchResult<Vec<TxId>, ConflictError>),
    Resolve(Result<Vec<TxId>, ConflictError>),
    Freeze(BatchResult<(), FreezeError>),
    Reassign(BatchResult<(), ReassignError>),
    Preserve(BatchResult<usize, PreserveError>),
    Delete(BatchResult<(), DeleteError>),
    Apply(Result<Applied, ApplyError>),
    ApplyRun(AppliedBlocks),
    RollBack(Result<RolledBack, RollbackError>),
    Policy(bool),
    Prune(Result<PruneOutcome, StoreError>),
    Count(Result<u64, StoreError>),
}

impl Outcome {
    /// A rollback. In which order its lists come is not promised: an undo record does not keep the order in which known
    /// and new transactions followed each other.
    pub fn roll_back(mut result: Result<RolledBack, RollbackError>) -> Self {
        if let Ok(done) = &mut result {
            done.unmined.sort();
            done.forgotten.sort();
            done.conflicting.sort();
        }
        Outcome::RollBack(result)
    }

    /// Deletions. Their bytes are not compared: a record may be measured before or after another one of the same call has
    /// gone from its list of losers. `judge` compares them.
    pub fn pruned(mut result: Result<PruneOutcome, StoreError>) -> Self {
        result.iter_mut().flat_map(|outcome| &mut outcome.judged).for_each(|judged| judged.bytes = 0);
        Outcome::Prune(result)
    }

    /// Whether nothing was refused.
    pub fn is_ok(&self) -> bool {
        self.labels().iter().all(|label| label.starts_with(OK))
    }

    /// A short name for what came of each item.
    pub fn labels(&self) -> Vec<String> {
        match self {
            Outcome::Create(result) => batch(result, |error| match error {
                CreateError::Inputs { inputs, .. } => of_inputs(inputs),
                error => name(error),
            }),
            Outcome::Spend(result) => batch(result, |error| match error {
                SpendError::Inputs { inputs, .. } => of_inputs(inputs),
                error => name(error),
            }),
            Outcome::Unspend(result) => batch(result, name),
            Outcome::Mine(result) => batch(result, name),
            Outcome::Conflict(result) => batch(result, of_conflict),
            Outcome::Resolve(result) => single(result, of_conflict),
            Outcome::Freeze(result) => batch(result, name),
            Outcome::Reassign(result) => batch(result, name),
            Outcome::Preserve(result) => batch(result, name),
            Outcome::Delete(result) => batch(result, name),
            Outcome::Apply(result) => match result {
                Ok(applied) if !applied.conflicting.is_empty() => vec!["ok, with losers".into()],
                result => single(result, of_apply),
            },
            Outcome::ApplyRun(run) => match &run.refused {
                None => vec![OK.into()],
                Some(error) => vec![format!("after {}: {}", run.applied.len(), of_apply(error))],
            },
            Outcome::RollBack(result) => match result {
                Ok(done) if done.last.is_none() => vec!["ok, to before the first block".into()],
                Ok(done) => vec![format!("ok, {} blocks", done.blocks)],
                Err(RollbackError::Tx { problem, .. }) => vec![format!("Tx: {}", of_conflict(problem))],
                Err(error) => vec![name(error)],
            },
            Outcome::Policy(true) => vec![OK.into()],
            Outcome::Policy(false) => vec!["refused".into()],
            Outcome::Prune(Ok(outcome)) => {
                outcome.judged.iter().map(|judged| of_verdict(&judged.verdict)).collect()
            }
            Outcome::Prune(Err(error)) => vec![name(error)],
            Outcome::Count(Ok(0)) => vec!["ok, none".into()],
            Outcome::Count(result) => single(result, name),
        }
    }
}

/// How many bytes a record of several pages has may be estimated by its first page: to read the others only for that would
/// not be worth it.
pub fn without_estimates(judged: &mut [Judged], model: &Model) {
    for judged in judged {
        let pages = model.records().get(&judged.txid).map_or(1, |record| record.slots.len().div_ceil(128));
        if pages > 1 {
            judged.bytes = 0;
        }
    }
}

const OK: &str = "ok";

/// The name of an enum's variant.
fn name(value: &impl fmt::Debug) -> String {
    format!("{value:?}").chars().take_while(|character| character.is_alphanumeric()).collect()
}

fn batch<T, E>(result: &BatchResult<T, E>, label: impl Fn(&E) -> String) -> Vec<String> {
    match result {
        Ok(_) => vec![OK.into()],
        Err(BatchError::Store(error)) => vec![name(error)],
        Err(BatchError::Items { failed, total }) => {
            let ok = vec![OK.to_owned(); total - failed.len()];
            failed.iter().map(|(_, error)| label(error)).chain(ok).collect()
        }
    }
}

fn single<T, E>(result: &Result<T, E>, label: impl Fn(&E) -> String) -> Vec<String> {
    vec![result.as_ref().map_or_else(label, |_| OK.into())]
}

fn of_inputs(inputs: &[InputRefusal]) -> String {
    format!("Inputs: {}", inputs.first().map_or_else(String::new, |input| name(&input.refusal)))
}

fn of_conflict(error: &ConflictError) -> String {
    match error {
        ConflictError::Inputs { inputs, .. } => of_inputs(inputs),
        error => name(error),
    }
}

fn of_apply(error: &ApplyError) -> String {
    let ApplyError::Tx { problem, .. } = error else { return name(error) };
    match &**problem {
        TxProblem::Input(input) => format!("Input: {}", name(&input.refusal)),
        TxProblem::Rival(error) => format!("Rival: {}", of_conflict(error)),
        problem => name(problem),
    }
}

fn of_verdict(verdict: &sapwood_rules::Verdict) -> String {
    match verdict {
        sapwood_rules::Verdict::MayGo { .. } => "ok, gone".into(),
        sapwood_rules::Verdict::Kept(reason) => format!("kept: {}", name(reason)),
        sapwood_rules::Verdict::Gone => "Gone".into(),
    }
}

/// How often each operation came out how.
#[derive(Clone, Debug, Default)]
pub struct Histogram(BTreeMap<&'static str, BTreeMap<String, u64>>);

impl Histogram {
    /// Counts an outcome. `changed` says whether any record is another one afterwards.
    pub fn count(&mut self, operation: &'static str, outcome: &Outcome, changed: bool) {
        let outcomes = self.0.entry(operation).or_default();
        for mut label in outcome.labels() {
            if label == OK && !changed {
                label = "ok, nothing to do".into();
            }
            *outcomes.entry(label).or_default() += 1;
        }
    }

    /// Counts something else that was seen.
    pub fn seen(&mut self, label: &str) {
        *self.0.entry("seen after a step").or_default().entry(format!("{OK}, {label}")).or_default() += 1;
    }

    /// Adds another one.
    pub fn add(&mut self, other: &Histogram) {
        for (operation, outcomes) in &other.0 {
            for (label, count) in outcomes {
                *self.0.entry(operation).or_default().entry(label.clone()).or_default() += count;
            }
        }
    }

    /// The operations, each with how often it was fine and how often it was not.
    pub fn totals(&self) -> BTreeMap<&'static str, (u64, u64)> {
        let sum = |outcomes: &BTreeMap<String, u64>, fine: bool| {
            let counted = outcomes.iter().filter(|(label, _)| label.starts_with(OK) == fine);
            counted.map(|(_, count)| count).sum()
        };
        self.0.iter().map(|(name, outcomes)| (*name, (sum(outcomes, true), sum(outcomes, false)))).collect()
    }
}

impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (operation, outcomes) in &self.0 {
            let (fine, refused) = self.totals()[operation];
            writeln!(f, "{operation}: {fine} fine, {refused} refused")?;
            for (label, count) in outcomes {
                writeln!(f, "    {count:>8}  {label}")?;
            }
        }
        Ok(())
    }
}
