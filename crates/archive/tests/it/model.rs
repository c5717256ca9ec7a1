//! A plain model of an archive, operations on both, and what has to be the same.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{collection::vec, prelude::*};
use sapwood_archive::{
    AppendError, Archive, ArchiveError, ArchiveOptions, ArchiveView, Continuity, Cursor, HeightHold, Lookup,
    NewBlock, Policy, Pruning, Segment, Stop, Tick, Trigger,
};
use sapwood_types::{Height, TxId};

use crate::world::{block_of, hash, options, txid};

/// Of the policy: 64 regions of 16 KiB.
const TARGET: u64 = 1 << 20;
pub(crate) const WINDOW: u32 = 3;
pub(crate) const TOMBSTONES: u64 = 12;

pub(crate) fn model_options() -> ArchiveOptions {
    ArchiveOptions { reorg_window: WINDOW, tombstones: TOMBSTONES, ..options() }
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Appends blocks of these sizes.
    Append(Vec<Size>),
    /// Replaces this many blocks by blocks of these sizes.
    Replace(u32, Vec<Size>),
    /// Prunes but for this many, with this many operations, held from this height below the head on.
    Prune(u32, u64, Option<u32>),
    /// Sets a policy with these: a target, blocks, whether the export holds.
    Policy(bool, Option<u32>, bool),
    Tick,
    /// Queues transactions of the next block, or takes them out.
    Queue(u32, bool),
    /// Acknowledges a block this far below the head.
    Ack(u32),
    Note(u8),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) txs: u32,
    pub(crate) payloads: [usize; 3],
}

fn size() -> impl Strategy<Value = Size> {
    let payload = || prop_oneof![Just(0_usize), 1_usize..5000, 4000_usize..17000, 30_000_usize..80_000];
    (0_u32..4, [payload(), payload(), payload()]).prop_map(|(txs, payloads)| Size { txs, payloads })
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => vec(size(), 1..4).prop_map(Op::Append),
        2 => (1_u32..=WINDOW + 1, vec(size(), 0..4)).prop_map(|(depth, sizes)| Op::Replace(depth, sizes)),
        3 => (0_u32..12, 0_u64..40, prop::option::weighted(0.2, 0_u32..12))
            .prop_map(|(retain, max, hold)| Op::Prune(retain, max, hold)),
        1 => (any::<bool>(), prop::option::of(4_u32..10), prop::bool::weighted(0.2))
            .prop_map(|(target, blocks, hold)| Op::Policy(target, blocks, hold)),
        2 => Just(Op::Tick),
        1 => (0_u32..4, any::<bool>()).prop_map(|(count, queue)| Op::Queue(count, queue)),
        1 => (0_u32..5).prop_map(Op::Ack),
        1 => any::<u8>().prop_map(Op::Note),
    ]
}

/// What the archive should have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) blocks: BTreeMap<u32, NewBlock>,
    pub(crate) boundary: Option<u32>,
    floor: Option<u32>,
    /// Each pruned block: its height, hash and transactions, newest last.
    pruned: Vec<NewBlock>,
    queued: BTreeSet<TxId>,
    policy: Policy,
    ack: Option<u32>,
    note: Option<u8>,
    /// The branch of the next block, so that no two blocks have the same bytes.
    branch: u8,
}

impl Model {
    pub(crate) fn head(&self) -> Option<&NewBlock> {
        self.blocks.last_key_value().map(|(_, block)| block)
    }

    fn next_height(&self) -> u32 {
        self.head().map_or(0, |head| head.height.0 + 1)
    }

    fn make(&mut self, sizes: &[Size], from: u32, mut parent: Option<NewBlock>) -> Vec<NewBlock> {
        let mut blocks = Vec::new();
        for (height, size) in (from..).zip(sizes) {
            self.branch = self.branch.wrapping_add(1);
            let mut block = block_of(height, self.branch, 0, size.txs, size.payloads);
            block.parent = parent.map(|parent| parent.hash).unwrap_or_default();
            blocks.push(block.clone());
            parent = Some(block);
        }
        blocks
    }

    fn add(&mut self, blocks: &[NewBlock]) {
        for block in blocks {
            block.txs.iter().for_each(|txid| _ = self.queued.remove(txid));
            self.blocks.insert(block.height.0, block.clone());
            self.floor = self.floor.max(block.height.0.checked_sub(WINDOW));
        }
    }

    fn prune_to(&mut self, boundary: Option<Height>) {
        let Some(Height(boundary)) = boundary else { return };
        let kept = self.blocks.split_off(&(boundary + 1));
        self.pruned.extend(std::mem::replace(&mut self.blocks, kept).into_values());
        self.boundary = Some(boundary);
    }

    /// The transactions that would be queued for the next block.
    fn next_txs(&self, count: u32) -> Vec<TxId> {
        let branch = self.branch.wrapping_add(1);
        (0..count).map(|index| txid(self.next_height(), branch, index)).collect()
    }

    /// Does an operation on both and compares the answers. Returns the error if the archive failed.
    pub(crate) fn step(&mut self, archive: &Archive, op: &Op) -> Result<(), ArchiveError> {
        match op {
            Op::Append(sizes) => {
                let blocks = self.make(sizes, self.next_height(), self.head().cloned());
                let appended = settle(archive.append(&blocks, Continuity::Strict))?;
                assert_eq!(appended.unwrap().replaced, 0);
                self.add(&blocks);
            }
            Op::Replace(depth, sizes) => self.replace(archive, *depth, sizes)?,
            Op::Prune(retain, max_ops, hold) => {
                let head = self.next_height().saturating_sub(1);
                let keep_from = hold.map(|below| head.saturating_sub(below));
                let hold: Vec<_> =
                    keep_from.iter().map(|from| HeightHold::new("test", Some(Height(*from)))).collect();
                let pruned = archive.prune_blocks(*retain, *max_ops, 0, &hold)?;
                let retained = head.checked_sub(*retain);
                self.check(&pruned, *max_ops);
                if let Some(boundary) = pruned.boundary.filter(|_| pruned.blocks > 0) {
                    assert!(Some(boundary.0) <= retained, "more than {retain} blocks are kept");
                    assert!(keep_from.is_none_or(|from| boundary.0 < from), "held from {keep_from:?} on");
                }
                // What is to be pruned and can be was pruned, or did not fit.
                if pruned.stopped == Stop::Done && !self.blocks.is_empty() {
                    assert!(pruned.boundary.map(|height| height.0) >= retained, "{pruned:?}");
                }
                self.prune_to(pruned.boundary);
            }
            Op::Policy(target, retain_blocks, export_hold) => {
                let policy = Policy {
                    target_bytes: target.then_some(TARGET),
                    retain_blocks: *retain_blocks,
                    export_hold: *export_hold,
                    max_ops_per_tick: 30,
                    ..Policy::default()
                };
                assert_eq!(archive.set_policy(policy, 0, "test")?, self.policy);
                self.policy = policy;
            }
            Op::Tick => match archive.tick(Trigger::Timer, 0, &[])? {
                Tick::Pruned(pruned) => {
                    self.check(&pruned, 30);
                    self.prune_to(pruned.boundary);
                }
                tick => {
                    assert_eq!(tick, Tick::Idle);
                    assert!(!archive.need_prune(0));
                }
            },
            Op::Queue(count, true) => {
                let txs = self.next_txs(*count);
                let new = txs.iter().filter(|txid| !self.queued.contains(*txid)).count();
                assert_eq!(archive.queue(&txs, 0)?, new as u64);
                self.queued.extend(txs);
            }
            Op::Queue(count, false) => {
                let txs = self.next_txs(*count);
                let known = txs.iter().filter(|txid| self.queued.contains(*txid)).count();
                assert_eq!(archive.unqueue(&txs)?, known as u64);
                txs.iter().for_each(|txid| _ = self.queued.remove(txid));
            }
            Op::Ack(below) => {
                let Some(block) = self.next_height().checked_sub(below + 1) else { return Ok(()) };
                self.ack = self.ack.max(Some(block));
                assert_eq!(Some(archive.ack_exported("test", block.into(), 0)?.0), self.ack);
            }
            Op::Note(note) => {
                archive.set_note("test", Some(&[*note]))?;
                self.note = Some(*note);
            }
        }
        Ok(())
    }

    fn replace(&mut self, archive: &Archive, depth: u32, sizes: &[Size]) -> Result<(), ArchiveError> {
        let Some(head) = self.head().map(|head| head.height.0) else { return Ok(()) };
        let Some(fork) = head.checked_sub(depth) else { return Ok(()) };
        let blocks = self.make(sizes, fork + 1, self.blocks.get(&fork).cloned());
        match settle(archive.replace_above(Height(fork), &blocks))? {
            Ok(appended) => {
                assert_eq!(appended.replaced, u64::from(depth));
                self.blocks.split_off(&(fork + 1));
                self.ack = self.ack.min(Some(fork));
                self.add(&blocks);
            }
            Err(AppendError::BelowFloor { floor, .. }) => {
                assert!(fork < floor.0);
                assert!(Some(floor.0) == self.floor || Some(floor.0) == self.boundary.map(|last| last + 1));
            }
            Err(other) => panic!("{other}"),
        }
        Ok(())
    }

    /// What holds of every prune.
    fn check(&self, pruned: &Pruning, max_ops: u64) {
        let before = self.boundary;
        let after = pruned.boundary.map(|height| height.0);
        assert!(after >= before, "the boundary never falls or vanishes");
        assert_eq!(pruned.blocks > 0, after > before, "work raises the boundary");
        let gone = self.blocks.range(..after.map_or(0, |after| after + 1)).count();
        assert_eq!(gone as u64, pruned.blocks);
        if pruned.blocks > 0 {
            assert!(after < self.floor, "{after:?} is not below the floor {:?}", self.floor);
        }
        assert!(pruned.ops <= max_ops || pruned.blocks == 1, "{pruned:?} with {max_ops}");
        if let Stop::Ops { next } = pruned.stopped {
            assert!(pruned.ops + next > max_ops, "the next block would have fitted: {pruned:?}");
        }
    }

    /// Fails unless a view has just what the model has.
    #[track_caller]
    pub(crate) fn assert_same(&self, view: &ArchiveView<'_>) {
        assert_eq!(view.head().map(|head| head.hash), self.head().map(|head| head.hash));
        assert_eq!(view.boundary().map(|height| height.0), self.boundary);
        assert_eq!(view.earliest().map(|height| height.0), self.blocks.keys().next().copied());
        for height in 0..self.next_height() + 2 {
            match (view.block(Height(height)).unwrap(), self.blocks.get(&height)) {
                (Lookup::Found(meta), Some(block)) => {
                    assert_eq!((meta.hash, meta.parent), (block.hash, block.parent));
                    for segment in Segment::ALL {
                        let expected = &block.segments[usize::from(segment.number())];
                        assert_eq!(view.payload(&meta, segment).unwrap(), expected, "{segment} of {height}");
                    }
                    assert_eq!(view.tx_ids(block.height).unwrap(), Lookup::Found(block.txs.clone()));
                    assert_eq!(view.block_by_hash(&block.hash).unwrap(), Lookup::Found(meta));
                    for (index, txid) in block.txs.iter().enumerate() {
                        let found = view.tx(txid).unwrap().found().unwrap();
                        assert_eq!((found.height.0, found.index as usize), (height, index));
                    }
                }
                (Lookup::Pruned(pruned), None) => {
                    assert!(Some(height) <= self.boundary, "{height} is not pruned");
                    assert_eq!(
                        (pruned.boundary.0, pruned.earliest),
                        (self.boundary.unwrap(), view.earliest())
                    );
                }
                (Lookup::NotFound, None) => assert!(Some(height) > self.boundary, "{height} is pruned"),
                (found, expected) => panic!("block {height} is {found:?} instead of {expected:?}"),
            }
        }
        self.assert_same_tombstones(view);
        let queued = |txid| matches!(view.tx(txid).unwrap(), Lookup::Pending);
        assert!(self.queued.iter().all(queued));
    }

    fn assert_same_tombstones(&self, view: &ArchiveView<'_>) {
        let entries = |block: &NewBlock| 1 + block.txs.len() as u64;
        let all: u64 = self.pruned.iter().map(entries).sum();
        let mut newer = 0;
        for block in self.pruned.iter().rev() {
            newer += entries(block);
            for found in [
                view.block_by_hash(&block.hash)
                    .unwrap()
                    .and_then(|_| Ok::<_, ()>(Lookup::Found(())))
                    .unwrap(),
                block
                    .txs
                    .first()
                    .map_or(Lookup::PossiblyPruned(crate::world::pruned_from(0, 0, 0)), |txid| {
                        view.tx(txid).unwrap().and_then(|_| Ok::<_, ()>(Lookup::Found(()))).unwrap()
                    }),
            ] {
                match found {
                    Lookup::Pruned(_) => {}
                    Lookup::PossiblyPruned(_) => {}
                    other => panic!("pruned block {} is {other:?}", block.height),
                }
            }
            if newer <= TOMBSTONES {
                let found = view.block_by_hash(&block.hash).unwrap();
                assert!(
                    matches!(found, Lookup::Pruned(_)),
                    "block {} is remembered: {found:?}",
                    block.height
                );
            }
        }
        let unknown = view.block_by_hash(&hash(u32::MAX, 0)).unwrap();
        match unknown {
            Lookup::NotFound => {
                assert!(all <= TOMBSTONES + self.pruned.iter().map(entries).max().unwrap_or(0))
            }
            Lookup::PossiblyPruned(_) => assert!(all > TOMBSTONES),
            other => panic!("an unknown block is {other:?}"),
        }
    }

    /// Whether this could be the model of an archive: all that an operation can change is the same.
    pub(crate) fn looks_like(&self, archive: &Archive) -> bool {
        let view = archive.view().unwrap();
        let acks: Vec<_> =
            archive.consumers().unwrap().into_iter().map(|consumer| consumer.acknowledged).collect();
        view.head().map(|head| head.hash) == self.head().map(|head| head.hash)
            && view.boundary().map(|height| height.0) == self.boundary
            && archive.policy() == self.policy
            && archive.note("test").unwrap().map(|note| note[0]) == self.note
            && archive.status(0).unwrap().totals.queued == self.queued.len() as u64
            && acks == Vec::from_iter(self.ack.map(|ack| Some(Height(ack))))
    }

    /// Compares what is outside of views, too.
    #[track_caller]
    pub(crate) fn assert_same_archive(&self, archive: &Archive) {
        self.assert_same(&archive.view().unwrap());
        assert_eq!(archive.policy(), self.policy);
        assert_eq!(archive.note("test").unwrap().map(|note| note[0]), self.note);
        let acks: Vec<_> =
            archive.consumers().unwrap().into_iter().map(|consumer| consumer.acknowledged).collect();
        assert!(acks.is_empty() || acks == [self.ack.map(Height)], "{acks:?} instead of {:?}", self.ack);
    }

    /// Pulls everything and compares it.
    pub(crate) fn assert_exports(&self, archive: &Archive, max_bytes: u32) {
        let mut cursor = None;
        let mut pulled: BTreeMap<u64, [Vec<u8>; 3]> = BTreeMap::new();
        loop {
            let exported = archive.export_blocks(cursor, max_bytes).unwrap();
            if exported.chunks.is_empty() {
                break;
            }
            let mut place: Cursor = cursor.unwrap_or(Cursor::at(exported.chunks[0].block));
            let mut bytes = 0;
            for (number, chunk) in exported.chunks.iter().enumerate() {
                let begin = Cursor { block: chunk.block, segment: chunk.segment, byte_offset: chunk.start };
                if number == 0 {
                    assert_eq!(begin, place, "the first chunk begins at the cursor");
                } else {
                    assert!(!chunk.bytes.is_empty(), "only the first chunk can be empty");
                    assert_eq!(chunk.block, place.block);
                    assert!(begin == place || (chunk.start == 0 && chunk.segment > place.segment));
                }
                let block = &self.blocks[&(chunk.block as u32)];
                assert_eq!(chunk.payload_len as usize, block.segments[usize::from(chunk.segment)].len());
                bytes += chunk.bytes.len();
                let parts = pulled.entry(chunk.block).or_default();
                assert_eq!(parts[usize::from(chunk.segment)].len(), chunk.start as usize);
                parts[usize::from(chunk.segment)].extend_from_slice(&chunk.bytes);
                place = Cursor { byte_offset: chunk.start + chunk.bytes.len() as u32, ..begin };
            }
            assert!(bytes <= max_bytes as usize);
            let next = exported.next_cursor.unwrap();
            assert!(next > cursor.unwrap_or(Cursor::at(0)) || cursor.is_none(), "it gets further");
            cursor = Some(next);
        }
        let expected: BTreeMap<u64, [Vec<u8>; 3]> = self
            .blocks
            .iter()
            .map(|(height, block)| {
                (u64::from(*height), block.segments.clone().map(|payload| payload.to_vec()))
            })
            .collect();
        assert_eq!(pulled, expected);
    }
}

/// Takes errors of the archive apart from those of the blocks.
fn settle<T>(result: Result<T, AppendError>) -> Result<Result<T, AppendError>, ArchiveError> {
    match result {
        Err(AppendError::Archive(error)) => Err(error),
        result => Ok(result),
    }
}
