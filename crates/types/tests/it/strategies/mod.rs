//! Arbitrary values of everything that is written as bytes.
//!
//! Only values that the formats can hold: a record's slots, outputs and head agree with each other. What they refuse is
//! the matter of `hostile.rs`.

use std::ops::RangeInclusive;

use bytes::Bytes;
use proptest::{collection::vec, option, prelude::*};
use sapwood_types::{
    AddressHash, BlockHash, BlockMark, Blocks, External, Height, Input, MinedIn, OutPoint, Output,
    PrevOutput, Reassignment, Slot, Spender, Tx, TxBody, TxHead, TxId, TxRecord, Undo, UtxoHash,
};

/// Numbers of all magnitudes, so that every length of a variable-length integer comes up.
fn number() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0..64u32).prop_map(|(value, shift)| value >> shift)
}

fn small_number() -> impl Strategy<Value = u32> {
    (any::<u32>(), 0..32u32).prop_map(|(value, shift)| value >> shift)
}

fn height() -> impl Strategy<Value = Height> {
    prop_oneof![8 => small_number(), 1 => Just(0), 1 => Just(u32::MAX)].prop_map(Height)
}

fn text() -> impl Strategy<Value = Bytes> {
    prop_oneof![vec(any::<u8>(), 0..4), vec(any::<u8>(), 0..200)].prop_map(Bytes::from)
}

pub(crate) fn txid() -> impl Strategy<Value = TxId> {
    any::<[u8; 32]>().prop_map(TxId)
}

/// A state that an output which can be spent can be in.
fn spendable_slot() -> impl Strategy<Value = Slot> {
    let spender = (txid(), small_number()).prop_map(|(child, vin)| Spender { child, vin });
    prop_oneof![
        3 => Just(Slot::Unspent),
        1 => Just(Slot::Frozen),
        3 => (spender, option::of(height())).prop_map(|(spender, mined)| Slot::spent(spender, mined)),
        1 => height().prop_map(|child_mined_at| Slot::Settled { child_mined_at }),
    ]
}

pub(crate) fn slot() -> impl Strategy<Value = Slot> {
    prop_oneof![4 => spendable_slot(), 1 => Just(Slot::Unspendable)]
}

/// An output that can be spent.
pub(crate) fn kept_output() -> impl Strategy<Value = Output> {
    let credential = option::of(any::<[u8; 28]>().prop_map(AddressHash));
    let extra = prop_oneof![Just(Bytes::new()), text()];
    (number(), text(), extra, credential).prop_map(|(value, script, extra, credential)| Output {
        value,
        script,
        extra,
        credential,
        spendable: true,
    })
}

fn output() -> impl Strategy<Value = Output> {
    prop_oneof![6 => kept_output(), 1 => text().prop_map(Output::data)]
}

fn input() -> impl Strategy<Value = Input> {
    let outpoint = (txid(), small_number()).prop_map(|(txid, vout)| OutPoint { txid, vout });
    let previous = (number(), option::of(text())).prop_map(|(value, script)| PrevOutput { value, script });
    (outpoint, option::of(previous)).prop_map(|(outpoint, previous)| Input { outpoint, previous })
}

pub(crate) fn body() -> impl Strategy<Value = TxBody> {
    (any::<u32>(), any::<u32>(), option::of(number()), small_number(), vec(input(), 0..4))
        .prop_map(|(version, locktime, fee, size, inputs)| TxBody { version, locktime, fee, size, inputs })
}

/// A transaction with so many outputs.
pub(crate) fn tx(outputs: RangeInclusive<usize>) -> impl Strategy<Value = Tx> {
    (txid(), body(), any::<bool>(), vec(output(), outputs)).prop_map(|(txid, body, coinbase, outputs)| Tx {
        txid,
        version: body.version,
        locktime: body.locktime,
        fee: body.fee,
        size: body.size,
        coinbase,
        inputs: body.inputs,
        outputs,
        raw: Default::default(),
    })
}

/// The blocks of a record; no two with one number.
fn blocks() -> impl Strategy<Value = Blocks> {
    vec((small_number(), height(), small_number(), any::<bool>()), 0..4).prop_map(|entries| {
        let mut blocks = Blocks::new();
        for (block_id, height, subtree, on_longest_chain) in entries {
            if blocks.iter().all(|block| block.block_id != block_id) {
                blocks.push(MinedIn { block_id, height, subtree, on_longest_chain });
            }
        }
        blocks
    })
}

/// Reassignments of some of so many outputs.
fn reassignments(output_count: u32) -> impl Strategy<Value = Vec<Reassignment>> {
    let entry = (any::<u32>(), any::<[[u8; 32]; 2]>(), height(), height());
    vec(entry, 0..3).prop_map(move |entries| {
        let entries = entries.into_iter().filter(|_| output_count > 0);
        let entries = entries.map(|(number, [old, new], at, spendable_from)| Reassignment {
            vout: number % output_count,
            old: UtxoHash(old),
            new: UtxoHash(new),
            at,
            spendable_from,
        });
        entries.collect()
    })
}

/// The head of a transaction with so many outputs.
pub(crate) fn head(output_count: u32) -> impl Strategy<Value = TxHead> {
    let external = prop_oneof![Just(None), Just(Some(External::Tx)), Just(Some(External::Outputs))];
    let heights = prop::array::uniform4(option::of(height()));
    (
        any::<[bool; 3]>(),
        external,
        (height(), number()),
        heights,
        blocks(),
        vec(txid(), 0..3),
        reassignments(output_count),
    )
        .prop_map(
            move |(flags, external, created, heights, blocks, conflicting_children, reassignments)| {
                let [coinbase, locked, creating] = flags;
                let (created_height, created_at) = created;
                let [first_unmined, conflicting_since, preserve_until, spending_height] = heights;
                let mut blocks = blocks;
                if conflicting_since.is_some() {
                    blocks.iter_mut().for_each(|block| block.on_longest_chain = false);
                }
                TxHead {
                    coinbase,
                    locked,
                    creating,
                    external,
                    created_height,
                    created_at,
                    first_unmined,
                    conflicting_since,
                    preserve_until,
                    spending_height,
                    blocks,
                    conflicting_children,
                    reassignments,
                    output_count,
                }
            },
        )
}

/// A record with so many outputs, in any state.
pub(crate) fn record(outputs: RangeInclusive<usize>) -> impl Strategy<Value = TxRecord> {
    let place = prop_oneof![
        6 => (kept_output(), spendable_slot()).prop_map(|(output, slot)| (Some(output), slot)),
        1 => Just((None, Slot::Unspendable)),
    ];
    vec(place, outputs).prop_flat_map(|places| {
        (txid(), head(places.len() as u32), body(), Just(places)).prop_map(|(txid, head, body, places)| {
            let (outputs, slots) = places.into_iter().unzip();
            TxRecord { txid, head, body, outputs, slots }
        })
    })
}

/// Few outputs most of the time, and now and then enough for a second page.
pub(crate) fn some_record() -> impl Strategy<Value = TxRecord> {
    // Boxed: the state of a strategy is as large as all it is made of, and those of several formats are on one stack.
    prop_oneof![9 => record(0..=4), 1 => record(120..=140)].boxed()
}

pub(crate) fn mark() -> impl Strategy<Value = BlockMark> {
    (any::<u32>(), height(), any::<[u8; 32]>()).prop_map(|(id, height, hash)| BlockMark {
        id,
        height,
        hash: BlockHash(hash),
    })
}

pub(crate) fn undo() -> impl Strategy<Value = Undo> {
    (mark(), option::of(mark()), vec(txid(), 0..4), vec(txid(), 0..4), vec(some_record(), 0..2)).prop_map(
        |(block, previous, created, mined, replaced)| Undo { block, previous, created, mined, replaced },
    )
}
