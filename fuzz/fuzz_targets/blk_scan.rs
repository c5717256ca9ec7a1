//! The records of a block file: the first byte of the input says whether there is a key over it.
#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use sapwood_sources::bitcoin::{Network, blk::Scanner};

fuzz_target!(|data: &[u8]| {
    let Some((masked, file)) = data.split_first() else { return };
    let key = if masked % 2 == 1 { [0x1f, 0, 0xee, 0x80, 7, 0xff, 1, 0x33] } else { [0; 8] };
    let magic = Network::Regtest.magic();
    let mut scanner = Scanner::new(Cursor::new(file), magic, key, 0).expect("memory can be read");
    let mut end = 0;
    while let Some(record) = scanner.next_record().expect("memory can be read") {
        // Records lie behind each other, within the file, and each has its magic.
        assert!(record.offset >= end + 8);
        end = record.offset + u64::from(record.length);
        assert!(record.length >= 80 && end <= file.len() as u64);
        let at = record.offset as usize - 8;
        let found: Vec<u8> = (at..at + 4).map(|place| file[place] ^ key[place % 8]).collect();
        assert_eq!(found, magic);
    }
    let left = scanner.leftovers();
    assert!(left.skipped <= file.len() as u64);
    assert!(left.torn.is_none_or(|torn| torn < file.len() as u64));
});
