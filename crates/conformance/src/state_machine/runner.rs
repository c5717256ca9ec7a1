//! One sequence on one store, each step compared with the model; or on two stores, compared with each other, too.

use std::{collections::BTreeMap, sync::Arc};

use crate::{Store, StorePlace, model::Model};
use sapwood_rules::Policy;
use sapwood_types::{Height, Slot, TxId, TxRecord};

use super::{
    beside::{Beside, First},
    invariants,
    look::{Known, Look},
    observe::Observation,
    op::{Op, Step},
    outcome::{Histogram, Outcome, without_estimates},
};

/// `verify` reads the whole store, so it does not run after every step.
const VERIFY_EVERY: usize = 7;

/// A store and the model it must agree with.
pub struct Runner {
    store: Arc<dyn Store>,
    /// Where the store is, as long as it is used.
    _place: Box<dyn StorePlace>,
    model: Model,
    known: Known,
    steps: usize,
    beside: Option<Beside>,
    /// What came of the operations so far.
    pub histogram: Histogram,
}

/// How a step went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What kind of difference it is.
    pub kind: &'static str,
    /// The difference itself.
    pub text: String,
}

impl Problem {
    pub(super) fn new(kind: &'static str, text: impl Into<String>) -> Self {
        Problem { kind, text: text.into() }
    }

    pub(super) fn all(kind: &'static str, texts: Vec<String>) -> Result<(), Problem> {
        if texts.is_empty() { Ok(()) } else { Err(Problem::new(kind, texts.join("\n"))) }
    }
}

impl Runner {
    /// A new store at this place, and a new model.
    pub async fn new(place: Box<dyn StorePlace>, policy: Policy) -> Self {
        Runner {
            store: place.open(policy).await,
            _place: place,
            model: Model::new(policy),
            known: Known::default(),
            steps: 0,
            beside: None,
            histogram: Histogram::default(),
        }
    }

    /// The same with a second store beside it, which must answer as the first one does.
    pub fn beside(self, other: Beside) -> Self {
        Runner { beside: Some(other), ..self }
    }

    /// The model, for whoever decides on the next step.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Short names instead of hashes.
    pub fn readable(&self, text: &str) -> String {
        self.known.readable(text)
    }

    /// Does one step on both, and compares everything.
    pub async fn step(&mut self, step: &Step) -> Result<(), Problem> {
        let before = self.model.clone();
        let op = step.plan.resolve(&before);
        self.known.note(&step.plan, &op);
        let ours = op.on_model(&mut self.model);
        let theirs = op.on_store(&*self.store).await;
        self.histogram.count(op.name(), &ours, before.records() != self.model.records());

        let look = Look::new(&self.known, &self.model, step.look);
        let records = self.records(&look.txids).await?;
        if let Err(problem) = agree(&mut self.model, &ours, &theirs, &look, &records) {
            // The store may have forgotten a spender in the midst of the operation rather than after it.
            let (mut other, our_other) = again(&before, &self.model, &op);
            agree(&mut other, &our_other, &theirs, &look, &records).map_err(|_| problem)?;
            self.model = other;
        }
        self.agree_on_replaced().await?;

        self.count_what_is_there(&look);
        let mut expected = Observation::of_model(&self.model, &look);
        let seen = Observation::of_store(&*self.store, &look).await;
        let mut seen = seen.map_err(|error| Problem::new("a read failed", error))?;
        let as_seen = self.beside.is_some().then(|| seen.clone());
        for seen in [&mut expected, &mut seen] {
            without_estimates(&mut seen.judged, &self.model);
            without_estimates(&mut seen.judged_with_children, &self.model);
        }
        Problem::all("a reading differs", expected.differences(&seen, &look, &self.model))?;
        Problem::all("an index differs from the records", invariants::of_indexes(&records, &seen, &look))?;
        Problem::all("a state that must not be", invariants::of_records(&records))?;
        if let Some((beside, seen)) = self.beside.as_mut().zip(as_seen) {
            let digest = self.store.state_digest().await;
            let first = First { outcome: theirs, records, seen, digest };
            beside.step(&op, &first, &look, self.model.policy()).await?;
        }
        self.steps += 1;
        if self.steps.is_multiple_of(VERIFY_EVERY) { self.verify().await } else { Ok(()) }
    }

    /// The store may have forgotten spenders in records that were written over since.
    async fn agree_on_replaced(&mut self) -> Result<(), Problem> {
        for height in self.model.heights_with_replaced() {
            let undo = self.store.block_at(height).await;
            let undo = undo.map_err(|error| Problem::new("a read failed", error.to_string()))?;
            let replaced = undo.map(|undo| undo.replaced).unwrap_or_default();
            self.model.agree_on_replaced(height, &replaced);
        }
        Ok(())
    }

    /// What is rare has to be seen to happen, or comparing it proves nothing.
    fn count_what_is_there(&mut self, look: &Look) {
        let model = &self.model;
        let records = model.records();
        let slots = || records.values().flat_map(|record| &record.slots);
        let pruned = |slot: &Slot| slot.spender().is_some_and(|by| !records.contains_key(&by.child));
        let replaced = |height: &Height| model.undo(*height).is_some_and(|undo| !undo.replaced.is_empty());
        let seen = [
            (model.forgotten() > 0, "a spender the store has forgotten"),
            (slots().any(pruned), "a pruned child that is remembered"),
            (records.values().any(|record| record.slots.len() > 128), "a record of several pages"),
            (look.heights.iter().any(replaced), "a record that was written over"),
            (model.due(Height::MAX).len() > 2, "three due records or more"),
            (records.len() > 20, "more than twenty records"),
        ];
        seen.iter().filter(|(there, _)| *there).for_each(|(_, label)| self.histogram.seen(label));
    }

    /// Has the store check itself.
    pub async fn verify(&self) -> Result<(), Problem> {
        let report = self.store.verify(Arc::new(|_, _| {})).await;
        let report = report.map_err(|error| Problem::new("a read failed", error.to_string()))?;
        if !report.is_clean() {
            return Err(Problem::new("verify complains", report.to_string()));
        }
        match &self.beside {
            Some(beside) => beside.verify().await,
            None => Ok(()),
        }
    }

    async fn records(&self, txids: &[TxId]) -> Result<BTreeMap<TxId, TxRecord>, Problem> {
        records(&*self.store, txids).await
    }
}

/// Reads these records as far as they are there.
pub(super) async fn records(store: &dyn Store, txids: &[TxId]) -> Result<BTreeMap<TxId, TxRecord>, Problem> {
    let found = store.get_many(txids.to_vec()).await;
    let found = found.map_err(|error| Problem::new("a read failed", error.to_string()))?;
    if found.len() != txids.len() {
        let text = format!("{} records were asked for, {} came back", txids.len(), found.len());
        return Err(Problem::new("a record differs", text));
    }
    let mut records = BTreeMap::new();
    for (txid, record) in txids.iter().zip(found) {
        let record = record.map_err(|error| Problem::new("a read failed", error.to_string()))?;
        records.extend(record.map(|record| (*txid, record)));
    }
    Ok(records)
}

/// The same operation on a model that had forgotten beforehand what it has forgotten now.
fn again(before: &Model, now: &Model, op: &Op) -> (Model, Outcome) {
    let mut other = before.clone();
    other.forget_as(now);
    let outcome = op.on_model(&mut other);
    (other, outcome)
}

/// Compares what came of an operation, and all records after it.
fn agree(
    model: &mut Model,
    ours: &Outcome,
    theirs: &Outcome,
    look: &Look,
    records: &BTreeMap<TxId, TxRecord>,
) -> Result<(), Problem> {
    let mut differing = Vec::new();
    for txid in &look.txids {
        if let Some(record) = records.get(txid) {
            model.agree_on_forgotten(record);
        }
        let (our, their) = (model.get(*txid), records.get(txid));
        if our.as_ref() != their {
            differing.push(format!("{txid}: expected {our:?}, got {their:?}"));
        }
    }
    if ours != theirs {
        return Err(Problem::new("another outcome", format!("expected {ours:?}\n     got {theirs:?}")));
    }
    Problem::all("a record differs", differing)
}
