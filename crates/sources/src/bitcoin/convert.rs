//! From the bytes of a block to [`Block`].
//!
//! # Correctness
//! The hash is computed, never taken over, and every transaction is bound to it by the merkle root. So whoever asked for a
//! block by its hash gets that block or an error. What is not looked at: proof of work, scripts, amounts, witnesses. Those
//! are the business of the node that accepted the block.

use std::{ops::Range, sync::Arc};

use bitcoin::{
    Transaction, VarInt,
    block::Header,
    consensus::{Decodable, encode},
    hashes::Hash,
};
use bytes::Bytes;
use sapwood_types::{Block, BlockHash, Height, Input, OutPoint, Output, Tx, TxId, tx::is_large};

use super::{Network, merkle, network};
use crate::{ChainPoint, SourceBlock};

/// Scripts longer than this can never run (`MAX_SCRIPT_SIZE` of Bitcoin Core), so their outputs are no coins.
pub const MAX_SCRIPT_SIZE: usize = 10_000;
const OP_RETURN: u8 = 0x6a;

/// Why bytes are not a block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// The bytes are not in the form of a block.
    #[error("these {length} bytes are not a block: {cause}")]
    Malformed {
        /// How many bytes there were.
        length: usize,
        /// Where it went wrong.
        cause: String,
    },
    /// The block is followed by something else.
    #[error("the block ends after {used} bytes, but {extra} more follow")]
    TrailingBytes {
        /// How many bytes the block has.
        used: usize,
        /// How many follow.
        extra: usize,
    },
    /// It is another block than the one asked for.
    #[error("asked for block {expected}, got block {found}")]
    OtherBlock {
        /// The block asked for.
        expected: BlockHash,
        /// The block found.
        found: BlockHash,
    },
    /// The transactions are not those the header commits to.
    #[error("block {hash} commits to merkle root {committed}, its transactions have {computed}")]
    MerkleRoot {
        /// The block.
        hash: BlockHash,
        /// What the header says, in display order.
        committed: BlockHash,
        /// What the transactions give, in display order.
        computed: BlockHash,
    },
    /// Transactions are repeated in the way that does not change the merkle root. A good block with this hash may exist.
    #[error(
        "block {hash} repeats transactions in the way of CVE-2012-2459: a good block of the same hash may exist, this is \
         not it"
    )]
    RepeatedTransactions {
        /// The block.
        hash: BlockHash,
    },
    /// No first transaction that mints.
    #[error("block {hash} does not begin with a coinbase")]
    NoCoinbase {
        /// The block.
        hash: BlockHash,
    },
    /// Another transaction mints too.
    #[error("transaction {position} of block {hash} is a second coinbase")]
    SecondCoinbase {
        /// The block.
        hash: BlockHash,
        /// Which transaction, counted from 0.
        position: usize,
    },
}

/// Converts a block that takes up all the bytes. Its place in the chain is the caller's knowledge; so is, where it was
/// asked for by hash, which hash it must have.
pub fn block(bytes: &[u8], height: Height, expected: Option<&BlockHash>) -> Result<Block, ConvertError> {
    let (block, used) = block_prefix(bytes, height, expected)?;
    all_used(bytes, used)?;
    Ok(block)
}

/// Converts a block that may be followed by something else, and says how long it is. A record of a block file may be longer
/// than its block; Bitcoin Core passes over the rest.
pub fn block_prefix(
    bytes: &[u8],
    height: Height,
    expected: Option<&BlockHash>,
) -> Result<(Block, usize), ConvertError> {
    let decoded = Decoded::read(bytes)?;
    let used = decoded.used;
    Ok((decoded.convert(height, expected, |_, _, _| Bytes::new())?, used))
}

/// What a source knows of a block that it delivers.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    /// The chain it is of.
    pub network: Network,
    /// Its height.
    pub height: Height,
    /// The hash it must have. `None` if any will do.
    pub expected: Option<BlockHash>,
    /// Transactions whose body belongs outside the record bring their bytes along: those of more than so many bytes, see
    /// [`Tx::body_outside`](sapwood_types::Tx::body_outside). `None` for none.
    pub raw_above: Option<u32>,
}

impl Delivery {
    /// Converts a block that takes up all the bytes.
    pub fn whole(&self, bytes: Bytes) -> Result<SourceBlock, ConvertError> {
        let block = self.prefix(bytes.clone())?;
        all_used(&bytes, block.raw.len())?;
        Ok(block)
    }

    /// Converts a block that may be followed by something else, which is cut off.
    pub fn prefix(&self, bytes: Bytes) -> Result<SourceBlock, ConvertError> {
        let decoded = Decoded::read(&bytes)?;
        let raw = bytes.slice(..decoded.used);
        let large = |size, outputs, place: Range<usize>| {
            let large = self.raw_above.is_some_and(|above| is_large(size, outputs, above));
            if large { raw.slice(place) } else { Bytes::new() }
        };
        let block = decoded.convert(self.height, self.expected.as_ref(), large)?;
        Ok(SourceBlock {
            point: ChainPoint::new(block.height, block.hash),
            parent: block.parent,
            time: block.time,
            rules: self.network.rules(block.height, &block.hash),
            utxo: Some(Arc::new(block)),
            raw,
        })
    }
}

fn all_used(bytes: &[u8], used: usize) -> Result<(), ConvertError> {
    match bytes.len() - used {
        0 => Ok(()),
        extra => Err(ConvertError::TrailingBytes { used, extra }),
    }
}

/// A block, and where each of its transactions lies in its bytes.
struct Decoded {
    header: Header,
    txs: Vec<(Transaction, Range<usize>)>,
    /// How many bytes it has.
    used: usize,
}

impl Decoded {
    fn read(bytes: &[u8]) -> Result<Self, ConvertError> {
        Self::decode(bytes)
            .map_err(|cause| ConvertError::Malformed { length: bytes.len(), cause: describe(&cause) })
    }

    fn decode(bytes: &[u8]) -> Result<Self, encode::Error> {
        let mut rest = bytes;
        let header = Header::consensus_decode_from_finite_reader(&mut rest)?;
        let VarInt(count) = VarInt::consensus_decode_from_finite_reader(&mut rest)?;
        // A transaction has ten bytes at least, so what is there bounds how many there can be.
        let mut txs = Vec::with_capacity(count.min(rest.len() as u64 / 10) as usize);
        for _ in 0..count {
            let start = bytes.len() - rest.len();
            let tx = Transaction::consensus_decode_from_finite_reader(&mut rest)?;
            txs.push((tx, start..bytes.len() - rest.len()));
        }
        Ok(Self { header, txs, used: bytes.len() - rest.len() })
    }

    /// Checks the block, and makes what is kept of it. `raw` is asked for the bytes of a transaction with its size, its number of
    /// outputs and its place.
    fn convert(
        self,
        height: Height,
        expected: Option<&BlockHash>,
        raw: impl Fn(u32, usize, Range<usize>) -> Bytes,
    ) -> Result<Block, ConvertError> {
        let Decoded { header, txs, .. } = self;
        let hash = network::block_hash(header.block_hash());
        if let Some(expected) = expected.filter(|expected| **expected != hash) {
            return Err(ConvertError::OtherBlock { expected: *expected, found: hash });
        }

        let ids: Vec<[u8; 32]> = txs.iter().map(|(tx, _)| tx.compute_txid().to_byte_array()).collect();
        let root = merkle::root(ids.clone());
        if root.hash != header.merkle_root.to_byte_array() {
            let committed = network::from_wire(header.merkle_root.to_byte_array());
            return Err(ConvertError::MerkleRoot {
                hash,
                committed,
                computed: network::from_wire(root.hash),
            });
        }
        if root.ambiguous {
            return Err(ConvertError::RepeatedTransactions { hash });
        }
        if !txs.first().is_some_and(|(tx, _)| tx.is_coinbase()) {
            return Err(ConvertError::NoCoinbase { hash });
        }
        // It would mint without limit: a coinbase has no inputs that anybody checks.
        if let Some(after) = txs.iter().skip(1).position(|(tx, _)| tx.is_coinbase()) {
            return Err(ConvertError::SecondCoinbase { hash, position: after + 1 });
        }

        let convert = |((tx, place), id): ((Transaction, Range<usize>), [u8; 32])| {
            // A block is far smaller than 4 GiB, and so is what is in it.
            let size = u32::try_from(place.len()).unwrap_or(u32::MAX);
            let raw = raw(size, tx.output.len(), place);
            transaction(tx, id, height, size, raw)
        };
        let txs = txs.into_iter().zip(ids).map(convert).collect();
        let parent = network::block_hash(header.prev_blockhash);
        Ok(Block { height, hash, parent, time: header.time.into(), txs })
    }
}

fn transaction(tx: Transaction, id: [u8; 32], height: Height, size: u32, raw: Bytes) -> Tx {
    let coinbase = tx.is_coinbase();
    let inputs = if coinbase { Vec::new() } else { tx.input.iter().map(input).collect() };
    let outputs = tx.output.into_iter().map(|made| output(made, height)).collect();
    Tx {
        txid: txid(id),
        version: tx.version.0 as u32,
        locktime: tx.lock_time.to_consensus_u32(),
        fee: None,
        size,
        coinbase,
        inputs,
        outputs,
        raw,
    }
}

fn input(input: &bitcoin::TxIn) -> Input {
    let spent = input.previous_output;
    Input::of(OutPoint::new(txid(spent.txid.to_byte_array()), spent.vout))
}

fn output(output: bitcoin::TxOut, height: Height) -> Output {
    let script = output.script_pubkey.into_bytes();
    // Bitcoin Core never adds the coins of the first block: nobody can spend them, and they are not counted.
    let spendable = height != Height::GENESIS && !is_unspendable(&script);
    Output { spendable, ..Output::new(output.value.to_sat(), Bytes::from(script)) }
}

/// Whether an output with this script is no coin, exactly as `CScript::IsUnspendable` of Bitcoin Core.
pub fn is_unspendable(script: &[u8]) -> bool {
    script.first() == Some(&OP_RETURN) || script.len() > MAX_SCRIPT_SIZE
}

fn txid(mut bytes: [u8; 32]) -> TxId {
    bytes.reverse();
    TxId(bytes)
}

/// The library's own words hide the cause behind a general phrase.
fn describe(error: &encode::Error) -> String {
    match error {
        encode::Error::Io(cause) => format!("it ends too early ({cause})"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unspendable_is_what_bitcoin_core_says() {
        assert!(is_unspendable(&[OP_RETURN]));
        assert!(is_unspendable(&[OP_RETURN, 1, 2]));
        assert!(is_unspendable(&vec![0x51; 10_001]));
        assert!(!is_unspendable(&vec![0x51; 10_000]));
        // An empty script can be spent by anybody, and OP_RETURN further on fails only when it runs.
        assert!(!is_unspendable(&[]));
        assert!(!is_unspendable(&[0x51, OP_RETURN]));
        // `OP_FALSE OP_RETURN` is what other chains hold for unspendable. Bitcoin Core counts it as a coin.
        assert!(!is_unspendable(&[0, OP_RETURN]) && !is_unspendable(&[0, OP_RETURN, 1, 2]));
        let other_opcodes = (0..=u8::MAX).filter(|opcode| *opcode != OP_RETURN);
        assert!(other_opcodes.into_iter().all(|opcode| !is_unspendable(&[opcode])));
    }

    #[test]
    fn an_output_is_a_coin_unless_its_script_is_unspendable_or_it_is_in_the_first_block() {
        let made = |script: &[u8], height| {
            let script_pubkey = bitcoin::ScriptBuf::from_bytes(script.to_vec());
            output(bitcoin::TxOut { value: bitcoin::Amount::ONE_SAT, script_pubkey }, Height(height))
                .spendable
        };
        assert!(made(&[0, OP_RETURN], 1) && made(&[], 1) && made(&[0x51], 1));
        assert!(!made(&[OP_RETURN], 1) && !made(&[0x51], 0));
    }
}
