//! Transactions out of coins.

use bitcoin::hashes::{Hash, sha256d};
use bytes::Bytes;
use sapwood_types::{Height, Input, OutPoint, Output, Tx, TxId};

use super::{
    coins::{Coin, Taken},
    options::SyntheticOptions,
    random::Random,
};

/// The subsidy of a block: as on Bitcoin, 50 coins, halved every 210,000 blocks.
pub fn subsidy(height: Height) -> u64 {
    5_000_000_000_u64.checked_shr(height.0 / 210_000).unwrap_or(0)
}

/// The most an output to begin with is worth.
const FIRST_VALUE: u64 = 100_000_000;
/// The most a transaction pays for each byte.
const DEAREST_BYTE: u64 = 20;
/// What signature and key of an input take up.
const WITNESS: usize = 108;
/// The length of a short data output.
const DATA: usize = 40;
const OP_RETURN: u8 = 0x6a;

/// Makes transactions. Which ones is up to chance.
pub(super) struct Maker {
    seed: u64,
    addresses: u32,
    repeated_addresses: f64,
    /// The Bitcoin form of the transaction in hand, kept for its room.
    wire: Vec<u8>,
}

impl Maker {
    pub(super) fn new(options: &SyntheticOptions) -> Self {
        Self {
            seed: options.seed,
            addresses: options.addresses,
            repeated_addresses: options.repeated_addresses,
            wire: Vec::new(),
        }
    }

    /// A transaction that spends coins and pays `recipients`, or fewer if the coins are worth hardly anything.
    pub(super) fn pay(&mut self, spends: &[Taken], recipients: usize, data: bool, random: &mut Random) -> Tx {
        let total: u64 = spends.iter().map(|spent| spent.coin.value()).sum();
        let bytes = (10 + (41 + WITNESS) * spends.len() + 34 * recipients) as u64;
        let fee = (bytes * (1 + random.below(DEAREST_BYTE))).min(total / 4);
        let recipients = recipients.min((total - fee) as usize).max(1);
        let mut outputs = Vec::with_capacity(recipients + usize::from(data));
        let mut left = total - fee;
        for still in (1..=recipients as u64).rev() {
            // Of what is left after everybody got one, twice the fair part at most.
            let value = if still == 1 { left } else { 1 + random.below(2 * (left - still) / still + 1) };
            let value = value.min(left - (still - 1).min(left));
            left -= value;
            outputs.push(Output::new(value, self.script(random)));
        }
        if data {
            outputs.push(data_output(random));
        }
        let inputs = spends.iter().map(|spent| Input::of(spent.coin.outpoint())).collect();
        let mut tx = unnamed(inputs, outputs);
        tx.fee = Some(fee);
        self.name(tx, &[])
    }

    /// A transaction to begin with: it spends nothing.
    pub(super) fn first(&mut self, number: u32, recipients: usize, random: &mut Random) -> Tx {
        let outputs = (0..recipients)
            .map(|_| Output::new(1 + random.below(FIRST_VALUE), self.script(random)))
            .collect();
        // The number tells it from others that happen to pay the same.
        self.name(Tx { locktime: number, ..unnamed(Vec::new(), outputs) }, &[])
    }

    /// The coinbase of a block. `number` tells it from that of any other block at this height.
    pub(super) fn coinbase(&mut self, height: u32, number: u64, value: u64, random: &mut Random) -> Tx {
        let outputs = vec![Output::new(value, self.script(random)), data_output(random)];
        let mut tag = [0; 13];
        tag[0] = 12;
        tag[1..5].copy_from_slice(&height.to_le_bytes());
        tag[5..].copy_from_slice(&number.to_le_bytes());
        self.name(Tx { coinbase: true, ..unnamed(Vec::new(), outputs) }, &tag)
    }

    fn script(&mut self, random: &mut Random) -> Bytes {
        if self.addresses == 0 || !random.chance(self.repeated_addresses) {
            return script(random.next());
        }
        // Each doubling of the rank is as likely as the one before: Zipf's law in whole numbers.
        let first = (1_u64 << random.below(u64::from(self.addresses.ilog2()) + 1)) - 1;
        let rank = (first + random.below(first + 1)) % u64::from(self.addresses);
        address(self.seed, rank as u32)
    }

    /// Gives a transaction its id and size.
    fn name(&mut self, mut tx: Tx, coinbase_tag: &[u8]) -> Tx {
        let wire = &mut self.wire;
        wire.clear();
        wire.extend(tx.version.to_le_bytes());
        if tx.coinbase {
            write_length(wire, 1);
            write_input(wire, &OutPoint::new(TxId::default(), u32::MAX), coinbase_tag);
        } else {
            write_length(wire, tx.inputs.len());
            tx.inputs.iter().for_each(|input| write_input(wire, &input.outpoint, &[0]));
        }
        write_length(wire, tx.outputs.len());
        for output in &tx.outputs {
            wire.extend(output.value.to_le_bytes());
            write_length(wire, output.script.len());
            wire.extend_from_slice(&output.script);
        }
        wire.extend(tx.locktime.to_le_bytes());
        let mut id = sha256d::Hash::hash(wire).to_byte_array();
        id.reverse();
        tx.txid = TxId(id);
        let size = wire.len() + 2 + WITNESS * tx.inputs.len();
        tx.size = u32::try_from(size).unwrap_or(u32::MAX);
        tx
    }
}

/// The outputs of a transaction that can be spent.
pub(super) fn coins_of(tx: &Tx) -> impl Iterator<Item = Coin> + '_ {
    let spendable = (0..).zip(&tx.outputs).filter(|(_, output)| output.spendable);
    spendable.map(|(vout, output)| Coin::new(OutPoint::new(tx.txid, vout), output.value))
}

/// The script of a repeated address, the first being paid most often.
pub(super) fn address(seed: u64, rank: u32) -> Bytes {
    // Apart from the stream that starts with the seed itself.
    let mut mixed = Random::new(seed ^ 0xadd7_e550_0000_0000 ^ u64::from(rank).rotate_left(17));
    script(mixed.next())
}

/// A locking script of one of the common kinds, out of a number.
fn script(key: u64) -> Bytes {
    let mut random = Random::new(key);
    match random.below(4) {
        0 => framed(&[0x00, 0x14], &random.bytes::<20>(), &[]),
        1 => framed(&[0x76, 0xa9, 0x14], &random.bytes::<20>(), &[0x88, 0xac]),
        2 => framed(&[0xa9, 0x14], &random.bytes::<20>(), &[0x87]),
        _ => framed(&[0x51, 0x20], &random.bytes::<32>(), &[]),
    }
}

fn framed(before: &[u8], hash: &[u8], after: &[u8]) -> Bytes {
    let mut script = Vec::with_capacity(before.len() + hash.len() + after.len());
    script.extend_from_slice(before);
    script.extend_from_slice(hash);
    script.extend_from_slice(after);
    script.into()
}

fn data_output(random: &mut Random) -> Output {
    Output::data(framed(&[OP_RETURN, DATA as u8], &random.bytes::<DATA>(), &[]))
}

fn unnamed(inputs: Vec<Input>, outputs: Vec<Output>) -> Tx {
    Tx {
        txid: TxId::default(),
        version: 2,
        locktime: 0,
        fee: None,
        size: 0,
        coinbase: false,
        inputs,
        outputs,
        raw: Default::default(),
    }
}

fn write_input(wire: &mut Vec<u8>, outpoint: &OutPoint, script: &[u8]) {
    wire.extend(outpoint.txid.0.iter().rev());
    wire.extend(outpoint.vout.to_le_bytes());
    wire.extend_from_slice(script);
    wire.extend(u32::MAX.to_le_bytes());
}

/// A length as Bitcoin writes it.
fn write_length(wire: &mut Vec<u8>, length: usize) {
    match length {
        0..0xfd => wire.push(length as u8),
        0xfd..=0xffff => {
            wire.push(0xfd);
            wire.extend((length as u16).to_le_bytes());
        }
        _ => {
            wire.push(0xfe);
            wire.extend((length as u32).to_le_bytes());
        }
    }
}
