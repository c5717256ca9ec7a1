//! Storing a transaction.

use sapwood_rules::{Policy, SpendRefusal, lifecycle::coinbase_spendable_from, spendability::SpendOverrides};
use sapwood_types::{Blocks, Height, Slot, Spender, Tx, TxHead, TxRecord};

use super::{list_at_parents, spend::hold_all};
use crate::{
    CreateError, CreateRequest, InputRefusal, SpendInput, WorkingSet,
    working_set::{Access, Stop},
};

/// Declares what a transaction to be stored needs.
pub fn want(set: &mut WorkingSet, request: &CreateRequest) {
    set.want([request.tx.txid]);
    set.want_outputs(request.tx.inputs.iter().map(|input| input.outpoint));
}

/// Every input of a transaction, to be spent without expecting a hash.
pub(super) fn all_inputs(tx: &Tx) -> Vec<SpendInput> {
    let input = |(vin, outpoint)| SpendInput { vin: vin as u32, outpoint, expected: None };
    tx.inputs.iter().map(|input| input.outpoint).enumerate().map(input).collect()
}

/// Stores a transaction and spends its inputs.
pub fn create(
    set: &mut WorkingSet,
    request: &CreateRequest,
    height: Height,
    policy: &Policy,
) -> Result<(), Stop<CreateError>> {
    let tx = &request.tx;
    let txid = tx.txid;
    if tx.outputs.is_empty() {
        return Err(CreateError::NoOutputs { txid }.into());
    }
    if set.contains(txid)? {
        return Err(CreateError::Exists { txid }.into());
    }
    let mut blocks: Blocks = request.mined_in.into_iter().collect();
    if request.conflicting {
        blocks.iter_mut().for_each(|block| block.on_longest_chain = false);
    }
    let mined_at = blocks.iter().find(|block| block.on_longest_chain).map(|block| block.height);
    if !request.conflicting {
        let mut inputs = all_inputs(tx);
        if request.trust_inputs {
            inputs = only_with_parents(set, inputs)?;
        }
        hold_all(set, &inputs, txid, false, mined_at, height, SpendOverrides::default())?
            .map_err(|inputs| CreateError::Inputs { txid, inputs })?;
    }
    if request.conflicting {
        refuse_if_pruned(set, tx)?;
    }
    let created_height = mined_at.unwrap_or(height);
    let head = TxHead {
        coinbase: tx.coinbase,
        locked: request.locked && mined_at.is_none(),
        external: request.external,
        created_height,
        created_at: request.created_at,
        first_unmined: if mined_at.is_none() { Some(height) } else { None },
        conflicting_since: request.conflicting.then_some(height),
        spending_height: tx
            .coinbase
            .then(|| coinbase_spendable_from(created_height, policy.coinbase_maturity)),
        blocks,
        ..TxHead::default()
    };
    insert(set, tx, head, request.frozen)?;
    if request.conflicting {
        list_at_parents(set, txid, true)?;
    }
    Ok(())
}

/// A transaction that its parents remember as mined was pruned and must not come back, not even as a loser.
fn refuse_if_pruned(set: &mut WorkingSet, tx: &Tx) -> Result<(), Stop<CreateError>> {
    let mut refused = Vec::new();
    for SpendInput { vin, outpoint, .. } in all_inputs(tx) {
        if let Some(Slot::Spent { spender: by, child_mined_at: Some(mined_at) }) = set.slot(outpoint)?
            && by == Spender::new(tx.txid, vin)
        {
            let refusal = SpendRefusal::SpenderPruned { by, mined_at };
            refused.push(InputRefusal { vin, outpoint, refusal });
        }
    }
    if refused.is_empty() {
        return Ok(());
    }
    Err(CreateError::Inputs { txid: tx.txid, inputs: refused }.into())
}

/// The inputs whose parents are stored.
fn only_with_parents(set: &mut WorkingSet, inputs: Vec<SpendInput>) -> Access<Vec<SpendInput>> {
    let mut kept = Vec::with_capacity(inputs.len());
    for input in inputs {
        if set.contains(input.outpoint.txid)? {
            kept.push(input);
        }
    }
    Ok(kept)
}

/// Puts a new record in place.
pub(super) fn insert(set: &mut WorkingSet, tx: &Tx, head: TxHead, frozen: bool) -> Access<()> {
    if !frozen {
        return set.insert_new(tx, head);
    }
    let mut record = TxRecord::new(tx, head);
    for slot in record.slots.iter_mut().filter(|slot| slot.is_unspent()) {
        *slot = Slot::Frozen;
    }
    set.insert(&record)
}
