//! Random schedules of everything that can happen to a pruner, with a judge that knows the whole history.
//!
//! Blocks, reorganisations, late and never-mined children, conflicts, restarts, a persister that lags and comes back, holds, an object store
//! that fails, and prunes at any moment. After each step nothing that is needed may be gone; once all is quiet, everything that may go
//! must be.
//!
//! `SAPWOOD_SCHEDULES` (400) says how many; `SAPWOOD_SEED` (1) where to start.

mod history;
mod objects;

use std::{
    collections::BTreeSet,
    ops::Deref,
    panic::AssertUnwindSafe,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::FutureExt;
use sapwood_chain::{Chain, ChainError, ChainOptions, ChainState, Event, Events, events::BlocksRolledBack};
use sapwood_ledger::{ApplyOptions, CreateRequest, Ledger, LedgerOptions, RollbackMode};
use sapwood_pruner::{
    Bodies, Consumer, ManualClock, Pacing, Pruner, PrunerHandle, PrunerOptions, holds::PERSISTER,
};
use sapwood_rules::{Hold, Policy};
use sapwood_types::{Block, BlockHash, BlockMark, Height, OutPoint, Tx, TxId};

use self::{
    history::{History, View, spendable},
    objects::Objects,
};
use crate::{
    EngineFactory, Place,
    fixtures::{burn, child, coin},
    state_machine::rng::Rng,
};

const STEPS: usize = 60;
/// What the clock shows, a Unix timestamp.
const NOW: u64 = 1_000_000;

struct Simulation {
    rng: Rng,
    seed: u64,
    made: u64,
    place: Box<dyn Place>,
    ledger_options: LedgerOptions,
    node: Option<Node>,
    objects: Arc<Objects>,
    bodies: Bodies,
    options: PrunerOptions,
    history: History,
    /// What was done, for messages.
    log: Vec<String>,
}

/// What ends and begins with a restart.
struct Node {
    store: Ledger,
    /// What stores transactions and applies blocks, bodies first.
    chain: Chain,
    events: Events,
    pruner: PrunerHandle,
}

impl Node {
    async fn start(
        place: &dyn Place,
        ledger: &LedgerOptions,
        bodies: &Bodies,
        options: &PrunerOptions,
    ) -> Self {
        let store = Ledger::open(place.open().unwrap(), options.policy, ledger.clone()).unwrap();
        let events = Events::default();
        events.enter(ChainState::Running);
        let rollback = ChainOptions { rollback: RollbackMode::Node, ..ChainOptions::default() };
        let keeper = Arc::new(bodies.clone());
        let chain = Chain::with_bodies(store.clone(), events.clone(), rollback, keeper);
        let clock = Arc::new(ManualClock::at(NOW));
        let pruner =
            Pruner::start(store.clone(), events.clone(), Some(bodies.clone()), options.clone(), clock);
        let pruner = pruner.await.unwrap();
        Node { store, chain, events, pruner }
    }
}

impl Deref for Simulation {
    type Target = Node;
    fn deref(&self) -> &Node {
        self.node.as_ref().expect("a node that runs")
    }
}

/// A pruner that does nothing by itself but once at its start, and never pauses.
fn pruner_options(policy: Policy) -> PrunerOptions {
    let pacing = Pacing { busy_share: 1.0, quiet_after: Duration::ZERO, ..Pacing::default() };
    PrunerOptions { look_every: None, pacing, ..PrunerOptions::with_policy(policy) }
}

impl Simulation {
    async fn new(seed: u64, place: Box<dyn Place>, ledger_options: LedgerOptions) -> Self {
        let mut rng = Rng::new(seed);
        let retention = rng.between(1, 8);
        let policy = Policy {
            reorg_window: rng.between(1, retention),
            unmined_retention: rng.between(0, 4),
            parent_preservation: rng.between(1, 12),
            ..Policy::with_retention(retention)
        };
        let options = PrunerOptions {
            chunk_records: rng.between(1, 6) as usize,
            parallel_chunks: rng.between(1, 4) as usize,
            records_per_job: rng.between(1, 60).into(),
            child_check: rng.chance(80),
            ..pruner_options(policy)
        };
        let objects = Arc::new(Objects::default());
        let bodies = Bodies::over(Arc::clone(&objects) as _, "the simulation");
        let node = Some(Node::start(&*place, &ledger_options, &bodies, &options).await);
        let history = History::new(policy);
        let log = vec![format!("{options:?}")];
        Simulation { rng, seed, made: 0, place, ledger_options, node, objects, bodies, options, history, log }
    }

    fn label(&mut self) -> String {
        self.made += 1;
        format!("{} {}", self.seed, self.made)
    }

    /// A new transaction that spends these outputs.
    fn new_tx(&mut self, inputs: &[OutPoint]) -> Tx {
        let label = self.label();
        let outputs = self.rng.between(1, 3);
        let parents: Vec<(Tx, u32)> =
            inputs.iter().map(|input| (self.history.txs[&input.txid].clone(), input.vout)).collect();
        let of: Vec<(&Tx, u32)> = parents.iter().map(|(tx, vout)| (tx, *vout)).collect();
        let tx = match self.rng.below(10) {
            _ if inputs.is_empty() => coin(&label, outputs),
            0..=5 => child(&label, &of, outputs),
            _ => burn(&label, &of),
        };
        // Some have their body outside.
        if self.rng.chance(20) { Tx { size: 40_000, ..tx } } else { tx }
    }

    async fn block(&mut self) {
        let view = self.history.view();
        let revive = self.rng.chance(10);
        let mut txs = self.history.ready(&view, &mut self.rng, 70, revive);
        let mut spent: BTreeSet<OutPoint> =
            txs.iter().flat_map(|tx| &tx.inputs).map(|input| input.outpoint).collect();
        let rivals = self.rng.chance(30);
        let mut coins = self.history.coins(&view, rivals);
        coins.retain(|coin| !spent.contains(coin));
        for _ in 0..self.rng.between(0, 4) {
            let mut inputs = Vec::new();
            for _ in 0..self.rng.between(0, 2) {
                if let Some(place) = coins.len().checked_sub(1) {
                    inputs.push(coins.swap_remove(self.rng.below(place as u64 + 1) as usize));
                }
            }
            spent.extend(&inputs);
            let tx = self.new_tx(&inputs);
            self.history.txs.insert(tx.txid, tx.clone());
            coins.extend(spendable(&tx).filter(|_| self.rng.chance(50)));
            txs.push(tx);
        }
        self.apply(txs).await;
    }

    async fn apply(&mut self, txs: Vec<Tx>) {
        let (height, parent) =
            self.history.tip().map_or((10, BlockHash::default()), |(at, hash)| (at + 1, hash));
        let hash = BlockHash(Rng::new(self.seed.rotate_left(17) ^ self.made ^ u64::from(height)).bytes());
        self.made += 1;
        let block = Block { height: Height(height), hash, parent, time: 0, txs: txs.clone() };
        let block = Arc::new(block);
        let applied = loop {
            // A chain takes no block without transactions; a store does.
            let applied = match txs.is_empty() {
                true => self
                    .store
                    .apply_block(Arc::clone(&block), ApplyOptions::default())
                    .await
                    .map_err(Into::into),
                false => {
                    self.chain.apply(Arc::clone(&block), ApplyOptions::default()).await.map(Option::unwrap)
                }
            };
            match applied {
                Ok(applied) => break applied,
                // Nothing was written, and the same block is fine once the object store is.
                Err(ChainError::Body { txid, .. }) if self.objects.failing.swap(false, Ordering::Relaxed) => {
                    self.log.push(format!("no body for {txid}: objects fail no longer"));
                    let last = self.store.last_applied().await.unwrap().map(|last| last.hash);
                    assert_eq!(last, self.history.tip().map(|(_, hash)| hash), "something was written");
                }
                Err(error) => panic!("a block that is right was refused: {error}"),
            }
        };
        self.log.push(format!("block {height} of {}, {} lost", txs.len(), applied.conflicting.len()));
        if txs.is_empty() {
            self.events.tell(Event::MinedSet(applied.block));
        }
        self.history.applied(height, hash, txs, applied.conflicting);
    }

    /// An unmined transaction, perhaps with its body outside.
    async fn mempool(&mut self) {
        let view = self.history.view();
        let Some((tip, _)) = self.history.tip() else { return };
        let mut coins = self.history.coins(&view, false);
        let waiting = self.history.txs.values().filter(|tx| self.history.is_waiting(&view, &tx.txid));
        coins.extend(waiting.flat_map(spendable).filter(|outpoint| !view.claimed.contains_key(outpoint)));
        let inputs: Vec<OutPoint> = self.rng.pick(&coins).into_iter().collect();
        let tx = self.new_tx(&inputs);
        let created = self.chain.create(vec![CreateRequest::unmined(tx.clone())], Height(tip)).await;
        if let Err(ChainError::Body { txid, .. }) = created {
            assert!(
                self.objects.failing.load(Ordering::Relaxed),
                "no body for {txid}, but objects do not fail"
            );
            assert_eq!(self.store.get(txid).await, Ok(None), "a record without its body");
            return self.log.push(format!("no body for {txid}, so no record"));
        }
        created.unwrap().unwrap();
        self.log.push(format!("unmined {} of {} spends {inputs:?}", tx.txid, tx.size));
        self.history.txs.insert(tx.txid, tx);
    }

    /// Takes back blocks, as many as the window allows, and applies others.
    async fn reorganise(&mut self) {
        let Some((tip, _)) = self.history.tip() else { return };
        let target = self.rng.between(self.history.floor, tip);
        if target == tip {
            return;
        }
        self.events.enter(ChainState::Reorganising);
        if self.history.holds.contains_key(PERSISTER) {
            // What is persisted goes back with the blocks: look before, so that what has gone is judged by what held then.
            self.idle().await;
            self.check("before the reorganisation").await;
        }
        let hash = self.history.chain[&target].0;
        let rolled_back = self.store.roll_back(Some((Height(target), hash)), RollbackMode::Node).await;
        let rolled_back =
            rolled_back.unwrap_or_else(|error| panic!("a rollback inside the window failed: {error}"));
        assert_eq!(rolled_back.conflicting, [], "nothing loses by a rollback without coinbases");
        self.log.push(format!("back to {target}"));
        self.history.rolled_back(target);
        let mark = |height, hash| BlockMark { id: 0, height: Height(height), hash };
        let blocks = rolled_back.blocks;
        let event = BlocksRolledBack { from: mark(tip, hash), to: Some(mark(target, hash)), blocks };
        self.events.tell(Event::RolledBack(event));
        if let Some(Some(persisted)) = self.history.holds.get_mut(PERSISTER) {
            *persisted = (*persisted).min(target);
            let keep_from = Some(Height(*persisted + 1));
            // It may be less: an event from before the persister registered, heard only now, lowers it too, which keeps more.
            while self.pruner.holds().get(PERSISTER).unwrap().keep_from > keep_from {
                tokio::task::yield_now().await;
            }
        }
        for _ in 0..self.rng.between(0, tip - target + 1) {
            self.block().await;
        }
        self.events.enter(ChainState::Running);
    }

    async fn persister(&mut self) {
        let tip = self.history.tip().map_or(0, |(tip, _)| tip);
        let registered = self.history.holds.contains_key(PERSISTER);
        match self.rng.below(10) {
            0 if registered => {
                self.pruner.holds().release(PERSISTER).await.unwrap();
                self.history.holds.remove(PERSISTER);
            }
            1 if !registered => {
                self.pruner.register(Consumer::Persister).await.unwrap();
                // What a job under way has deleted by now, it may have. From here on nothing may go.
                self.check("when the persister registers").await;
                self.history.holds.insert(PERSISTER.into(), None);
            }
            _ if registered => {
                let before = self.history.holds[PERSISTER].unwrap_or(0);
                let persisted = self.rng.between(before.min(tip), tip);
                self.log.push(format!("persisted {persisted}"));
                self.history.holds.insert(PERSISTER.into(), Some(persisted));
                self.pruner.report_persisted(Height(persisted)).await.unwrap();
            }
            _ => {}
        }
    }

    async fn hold(&mut self) {
        let name = format!("operator-{}", self.rng.below(3));
        if self.history.holds.remove(&name).is_some() {
            self.pruner.holds().release(&name).await.unwrap();
            return;
        }
        let tip = self.history.tip().map_or(0, |(tip, _)| tip);
        let keep_from = self.rng.chance(80).then(|| self.rng.between(1, tip + 10));
        let hold = Hold {
            name: name.clone(),
            owner: "simulation".into(),
            keep_from: keep_from.map(Height),
            expires: None,
            reason: "it wants to".into(),
        };
        self.pruner.holds().set(hold).await.unwrap();
        // What a job under way has deleted by now, it may have. From here on the hold counts.
        self.check("when a hold is set").await;
        self.log.push(format!("{name} keeps from {keep_from:?}"));
        self.history.holds.insert(name, keep_from.map(|from| from - 1));
    }

    async fn preserve(&mut self) {
        let Some((tip, _)) = self.history.tip() else { return };
        self.idle().await;
        self.check("before a preservation").await;
        let known: Vec<TxId> = self.history.txs.keys().copied().collect();
        let until = tip + self.rng.between(1, 8);
        if let Some(txid) = self.rng.pick(&known)
            && self.pruner.preserve(vec![txid], Height(until)).await.unwrap() == 1
        {
            self.log.push(format!("{txid} is preserved until {until}"));
            let before = self.history.preserved.entry(txid).or_insert(until);
            *before = until.max(*before);
        }
    }

    async fn restart(&mut self) {
        self.log.push("restart".into());
        self.pruner.stop().await;
        // The last clone of the ledger closes it: the pruner's is dropped with its handle.
        self.node = None;
        let node = Node::start(&*self.place, &self.ledger_options, &self.bodies, &self.options);
        self.node = Some(node.await);
    }

    async fn prune(&mut self) {
        let job = self.pruner.prune_now(None).unwrap();
        match self.rng.below(4) {
            // It goes on beside whatever comes next.
            0 => {}
            1 => {
                self.block().await;
            }
            _ => {
                let job = self.pruner.wait(job).await.unwrap();
                self.log.push(job.to_string());
            }
        }
    }

    /// Waits until no job is under way or waits.
    async fn idle(&self) {
        while let Some(job) = self.pruner.jobs(20).into_iter().find(|job| !job.state.is_over()) {
            self.pruner.wait(job.id).await;
            tokio::task::yield_now().await;
        }
    }

    async fn stored(&self) -> BTreeSet<TxId> {
        let known: Vec<TxId> = self.history.txs.keys().copied().collect();
        let records = self.store.get_many(known).await.unwrap();
        let mut stored = BTreeSet::new();
        for record in records.into_iter().filter_map(Result::unwrap) {
            stored.insert(record.txid);
            // Looked at again below: a job may be deleting it right now.
            if let Some(external) = record.head.external
                && !self.bodies.exists(record.txid, external).await.unwrap()
            {
                self.idle().await;
                let still_there = self.store.get(record.txid).await.unwrap().is_some();
                assert!(!still_there, "the body of {} is gone and its record is not", record.txid);
                stored.remove(&record.txid);
            }
        }
        stored
    }

    /// A body goes before its record, so nobody ever sees one without: whatever fails, and whenever one looks.
    async fn bodies_have_records(&self, when: &str) {
        let mut listing = self.bodies.list(None).await.unwrap();
        while let Some(listed) = listing.next(100).await.unwrap() {
            for (txid, external) in listed {
                if self.store.get(txid).await.unwrap().is_none() {
                    // Both may have gone after it was listed.
                    let left = self.bodies.exists(txid, external).await.unwrap();
                    assert!(!left, "{when}: the record of {txid} is gone and its body is not");
                }
            }
        }
    }

    async fn check(&mut self, when: &str) {
        self.bodies_have_records(when).await;
        let stored = self.stored().await;
        self.history.judge(&stored, when);
    }

    async fn step(&mut self) {
        match self.rng.weighted(&[40, 24, 7, 14, 8, 5, 3, 4, 4]) {
            0 => self.block().await,
            1 => self.mempool().await,
            2 => self.reorganise().await,
            3 => self.prune().await,
            4 => self.persister().await,
            5 => self.hold().await,
            6 => self.restart().await,
            7 => {
                let failing = self.objects.failing.fetch_not(Ordering::Relaxed);
                self.log.push(format!("objects fail: {}", !failing));
            }
            _ => self.preserve().await,
        }
        self.check("after a step").await;
    }

    /// Everything comes to rest: then all that may go must go.
    async fn quiet(&mut self) {
        self.log.push("quiet".into());
        self.objects.failing.store(false, Ordering::Relaxed);
        for name in std::mem::take(&mut self.history.holds).into_keys() {
            self.pruner.holds().release(&name).await.unwrap();
        }
        let Policy { retention, parent_preservation, .. } = self.options.policy;
        for number in 0..=retention + parent_preservation + 10 {
            self.apply(Vec::new()).await;
            if number == retention {
                self.restart().await;
            }
            self.idle().await;
            self.check("while all is quiet").await;
        }
        // As the timer does.
        self.pruner.prune_now(None).unwrap();
        self.idle().await;
        self.check("at the end").await;
        let (view, stored): (View, _) = (self.history.view(), self.stored().await);
        for txid in &stored {
            if !self.history.stays(&view, &self.history.txs[txid]) {
                let explanation = self.pruner.explain(*txid).await.unwrap();
                panic!("once quiet, this is still there:\n{explanation}");
            }
        }
        let records = self.store.get_many(stored.into_iter().collect()).await.unwrap();
        let outside = records
            .into_iter()
            .filter_map(Result::unwrap)
            .filter(|record| record.head.external.is_some())
            .count();
        assert_eq!(self.objects.count().await, outside, "bodies were left behind");
        self.pruner.stop().await;
        let report = self.store.verify(Arc::new(|_, _| {})).await.unwrap();
        assert!(report.is_clean(), "{report}");
    }
}

/// What the schedules did, so that one can see that they did something.
#[derive(Debug, Default)]
struct Tally {
    schedules: u64,
    blocks: u64,
    transactions: u64,
    gone: u64,
    left: u64,
}

async fn schedule(seed: u64, place: Box<dyn Place>, options: LedgerOptions, tally: &mut Tally) {
    let mut simulation = Simulation::new(seed, place, options).await;
    let outcome = AssertUnwindSafe(async {
        for _ in 0..STEPS {
            simulation.step().await;
        }
        simulation.quiet().await;
    });
    if let Err(panic) = outcome.catch_unwind().await {
        let log = simulation.log.join("\n  ");
        eprintln!("schedule with seed {seed}:\n  {log}");
        std::panic::resume_unwind(panic);
    }
    let history = &simulation.history;
    tally.schedules += 1;
    tally.blocks += u64::from(history.highest);
    tally.transactions += history.txs.len() as u64;
    tally.gone += history.gone.len() as u64;
    tally.left += (history.txs.len() - history.gone.len()) as u64;
}

fn from_environment(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} must be a number, it is {value:?}")))
}

/// Runs this many percent of all schedules on ledgers over engines of a factory.
pub fn schedules(factory: &dyn EngineFactory, options: &LedgerOptions, percent: u64) {
    let count = (from_environment("SAPWOOD_SCHEDULES").unwrap_or(400) * percent).div_ceil(100);
    let first = from_environment("SAPWOOD_SEED").unwrap_or(1);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut tally = Tally::default();
    for seed in first..first + count {
        runtime.block_on(schedule(seed, factory.place(), options.clone(), &mut tally));
    }
    println!("{tally:?}");
    assert!(tally.gone > tally.schedules, "hardly anything was ever pruned: {tally:?}");
    assert!(tally.left > tally.schedules, "hardly anything ever had to stay: {tally:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The judge must be able to find something: a record that is needed and gone, and one deleted too early.
    #[test]
    fn the_judge_notices() {
        let lost = |prepare: fn(&mut History, &Tx)| {
            let mut history = History::new(Policy::with_retention(3));
            let parent = coin("parent", 1);
            history.applied(10, BlockHash([10; 32]), vec![parent.clone()], vec![]);
            prepare(&mut history, &parent);
            let stored = history.txs.keys().filter(|txid| **txid != parent.txid).copied().collect();
            std::panic::catch_unwind(AssertUnwindSafe(|| history.judge(&stored, "test"))).is_err()
        };
        assert!(lost(|_, _| ()), "a live coin");
        assert!(
            lost(|history, parent| {
                let tx = burn("spend", &[(parent, 0)]);
                history.txs.insert(tx.txid, tx);
                for height in 11..30 {
                    history.applied(height, BlockHash([height as u8; 32]), vec![], vec![]);
                }
            }),
            "the child waits"
        );
        fn spent_at_11(history: &mut History, parent: &Tx, tip: u32) {
            history.applied(11, BlockHash([11; 32]), vec![burn("spend", &[(parent, 0)])], vec![]);
            for height in 12..=tip {
                history.applied(height, BlockHash([height as u8; 32]), vec![], vec![]);
            }
        }
        assert!(lost(|history, parent| spent_at_11(history, parent, 13)), "too early");
        assert!(!lost(|history, parent| spent_at_11(history, parent, 14)), "due");
        assert!(
            lost(|history, parent| {
                spent_at_11(history, parent, 20);
                history.holds.insert("hold".into(), Some(13));
            }),
            "held"
        );
        assert!(
            lost(|history, parent| {
                spent_at_11(history, parent, 20);
                history.preserved.insert(parent.txid, 21);
            }),
            "preserved"
        );
    }
}
