//! The UTXO set of mainnet at height 4312, as Bitcoin Core dumped it, against the hash Bitcoin Core printed for it.

mod dump;

use sapwood_muhash::{MuHash, display_hex};
use sapwood_testing::data;

/// `expected/mainnet-0-4312-muhash-by-height.json`, last entry.
const TXOUTS: usize = 4149;
const MUHASH: &str = "8ddda2747fb03d2bf57e08a23d4cab90f9e062c28bf5822760edc5238128a7e5";

#[test]
fn dumped_utxo_set_has_the_hash_that_core_printed() {
    let Some(dir) = data::bitcoin() else { return };
    let bytes = data::read(&dir.join("expected/mainnet-4312.utxo.dat"));
    let coins = dump::coins(&bytes).expect("a dumptxoutset file, version 2");
    assert_eq!(coins.len(), TXOUTS);

    let mut set = MuHash::new();
    for coin in &coins {
        set.insert(coin);
    }
    assert_eq!(display_hex(&set.finalize()), MUHASH);

    // The same set by another way: two shards, one of them with coins that come and go.
    let (left, right) = coins.split_at(TXOUTS / 3);
    let (mut shard, mut rest) = (MuHash::new(), MuHash::new());
    for coin in left {
        shard.insert(coin);
        rest.remove(coin);
    }
    for coin in left.iter().chain(right) {
        rest.insert(coin);
    }
    shard.combine(&rest);
    assert_eq!(display_hex(&shard.finalize()), MUHASH);
}
