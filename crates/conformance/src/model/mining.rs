//! Mined, unmined, on the longest chain.

use sapwood_ledger::{BatchResult, MineError, MineRequest};
use sapwood_types::{Height, TxId};

use super::Model;

impl Model {
    /// Marks transactions as mined in a block, or takes that back.
    pub fn set_mined(
        &mut self,
        txids: Vec<TxId>,
        request: MineRequest,
        height: Height,
    ) -> BatchResult<(), MineError> {
        self.each(txids, |model, txid| model.set_mined_one(txid, request, height)).map(|_| ())
    }

    fn set_mined_one(&mut self, txid: TxId, request: MineRequest, height: Height) -> Result<(), MineError> {
        let MineRequest { block, unset } = request;
        if self.record(txid).is_none() {
            return if unset { Ok(()) } else { Err(MineError::NotFound { txid }) };
        }
        if unset {
            self.change_blocks(txid, |blocks| blocks.retain(|entry| entry.block_id != block.block_id));
        } else {
            if block.on_longest_chain {
                self.check_not_conflicting(txid)?;
                self.check_all_held(txid)?;
            }
            self.change_blocks(txid, |blocks| {
                match blocks.iter_mut().find(|entry| entry.block_id == block.block_id) {
                    Some(entry) => *entry = block,
                    None => blocks.push(block),
                }
            });
        }
        self.present_mut(txid).head.locked = false;
        self.found_unmined(txid, height);
        Ok(())
    }

    /// Says that the highest block of each transaction is on the longest chain, or none.
    pub fn mark_on_longest_chain(
        &mut self,
        txids: Vec<TxId>,
        on: bool,
        height: Height,
    ) -> BatchResult<(), MineError> {
        self.each(txids, |model, txid| model.mark_one(txid, on, height)).map(|_| ())
    }

    fn mark_one(&mut self, txid: TxId, on: bool, height: Height) -> Result<(), MineError> {
        let Some(record) = self.record(txid) else { return Err(MineError::NotFound { txid }) };
        if on {
            let nowhere = record.head.blocks.is_empty();
            self.check_not_conflicting(txid)?;
            if nowhere {
                return Err(MineError::NoBlock { txid });
            }
            self.check_all_held(txid)?;
            self.change_blocks(txid, |blocks| {
                // Of several at the greatest height `max_by_key` takes the last.
                let highest = blocks.iter_mut().max_by_key(|entry| entry.height);
                highest.expect("there is a block").on_longest_chain = true;
            });
        } else {
            self.change_blocks(txid, |blocks| {
                blocks.iter_mut().for_each(|entry| entry.on_longest_chain = false);
            });
        }
        self.found_unmined(txid, height);
        Ok(())
    }

    fn check_not_conflicting(&self, txid: TxId) -> Result<(), MineError> {
        match self.present(txid).head.conflicting_since {
            Some(since) => Err(MineError::Conflicting { txid, since }),
            None => Ok(()),
        }
    }

    fn check_all_held(&self, txid: TxId) -> Result<(), MineError> {
        for (vin, outpoint) in self.inputs(txid) {
            if self.record(outpoint.txid).is_some() && !self.holds(txid, vin, outpoint) {
                return Err(MineError::InputNotHeld { txid, outpoint });
            }
        }
        Ok(())
    }
}
