//! Bad files are refused, with the file and the byte, and never panic.

use alloy_primitives::B256;
use proptest::prelude::*;
use sapwood_evm::{
    BlockError, CheckedBlock,
    block::{Part, ShapeError},
    read::{BlockFile, EntryKind, Fault, ImportError, MAX_ITEM_BYTES, Origin},
};

use crate::{
    import::import,
    synthetic::{self, Draft, entry},
};

/// Imports one file of the synthetic chain from block 1 on.
fn imported(file: &[u8], receipts: Option<&[u8]>) -> (usize, Option<ImportError>) {
    let (_, blocks) = synthetic::chain();
    let (found, _, error) = import(Some(&blocks[0]), vec![Origin::memory("file", file.to_vec())], receipts);
    // Whatever is delivered before an error is right.
    assert!(found.iter().zip(&blocks[1..]).all(|(found, block)| found.hash == block.hash));
    (found.len(), error)
}

/// The offset and the fault of an import that has to fail.
fn refused(file: &[u8]) -> (u64, Fault) {
    let error = imported(file, None).1.unwrap();
    assert_eq!(error.path, std::path::Path::new("file"));
    (error.offset, error.fault)
}

#[test]
fn cut_files_are_refused_wherever_they_are_cut() {
    let (_, blocks) = synthetic::chain();
    let (chain, receipts) = synthetic::rlp_files(&blocks[..4]);
    let mut ends = vec![0];
    for block in &blocks[1..4] {
        ends.push(ends.last().unwrap() + block.block.len());
    }
    for end in 1..chain.len() {
        let (found, error) = imported(&chain[..end], Some(&receipts));
        let whole = ends.iter().rposition(|at| *at <= end).unwrap();
        assert_eq!(found, whole, "cut at {end}");
        // Cut between two blocks a file is a shorter one.
        let between = ends.contains(&end);
        assert_eq!(error.is_none(), between, "cut at {end}: {error:?}");
        if let Some(error) = error {
            assert!(matches!(error.fault, Fault::Truncated { what: "block", .. }), "cut at {end}: {error}");
            assert!(
                error.offset as usize >= ends[whole] && error.offset as usize <= end,
                "cut at {end}: {error}"
            );
        }
    }
}

#[test]
fn cut_era_is_refused_before_its_first_block() {
    let (_, blocks) = synthetic::chain();
    let era = synthetic::era1(&blocks[1..]);
    for end in 2..era.len() {
        let (found, error) = imported(&era[..end], None);
        let error = error.unwrap_or_else(|| panic!("cut at {end}"));
        assert_eq!(found, 0, "cut at {end}");
        let named = matches!(error.fault, Fault::Truncated { .. } | Fault::EntryLength { .. });
        assert!(named && error.offset <= end as u64, "cut at {end}: {error}");
    }
}

#[test]
fn cut_compressed_file_is_refused() {
    let (_, blocks) = synthetic::chain();
    let (chain, _) = synthetic::rlp_files(&blocks);
    let packed = zstd::encode_all(&chain[..], 3).unwrap();
    for end in 4..packed.len() {
        let error = imported(&packed[..end], None).1;
        assert!(
            matches!(error, Some(ImportError { fault: Fault::Io { .. }, .. })),
            "cut at {end}: {error:?}"
        );
    }
}

#[test]
fn promised_length_is_refused_before_it_is_read() {
    // A list of 2^64 - 1 bytes.
    let fault = Fault::TooLong { what: "block", length: u64::MAX, limit: MAX_ITEM_BYTES };
    assert_eq!(refused(&[0xff; 9]), (0, fault));
    // One that is allowed, but is not there.
    let fault = Fault::Truncated { what: "block", needed: 0x0300_0000, found: 0 };
    assert_eq!(refused(&[0xfb, 3, 0, 0, 0]), (5, fault));
    // An entry of 4 GiB.
    let huge = [entry(0x3265, b""), vec![3, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]].concat();
    let fault = Fault::Truncated { what: "header", needed: u32::MAX.into(), found: 0 };
    assert_eq!(refused(&huge), (16, fault));
}

#[test]
fn snappy_bomb_stops_at_the_limit() {
    use std::io::Write as _;
    let mut bomb = snap::write::FrameEncoder::new(Vec::new());
    let zeros = vec![0; 1 << 20];
    for _ in 0..=MAX_ITEM_BYTES >> 20 {
        bomb.write_all(&zeros).unwrap();
    }
    let era = [entry(0x3265, b""), entry(3, &bomb.into_inner().unwrap())].concat();
    let fault = Fault::TooLong { what: "header", length: MAX_ITEM_BYTES + 1, limit: MAX_ITEM_BYTES };
    assert_eq!(refused(&era), (16, fault));
}

#[test]
fn lengths_that_are_not_in_their_shortest_form_are_refused() {
    let fault = |cause| Fault::Rlp { what: "block", cause };
    assert_eq!(refused(&[0xf8, 55]), (0, fault(alloy_rlp::Error::NonCanonicalSize)));
    assert_eq!(refused(&[0xf9, 0, 200]), (0, fault(alloy_rlp::Error::NonCanonicalSize)));
}

#[test]
fn files_of_another_kind_are_refused() {
    let found = |bytes: &[u8]| (0, Fault::UnknownFormat { found: bytes.to_vec() });
    assert_eq!(refused(b""), found(b""));
    assert_eq!(refused(b"{\"config\":{}}"), found(b"{\"config"));
    // An era of the consensus layer, and a file whose second entry is a header as well.
    let era = [entry(0x3265, b""), entry(1, b"block")].concat();
    let expected = "header or accumulator";
    assert_eq!(refused(&era), (8, Fault::WrongEntry { expected, found: EntryKind(1) }));
    let missing = imported_error(Origin::file("no/such/file"));
    assert!(matches!(missing.fault, Fault::Io { kind: std::io::ErrorKind::NotFound, .. }));
    assert!(missing.to_string().starts_with("no/such/file at byte 0: "));
}

fn imported_error(origin: Origin) -> ImportError {
    BlockFile::open(&origin).unwrap_err()
}

#[test]
fn string_between_blocks_is_refused() {
    let (_, blocks) = synthetic::chain();
    let (chain, _) = synthetic::rlp_files(&blocks);
    let (found, error) = imported(&[&chain[..], b"dog"].concat(), None);
    let error = error.unwrap();
    assert_eq!((found, error.offset), (6, chain.len() as u64));
    assert_eq!(error.fault, Fault::Rlp { what: "block", cause: alloy_rlp::Error::UnexpectedString });
}

/// An era with one thing changed.
fn changed_era(change: impl Fn(&mut Vec<Vec<u8>>)) -> (u64, Fault) {
    let (_, blocks) = synthetic::chain();
    let era = synthetic::era1(&blocks[1..3]);
    let mut entries = Vec::new();
    let mut rest = &era[..];
    while !rest.is_empty() {
        let length = u32::from_le_bytes(rest[2..6].try_into().unwrap()) as usize;
        entries.push(rest[..8 + length].to_vec());
        rest = &rest[8 + length..];
    }
    change(&mut entries);
    refused(&entries.concat())
}

#[test]
fn era_that_contradicts_itself_is_refused() {
    // Version, two blocks of four entries, accumulator, index.
    let fault = |change: fn(&mut Vec<Vec<u8>>)| changed_era(change).1;
    let reserved = Fault::Reserved { entry: EntryKind(3), found: 1 };
    assert_eq!(fault(|entries| entries[1][6] = 1), reserved);
    let difficulty = fault(|entries| entries[8][8] ^= 1);
    assert!(matches!(difficulty, Fault::TotalDifficulty { number: 2, .. }), "{difficulty}");
    let accumulator = fault(|entries| entries[9][8] ^= 1);
    assert!(matches!(accumulator, Fault::Accumulator { .. }), "{accumulator}");
    let first = fault(|entries| entries[10][8] ^= 1);
    assert_eq!(first, Fault::Index { what: "first block", expected: 1, found: 0 });
    let distance = fault(|entries| entries[10][16] ^= 1);
    assert!(matches!(distance, Fault::Index { what: "distance to a block", .. }), "{distance}");
    let count = fault(|entries| entries[10][32] ^= 1);
    assert_eq!(count, Fault::Index { what: "number of blocks", expected: 2, found: 3 });
    let length = fault(|entries| entries[10].truncate(8 + 24));
    assert!(matches!(length, Fault::Truncated { what: "block index", .. }), "{length}");
    let more = fault(|entries| entries.push(entry(0, b"")));
    assert_eq!(more, Fault::TrailingBytes { what: "the block index" });
    let swapped = fault(|entries| entries.swap(2, 3));
    assert_eq!(swapped, Fault::WrongEntry { expected: "body", found: EntryKind(5) });
    let lost = fault(|entries| drop(entries.drain(1..5)));
    assert!(matches!(lost, Fault::Accumulator { .. }), "{lost}");
    let twice = fault(|entries| drop(entries.splice(1..1, entries[1..5].to_vec()).collect::<Vec<_>>()));
    assert_eq!(twice, Fault::Block(BlockError::WrongNumber { expected: 2, found: 1 }));
    let turned = fault(|entries| entries[1..9].rotate_left(4));
    assert_eq!(turned, Fault::Block(BlockError::WrongNumber { expected: 3, found: 1 }));
}

#[test]
fn receipts_that_end_early_are_missed() {
    let (_, blocks) = synthetic::chain();
    let (chain, _) = synthetic::rlp_files(&blocks);
    let (_, receipts) = synthetic::rlp_files(&blocks[..4]);
    let (found, error) = imported(&chain, Some(&receipts));
    let expected = ImportError {
        path: "receipts".into(),
        offset: receipts.len() as u64,
        fault: Fault::NoReceipts { number: 4, last: 3 },
    };
    assert_eq!((found, error), (3, Some(expected)));
}

/// Seals a changed draft of the block after `parent` and imports it.
fn changed_block(number: usize, change: impl Fn(&mut Draft), receipts: bool) -> Option<Fault> {
    let (_, blocks) = synthetic::chain();
    let mut draft = synthetic::drafts()[number - 1](Draft::after(&blocks[number - 1]));
    change(&mut draft);
    let (block, list) = draft.seal();
    let before: Vec<u8> =
        blocks[1..number].iter().flat_map(|block| block.receipts.clone().unwrap()).collect();
    let receipts = receipts.then(|| [before, list.to_vec()].concat());
    let files = vec![Origin::memory("file", block)];
    import(Some(&blocks[number - 1]), files, receipts.as_deref()).2.map(|error| error.fault)
}

#[test]
fn block_that_does_not_follow_is_refused() {
    assert_eq!(changed_block(2, |_| (), true), None);
    let number = changed_block(2, |draft| draft.header.number = 5, true);
    assert_eq!(number, Some(Fault::Block(BlockError::WrongNumber { expected: 2, found: 5 })));
    let parent = changed_block(2, |draft| draft.header.parent_hash = B256::ZERO, true);
    let expected = synthetic::chain().1[1].hash;
    let wrong = BlockError::WrongParent { number: 2, expected, found: B256::ZERO };
    assert_eq!(parent, Some(Fault::Block(wrong)));
}

#[test]
fn transaction_of_another_chain_is_refused() {
    use alloy_consensus::{SignableTransaction as _, TxLegacy};
    let change = |draft: &mut Draft| {
        let tx = TxLegacy { chain_id: Some(8), ..TxLegacy::default() };
        let signature = alloy_primitives::Signature::new(1.try_into().unwrap(), 1.try_into().unwrap(), false);
        draft.transactions[1] = tx.into_signed(signature).into();
    };
    let wrong = BlockError::WrongChain { number: 2, index: 1, expected: 7, found: 8 };
    assert_eq!(changed_block(2, change, false), Some(Fault::Block(wrong)));
}

#[test]
fn impossible_signature_is_refused() {
    use alloy_consensus::{SignableTransaction as _, TxLegacy};
    let change = |draft: &mut Draft| {
        let signature = alloy_primitives::Signature::new(Default::default(), Default::default(), false);
        draft.transactions[0] = TxLegacy::default().into_signed(signature).into();
    };
    let wrong = BlockError::NoSender { number: 2, index: 0 };
    assert_eq!(changed_block(2, change, false), Some(Fault::Block(wrong)));
}

#[test]
fn receipts_of_other_transactions_are_refused() {
    let count = changed_block(2, |draft| drop(draft.receipts.pop()), true);
    assert_eq!(count, Some(Fault::Block(BlockError::ReceiptCount { number: 2, expected: 2, found: 1 })));
    let kind = changed_block(2, |draft| draft.receipts.swap(0, 1), true);
    let wrong = BlockError::ReceiptType { number: 2, index: 0, expected: 0, found: 1 };
    assert_eq!(kind, Some(Fault::Block(wrong)));
}

/// Imports a block of one transaction that is any bytes, after block 1.
fn block_of(transaction: &[u8]) -> Option<Fault> {
    let (_, blocks) = synthetic::chain();
    let raw = if transaction[0] < 0x80 { alloy_rlp::encode(transaction) } else { transaction.to_vec() };
    let mut header = Draft::after(&blocks[1]).header;
    header.transactions_root = alloy_trie::root::ordered_trie_root_encoded(&[transaction]);
    let block = synthetic::list(&[alloy_rlp::encode(&header), synthetic::list(&[raw]), vec![0xc0]]);
    import(Some(&blocks[1]), vec![Origin::memory("file", block)], None).2.map(|error| error.fault)
}

#[test]
fn transaction_of_an_unknown_type_is_refused() {
    let fault = ShapeError::UnknownType { part: Part::Transaction(0), found: 0x7e };
    let expected = Fault::Block(BlockError::Part { number: 2, fault });
    assert_eq!(block_of(&[0x7e, 0xc3, 1, 2, 3]), Some(expected));
    // Known, but not one.
    let fault = block_of(&[2, 0xc3, 1, 2, 3]).unwrap();
    assert!(
        matches!(fault, Fault::Block(BlockError::Part { number: 2, fault: ShapeError::Rlp { .. } })),
        "{fault}"
    );
}

#[test]
fn transaction_in_another_encoding_is_refused() {
    let (_, blocks) = synthetic::chain();
    let parts = sapwood_evm::BlockParts::split(&blocks[1].block).unwrap();
    let bytes = &parts.transactions[0];
    assert_eq!(block_of(bytes), None);
    // A signature's `v`, the byte before its `r`: 0 and 1 are what 27 and 28 stand for.
    let at = bytes.len() - 67;
    assert!([27, 28].contains(&bytes[at]));
    let mut other = bytes.to_vec();
    other[at] -= 27;
    let fault = block_of(&other).unwrap();
    assert!(matches!(fault, Fault::Block(BlockError::Part { number: 2, .. })), "{fault}");
}

#[test]
fn bloom_filter_of_other_receipts_is_refused() {
    let (_, blocks) = synthetic::chain();
    let parts = sapwood_evm::BlockParts::split(&blocks[2].block).unwrap();
    let mut header = parts.header.clone();
    header.logs_bloom.0[5] ^= 1;
    let rest = blocks[2].block.slice(3 + parts.header_rlp.len()..).to_vec();
    let block = synthetic::list(&[alloy_rlp::encode(&header), rest]);
    let (_, receipts) = synthetic::rlp_files(&blocks);
    let error = import(Some(&blocks[1]), vec![Origin::memory("file", block)], Some(&receipts)).2.unwrap();
    let (expected, found) = (Box::new(header.logs_bloom), Box::new(parts.header.logs_bloom));
    assert_eq!(error.fault, Fault::Block(BlockError::WrongBloom { number: 2, expected, found }));
}

#[test]
fn block_with_a_part_too_many_is_refused() {
    let (_, blocks) = synthetic::chain();
    let parts = sapwood_evm::BlockParts::split(&blocks[4].block).unwrap();
    let block = synthetic::list(&[parts.header_rlp.to_vec(), vec![0xc0; 4]]);
    let error = import(Some(&blocks[3]), vec![Origin::memory("file", block)], None).2.unwrap();
    let fault = ShapeError::TrailingBytes { part: Part::Block, left: 1 };
    assert_eq!(error.fault, Fault::Block(BlockError::Shape(fault)));
}

#[test]
fn era_of_too_many_blocks_is_refused() {
    let (_, blocks) = synthetic::chain();
    let mut chain = vec![blocks[0].clone()];
    for _ in 0..8192 {
        let last = chain.last().unwrap();
        let (block, receipts) = Draft::after(last).seal();
        let hash = sapwood_evm::BlockParts::split(&block).unwrap().hash;
        let number = last.number + 1;
        chain.push(CheckedBlock { number, hash, block, receipts: Some(receipts), ..last.clone() });
    }
    let all = synthetic::era1(&chain[1..]);
    assert!(BlockFile::open(&Origin::memory("era", all)).is_ok());
    let more = synthetic::era1(&chain);
    let error = imported_error(Origin::memory("era", more));
    assert_eq!(error.fault, Fault::TooManyBlocks { limit: 8192 });
}

#[test]
fn withdrawals_in_one_place_only_are_refused() {
    let (_, blocks) = synthetic::chain();
    let with_lists = |block: &CheckedBlock, lists: usize| {
        let parts = sapwood_evm::BlockParts::split(&block.block).unwrap();
        assert!(parts.transactions.is_empty() && parts.ommers.is_empty());
        synthetic::list(&[parts.header_rlp.to_vec(), vec![0xc0; lists]])
    };
    let refused = |stored: usize, bytes| {
        let (_, _, error) = import(Some(&blocks[stored]), vec![Origin::memory("file", bytes)], None);
        error.unwrap().fault
    };
    // Block 4 is the first one with withdrawals, and has no transactions.
    let missing = refused(3, with_lists(&blocks[4], 2));
    assert_eq!(missing, Fault::Block(BlockError::Withdrawals { number: 4, in_header: true }));
    let other = refused(3, with_lists(&blocks[4], 3));
    assert!(matches!(other, Fault::Block(BlockError::WrongRoot { number: 4, part: Part::Withdrawals, .. })));
    // Nothing is before block 0, so it can be read as a first block.
    let (early, _, error) = import(None, vec![Origin::memory("file", with_lists(&blocks[0], 3))], None);
    let fault = Fault::Block(BlockError::Withdrawals { number: 0, in_header: false });
    assert_eq!((early, error.unwrap().fault), (vec![], fault));
}

#[test]
fn wrong_root_is_refused_with_both_roots() {
    let (_, blocks) = synthetic::chain();
    let (chain, _) = synthetic::rlp_files(&blocks[..3]);
    let other = &blocks[5].receipts.clone().unwrap();
    let receipts = [&blocks[1].receipts.clone().unwrap()[..], other].concat();
    // Two receipts where one is right.
    let (_, error) = imported(&chain, Some(&receipts));
    assert!(matches!(error.unwrap().fault, Fault::Block(BlockError::ReceiptCount { number: 2, .. })));
    let mut receipts = blocks[1].receipts.clone().unwrap().to_vec();
    *receipts.last_mut().unwrap() ^= 1;
    let (_, error) = imported(&chain, Some(&receipts));
    let error = error.unwrap();
    let Fault::Block(BlockError::WrongRoot { number: 1, part: Part::Receipts, expected, found }) =
        &error.fault
    else {
        panic!("{error}");
    };
    assert_ne!(expected, found);
    assert!(error.to_string().contains(&format!("commits to receipts {expected}, found {found}")), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn damaged_block_is_refused_or_another_block(at in any::<prop::sample::Index>(), bit in 0..8_u32) {
        let (_, blocks) = synthetic::chain();
        let (chain, receipts) = synthetic::rlp_files(&blocks);
        let mut damaged = chain.clone();
        damaged[at.index(chain.len())] ^= 1 << bit;
        let files = vec![Origin::memory("file", damaged)];
        let (found, _, error) = import(Some(&blocks[0]), files, Some(&receipts));
        // A changed header may fit its body, but then the next block does not follow it.
        prop_assert!(error.is_some() || found.last().unwrap().hash != blocks[6].hash);
    }

    #[test]
    fn damaged_receipts_are_refused(at in any::<prop::sample::Index>(), bit in 0..8_u32) {
        let (_, blocks) = synthetic::chain();
        let (chain, mut receipts) = synthetic::rlp_files(&blocks);
        let at = at.index(receipts.len());
        receipts[at] ^= 1 << bit;
        prop_assert!(imported(&chain, Some(&receipts)).1.is_some());
    }

    #[test]
    fn damaged_era_is_refused_or_the_same_blocks(at in any::<prop::sample::Index>(), bit in 0..8_u32) {
        let (_, blocks) = synthetic::chain();
        let mut era = synthetic::era1(&blocks[1..]);
        let at = at.index(era.len());
        era[at] ^= 1 << bit;
        let files = vec![Origin::memory("file", era)];
        let (found, _, error) = import(Some(&blocks[0]), files, None);
        // Snappy has more than one way to write the same bytes: another one is no damage.
        prop_assert!(error.is_some() || found == blocks[1..], "bit {bit} of byte {at}");
    }

    #[test]
    fn files_of_noise_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), start in 0..3_usize) {
        let start: &[u8] = [&[][..], &[0x65, 0x32, 0, 0, 0, 0, 0, 0], &[0x28, 0xb5, 0x2f, 0xfd]][start];
        let (found, error) = imported(&[start, &bytes].concat(), Some(&bytes));
        prop_assert!(found == 0 && error.is_some());
    }
}
