//! Transactions and policies to test with. Everything follows from labels, so a failure shows the same ids every time.

use bytes::Bytes;
use sapwood_rules::{Hold, Policy, PruneContext, safe_height};
use sapwood_types::{
    AddressHash, BlockHash, Height, Input, MinedIn, OutPoint, Output, Slot, Spender, Tx, TxId, UtxoHash,
};

/// A policy whose limits can be reached in a few blocks.
pub fn small() -> Policy {
    Policy {
        retention: 5,
        reorg_window: 5,
        coinbase_maturity: 3,
        reassignment_delay: 10,
        unmined_retention: 2,
        parent_preservation: 20,
    }
}

fn hash_of(kind: &str, label: &str) -> [u8; 32] {
    UtxoHash::of(&TxId::default(), 0, format!("{kind} {label}").as_bytes(), 0).0
}

/// The id of the transaction with this label.
pub fn txid(label: &str) -> TxId {
    TxId(hash_of("transaction", label))
}

/// The hash of the block with this label.
pub fn block_hash(label: &str) -> BlockHash {
    BlockHash(hash_of("block", label))
}

/// The locking script of this owner.
pub fn script(owner: &str) -> Bytes {
    Bytes::from(format!("locked by {owner}"))
}

/// The address of this owner.
pub fn address(owner: &str) -> AddressHash {
    AddressHash::of_script(&script(owner))
}

/// The payment credential of this owner.
pub fn credential(owner: &str) -> AddressHash {
    AddressHash::of_script(format!("credential of {owner}").as_bytes())
}

/// An output that can never be spent.
pub fn data_output() -> Output {
    Output::data(&b"data only"[..])
}

/// A transaction out of nothing, owned by its label. It has no inputs, so it needs no parents.
pub fn coin(label: &str, outputs: u32) -> Tx {
    let output = |vout: u32| Output::new(1_000 + u64::from(vout), script(label));
    Tx {
        txid: txid(label),
        version: 2,
        locktime: 7,
        fee: Some(11),
        size: 250,
        coinbase: false,
        inputs: Vec::new(),
        outputs: (0..outputs).map(output).collect(),
        raw: Default::default(),
    }
}

/// A transaction that spends these outputs.
pub fn child(label: &str, of: &[(&Tx, u32)], outputs: u32) -> Tx {
    let inputs = of.iter().map(|(parent, vout)| Input::of(op(parent, *vout))).collect();
    Tx { inputs, ..coin(label, outputs) }
}

/// A transaction that spends these outputs and makes nothing but data, so that only its own block keeps it.
pub fn burn(label: &str, of: &[(&Tx, u32)]) -> Tx {
    Tx { outputs: vec![data_output()], ..child(label, of, 0) }
}

/// A coinbase.
pub fn coinbase(label: &str, outputs: u32) -> Tx {
    Tx { coinbase: true, ..coin(label, outputs) }
}

/// A transaction that pays one output to each owner.
pub fn paying(label: &str, of: &[(&Tx, u32)], owners: &[&str]) -> Tx {
    let output = |(vout, owner): (u64, &&str)| Output::new(500 + vout, script(owner));
    Tx { outputs: (0..).zip(owners).map(output).collect(), ..child(label, of, 0) }
}

/// Output `vout` of a transaction.
pub fn op(tx: &Tx, vout: u32) -> OutPoint {
    OutPoint::new(tx.txid, vout)
}

/// Input `vin` of a transaction.
pub fn by(tx: &Tx, vin: u32) -> Spender {
    Spender::new(tx.txid, vin)
}

/// A slot spent by input `vin` of a transaction, which is mined at that height, or not.
pub fn spent(tx: &Tx, vin: u32, mined_at: Option<u32>) -> Slot {
    Slot::spent(by(tx, vin), mined_at.map(Height))
}

/// The hash of an output as its transaction made it.
pub fn utxo_hash(tx: &Tx, vout: u32) -> UtxoHash {
    tx.outputs[vout as usize].utxo_hash(op(tx, vout))
}

/// Mined in a block on the longest chain.
pub fn mined_in(block_id: u32, height: u32) -> MinedIn {
    MinedIn { block_id, height: Height(height), subtree: 0, on_longest_chain: true }
}

/// Mined in a block of a fork.
pub fn forked_in(block_id: u32, height: u32) -> MinedIn {
    MinedIn { on_longest_chain: false, ..mined_in(block_id, height) }
}

/// The ids of transactions, sorted.
pub fn ids(txs: &[&Tx]) -> Vec<TxId> {
    let mut ids: Vec<_> = txs.iter().map(|tx| tx.txid).collect();
    ids.sort();
    ids
}

/// A hold of a consumer that needs everything from a height on, or has not reported yet.
pub fn hold(name: &str, keep_from: Option<u32>) -> Hold {
    Hold {
        name: name.into(),
        owner: "conformance".into(),
        keep_from: keep_from.map(Height),
        expires: None,
        reason: "it has not got further".into(),
    }
}

/// What records are judged by at a height, with these holds.
pub fn context(current: u32, retention: u32, holds: &[Hold]) -> PruneContext {
    PruneContext { current: Height(current), safe: safe_height(Height(current), holds, 0).height, retention }
}
