//! Applying a block.

use std::collections::HashSet;

use foldhash::fast::RandomState;
use sapwood_rules::{
    Policy, SpendRefusal,
    lifecycle::coinbase_spendable_from,
    spendability::{SlotSpend, SpendOverrides, check_record, check_slot},
};
use sapwood_types::{
    Block, BlockMark, Height, MinedIn, OutPoint, PrevOutput, Slot, Spender, Tx, TxHead, TxId, Undo,
};

use super::{conflict, create};
use crate::{
    ApplyError, ApplyOptions, InputRefusal, StoreError, WorkingSet,
    error::TxProblem,
    working_set::{Access, Stop},
};

/// What applying a block found out.
pub struct BlockOutcome {
    /// How to take it back.
    pub undo: Undo,
    /// Unmined transactions that lost against it.
    pub conflicting: Vec<TxId>,
}

/// Why one transaction of a block was refused.
enum Refused {
    Problem(TxProblem),
    Store(StoreError),
}

impl From<Stop<StoreError>> for Stop<Refused> {
    fn from(stop: Stop<StoreError>) -> Self {
        stop.map(Refused::Store)
    }
}

impl From<TxProblem> for Stop<Refused> {
    fn from(problem: TxProblem) -> Self {
        Stop::Failed(Refused::Problem(problem))
    }
}

/// Checks that a block comes next after the last applied one.
pub fn check_next(block: &Block, last: Option<&BlockMark>) -> Result<(), ApplyError> {
    let Some(last) = last else { return Ok(()) };
    // The height after the greatest is that height again.
    if last.height == Height::MAX {
        return Err(ApplyError::NoHeightLeft { hash: block.hash, height: block.height, last: *last });
    }
    let expected = last.height.next();
    if block.height != expected {
        return Err(ApplyError::NotNext { hash: block.hash, height: block.height, expected });
    }
    if block.parent != last.hash {
        let (hash, height, parent) = (block.hash, block.height, block.parent);
        return Err(ApplyError::WrongParent { hash, height, parent, last: last.hash });
    }
    Ok(())
}

/// The number of a block: the one the caller gives it, or else the one after the greatest ever given.
pub fn next_block_id(block: &Block, greatest: u32, explicit: Option<u32>) -> Result<u32, ApplyError> {
    let none_left = ApplyError::NoBlockIdLeft { hash: block.hash, height: block.height };
    explicit.or_else(|| greatest.checked_add(1)).ok_or(none_left)
}

/// Applies a block that comes next. On error the working set is half changed and must be dropped.
pub fn apply(
    set: &mut WorkingSet,
    block: &Block,
    mark: BlockMark,
    previous: Option<BlockMark>,
    options: ApplyOptions,
    policy: &Policy,
) -> Result<BlockOutcome, Stop<ApplyError>> {
    let mut made_here: HashSet<TxId, RandomState> =
        HashSet::with_capacity_and_hasher(block.txs.len(), RandomState::default());
    if let Some(tx) = block.txs.iter().find(|tx| !made_here.insert(tx.txid)) {
        let (hash, height, problem) = (block.hash, block.height, Box::new(TxProblem::Twice));
        return Err(ApplyError::Tx { hash, height, txid: tx.txid, problem }.into());
    }
    set.want(block.txs.iter().map(|tx| tx.txid));
    let spent = block.txs.iter().flat_map(|tx| tx.inputs.iter()).map(|input| input.outpoint);
    set.want_outputs(spent.filter(|outpoint| !made_here.contains(&outpoint.txid)));
    set.ready()?;

    let undo = Undo { block: mark, previous, created: Vec::new(), mined: Vec::new(), replaced: Vec::new() };
    let mut applier = Applier {
        block,
        made_here,
        mark,
        options,
        policy,
        fees: 0,
        outcome: BlockOutcome { undo, conflicting: Vec::new() },
    };
    let refused = |tx: &Tx, refused| match refused {
        Refused::Store(error) => ApplyError::Store(error),
        Refused::Problem(problem) => {
            let (hash, height, problem) = (block.hash, block.height, Box::new(problem));
            ApplyError::Tx { hash, height, txid: tx.txid, problem }
        }
    };
    set.each(&block.txs, |set, tx| {
        applier.apply_tx(set, tx).map_err(|stop| stop.map(|error| refused(tx, error)))
    })?;
    if let (Some(subsidy), Some(coinbase)) = (options.rules.subsidy, block.txs.iter().find(|tx| tx.coinbase))
    {
        let (takes, allowed) = (worth(coinbase), applier.fees + u128::from(subsidy));
        if takes > allowed {
            return Err(refused(coinbase, Refused::Problem(TxProblem::TakesMore { takes, allowed })).into());
        }
    }
    Ok(applier.outcome)
}

struct Applier<'block> {
    block: &'block Block,
    /// All transactions of the block.
    made_here: HashSet<TxId, RandomState>,
    mark: BlockMark,
    options: ApplyOptions,
    policy: &'block Policy,
    /// What the transactions so far spend more than they make. Only where amounts are checked.
    fees: u128,
    outcome: BlockOutcome,
}

/// Sums up the outputs of a transaction, those that can never be spent included.
fn worth(tx: &Tx) -> u128 {
    tx.outputs.iter().map(|output| u128::from(output.value)).sum()
}

/// What a transaction of a block spends and makes.
struct Amounts {
    /// What each input is worth.
    inputs: Vec<u64>,
    makes: u128,
}

impl Amounts {
    /// The transaction with its fee, and with what each input is worth, as far as its source did not say.
    fn filled_in(&self, tx: &Tx) -> Tx {
        let spends = self.inputs.iter().map(|value| u128::from(*value)).sum::<u128>();
        let fee = spends.checked_sub(self.makes).and_then(|fee| u64::try_from(fee).ok());
        let mut tx = tx.clone();
        tx.fee = tx.fee.or(fee);
        for (input, value) in tx.inputs.iter_mut().zip(&self.inputs) {
            input.previous.get_or_insert(PrevOutput { value: *value, script: None });
        }
        tx
    }
}

impl Applier<'_> {
    fn apply_tx(&mut self, set: &mut WorkingSet, tx: &Tx) -> Result<(), Stop<Refused>> {
        if tx.outputs.is_empty() && !self.options.rules.allow_no_outputs {
            return Err(TxProblem::NoOutputs.into());
        }
        for (vin, input) in tx.inputs.iter().enumerate() {
            self.hold(set, input.outpoint, Spender::new(tx.txid, vin as u32))?;
        }
        let amounts = self.amounts(set, tx)?;
        // Nearly always: a look that reads no page.
        if !set.contains(tx.txid)? {
            self.outcome.undo.created.push(tx.txid);
            self.create(set, tx, amounts.as_ref())?;
        } else if let Some(known) = set.header(tx.txid)? {
            let unspent = known.view().open();
            if known.head.mined_at().is_none() {
                self.mine_known(set, tx.txid)?;
            } else if unspent > 0 && !self.options.rules.allow_overwrite {
                return Err(TxProblem::Duplicate { unspent }.into());
            } else {
                self.replace(set, tx, amounts.as_ref())?;
            }
        }
        if let Some(Amounts { inputs, makes }) = amounts {
            let spends = inputs.iter().map(|value| u128::from(*value)).sum::<u128>();
            self.fees += spends.checked_sub(makes).ok_or(TxProblem::MakesMore { spends, makes })?;
        }
        Ok(())
    }

    /// What a transaction spends and makes, where amounts are checked. Its inputs are there: they have been held.
    fn amounts(&mut self, set: &mut WorkingSet, tx: &Tx) -> Access<Option<Amounts>> {
        if self.options.rules.subsidy.is_none() || tx.coinbase {
            return Ok(None);
        }
        let mut inputs = Vec::with_capacity(tx.inputs.len());
        for input in &tx.inputs {
            inputs.push(set.output(input.outpoint)?.map_or(0, |output| output.value));
        }
        Ok(Some(Amounts { inputs, makes: worth(tx) }))
    }

    /// Lets an input of this block hold what it spends. An unmined rival loses.
    fn hold(
        &mut self,
        set: &mut WorkingSet,
        outpoint: OutPoint,
        spender: Spender,
    ) -> Result<(), Stop<Refused>> {
        let vin = spender.vin;
        let height = self.block.height;
        let refused = |refusal| Stop::from(TxProblem::Input(InputRefusal { vin, outpoint, refusal }));
        match set.decide_slot(outpoint, |seen| decide(seen, outpoint.vout, spender, height))? {
            Ok(()) => Ok(()),
            Err(Undecided::ParentUnmined) => Err(TxProblem::ParentUnmined { vin, outpoint }.into()),
            Err(Undecided::Refused(SpendRefusal::NotFound))
                if self.made_here.contains(&outpoint.txid) && !set.contains(outpoint.txid)? =>
            {
                Err(TxProblem::OutOfOrder { vin, outpoint }.into())
            }
            Err(Undecided::Refused(refusal)) => Err(refused(refusal)),
            // The same transaction was mined before: a second time it spends what is spent.
            Err(Undecided::MinedBefore(mined_at)) => Err(refused(match set.contains(spender.child)? {
                true => SpendRefusal::Spent { by: spender, mined_at: Some(mined_at) },
                false => SpendRefusal::SpenderPruned { by: spender, mined_at },
            })),
            Err(Undecided::Rival(rival)) => {
                let lost = conflict::lose(set, &[rival], height)
                    .map_err(|stop| stop.map(|error| Refused::Problem(TxProblem::Rival(Box::new(error)))))?;
                self.outcome.conflicting.extend(lost);
                Ok(set.set_slot(outpoint, Slot::spent(spender, Some(height)))?)
            }
        }
    }

    /// Makes the record of a transaction. What its inputs are worth is known now and may be gone at a later query, so it is kept.
    fn create(
        &mut self,
        set: &mut WorkingSet,
        tx: &Tx,
        amounts: Option<&Amounts>,
    ) -> Result<(), Stop<Refused>> {
        let height = self.block.height;
        let maturity = self.options.rules.coinbase_maturity.unwrap_or(self.policy.coinbase_maturity);
        let spending_height = tx.coinbase.then(|| coinbase_spendable_from(height, maturity));
        let head = TxHead {
            coinbase: tx.coinbase,
            external: self.options.bodies_above.and_then(|above| tx.body_outside(above)),
            created_height: height,
            created_at: self.block.time.saturating_mul(1000),
            spending_height,
            blocks: [MinedIn::block(&self.mark)].into(),
            ..TxHead::default()
        };
        let inserted = match amounts {
            Some(amounts) => create::insert(set, &amounts.filled_in(tx), head, false),
            None => create::insert(set, tx, head, false),
        };
        Ok(inserted?)
    }

    /// A stored transaction that was not mined is mined by this block. Its parents were told by [`Applier::hold`].
    fn mine_known(&mut self, set: &mut WorkingSet, txid: TxId) -> Result<(), Stop<Refused>> {
        conflict::no_longer_conflicting(set, txid)?;
        if let Some(head) = set.head_mut(txid)? {
            // A caller that numbers blocks may have noted this one before, off the longest chain.
            super::mine::note_block(&mut head.blocks, MinedIn::block(&self.mark));
            head.locked = false;
        }
        self.outcome.undo.mined.push(txid);
        Ok(())
    }

    /// A mined transaction of the same id is written over, and kept in the undo record.
    fn replace(
        &mut self,
        set: &mut WorkingSet,
        tx: &Tx,
        amounts: Option<&Amounts>,
    ) -> Result<(), Stop<Refused>> {
        self.outcome.undo.replaced.extend(set.record(tx.txid)?);
        set.remove(tx.txid)?;
        self.outcome.undo.created.push(tx.txid);
        self.create(set, tx, amounts)
    }
}

/// What keeps an input from simply holding an output.
enum Undecided {
    ParentUnmined,
    Refused(SpendRefusal),
    MinedBefore(Height),
    Rival(TxId),
}

/// What becomes of an output that an input of a block at `height` spends.
fn decide(
    seen: Option<(&TxHead, Option<&Slot>)>,
    vout: u32,
    spender: Spender,
    height: Height,
) -> Result<Slot, Undecided> {
    let (head, slot) = seen.ok_or(Undecided::Refused(SpendRefusal::NotFound))?;
    if head.mined_at().is_none() {
        return Err(Undecided::ParentUnmined);
    }
    check_record(head, height, SpendOverrides::default()).map_err(Undecided::Refused)?;
    match check_slot(head, vout, slot, spender, height) {
        Ok(SlotSpend::New | SlotSpend::Repeat { mined_at: None }) => Ok(Slot::spent(spender, Some(height))),
        Ok(SlotSpend::Repeat { mined_at: Some(mined_at) }) => Err(Undecided::MinedBefore(mined_at)),
        Err(SpendRefusal::Spent { by, mined_at: None }) if by.child != spender.child => {
            Err(Undecided::Rival(by.child))
        }
        Err(refusal) => Err(Undecided::Refused(refusal)),
    }
}
