//! The sender of a transaction, recovered from its signature.

use alloy_consensus::{SignableTransaction, Signed};
use alloy_primitives::{Address, B256, Signature, keccak256};
use secp256k1::{
    Message, Secp256k1, VerifyOnly,
    ecdsa::{RecoverableSignature, RecoveryId},
};

use crate::block::Transaction;

/// Recovers senders.
#[derive(Debug)]
pub(crate) struct Recovery(Secp256k1<VerifyOnly>);

impl Default for Recovery {
    fn default() -> Self {
        Self(Secp256k1::verification_only())
    }
}

impl Recovery {
    /// Returns the address whose key signed the transaction. `None` if no key could have.
    pub(crate) fn sender(&self, transaction: &Transaction) -> Option<Address> {
        let (hash, signature) = match transaction {
            Transaction::Legacy(tx) => signed(tx),
            Transaction::Eip2930(tx) => signed(tx),
            Transaction::Eip1559(tx) => signed(tx),
            Transaction::Eip4844(tx) => signed(tx),
            Transaction::Eip7702(tx) => signed(tx),
        };
        let [r, s] = [signature.r().to_be_bytes::<32>(), signature.s().to_be_bytes::<32>()];
        let parity = RecoveryId::from_i32(signature.v().into()).ok()?;
        let signature = RecoverableSignature::from_compact([r, s].as_flattened(), parity).ok()?;
        let key = self.0.recover_ecdsa(&Message::from_digest(hash.0), &signature).ok()?;
        let [_, point @ ..] = key.serialize_uncompressed();
        Some(Address::from_word(keccak256(point)))
    }
}

fn signed<T: SignableTransaction<Signature>>(tx: &Signed<T>) -> (B256, Signature) {
    (tx.signature_hash(), *tx.signature())
}
