//! The formats do not change by accident: known values, and their bytes written out by hand.
//!
//! A failure here means that data stored by an earlier build can no longer be read. Either take the change back, or raise
//! the version byte, teach the decoder both versions and add new golden bytes next to the old ones.

use std::{
    fmt::Debug,
    path::{Path, PathBuf},
};

use crate::hex::hex;
use bytes::Bytes;
use sapwood_types::{
    AddressHash, BlockHash, BlockMark, Blocks, DecodeError, External, FirstPage, FurtherPage, Height, Input,
    MinedIn, OutPoint, Output, PrevOutput, Reassignment, Scratch, Slot, Spender, Tx, TxBody, TxHead, TxId,
    TxRecord, Undo, UtxoHash,
    codec::{Reader, Writer},
    tx_file,
};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn show(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Both directions: the value is written as these bytes, and these bytes are read as the value.
fn check<T: Debug + PartialEq>(
    golden: &str,
    value: &T,
    encode: impl Fn(&T) -> Vec<u8>,
    decode: impl Fn(Bytes) -> Result<T, DecodeError>,
) {
    let golden = hex(golden);
    assert_eq!(show(&encode(value)), show(&golden), "{value:?} is not written as it used to be");
    assert_eq!(decode(golden.into()).as_ref(), Ok(value), "what used to be written is not read any more");
}

fn written(write: impl Fn(&mut Writer)) -> Vec<u8> {
    let mut to = Writer::default();
    write(&mut to);
    to.finish()
}

fn whole<T>(bytes: Bytes, read: impl Fn(&mut Reader) -> Result<T, DecodeError>) -> Result<T, DecodeError> {
    let mut from = Reader::new(bytes);
    let value = read(&mut from)?;
    from.end("golden bytes")?;
    Ok(value)
}

// ---------------------------------------------------------------------------------------------------------------- slots

const SLOT_SPENT_UNMINED: &str = "
    03          # spent, spender not mined
    c1*32       # spender
    ac02        # its input 300
";
const SLOT_SPENT_MINED: &str = "
    04          # spent, spender mined
    c1*32       # spender
    00          # its input 0
    000003e9    # mined at height 1001
";
const SLOT_SETTLED: &str = "
    05          # spent beyond every reorganisation
    000003e9    # spender mined at height 1001
";

fn slots() -> [(Slot, &'static str); 6] {
    let child = TxId([0xc1; 32]);
    [
        (Slot::Unspent, "00"),
        (Slot::Frozen, "01"),
        (Slot::Unspendable, "02"),
        (Slot::spent(Spender::new(child, 300), None), SLOT_SPENT_UNMINED),
        (Slot::spent(Spender::new(child, 0), Some(Height(1001))), SLOT_SPENT_MINED),
        (Slot::Settled { child_mined_at: Height(1001) }, SLOT_SETTLED),
    ]
}

#[test]
fn slots_are_written_as_ever() {
    for (slot, golden) in slots() {
        check(golden, &slot, |slot| written(|to| slot.encode(to)), |bytes| whole(bytes, Slot::decode));
    }
}

// -------------------------------------------------------------------------------------------------------------- outputs

const OUTPUT_PLAIN: &str = "
    00            # flags: none
    80e497d012    # value 5,000,000,000
    02 51ac       # script of 2 bytes
";
const OUTPUT_EXTRA: &str = "
    01            # flags: extra data
    00            # value 0
    00            # script of 0 bytes
    03 aabbcc     # extra data of 3 bytes
";
const OUTPUT_CREDENTIAL: &str = "
    02                      # flags: credential
    ffffffffffffffffff01    # value 2^64 - 1
    01 51                   # script of 1 byte
    ad*28                   # credential
";
const OUTPUT_BOTH: &str = "
    03          # flags: extra data, credential
    01          # value 1
    01 51       # script of 1 byte
    01 ee       # extra data of 1 byte
    ad*28       # credential
";
const OUTPUT_NOT_KEPT: &str = "
    04          # flags: not kept
";

fn outputs() -> [(Output, &'static str); 4] {
    let credential = Some(AddressHash([0xad; 28]));
    [
        (Output::new(5_000_000_000, hex("51ac")), OUTPUT_PLAIN),
        (Output { extra: hex("aabbcc").into(), ..Output::new(0, Bytes::new()) }, OUTPUT_EXTRA),
        (Output { credential, ..Output::new(u64::MAX, hex("51")) }, OUTPUT_CREDENTIAL),
        (Output { extra: hex("ee").into(), credential, ..Output::new(1, hex("51")) }, OUTPUT_BOTH),
    ]
}

#[test]
fn outputs_are_written_as_ever() {
    let encode = |output: &Option<Output>| {
        let unspendable = Output { extra: hex("ee").into(), ..Output::data(hex("6a01ff")) };
        written(|to| output.as_ref().unwrap_or(&unspendable).encode(to))
    };
    for (output, golden) in outputs() {
        check(golden, &Some(output), encode, |bytes| whole(bytes, Output::decode));
    }
    check(OUTPUT_NOT_KEPT, &None, encode, |bytes| whole(bytes, Output::decode));
}

// --------------------------------------------------------------------------------------------------------------- bodies

const BODY_LEAST: &str = "
    00          # flags: none
    00000001    # version 1
    00000000    # lock time 0
    00          # size 0
    00          # no inputs
";
const BODY_FULL: &str = "
    01          # flags: fee
    00000002    # version 2
    ffffffff    # lock time 2^32 - 1
    ac02        # fee 300
    e101        # size 225
    02          # two inputs
    11*32       # spends from this transaction
    01          # its output 1
    00          # amount and script not known
    22*32       # spends from this transaction
    ffffffff0f  # its output 2^32 - 1
    01          # amount and script known
    e807        # amount 1,000
    01 51       # script of 1 byte
";

/// From schema 2 of the embedded store on.
const BODY_AMOUNTS: &str = "
    01          # flags: fee
    00000001    # version 1
    00000000    # lock time 0
    07          # fee 7
    e101        # size 225
    01          # one input
    11*32       # spends from this transaction
    01          # its output 1
    02          # amount known
    e807        # amount 1,000
";

fn bodies() -> [(TxBody, &'static str); 3] {
    let known = Input {
        outpoint: OutPoint::new(TxId([0x22; 32]), u32::MAX),
        previous: Some(PrevOutput { value: 1000, script: Some(hex("51").into()) }),
    };
    let inputs = vec![Input::of(OutPoint::new(TxId([0x11; 32]), 1)), known];
    let amount = Input {
        outpoint: OutPoint::new(TxId([0x11; 32]), 1),
        previous: Some(PrevOutput { value: 1000, script: None }),
    };
    [
        (TxBody { version: 1, locktime: 0, fee: None, size: 0, inputs: vec![] }, BODY_LEAST),
        (TxBody { version: 2, locktime: u32::MAX, fee: Some(300), size: 225, inputs }, BODY_FULL),
        (TxBody { version: 1, locktime: 0, fee: Some(7), size: 225, inputs: vec![amount] }, BODY_AMOUNTS),
    ]
}

#[test]
fn bodies_are_written_as_ever() {
    for (body, golden) in bodies() {
        check(golden, &body, |body| body.encode().into(), TxBody::decode);
    }
}

/// The file of a transaction with a plain output and one that can never be spent.
const FILE: &str = "
    53575458    # SWTX
    01          # format version
    3333333333333333333333333333333333333333333333333333333333333333
    01          # a coinbase
    0b          # body of 11 bytes:
    00 00000002 00000000 07 00
    02          # two outputs
    03          # can be spent, has a credential
    e807        # amount 1,000
    01 51       # script of 1 byte
    02 abcd     # extra of 2 bytes
    44444444444444444444444444444444444444444444444444444444
    00          # cannot be spent
    00          # amount 0
    02 6a00     # script of 2 bytes
    00          # no extra
";

#[test]
fn transaction_files_are_written_as_ever() {
    let paid = Output {
        extra: hex("abcd").into(),
        credential: Some(AddressHash([0x44; 28])),
        ..Output::new(1000, hex("51"))
    };
    let tx = Tx {
        txid: TxId([0x33; 32]),
        version: 2,
        locktime: 0,
        fee: None,
        size: 7,
        coinbase: true,
        inputs: vec![],
        outputs: vec![paid, Output::data(hex("6a00"))],
        raw: Default::default(),
    };
    check(FILE, &tx, |tx| tx_file::encode(tx).into(), tx_file::decode);
    for bad in ["53575459", "5357545802"] {
        let mut bytes = tx_file::encode(&tx).to_vec();
        bytes.splice(..bad.len() / 2, hex(bad));
        assert!(tx_file::decode(bytes.into()).is_err(), "{bad}");
    }
}

// ---------------------------------------------------------------------------------------------------------------- pages

/// The worked example of `docs/formats.md`.
const FIRST_PAGE_SMALL: &str = "
    01              # format version
    0008            # flags: first unmined
    00000064        # made at height 100
    a8b0d2ede923    # made at 1,231,006,505,000 ms
    02              # two outputs, so no further page
    00000064        # first unmined at height 100
    00              # in no block
    00              # slot 0: unspent
    02              # slot 1: unspendable
    30              # body of 48 bytes:
      01            #   flags: fee
      00000002      #   version 2
      00000000      #   lock time 0
      ac02          #   fee 300
      e101          #   size 225
      01            #   one input
      11*32         #   spends from this transaction
      01            #   its output 1
      00            #   amount and script not known
    00              # output 0, flags: none
      80e497d012    #   value 5,000,000,000
      02 51ac       #   script of 2 bytes
    04              # output 1, flags: not kept
";
const FIRST_PAGE_FULL: &str = "
    01              # format version
    06ff            # flags: all but the second kind of external body
    00000064        # made at height 100
    00              # made at 0 ms
    01              # one output
    00000065        # first unmined at height 101
    00000066        # conflicting since height 102
    00000067        # preserved until height 103
    00000068        # spendable from height 104
    02              # in two blocks
      07            #   block number 7
      00000069      #   height 105
      00            #   subtree 0, not on the longest chain
      ac02          #   block number 300
      0000006a      #   height 106
      fcffffff1f    #   subtree 2^32 - 2, not on the longest chain
    01              # one conflicting child
      c2*32         #   this one
    01              # one reassignment
      00            #   of output 0
      a1*32         #   hash before
      a2*32         #   hash from then on
      0000006b      #   at height 107
      00000453      #   spendable from height 1,107
    04              # slot 0: spent, spender mined
      c1*32         #   spender
      00            #   its input 0
      0000006c      #   at height 108
    0b              # body of 11 bytes:
      00            #   flags: none
      00000001      #   version 1
      00000000      #   lock time 0
      00            #   size 0
      00            #   no inputs
    00 01 00        # output 0: no flags, value 1, no script
";
const FIRST_PAGE_LONG: &str = "
    01              # format version
    0000            # flags: none
    000003e8        # made at height 1,000
    00              # made at 0 ms
    8201            # 130 outputs, so one further page
    01              # in one block
      01            #   block number 1
      000003e8      #   height 1,000
      01            #   subtree 0, on the longest chain
    01              # further page 1: one open slot,
      01            #   which is claimed too,
      01            #   and a spender is mined,
      000003e9      #   at height 1,001
    00*127          # slots 0 to 126: unspent
    05 000003ea     # slot 127: settled, spender mined at height 1,002
    0b              # body of 11 bytes:
      00            #   flags: none
      00000001      #   version 1
      00000000      #   lock time 0
      00            #   size 0
      00            #   no inputs
    000100*128      # outputs 0 to 127: no flags, value 1, no script
";
const FURTHER_PAGE: &str = "
    01              # format version
    02              # two slots
    05 000003e9     # slot 128: settled, spender mined at height 1,001
    03              # slot 129: spent, spender not mined
      c1*32         #   spender
      05            #   its input 5
    000100*2        # outputs 128 and 129: no flags, value 1, no script
";

fn record(head: TxHead, body: TxBody, outputs: Vec<Option<Output>>, slots: Vec<Slot>) -> TxRecord {
    let head = TxHead { output_count: slots.len() as u32, ..head };
    TxRecord { txid: TxId([0xee; 32]), head, body, outputs, slots }
}

fn small() -> TxRecord {
    let head = TxHead {
        created_height: Height(100),
        created_at: 1_231_006_505_000,
        first_unmined: Some(Height(100)),
        ..TxHead::default()
    };
    let inputs = vec![Input::of(OutPoint::new(TxId([0x11; 32]), 1))];
    let body = TxBody { version: 2, locktime: 0, fee: Some(300), size: 225, inputs };
    let outputs = vec![Some(Output::new(5_000_000_000, hex("51ac"))), None];
    record(head, body, outputs, vec![Slot::Unspent, Slot::Unspendable])
}

fn full() -> TxRecord {
    let head = TxHead {
        coinbase: true,
        locked: true,
        creating: true,
        external: Some(External::Tx),
        created_height: Height(100),
        created_at: 0,
        first_unmined: Some(Height(101)),
        conflicting_since: Some(Height(102)),
        preserve_until: Some(Height(103)),
        spending_height: Some(Height(104)),
        blocks: Blocks::from_vec(vec![
            MinedIn { block_id: 7, height: Height(105), subtree: 0, on_longest_chain: false },
            MinedIn { block_id: 300, height: Height(106), subtree: u32::MAX - 1, on_longest_chain: false },
        ]),
        conflicting_children: vec![TxId([0xc2; 32])],
        reassignments: vec![Reassignment {
            vout: 0,
            old: UtxoHash([0xa1; 32]),
            new: UtxoHash([0xa2; 32]),
            at: Height(107),
            spendable_from: Height(1107),
        }],
        output_count: 1,
    };
    let slot = Slot::spent(Spender::new(TxId([0xc1; 32]), 0), Some(Height(108)));
    record(head, bodies()[0].0.clone(), vec![Some(Output::new(1, Bytes::new()))], vec![slot])
}

fn long() -> TxRecord {
    let block = MinedIn { block_id: 1, height: Height(1000), subtree: 0, on_longest_chain: true };
    let head = TxHead { created_height: Height(1000), blocks: [block].into(), ..TxHead::default() };
    let mut slots = vec![Slot::Unspent; 130];
    slots[127] = Slot::Settled { child_mined_at: Height(1002) };
    slots[128] = Slot::Settled { child_mined_at: Height(1001) };
    slots[129] = Slot::spent(Spender::new(TxId([0xc1; 32]), 5), None);
    record(head, bodies()[0].0.clone(), vec![Some(Output::new(1, Bytes::new())); 130], slots)
}

#[test]
fn records_are_written_as_ever() {
    for (record, first_golden, further_goldens) in [
        (small(), FIRST_PAGE_SMALL, vec![]),
        (full(), FIRST_PAGE_FULL, vec![]),
        (long(), FIRST_PAGE_LONG, vec![FURTHER_PAGE]),
    ] {
        let (first, further) = record.to_pages();
        check(first_golden, &first, |first| first.bytes().to_vec(), |bytes| Ok(FirstPage::new(&bytes)));
        // Written again by a change, a page is the same too.
        let header = first.header().unwrap();
        assert_eq!(first.with_header(&header, &mut Scratch::default()), first);
        assert_eq!(further.len(), further_goldens.len());
        for (page, golden) in further.iter().zip(further_goldens) {
            check(golden, page, FurtherPage::encode, FurtherPage::decode);
        }
        assert_eq!(TxRecord::assemble(record.txid, &first, &further).as_ref(), Ok(&record));
    }
}

#[test]
fn the_worked_example_in_the_documentation_is_right() {
    let page = std::fs::read_to_string(repository().join("docs/formats.md")).unwrap();
    let (_, rest) = page.split_once("```hex\n").expect("docs/formats.md has a block of annotated bytes");
    let (example, _) = rest.split_once("```").expect("the block ends");
    assert_eq!(show(&hex(example)), show(&hex(FIRST_PAGE_SMALL)), "docs/formats.md shows other bytes");
}

/// Every flag of the record on its own, so that two that swapped their bits are noticed.
#[test]
fn every_flag_has_its_bit() {
    let plain = TxHead::default;
    let height = Some(Height(1));
    let reassignments = full().head.reassignments;
    let heads = [
        (0x0000, plain()),
        (0x0001, TxHead { coinbase: true, ..plain() }),
        (0x0002, TxHead { locked: true, ..plain() }),
        (0x0004, TxHead { creating: true, ..plain() }),
        (0x0008, TxHead { first_unmined: height, ..plain() }),
        (0x0010, TxHead { conflicting_since: height, ..plain() }),
        (0x0020, TxHead { preserve_until: height, ..plain() }),
        (0x0040, TxHead { spending_height: height, ..plain() }),
        (0x0080, TxHead { external: Some(External::Tx), ..plain() }),
        (0x0100, TxHead { external: Some(External::Outputs), ..plain() }),
        (0x0200, TxHead { conflicting_children: vec![TxId([1; 32])], ..plain() }),
        (0x0400, TxHead { reassignments, ..plain() }),
    ];
    for (flags, head) in heads {
        let record = TxRecord { head, ..record(plain(), bodies()[0].0.clone(), vec![], vec![]) };
        assert_eq!(record.to_pages().0.bytes()[1..3], u16::to_be_bytes(flags), "flags of {:?}", record.head);
    }
}

// ------------------------------------------------------------------------------------------------------ blocks and undo

const MARK: &str = "
    00000007    # number 7 in this store
    000003e8    # height 1,000
    b1*32       # hash
";
const UNDO_LEAST: &str = "
    01          # format version
    00000000    # block: number 0 in this store,
    00000000    #   height 0,
    b0*32       #   hash
    00          # no block before it
    00          # created nothing
    00          # mined nothing
    00          # replaced nothing
";
const UNDO_FULL: &str = "
    01                  # format version
    00000007            # block: number 7 in this store,
    000003e8            #   height 1,000,
    b1*32               #   hash
    01                  # there is a block before it:
    00000005            #   number 5,
    000003e7            #   height 999,
    b0*32               #   hash
    02                  # created two transactions
      11*32
      22*32
    01                  # mined one that was known
      33*32
    01                  # replaced one record
      ee*32             #   of this transaction
      1a                #   first page of 26 bytes:
        01              #     format version
        0001            #     flags: coinbase
        00000001        #     made at height 1
        00              #     made at 0 ms
        01              #     one output
        00              #     in no block
        00              #     slot 0: unspent
        0b              #     body of 11 bytes:
          00            #       flags: none
          00000001      #       version 1
          00000000      #       lock time 0
          00            #       size 0
          00            #       no inputs
        00 01 00        #     output 0: no flags, value 1, no script
      00                #   no further pages
";

fn mark(id: u32, height: u32, hash: u8) -> BlockMark {
    BlockMark { id, height: Height(height), hash: BlockHash([hash; 32]) }
}

fn undos() -> [(Undo, &'static str); 2] {
    let head = TxHead { coinbase: true, created_height: Height(1), ..TxHead::default() };
    let replaced =
        record(head, bodies()[0].0.clone(), vec![Some(Output::new(1, Bytes::new()))], vec![Slot::Unspent]);
    let least =
        Undo { block: mark(0, 0, 0xb0), previous: None, created: vec![], mined: vec![], replaced: vec![] };
    let full = Undo {
        block: mark(7, 1000, 0xb1),
        previous: Some(mark(5, 999, 0xb0)),
        created: vec![TxId([0x11; 32]), TxId([0x22; 32])],
        mined: vec![TxId([0x33; 32])],
        replaced: vec![replaced],
    };
    [(least, UNDO_LEAST), (full, UNDO_FULL)]
}

#[test]
fn block_marks_and_undo_records_are_written_as_ever() {
    check(
        MARK,
        &mark(7, 1000, 0xb1),
        |mark| written(|to| mark.encode(to)),
        |bytes| whole(bytes, BlockMark::decode),
    );
    for (undo, golden) in undos() {
        check(golden, &undo, Undo::encode, Undo::decode);
    }
}

// --------------------------------------------------------------------------------------------------------------- hashes

/// The first coin of Bitcoin, by its id as everybody writes it.
const GENESIS_TX: &str = "4a5e1e4baab89f3a32518a88c31bc87f618f76673e2cc77ab2127b7afdeda33b";
const GENESIS_SCRIPT: &str = "
    41                                                                   # 65 bytes follow
    04678afdb0fe5548271967f1a67130b7105cd6a828e03909a67962e0ea1f61deb6   # public key
      49f6bc3f4cef38c4f35504e51ec112de5c384df7ba0b8d578a4c702b6bf11d5f
    ac                                                                   # check the signature
";

#[test]
fn hashes_are_in_display_order() {
    let id: TxId = GENESIS_TX.parse().unwrap();
    assert_eq!(id.as_bytes()[..2], [0x4a, 0x5e]);
    assert_eq!(id.to_string(), GENESIS_TX);
}

/// The expected hashes were made with another program (Python's hashlib) from the described bytes.
#[test]
fn output_and_address_hashes_are_as_ever() {
    let id = GENESIS_TX.parse().unwrap();
    let coin = Output::new(5_000_000_000, hex(GENESIS_SCRIPT));
    let hash = "1707b7506167ab2255615ded1cd755ca56aaa513c81ef76c305174d695de415d";
    assert_eq!(UtxoHash::of(&id, 0, &coin.script, coin.value).to_string(), hash);
    assert_eq!(coin.utxo_hash(OutPoint::new(id, 0)).to_string(), hash);
    assert_eq!(
        UtxoHash::of(&TxId([0x11; 32]), 300, &hex("51"), 0).to_string(),
        "e257ac4b49a7603d6aa85ad35522d35688bb56a9076a7fdc07c79f6af8450342"
    );
    assert_eq!(
        AddressHash::of_script(&coin.script).to_string(),
        "5a19533a5d02676675fb0121110c03c4b0f292fcc9b91f478e6f322f"
    );
}

// ---------------------------------------------------------------------------------------------------------- fuzz seeds

/// What the fuzzer starts from: for each target, named inputs made of the bytes above.
fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let framed = |pages: &[&str]| written(|to| pages.iter().for_each(|page| to.sized(&hex(page))));
    let kind_and_text = |kind: u8, text: &str| [&[kind], text.as_bytes()].concat();
    vec![
        ("slot/spent_unmined", hex(SLOT_SPENT_UNMINED)),
        ("slot/spent_mined", hex(SLOT_SPENT_MINED)),
        ("slot/settled", hex(SLOT_SETTLED)),
        ("output/plain", hex(OUTPUT_PLAIN)),
        ("output/extra_and_credential", hex(OUTPUT_BOTH)),
        ("output/not_kept", hex(OUTPUT_NOT_KEPT)),
        ("body/least", hex(BODY_LEAST)),
        ("body/full", hex(BODY_FULL)),
        ("body/amounts", hex(BODY_AMOUNTS)),
        ("first_page/small", hex(FIRST_PAGE_SMALL)),
        ("first_page/full", hex(FIRST_PAGE_FULL)),
        ("first_page/long", hex(FIRST_PAGE_LONG)),
        ("further_page/further", hex(FURTHER_PAGE)),
        ("tx_file/coinbase", hex(FILE)),
        ("undo/least", hex(UNDO_LEAST)),
        ("undo/full", hex(UNDO_FULL)),
        ("record/small", framed(&[FIRST_PAGE_SMALL])),
        ("record/long", framed(&[FIRST_PAGE_LONG, FURTHER_PAGE])),
        ("hash_text/transaction", kind_and_text(0, GENESIS_TX)),
        ("hash_text/address", kind_and_text(1, &"Ad".repeat(28))),
    ]
}

#[test]
fn fuzzing_starts_from_the_golden_bytes() {
    let folder = repository().join("fuzz/seeds");
    for (name, bytes) in seeds() {
        let path = folder.join(name);
        if std::env::var_os("SAPWOOD_WRITE_SEEDS").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &bytes).unwrap();
        }
        let found = std::fs::read(&path).unwrap_or_default();
        assert_eq!(
            show(&found),
            show(&bytes),
            "fuzz/seeds/{name}: set SAPWOOD_WRITE_SEEDS=1 once to write it anew"
        );
    }
}
