//! What is stored, as it goes out.

use sapwood_ledger::{UnminedTx, Utxo, UtxoSet};
use sapwood_rules::SpendStatus;
use sapwood_types::{BlockMark, External, MinedIn, Reassignment, Slot, TxRecord};

use super::{bytes, known, txids};
use crate::grpc::{
    field::{Checked, height, required},
    proto,
};

impl proto::MinedIn {
    pub(crate) fn read(self) -> Checked<MinedIn> {
        let proto::MinedIn { block_id, subtree, .. } = self;
        let height = height(self.height, "height")?;
        let on_longest_chain = required(self.on_longest_chain, "on_longest_chain")?;
        Ok(MinedIn { block_id, height, subtree, on_longest_chain })
    }
}

impl From<MinedIn> for proto::MinedIn {
    fn from(block: MinedIn) -> Self {
        let MinedIn { block_id, height, subtree, on_longest_chain } = block;
        Self { block_id, height: Some(height.0), subtree, on_longest_chain: Some(on_longest_chain) }
    }
}

impl From<BlockMark> for proto::BlockMark {
    fn from(block: BlockMark) -> Self {
        Self { block_id: block.id, height: block.height.0, hash: bytes(block.hash.0) }
    }
}

impl From<Slot> for proto::Slot {
    fn from(slot: Slot) -> Self {
        use proto::slot::{self, State};
        let state = match slot {
            Slot::Unspent => State::Unspent(slot::Unspent {}),
            Slot::Frozen => State::Frozen(slot::Frozen {}),
            Slot::Unspendable => State::Unspendable(slot::Unspendable {}),
            Slot::Spent { spender, child_mined_at } => {
                State::Spent(slot::Spent { spender: Some(spender.into()), mined_at: known(child_mined_at) })
            }
            Slot::Settled { child_mined_at } => State::Settled(slot::Settled { mined_at: child_mined_at.0 }),
        };
        Self { state: Some(state) }
    }
}

impl From<Reassignment> for proto::Reassignment {
    fn from(change: Reassignment) -> Self {
        Self {
            vout: change.vout,
            old_hash: bytes(change.old.0),
            new_hash: bytes(change.new.0),
            height: change.at.0,
            spendable_from: change.spendable_from.0,
        }
    }
}

impl From<TxRecord> for proto::Record {
    fn from(record: TxRecord) -> Self {
        let TxRecord { txid, head, body, outputs, slots } = record;
        let external = match head.external {
            None => proto::ExternalBody::Unspecified,
            Some(External::Tx) => proto::ExternalBody::Tx,
            Some(External::Outputs) => proto::ExternalBody::Outputs,
        };
        let output = |(output, slot): (Option<_>, Slot)| proto::RecordOutput {
            output: output.as_ref().map(Into::into),
            slot: Some(slot.into()),
        };
        Self {
            txid: bytes(txid.0),
            version: body.version,
            locktime: body.locktime,
            fee: body.fee,
            size: body.size,
            coinbase: head.coinbase,
            inputs: body.inputs.iter().map(Into::into).collect(),
            mined_at: known(head.mined_at()),
            unmined_since: known(head.unmined_since()),
            conflicting_since: known(head.conflicting_since),
            preserve_until: known(head.preserve_until),
            spendable_from: known(head.spending_height),
            locked: head.locked,
            blocks: head.blocks.into_iter().map(Into::into).collect(),
            conflicting_children: txids(&head.conflicting_children),
            reassignments: head.reassignments.into_iter().map(Into::into).collect(),
            created_height: head.created_height.0,
            created_at_ms: head.created_at,
            external: external.into(),
            outputs: outputs.into_iter().zip(slots).map(output).collect(),
        }
    }
}

impl From<Utxo> for proto::UtxoOutput {
    fn from(utxo: Utxo) -> Self {
        Self {
            outpoint: Some(utxo.outpoint.into()),
            output: Some((&utxo.output).into()),
            slot: Some(utxo.slot.into()),
            created_height: utxo.created_height.0,
            mined_at: known(utxo.mined_at),
            coinbase: utxo.coinbase,
        }
    }
}

impl From<UnminedTx> for proto::UnminedTransaction {
    fn from(tx: UnminedTx) -> Self {
        Self {
            txid: bytes(tx.txid.0),
            unmined_since: tx.since.0,
            fee: tx.fee,
            size: tx.size,
            inputs: tx.inputs.into_iter().map(Into::into).collect(),
            created_at_ms: tx.created_at,
            locked: tx.locked,
            blocks: tx.blocks.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<UtxoSet> for proto::UtxoSet {
    fn from(set: UtxoSet) -> Self {
        Self {
            applied: set.last.map(Into::into),
            outputs: set.coins,
            transactions: set.transactions,
            value: set.amount.to_string(),
            muhash: set.digest(),
        }
    }
}

impl From<SpendStatus> for proto::OutputStatus {
    fn from(status: SpendStatus) -> Self {
        use proto::SpendStatus as Wire;
        let (code, spender, height) = match status {
            SpendStatus::Locked => (Wire::Locked, None, None),
            SpendStatus::Conflicting { since } => (Wire::Conflicting, None, Some(since)),
            SpendStatus::Frozen => (Wire::Frozen, None, None),
            SpendStatus::Immature { spendable_from } => (Wire::Immature, None, Some(spendable_from)),
            SpendStatus::Spent { by, mined_at } => (Wire::Spent, by, mined_at),
            SpendStatus::Spendable => (Wire::Spendable, None, None),
            SpendStatus::Unspendable => (Wire::Unspendable, None, None),
            SpendStatus::NotFound => (Wire::NotFound, None, None),
        };
        let (message, spender, height) = (status.to_string(), spender.map(Into::into), known(height));
        Self { status: code.into(), message, spender, height }
    }
}

#[cfg(test)]
mod tests {
    use sapwood_types::{Height, Input, OutPoint, Output, Spender, Tx, TxHead, TxId};

    use super::*;

    #[test]
    fn a_record_goes_out_with_everything_and_unknown_is_not_zero() {
        let tx = Tx {
            txid: TxId([1; 32]),
            version: 2,
            locktime: 3,
            fee: None,
            size: 4,
            coinbase: false,
            inputs: vec![Input::of(OutPoint::new(TxId([2; 32]), 1))],
            outputs: vec![Output::new(5, "a"), Output::data("d")],
            raw: Default::default(),
        };
        let block = MinedIn { block_id: 9, height: Height(0), subtree: 8, on_longest_chain: true };
        assert_eq!(proto::MinedIn::from(block).read(), Ok(block));
        let mut record = TxRecord::new(&tx, TxHead { blocks: [block].into(), ..TxHead::default() });
        record.slots[0] = Slot::spent(Spender::new(TxId([3; 32]), 6), Some(Height(0)));
        let out = proto::Record::from(record.clone());
        assert_eq!((out.mined_at, out.unmined_since, out.fee, out.version), (Some(0), None, None, 2));
        let spender = proto::Spender { txid: bytes([3; 32]), vin: 6 };
        let spent = proto::slot::Spent { spender: Some(spender), mined_at: Some(0) };
        let states: Vec<_> =
            out.outputs.iter().map(|output| output.slot.as_ref().unwrap().state.clone().unwrap()).collect();
        let unspendable = proto::slot::State::Unspendable(proto::slot::Unspendable {});
        assert_eq!(states, [proto::slot::State::Spent(spent), unspendable]);
        assert_eq!(out.outputs[0].output.as_ref().unwrap().value, 5);
        assert_eq!(out.outputs[1].output, None, "what can never be spent was not kept");
        record.head.blocks.clear();
        let out = proto::Record::from(record);
        assert_eq!((out.mined_at, out.unmined_since), (None, Some(0)));
    }

    #[test]
    fn every_status_has_a_code_and_words() {
        let by = Some(Spender::new(TxId([3; 32]), 1));
        let cases = [
            (SpendStatus::Locked, proto::SpendStatus::Locked, None),
            (SpendStatus::Conflicting { since: Height(0) }, proto::SpendStatus::Conflicting, Some(0)),
            (SpendStatus::Frozen, proto::SpendStatus::Frozen, None),
            (SpendStatus::Immature { spendable_from: Height(7) }, proto::SpendStatus::Immature, Some(7)),
            (SpendStatus::Spent { by, mined_at: Some(Height(8)) }, proto::SpendStatus::Spent, Some(8)),
            (SpendStatus::Spendable, proto::SpendStatus::Spendable, None),
            (SpendStatus::Unspendable, proto::SpendStatus::Unspendable, None),
            (SpendStatus::NotFound, proto::SpendStatus::NotFound, None),
        ];
        for (status, code, height) in cases {
            let out = proto::OutputStatus::from(status);
            assert_eq!((out.status(), out.height, out.message), (code, height, status.to_string()));
        }
    }
}
