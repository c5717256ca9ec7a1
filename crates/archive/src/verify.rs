//! The full check of an archive.
//!
//! # Correctness
//! Rows are checked in one view, so a write in flight does not disturb. Payloads are read afterwards, some blocks at a
//! time, each in a view of its own: a check of many bytes must not keep regions from being freed.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    ops::ControlFlow,
};

use sapwood_types::{BlockHash, Height};

use crate::{
    Archive,
    arena::{BlobPtr, Region, RegionState, header::FIRST_OFFSET},
    block::{BlockMeta, Identities, Segment},
    error::ArchiveError,
    export::consumers::Ack,
    journal::Entry,
    keys, rows,
    state::{RegionBytes, State},
    view::{ArchiveView, height_of},
};

/// Blocks whose payloads are read in one view.
const BLOCKS_PER_VIEW: usize = 64;
/// Problems that are listed. All are counted.
const LISTED: usize = 1000;

/// How far a check got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyProgress {
    /// Blocks checked.
    pub blocks: u64,
    /// Blocks there are.
    pub of_blocks: u64,
    /// Bytes of payloads read.
    pub bytes: u64,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Blocks checked.
    pub blocks: u64,
    /// Regions checked.
    pub regions: u64,
    /// Bytes of payloads read and compared with their checksums.
    pub payload_bytes: u64,
    /// The first problems.
    pub problems: Vec<Problem>,
    /// How many problems there are.
    pub problem_count: u64,
}

impl VerifyReport {
    /// Whether no problem was found.
    pub fn is_clean(&self) -> bool {
        self.problem_count == 0
    }

    fn add(&mut self, problem: Problem) {
        self.problem_count += 1;
        if self.problems.len() < LISTED {
            self.problems.push(problem);
        }
    }

    fn expect<T: PartialEq + fmt::Debug>(&mut self, what: &'static str, stored: T, counted: T) {
        if stored != counted {
            let (stored, counted) = (format!("{stored:?}"), format!("{counted:?}"));
            self.add(Problem::WrongCount { what, stored, counted });
        }
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { blocks, regions, payload_bytes, problems, problem_count } = self;
        write!(
            f,
            "{blocks} blocks, {regions} regions, {payload_bytes} payload bytes: {problem_count} problems"
        )?;
        problems.iter().try_for_each(|problem| write!(f, "\n- {problem}"))
    }
}

/// Something that should not be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// A row cannot be read.
    #[error("{row}: {cause}")]
    Unreadable {
        /// The row.
        row: String,
        /// Why.
        cause: String,
    },
    /// A region has two owners.
    #[error("the region at {offset} belongs to {first} and to {second}")]
    TwoOwners {
        /// Where it begins.
        offset: u64,
        /// One owner.
        first: Owner,
        /// The other one.
        second: Owner,
    },
    /// A region is in use, but nothing refers to it.
    #[error("the region at {offset} is {state:?}, but nothing refers to it")]
    Lost {
        /// Where it begins.
        offset: u64,
        /// Its state.
        state: RegionState,
    },
    /// Something refers to a region that is not its own.
    #[error("{owner} refers to {pointer}, but the allocation table has {found:?}")]
    BadReference {
        /// What refers to it.
        owner: Owner,
        /// The pointer.
        pointer: BlobPtr,
        /// The region. `None` if there is none.
        found: Option<Region>,
    },
    /// A free region is not in the free list, or one in the list is not free.
    #[error(
        "the region at {offset} is in the free list of class {class}, but the allocation table has {found:?}"
    )]
    BadFreeList {
        /// Where it begins.
        offset: u64,
        /// Its size in the list. 0 if it is not in the list.
        class: u32,
        /// The region. `None` if there is none.
        found: Option<Region>,
    },
    /// Regions overlap, or there is space between them.
    #[error("the region at {offset} should begin at {expected}")]
    BadLayout {
        /// Where it begins.
        offset: u64,
        /// Where the one before ends.
        expected: u64,
    },
    /// A block is there although it is pruned.
    #[error("block {height} is there, but the boundary is {boundary}")]
    BelowBoundary {
        /// The block.
        height: Height,
        /// Blocks at or below it are pruned.
        boundary: Height,
    },
    /// A block does not name the one before it as its parent.
    #[error("block {height} has the parent {parent}, but block {} is {expected}", height.minus(1))]
    BrokenChain {
        /// The block.
        height: Height,
        /// Its parent.
        parent: BlockHash,
        /// The hash of the block before.
        expected: BlockHash,
    },
    /// A block or one of its transactions cannot be found by its hash.
    #[error("block {height}: {problem}")]
    BadIndex {
        /// The block.
        height: Height,
        /// What is wrong.
        problem: String,
    },
    /// Bytes of a payload are not those that were written.
    #[error("the {segment} segment of block {height}: {cause}")]
    BadPayload {
        /// The block.
        height: Height,
        /// The segment.
        segment: Segment,
        /// What is wrong.
        cause: String,
    },
    /// A count is not the sum of what is counted.
    #[error("{what} should be {counted}, and is stored as {stored}")]
    WrongCount {
        /// What is counted.
        what: &'static str,
        /// What is stored.
        stored: String,
        /// What was counted.
        counted: String,
    },
}

/// What refers to a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A block.
    Block(Height),
    /// A journal entry.
    Journal(u64),
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Block(height) => write!(f, "block {height}"),
            Owner::Journal(number) => write!(f, "journal entry {number}"),
        }
    }
}

impl Archive {
    /// Checks everything: no region has two owners, none is lost, nothing refers to a freed one, counts are sums,
    /// boundary and newest block are right, everything is found by its hash. With `payloads` all bytes are read and
    /// compared with their checksums.
    ///
    /// # Errors
    /// Those of the engine. Damage is no error, but a problem in the report.
    pub fn verify(
        &self,
        payloads: bool,
        mut progress: impl FnMut(VerifyProgress),
    ) -> Result<VerifyReport, ArchiveError> {
        let view = self.view()?;
        let mut check = Check::new(&view);
        check.blocks()?;
        check.identities()?;
        check.journal()?;
        check.regions()?;
        check.free_list()?;
        check.rest()?;
        let mut report = check.report;
        let of_blocks = report.blocks;
        drop(view);
        let mut done = VerifyProgress { of_blocks, ..Default::default() };
        let mut from = Some(Height::GENESIS);
        while let Some(height) = from.filter(|_| payloads) {
            from = self.verify_payloads(height, &mut done, &mut report)?;
            progress(done);
        }
        report.payload_bytes = done.bytes;
        Ok(report)
    }

    /// Reads the payloads of some blocks. Returns where to go on; `None` at the end.
    fn verify_payloads(
        &self,
        from: Height,
        done: &mut VerifyProgress,
        report: &mut VerifyReport,
    ) -> Result<Option<Height>, ArchiveError> {
        let view = self.view()?;
        let mut blocks: Vec<BlockMeta> = Vec::new();
        view.blocks_from(from, |_, block| {
            blocks.extend(block);
            let more = blocks.len() < BLOCKS_PER_VIEW;
            Ok(if more { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        for block in &blocks {
            for segment in Segment::ALL {
                match view.payload(block, segment) {
                    Ok(payload) => done.bytes += payload.len() as u64,
                    Err(error) => report.add(Problem::BadPayload {
                        height: block.height,
                        segment,
                        cause: error.to_string(),
                    }),
                }
            }
            done.blocks += 1;
        }
        let last = blocks.last().filter(|_| blocks.len() == BLOCKS_PER_VIEW);
        Ok(last.and_then(|last| last.height.0.checked_add(1)).map(Height))
    }
}

struct Check<'a> {
    view: &'a ArchiveView<'a>,
    state: &'a State,
    report: VerifyReport,
    owners: HashMap<u64, (Owner, BlobPtr)>,
    /// Hash and number of transactions of each block.
    blocks: BTreeMap<Height, (BlockHash, u32)>,
    regions: BTreeMap<u64, Region>,
}

impl<'a> Check<'a> {
    fn new(view: &'a ArchiveView<'a>) -> Self {
        let (owners, blocks, regions) = Default::default();
        Self { view, state: &view.state, report: VerifyReport::default(), owners, blocks, regions }
    }

    fn own(&mut self, owner: Owner, pointer: BlobPtr) {
        if let Some((first, _)) = self.owners.insert(pointer.offset, (owner, pointer)) {
            self.report.add(Problem::TwoOwners { offset: pointer.offset, first, second: owner });
        }
    }

    fn blocks(&mut self) -> Result<(), ArchiveError> {
        let (mut payload_bytes, mut pinned) = (0, 0);
        let mut before: Option<BlockMeta> = None;
        let (mut oldest, mut head) = (None, None);
        self.view.blocks_from(Height::GENESIS, |height, block| {
            let block = match block {
                Ok(block) => block,
                Err(error) => {
                    let (row, cause) = (format!("block {height}"), error.to_string());
                    self.report.add(Problem::Unreadable { row, cause });
                    before = None;
                    return Ok(ControlFlow::Continue(()));
                }
            };
            self.report.blocks += 1;
            payload_bytes += block.payload_bytes();
            block.pointers().for_each(|pointer| self.own(Owner::Block(height), pointer));
            self.blocks.insert(height, (block.hash, block.txs));
            if let Some(boundary) = self.state.boundary.filter(|_| self.state.is_pruned(height)) {
                self.report.add(Problem::BelowBoundary { height, boundary });
            }
            if self.state.keep_genesis && height == Height::GENESIS {
                pinned = block.region_bytes();
            }
            if self.state.boundary.is_none_or(|boundary| height > boundary) {
                oldest.get_or_insert((height, block.time));
                head = Some(block.point());
            }
            if let Some(before) = before.replace(block.clone())
                && before.height.next() == height
                && before.hash != block.parent
            {
                let (parent, expected) = (block.parent, before.hash);
                self.report.add(Problem::BrokenChain { height, parent, expected });
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let state = self.state;
        self.report.expect("the number of blocks", state.totals.blocks, self.report.blocks);
        self.report.expect("the bytes of payloads", state.totals.payload_bytes, payload_bytes);
        self.report.expect("the pinned bytes", state.pinned, pinned);
        self.report.expect(
            "the oldest block",
            state.oldest.map(|oldest| (oldest.height, oldest.time)),
            oldest,
        );
        self.report.expect("the newest block", state.head, head);
        Ok(())
    }

    /// Checks that blocks, tombstones and their transactions are found by their hashes, and nothing else is.
    fn identities(&mut self) -> Result<(), ArchiveError> {
        let (mut lists, mut locations, mut tombstones) = (0_u64, 0_u64, 0_u64);
        let mut listed = Vec::new();
        rows::scan_all(self.view.rows(), &keys::ALL_IDS, |key, value| {
            lists += 1;
            let height = keys::height_in(key).unwrap_or_default();
            match Identities::decode(value) {
                Ok(ids) => {
                    locations += ids.txs.len() as u64;
                    if self.state.is_pruned(height) {
                        tombstones += Identities::entries(ids.txs.len() as u64);
                    } else {
                        listed.push(height);
                    }
                    self.identities_of(height, &ids)
                }
                Err(cause) => {
                    let (row, cause) =
                        (format!("the list of transactions of block {height}"), cause.to_string());
                    self.report.add(Problem::Unreadable { row, cause });
                    Ok(())
                }
            }
        })?;
        for height in self.blocks.keys().filter(|height| listed.binary_search(height).is_err()) {
            let problem = "its list of transactions is missing".into();
            self.report.add(Problem::BadIndex { height: *height, problem });
        }
        let count = |kind| {
            let mut count = 0_u64;
            rows::scan_all(self.view.rows(), kind, |_, _| {
                count += 1;
                Ok(())
            })
            .map(|()| count)
        };
        self.report.expect("the number of block hashes", count(&keys::ALL_HASHES)?, lists);
        self.report.expect("the number of locations", count(&keys::ALL_LOCATIONS)?, locations);
        self.report.expect("the number of tombstones", self.state.totals.tombstones, tombstones);
        let queued = count(&keys::ALL_QUEUED)?;
        self.report.expect("the number of queued transactions", self.state.totals.queued, queued);
        Ok(())
    }

    fn identities_of(&mut self, height: Height, ids: &Identities) -> Result<(), ArchiveError> {
        let mut bad = |problem: String| self.report.add(Problem::BadIndex { height, problem });
        match self.blocks.get(&height) {
            Some((hash, _)) if *hash != ids.hash => bad(format!("its list has the hash {}", ids.hash)),
            Some((_, txs)) if *txs as usize != ids.txs.len() => {
                bad(format!("its list has {} transactions instead of {txs}", ids.txs.len()));
            }
            None if !self.state.is_pruned(height) => bad("there is a list, but no block".into()),
            _ => {}
        }
        match height_of(self.view.rows(), &ids.hash) {
            Ok(Some(found)) if found == height => {}
            found => bad(format!("its hash {} leads to {found:?}", ids.hash)),
        }
        let row_keys: Vec<_> = ids.txs.iter().map(|txid| keys::location(txid, height)).collect();
        let refs: Vec<&[u8]> = row_keys.iter().map(|key| &**key).collect();
        let found = rows::get_many(self.view.rows(), keys::POINTS, &refs)?;
        for (index, (txid, row)) in ids.txs.iter().zip(found).enumerate() {
            match row {
                Ok(Some(row)) if row[..] == (index as u32).to_be_bytes() => {}
                found => bad(format!("transaction {index} ({txid}) leads to {found:?}")),
            }
        }
        Ok(())
    }

    fn journal(&mut self) -> Result<(), ArchiveError> {
        let mut entries = Vec::new();
        rows::scan_all(self.view.rows(), &keys::ALL_JOURNAL, |key, value| {
            let number = keys::number_in(key).unwrap_or_default();
            entries.push((number, Entry::decode(value)));
            Ok(())
        })?;
        for (number, entry) in entries {
            match entry {
                Ok(entry) => {
                    entry.pointers.into_iter().for_each(|pointer| self.own(Owner::Journal(number), pointer));
                }
                Err(cause) => {
                    let (row, cause) = (format!("journal entry {number}"), cause.to_string());
                    self.report.add(Problem::Unreadable { row, cause });
                }
            }
        }
        Ok(())
    }

    /// Checks that regions fill the arena without a gap, and that each has the one owner that its state asks for.
    fn regions(&mut self) -> Result<(), ArchiveError> {
        let mut expected = FIRST_OFFSET;
        let mut bytes = RegionBytes::default();
        let (report, owners, regions) = (&mut self.report, &self.owners, &mut self.regions);
        rows::scan_all(self.view.rows(), &keys::ALL_REGIONS, |key, value| {
            report.regions += 1;
            let offset = keys::number_in(key).unwrap_or_default();
            let region = match Region::decode(value) {
                Ok(region) => region,
                Err(cause) => {
                    let (row, cause) = (format!("the region at {offset}"), cause.to_string());
                    report.add(Problem::Unreadable { row, cause });
                    return Ok(());
                }
            };
            if offset != expected {
                report.add(Problem::BadLayout { offset, expected });
            }
            let class = u64::from(region.class);
            expected = offset.saturating_add(class);
            let owner = owners.get(&offset);
            match region.state {
                RegionState::Used => bytes.used += class,
                RegionState::Quarantine => bytes.quarantine += class,
                RegionState::Free { punched } => {
                    bytes.free += class;
                    bytes.punched += if punched { class } else { 0 };
                }
            }
            if owner.is_none() && !region.is_free() {
                report.add(Problem::Lost { offset, state: region.state });
            }
            regions.insert(offset, region);
            Ok(())
        })?;
        for (owner, pointer) in owners.values() {
            let found = regions.get(&pointer.offset).copied();
            let state = match owner {
                Owner::Block(_) => RegionState::Used,
                Owner::Journal(_) => RegionState::Quarantine,
            };
            let own = Region { state, class: pointer.class, generation: pointer.generation };
            if found != Some(own) {
                report.add(Problem::BadReference { owner: *owner, pointer: *pointer, found });
            }
        }
        self.report.expect("the end of the arena", self.state.end, expected);
        self.report.expect("the bytes of regions", self.state.bytes, bytes);
        Ok(())
    }

    fn free_list(&mut self) -> Result<(), ArchiveError> {
        let mut free = BTreeMap::new();
        rows::scan_all(self.view.rows(), &keys::ALL_FREE, |key, _| {
            let (offset, class) = (keys::number_in(key), keys::class_in(key));
            free.insert(offset.unwrap_or_default(), class.unwrap_or_default());
            Ok(())
        })?;
        for (offset, class) in &free {
            let found = self.regions.get(offset).copied();
            if !found.is_some_and(|region| region.is_free() && region.class == *class) {
                self.report.add(Problem::BadFreeList { offset: *offset, class: *class, found });
            }
        }
        for (offset, region) in self.regions.iter().filter(|(_, region)| region.is_free()) {
            if !free.contains_key(offset) {
                self.report.add(Problem::BadFreeList { offset: *offset, class: 0, found: Some(*region) });
            }
        }
        Ok(())
    }

    fn rest(&mut self) -> Result<(), ArchiveError> {
        let head = self.state.head.map(|head| head.height);
        if self.state.boundary > head {
            self.report.expect("the boundary", self.state.boundary, head);
        }
        if self.state.floor.is_some_and(|floor| self.state.boundary >= Some(floor)) {
            self.report.expect("the boundary below the floor", self.state.boundary, self.state.floor);
        }
        let report = &mut self.report;
        rows::scan_all(self.view.rows(), &keys::ALL_CONSUMERS, |key, value| {
            let name = keys::consumer_in(key).unwrap_or_default();
            match Ack::decode(value) {
                Ok(ack) if ack.height > head => report.expect("an acknowledged block", ack.height, head),
                Ok(_) => {}
                Err(cause) => {
                    let (row, cause) = (format!("the export consumer {name:?}"), cause.to_string());
                    report.add(Problem::Unreadable { row, cause });
                }
            }
            Ok(())
        })
    }
}
