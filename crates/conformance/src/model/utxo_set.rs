//! The UTXO set, worked out anew from all records.

use sapwood_ledger::UtxoSet;
use sapwood_muhash::MuHash;
use sapwood_types::{Height, Output, Slot, TxRecord};

use super::Model;

impl Model {
    /// The figures of the UTXO set, and the hash that Bitcoin Core gives such a set.
    pub fn utxo_set(&self) -> UtxoSet {
        let mut hash = MuHash::new();
        let mut set = UtxoSet { last: self.last, ..UtxoSet::default() };
        for record in self.records.values() {
            let Some(mined_at) = self.mined_at(record.txid) else { continue };
            let mut has_coins = false;
            for (vout, (slot, output)) in (0..).zip(record.slots.iter().zip(&record.outputs)) {
                let (false, Some(output)) = (is_gone(slot), output) else { continue };
                hash.insert(&coin(record, mined_at, vout, output));
                set.coins += 1;
                set.amount += u128::from(output.value);
                has_coins = true;
            }
            set.transactions += u64::from(has_coins);
        }
        UtxoSet { hash: Some(hash), ..set }
    }
}

fn is_gone(slot: &Slot) -> bool {
    match slot {
        Slot::Unspent | Slot::Frozen => false,
        Slot::Spent { child_mined_at, .. } => child_mined_at.is_some(),
        Slot::Settled { .. } | Slot::Unspendable => true,
    }
}

/// What Bitcoin Core hashes of a coin.
fn coin(record: &TxRecord, mined_at: Height, vout: u32, output: &Output) -> Vec<u8> {
    let mut txid = record.txid.0;
    txid.reverse();
    let length = output.script.len();
    let length = match u8::try_from(length) {
        Ok(short) if short < 253 => vec![short],
        _ => [&[253][..], &u16::try_from(length).expect("a script of a test").to_le_bytes()].concat(),
    };
    let code = mined_at.0 * 2 + u32::from(record.head.coinbase);
    let parts: [&[u8]; 6] = [
        &txid,
        &vout.to_le_bytes(),
        &code.to_le_bytes(),
        &output.value.to_le_bytes(),
        &length,
        &output.script,
    ];
    parts.concat()
}
