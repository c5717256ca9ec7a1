//! The plainest possible UTXO set, with Bitcoin Core's hash over it.

use std::collections::HashMap;

use sapwood_muhash::{MuHash, display_hex};
use sapwood_types::{Block, OutPoint, coin::write_coin};

/// What Bitcoin Core hashes of a coin.
type Coin = Vec<u8>;

#[derive(Default)]
pub(crate) struct UtxoSet {
    coins: HashMap<OutPoint, (u64, Coin)>,
    hash: MuHash,
    pub(crate) amount: u64,
}

impl UtxoSet {
    pub(crate) fn apply(&mut self, block: &Block) {
        for tx in &block.txs {
            for input in &tx.inputs {
                let (value, coin) = self.coins.remove(&input.outpoint).expect("an input that is there");
                self.hash.remove(&coin);
                self.amount -= value;
            }
            for (vout, output) in (0..).zip(&tx.outputs).filter(|(_, output)| output.spendable) {
                let outpoint = OutPoint::new(tx.txid, vout);
                let mut coin = Coin::new();
                write_coin(outpoint, block.height, tx.coinbase, output.into(), &mut coin);
                self.hash.insert(&coin);
                self.amount += output.value;
                self.coins.insert(outpoint, (output.value, coin));
            }
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.coins.len()
    }

    pub(crate) fn muhash(&self) -> String {
        display_hex(&self.hash.finalize())
    }
}
