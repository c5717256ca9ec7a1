//! Blocks of a regtest chain, made here.

use bitcoin::{
    Amount, Block, BlockHash, CompactTarget, Network, OutPoint, ScriptBuf, Sequence, Target, Transaction,
    TxIn, TxMerkleNode, TxOut, Witness, absolute::LockTime, block, blockdata::constants::genesis_block,
    consensus::encode::serialize, hashes::Hash, transaction,
};

/// More than any block may mint.
pub const TOO_MUCH: u64 = 51 * 100_000_000;
const MAGIC: [u8; 4] = [0xfa, 0xbf, 0xb5, 0xda];

/// The first block of regtest.
pub fn genesis() -> Block {
    genesis_block(Network::Regtest)
}

/// A coinbase that takes `value`. The label makes it different from others at its height.
pub fn coinbase(height: usize, label: &str, value: u64) -> Transaction {
    let script = [[4].as_slice(), &(height as u32).to_le_bytes(), label.as_bytes()].concat();
    Transaction {
        version: transaction::Version::ONE,
        lock_time: LockTime::ZERO,
        input: vec![TxIn {
            previous_output: OutPoint::null(),
            script_sig: ScriptBuf::from_bytes(script),
            sequence: Sequence::MAX,
            witness: Witness::new(),
        }],
        output: vec![TxOut {
            value: Amount::from_sat(value),
            script_pubkey: ScriptBuf::from_bytes(vec![0x51]),
        }],
    }
}

/// A block with these transactions on top of a chain.
pub fn with(chain: &[Block], txdata: Vec<Transaction>) -> Block {
    let parent = chain.last().map_or(BlockHash::all_zeros(), Block::block_hash);
    let header = block::Header {
        version: block::Version::from_consensus(4),
        prev_blockhash: parent,
        merkle_root: TxMerkleNode::all_zeros(),
        time: 1_600_000_000 + 600 * chain.len() as u32,
        bits: CompactTarget::from_consensus(0x207f_ffff),
        nonce: 0,
    };
    let mut block = Block { header, txdata };
    block.header.merkle_root = block.compute_merkle_root().unwrap();
    mine(&mut block);
    block
}

/// Finds a nonce that meets the target.
pub fn mine(block: &mut Block) {
    let target = Target::from_compact(block.header.bits);
    while !target.is_met_by(block.block_hash()) {
        block.header.nonce += 1;
    }
}

/// A block on top of a chain whose coinbase takes `value`.
pub fn taking(chain: &[Block], label: &str, value: u64) -> Block {
    with(chain, vec![coinbase(chain.len(), label, value)])
}

/// A chain with so many more good blocks. An empty one begins with the first block of regtest.
pub fn longer(chain: &[Block], label: &str, by: usize) -> Vec<Block> {
    let mut chain = chain.to_vec();
    for _ in 0..by {
        let block = if chain.is_empty() { genesis() } else { taking(&chain, label, 100_000_000) };
        chain.push(block);
    }
    chain
}

/// A chain with one more block, which takes too much.
pub fn spoilt(chain: &[Block], label: &str) -> Vec<Block> {
    let mut chain = chain.to_vec();
    chain.push(taking(&chain, label, TOO_MUCH));
    chain
}

/// The content of a block file.
pub fn file(blocks: &[Block]) -> Vec<u8> {
    let record = |block: &Block| {
        let bytes = serialize(block);
        [MAGIC.as_slice(), &(bytes.len() as u32).to_le_bytes(), &bytes].concat()
    };
    blocks.iter().flat_map(record).collect()
}

/// A block's hash as Sapwood writes it.
pub fn hash(block: &Block) -> String {
    block.block_hash().to_string()
}
