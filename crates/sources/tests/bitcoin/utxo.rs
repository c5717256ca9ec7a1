//! The plainest possible UTXO set, with Bitcoin Core's hash over it.

use std::collections::HashMap;

use sapwood_muhash::{MuHash, display_hex};
use sapwood_types::{Block, OutPoint};

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
                let mut coin: Coin = tx.txid.0.iter().rev().copied().collect();
                coin.extend(u32::to_le_bytes(vout));
                coin.extend((block.height.0 * 2 + u32::from(tx.coinbase)).to_le_bytes());
                coin.extend(output.value.to_le_bytes());
                let length =
                    u16::try_from(output.script.len()).expect("a script of ten thousand bytes at most");
                match u8::try_from(length).ok().filter(|length| *length < 253) {
                    Some(short) => coin.push(short),
                    None => coin.extend([&[253], length.to_le_bytes().as_slice()].concat()),
                }
                coin.extend(&output.script);
                self.hash.insert(&coin);
                self.amount += output.value;
                self.coins.insert(OutPoint::new(tx.txid, vout), (output.value, coin));
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
