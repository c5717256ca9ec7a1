//! One operation: what is asked, and asking it of the model and of a store.

use std::sync::Arc;

use crate::{Store, model::Model};
use sapwood_ledger::{
    ApplyOptions, CreateRequest, MineRequest, PruneRequest, PruneWhat, Reassign, RollbackMode, SpendRequest,
    StoreError, Unspend,
};
use sapwood_rules::Policy;
use sapwood_types::{Block, BlockHash, Height, OutPoint, Tx, TxId};

use super::{outcome::Outcome, rng::Rng};

/// One step of a sequence.
#[derive(Clone, Debug)]
pub struct Step {
    /// What is done.
    pub plan: Plan,
    /// Decides how the result is looked at: heights, page sizes, holds.
    pub look: u64,
}

/// What is done, in a form that still makes sense if steps before it are left out.
#[derive(Clone, Debug)]
pub enum Plan {
    /// This very operation.
    Fixed(Op),
    /// A block that fits onto whatever the last one is.
    Block {
        /// How it goes wrong, if it does.
        link: Link,
        /// Its height if there is no last block.
        first: Height,
        /// Makes its hash.
        salt: u32,
        /// Its time.
        time: u64,
        /// Its transactions.
        txs: Vec<Tx>,
        /// How to apply it.
        options: ApplyOptions,
    },
    /// Blocks in a row, each of them a [`Plan::Block`].
    Run(Vec<Plan>),
    /// A rollback by so many blocks.
    Back {
        /// How many. With more than there are, the target is below the first block.
        blocks: u32,
        /// Whether the hash of the target is given as it is.
        right_hash: bool,
        /// What becomes of the transactions.
        mode: RollbackMode,
    },
}

/// How a block is joined to the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// As it should be.
    Next,
    /// At the last block's height.
    TooLow,
    /// One height further on.
    TooHigh,
    /// To another parent.
    OtherParent,
}

/// One call of a store.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "each is one call of the traits with its arguments")]
pub enum Op {
    Create { batch: Vec<CreateRequest>, height: Height },
    Spend { batch: Vec<SpendRequest>, height: Height },
    Unspend { batch: Vec<Unspend> },
    SetMined { txids: Vec<TxId>, request: MineRequest, height: Height },
    MarkOnLongestChain { txids: Vec<TxId>, on: bool, height: Height },
    SetConflicting { txids: Vec<TxId>, on: bool, height: Height },
    ResolveConflicts { winners: Vec<TxId>, height: Height },
    SetLocked { txids: Vec<TxId>, on: bool },
    Freeze { outpoints: Vec<OutPoint> },
    Unfreeze { outpoints: Vec<OutPoint> },
    Reassign { batch: Vec<Reassign>, height: Height },
    Preserve { txids: Vec<TxId>, until: Height },
    ExpirePreservations { height: Height, limit: usize },
    EndPreservations { preserved: Vec<(TxId, Height)> },
    Delete { txids: Vec<TxId> },
    ApplyBlock { block: Arc<Block>, options: ApplyOptions },
    ApplyBlocks { blocks: Vec<(Arc<Block>, ApplyOptions)> },
    RollBack { target: Option<(Height, BlockHash)>, mode: RollbackMode },
    SetPolicy { policy: Policy },
    Prune { request: PruneRequest },
    PruneUndo { below: Height },
}

/// The hash of the block with this salt.
pub fn block_hash(salt: u32) -> BlockHash {
    BlockHash(Rng::new(0xb10c ^ u64::from(salt) << 16).bytes())
}

impl Plan {
    /// The call that follows from the plan in this state.
    pub fn resolve(&self, model: &Model) -> Op {
        let last = model.last_applied();
        match self {
            Plan::Fixed(op) => op.clone(),
            Plan::Block { link, first, salt, time, txs, options } => {
                let (mut height, mut parent) = match last {
                    Some(last) => (last.height.next(), last.hash),
                    None => (*first, BlockHash::default()),
                };
                match link {
                    Link::Next => {}
                    Link::TooLow => height = height.minus(1),
                    Link::TooHigh => height = height.next(),
                    Link::OtherParent => parent = block_hash(u32::MAX),
                }
                let block = Block { height, hash: block_hash(*salt), parent, time: *time, txs: txs.clone() };
                Op::ApplyBlock { block: Arc::new(block), options: *options }
            }
            Plan::Run(plans) => {
                let mut after = model.clone();
                let mut blocks = Vec::new();
                for plan in plans {
                    let op = plan.resolve(&after);
                    op.on_model(&mut after);
                    if let Op::ApplyBlock { block, options } = op {
                        blocks.push((block, options));
                    }
                }
                Op::ApplyBlocks { blocks }
            }
            Plan::Back { blocks, right_hash, mode } => {
                let target = last.map(|last| {
                    let height = last.height.minus(*blocks);
                    let above = model.undo(height.next()).and_then(|undo| undo.previous);
                    let known = if height == last.height { Some(last) } else { above };
                    // Below what is known there is no right hash: any will do.
                    let hash = known.filter(|_| *right_hash).map_or(block_hash(u32::MAX), |mark| mark.hash);
                    (height, hash)
                });
                Op::RollBack { target, mode: *mode }
            }
        }
    }

    /// The transactions and reassignments it brings with it.
    pub fn txs(&self) -> Vec<&Tx> {
        match self {
            Plan::Fixed(Op::Create { batch, .. }) => batch.iter().map(|request| &request.tx).collect(),
            Plan::Block { txs, .. } => txs.iter().collect(),
            Plan::Run(plans) => plans.iter().flat_map(Plan::txs).collect(),
            _ => Vec::new(),
        }
    }

    /// The blocks among what it does, by what makes their hashes.
    pub fn salts(&self) -> Vec<u32> {
        match self {
            Plan::Block { salt, .. } => vec![*salt],
            Plan::Run(plans) => plans.iter().flat_map(Plan::salts).collect(),
            _ => Vec::new(),
        }
    }

    /// The same with one item left out, in every way.
    pub fn smaller(&self) -> Vec<Plan> {
        let least = if matches!(self, Plan::Block { .. }) { 1 } else { 2 };
        let items = self.items();
        let without = |place| {
            let mut plan = self.clone();
            plan.remove(place);
            plan
        };
        let mut smaller: Vec<Plan> =
            if items < least { Vec::new() } else { (0..items).map(without).collect() };
        if let Plan::Run(plans) = self {
            for (place, plan) in plans.iter().enumerate() {
                smaller.extend(plan.smaller().into_iter().map(|plan| {
                    let mut plans = plans.clone();
                    plans[place] = plan;
                    Plan::Run(plans)
                }));
            }
        }
        smaller
    }

    /// How many items it has.
    pub fn items(&self) -> usize {
        match self {
            Plan::Block { txs, .. } => txs.len(),
            Plan::Run(plans) => plans.len(),
            Plan::Back { .. } => 0,
            Plan::Fixed(op) => match op {
                Op::Create { batch, .. } => batch.len(),
                Op::Spend { batch, .. } => batch.len(),
                Op::Unspend { batch } => batch.len(),
                Op::Reassign { batch, .. } => batch.len(),
                Op::Freeze { outpoints } | Op::Unfreeze { outpoints } => outpoints.len(),
                Op::Prune { request } => match &request.what {
                    PruneWhat::Records { txids, .. } => txids.len(),
                    PruneWhat::Settled { .. } => 0,
                },
                Op::ResolveConflicts { winners, .. } => winners.len(),
                Op::EndPreservations { preserved } => preserved.len(),
                Op::SetMined { txids, .. }
                | Op::MarkOnLongestChain { txids, .. }
                | Op::SetConflicting { txids, .. }
                | Op::SetLocked { txids, .. }
                | Op::Preserve { txids, .. }
                | Op::Delete { txids } => txids.len(),
                Op::ExpirePreservations { .. }
                | Op::ApplyBlock { .. }
                | Op::ApplyBlocks { .. }
                | Op::RollBack { .. }
                | Op::SetPolicy { .. }
                | Op::PruneUndo { .. } => 0,
            },
        }
    }

    fn remove(&mut self, place: usize) {
        match self {
            Plan::Block { txs, .. } => drop(txs.remove(place)),
            Plan::Run(plans) => drop(plans.remove(place)),
            Plan::Back { .. } => {}
            Plan::Fixed(op) => match op {
                Op::Create { batch, .. } => drop(batch.remove(place)),
                Op::Spend { batch, .. } => drop(batch.remove(place)),
                Op::Unspend { batch } => _ = batch.remove(place),
                Op::Reassign { batch, .. } => drop(batch.remove(place)),
                Op::Freeze { outpoints } | Op::Unfreeze { outpoints } => _ = outpoints.remove(place),
                Op::Prune { request } => {
                    if let PruneWhat::Records { txids, .. } = &mut request.what {
                        txids.remove(place);
                    }
                }
                Op::ResolveConflicts { winners, .. } => _ = winners.remove(place),
                Op::EndPreservations { preserved } => _ = preserved.remove(place),
                Op::SetMined { txids, .. }
                | Op::MarkOnLongestChain { txids, .. }
                | Op::SetConflicting { txids, .. }
                | Op::SetLocked { txids, .. }
                | Op::Preserve { txids, .. }
                | Op::Delete { txids } => _ = txids.remove(place),
                Op::ExpirePreservations { .. }
                | Op::ApplyBlock { .. }
                | Op::ApplyBlocks { .. }
                | Op::RollBack { .. }
                | Op::SetPolicy { .. }
                | Op::PruneUndo { .. } => {}
            },
        }
    }
}

impl Op {
    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Create { .. } => "create",
            Op::Spend { .. } => "spend",
            Op::Unspend { .. } => "unspend",
            Op::SetMined { request, .. } if request.unset => "set_mined (unset)",
            Op::SetMined { .. } => "set_mined",
            Op::MarkOnLongestChain { on: true, .. } => "mark_on_longest_chain (on)",
            Op::MarkOnLongestChain { .. } => "mark_on_longest_chain (off)",
            Op::SetConflicting { on: true, .. } => "set_conflicting (on)",
            Op::SetConflicting { .. } => "set_conflicting (off)",
            Op::ResolveConflicts { .. } => "resolve_conflicts",
            Op::SetLocked { .. } => "set_locked",
            Op::Freeze { .. } => "freeze",
            Op::Unfreeze { .. } => "unfreeze",
            Op::Reassign { .. } => "reassign",
            Op::Preserve { .. } => "preserve",
            Op::ExpirePreservations { .. } => "expire_preservations",
            Op::EndPreservations { .. } => "end_preservations",
            Op::Delete { .. } => "delete",
            Op::ApplyBlock { .. } => "apply_block",
            Op::ApplyBlocks { .. } => "apply_blocks",
            Op::RollBack { mode: RollbackMode::Node, .. } => "roll_back (node)",
            Op::RollBack { .. } => "roll_back (follower)",
            Op::SetPolicy { .. } => "set_policy",
            Op::Prune { .. } => "prune",
            Op::PruneUndo { .. } => "prune_undo",
        }
    }

    /// Does it to the model.
    pub fn on_model(&self, model: &mut Model) -> Outcome {
        match self.clone() {
            Op::Create { batch, height } => Outcome::Create(model.create(batch, height)),
            Op::Spend { batch, height } => Outcome::Spend(model.spend(batch, height)),
            Op::Unspend { batch } => Outcome::Unspend(model.unspend(batch)),
            Op::SetMined { txids, request, height } => Outcome::Mine(model.set_mined(txids, request, height)),
            Op::MarkOnLongestChain { txids, on, height } => {
                Outcome::Mine(model.mark_on_longest_chain(txids, on, height))
            }
            Op::SetConflicting { txids, on, height } => {
                Outcome::Conflict(model.set_conflicting(txids, on, height))
            }
            Op::ResolveConflicts { winners, height } => {
                Outcome::Resolve(model.resolve_conflicts(winners, height))
            }
            Op::SetLocked { txids, on } => Outcome::Freeze(model.set_locked(txids, on)),
            Op::Freeze { outpoints } => Outcome::Freeze(model.freeze(outpoints)),
            Op::Unfreeze { outpoints } => Outcome::Freeze(model.unfreeze(outpoints)),
            Op::Reassign { batch, height } => Outcome::Reassign(model.reassign(batch, height)),
            Op::Preserve { txids, until } => Outcome::Preserve(model.preserve(txids, until)),
            Op::ExpirePreservations { height, limit } => {
                Outcome::Count(Ok(model.expire_preservations(height, limit) as u64))
            }
            Op::EndPreservations { preserved } => {
                Outcome::Count(Ok(model.end_preservations(&preserved) as u64))
            }
            Op::Delete { txids } => Outcome::Delete(model.delete(txids)),
            Op::ApplyBlock { block, options } => Outcome::Apply(model.apply_block(&block, options)),
            Op::ApplyBlocks { blocks } => Outcome::ApplyRun(model.apply_blocks(&blocks)),
            Op::RollBack { target, mode } => Outcome::roll_back(model.roll_back(target, mode)),
            Op::SetPolicy { policy } => Outcome::Policy(model.set_policy(policy).is_ok()),
            Op::Prune { request } => Outcome::pruned(Ok(model.prune(&request))),
            Op::PruneUndo { below } => Outcome::Count(Ok(model.prune_undo(None, below, usize::MAX).dropped)),
        }
    }

    /// Does it to a store.
    pub async fn on_store(&self, store: &dyn Store) -> Outcome {
        match self.clone() {
            Op::Create { batch, height } => Outcome::Create(store.create(batch, height).await),
            Op::Spend { batch, height } => Outcome::Spend(store.spend(batch, height).await),
            Op::Unspend { batch } => Outcome::Unspend(store.unspend(batch).await),
            Op::SetMined { txids, request, height } => {
                Outcome::Mine(store.set_mined(txids, request, height).await)
            }
            Op::MarkOnLongestChain { txids, on, height } => {
                Outcome::Mine(store.mark_on_longest_chain(txids, on, height).await)
            }
            Op::SetConflicting { txids, on, height } => {
                Outcome::Conflict(store.set_conflicting(txids, on, height).await)
            }
            Op::ResolveConflicts { winners, height } => {
                Outcome::Resolve(store.resolve_conflicts(winners, height).await)
            }
            Op::SetLocked { txids, on } => Outcome::Freeze(store.set_locked(txids, on).await),
            Op::Freeze { outpoints } => Outcome::Freeze(store.freeze(outpoints).await),
            Op::Unfreeze { outpoints } => Outcome::Freeze(store.unfreeze(outpoints).await),
            Op::Reassign { batch, height } => Outcome::Reassign(store.reassign(batch, height).await),
            Op::Preserve { txids, until } => Outcome::Preserve(store.preserve(txids, until).await),
            Op::ExpirePreservations { height, limit } => {
                let expired = store.expire_preservations(height, limit).await;
                Outcome::Count(expired.map(|expired| expired.worked_off as u64))
            }
            Op::EndPreservations { preserved } => {
                Outcome::Count(store.end_preservations(preserved).await.map(|count| count as u64))
            }
            Op::Delete { txids } => Outcome::Delete(store.delete(txids).await),
            Op::ApplyBlock { block, options } => Outcome::Apply(store.apply_block(block, options).await),
            Op::ApplyBlocks { blocks } => Outcome::ApplyRun(store.apply_blocks(blocks).await),
            Op::RollBack { target, mode } => Outcome::roll_back(store.roll_back(target, mode).await),
            // How an unsafe policy is described is the store's affair.
            Op::SetPolicy { policy } => match store.set_policy(policy).await {
                Ok(()) => Outcome::Policy(true),
                Err(StoreError::BadOption { .. }) => Outcome::Policy(false),
                Err(error) => Outcome::Count(Err(error)),
            },
            Op::Prune { request } => Outcome::pruned(store.prune(request).await),
            Op::PruneUndo { below } => {
                Outcome::Count(store.prune_undo(None, below, usize::MAX).await.map(|undo| undo.dropped))
            }
        }
    }
}
