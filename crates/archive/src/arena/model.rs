//! The allocator against a plain model of it: a list of regions.

use std::sync::Arc;

use proptest::{collection::vec, prelude::*};
use sapwood_engine_memory::MemoryEngine;
use sapwood_types::Height;

use super::{BlobPtr, Piece, RegionState, header::FIRST_OFFSET};
use crate::{
    Archive, ArchiveOptions, Classes, Punch, draft::Draft, draft::region, io::MemoryFile, journal::Removal,
    view::ArchiveView,
};

#[derive(Clone, Debug)]
enum Op {
    /// Stores blobs of these lengths in one commit.
    Store(Vec<u16>),
    /// The same, and the commit is given up.
    GiveUp(Vec<u16>),
    /// Removes a blob that is there.
    Remove(usize),
    /// Removes a blob by a pointer that was ever given out.
    RemoveOld(usize),
    Release,
    Enter,
    Leave(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let lengths = || vec(1_u16..20_000, 1..4);
    prop_oneof![
        4 => lengths().prop_map(Op::Store),
        1 => lengths().prop_map(Op::GiveUp),
        4 => any::<usize>().prop_map(Op::Remove),
        1 => any::<usize>().prop_map(Op::RemoveOld),
        3 => Just(Op::Release),
        1 => Just(Op::Enter),
        1 => any::<usize>().prop_map(Op::Leave),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Used,
    Quarantine { by: u64 },
    Free,
}

#[derive(Clone, Copy, Debug)]
struct Region {
    offset: u64,
    class: u32,
    generation: u32,
    state: State,
}

/// The regions in the order of their offsets, searched from the front.
#[derive(Clone, Default)]
struct Model {
    regions: Vec<Region>,
}

impl Model {
    fn end(&self) -> u64 {
        self.regions.last().map_or(FIRST_OFFSET, |last| last.offset + u64::from(last.class))
    }

    fn store(&mut self, len: u32, classes: &Classes) -> Vec<BlobPtr> {
        let mut pointers = Vec::new();
        for (len, class) in classes.split(len) {
            let free = |region: &&mut Region| region.class == class && region.state == State::Free;
            let end = self.end();
            let region = match self.regions.iter_mut().find(free) {
                Some(region) => {
                    region.generation += 1;
                    region.state = State::Used;
                    *region
                }
                None => {
                    self.regions.push(Region { offset: end, class, generation: 1, state: State::Used });
                    self.regions[self.regions.len() - 1]
                }
            };
            pointers.push(BlobPtr { offset: region.offset, len, class, generation: region.generation });
        }
        pointers
    }

    fn remove(&mut self, pointer: &BlobPtr, by: u64) -> bool {
        let own = |region: &&mut Region| {
            (region.offset, region.class, region.generation)
                == (pointer.offset, pointer.class, pointer.generation)
                && region.state == State::Used
        };
        self.regions.iter_mut().find(own).map(|region| region.state = State::Quarantine { by }).is_some()
    }

    /// Frees what was removed by a commit that all readers saw. Entries are freed in order, so one that waits keeps all
    /// later ones.
    fn release(&mut self, oldest_reader: Option<u64>) {
        for region in &mut self.regions {
            match region.state {
                State::Quarantine { by } if oldest_reader.is_none_or(|since| by <= since) => {
                    region.state = State::Free;
                }
                _ => {}
            }
        }
    }

    fn sum(&self, wanted: impl Fn(&State) -> bool) -> u64 {
        self.regions.iter().filter(|region| wanted(&region.state)).map(|region| u64::from(region.class)).sum()
    }
}

fn blob(number: u32, len: u16) -> Vec<u8> {
    number.to_be_bytes().into_iter().cycle().take(len.into()).collect()
}

struct Stored {
    pieces: Vec<Piece>,
    bytes: Vec<u8>,
}

struct Subject {
    archive: Archive,
    model: Model,
    live: Vec<Stored>,
    old: Vec<BlobPtr>,
    stored: u32,
}

impl Subject {
    fn number(&self) -> u64 {
        self.archive.core.writer.lock().number
    }

    fn store(&mut self, lengths: &[u16], is_given_up: bool) {
        let classes = self.archive.options().classes.clone();
        let mut writer = self.archive.core.writer.lock();
        let mut draft = Draft::new(&self.archive.core, &mut writer).unwrap();
        let mut model = self.model.clone();
        for len in lengths {
            self.stored += 1;
            let bytes = blob(self.stored, *len);
            let pieces = draft.store(&bytes).unwrap();
            let pointers: Vec<_> = pieces.iter().map(|piece| piece.pointer).collect();
            assert_eq!(pointers, model.store((*len).into(), &classes));
            if !is_given_up {
                self.old.extend(pointers);
                self.live.push(Stored { pieces, bytes });
            }
        }
        if is_given_up {
            return;
        }
        draft.commit().unwrap();
        self.model = model;
    }

    fn remove(&mut self, pointers: &[BlobPtr]) -> usize {
        let by = self.number() + 1;
        let mut writer = self.archive.core.writer.lock();
        let mut draft = Draft::new(&self.archive.core, &mut writer).unwrap();
        draft.quarantine(Removal::Pruned, Height(1), pointers.iter().copied()).unwrap();
        draft.commit().unwrap();
        pointers.iter().filter(|pointer| self.model.remove(pointer, by)).count()
    }

    fn check(&self, view: &ArchiveView<'_>, live: &[Stored]) {
        for stored in live {
            let read: Vec<u8> = stored.pieces.iter().flat_map(|piece| view.blob(piece).unwrap()).collect();
            assert_eq!(read, stored.bytes);
        }
    }

    fn check_table(&self) {
        let view = self.archive.view().unwrap();
        for known in &self.model.regions {
            let found = region(view.rows(), known.offset).unwrap().unwrap();
            assert_eq!((found.class, found.generation), (known.class, known.generation));
            let is_same = match known.state {
                State::Used => found.state == RegionState::Used,
                State::Quarantine { .. } => found.state == RegionState::Quarantine,
                State::Free => found.is_free(),
            };
            assert!(is_same, "{found:?} instead of {known:?}");
        }
        let bytes = view.state.bytes;
        assert_eq!(bytes.used, self.model.sum(|state| *state == State::Used));
        assert_eq!(bytes.quarantine, self.model.sum(|state| matches!(state, State::Quarantine { .. })));
        assert_eq!(bytes.free, self.model.sum(|state| *state == State::Free));
        assert_eq!(view.state.end, self.model.end());
        // Pointers of earlier owners read nothing.
        for pointer in &self.old {
            let is_owner = self.model.regions.iter().any(|region| {
                (region.offset, region.generation) == (pointer.offset, pointer.generation)
                    && region.state != State::Free
            });
            let read = view.blob(&Piece { pointer: *pointer, checksum: 0 });
            let is_stale = matches!(read, Err(crate::ArchiveError::StalePointer { .. }));
            assert_eq!(is_stale, !is_owner, "{pointer}");
        }
    }
}

/// A reader: its view, the commit it began at, and what it could see.
type Reader<'a> = (ArchiveView<'a>, u64, Vec<Stored>);

fn run(ops: &[Op], punch: Punch) {
    let classes = Classes::try_from(vec![4096, 8192]).unwrap();
    let options = ArchiveOptions { classes, punch, ..ArchiveOptions::default() };
    let archive = Archive::open(Arc::new(MemoryFile::new()), Arc::new(MemoryEngine::new()), options).unwrap();
    let shared = archive.clone();
    let mut subject = Subject { archive, model: Model::default(), live: vec![], old: vec![], stored: 0 };
    let mut readers: Vec<Reader<'_>> = Vec::new();
    for op in ops {
        match op {
            Op::Store(lengths) => subject.store(lengths, false),
            Op::GiveUp(lengths) => subject.store(lengths, true),
            Op::Remove(which) if !subject.live.is_empty() => {
                let which = which % subject.live.len();
                let stored = subject.live.swap_remove(which);
                let pointers: Vec<_> = stored.pieces.iter().map(|piece| piece.pointer).collect();
                assert_eq!(subject.remove(&pointers), pointers.len());
            }
            Op::RemoveOld(which) if !subject.old.is_empty() => {
                let pointer = subject.old[which % subject.old.len()];
                let is_live = |stored: &Stored| stored.pieces.iter().any(|piece| piece.pointer == pointer);
                if !subject.live.iter().any(is_live) {
                    assert_eq!(subject.remove(&[pointer]), 0, "a pointer of an earlier owner frees nothing");
                }
            }
            Op::Release => {
                subject.archive.release().unwrap();
                subject.model.release(readers.iter().map(|(_, since, _)| *since).min());
            }
            Op::Enter => {
                let live = subject.live.iter();
                let live =
                    live.map(|stored| Stored { pieces: stored.pieces.clone(), bytes: stored.bytes.clone() });
                readers.push((shared.view().unwrap(), subject.number(), live.collect()));
            }
            Op::Leave(which) if !readers.is_empty() => {
                let (view, _, live) = readers.swap_remove(which % readers.len());
                subject.check(&view, &live);
            }
            Op::Remove(_) | Op::RemoveOld(_) | Op::Leave(_) => {}
        }
        subject.check_table();
    }
    for (view, _, live) in &readers {
        subject.check(view, live);
    }
    subject.check(&shared.view().unwrap(), &subject.live);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn allocator_agrees_with_a_list_of_regions(ops in vec(op(), 1..80), punches: bool) {
        run(&ops, if punches { Punch::FreeAbove(8192) } else { Punch::Never });
    }
}
