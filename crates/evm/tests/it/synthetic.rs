//! A short chain with everything the real ones of the tests lack: blocks from before Byzantium and London, an uncle, and every type of
//! transaction side by side. Also files made of blocks.

use std::{
    io::Write as _,
    path::Path,
    sync::{Arc, LazyLock},
};

use alloy_consensus::{
    Eip658Value, EthereumTxEnvelope, Header, Receipt, ReceiptEnvelope, ReceiptWithBloom, SignableTransaction,
    TxEip1559, TxEip2930, TxEip4844, TxEip7702, TxLegacy, constants::EMPTY_OMMER_ROOT_HASH,
};
use alloy_eips::{
    eip2718::Encodable2718,
    eip2930::{AccessList, AccessListItem},
    eip4895::Withdrawal,
    eip7702::Authorization,
};
use alloy_primitives::{Address, B256, Bloom, Bytes, Log, Signature, TxKind, U256, keccak256};
use alloy_rlp::{Encodable, Header as RlpHeader};
use alloy_trie::root::ordered_trie_root_encoded;
use sapwood_evm::{BlockParts, ChainSpec, CheckedBlock, Checker, Genesis, Transaction};
use secp256k1::{Message, Secp256k1, SecretKey};
use sha2::{Digest as _, Sha256};

/// The chain id of the chain.
pub(crate) const CHAIN: u64 = 7;

/// The genesis file of the chain: Byzantium from block 2, London from block 3, Shanghai, Cancun and Prague with blocks 4, 5 and 6.
pub(crate) const GENESIS: &str = r#"{
    "config": {
        "chainId": 7, "homesteadBlock": 0, "eip155Block": 0, "byzantiumBlock": 2, "londonBlock": 3,
        "shanghaiTime": 40, "cancunTime": 50, "pragueTime": 60,
        "blobSchedule": { "cancun": { "target": 3, "max": 6, "baseFeeUpdateFraction": 3338477 } }
    },
    "nonce": "0x0", "timestamp": "0x0", "extraData": "0x", "gasLimit": "0x1000000", "difficulty": "0x20000",
    "mixHash": "0x0000000000000000000000000000000000000000000000000000000000000000",
    "coinbase": "0x0000000000000000000000000000000000000000",
    "alloc": { "0x00000000000000000000000000000000000000aa": { "balance": "0x1", "code": "0x00", "storage": { "0x01": "0x02" } } }
}"#;

/// The key that signs everything.
fn key() -> SecretKey {
    SecretKey::from_slice(&[0x42; 32]).unwrap()
}

/// The address that sends everything.
pub(crate) fn sender() -> Address {
    let key = key().public_key(&Secp256k1::new()).serialize_uncompressed();
    Address::from_word(keccak256(&key[1..]))
}

fn sign<T: SignableTransaction<Signature>>(tx: T) -> EthereumTxEnvelope<TxEip4844>
where
    EthereumTxEnvelope<TxEip4844>: From<alloy_consensus::Signed<T>>,
{
    let message = Message::from_digest(tx.signature_hash().0);
    let (id, bytes) = Secp256k1::new().sign_ecdsa_recoverable(&message, &key()).serialize_compact();
    let signature = Signature::from_bytes_and_parity(&bytes, id.to_i32() == 1);
    tx.into_signed(signature).into()
}

/// A block that is being made.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) header: Header,
    pub(crate) transactions: Vec<Transaction>,
    pub(crate) receipts: Vec<ReceiptEnvelope>,
    pub(crate) ommers: Vec<Header>,
    pub(crate) withdrawals: Option<Vec<Withdrawal>>,
}

impl Draft {
    /// A block after another one.
    pub(crate) fn after(parent: &CheckedBlock) -> Self {
        let header = Header {
            number: parent.number + 1,
            parent_hash: parent.hash,
            timestamp: 10 * (parent.number + 1),
            gas_limit: 0x100_0000,
            ..Header::default()
        };
        Self { header, ..Self::default() }
    }

    /// Adds a transaction that uses 21,000 gas and makes these logs.
    pub(crate) fn with(mut self, transaction: Transaction, status: Eip658Value, logs: Vec<Log>) -> Self {
        let cumulative_gas_used = 21_000 * (self.receipts.len() as u64 + 1);
        let receipt: ReceiptWithBloom = Receipt { status, cumulative_gas_used, logs }.into();
        self.receipts.push(match &transaction {
            Transaction::Legacy(_) => ReceiptEnvelope::Legacy(receipt),
            Transaction::Eip2930(_) => ReceiptEnvelope::Eip2930(receipt),
            Transaction::Eip1559(_) => ReceiptEnvelope::Eip1559(receipt),
            Transaction::Eip4844(_) => ReceiptEnvelope::Eip4844(receipt),
            Transaction::Eip7702(_) => ReceiptEnvelope::Eip7702(receipt),
        });
        self.transactions.push(transaction);
        self
    }

    /// Fills in what the header commits to, and returns the RLP of block and receipts.
    pub(crate) fn seal(mut self) -> (bytes::Bytes, bytes::Bytes) {
        let transactions: Vec<_> = self.transactions.iter().map(Encodable2718::encoded_2718).collect();
        let receipts: Vec<_> = self.receipts.iter().map(Encodable2718::encoded_2718).collect();
        self.header.transactions_root = ordered_trie_root_encoded(&transactions);
        self.header.receipts_root = ordered_trie_root_encoded(&receipts);
        self.header.gas_used = 21_000 * receipts.len() as u64;
        self.header.logs_bloom = Bloom::ZERO;
        for receipt in &self.receipts {
            self.header.logs_bloom.accrue_bloom(receipt.logs_bloom());
        }
        let ommers = list(&self.ommers.iter().map(encode).collect::<Vec<_>>());
        self.header.ommers_hash = keccak256(&ommers);
        let withdrawals = self.withdrawals.map(|all| all.iter().map(encode).collect::<Vec<_>>());
        self.header.withdrawals_root = withdrawals.as_deref().map(ordered_trie_root_encoded);
        let mut parts = vec![encode(&self.header), list(&envelopes(&transactions)), ommers];
        parts.extend(withdrawals.as_deref().map(list));
        (list(&parts).into(), list(&envelopes(&receipts)).into())
    }
}

fn encode(value: &impl Encodable) -> Vec<u8> {
    alloy_rlp::encode(value)
}

/// An RLP list of items that are RLP themselves.
pub(crate) fn list(items: &[Vec<u8>]) -> Vec<u8> {
    let payload = items.concat();
    let mut out = Vec::new();
    RlpHeader { list: true, payload_length: payload.len() }.encode(&mut out);
    [out, payload].concat()
}

/// Typed envelopes are strings in a list, legacy ones lists.
fn envelopes(items: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let wrap = |item: &Vec<u8>| {
        if item[0] < 0x80 { alloy_rlp::encode(Bytes::from(item.clone())) } else { item.clone() }
    };
    items.iter().map(wrap).collect()
}

/// A log with these topics.
pub(crate) fn log(address: u8, topics: &[u8]) -> Log {
    let topics = topics.iter().map(|topic| B256::repeat_byte(*topic)).collect();
    Log::new_unchecked(Address::repeat_byte(address), topics, Bytes::from_static(b"data"))
}

/// The drafts of a chain: each gets its parent.
pub(crate) fn drafts() -> [fn(Draft) -> Draft; 6] {
    [before_byzantium, before_london, london, shanghai, cancun, prague]
}

fn before_byzantium(draft: Draft) -> Draft {
    let create = TxLegacy {
        nonce: 5,
        gas_price: 3,
        gas_limit: 90_000,
        to: TxKind::Create,
        input: vec![0x60, 0].into(),
        ..TxLegacy::default()
    };
    let uncle = Header {
        ommers_hash: EMPTY_OMMER_ROOT_HASH,
        extra_data: Bytes::from_static(b"uncle"),
        ..draft.header.clone()
    };
    let root = Eip658Value::PostState(B256::repeat_byte(0x77));
    let draft = Draft { ommers: vec![uncle], ..draft };
    draft.with(sign(create), root, vec![log(1, &[])])
}

fn before_london(draft: Draft) -> Draft {
    let to = TxKind::Call(Address::repeat_byte(0xcc));
    let legacy = TxLegacy { chain_id: Some(CHAIN), to, gas_price: 4, ..TxLegacy::default() };
    let item = AccessListItem { address: Address::repeat_byte(2), storage_keys: vec![B256::repeat_byte(3)] };
    let access_list = AccessList(vec![item]);
    let listed = TxEip2930 { chain_id: CHAIN, to, gas_price: 5, access_list, ..TxEip2930::default() };
    draft.with(sign(legacy), Eip658Value::Eip658(false), Vec::new()).with(
        sign(listed),
        Eip658Value::Eip658(true),
        vec![log(1, &[1]), log(2, &[1, 2])],
    )
}

fn london(mut draft: Draft) -> Draft {
    draft.header.base_fee_per_gas = Some(1_000_000_000);
    let fee = |tip| TxEip1559 {
        chain_id: CHAIN,
        max_fee_per_gas: 2_000_000_000,
        max_priority_fee_per_gas: tip,
        to: TxKind::Call(Address::repeat_byte(0xcc)),
        value: U256::from(9),
        ..TxEip1559::default()
    };
    let done = Eip658Value::Eip658(true);
    // The greater tip first: the order of the block is not that of the tips.
    draft.with(sign(fee(5_000_000_000)), done, vec![log(1, &[1, 2, 3, 4])]).with(
        sign(fee(7)),
        done,
        vec![log(3, &[2])],
    )
}

fn shanghai(mut draft: Draft) -> Draft {
    draft.header.base_fee_per_gas = Some(875_000_000);
    let address = Address::repeat_byte(0xdd);
    draft.withdrawals = Some(vec![Withdrawal { index: 1, validator_index: 2, address, amount: 3 }]);
    draft
}

fn cancun(draft: Draft) -> Draft {
    let mut draft = Draft { withdrawals: Some(Vec::new()), ..shanghai(draft) };
    // Enough that a blob costs more than the least.
    draft.header.excess_blob_gas = Some(20_000_000);
    draft.header.blob_gas_used = Some(2 << 17);
    draft.header.parent_beacon_block_root = Some(B256::repeat_byte(8));
    let blobs = TxEip4844 {
        chain_id: CHAIN,
        nonce: draft.header.number,
        max_fee_per_gas: 1_000_000_000,
        max_priority_fee_per_gas: 1,
        max_fee_per_blob_gas: 1000,
        to: Address::repeat_byte(0xcc),
        blob_versioned_hashes: vec![B256::repeat_byte(1), B256::repeat_byte(2)],
        ..TxEip4844::default()
    };
    draft.with(sign(blobs), Eip658Value::Eip658(true), vec![log(1, &[1]), log(1, &[2])])
}

fn prague(draft: Draft) -> Draft {
    let mut draft = cancun(draft);
    draft.header.requests_hash = Some(B256::repeat_byte(9));
    let authorization =
        Authorization { chain_id: U256::from(CHAIN), address: Address::repeat_byte(4), nonce: 1 };
    let signature = Signature::new(U256::from(1), U256::from(2), true);
    let code = TxEip7702 {
        chain_id: CHAIN,
        max_fee_per_gas: 1_000_000_000,
        to: Address::repeat_byte(0xcc),
        authorization_list: vec![authorization.into_signed(signature)],
        ..TxEip7702::default()
    };
    let last = TxLegacy { chain_id: Some(CHAIN), nonce: 7, gas_price: 1_000_000_000, ..TxLegacy::default() };
    let done = Eip658Value::Eip658(true);
    draft.with(sign(code), done, vec![log(2, &[2, 1])]).with(sign(last), done, vec![log(3, &[])])
}

/// The whole chain, block 0 first.
pub(crate) fn chain() -> (Arc<ChainSpec>, Vec<CheckedBlock>) {
    static CHAIN: LazyLock<(Arc<ChainSpec>, Vec<CheckedBlock>)> = LazyLock::new(make);
    CHAIN.clone()
}

fn make() -> (Arc<ChainSpec>, Vec<CheckedBlock>) {
    let genesis = Genesis::parse(GENESIS.as_bytes()).unwrap();
    let spec = Arc::new(genesis.spec);
    let mut blocks = vec![genesis.block];
    for draft in drafts() {
        let last = blocks.last().unwrap();
        let (block, receipts) = draft(Draft::after(last)).seal();
        let parent = alloy_eips::BlockNumHash { number: last.number, hash: last.hash };
        let mut checker = Checker::new(Arc::clone(&spec), Some(parent));
        blocks.push(checker.check(&BlockParts::split(&block).unwrap(), Some(receipts)).unwrap());
    }
    (spec, blocks)
}

/// An `.era1` file of blocks that have receipts.
pub(crate) fn era1(blocks: &[CheckedBlock]) -> Vec<u8> {
    let mut file = entry(0x3265, b"");
    let mut difficulty = U256::from(1000);
    let (mut records, mut offsets) = (Vec::new(), Vec::new());
    for block in blocks {
        let parts = BlockParts::split(&block.block).unwrap();
        difficulty += parts.header.difficulty;
        let total: [u8; 32] = difficulty.to_le_bytes();
        records.push(hash(&block.hash.0, &total));
        offsets.push(file.len() as i64);
        // What follows the header in the list, as a list of its own.
        let start = block.block.len() - RlpHeader::decode(&mut &block.block[..]).unwrap().payload_length;
        let body = block.block[start + parts.header_rlp.len()..].to_vec();
        file.extend(entry(3, &snap(&parts.header_rlp)));
        file.extend(entry(4, &snap(&list(&[body]))));
        file.extend(entry(5, &snap(block.receipts.as_ref().unwrap())));
        file.extend(entry(6, &total));
    }
    let root = root(records);
    file.extend(entry(7, &root));
    let index = file.len() as i64;
    let numbers = [blocks.first().map_or(0, |block| block.number as i64)];
    let numbers = numbers.into_iter().chain(offsets.iter().map(|offset| offset - index));
    let numbers = numbers.chain([blocks.len() as i64]).flat_map(i64::to_le_bytes);
    file.extend(entry(0x3266, &numbers.collect::<Vec<_>>()));
    file
}

/// An e2store entry.
pub(crate) fn entry(kind: u16, data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len()).unwrap().to_le_bytes();
    [&kind.to_le_bytes()[..], &length, &[0, 0], data].concat()
}

fn snap(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = snap::write::FrameEncoder::new(Vec::new());
    encoder.write_all(bytes).unwrap();
    encoder.into_inner().unwrap()
}

/// The SSZ root of a list of at most 8,192 records: all leaves, padded with zeros.
fn root(mut leaves: Vec<[u8; 32]>) -> [u8; 32] {
    let mut length = [0; 32];
    length[..8].copy_from_slice(&(leaves.len() as u64).to_le_bytes());
    leaves.resize(8192, [0; 32]);
    while leaves.len() > 1 {
        leaves = leaves.chunks(2).map(|pair| hash(&pair[0], &pair[1])).collect();
    }
    hash(&leaves[0], &length)
}

fn hash(left: &[u8; 32], right: &[u8; 32]) -> [u8; 32] {
    Sha256::new().chain_update(left).chain_update(right).finalize().into()
}

/// The blocks as concatenated RLP, and their receipts as another file. Block 0 is in neither.
pub(crate) fn rlp_files(blocks: &[CheckedBlock]) -> (Vec<u8>, Vec<u8>) {
    let blocks = blocks.iter().filter(|block| block.number > 0);
    let receipts = blocks.clone().flat_map(|block| block.receipts.clone().unwrap()).collect();
    (blocks.flat_map(|block| block.block.clone()).collect(), receipts)
}

#[test]
fn fuzzing_starts_from_this_chain() {
    let (_, blocks) = chain();
    let (rlp, receipts) = rlp_files(&blocks);
    let length = u32::try_from(rlp.len()).unwrap().to_be_bytes();
    let beside = [&[1][..], &length, &rlp, &receipts].concat();
    let era = [&[0], &era1(&blocks[1..])[..]].concat();
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    for (name, bytes) in [
        ("evm_import/rlp", beside),
        ("evm_import/era1", era),
        ("evm_genesis/synthetic", GENESIS.as_bytes().to_vec()),
    ] {
        let seed = seeds.join(name);
        // Writes them again where that is asked for.
        if std::env::var_os("SAPWOOD_WRITE_SEEDS").is_some() {
            std::fs::create_dir_all(seed.parent().unwrap()).unwrap();
            std::fs::write(&seed, &bytes).unwrap();
        }
        assert_eq!(std::fs::read(&seed).unwrap(), bytes, "{name}");
    }
}
