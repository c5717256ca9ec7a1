//! Writing: each operation is a transition run by the one writer.

use std::sync::Arc;

use bytes::Bytes;
use sapwood_rules::Policy;
use sapwood_types::{Block, BlockHash, BlockMark, Height, OutPoint, TxId, Undo};

use crate::{
    Applied, AppliedBlocks, ApplyError, ApplyOptions, BatchResult, ConflictError, CreateError, CreateRequest,
    DeleteError, FreezeError, Ledger, MineError, MineRequest, PreserveError, Reassign, ReassignError,
    RollbackError, RollbackMode, RolledBack, SpendError, SpendRequest, StoreError, Unspend, UnspendError,
    WorkingSet,
    beside::beside,
    core::Core,
    engine::{Table, WriteSet},
    keys,
    state::Chain,
    transition::{
        block, conflict, create, freeze, mine, preserve,
        rollback::{self, Extent, RollbackOutcome},
        spend,
    },
    working_set::Stop,
    writer::{Change, PoisonOnPanic, Prepared, Writer},
};

impl Core {
    pub(crate) fn apply_block(&self, block: &Block, options: ApplyOptions) -> Result<Applied, ApplyError> {
        let _pass = self.gate.block();
        self.check_room()?;
        self.change(|change| change.apply_block(block, options))
    }

    /// Applies blocks in a row: while one is being written, the next is worked on. The lock is held from the first to the last.
    fn apply_blocks(&self, blocks: &[(Arc<Block>, ApplyOptions)]) -> AppliedBlocks {
        let mut done = AppliedBlocks::default();
        let _pass = self.gate.block();
        let mut lock = self.writer.lock();
        let writer: &mut Writer = &mut lock;
        let _whole = PoisonOnPanic(self);
        let mut in_flight: Option<(Applied, WriteSet, Prepared)> = None;
        let mut written: Option<Prepared> = None;
        for next in blocks.iter().map(Some).chain([None]) {
            let prepare = |writer: &Writer, in_flight: Option<&Prepared>| {
                let (block, options) = next?;
                let apply = || {
                    self.check_room()?;
                    self.prepare(writer, in_flight, |change| change.apply_block(block, *options))
                };
                Some(apply())
            };
            let prepared = match in_flight.take() {
                None => self.check_poison().map(|()| prepare(writer, None)),
                Some((applied, writes, current)) => {
                    let large = self.is_large(current.changes.first.len());
                    let commit = || {
                        // What was written before this is all in place: to give its memory back takes time, too.
                        drop(written.take());
                        let number = self.commit(writes, &current)?;
                        self.remember(&current, &writer.cache);
                        Ok(number)
                    };
                    let (committed, prepared) = beside(large, commit, || prepare(writer, Some(&current)));
                    committed.map(|number| {
                        self.make_current(writer, &current, number);
                        written = Some(current);
                        done.applied.push(applied);
                        prepared
                    })
                }
            };
            match prepared.map_err(ApplyError::from).and_then(Option::transpose) {
                Ok(Some((applied, Some((writes, prepared))))) => {
                    in_flight = Some((applied, writes, prepared))
                }
                // A block that changes nothing has nothing to wait for.
                Ok(Some((applied, None))) => done.applied.push(applied),
                Ok(None) => {}
                Err(error) => {
                    done.refused = Some(error);
                    return done;
                }
            }
        }
        done
    }

    fn roll_back(
        &self,
        target: Option<(Height, BlockHash)>,
        mode: RollbackMode,
    ) -> Result<RolledBack, RollbackError> {
        let mut undos: Option<Vec<Undo>> = None;
        self.change(|change| {
            let last = change.state.last();
            let first = change.state.chain.map(|chain| chain.first);
            let extent = rollback::check_extent(target, last.as_ref(), first, change.state.floor())?;
            let (Some(last), Some(first), false) = (last, first, extent == Extent::Nothing) else {
                let nothing = (Vec::new(), Vec::new(), Vec::new());
                let (unmined, forgotten, conflicting) = nothing;
                return Ok(RolledBack { last, blocks: 0, unmined, forgotten, conflicting });
            };
            let lowest = if let Extent::Above(height) = extent { height.next() } else { first };
            let undos = match &mut undos {
                Some(undos) => undos,
                none => none.insert(self.undos_down_to(last, lowest, target)?),
            };
            let outcome = rollback::undo_blocks(&mut change.set, undos, mode)?;
            let reached = undos.last().and_then(|undo| undo.previous);
            change.undone = undos.iter().map(|undo| undo.block.height).collect();
            change.state.chain = change.state.chain.zip(reached).map(|(chain, last)| Chain { last, ..chain });
            let RollbackOutcome { unmined, forgotten, conflicting } = outcome;
            let blocks = change.undone.len() as u32;
            Ok(RolledBack { last: reached, blocks, unmined, forgotten, conflicting })
        })
    }

    /// Reads the undo records of all blocks from `last` down to `lowest`, the newest first, in one read. Checks that they lead to the target.
    fn undos_down_to(
        &self,
        last: BlockMark,
        lowest: Height,
        target: Option<(Height, BlockHash)>,
    ) -> Result<Vec<Undo>, RollbackError> {
        let heights: Vec<Height> = (lowest.0..=last.height.0).map(Height).collect();
        let mut undos = self.read_undos(&heights)?;
        if target.is_some() {
            let above = undos.first().and_then(Option::as_ref);
            let above = above.ok_or(RollbackError::UndoMissing { height: lowest })?;
            rollback::check_target(target, above.previous.as_ref())?;
        }
        let mut chain = Vec::with_capacity(undos.len());
        let mut reached = Some(last);
        while let Some(block) = reached.filter(|block| block.height >= lowest) {
            let undo = undos.get_mut((block.height.0 - lowest.0) as usize).and_then(Option::take);
            let undo = undo.ok_or(RollbackError::UndoMissing { height: block.height })?;
            reached = undo.previous;
            chain.push(undo);
        }
        Ok(chain)
    }
}

impl Change {
    fn apply_block(&mut self, block: &Block, options: ApplyOptions) -> Result<Applied, Stop<ApplyError>> {
        let last = self.state.last();
        block::check_next(block, last.as_ref())?;
        let id = block::next_block_id(block, self.state.greatest_block_id, options.block_id)?;
        let mark = BlockMark { id, height: block.height, hash: block.hash };
        let outcome = block::apply(&mut self.set, block, mark, last, options, &self.policy)?;
        let (first, floor) =
            self.state.chain.map_or((block.height, block.height), |chain| (chain.first, chain.floor));
        let floor = floor.max(block.height.minus(self.policy.reorg_window));
        self.state.chain = Some(Chain { last: mark, first, floor });
        self.state.greatest_block_id = self.state.greatest_block_id.max(id);
        let applied = Applied {
            block: mark,
            created: outcome.undo.created.len(),
            mined: outcome.undo.mined.len(),
            conflicting: outcome.conflicting,
        };
        self.undo = Some(outcome.undo);
        Ok(applied)
    }
}

impl Ledger {
    /// Stores transactions at the given height, and spends their inputs in the same write.
    pub async fn create(&self, batch: Vec<CreateRequest>, height: Height) -> BatchResult<(), CreateError> {
        self.run(move |core| {
            core.check_room()?;
            core.change_each(&batch, create::want, |set, policy, item| {
                create::create(set, item, height, policy)
            })
        })
        .await?
        .map(|_| ())
    }

    /// Spends inputs of stored transactions. A repeat of the same spend is fine.
    pub async fn spend(&self, batch: Vec<SpendRequest>, height: Height) -> BatchResult<(), SpendError> {
        self.run(move |core| {
            core.change_each(&batch, spend::want, |set, _, item| spend::spend(set, item, height))
        })
        .await?
        .map(|_| ())
    }

    /// Takes spends back. An unspent output is fine.
    pub async fn unspend(&self, batch: Vec<Unspend>) -> BatchResult<(), UnspendError> {
        self.run(move |core| {
            core.change_each(
                &batch,
                |set, item| set.want_outputs([item.outpoint]),
                |set, _, item| spend::unspend(set, item),
            )
        })
        .await?
        .map(|_| ())
    }

    /// Marks transactions as mined in a block, or takes that back.
    pub async fn set_mined(
        &self,
        txids: Vec<TxId>,
        request: MineRequest,
        height: Height,
    ) -> BatchResult<(), MineError> {
        self.each_tx(txids, move |set, _, txid| mine::set_mined(set, *txid, request, height))
            .await
            .map(|_| ())
    }

    /// Says that the highest block of each transaction is on the longest chain, or that none of its blocks is.
    pub async fn mark_on_longest_chain(
        &self,
        txids: Vec<TxId>,
        on: bool,
        height: Height,
    ) -> BatchResult<(), MineError> {
        self.each_tx(txids, move |set, _, txid| mine::mark_on_longest_chain(set, *txid, on, height))
            .await
            .map(|_| ())
    }

    /// Marks transactions as losers together with their descendants, or takes that back for just these. Returns every
    /// transaction that changed.
    pub async fn set_conflicting(
        &self,
        txids: Vec<TxId>,
        on: bool,
        height: Height,
    ) -> BatchResult<Vec<TxId>, ConflictError> {
        self.each_tx(txids, move |set, _, txid| conflict::set_conflicting(set, *txid, on, height))
            .await
            .map(|changed| changed.into_iter().flatten().collect())
    }

    /// Makes each transaction win against whatever unmined transactions spend its inputs. Returns the losers. All or nothing.
    pub async fn resolve_conflicts(
        &self,
        winners: Vec<TxId>,
        height: Height,
    ) -> Result<Vec<TxId>, ConflictError> {
        self.run(move |core| core.change(|change| conflict::resolve_all(&mut change.set, &winners, height)))
            .await?
    }

    /// Locks or unlocks all outputs of transactions.
    pub async fn set_locked(&self, txids: Vec<TxId>, on: bool) -> BatchResult<(), FreezeError> {
        self.each_tx(txids, move |set, _, txid| freeze::set_locked(set, *txid, on)).await.map(|_| ())
    }

    /// Freezes unspent outputs.
    pub async fn freeze(&self, outpoints: Vec<OutPoint>) -> BatchResult<(), FreezeError> {
        self.each_output(outpoints, freeze::freeze).await
    }

    /// Unfreezes outputs.
    pub async fn unfreeze(&self, outpoints: Vec<OutPoint>) -> BatchResult<(), FreezeError> {
        self.each_output(outpoints, freeze::unfreeze).await
    }

    /// Gives frozen outputs to other owners, who can spend them after a delay.
    pub async fn reassign(&self, batch: Vec<Reassign>, height: Height) -> BatchResult<(), ReassignError> {
        self.run(move |core| {
            core.change_each(
                &batch,
                |set, item| set.want_outputs([item.outpoint]),
                |set, policy, item| freeze::reassign(set, item, height, policy),
            )
        })
        .await?
        .map(|_| ())
    }

    /// Forbids deletion up to a height. Absent transactions are skipped; returns how many were there.
    pub async fn preserve(&self, txids: Vec<TxId>, until: Height) -> BatchResult<usize, PreserveError> {
        self.each_tx(txids, move |set, _, txid| Ok(preserve::preserve(set, *txid, until)?))
            .await
            .map(|present| present.into_iter().filter(|present| *present).count())
    }

    /// Forgets unmined transactions and gives back what they spend. Absent ones are fine.
    pub async fn delete(&self, txids: Vec<TxId>) -> BatchResult<(), DeleteError> {
        self.each_tx(txids, move |set, _, txid| preserve::delete(set, *txid)).await.map(|_| ())
    }

    /// Applies a block: all or nothing. It must be the one after the last applied block; the first one may have any height.
    pub async fn apply_block(&self, block: Arc<Block>, options: ApplyOptions) -> Result<Applied, ApplyError> {
        self.run(move |core| core.apply_block(&block, options)).await?
    }

    /// Applies blocks one after the other, up to the first that is refused: each all or nothing, each a write of its own. When the
    /// call returns, those applied are as safe as if each had been waited for. For catching up: a store may work on a block while the
    /// one before it is being written.
    pub async fn apply_blocks(&self, blocks: Vec<(Arc<Block>, ApplyOptions)>) -> AppliedBlocks {
        let done = self.run(move |core| core.apply_blocks(&blocks)).await;
        done.unwrap_or_else(|error| AppliedBlocks { applied: Vec::new(), refused: Some(error.into()) })
    }

    /// Takes back all blocks above a height: all or nothing. The block there must have the given hash. With no target,
    /// takes back everything to before the first block.
    pub async fn roll_back(
        &self,
        target: Option<(Height, BlockHash)>,
        mode: RollbackMode,
    ) -> Result<RolledBack, RollbackError> {
        self.run(move |core| core.roll_back(target, mode)).await?
    }

    /// Leaves notes under names, or removes them, all in one durable write. They mean nothing to the store and are no part of
    /// its state: holds, jobs, how far somebody got.
    pub async fn put_notes(&self, notes: Vec<(String, Option<Bytes>)>) -> Result<(), StoreError> {
        self.run(move |core| {
            let mut writes = WriteSet::default();
            for (name, note) in notes {
                match note {
                    Some(note) => writes.put(Table::Meta, &keys::note(&name), &note),
                    None => writes.delete(Table::Meta, &keys::note(&name)),
                }
            }
            core.commit_rows(writes).map(|_| ())
        })
        .await?
    }

    /// Changes how long things are kept. Takes effect at once.
    pub async fn set_policy(&self, policy: Policy) -> Result<(), StoreError> {
        policy.validate().map_err(|error| StoreError::BadOption { problem: error.to_string() })?;
        self.run(move |core| {
            if core.is_read_only() {
                return core.check_poison();
            }
            *core.policy.write() = policy;
            Ok(())
        })
        .await?
    }
}

impl Ledger {
    /// One item for each transaction id.
    async fn each_tx<T, E>(
        &self,
        txids: Vec<TxId>,
        operation: impl Fn(&mut WorkingSet, &Policy, &TxId) -> Result<T, Stop<E>> + Send + 'static,
    ) -> BatchResult<Vec<T>, E>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        self.run(move |core| core.change_each(&txids, |set, txid| set.want([*txid]), operation)).await?
    }

    /// One item for each output.
    async fn each_output(
        &self,
        outpoints: Vec<OutPoint>,
        operation: impl Fn(&mut WorkingSet, OutPoint) -> Result<(), Stop<FreezeError>> + Send + 'static,
    ) -> BatchResult<(), FreezeError> {
        self.run(move |core| {
            core.change_each(
                &outpoints,
                |set, outpoint| set.want_outputs([*outpoint]),
                |set, _, outpoint| operation(set, *outpoint),
            )
        })
        .await?
        .map(|_| ())
    }
}
