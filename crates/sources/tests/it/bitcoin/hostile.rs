//! Damaged, foreign and senseless files.

use std::{ops::ControlFlow, path::PathBuf};

use sapwood_sources::bitcoin::BitcoinError;
use sapwood_sources::{
    BlockSource, SourceError,
    bitcoin::{
        BlkOptions, BlkSource, Network,
        blk::{BlkReport, FileOrder},
        convert::{self, ConvertError},
    },
};
use sapwood_testing::regtest;
use sapwood_types::Height;

use crate::bitcoin::data::{Files, cause, first_blocks, record};

const MAINNET: Network = Network::Mainnet;

fn try_open(
    network: Network,
    places: impl IntoIterator<Item = impl Into<PathBuf>>,
) -> Result<BlkReport, SourceError> {
    BlkSource::open(BlkOptions::new(network, places), |_| ControlFlow::Continue(()))
        .map(|source| source.report())
}

fn records(blocks: &[Vec<u8>]) -> Vec<u8> {
    blocks.iter().flat_map(|block| record(MAINNET, block)).collect()
}

/// Bytes that look like nothing, the same in every run.
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn a_file_cut_at_any_byte_ends_with_its_last_whole_block() {
    let Some(blocks) = first_blocks(5) else { return };
    let whole = records(&blocks);
    let mut ends = vec![0];
    for block in &blocks {
        ends.push(ends[ends.len() - 1] + 8 + block.len());
    }
    for cut in 0..=whole.len() {
        let files = Files::of(&whole[..cut]);
        let report =
            try_open(MAINNET, [files.path()]).unwrap_or_else(|error| panic!("cut at {cut}: {error}"));
        let complete = ends.iter().filter(|end| **end <= cut).count() - 1;
        assert_eq!(report.blocks, complete, "cut at {cut}");
        assert_eq!(report.tip.height.0 as usize, complete.saturating_sub(1), "cut at {cut}");
        let torn: Vec<_> = report.notes.iter().map(|note| note.torn).collect();
        let expected = (!ends.contains(&cut)).then_some(Some(ends[complete] as u64));
        assert_eq!(torn, Vec::from_iter(expected), "cut at {cut}");
        assert_eq!(files.in_order(MAINNET).len(), complete, "cut at {cut}");
    }
}

#[test]
fn a_block_cut_at_any_byte_is_malformed_and_no_single_bit_can_change() {
    let Some(blocks) = first_blocks(2) else { return };
    let good = convert::block(&blocks[1], Height(1), None).unwrap();
    for cut in 0..blocks[1].len() {
        let error = convert::block(&blocks[1][..cut], Height(1), None).unwrap_err();
        assert!(matches!(error, ConvertError::Malformed { length, .. } if length == cut), "{error}");
    }
    let longer = [blocks[1].as_slice(), &[0]].concat();
    let used = blocks[1].len();
    assert_eq!(convert::block(&longer, Height(1), None), Err(ConvertError::TrailingBytes { used, extra: 1 }));
    for bit in 0..blocks[1].len() * 8 {
        let mut changed = blocks[1].clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(convert::block(&changed, Height(1), Some(&good.hash)).is_err(), "bit {bit}");
    }
}

#[test]
fn a_block_without_or_with_two_coinbases_is_refused() {
    use bitcoin::{Block, consensus::serialize};
    let Some(blocks) = first_blocks(2) else { return };
    let good: Block = bitcoin::consensus::deserialize(&blocks[1]).unwrap();
    let with = |txs: Vec<bitcoin::Transaction>| {
        let mut block = Block { header: good.header, txdata: txs };
        if let Some(root) = block.compute_merkle_root() {
            block.header.merkle_root = root;
        }
        convert::block(&serialize(&block), Height(1), None)
    };
    let coinbase = good.txdata[0].clone();
    let mut second = coinbase.clone();
    second.output[0].value = bitcoin::Amount::from_sat(1);
    let mut plain = coinbase.clone();
    plain.input[0].previous_output.vout = 0;
    assert!(with(vec![coinbase.clone(), plain.clone()]).is_ok());
    assert!(matches!(
        with(vec![coinbase.clone(), second]),
        Err(ConvertError::SecondCoinbase { position: 1, .. })
    ));
    assert!(matches!(with(vec![plain, coinbase.clone()]), Err(ConvertError::NoCoinbase { .. })));
    assert!(matches!(with(vec![coinbase.clone(), coinbase]), Err(ConvertError::RepeatedTransactions { .. })));
    // No transaction at all: the root of nothing is not the one of the header.
    assert!(matches!(with(Vec::new()), Err(ConvertError::MerkleRoot { .. })));
}

#[test]
fn garbage_padding_and_wrong_lengths_between_records_lose_no_block() {
    let Some(blocks) = first_blocks(7) else { return };
    let magic = MAINNET.magic();
    // With garbage before it a record must carry work. The real ones do.
    let between: [Vec<u8>; 6] = [
        vec![0; 100_000],
        noise(70_000, 7),
        [magic.as_slice(), &[255; 4]].concat(),
        [magic.as_slice(), &79u32.to_le_bytes(), &[9; 79]].concat(),
        [magic.as_slice(), &magic[..3]].concat(),
        // A record that a stranger could have written into a transaction: it has no work.
        record(MAINNET, &[&[0; 4], noise(300, 3).as_slice()].concat()),
    ];
    let mut file = Vec::new();
    for (block, between) in blocks.iter().zip(between.iter().chain([&Vec::new()])) {
        file.extend(record(MAINNET, block));
        file.extend(between);
    }
    // The last one is only searched for after garbage, not believed at once.
    let at = file.len() - record(MAINNET, &blocks[6]).len() - between[5].len();
    file.splice(at..at, [1, 2, 3]);
    let files = Files::of(&file);
    let report = try_open(MAINNET, [files.path()]).unwrap();
    assert_eq!((report.blocks, report.tip.height, report.unconnected), (7, Height(6), 0));
    assert!(report.notes[0].skipped > 60_000 && report.notes[0].torn.is_none(), "{:?}", report.notes);
    assert_eq!(files.in_order(MAINNET).len(), 7);
}

#[test]
fn noise_is_refused_with_a_hint_and_never_a_panic() {
    for seed in 0..40 {
        let files = Files::of(&noise(5000 + seed as usize * 1000, seed * 77));
        let error = try_open(MAINNET, [files.path()]).unwrap_err();
        assert!(
            matches!(error, SourceError::Bitcoin(BitcoinError::NoBlocks { network: MAINNET, .. })),
            "{error}"
        );
        assert!(error.to_string().contains("xor.dat"), "{error}");
    }
}

#[test]
fn empty_and_zeroed_files_are_a_chain_of_the_first_block_only() {
    for bytes in [Vec::new(), vec![0; 1], vec![0; 200_000]] {
        let files = Files::of(&bytes);
        let report = try_open(MAINNET, [files.path()]).unwrap();
        assert_eq!((report.blocks, report.tip.height, report.notes), (0, Height(0), Vec::new()));
    }
}

#[test]
fn files_of_another_network_are_refused_by_name() {
    for found in [Network::Regtest, Network::Testnet4, Network::Signet, Network::Testnet3] {
        let files = Files::of(&record(found, &found.genesis_block()));
        let error = try_open(MAINNET, [files.path()]).unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(error, SourceError::Bitcoin(BitcoinError::WrongNetwork { magic, .. }) if magic == found.magic())
        );
        assert!(text.contains(found.name()) && text.contains("--network"), "{text}");
        let order = FileOrder::open(MAINNET, &[files.path().to_owned()]).unwrap().next().unwrap();
        assert_eq!(order.unwrap_err(), error);
    }
}

#[test]
fn files_of_a_private_signet_are_read_with_its_magic_only() {
    let private: Network = "signet:a553c67e".parse().unwrap();
    let files = Files::of(&record(private, &private.genesis_block()));
    assert_eq!(try_open(private, [files.path()]).unwrap().blocks, 1);
    let error = try_open(Network::Signet, [files.path()]).unwrap_err();
    assert!(
        matches!(error, SourceError::Bitcoin(BitcoinError::NoBlocks { first, .. }) if first == "a553c67e")
    );
}

#[tokio::test]
async fn key_file_is_used_and_padding_under_it_is_known() {
    let Some(blocks) = first_blocks(50) else { return };
    for key in [[0x5a, 1, 0xff, 3, 0, 0x80, 7, 9], [0; 8]] {
        let mut file = records(&blocks);
        for (byte, key) in file.iter_mut().zip(key.iter().cycle()) {
            *byte ^= key;
        }
        // Nodes fill files with plain zeros, without the key.
        file.extend([0; 50_000]);
        let files = Files::of(&file);
        files.write_as("xor.dat", &key);
        let source = files.open(MAINNET);
        let report = source.report();
        assert_eq!((report.blocks, report.tip.height, report.notes), (50, Height(49), Vec::new()));
        let block = source.block_at(Height(33)).await.unwrap().unwrap().utxo.unwrap();
        assert_eq!(*block, convert::block(&blocks[33], Height(33), None).unwrap());
        assert_eq!(files.in_order(MAINNET).last().unwrap().bytes, blocks[49]);
        // The directory above, as a node has it, and the file alone.
        let above = Files::new();
        std::fs::create_dir(above.path().join("blocks")).unwrap();
        above.write_as("blocks/blk00000.dat", &file);
        above.write_as("blocks/xor.dat", &key);
        assert_eq!(try_open(MAINNET, [above.path()]).unwrap().blocks, 50);
        assert_eq!(try_open(MAINNET, [above.path().join("blocks/blk00000.dat")]).unwrap().blocks, 50);

        files.write_as("xor.dat", &key[..7]);
        let error = try_open(MAINNET, [files.path()]).unwrap_err();
        assert!(matches!(error, SourceError::Bitcoin(BitcoinError::XorKey { length: 7, .. })), "{error}");
        std::fs::remove_file(files.path().join("xor.dat")).unwrap();
        assert_eq!(try_open(MAINNET, [files.path()]).is_ok(), key == [0; 8]);
    }
}

#[test]
fn missing_files_are_named() {
    let files = Files::new();
    files.write_as("rev00000.dat", b"");
    assert!(
        matches!(try_open(MAINNET, [files.path()]), Err(SourceError::Bitcoin(BitcoinError::NoBlockFiles { path })) if path == files.path())
    );
    let missing = files.path().join("blk00000.dat");
    let error = try_open(MAINNET, [&missing]).unwrap_err();
    assert!(
        matches!(&error, SourceError::File { path, kind: std::io::ErrorKind::NotFound, .. } if *path == missing)
    );
}

#[tokio::test]
async fn a_damaged_block_is_named_when_it_is_read_and_others_are_not_touched() {
    let Some(blocks) = first_blocks(6) else { return };
    let mut file = records(&blocks);
    let at = records(&blocks[..3]).len();
    file[at + 8 + 150] ^= 1;
    let files = Files::of(&file);
    let source = files.open(MAINNET);
    assert_eq!(source.tip().await.unwrap().unwrap().height, Height(5));
    for height in [0, 1, 2, 4, 5] {
        assert!(source.block_at(Height(height)).await.unwrap().is_some());
    }
    let error = source.block_at(Height(3)).await.unwrap_err();
    assert!(matches!(cause(&error), Some(ConvertError::MerkleRoot { .. })), "{error}");
    assert!(error.to_string().contains(&format!("byte {}", at + 8)), "{error}");
    // Told that it is bad, the source offers what comes before.
    let hash = source.hash_at(Height(3)).await.unwrap().unwrap();
    assert!(source.reject(&hash).await.unwrap());
    assert_eq!(source.tip().await.unwrap().unwrap().height, Height(2));
    // A pruning node deletes files under our feet.
    std::fs::remove_file(files.path().join("blk00000.dat")).unwrap();
    let error = source.block_at(Height(2)).await.unwrap_err();
    assert!(matches!(error, SourceError::File { kind: std::io::ErrorKind::NotFound, .. }), "{error}");
}

#[test]
fn opening_can_be_watched_and_stopped() {
    let Some(blocks) = first_blocks(200) else { return };
    let files = Files::new();
    for (number, part) in blocks.chunks(50).enumerate() {
        files.write(number, &records(part));
    }
    let mut seen = Vec::new();
    let options = BlkOptions::new(MAINNET, [files.path()]);
    BlkSource::open(options.clone(), |now| {
        seen.push(now);
        ControlFlow::Continue(())
    })
    .unwrap();
    let last = seen.last().unwrap();
    assert_eq!((last.files, last.files_total, last.blocks, last.bytes), (4, 4, 200, last.bytes_total));
    assert!(seen.is_sorted_by_key(|now| now.bytes));
    let stopped = BlkSource::open(options, |now| {
        if now.files == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(stopped.map(|_| ()), Err(SourceError::Interrupted)));
}

#[test]
fn compressed_files_are_said_to_be_compressed() {
    for magic in [[0x1f, 0x8b, 8, 0], [0x28, 0xb5, 0x2f, 0xfd], *b"BZh9", [0xfd, b'7', b'z', b'X']] {
        let files = Files::of(&[magic.as_slice(), &noise(5000, 9)].concat());
        let error = try_open(MAINNET, [files.path()]).unwrap_err();
        assert!(error.to_string().contains("unpack it first"), "{error}");
    }
}

/// Nothing is left out in silence.
#[cfg(unix)]
#[test]
fn a_link_to_nothing_is_an_error() {
    let Some(blocks) = first_blocks(3) else { return };
    let files = Files::of(&records(&blocks));
    let link = files.path().join("blk00001.dat");
    std::os::unix::fs::symlink("/no/such/file", &link).unwrap();
    let error = try_open(MAINNET, [files.path()]).unwrap_err();
    assert!(matches!(&error, SourceError::File { path, .. } if *path == link), "{error}");
}

/// To open a pipe waits for its writer: the follower would hang without a word.
#[test]
fn h4_pipe_among_the_files_is_refused_by_name() {
    let chain = regtest::longer(&[], "block", 3);
    let files = Files::of(&regtest::file(&chain));
    let source = files.open(Network::Regtest);
    let pipe = files.path().join("blk00001.dat");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let error = source.refresh(|_| ControlFlow::Continue(())).unwrap_err();
    assert!(matches!(&error, SourceError::File { path, .. } if *path == pipe), "{error}");
    std::fs::remove_file(&pipe).unwrap();
    source.refresh(|_| ControlFlow::Continue(())).unwrap();
}
