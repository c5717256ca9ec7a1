//! A block of Bitcoin from anywhere.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_sources::bitcoin::convert;
use sapwood_types::Height;

fuzz_target!(|data: &[u8]| {
    let Ok((block, used)) = convert::block_prefix(data, Height(1), None) else { return };
    assert_eq!(convert::block(&data[..used], Height(1), Some(&block.hash)).as_ref(), Ok(&block));

    // Nobody but the first transaction mints.
    assert!(block.txs.iter().enumerate().all(|(position, tx)| tx.coinbase == (position == 0)));
    assert!(block.txs[0].inputs.is_empty());
    let sizes: usize = block.txs.iter().map(|tx| tx.size as usize).sum();
    assert!(80 + sizes < used);
});
