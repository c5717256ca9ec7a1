//! What clients ask of the store.

use sapwood_ledger::{CreateRequest, Reassign, SpendInput, SpendRequest, Unspend};
use sapwood_rules::spendability::SpendOverrides;

use super::tx::outpoint;
use crate::grpc::{
    field::{Checked, InField, credential, each, hash, required},
    proto,
};

impl proto::NewTransaction {
    pub(crate) fn read(self) -> Checked<CreateRequest> {
        let tx = required(self.transaction, "transaction")?.read().field("transaction")?;
        Ok(CreateRequest {
            tx,
            mined_in: self.mined_in.map(proto::MinedIn::read).transpose().field("mined_in")?,
            frozen: self.frozen,
            conflicting: self.conflicting,
            locked: self.locked,
            trust_inputs: self.trust_inputs,
            external: None,
            created_at: self.created_at_ms,
        })
    }
}

impl proto::Spend {
    pub(crate) fn read(self) -> Checked<SpendRequest> {
        let proto::Spend { ignore_conflicting, ignore_locked, .. } = self;
        Ok(SpendRequest {
            child: hash(&self.txid).field("txid")?,
            inputs: each(self.inputs, "inputs", |input| {
                let expected = input.expected_hash.as_ref().map(hash).transpose().field("expected_hash")?;
                Ok(SpendInput { vin: input.vin, outpoint: outpoint(input.outpoint)?, expected })
            })?,
            overrides: SpendOverrides { ignore_conflicting, ignore_locked },
        })
    }
}

impl proto::SpendToTakeBack {
    pub(crate) fn read(self) -> Checked<Unspend> {
        let spender = required(self.spender, "spender")?.read().field("spender")?;
        Ok(Unspend { outpoint: outpoint(self.outpoint)?, spender })
    }
}

impl proto::Reassign {
    pub(crate) fn read(self) -> Checked<Reassign> {
        Ok(Reassign {
            outpoint: outpoint(self.outpoint)?,
            expected: hash(&self.expected_hash).field("expected_hash")?,
            script: self.script,
            credential: credential(self.credential)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sapwood_types::{OutPoint, Spender, TxId, UtxoHash};
    use tonic::Status;

    use super::*;

    fn said<T: std::fmt::Debug>(checked: Checked<T>) -> String {
        Status::from(checked.unwrap_err()).message().to_owned()
    }

    #[test]
    fn requests_are_read_whole_and_what_is_missing_is_named() {
        let (txid, hash) = (Bytes::from_static(&[1; 32]), Bytes::from_static(&[2; 32]));
        let outpoint = proto::OutPoint { txid: txid.clone(), vout: 3 };
        let spender = proto::Spender { txid: hash.clone(), vin: 4 };
        let back = proto::SpendToTakeBack { outpoint: Some(outpoint.clone()), spender: Some(spender) };
        let read = back.clone().read().unwrap();
        assert_eq!(
            (read.outpoint, read.spender),
            (OutPoint::new(TxId([1; 32]), 3), Spender::new(TxId([2; 32]), 4))
        );
        assert_eq!(said(proto::SpendToTakeBack { spender: None, ..back }.read()), "spender: is required");

        let input =
            proto::SpendInput { vin: 4, outpoint: Some(outpoint.clone()), expected_hash: Some(hash.clone()) };
        let spend = proto::Spend {
            txid: hash.clone(),
            inputs: vec![input],
            ignore_conflicting: true,
            ignore_locked: false,
        };
        let read = spend.clone().read().unwrap();
        assert_eq!(
            (read.child, read.inputs[0].vin, read.inputs[0].expected),
            (TxId([2; 32]), 4, Some(UtxoHash([2; 32])))
        );
        assert_eq!((read.overrides.ignore_conflicting, read.overrides.ignore_locked), (true, false));
        let mut bad = spend;
        bad.inputs[0].expected_hash = Some(Bytes::new());
        assert_eq!(said(bad.read()), "inputs[0].expected_hash: must be 32 bytes, is 0");

        let reassign = proto::Reassign {
            outpoint: Some(outpoint),
            expected_hash: hash,
            script: Bytes::from_static(b"new"),
            credential: None,
        };
        let read = reassign.clone().read().unwrap();
        assert_eq!((&read.script[..], read.credential), (&b"new"[..], None));
        let bad = proto::Reassign { expected_hash: txid.slice(1..), ..reassign };
        assert_eq!(said(bad.read()), "expected_hash: must be 32 bytes, is 31");
        assert_eq!(said(proto::NewTransaction::default().read()), "transaction: is required");
    }
}
