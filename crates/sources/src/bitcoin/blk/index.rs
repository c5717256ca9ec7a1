//! The headers of all blocks in the files, and which chain of them is the best.
//!
//! # Correctness
//! The best chain is the one with the most work; among equals the one that was complete first, as in Bitcoin Core. A block is
//! connected as soon as its parent is, whatever order they come in. What has no known parent stays in
//! [`waiting`](HeaderIndex::orphans), where it can be seen. A header stays known when the file with its block is deleted, because what a
//! pruning node deletes is below what it keeps; but no chain ends with a block that is in no file.

use std::collections::{HashMap, HashSet, VecDeque};

use bitcoin::block::Header;
use sapwood_types::{BlockHash, Height};

use crate::{
    ChainPoint, Gap, RejectedBranch, SourceHeader, SourceView,
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
    /// `None` for the root, unless it was found in a file.
    location: Option<Location>,
    /// Its block can be had: it was not in a file that was deleted.
    present: bool,
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
    /// The connected block with the most work that is in a file, rejected or not; of equals the first.
    heaviest: usize,
    /// The greatest height of a connected block that is in a file.
    highest: Height,
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
            present: true,
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
            heaviest: 0,
            highest: root.height,
            root,
        }
    }

    /// Notes a block.
    pub(crate) fn insert(&mut self, header: &Header, location: Location) {
        let hash = block_hash(header.block_hash());
        let parent = block_hash(header.prev_blockhash);
        if let Some(id) = self.by_hash.get(&hash).copied() {
            self.insert_known(id, header, location);
            return;
        }
        let id = self.entries.len();
        let own_work = ChainWork::of(header);
        let location = Some(location);
        let (time, present, connected) = (header.time, true, None);
        self.entries.push(Entry { hash, parent, time, location, present, own_work, connected });
        self.by_hash.insert(hash, id);
        match self.connected(&parent) {
            Some(_) => self.connect(id),
            None => self.waiting.entry(parent).or_default().push(id),
        }
    }

    /// Notes where else a block lies.
    fn insert_known(&mut self, id: usize, header: &Header, location: Location) {
        let Some(known) = self.entries.get_mut(id) else { return };
        let hash = known.hash;
        match known.location {
            None => {
                known.location = Some(location);
                known.parent = block_hash(header.prev_blockhash);
                known.time = header.time;
            }
            // The file is there again, or another has it.
            Some(_) if !known.present => {
                (known.location, known.present) = (Some(location), true);
                if let Some(connected) = known.connected {
                    self.consider(id, connected);
                }
            }
            Some(_) => {
                // A file that was damaged is read again.
                if self.locations(&hash).contains(&location) {
                    return;
                }
                self.copies.entry(hash).or_default().push(location);
                // The copy that was rejected may have been damaged.
                if self.rejected.remove(&hash) {
                    self.choose_again();
                }
            }
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
            self.consider(id, connected);
            next.extend(self.waiting.remove(&hash).unwrap_or_default());
        }
    }

    /// Makes a connected block the tip if it is better than the one there is, and its block is in a file.
    fn consider(&mut self, id: usize, connected: Connected) {
        if self.entries.get(id).is_none_or(|entry| !entry.present) {
            return;
        }
        self.highest = self.highest.max(connected.height);
        if connected.work > self.work(self.heaviest) {
            self.heaviest = id;
        }
        if !connected.bad && connected.work > self.best_work() {
            self.choose(id);
        }
    }

    fn connected(&self, hash: &BlockHash) -> Option<Connected> {
        self.entry(hash)?.connected
    }

    fn entry(&self, hash: &BlockHash) -> Option<&Entry> {
        self.entries.get(*self.by_hash.get(hash)?)
    }

    /// The work of the whole chain up to a block.
    fn work(&self, id: usize) -> ChainWork {
        let connected = self.entries.get(id).and_then(|entry| entry.connected);
        connected.map(|connected| connected.work).unwrap_or_default()
    }

    fn best_work(&self) -> ChainWork {
        self.best.last().map(|tip| self.work(*tip)).unwrap_or_default()
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
        self.choose_again();
    }

    /// Takes a block into consideration again that was rejected because its bytes were damaged.
    pub(crate) fn accept_again(&mut self, hash: &BlockHash) {
        if self.rejected.remove(hash) {
            self.choose_again();
        }
    }

    /// Forgets what lies in a file that was deleted or replaced. Headers stay known.
    pub(crate) fn forget_file(&mut self, file: u32) {
        self.copies.retain(|_, copies| {
            copies.retain(|copy| copy.file != file);
            !copies.is_empty()
        });
        for entry in &mut self.entries {
            if entry.location.is_some_and(|location| location.file == file) {
                match self.copies.get_mut(&entry.hash) {
                    Some(copies) => entry.location = Some(copies.remove(0)),
                    None => entry.present = false,
                }
            }
        }
        self.copies.retain(|_, copies| !copies.is_empty());
        self.choose_again();
    }

    /// Finds out again which blocks descend from rejected ones, and which chain of the others is the best.
    fn choose_again(&mut self) {
        self.best.truncate(1);
        (self.heaviest, self.highest) = (0, self.root.height);
        for place in 0..self.order.len() {
            let Some(id) = self.order.get(place).copied() else { break };
            let Some(entry) = self.entries.get(id) else { continue };
            let bad = self.connected(&entry.parent).is_some_and(|parent| parent.bad)
                || self.rejected.contains(&entry.hash) && id != 0;
            let Some(connected) = self.entries.get_mut(id).and_then(|entry| entry.connected.as_mut()) else {
                continue;
            };
            connected.bad = bad;
            let connected = *connected;
            self.consider(id, connected);
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

    /// What there is, whether or not it can be applied.
    pub(crate) fn survey(&self) -> SourceView {
        let tip = self.tip();
        let (rejected, gap) = (self.rejected_branch(), self.gap());
        // The missing block itself is at least one.
        let behind_gap = gap.as_ref().map(|gap| tip.height.plus(gap.waiting.saturating_add(1)));
        let best_height = Some(behind_gap.unwrap_or(self.highest).max(self.highest));
        SourceView { tip: Some(tip), best_height, rejected, gap }
    }

    /// The rejected block below the heaviest chain, if that has more work than the best one.
    fn rejected_branch(&self) -> Option<RejectedBranch> {
        if self.work(self.heaviest) <= self.best_work() {
            return None;
        }
        let top = self.entries.get(self.heaviest)?.connected?.height;
        let mut entry = self.entries.get(self.heaviest)?;
        // Down to the lowest block that is bad: its parent is not.
        loop {
            let parent = self.entry(&entry.parent)?;
            if !parent.connected?.bad {
                let height = entry.connected?.height;
                let block = ChainPoint::new(height, entry.hash);
                return Some(RejectedBranch { block, descendants: top.above(height) });
            }
            entry = parent;
        }
    }

    /// The longest chain of blocks without a known parent that has a block younger than the tip. Older ones are branches that
    /// lost long ago.
    pub(crate) fn gap(&self) -> Option<Gap> {
        if self.order.len() == self.entries.len() {
            return None;
        }
        let tip_time = self.best.last().and_then(|id| self.entries.get(*id)).map_or(0, |tip| tip.time);
        let mut longest: Option<(usize, Gap)> = None;
        for (missing, waiting) in &self.waiting {
            if self.by_hash.contains_key(missing) {
                continue;
            }
            for first in waiting {
                let Some(child) = self.entries.get(*first) else { continue };
                let (mut length, mut newest) = (1, child.time);
                let mut next = vec![(*first, 1)];
                while let Some((id, depth)) = next.pop() {
                    let Some(entry) = self.entries.get(id) else { continue };
                    (length, newest) = (length.max(depth), newest.max(entry.time));
                    next.extend(
                        self.waiting.get(&entry.hash).into_iter().flatten().map(|id| (*id, depth + 1)),
                    );
                }
                let gap = Gap { missing: *missing, child: child.hash, waiting: length, damaged: None };
                // Of equals the one found first, so that the answer does not depend on the order of a map.
                let better = longest
                    .as_ref()
                    .is_none_or(|(id, best)| length > best.waiting || length == best.waiting && first < id);
                if newest > tip_time && better {
                    longest = Some((*first, gap));
                }
            }
        }
        longest.map(|(_, gap)| gap)
    }

    /// How many blocks were found, copies not counted.
    pub(crate) fn found(&self) -> usize {
        self.entries.iter().filter(|entry| entry.present && entry.location.is_some()).count()
    }

    /// How many blocks are connected but not on the best chain.
    pub(crate) fn beside(&self) -> usize {
        self.order.len() - self.best.len()
    }

    /// How many further copies of blocks were found.
    pub(crate) fn copies(&self) -> usize {
        self.copies.values().map(Vec::len).sum()
    }

    /// How many blocks are not connected, and the first of those that name a parent that is not there at all. Blocks before the
    /// root, and what branched off there, do not count: others have decided about them.
    pub(crate) fn orphans(&self, examples: usize) -> (usize, Vec<Orphan>) {
        let before = self.before_root();
        let count = self.entries.len() - self.order.len() - before.len();
        let mut roots: Vec<usize> = (self.waiting.iter())
            .filter(|(parent, _)| !self.by_hash.contains_key(*parent))
            .flat_map(|(_, waiting)| waiting.iter().copied())
            .filter(|id| !before.contains(id))
            .collect();
        roots.sort_unstable();
        let orphan = |id: usize| {
            let entry = self.entries.get(id)?;
            Some(Orphan { hash: entry.hash, parent: entry.parent, location: entry.location? })
        };
        (count, roots.into_iter().filter_map(orphan).take(examples).collect())
    }

    /// The ancestors of the root that were found, and their other descendants.
    fn before_root(&self) -> HashSet<usize> {
        let mut found = HashSet::new();
        let mut parent = self.entries.first().map(|root| root.parent);
        while let Some(id) = parent.and_then(|parent| self.by_hash.get(&parent)).copied() {
            if !found.insert(id) {
                break;
            }
            parent = self.entries.get(id).map(|entry| entry.parent);
        }
        let mut next: Vec<usize> = found.iter().copied().collect();
        while let Some(id) = next.pop() {
            let Some(entry) = self.entries.get(id) else { continue };
            let children = self.waiting.get(&entry.hash).into_iter().flatten();
            next.extend(children.copied().filter(|child| found.insert(*child)));
        }
        found
    }
}
