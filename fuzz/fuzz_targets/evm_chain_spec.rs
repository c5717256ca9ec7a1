//! The stored configuration of an EVM chain.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_evm::ChainSpec;

fuzz_target!(|data: &[u8]| {
    if let Ok(spec) = ChainSpec::decode(data) {
        assert_eq!(spec.encode(), data);
    }
});
