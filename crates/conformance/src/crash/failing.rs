//! Writes that fail on purpose, and telling the engine's failures from all other refusals.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::state_machine::{op::Op, outcome::Outcome};
use sapwood_ledger::{
    AppliedBlocks, ApplyError, ApplyOptions, BatchError, BatchResult, ConflictError, Faults, MineRequest,
    PruneRequest, RollbackError, RollbackMode, StoreError,
};
use sapwood_rules::PruneContext;
use sapwood_types::{Block, BlockHash, Height, MinedIn};

/// Fails one write at a named point, and only that one: a store that tried again would get through.
pub struct FailAt {
    point: &'static str,
    left: AtomicU64,
}

impl FailAt {
    /// The cause that a failed write names.
    pub const CAUSE: &str = "the test wants this write to fail";

    /// Makes the write fail that reaches the point for the `hit`-th time.
    pub fn nth(point: &'static str, hit: u64) -> Arc<dyn Faults> {
        Arc::new(FailAt { point, left: AtomicU64::new(hit) })
    }
}

impl Faults for FailAt {
    fn reached(&self, point: &'static str) -> Result<(), String> {
        let fails = point == self.point && self.left.fetch_sub(1, Ordering::Relaxed) == 1;
        if fails { Err(Self::CAUSE.into()) } else { Ok(()) }
    }
}

/// The engine's failure, if that is what came of an operation.
pub fn store_error(outcome: &Outcome) -> Option<&StoreError> {
    fn batch<T, E>(result: &BatchResult<T, E>) -> Option<&StoreError> {
        match result {
            Err(BatchError::Store(error)) => Some(error),
            _ => None,
        }
    }
    match outcome {
        Outcome::Create(result) => batch(result),
        Outcome::Spend(result) => batch(result),
        Outcome::Unspend(result) => batch(result),
        Outcome::Mine(result) => batch(result),
        Outcome::Conflict(result) => batch(result),
        Outcome::Freeze(result) => batch(result),
        Outcome::Reassign(result) => batch(result),
        Outcome::Preserve(result) => batch(result),
        Outcome::Delete(result) => batch(result),
        Outcome::Resolve(Err(ConflictError::Store(error)))
        | Outcome::Apply(Err(ApplyError::Store(error)))
        | Outcome::ApplyRun(AppliedBlocks { refused: Some(ApplyError::Store(error)), .. })
        | Outcome::RollBack(Err(RollbackError::Store(error)))
        | Outcome::Prune(Err(error))
        | Outcome::Count(Err(error)) => Some(error),
        Outcome::Resolve(_)
        | Outcome::Apply(_)
        | Outcome::ApplyRun(_)
        | Outcome::RollBack(_)
        | Outcome::Prune(_)
        | Outcome::Count(_)
        | Outcome::Policy(_) => None,
    }
}

/// Every kind of write, asking for as little as possible.
pub fn every_write() -> Vec<Op> {
    let height = Height(1);
    let block = Block { height, hash: BlockHash([1; 32]), parent: BlockHash([0; 32]), time: 0, txs: vec![] };
    let mined_in = MinedIn { block_id: 1, height, subtree: 0, on_longest_chain: true };
    let context = PruneContext { current: height, safe: Some(height), retention: 1 };
    vec![
        Op::Create { batch: vec![], height },
        Op::Spend { batch: vec![], height },
        Op::Unspend { batch: vec![] },
        Op::SetMined { txids: vec![], request: MineRequest { block: mined_in, unset: false }, height },
        Op::MarkOnLongestChain { txids: vec![], on: true, height },
        Op::SetConflicting { txids: vec![], on: true, height },
        Op::ResolveConflicts { winners: vec![], height },
        Op::SetLocked { txids: vec![], on: true },
        Op::Freeze { outpoints: vec![] },
        Op::Unfreeze { outpoints: vec![] },
        Op::Reassign { batch: vec![], height },
        Op::Preserve { txids: vec![], until: height },
        Op::ExpirePreservations { height, limit: 1 },
        Op::EndPreservations { preserved: vec![] },
        Op::Delete { txids: vec![] },
        Op::ApplyBlock { block: Arc::new(block.clone()), options: ApplyOptions::default() },
        Op::ApplyBlocks { blocks: vec![(Arc::new(block), ApplyOptions::default())] },
        Op::RollBack { target: None, mode: RollbackMode::Node },
        Op::Prune { request: PruneRequest::records(vec![], context) },
        Op::PruneUndo { below: height },
    ]
}
