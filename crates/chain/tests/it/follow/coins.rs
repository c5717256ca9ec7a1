//! Real blocks that hang in the air, and the coins they spend: from undo data where there are some, made up where not.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::Path,
    sync::Arc,
};

use sapwood_ledger::{ApplyOptions, CreateRequest, UtxoSet};
use sapwood_muhash::{MuHash, display_hex};
use sapwood_sources::{
    ChainPoint,
    bitcoin::{BlkSource, Network, convert},
};
use sapwood_types::{Block, BlockRules, Height, OutPoint, Output, Tx, TxId};

use crate::follow::data::{self, Files, Node};

/// A coin as a node's undo data have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Coin {
    pub(crate) value: u64,
    pub(crate) script: Vec<u8>,
    pub(crate) height: Height,
    pub(crate) coinbase: bool,
}

/// Blocks of mainnet one after the other, and every coin that they spend.
pub(crate) struct Stretch {
    pub(crate) blocks: Vec<Arc<Block>>,
    pub(crate) raw: Vec<Vec<u8>>,
    pub(crate) spent: HashMap<OutPoint, Coin>,
}

/// The inputs of a block in order.
pub(crate) fn inputs(block: &Block) -> impl Iterator<Item = (TxId, u32, OutPoint)> {
    let of = |tx: &Tx| {
        let txid = tx.txid;
        (0..).zip(tx.inputs.clone()).map(move |(vin, input)| (txid, vin, input.outpoint))
    };
    block.txs.iter().flat_map(of)
}

/// Every coin that a block makes.
pub(crate) fn made(block: &Block) -> impl Iterator<Item = (OutPoint, Coin)> {
    let of = move |tx: &Tx| {
        let (txid, coinbase, height) = (tx.txid, tx.coinbase, block.height);
        let coins = (0..).zip(tx.outputs.clone()).filter(|(_, output)| output.spendable);
        coins.map(move |(vout, Output { value, script, .. })| {
            (OutPoint::new(txid, vout), Coin { value, script: script.to_vec(), height, coinbase })
        })
    };
    block.txs.iter().flat_map(of)
}

impl Stretch {
    /// Blocks that spend the coins that `undo` knows of.
    pub(crate) fn new(height: u32, raw: Vec<Vec<u8>>, undo: impl Fn(&Block) -> Vec<Coin>) -> Self {
        let convert = |(height, raw): (u32, &Vec<u8>)| convert::block(raw, Height(height), None).unwrap();
        let blocks: Vec<_> = (height..).zip(&raw).map(convert).map(Arc::new).collect();
        let mut spent = HashMap::new();
        for block in &blocks {
            let coins = undo(block);
            assert_eq!(coins.len(), inputs(block).count(), "block {}", block.height);
            spent.extend(inputs(block).map(|(_, _, outpoint)| outpoint).zip(coins));
        }
        // What the blocks make and spend themselves is known from the blocks, and must be what the undo data say.
        for (outpoint, coin) in blocks.iter().flat_map(|block| made(block).collect::<Vec<_>>()) {
            if let Some(said) = spent.get_mut(&outpoint) {
                assert_eq!((said.value, &said.script), (coin.value, &coin.script), "{outpoint}");
                *said = coin;
            }
        }
        Stretch { blocks, raw, spent }
    }

    /// Blocks nobody has undo data of. What they spend from outside is made up, and worth enough for any of their transactions.
    pub(crate) fn with_made_up_coins(height: u32, raw: Vec<Vec<u8>>) -> Self {
        let mut known = HashMap::new();
        for (height, raw) in (height..).zip(&raw) {
            known.extend(made(&convert::block(raw, Height(height), None).unwrap()));
        }
        Self::new(height, raw, |block| {
            let coin = |(_, _, outpoint): (TxId, u32, OutPoint)| {
                known.get(&outpoint).cloned().unwrap_or_else(|| made_up(outpoint, Height(height)))
            };
            inputs(block).map(coin).collect()
        })
    }

    /// The block before the first one.
    pub(crate) fn anchor(&self) -> ChainPoint {
        let first = &self.blocks[0];
        ChainPoint::new(Height(first.height.0 - 1), first.parent)
    }

    /// The blocks as a node's file.
    pub(crate) fn source(&self, files: &Files) -> BlkSource {
        let records: Vec<_> = self.raw.iter().map(|raw| data::record(Network::Mainnet, raw)).collect();
        files.write(0, &records.concat());
        data::open_after(files, Network::Mainnet, self.anchor())
    }

    /// The coins that have to be there before.
    pub(crate) fn needed(&self) -> BTreeMap<OutPoint, Coin> {
        let inside: HashSet<TxId> =
            self.blocks.iter().flat_map(|block| &block.txs).map(|tx| tx.txid).collect();
        let outside = self.spent.iter().filter(|(outpoint, _)| !inside.contains(&outpoint.txid));
        outside.map(|(outpoint, coin)| (*outpoint, coin.clone())).collect()
    }

    /// What may be minted is checked too, so a wrong amount would show.
    pub(crate) fn options(&self, block: &Block) -> ApplyOptions {
        let subsidy = Network::Mainnet.subsidy(block.height);
        ApplyOptions {
            rules: BlockRules { subsidy: Some(subsidy), ..BlockRules::default() },
            ..ApplyOptions::default()
        }
    }
}

/// 928848 and 928849. Their undo data say amount and script of every input; at which height it was made is made up.
pub(crate) fn of_2025(dir: &Path) -> Stretch {
    let file = |name: String| data::read(&dir.join("blocks-with-undo").join(name));
    let raw = [928_848, 928_849].map(|height| file(format!("block{height}.raw"))).to_vec();
    Stretch::new(928_848, raw, |block| {
        let bytes = file(format!("block{}-undo.raw", block.height));
        let mut from = bytes.as_slice();
        let mut coins = Vec::new();
        for (_, _, outpoint) in inputs(block) {
            let value = u64::from_le_bytes(*take(&mut from));
            let length = match take::<1>(&mut from)[0] {
                253 => usize::from(u16::from_le_bytes(*take(&mut from))),
                length => usize::from(length),
            };
            let (script, rest) = from.split_at(length);
            from = rest;
            coins.push(Coin { value, script: script.to_vec(), ..made_up(outpoint, Height(928_848)) });
        }
        assert!(from.is_empty(), "nothing is left over");
        coins
    })
}

/// 277647, with the coins it needs as btcd stores them, heights and coinbases and all.
pub(crate) fn of_2014(dir: &Path) -> Stretch {
    let file = |name: &str| data::read(&dir.join("blocks-with-undo").join(name));
    let raw = file("277647.dat.bz2").split_off(8);
    let store = file("277647.utxostore.bz2");
    let mut from = store.as_slice();
    let mut coins = HashMap::new();
    while !from.is_empty() {
        let mut txid: [u8; 32] = *take(&mut from);
        txid.reverse();
        let vout = u32::from_le_bytes(*take(&mut from));
        let length = u32::from_le_bytes(*take(&mut from));
        let (mut entry, rest) = from.split_at(length as usize);
        from = rest;
        coins.insert(OutPoint::new(TxId(txid), vout), stored_by_btcd(&mut entry));
    }
    Stretch::new(277_647, vec![raw], |block| {
        inputs(block).map(|(_, _, outpoint)| coins[&outpoint].clone()).collect()
    })
}

/// 367238 to 367240, of which nobody has undo data.
pub(crate) fn of_2015(dir: &Path) -> Stretch {
    let file = |height| dir.join(format!("mainnet-367238-367240/block-{height}.json.zst"));
    let raw = |height| data::hex(data::json(&file(height)).as_str().unwrap());
    Stretch::with_made_up_coins(367_238, (367_238..=367_240).map(raw).collect())
}

fn stored_by_btcd(entry: &mut &[u8]) -> Coin {
    let header = btcd_number(entry);
    let value = decompressed_amount(btcd_number(entry));
    assert_eq!(btcd_number(entry), 0, "all scripts in the file pay to the hash of a key");
    let script = [&[0x76, 0xa9, 0x14], take::<20>(entry).as_slice(), &[0x88, 0xac]].concat();
    let height = Height(u32::try_from(header >> 1).unwrap());
    Coin { value, script, height, coinbase: header & 1 == 1 }
}

/// Seven bits a byte, highest first, each but the last with the top bit set and counted from one.
fn btcd_number(from: &mut &[u8]) -> u64 {
    let mut number = 0;
    loop {
        let [byte] = *take::<1>(from);
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return number;
        }
        number += 1;
    }
}

/// Bitcoin's way of writing amounts with few digits in few bytes, undone.
fn decompressed_amount(number: u64) -> u64 {
    let Some(number) = number.checked_sub(1) else { return 0 };
    let (rest, zeros) = (number / 10, number % 10);
    let digits = if zeros < 9 { rest / 9 * 10 + rest % 9 + 1 } else { rest + 1 };
    digits * 10_u64.pow(zeros as u32)
}

fn take<'a, const N: usize>(from: &mut &'a [u8]) -> &'a [u8; N] {
    let (taken, rest) = from.split_first_chunk().expect("the data end too early");
    *from = rest;
    taken
}

fn made_up(outpoint: OutPoint, before: Height) -> Coin {
    let age = 200 + u32::from(outpoint.txid.0[0]);
    Coin {
        value: 21_000_000 * 100_000_000,
        script: outpoint.txid.0[..20].to_vec(),
        height: Height(before.0 - age),
        coinbase: false,
    }
}

/// Puts coins into a store as their transactions would have: mined, with what is not known of them left out.
pub(crate) async fn preload(node: &Node, coins: &BTreeMap<OutPoint, Coin>, at: Height) {
    let mut txs: BTreeMap<TxId, (Height, Tx)> = BTreeMap::new();
    for (outpoint, coin) in coins {
        let Coin { height, coinbase, .. } = *coin;
        let empty = || Tx {
            txid: outpoint.txid,
            version: 1,
            locktime: 0,
            fee: None,
            size: 0,
            coinbase,
            inputs: Vec::new(),
            outputs: Vec::new(),
            raw: Default::default(),
        };
        let (_, tx) = txs.entry(outpoint.txid).or_insert_with(|| (height, empty()));
        tx.outputs.resize(outpoint.vout as usize, Output::data(&[][..]));
        tx.outputs.push(Output::new(coin.value, coin.script.clone()));
    }
    let request = |(height, tx)| CreateRequest { trust_inputs: true, ..CreateRequest::mined(tx, 0, height) };
    node.store.create(txs.into_values().map(request).collect(), at).await.unwrap();
}

/// A UTXO set, kept without the store.
#[derive(Clone)]
pub(crate) struct Ledger {
    coins: u64,
    amount: u128,
    hash: MuHash,
}

impl Ledger {
    pub(crate) fn of(coins: &BTreeMap<OutPoint, Coin>) -> Self {
        let mut ledger = Ledger { coins: 0, amount: 0, hash: MuHash::new() };
        coins.iter().for_each(|(outpoint, coin)| ledger.add(outpoint, coin));
        ledger
    }

    /// The set after a block: what it makes comes, what the undo data say it spends goes.
    pub(crate) fn after(&self, block: &Block, spent: &HashMap<OutPoint, Coin>) -> Self {
        let mut after = self.clone();
        made(block).for_each(|(outpoint, coin)| after.add(&outpoint, &coin));
        for (_, _, outpoint) in inputs(block) {
            let coin = &spent[&outpoint];
            after.coins -= 1;
            after.amount -= u128::from(coin.value);
            after.hash.remove(&hashed(&outpoint, coin));
        }
        after
    }

    fn add(&mut self, outpoint: &OutPoint, coin: &Coin) {
        self.coins += 1;
        self.amount += u128::from(coin.value);
        self.hash.insert(&hashed(outpoint, coin));
    }

    #[track_caller]
    pub(crate) fn assert_is(&self, set: &UtxoSet, when: &str) {
        let digest = display_hex(&self.hash.finalize());
        let found = (set.coins, set.amount, set.digest().unwrap());
        assert_eq!(found, (self.coins, self.amount, digest), "{when}");
    }
}

/// What Bitcoin Core hashes of a coin, as the data's own description has it.
fn hashed(outpoint: &OutPoint, coin: &Coin) -> Vec<u8> {
    let mut bytes = outpoint.txid.0.to_vec();
    bytes.reverse();
    bytes.extend(outpoint.vout.to_le_bytes());
    bytes.extend((coin.height.0 * 2 + u32::from(coin.coinbase)).to_le_bytes());
    bytes.extend(coin.value.to_le_bytes());
    match u16::try_from(coin.script.len()).expect("scripts of coins are shorter") {
        length @ ..=252 => bytes.push(length as u8),
        length => {
            bytes.push(253);
            bytes.extend(length.to_le_bytes());
        }
    }
    bytes.extend_from_slice(&coin.script);
    bytes
}
