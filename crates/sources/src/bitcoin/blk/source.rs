//! Block files as a source of blocks.

use std::{
    collections::{BTreeSet, HashMap},
    ops::ControlFlow,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bitcoin::{block::Header, hex::DisplayHex};
use parking_lot::{Mutex, RwLock};
use sapwood_types::{BlockHash, Height};

use super::{
    files::{self, BlockFile},
    index::{HeaderIndex, Location},
    order,
    report::{BlkOptions, BlkReport, FileNote, ScanProgress},
};
use crate::{
    BlockSource, ChainPoint, SourceBlock, SourceError, SourceHeader, SourceView,
    bitcoin::{
        BitcoinError, Network,
        convert::{self, Delivery},
        error::bad_block,
        network,
    },
    error::Place,
};

/// How many blocks without a parent a report names.
const EXAMPLES: usize = 10;
/// Records between two reports of progress: some milliseconds of work.
const REPORT_EVERY: usize = 4096;

/// Block files as a source of blocks.
#[derive(Clone)]
pub struct BlkSource(Arc<Shared>);

struct Shared {
    options: BlkOptions,
    state: RwLock<State>,
    /// Held by whoever reads new records, so that nobody else does.
    reading: Mutex<()>,
}

struct State {
    files: Vec<BlockFile>,
    index: HeaderIndex,
    /// The note of each file, if there is one.
    notes: Vec<Option<FileNote>>,
    /// The last record of a file by its number, if it is not whole: where it begins, and since when.
    torn: HashMap<usize, (u64, Instant)>,
    /// Places of damage: the number of the file, and the offset.
    damaged: BTreeSet<(usize, u64)>,
}

/// What was found in the part of a file that had not been read before.
struct FileScan {
    records: Vec<(Header, Location)>,
    file: BlockFile,
    note: Option<FileNote>,
    /// Places that were damaged before and are not any more, with the block that lies there.
    repaired: Vec<(u64, Option<BlockHash>)>,
}

impl BlkSource {
    /// Reads the headers of all blocks. Takes a while for a whole chain: `progress` is told, and may stop it. Blocks the
    /// thread.
    pub fn open(
        options: BlkOptions,
        progress: impl FnMut(ScanProgress) -> ControlFlow<()>,
    ) -> Result<Self, SourceError> {
        let root = options.anchor.unwrap_or(ChainPoint::new(Height::GENESIS, options.network.genesis()));
        let state = State::new(HeaderIndex::new(root));
        let source = Self(Arc::new(Shared { options, state: RwLock::new(state), reading: Mutex::new(()) }));
        source.refresh(progress)?;
        source.refuse_if_nothing_is_a_block()?;
        Ok(source)
    }

    /// Reads what was added to the files. Blocks the thread.
    pub fn refresh(
        &self,
        mut progress: impl FnMut(ScanProgress) -> ControlFlow<()>,
    ) -> Result<(), SourceError> {
        let shared = &self.0;
        let _alone = shared.reading.lock();
        self.add_new_files()?;
        self.forget_lost_files()?;
        let mut todo = Vec::new();
        let state = shared.state.read();
        for (number, file) in state.files.iter().enumerate() {
            let Some(looks) = file.looks()? else { continue };
            if file.seen != Some(looks) {
                let mut file = BlockFile { seen: looks.if_telling(), ..file.clone() };
                let damaged = state.damaged_in(number);
                // What was damaged may have been repaired in place.
                if !damaged.is_empty() {
                    (file.read_to, file.skipped) = (0, 0);
                }
                todo.push((number, file, looks.length, damaged));
            }
        }
        drop(state);
        let unread = |file: &BlockFile, length: u64| length.saturating_sub(file.read_to);
        let bytes_total = todo.iter().map(|(_, file, length, _)| unread(file, *length)).sum();
        let mut now = ScanProgress { files_total: todo.len(), bytes_total, ..ScanProgress::default() };
        for (number, file, length, damaged) in todo {
            let done = now.bytes + unread(&file, length);
            let mut scan = scan_file(file, number as u32, shared.options.network, &mut now, &mut progress)?;
            scan.find_repaired(damaged)?;
            shared.state.write().take_over(number, scan);
            (now.files, now.bytes) = (now.files + 1, done);
            report(&mut progress, now)?;
        }
        shared.state.write().note_torn(shared.options.whole_within);
        Ok(())
    }

    /// What was found.
    pub fn report(&self) -> BlkReport {
        let state = self.0.state.read();
        let (unconnected, orphans) = state.index.orphans(EXAMPLES);
        BlkReport {
            files: state.files.len(),
            blocks: state.index.found(),
            copies: state.index.copies(),
            beside: state.index.beside(),
            tip: state.index.tip(),
            unconnected,
            orphans,
            notes: state.notes.iter().flatten().cloned().collect(),
            damaged: state.damaged_places(),
        }
    }

    /// The path of a file by its number in a [`Location`].
    pub fn path(&self, file: u32) -> Option<PathBuf> {
        Some(self.0.state.read().files.get(file as usize)?.path.clone())
    }

    /// Reads and checks a block, from another copy if the first is bad. Blocks the thread.
    pub fn read_block(&self, hash: &BlockHash) -> Result<Option<SourceBlock>, SourceError> {
        let (height, copies) = {
            let state = self.0.state.read();
            let Some(header) = state.index.header(hash) else { return Ok(None) };
            let file = |copy: Location| Some((copy, state.files.get(copy.file as usize)?.clone()));
            (header.height, state.index.locations(hash).into_iter().filter_map(file).collect::<Vec<_>>())
        };
        let BlkOptions { network, raw_above, .. } = self.0.options;
        let delivery = Delivery { network, height, expected: Some(*hash), raw_above };
        let mut problem = None;
        for (at, file) in copies {
            let read = (file.open())
                .and_then(|mut input| order::read(&mut input, &file.path, file.key, at.offset, at.length))
                .and_then(|bytes| {
                    let place = Place::File { path: file.path.clone(), offset: at.offset };
                    delivery.prefix(bytes.into()).map_err(|cause| bad_block(place, Some(*hash), cause))
                });
            match read {
                Ok(block) => return Ok(Some(block)),
                Err(error) => {
                    if matches!(error, SourceError::BadBlock { .. }) {
                        self.0.state.write().note_damage(at.file as usize, at.offset, &error.to_string());
                    }
                    problem = problem.or(Some(error));
                }
            }
        }
        // A file need not have the first block: every program knows it.
        if *hash == network.genesis() {
            let block = delivery.whole(network.genesis_block().into());
            return block.map(Some).map_err(|cause| bad_block(Place::BuiltIn, Some(*hash), cause));
        }
        problem.map_or(Ok(None), Err)
    }

    async fn look_again(&self) -> Result<(), SourceError> {
        let source = self.clone();
        let refresh = tokio::task::spawn_blocking(move || source.refresh(|_| ControlFlow::Continue(())));
        refresh.await.map_err(SourceError::task)?
    }

    fn add_new_files(&self) -> Result<(), SourceError> {
        let found = files::find(&self.0.options.places)?;
        let mut state = self.0.state.write();
        let known = state.files.len();
        let new: Vec<_> = match known {
            0 => found,
            _ => found
                .into_iter()
                .filter(|file| state.files.iter().all(|known| known.path != file.path))
                .collect(),
        };
        state.notes.resize(known + new.len(), None);
        state.files.extend(new);
        Ok(())
    }

    /// Forgets the blocks of files that were deleted, as a pruning node does with its oldest, or that became shorter than what was read.
    fn forget_lost_files(&self) -> Result<(), SourceError> {
        let mut lost = Vec::new();
        for (number, file) in self.0.state.read().files.iter().enumerate() {
            let length = file.looks()?.map_or(0, |looks| looks.length);
            if length < file.read_to {
                lost.push(number);
            }
        }
        let mut state = self.0.state.write();
        lost.into_iter().for_each(|number| state.forget_file(number));
        Ok(())
    }

    /// Files that hold something, but no block at all, are surely not what was meant.
    fn refuse_if_nothing_is_a_block(&self) -> Result<(), SourceError> {
        let state = self.0.state.read();
        let odd = state.notes.iter().flatten().find(|note| note.skipped > 0);
        let torn = state.notes.iter().flatten().any(|note| note.torn.is_some());
        let Some(odd) = odd.filter(|_| !torn && state.index.found() == 0) else { return Ok(()) };
        let file = state.files.iter().find(|file| file.path == odd.path);
        let network = self.0.options.network;
        let first = match file {
            Some(file) => order::scan(file, network)?.first_bytes().map_err(SourceError::file(&odd.path))?,
            None => [0; 4],
        };
        let first = first.to_lower_hex_string();
        Err(BitcoinError::NoBlocks { network, path: odd.path.clone(), first }.into())
    }
}

impl State {
    fn new(index: HeaderIndex) -> Self {
        let (files, notes) = (Vec::new(), Vec::new());
        State { files, index, notes, torn: HashMap::new(), damaged: BTreeSet::new() }
    }

    /// Places of damage in a file.
    fn damaged_in(&self, number: usize) -> Vec<u64> {
        self.damaged.range((number, 0)..=(number, u64::MAX)).map(|(_, offset)| *offset).collect()
    }

    /// Remembers a place of damage, and logs it the first time.
    fn note_damage(&mut self, number: usize, offset: u64, problem: &str) {
        if self.damaged.insert((number, offset))
            && let Some(file) = self.files.get(number)
        {
            tracing::warn!(file = %file.path.display(), offset, problem, "a block file is damaged");
        }
    }

    /// Notes last records that did not become whole in time.
    fn note_torn(&mut self, whole_within: Duration) {
        let late = self.torn.iter().filter(|(_, (_, since))| since.elapsed() >= whole_within);
        let late: Vec<(usize, u64)> = late.map(|(number, (at, _))| (*number, *at)).collect();
        for (number, at) in late {
            self.note_damage(number, at, "the last record is not a whole block, or its length is wrong");
        }
    }

    fn damaged_places(&self) -> Vec<(PathBuf, u64)> {
        let place = |(number, offset): &(usize, u64)| Some((self.files.get(*number)?.path.clone(), *offset));
        self.damaged.iter().filter_map(place).collect()
    }

    /// What there is, whether or not it can be applied.
    fn survey(&self) -> SourceView {
        let mut view = self.index.survey();
        if let Some(gap) = &mut view.gap {
            // What is missing lies where it is damaged most likely if that is before its child, as near as can be.
            let child = self.index.locations(&gap.child).first().map(|at| (at.file as usize, at.offset));
            let nearest = child.and_then(|child| self.damaged.range(..child).next_back());
            let place = nearest.or(self.damaged.first());
            gap.damaged = place.and_then(|(number, offset)| {
                Some(format!("{} at byte {offset}", self.files.get(*number)?.path.display()))
            });
        }
        view
    }

    /// Forgets what was read of a file. If it is there, all of it is read again.
    fn forget_file(&mut self, number: usize) {
        self.index.forget_file(number as u32);
        if let (Some(file), Some(note)) = (self.files.get_mut(number), self.notes.get_mut(number)) {
            (file.read_to, file.skipped, file.seen) = (0, 0, None);
            *note = None;
        }
        self.damaged.retain(|(file, _)| *file != number);
        self.torn.remove(&number);
    }

    fn take_over(&mut self, number: usize, scan: FileScan) {
        let FileScan { records, file: new, note, repaired } = scan;
        for (header, location) in &records {
            self.index.insert(header, *location);
        }
        for (offset, block) in repaired {
            self.damaged.remove(&(number, offset));
            if let Some(block) = block {
                self.index.accept_again(&block);
            }
        }
        let skipped = note.as_ref().and_then(|note| Some((note.skipped_at?, note.skipped)));
        let torn = note.as_ref().and_then(|note| note.torn);
        if let (Some(file), Some(before)) = (self.files.get_mut(number), self.notes.get_mut(number)) {
            (*file, *before) = (new, note);
        }
        match torn {
            Some(at) if self.torn.get(&number).is_some_and(|torn| torn.0 == at) => {}
            Some(at) => drop(self.torn.insert(number, (at, Instant::now()))),
            None => drop(self.torn.remove(&number)),
        }
        // A record that is still being written is skipped until it is whole.
        if let Some((at, bytes)) = skipped.filter(|(at, _)| torn.is_none_or(|torn| *at < torn)) {
            self.note_damage(number, at, &format!("{bytes} bytes are neither blocks nor zeros"));
        }
    }
}

fn report(
    progress: &mut impl FnMut(ScanProgress) -> ControlFlow<()>,
    now: ScanProgress,
) -> Result<(), SourceError> {
    match progress(now) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(SourceError::Interrupted),
    }
}

/// Finds the records of a file from where it was read to before.
fn scan_file(
    mut file: BlockFile,
    number: u32,
    network: Network,
    now: &mut ScanProgress,
    progress: &mut impl FnMut(ScanProgress) -> ControlFlow<()>,
) -> Result<FileScan, SourceError> {
    let mut scanner = order::scan(&file, network)?;
    let (begin, earlier, passed) = (file.read_to, file.skipped, now.bytes);
    let mut records = Vec::new();
    // The last record found, and how much had been skipped before it. It is held back: it has to be whole.
    let mut last: Option<((Header, Location), u64)> = None;
    while let Some(record) = scanner.next_record().map_err(SourceError::file(&file.path))? {
        let location = Location { file: number, offset: record.offset, length: record.length };
        let skipped = earlier + scanner.leftovers().skipped;
        if let Some((sure, skipped)) = last.replace(((record.header, location), skipped)) {
            file.accept(sure.1, skipped);
            records.push(sure);
        }
        now.blocks += 1;
        if records.len() % REPORT_EVERY == REPORT_EVERY - 1 {
            now.bytes = passed + (record.offset - begin);
            report(progress, *now)?;
        }
    }
    let left = scanner.leftovers();
    let mut torn = left.torn;
    if let Some((found, skipped)) = last {
        if is_whole(&file, found.1)? {
            file.accept(found.1, skipped);
            records.push(found);
        } else {
            torn = Some(found.1.offset - super::scan::FRAME);
            now.blocks -= 1;
        }
    }
    // A torn record that is followed by good ones is merely skipped.
    let torn = torn.filter(|at| *at >= file.read_to);
    let skipped = earlier + left.skipped;
    let (path, skipped_at) = (file.path.clone(), left.skipped_at);
    let note = (skipped > 0 || torn.is_some()).then_some(FileNote { path, skipped, skipped_at, torn });
    Ok(FileScan { records, file, note, repaired: Vec::new() })
}

impl FileScan {
    /// Finds out which places are no longer damaged. The file has been read from its start.
    fn find_repaired(&mut self, damaged: Vec<u64>) -> Result<(), SourceError> {
        let note = self.note.as_ref();
        for offset in damaged {
            // Damage is where a record, its block, or what was skipped begins.
            let at = |(_, location): &&(Header, Location)| {
                location.offset == offset || location.offset - super::scan::FRAME == offset
            };
            let repaired = match self.records.iter().find(at) {
                Some((header, location)) if is_whole(&self.file, *location)? => {
                    Some(Some(network::block_hash(header.block_hash())))
                }
                Some(_) => None,
                None => note
                    .is_none_or(|note| note.skipped_at != Some(offset) && note.torn != Some(offset))
                    .then_some(None),
            };
            self.repaired.extend(repaired.map(|block| (offset, block)));
        }
        Ok(())
    }
}

impl BlockFile {
    /// Counts a record: the next one is expected after it.
    fn accept(&mut self, record: Location, skipped: u64) {
        self.read_to = record.offset + u64::from(record.length);
        self.skipped = skipped;
    }
}

fn is_whole(file: &BlockFile, at: Location) -> Result<bool, SourceError> {
    let bytes = order::read(&mut file.open()?, &file.path, file.key, at.offset, at.length)?;
    // The height does not matter for that.
    Ok(convert::block_prefix(&bytes, Height(1), None).is_ok())
}

#[async_trait]
impl BlockSource for BlkSource {
    fn name(&self) -> String {
        let places: Vec<_> = self.0.options.places.iter().map(|place| place.display().to_string()).collect();
        format!("{} block files in {}", self.0.options.network, places.join(", "))
    }

    async fn tip(&self) -> Result<Option<ChainPoint>, SourceError> {
        Ok(Some(self.0.state.read().index.tip()))
    }

    /// Looks at the files again, so that those that cannot be read any more are noticed.
    async fn survey(&self) -> Result<SourceView, SourceError> {
        self.look_again().await?;
        Ok(self.0.state.read().survey())
    }

    async fn hash_at(&self, height: Height) -> Result<Option<BlockHash>, SourceError> {
        Ok(self.0.state.read().index.hash_at(height))
    }

    async fn header(&self, hash: &BlockHash) -> Result<Option<SourceHeader>, SourceError> {
        Ok(self.0.state.read().index.header(hash))
    }

    async fn block(&self, hash: &BlockHash) -> Result<Option<SourceBlock>, SourceError> {
        let (source, hash) = (self.clone(), *hash);
        let read = tokio::task::spawn_blocking(move || source.read_block(&hash));
        read.await.map_err(SourceError::task)?
    }

    async fn wait_for_change(
        &self,
        known: Option<&BlockHash>,
        timeout: Duration,
    ) -> Result<Option<ChainPoint>, SourceError> {
        let start = tokio::time::Instant::now();
        loop {
            self.look_again().await?;
            let tip = self.0.state.read().index.tip();
            let left = timeout.saturating_sub(start.elapsed());
            if known != Some(&tip.hash) || left.is_zero() {
                return Ok(Some(tip));
            }
            tokio::time::sleep(self.0.options.poll.min(left)).await;
        }
    }

    async fn reject(&self, hash: &BlockHash) -> Result<bool, SourceError> {
        let mut state = self.0.state.write();
        if *hash == state.index.root().hash {
            return Ok(false);
        }
        state.index.reject(hash);
        Ok(true)
    }

    async fn first(&self) -> Result<Height, SourceError> {
        // The block the files begin after is not in them; the very first block always is known.
        Ok(self.0.options.anchor.map_or(Height::GENESIS, |anchor| anchor.height.next()))
    }
}
