//! Transactions, inputs and outputs.

use sapwood_types::{Input, OutPoint, Output, PrevOutput, Spender, Tx};

use super::bytes;
use crate::grpc::{
    field::{BadField, Checked, InField, credential, each, hash, required},
    proto,
};

impl proto::OutPoint {
    pub(crate) fn read(self) -> Checked<OutPoint> {
        Ok(OutPoint { txid: hash(&self.txid).field("txid")?, vout: self.vout })
    }
}

/// An outpoint that has to be there.
pub(crate) fn outpoint(outpoint: Option<proto::OutPoint>) -> Checked<OutPoint> {
    required(outpoint, "outpoint")?.read().field("outpoint")
}

impl From<OutPoint> for proto::OutPoint {
    fn from(outpoint: OutPoint) -> Self {
        Self { txid: bytes(outpoint.txid.0), vout: outpoint.vout }
    }
}

impl proto::Spender {
    pub(crate) fn read(self) -> Checked<Spender> {
        Ok(Spender { child: hash(&self.txid).field("txid")?, vin: self.vin })
    }
}

impl From<Spender> for proto::Spender {
    fn from(spender: Spender) -> Self {
        Self { txid: bytes(spender.child.0), vin: spender.vin }
    }
}

impl proto::Input {
    pub(crate) fn read(self) -> Checked<Input> {
        let previous = match (self.value, self.script) {
            (Some(value), script) => Some(PrevOutput { value, script }),
            (None, None) => None,
            (None, Some(_)) => return Err(BadField::new("is required with `script`")).field("value"),
        };
        Ok(Input { outpoint: OutPoint::new(hash(&self.txid).field("txid")?, self.vout), previous })
    }
}

impl From<&Input> for proto::Input {
    fn from(input: &Input) -> Self {
        let OutPoint { txid, vout } = input.outpoint;
        let (value, script) =
            input.previous.clone().map_or((None, None), |PrevOutput { value, script }| (Some(value), script));
        Self { txid: bytes(txid.0), vout, value, script }
    }
}

impl proto::Output {
    pub(crate) fn read(self) -> Checked<Output> {
        let proto::Output { value, script, extra, unspendable, .. } = self;
        Ok(Output { value, script, extra, credential: credential(self.credential)?, spendable: !unspendable })
    }
}

impl From<&Output> for proto::Output {
    fn from(output: &Output) -> Self {
        Self {
            value: output.value,
            script: output.script.clone(),
            extra: output.extra.clone(),
            credential: output.credential.map(|credential| bytes(credential.0)),
            unspendable: !output.spendable,
        }
    }
}

impl proto::Transaction {
    pub(crate) fn read(self) -> Checked<Tx> {
        let proto::Transaction { version, locktime, fee, size, coinbase, .. } = self;
        Ok(Tx {
            txid: hash(&self.txid).field("txid")?,
            version,
            locktime,
            fee,
            size,
            coinbase,
            inputs: each(self.inputs, "inputs", proto::Input::read)?,
            outputs: each(self.outputs, "outputs", proto::Output::read)?,
            raw: self.raw,
        })
    }
}

impl From<&Tx> for proto::Transaction {
    fn from(tx: &Tx) -> Self {
        Self {
            txid: bytes(tx.txid.0),
            version: tx.version,
            locktime: tx.locktime,
            fee: tx.fee,
            size: tx.size,
            coinbase: tx.coinbase,
            inputs: tx.inputs.iter().map(Into::into).collect(),
            outputs: tx.outputs.iter().map(Into::into).collect(),
            raw: tx.raw.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sapwood_types::{AddressHash, TxId};
    use tonic::Status;

    use super::*;

    fn tx() -> Tx {
        let previous = PrevOutput { value: 5, script: Some(Bytes::from_static(b"old")) };
        Tx {
            txid: TxId([1; 32]),
            version: 2,
            locktime: 3,
            fee: Some(0),
            size: 4,
            coinbase: true,
            inputs: vec![
                Input::of(OutPoint::new(TxId([2; 32]), 7)),
                Input { outpoint: OutPoint::new(TxId([3; 32]), 0), previous: Some(previous) },
            ],
            outputs: vec![
                Output {
                    extra: Bytes::from_static(b"x"),
                    credential: Some(AddressHash([9; 28])),
                    ..Output::new(1, "a")
                },
                Output::data("data"),
            ],
            raw: Bytes::from_static(b"as its chain writes it"),
        }
    }

    #[test]
    fn a_transaction_comes_back_as_it_was() {
        let sent = proto::Transaction::from(&tx());
        assert_eq!(sent.clone().read(), Ok(tx()));
        assert_eq!(proto::Transaction::from(&sent.clone().read().unwrap()), sent);
        let unknown_fee = Tx { fee: None, ..tx() };
        assert_eq!(proto::Transaction::from(&unknown_fee).read(), Ok(unknown_fee), "unknown is not 0");
        let spender = Spender::new(TxId([4; 32]), 5);
        assert_eq!(proto::Spender::from(spender).read(), Ok(spender));
    }

    #[test]
    fn what_is_wrong_deep_inside_is_named() {
        let good = proto::Transaction::from(&tx());
        let mut bad = good.clone();
        bad.inputs[1].txid = Bytes::from_static(b"short");
        let said = |bad: proto::Transaction| Status::from(bad.read().unwrap_err()).message().to_owned();
        assert_eq!(said(bad), "inputs[1].txid: must be 32 bytes, is 5");
        let mut bad = good.clone();
        bad.inputs[1].value = None;
        assert_eq!(said(bad), "inputs[1].value: is required with `script`");
        let mut bad = good;
        bad.outputs[0].credential = Some(Bytes::new());
        assert_eq!(said(bad), "outputs[0].credential: must be 28 bytes, is 0");
    }
}
