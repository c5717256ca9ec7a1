//! Mined, unmined, and on the longest chain or not.

use sapwood_rules::lifecycle::earliest_unmined;
use sapwood_types::{Blocks, Height, MinedIn, TxHead, TxId};

use super::{Hold, hold, inputs_of, tell_parents};
use crate::{
    MineError, MineRequest, WorkingSet,
    working_set::{Access, Stop},
};

/// A transaction may be mined only if it holds all its inputs.
fn check_may_be_mined(set: &mut WorkingSet, txid: TxId) -> Result<(), Stop<MineError>> {
    let Some(head) = set.head(txid)? else { return Err(MineError::NotFound { txid }.into()) };
    if let Some(since) = head.conflicting_since {
        return Err(MineError::Conflicting { txid, since }.into());
    }
    let mined_at = head.mined_at();
    for (outpoint, spender) in inputs_of(set, txid)? {
        if let Hold::NotHeld = hold(set, outpoint, spender, mined_at)? {
            return Err(MineError::InputNotHeld { txid, outpoint }.into());
        }
    }
    Ok(())
}

/// Changes the blocks of a stored transaction, and all that follows: since when it is unmined, and what its parents remember.
pub(super) fn change_blocks(
    set: &mut WorkingSet,
    txid: TxId,
    height: Height,
    change: impl FnOnce(&mut TxHead),
) -> Access<()> {
    let Some(head) = set.head_mut(txid)? else { return Ok(()) };
    let before = head.mined_at();
    change(head);
    let now = head.mined_at();
    if now.is_none() {
        head.first_unmined = Some(earliest_unmined(head.first_unmined, height));
    }
    let holds_something = !head.is_conflicting();
    if now != before && holds_something {
        tell_parents(set, txid, before, now)?;
    }
    Ok(())
}

/// Notes a block, in the place of an entry of the same number: two of one number could not be told apart.
pub(super) fn note_block(blocks: &mut Blocks, block: MinedIn) {
    match blocks.iter_mut().find(|entry| entry.block_id == block.block_id) {
        Some(entry) => *entry = block,
        None => blocks.push(block),
    }
}

/// Marks a transaction as mined in a block, or takes that back.
pub fn set_mined(
    set: &mut WorkingSet,
    txid: TxId,
    request: MineRequest,
    height: Height,
) -> Result<(), Stop<MineError>> {
    let block = request.block;
    if request.unset {
        return Ok(change_blocks(set, txid, height, |head| {
            head.blocks.retain(|entry| entry.block_id != block.block_id);
            head.locked = false;
        })?);
    }
    if block.on_longest_chain {
        check_may_be_mined(set, txid)?;
    } else if !set.contains(txid)? {
        return Err(MineError::NotFound { txid }.into());
    }
    Ok(change_blocks(set, txid, height, |head| {
        note_block(&mut head.blocks, block);
        head.locked = false;
    })?)
}

/// Says that the highest block of a transaction is on the longest chain, or that none of its blocks is.
pub fn mark_on_longest_chain(
    set: &mut WorkingSet,
    txid: TxId,
    on: bool,
    height: Height,
) -> Result<(), Stop<MineError>> {
    let Some(head) = set.head(txid)? else { return Err(MineError::NotFound { txid }.into()) };
    if !on {
        return Ok(change_blocks(set, txid, height, |head| {
            head.blocks.iter_mut().for_each(|entry| entry.on_longest_chain = false);
        })?);
    }
    if let Some(since) = head.conflicting_since {
        return Err(MineError::Conflicting { txid, since }.into());
    }
    if head.blocks.is_empty() {
        return Err(MineError::NoBlock { txid }.into());
    }
    check_may_be_mined(set, txid)?;
    Ok(change_blocks(set, txid, height, |head| {
        if let Some(highest) = head.blocks.iter_mut().max_by_key(|entry| entry.height) {
            highest.on_longest_chain = true;
        }
    })?)
}
