//! A source that does what a test says.

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use sapwood_conformance::fixtures::{child, coin, coinbase};
use sapwood_sources::{BlockSource, ChainPoint, SourceBlock, SourceError, SourceHeader};
use sapwood_types::{Block, BlockHash, BlockRules, Height, Tx};
use std::sync::Mutex;

/// A source whose best chain a test chooses.
pub(crate) struct Scripted {
    state: Mutex<State>,
    takes_rejects: bool,
    /// Calls do not return while this is set.
    silent: tokio::sync::watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    known: HashMap<BlockHash, Arc<Block>>,
    /// Branches in the order of preference; the first without a rejected block is the best chain.
    branches: Vec<Vec<BlockHash>>,
    rejected: Vec<BlockHash>,
    /// Errors to answer the next reads of blocks with.
    failures: Vec<SourceError>,
    /// What every call is answered with while the source is down.
    down: Option<SourceError>,
    /// How many calls it was asked while it was down.
    asked_in_vain: u64,
    /// Blocks whose transactions may write over older ones.
    overwriting: Vec<BlockHash>,
    /// How often each block was read.
    reads: HashMap<BlockHash, u32>,
    /// A branch that becomes the best one when this block is read.
    growth: Option<(BlockHash, Vec<Arc<Block>>)>,
}

impl Scripted {
    pub(crate) fn new(takes_rejects: bool) -> Arc<Self> {
        let silent = tokio::sync::watch::channel(false).0;
        Arc::new(Scripted { state: Mutex::default(), takes_rejects, silent })
    }

    /// Makes this branch the best one.
    pub(crate) fn prefer(&self, branch: &[Arc<Block>]) {
        let mut state = self.state.lock().unwrap();
        state.known.extend(branch.iter().map(|block| (block.hash, Arc::clone(block))));
        state.branches.insert(0, branch.iter().map(|block| block.hash).collect());
    }

    /// Makes this branch the best one when a block is read.
    pub(crate) fn grow_when_read(&self, hash: BlockHash, branch: &[Arc<Block>]) {
        self.state.lock().unwrap().growth = Some((hash, branch.to_vec()));
    }

    /// Forgets a block, as a source does that was set up again.
    pub(crate) fn forget(&self, hash: &BlockHash) {
        self.state.lock().unwrap().known.remove(hash);
    }

    pub(crate) fn fail_next(&self, error: SourceError) {
        self.state.lock().unwrap().failures.push(error);
    }

    /// Answers every call with this error until it is up again.
    pub(crate) fn go_down(&self, error: SourceError) {
        self.state.lock().unwrap().down = Some(error);
    }

    /// Answers again. Returns how many calls were in vain.
    pub(crate) fn come_up(&self) -> u64 {
        let mut state = self.state.lock().unwrap();
        state.down = None;
        std::mem::take(&mut state.asked_in_vain)
    }

    /// Leaves calls without an answer, or answers them.
    pub(crate) fn be_silent(&self, on: bool) {
        self.silent.send_replace(on);
    }

    /// Lets a block write over older transactions.
    pub(crate) fn let_overwrite(&self, hash: BlockHash) {
        self.state.lock().unwrap().overwriting.push(hash);
    }

    /// How often a block was read.
    pub(crate) fn reads(&self, hash: &BlockHash) -> u32 {
        self.state.lock().unwrap().reads.get(hash).copied().unwrap_or_default()
    }

    fn up(&self) -> Result<(), SourceError> {
        let mut state = self.state.lock().unwrap();
        match state.down.clone() {
            Some(error) => {
                state.asked_in_vain += 1;
                Err(error)
            }
            None => Ok(()),
        }
    }

    fn best(&self) -> Vec<BlockHash> {
        let state = self.state.lock().unwrap();
        let good = |branch: &&Vec<BlockHash>| !branch.iter().any(|hash| state.rejected.contains(hash));
        state.branches.iter().find(good).cloned().unwrap_or_default()
    }
}

#[async_trait]
impl BlockSource for Scripted {
    fn name(&self) -> String {
        "a scripted source".into()
    }

    async fn tip(&self) -> Result<Option<ChainPoint>, SourceError> {
        self.silent.subscribe().wait_for(|silent| !silent).await.unwrap();
        self.up()?;
        let best = self.best();
        Ok(best.last().map(|hash| ChainPoint::new(Height(best.len() as u32 - 1), *hash)))
    }

    async fn hash_at(&self, height: Height) -> Result<Option<BlockHash>, SourceError> {
        Ok(self.best().get(height.0 as usize).copied())
    }

    async fn header(&self, hash: &BlockHash) -> Result<Option<SourceHeader>, SourceError> {
        let on_best_chain = self.best().contains(hash);
        let block = self.state.lock().unwrap().known.get(hash).cloned();
        Ok(block.map(|block| SourceHeader {
            height: block.height,
            hash: block.hash,
            parent: block.parent,
            time: block.time,
            on_best_chain,
        }))
    }

    async fn block(&self, hash: &BlockHash) -> Result<Option<SourceBlock>, SourceError> {
        self.up()?;
        let mut state = self.state.lock().unwrap();
        let grown = state.growth.take_if(|(when, _)| when == hash);
        drop(state);
        if let Some((_, branch)) = grown {
            self.prefer(&branch);
        }
        let mut state = self.state.lock().unwrap();
        *state.reads.entry(*hash).or_default() += 1;
        match state.failures.pop() {
            Some(error) => Err(error),
            None => {
                let allow_overwrite = state.overwriting.contains(hash);
                Ok(state.known.get(hash).map(|block| SourceBlock {
                    point: ChainPoint::new(block.height, block.hash),
                    parent: block.parent,
                    time: block.time,
                    raw: Default::default(),
                    rules: BlockRules { allow_overwrite, ..BlockRules::default() },
                    utxo: Some(Arc::clone(block)),
                }))
            }
        }
    }

    async fn wait_for_change(
        &self,
        known: Option<&BlockHash>,
        timeout: Duration,
    ) -> Result<Option<ChainPoint>, SourceError> {
        let end = tokio::time::Instant::now() + timeout;
        loop {
            let tip = self.tip().await?;
            if tip.map(|tip| tip.hash).as_ref() != known || tokio::time::Instant::now() >= end {
                return Ok(tip);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn reject(&self, hash: &BlockHash) -> Result<bool, SourceError> {
        if self.takes_rejects {
            self.state.lock().unwrap().rejected.push(*hash);
        }
        Ok(self.takes_rejects)
    }
}

/// Makes a block on top of a branch. The label makes it different from others at its height.
pub(crate) fn on(branch: &[Arc<Block>], label: &str, txs: Vec<Tx>) -> Arc<Block> {
    let height = Height(branch.len() as u32);
    let mut all = vec![coinbase(&format!("coinbase {label} {height}"), 1)];
    all.extend(txs);
    let mut hash = [0; 32];
    let name = format!("{label} {height}");
    hash[..name.len()].copy_from_slice(name.as_bytes());
    let parent = branch.last().map_or(BlockHash::default(), |block| block.hash);
    Arc::new(Block {
        height,
        hash: BlockHash(hash),
        parent,
        time: 1_700_000_000 + u64::from(height.0),
        txs: all,
    })
}

/// A branch with so many more blocks, each of which spends from the one before it.
pub(crate) fn longer(branch: &[Arc<Block>], label: &str, by: usize) -> Vec<Arc<Block>> {
    let mut branch = branch.to_vec();
    for _ in 0..by {
        let height = branch.len();
        let mine = coin(&format!("{label} {height}"), 2);
        let before = branch.last().and_then(|block| block.txs.get(1).cloned());
        let mut txs = vec![mine];
        txs.extend(before.map(|before| child(&format!("{label} child {height}"), &[(&before, 0)], 1)));
        let block = on(&branch, label, txs);
        branch.push(block);
    }
    branch
}

/// A block that spends what does not exist.
pub(crate) fn bad(branch: &[Arc<Block>], label: &str) -> Arc<Block> {
    on(branch, label, vec![child(&format!("thief {label}"), &[(&coin("nowhere", 1), 0)], 1)])
}
