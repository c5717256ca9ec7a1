//! Blocks: applied and taken back.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use sapwood_ledger::{
    Applied, AppliedBlocks, ApplyError, ApplyOptions, ConflictError, InputRefusal, RollbackError,
    RollbackMode, RolledBack, UndoDropped, error::TxProblem,
};
use sapwood_rules::{Policy, SpendRefusal, spendability::SpendOverrides};
use sapwood_types::{
    Block, BlockHash, BlockMark, Height, MinedIn, OutPoint, PrevOutput, Slot, Spender, Tx, TxId, TxRecord,
};

use super::{Model, spending::Wanted};

/// How to take one block back. Unlike a store's undo record it keeps the order of all transactions.
#[derive(Clone, Debug)]
pub struct ModelUndo {
    /// The block.
    pub block: BlockMark,
    /// The block before it.
    pub previous: Option<BlockMark>,
    /// Its transactions in order.
    pub txs: Vec<UndoTx>,
}

/// What a block did with one transaction.
#[derive(Clone, Debug)]
pub struct UndoTx {
    /// Which.
    pub txid: TxId,
    /// Whether the store knew it, unmined, before the block.
    pub known: bool,
    /// The mined record it wrote over.
    pub replaced: Option<Replaced>,
}

/// A record that was written over.
#[derive(Clone, Debug)]
pub struct Replaced {
    /// The record.
    pub record: TxRecord,
    /// Outputs whose spenders were forgotten by then: nobody can tell what has become of those since.
    pub forgotten: BTreeSet<OutPoint>,
}

impl Model {
    /// Applies a block: all or nothing.
    pub fn apply_block(&mut self, block: &Block, options: ApplyOptions) -> Result<Applied, ApplyError> {
        self.attempt(|model| model.apply(block, options))
    }

    /// Applies blocks up to the first that is refused.
    pub fn apply_blocks(&mut self, blocks: &[(Arc<Block>, ApplyOptions)]) -> AppliedBlocks {
        let mut done = AppliedBlocks::default();
        for (block, options) in blocks {
            match self.apply_block(block, *options) {
                Ok(applied) => done.applied.push(applied),
                Err(error) => {
                    done.refused = Some(error);
                    break;
                }
            }
        }
        done
    }

    fn apply(&mut self, block: &Block, options: ApplyOptions) -> Result<Applied, ApplyError> {
        let Block { height, hash, parent, .. } = *block;
        if let Some(last) = self.last {
            if last.height.0 == u32::MAX {
                return Err(ApplyError::NoHeightLeft { hash, height, last });
            }
            let expected = last.height.next();
            if height != expected {
                return Err(ApplyError::NotNext { hash, height, expected });
            }
            if parent != last.hash {
                return Err(ApplyError::WrongParent { hash, height, parent, last: last.hash });
            }
        }
        let id = match options.block_id {
            Some(id) => id,
            None if self.greatest_block_id == u32::MAX => {
                return Err(ApplyError::NoBlockIdLeft { hash, height });
            }
            None => self.greatest_block_id + 1,
        };
        for (place, tx) in block.txs.iter().enumerate() {
            if block.txs[..place].iter().any(|before| before.txid == tx.txid) {
                let problem = Box::new(TxProblem::Twice);
                return Err(ApplyError::Tx { hash, height, txid: tx.txid, problem });
            }
        }
        let mark = BlockMark { id, height, hash };
        let mut undo = ModelUndo { block: mark, previous: self.last, txs: Vec::new() };
        let mut conflicting = Vec::new();
        let worth = |tx: &Tx| tx.outputs.iter().map(|output| u128::from(output.value)).sum::<u128>();
        let mut fees: u128 = 0;
        for tx in &block.txs {
            let spends: u128 = tx.inputs.iter().filter_map(|input| self.value(input.outpoint)).sum();
            let told = if options.rules.subsidy.is_some() { self.with_amounts(tx) } else { tx.clone() };
            let applied = self.apply_tx(&told, &mark, block, &options, &mut conflicting);
            let problem =
                |problem| ApplyError::Tx { hash, height, txid: tx.txid, problem: Box::new(problem) };
            undo.txs.push(applied.map_err(problem)?);
            let makes = worth(tx);
            match spends.checked_sub(makes) {
                _ if options.rules.subsidy.is_none() || tx.coinbase => {}
                Some(fee) => fees += fee,
                None => return Err(problem(TxProblem::MakesMore { spends, makes })),
            }
        }
        if let (Some(subsidy), Some(coinbase)) =
            (options.rules.subsidy, block.txs.iter().find(|tx| tx.coinbase))
        {
            let (takes, allowed) = (worth(coinbase), fees + u128::from(subsidy));
            if takes > allowed {
                let problem = Box::new(TxProblem::TakesMore { takes, allowed });
                return Err(ApplyError::Tx { hash, height, txid: coinbase.txid, problem });
            }
        }
        let mined = undo.txs.iter().filter(|tx| tx.known).count();
        let applied = Applied { block: mark, created: undo.txs.len() - mined, mined, conflicting };
        self.undo.insert(height, Arc::new(undo));
        self.last = Some(mark);
        self.greatest_block_id = self.greatest_block_id.max(id);
        self.first_height = self.first_height.or(Some(height));
        let window = height.minus(self.policy.reorg_window);
        self.floor = Some(self.floor.map_or(height, |before| before.max(window)));
        self.note_forget_bound();
        Ok(applied)
    }

    /// A transaction that says what its inputs are worth and what it pays, unless it says so by itself or mints.
    fn with_amounts(&self, tx: &Tx) -> Tx {
        let mut told = tx.clone();
        if tx.coinbase {
            return told;
        }
        let mut paid = 0_i128;
        for input in &mut told.inputs {
            // Where it is missing the block is refused anyway.
            let value = self.value(input.outpoint).unwrap_or(0) as u64;
            paid += i128::from(value);
            if input.previous.is_none() {
                input.previous = Some(PrevOutput { value, script: None });
            }
        }
        paid -= tx.outputs.iter().map(|output| i128::from(output.value)).sum::<i128>();
        if told.fee.is_none() {
            told.fee = u64::try_from(paid).ok();
        }
        told
    }

    /// What an output is worth, if it is there.
    fn value(&self, outpoint: OutPoint) -> Option<u128> {
        let output = self.record(outpoint.txid)?.outputs.get(outpoint.vout as usize)?.as_ref()?;
        Some(output.value.into())
    }

    fn apply_tx(
        &mut self,
        tx: &Tx,
        mark: &BlockMark,
        block: &Block,
        options: &ApplyOptions,
        conflicting: &mut Vec<TxId>,
    ) -> Result<UndoTx, TxProblem> {
        let txid = tx.txid;
        if tx.outputs.is_empty() && !options.rules.allow_no_outputs {
            return Err(TxProblem::NoOutputs);
        }
        for wanted in Wanted::all_of(tx) {
            let Wanted { vin, outpoint, .. } = wanted;
            let made_here = block.txs.iter().any(|other| other.txid == outpoint.txid);
            if made_here && self.record(outpoint.txid).is_none() {
                return Err(TxProblem::OutOfOrder { vin, outpoint });
            }
            self.apply_input(txid, wanted, mark.height, conflicting)?;
        }
        let mut undo = UndoTx { txid, known: self.record(txid).is_some(), replaced: None };
        if self.mined_at(txid).is_some() {
            let old = self.present(txid);
            let unspent = old.slots.iter().filter(|slot| is_open(slot)).count() as u32;
            if unspent > 0 && !options.rules.allow_overwrite {
                return Err(TxProblem::Duplicate { unspent });
            }
            let record = old.clone();
            let forgotten = self.forgotten.iter().filter(|outpoint| outpoint.txid == txid).copied().collect();
            undo = UndoTx { txid, known: false, replaced: Some(Replaced { record, forgotten }) };
            self.remove(txid);
        }
        let entry = MinedIn { block_id: mark.id, height: mark.height, subtree: 0, on_longest_chain: true };
        if undo.known {
            self.unlist_with_parents(txid);
            let head = &mut self.present_mut(txid).head;
            head.conflicting_since = None;
            head.locked = false;
            match head.blocks.iter_mut().find(|block| block.block_id == mark.id) {
                Some(block) => *block = entry,
                None => head.blocks.push(entry),
            }
        } else {
            let mut record = self.new_record(tx, mark.height, [entry].into());
            if let Some(maturity) = options.rules.coinbase_maturity {
                record.head.spending_height = tx.coinbase.then(|| mark.height.plus(maturity));
            }
            record.head.created_at = block.time.saturating_mul(1000);
            record.head.external = options.bodies_above.and_then(|above| tx.body_outside(above));
            self.insert(record);
        }
        Ok(undo)
    }

    fn apply_input(
        &mut self,
        child: TxId,
        wanted: Wanted,
        height: Height,
        conflicting: &mut Vec<TxId>,
    ) -> Result<(), TxProblem> {
        let Wanted { vin, outpoint, .. } = wanted;
        if self.record(outpoint.txid).is_some() && self.mined_at(outpoint.txid).is_none() {
            return Err(TxProblem::ParentUnmined { vin, outpoint });
        }
        // It is mined already: a second time it spends what is spent.
        let again = match self.slot(outpoint) {
            Some(Slot::Spent { spender: by, child_mined_at: Some(height) }) => {
                SpendRefusal::Spent { by, mined_at: Some(height) }
            }
            Some(Slot::Settled { child_mined_at: mined_at }) => SpendRefusal::SpentAndSettled { mined_at },
            _ => SpendRefusal::NotFound,
        };
        match self.check_input(child, &wanted, height, SpendOverrides::default()) {
            Ok(true) if again != SpendRefusal::NotFound => {
                return Err(TxProblem::Input(InputRefusal { vin, outpoint, refusal: again }));
            }
            Ok(_) => {}
            Err(SpendRefusal::Spent { by, mined_at: None }) if by.child != child => {
                let losers = self.lose(vec![by.child], height);
                conflicting.extend(losers.map_err(|error| TxProblem::Rival(Box::new(error)))?);
            }
            Err(refusal) => return Err(TxProblem::Input(InputRefusal { vin, outpoint, refusal })),
        }
        self.set_slot(outpoint, Slot::spent(Spender::new(child, vin), Some(height)));
        Ok(())
    }

    /// Takes back all blocks above the target: all or nothing.
    pub fn roll_back(
        &mut self,
        target: Option<(Height, BlockHash)>,
        mode: RollbackMode,
    ) -> Result<RolledBack, RollbackError> {
        self.attempt(|model| model.take_back(target, mode))
    }

    fn take_back(
        &mut self,
        target: Option<(Height, BlockHash)>,
        mode: RollbackMode,
    ) -> Result<RolledBack, RollbackError> {
        let (Some(last), Some(floor)) = (self.last, self.floor) else { return Err(RollbackError::Empty) };
        let mut done = RolledBack {
            last: Some(last),
            blocks: 0,
            unmined: Vec::new(),
            forgotten: Vec::new(),
            conflicting: Vec::new(),
        };
        match target {
            Some((height, hash)) if (height, hash) == (last.height, last.hash) => return Ok(done),
            Some((target, _)) if target >= last.height => {
                return Err(RollbackError::NotBelow { target, last });
            }
            Some((target, _)) if target < floor => return Err(RollbackError::BelowFloor { target, floor }),
            Some((target, expected)) => {
                let above = self.undo.get(&target.next());
                let found =
                    above.and_then(|undo| undo.previous).expect("a block between floor and last").hash;
                if found != expected {
                    return Err(RollbackError::OtherBlock { target, found, expected });
                }
            }
            None if Some(floor) > self.first_height => {
                return Err(RollbackError::BelowFloor { target: Height(0), floor });
            }
            None => {}
        }
        while let Some(last) = self.last.filter(|last| target.is_none_or(|(target, _)| last.height > target))
        {
            let undo = self.undo.remove(&last.height).expect("undo inside the window");
            // No transaction of the block is mined when the first one loses, so none stands in the way of another.
            let unmined: HashSet<TxId> = undo
                .txs
                .iter()
                .map(|tx| tx.txid)
                .filter(|txid| self.leaves_block(*txid, &undo.block))
                .collect();
            for tx in undo.txs.iter().rev() {
                let taken = self.take_back_tx(tx, &undo.block, mode, &unmined, &mut done);
                taken.map_err(|problem| RollbackError::Tx { txid: tx.txid, problem: Box::new(problem) })?;
            }
            self.last = undo.previous;
            done.blocks += 1;
        }
        done.last = self.last;
        if self.last.is_none() {
            self.floor = None;
            self.first_height = None;
        }
        Ok(done)
    }

    /// Takes a transaction out of a block. Whether it was mined and is not any more.
    fn leaves_block(&mut self, txid: TxId, block: &BlockMark) -> bool {
        if self.record(txid).is_none() {
            return false;
        }
        let was_mined = self.mined_at(txid).is_some();
        self.change_blocks(txid, |blocks| blocks.retain(|entry| entry.block_id != block.id));
        self.found_unmined(txid, block.height);
        was_mined && self.mined_at(txid).is_none()
    }

    fn take_back_tx(
        &mut self,
        tx: &UndoTx,
        block: &BlockMark,
        mode: RollbackMode,
        unmined: &HashSet<TxId>,
        done: &mut RolledBack,
    ) -> Result<(), ConflictError> {
        let txid = tx.txid;
        if let Some(record) = self.record(txid) {
            let coinbase = record.head.coinbase;
            if !tx.known && (mode == RollbackMode::Follower || tx.replaced.is_some()) {
                let children = self.children(txid);
                done.conflicting.extend(self.lose(children, block.height)?);
                self.forget(txid);
                done.forgotten.push(txid);
            } else {
                // One that was written over by its own block has only now come back.
                let left_now = self.leaves_block(txid, block);
                if !tx.known && coinbase {
                    done.conflicting.extend(self.lose(vec![txid], block.height)?);
                } else if left_now || unmined.contains(&txid) {
                    done.unmined.push(txid);
                }
            }
        }
        if let Some(replaced) = &tx.replaced {
            self.come_back(replaced.clone());
        }
        Ok(())
    }

    /// A record that was written over is as it was, but for what has become of those that spent from it meanwhile, as far as it is
    /// known who they were.
    fn come_back(&mut self, Replaced { mut record, forgotten }: Replaced) {
        for (vout, slot) in (0..).zip(&mut record.slots) {
            let Slot::Spent { spender, child_mined_at } = *slot else { continue };
            if forgotten.contains(&OutPoint::new(record.txid, vout)) {
                continue;
            }
            let now = match self.record(spender.child) {
                Some(child) if child.head.is_conflicting() => Slot::Unspent,
                Some(_) => Slot::spent(spender, self.mined_at(spender.child)),
                None if child_mined_at.is_none() => Slot::Unspent,
                None => *slot,
            };
            *slot = now;
        }
        let lost = |child: &TxId| self.record(*child).is_some_and(|child| child.head.is_conflicting());
        record.head.conflicting_children.retain(lost);
        self.insert(record);
        self.forgotten.extend(forgotten);
    }

    /// The lowest block that can still be taken back: the one above the floor, or the first of all while nothing is above the first.
    pub fn undoable_from(&self) -> Option<Height> {
        let (first, floor) = (self.first_height?, self.floor?);
        Some(if floor == first { first } else { floor.next() })
    }

    /// Drops undo records no rollback can need.
    pub fn prune_undo(&mut self, from: Option<Height>, below: Height, limit: usize) -> UndoDropped {
        let undoable_from = self.undoable_from();
        let needed = |height: Height| undoable_from.is_some_and(|from| height >= from);
        let wanted = |height: &Height| Some(*height) >= from && *height < below && !needed(*height);
        let going: Vec<Height> = self.undo.keys().copied().filter(wanted).collect();
        for height in going.iter().take(limit) {
            self.undo.remove(height);
        }
        UndoDropped { dropped: going.len().min(limit) as u64, next: going.get(limit).copied() }
    }

    /// Changes how long things are kept. An unsafe policy is refused.
    pub fn set_policy(&mut self, policy: Policy) -> Result<(), sapwood_rules::PolicyError> {
        policy.validate()?;
        self.policy = policy;
        self.note_forget_bound();
        Ok(())
    }
}

/// Unspent, frozen, or spent by a transaction that is not mined.
pub(super) fn is_open(slot: &Slot) -> bool {
    match slot {
        Slot::Unspent | Slot::Frozen => true,
        Slot::Spent { child_mined_at, .. } => child_mined_at.is_none(),
        Slot::Settled { .. } | Slot::Unspendable => false,
    }
}
