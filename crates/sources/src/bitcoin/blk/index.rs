//! The headers of all blocks in the files, and which chain of them is the best.
//!
//! # Correctness
//! The best chain is the one with the most work; among equals the one that was complete first, as in Bitcoin Core. A block is
//! connected as soon as its parent is, whatever order they come in. What has no known parent stays in
//! [`waiting`](HeaderIndex::orphans), where it can be seen.

use std::collections::{HashMap, HashSet, VecDeque};

use bitcoin::block::Header;
use sapwood_types::{BlockHash, Height};

use crate::{
    ChainPoint, SourceHeader,
    bitcoin::{network::block_hash, work::ChainWork},
};

/// Where a block lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// The number of the file, in the order in which the files were given.
    pub file: u32,
    /// The first byte of the block.
    pub offset: u64,
    /// How long its record is.
    pub length: u32,
}

/// A block whose parent is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// The block.
    pub hash: BlockHash,
    /// The parent it names.
    pub parent: BlockHash,
    /// Where it lies.
    pub location: Location,
}

#[derive(Debug)]
struct Entry {
    hash: BlockHash,
    parent: BlockHash,
    time: u32,
    /// None for the root, unless it was found in a file.
    location: Option<Location>,
    own_work: ChainWork,
    connected: Option<Connected>,
}

#[derive(Clone, Copy, Debug)]
struct Connected {
    height: Height,
    /// The work of the whole chain up to here.
    work: ChainWork,
    /// It or an ancestor was rejected.
    bad: bool,
}

/// The headers of all blocks.
#[derive(Debug)]
pub(crate) struct HeaderIndex {
    entries: Vec<Entry>,
    by_hash: HashMap<BlockHash, usize>,
    /// Further copies of blocks. A first copy may be damaged.
    copies: HashMap<BlockHash, Vec<Location>>,
    waiting: HashMap<BlockHash, Vec<usize>>,
    /// Connected blocks in the order in which they were: parents before children.
    order: Vec<usize>,
    rejected: HashSet<BlockHash>,
    /// The best chain, from the root up.
    best: Vec<usize>,
    root: ChainPoint,
}

impl HeaderIndex {
    /// An index that knows one block, on which all others are built.
    pub(crate) fn new(root: ChainPoint) -> Self {
        let entry = Entry {
            hash: root.hash,
            parent: BlockHash::default(),
            time: 0,
            location: None,
            own_work: ChainWork::default(),
            connected: Some(Connected { height: root.height, work: ChainWork::default(), bad: false }),
        };
        HeaderIndex {
            entries: vec![entry],
            by_hash: HashMap::from([(root.hash, 0)]),
            copies: HashMap::new(),
            waiting: HashMap::new(),
            order: vec![0],
            rejected: HashSet::new(),
            best: vec![0],
            root,
        }
    }

    /// Notes a block.
    pub(crate) fn insert(&mut self, header: &Header, location: Location) {
        let hash = block_hash(header.block_hash());
        let parent = block_hash(header.prev_blockhash);
        if let Some(known) = self.by_hash.get(&hash).and_then(|id| self.entries.get_mut(*id)) {
            match known.location {
                Some(_) => self.copies.entry(hash).or_default().push(location),
                None => {
                    known.location = Some(location);
                    known.parent = parent;
                    known.time = header.time;
                }
            }
            return;
        }
        let id = self.entries.len();
        let own_work = ChainWork::of(header);
        let location = Some(location);
        self.entries.push(Entry { hash, parent, time: header.time, location, own_work, connected: None });
        self.by_hash.insert(hash, id);
        match self.connected(&parent) {
            Some(_) => self.connect(id),
            None => self.waiting.entry(parent).or_default().push(id),
        }
    }

    /// Connects a block whose parent is connected, and all that waited for it.
    fn connect(&mut self, id: usize) {
        let mut next = VecDeque::from([id]);
        while let Some(id) = next.pop_front() {
            let Some(entry) = self.entries.get(id) else { continue };
            let Some(parent) = self.connected(&entry.parent) else { continue };
            let hash = entry.hash;
            let connected = Connected {
                height: parent.height.next(),
                work: parent.work.plus(entry.own_work),
                bad: parent.bad || self.rejected.contains(&hash),
            };
            if let Some(entry) = self.entries.get_mut(id) {
                entry.connected = Some(connected);
            }
            self.order.push(id);
            if !connected.bad && connected.work > self.best_work() {
                self.choose(id);
            }
            next.extend(self.waiting.remove(&hash).unwrap_or_default());
        }
    }

    fn connected(&self, hash: &BlockHash) -> Option<Connected> {
        self.entry(hash)?.connected
    }

    fn entry(&self, hash: &BlockHash) -> Option<&Entry> {
        self.entries.get(*self.by_hash.get(hash)?)
    }

    fn best_work(&self) -> ChainWork {
        let tip = self.best.last().and_then(|id| self.entries.get(*id)?.connected);
        tip.map(|tip| tip.work).unwrap_or_default()
    }

    /// Makes a connected block the tip of the best chain.
    fn choose(&mut self, tip: usize) {
        let mut branch = Vec::new();
        let mut id = tip;
        let fork = loop {
            let Some((entry, at)) = self.entries.get(id).and_then(|entry| Some((entry, entry.connected?)))
            else {
                return;
            };
            let place = at.height.above(self.root.height) as usize;
            if self.best.get(place) == Some(&id) {
                break place;
            }
            branch.push(id);
            let Some(parent) = self.by_hash.get(&entry.parent) else { return };
            id = *parent;
        };
        self.best.truncate(fork + 1);
        self.best.extend(branch.into_iter().rev());
    }

    /// Takes a block and its descendants out of consideration for the best chain.
    pub(crate) fn reject(&mut self, hash: &BlockHash) {
        self.rejected.insert(*hash);
        self.best.truncate(1);
        for place in 0..self.order.len() {
            let Some(id) = self.order.get(place).copied() else { break };
            let Some(entry) = self.entries.get(id) else { continue };
            let bad = self.connected(&entry.parent).is_some_and(|parent| parent.bad)
                || self.rejected.contains(&entry.hash) && id != 0;
            let Some(connected) = self.entries.get_mut(id).and_then(|entry| entry.connected.as_mut()) else {
                continue;
            };
            connected.bad = bad;
            let work = connected.work;
            if !bad && work > self.best_work() {
                self.choose(id);
            }
        }
    }

    /// The block all others are built on.
    pub(crate) fn root(&self) -> ChainPoint {
        self.root
    }

    /// The last block of the best chain.
    pub(crate) fn tip(&self) -> ChainPoint {
        let height = self.root.height.plus(self.best.len().saturating_sub(1) as u32);
        ChainPoint::new(height, self.hash_at(height).unwrap_or(self.root.hash))
    }

    /// The block of the best chain at a height.
    pub(crate) fn hash_at(&self, height: Height) -> Option<BlockHash> {
        let place = height.0.checked_sub(self.root.height.0)?;
        Some(self.entries.get(*self.best.get(place as usize)?)?.hash)
    }

    /// What is known of a connected block. Of a root that was in no file only its place is.
    pub(crate) fn header(&self, hash: &BlockHash) -> Option<SourceHeader> {
        let entry = self.entry(hash)?;
        let height = entry.connected?.height;
        let on_best_chain = self.hash_at(height) == Some(*hash);
        Some(SourceHeader {
            height,
            hash: *hash,
            parent: entry.parent,
            time: entry.time.into(),
            on_best_chain,
        })
    }

    /// Every place where a block lies, the first found first.
    pub(crate) fn locations(&self, hash: &BlockHash) -> Vec<Location> {
        let first = self.entry(hash).and_then(|entry| entry.location);
        first.into_iter().chain(self.copies.get(hash).into_iter().flatten().copied()).collect()
    }

    /// How many blocks were found, copies not counted.
    pub(crate) fn found(&self) -> usize {
        self.entries.len() - usize::from(self.entries.first().is_some_and(|root| root.location.is_none()))
    }

    /// How many blocks are connected but not on the best chain.
    pub(crate) fn beside(&self) -> usize {
        self.order.len() - self.best.len()
    }

    /// How many further copies of blocks were found.
    pub(crate) fn copies(&self) -> usize {
        self.copies.values().map(Vec::len).sum()
    }

    /// How many blocks are not connected, and the first of those that name a parent that is not there at all.
    pub(crate) fn orphans(&self, examples: usize) -> (usize, Vec<Orphan>) {
        let count = self.entries.len() - self.order.len();
        let mut roots: Vec<usize> = (self.waiting.iter())
            .filter(|(parent, _)| !self.by_hash.contains_key(*parent))
            .flat_map(|(_, waiting)| waiting.iter().copied())
            .collect();
        roots.sort_unstable();
        let orphan = |id: usize| {
            let entry = self.entries.get(id)?;
            Some(Orphan { hash: entry.hash, parent: entry.parent, location: entry.location? })
        };
        (count, roots.into_iter().filter_map(orphan).take(examples).collect())
    }
}
