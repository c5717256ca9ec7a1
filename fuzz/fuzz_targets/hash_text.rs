//! Hashes as people write them: the first byte of the input picks the kind.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_types::{AddressHash, TxId};

fuzz_target!(|data: &[u8]| {
    let Some((kind, text)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let parsed = if kind % 2 == 0 {
        text.parse::<TxId>().map(|hash| (TxId::SIZE, hash.to_string()))
    } else {
        text.parse::<AddressHash>().map(|hash| (AddressHash::SIZE, hash.to_string()))
    };
    match parsed {
        Ok((size, again)) => {
            assert_eq!(text.len(), 2 * size);
            assert_eq!(again, text.to_ascii_lowercase());
        }
        // The right number of the right characters is always a hash.
        Err(error) => {
            let size = if kind % 2 == 0 { TxId::SIZE } else { AddressHash::SIZE };
            let digits = text.bytes().all(|byte| byte.is_ascii_hexdigit());
            assert!(!digits || text.len() != 2 * size, "{error}");
        }
    }
});
