//! The UTXO set of mainnet at height 4312, as Bitcoin Core dumped it, against the hash Bitcoin Core printed for it.

mod dump;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use sapwood_muhash::{MuHash, display_hex};

/// `expected/mainnet-0-4312-muhash-by-height.json`, last entry.
const TXOUTS: usize = 4149;
const MUHASH: &str = "8ddda2747fb03d2bf57e08a23d4cab90f9e062c28bf5822760edc5238128a7e5";

/// The shared data, which is not part of the repository.
fn data_dir() -> Option<PathBuf> {
    if let Some(dir) = env::var_os("SAPWOOD_TEST_DATA") {
        return Some(dir.into());
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().map(|dir| dir.join("shared/data")).find(|dir| dir.is_dir())
}

#[test]
fn dumped_utxo_set_has_the_hash_that_core_printed() {
    let Some(dir) = data_dir() else {
        // Continuous integration sets it, so that a missing directory does not pass for a test that passed.
        let demanded = env::var_os("SAPWOOD_DEMAND_DATA").is_some_and(|demanded| demanded != "0");
        assert!(!demanded, "SAPWOOD_DEMAND_DATA is set, but there is no shared/data above this crate");
        eprintln!("skipped: no shared/data above this crate; set SAPWOOD_TEST_DATA to its path");
        return;
    };
    let file = dir.join("bitcoin/expected/mainnet-4312.utxo.dat");
    let bytes = fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
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
