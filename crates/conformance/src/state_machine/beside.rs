//! A second store beside the first: the same operations, the same answers, the same state.

use std::{collections::BTreeMap, sync::Arc};

use sapwood_ledger::StoreError;
use sapwood_rules::Policy;
use sapwood_types::{TxId, TxRecord};

use super::{
    look::Look,
    observe::Observation,
    op::Op,
    outcome::Outcome,
    runner::{Problem, records},
};
use crate::{Store, StorePlace};

/// The second store is opened again after this many steps, so that nothing of it lives in memory alone.
const REOPEN_EVERY: usize = 20;

/// A store that is compared with another one.
pub struct Beside {
    /// `None` only while it is opened again.
    store: Option<Arc<dyn Store>>,
    place: Box<dyn StorePlace>,
    steps: usize,
}

/// What the first store did and shows after a step.
pub(super) struct First {
    pub(super) outcome: Outcome,
    pub(super) records: BTreeMap<TxId, TxRecord>,
    pub(super) seen: Observation,
    pub(super) digest: Result<[u8; 32], StoreError>,
}

impl Beside {
    /// A new store at this place.
    pub async fn new(place: Box<dyn StorePlace>, policy: Policy) -> Self {
        let store = Some(place.open(policy).await);
        Self { store, place, steps: 0 }
    }

    fn store(&self) -> &dyn Store {
        self.store.as_deref().expect("a store that is open")
    }

    /// Does the same operation, and compares what came of it and all that can be seen with the first store.
    pub(super) async fn step(
        &mut self,
        op: &Op,
        first: &First,
        look: &Look,
        policy: Policy,
    ) -> Result<(), Problem> {
        const KIND: &str = "the two stores differ";
        let outcome = op.clone().on_store(self.store()).await;
        if outcome != first.outcome {
            let text =
                format!("{}: {:?} from the first,\n{outcome:?} from the second", op.name(), first.outcome);
            return Err(Problem::new(KIND, text));
        }
        self.steps += 1;
        if self.steps.is_multiple_of(REOPEN_EVERY) {
            self.store = None;
            self.store = Some(self.place.open(policy).await);
        }
        let found = records(self.store(), &look.txids).await?;
        let differing = look.txids.iter().filter(|txid| first.records.get(txid) != found.get(txid));
        let text = |txid: &TxId| format!("{txid}: {:?}, {:?}", first.records.get(txid), found.get(txid));
        Problem::all(KIND, differing.map(text).collect())?;
        let seen = Observation::of_store(self.store(), look).await;
        let seen = seen.map_err(|error| Problem::new("a read failed", error))?;
        if seen != first.seen {
            return Err(Problem::new(
                KIND,
                format!("{:?} from the first,\n{seen:?} from the second", first.seen),
            ));
        }
        let digest = self.store().state_digest().await;
        let same = digest == first.digest;
        if same { Ok(()) } else { Err(Problem::new(KIND, format!("{:?}, {digest:?}", first.digest))) }
    }

    /// Has the second store check itself.
    pub(super) async fn verify(&self) -> Result<(), Problem> {
        let report = self.store().verify(Arc::new(|_, _| {})).await;
        let report = report.map_err(|error| Problem::new("a read failed", error.to_string()))?;
        if report.is_clean() { Ok(()) } else { Err(Problem::new("verify complains", report.to_string())) }
    }
}
