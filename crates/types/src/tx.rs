//! Transactions as a chain source delivers them.

use bytes::{Buf, Bytes};

use crate::{
    AddressHash, DecodeError, External, OutPoint, PAGE_SIZE, TxId, UtxoHash,
    codec::{Reader, Writer},
};

/// A transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tx {
    /// Its id.
    pub txid: TxId,
    /// Its version, as its chain numbers them.
    pub version: u32,
    /// Its lock time.
    pub locktime: u32,
    /// What it pays for being mined, where that is known.
    pub fee: Option<u64>,
    /// Its size on the wire.
    pub size: u32,
    /// Whether it mints new coins, which then have to mature.
    pub coinbase: bool,
    /// What it spends. Empty for a coinbase.
    pub inputs: Vec<Input>,
    /// What it makes.
    pub outputs: Vec<Output>,
    /// The transaction as its chain writes it, where the source hands it over: it does so for those whose body is kept outside the
    /// record. Empty where it is not known.
    pub raw: Bytes,
}

impl Tx {
    /// Where its body belongs, if not into its record: outside if it has more than so many bytes, or more than one page of outputs.
    pub fn body_outside(&self, above: u32) -> Option<External> {
        let large = is_large(self.size, self.outputs.len(), above);
        large.then_some(if self.inputs.is_empty() { External::Outputs } else { External::Tx })
    }

    /// What is kept of it outside: the transaction as its chain writes it where that is known, else [`tx_file`](crate::tx_file).
    pub fn body_bytes(&self) -> Bytes {
        if self.raw.is_empty() { crate::tx_file::encode(self) } else { self.raw.clone() }
    }
}

/// Whether the body of a transaction of this size and with so many outputs is kept outside its record: if it has more than `above`
/// bytes, or more than one page of outputs.
pub fn is_large(size: u32, outputs: usize, above: u32) -> bool {
    size > above || outputs > PAGE_SIZE as usize
}

/// One input: which output it spends and, where it is known, what that output was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The output that is spent.
    pub outpoint: OutPoint,
    /// Its amount, and its script where that is kept, for those who ask when its transaction is gone.
    pub previous: Option<PrevOutput>,
}

impl Input {
    /// An input of which only the outpoint is known.
    pub fn of(outpoint: OutPoint) -> Self {
        Self { outpoint, previous: None }
    }
}

/// What is known of a spent output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrevOutput {
    /// The amount.
    pub value: u64,
    /// The locking script or address bytes. `None` where only the amount is kept.
    pub script: Option<Bytes>,
}

/// One output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The amount in the chain's smallest unit.
    pub value: u64,
    /// The locking script, or the bytes of the address it is paid to.
    pub script: Bytes,
    /// Whatever else the chain attaches (assets, datum, reference script), opaque here.
    pub extra: Bytes,
    /// The payment credential, for chains whose addresses have one.
    pub credential: Option<AddressHash>,
    /// Whether it can ever be spent. Which outputs cannot is the chain source's knowledge.
    pub spendable: bool,
}

impl Output {
    /// A plain spendable output.
    pub fn new(value: u64, script: impl Into<Bytes>) -> Self {
        Self { value, script: script.into(), extra: Bytes::new(), credential: None, spendable: true }
    }

    /// An output that can never be spent.
    pub fn data(script: impl Into<Bytes>) -> Self {
        Self { spendable: false, ..Self::new(0, script) }
    }

    /// The hash that binds it to owner and amount.
    pub fn utxo_hash(&self, outpoint: OutPoint) -> UtxoHash {
        UtxoHash::of(&outpoint.txid, outpoint.vout, &self.script, self.value)
    }

    const HAS_EXTRA: u8 = 1 << 0;
    const HAS_CREDENTIAL: u8 = 1 << 1;
    const NOT_KEPT: u8 = 1 << 2;

    /// Writes the output as it is kept: of one that can never be spent nothing remains but a mark.
    pub fn encode(&self, to: &mut Writer) {
        if !self.spendable {
            return to.u8(Self::NOT_KEPT);
        }
        let mut flags = 0;
        if !self.extra.is_empty() {
            flags |= Self::HAS_EXTRA;
        }
        if self.credential.is_some() {
            flags |= Self::HAS_CREDENTIAL;
        }
        to.u8(flags);
        to.varint(self.value);
        to.sized(&self.script);
        if !self.extra.is_empty() {
            to.sized(&self.extra);
        }
        if let Some(credential) = self.credential {
            to.bytes(&credential.0);
        }
    }

    /// Reads an output, or the mark of one that was not kept.
    pub fn decode<B: Buf>(from: &mut Reader<B>) -> Result<Option<Self>, DecodeError> {
        const FIELD: &str = "output";
        let flags = from.u8(FIELD)?;
        if flags == Self::NOT_KEPT {
            return Ok(None);
        }
        if flags & !(Self::HAS_EXTRA | Self::HAS_CREDENTIAL) != 0 {
            return Err(DecodeError::UnknownValue { field: "output flags", value: flags.into() });
        }
        let value = from.varint("output value")?;
        let script = from.sized("output script")?;
        let extra = if flags & Self::HAS_EXTRA != 0 { from.sized("output extra")? } else { Bytes::new() };
        if flags & Self::HAS_EXTRA != 0 && extra.is_empty() {
            return Err(DecodeError::Inconsistent { what: FIELD, problem: "extra data announced but empty" });
        }
        let credential =
            if flags & Self::HAS_CREDENTIAL != 0 { Some(from.address_hash("credential")?) } else { None };
        Ok(Some(Output { value, script, extra, credential, spendable: true }))
    }
}

/// Amount, script and credential of an encoded output, where they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputRef<'a> {
    /// See [`Output::value`].
    pub value: u64,
    /// See [`Output::script`].
    pub script: &'a [u8],
    /// See [`Output::credential`].
    pub credential: Option<AddressHash>,
}

impl<'a> OutputRef<'a> {
    /// Reads what [`Output::decode`] reads, and refuses what it refuses, but only looks: a count of all coins has no
    /// use for shares of the page's memory, and taking and dropping them is most of the work.
    pub fn decode(from: &mut &'a [u8]) -> Result<Option<Self>, DecodeError> {
        const FIELD: &str = "output";
        let flags = u64::from(take(from, FIELD, 1)?[0]);
        if flags == u64::from(Output::NOT_KEPT) {
            return Ok(None);
        }
        let [has_extra, has_credential] =
            [Output::HAS_EXTRA, Output::HAS_CREDENTIAL].map(|flag| flags & u64::from(flag) != 0);
        if flags & !u64::from(Output::HAS_EXTRA | Output::HAS_CREDENTIAL) != 0 {
            return Err(DecodeError::UnknownValue { field: "output flags", value: flags });
        }
        let value = take_varint(from, "output value")?;
        let script = take_sized(from, "output script")?;
        if has_extra && take_sized(from, "output extra")?.is_empty() {
            return Err(DecodeError::Inconsistent { what: FIELD, problem: "extra data announced but empty" });
        }
        let credential = match has_credential {
            true => take(from, "credential", AddressHash::SIZE)?.try_into().ok().map(AddressHash),
            false => None,
        };
        Ok(Some(OutputRef { value, script, credential }))
    }
}

fn take<'a>(from: &mut &'a [u8], field: &'static str, needed: usize) -> Result<&'a [u8], DecodeError> {
    let left = from.len();
    from.split_off(..needed).ok_or(DecodeError::Truncated { field, needed, left })
}

fn take_varint(from: &mut &[u8], field: &'static str) -> Result<u64, DecodeError> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(from, field, 1)?[0];
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            break;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            let padded = byte == 0 && shift > 0;
            return if padded { Err(DecodeError::BadNumber { field }) } else { Ok(value) };
        }
    }
    Err(DecodeError::BadNumber { field })
}

pub(crate) fn take_sized<'a>(from: &mut &'a [u8], field: &'static str) -> Result<&'a [u8], DecodeError> {
    let length = take_varint(from, field)?;
    take(from, field, usize::try_from(length).map_err(|_| DecodeError::BadNumber { field })?)
}

impl<'a> From<&'a Output> for OutputRef<'a> {
    fn from(output: &'a Output) -> Self {
        OutputRef { value: output.value, script: &output.script, credential: output.credential }
    }
}

/// The part of a transaction that never changes after it was stored: everything but the outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxBody {
    /// See [`Tx::version`].
    pub version: u32,
    /// See [`Tx::locktime`].
    pub locktime: u32,
    /// See [`Tx::fee`].
    pub fee: Option<u64>,
    /// See [`Tx::size`].
    pub size: u32,
    /// See [`Tx::inputs`].
    pub inputs: Vec<Input>,
}

impl TxBody {
    const HAS_FEE: u8 = 1 << 0;
    /// A transaction id, an output number and a flag.
    const LEAST_INPUT: usize = 34;

    /// Writes the body of a transaction.
    pub fn encode_tx(tx: &Tx, to: &mut Writer) {
        Self::encode_parts(tx.version, tx.locktime, tx.fee, tx.size, &tx.inputs, to);
    }

    /// The body as bytes.
    pub fn encode(&self) -> Bytes {
        let mut to = Writer::with_capacity(24 + self.inputs.len() * 36);
        self.encode_to(&mut to);
        to.finish().into()
    }

    /// Writes the body.
    pub fn encode_to(&self, to: &mut Writer) {
        Self::encode_parts(self.version, self.locktime, self.fee, self.size, &self.inputs, to);
    }

    fn encode_parts(
        version: u32,
        locktime: u32,
        fee: Option<u64>,
        size: u32,
        inputs: &[Input],
        to: &mut Writer,
    ) {
        to.u8(if fee.is_some() { Self::HAS_FEE } else { 0 });
        to.u32(version);
        to.u32(locktime);
        if let Some(fee) = fee {
            to.varint(fee);
        }
        to.varint(size.into());
        to.length(inputs.len());
        for input in inputs {
            to.bytes(&input.outpoint.txid.0);
            to.varint(input.outpoint.vout.into());
            match &input.previous {
                None => to.u8(0),
                Some(PrevOutput { value, script: Some(script) }) => {
                    to.u8(1);
                    to.varint(*value);
                    to.sized(script);
                }
                Some(PrevOutput { value, script: None }) => {
                    to.u8(2);
                    to.varint(*value);
                }
            }
        }
    }

    /// Reads a body. Scripts share its memory.
    pub fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        Self::read(Reader::new(bytes))
    }

    /// Reads a body. Scripts are copied.
    pub fn decode_slice(bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::read(Reader::of_slice(bytes))
    }

    fn read<B: Buf>(mut from: Reader<B>) -> Result<Self, DecodeError> {
        const WHAT: &str = "transaction body";
        let flags = from.u8(WHAT)?;
        if flags & !Self::HAS_FEE != 0 {
            return Err(DecodeError::UnknownValue { field: "body flags", value: flags.into() });
        }
        let version = from.u32("version")?;
        let locktime = from.u32("lock time")?;
        let fee = if flags & Self::HAS_FEE != 0 { Some(from.varint("fee")?) } else { None };
        let size = from.varint_u32("size")?;
        let count = from.count("inputs", Self::LEAST_INPUT)?;
        let mut inputs = Vec::with_capacity(count);
        for _ in 0..count {
            let outpoint = OutPoint { txid: from.txid("input")?, vout: from.varint_u32("input")? };
            let previous = match from.u8("input")? {
                0 => None,
                1 => Some(PrevOutput {
                    value: from.varint("input value")?,
                    script: Some(from.sized("input script")?),
                }),
                2 => Some(PrevOutput { value: from.varint("input value")?, script: None }),
                value => return Err(DecodeError::UnknownValue { field: "input flags", value: value.into() }),
            };
            inputs.push(Input { outpoint, previous });
        }
        from.end(WHAT)?;
        Ok(TxBody { version, locktime, fee, size, inputs })
    }
}
