//! A whole transaction in a file of its own, for chains and callers that hand over no bytes of theirs.
//!
//! Nothing is left out: outputs that can never be spent are here too, unlike in a record.

use bytes::Bytes;

use crate::{
    DecodeError, Output, Tx, TxBody,
    codec::{Reader, Writer},
};

const WHAT: &str = "transaction file";
/// What such a file begins with.
pub const MAGIC: [u8; 4] = *b"SWTX";
/// The version of the format.
pub const VERSION: u8 = 1;

const COINBASE: u8 = 1 << 0;
const SPENDABLE: u8 = 1 << 0;
const HAS_CREDENTIAL: u8 = 1 << 1;
/// Flags, an amount and two lengths.
const LEAST_OUTPUT: usize = 4;

/// The file of a transaction.
pub fn encode(tx: &Tx) -> Bytes {
    let mut body = Writer::with_capacity(24 + tx.inputs.len() * 36);
    TxBody::encode_tx(tx, &mut body);
    let mut to = Writer::with_capacity(64 + body.written().len() + tx.outputs.len() * 48);
    to.bytes(&MAGIC);
    to.u8(VERSION);
    to.bytes(&tx.txid.0);
    to.u8(if tx.coinbase { COINBASE } else { 0 });
    to.sized(body.written());
    to.length(tx.outputs.len());
    for output in &tx.outputs {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        to.u8(flag(output.spendable, SPENDABLE) | flag(output.credential.is_some(), HAS_CREDENTIAL));
        to.varint(output.value);
        to.sized(&output.script);
        to.sized(&output.extra);
        if let Some(credential) = output.credential {
            to.bytes(&credential.0);
        }
    }
    to.finish().into()
}

/// Reads the file of a transaction.
pub fn decode(bytes: Bytes) -> Result<Tx, DecodeError> {
    let mut from = Reader::new(bytes);
    let magic = from.array::<4>(WHAT)?;
    if magic != MAGIC {
        let value = u32::from_be_bytes(magic).into();
        return Err(DecodeError::UnknownValue { field: "transaction file magic", value });
    }
    from.version(WHAT, VERSION)?;
    let txid = from.txid(WHAT)?;
    let coinbase = match from.u8(WHAT)? {
        flags if flags & !COINBASE != 0 => {
            return Err(DecodeError::UnknownValue { field: "transaction flags", value: flags.into() });
        }
        flags => flags & COINBASE != 0,
    };
    let body = TxBody::decode(from.sized("transaction body")?)?;
    let count = from.count("outputs", LEAST_OUTPUT)?;
    let mut outputs = Vec::with_capacity(count);
    for _ in 0..count {
        outputs.push(output(&mut from)?);
    }
    from.end(WHAT)?;
    let TxBody { version, locktime, fee, size, inputs } = body;
    Ok(Tx { txid, version, locktime, fee, size, coinbase, inputs, outputs, raw: Bytes::new() })
}

fn output(from: &mut Reader) -> Result<Output, DecodeError> {
    let flags = from.u8("output")?;
    if flags & !(SPENDABLE | HAS_CREDENTIAL) != 0 {
        return Err(DecodeError::UnknownValue { field: "output flags", value: flags.into() });
    }
    let value = from.varint("output value")?;
    let (script, extra) = (from.sized("output script")?, from.sized("output extra")?);
    let credential = if flags & HAS_CREDENTIAL != 0 { Some(from.address_hash("credential")?) } else { None };
    Ok(Output { value, script, extra, credential, spendable: flags & SPENDABLE != 0 })
}
