//! Who goes first: blocks before pruning.

use std::{cell::Cell, thread::available_parallelism};

use parking_lot::{Condvar, Mutex};

/// Lets blocks through at once and holds chunks of pruning back.
///
/// A chunk waits for one block: the one under way when it comes, or else the first that comes while it judges. So it is hardly ever in the
/// way, and blocks without a pause do not keep it out for ever. Few chunks are inside at a time, whatever waits.
#[derive(Debug)]
pub(crate) struct Gate {
    inside: Mutex<Inside>,
    changed: Condvar,
    most_chunks: usize,
}

#[derive(Debug, Default)]
struct Inside {
    blocks: usize,
    blocks_done: u64,
    chunks: usize,
}

impl Default for Gate {
    fn default() -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        Self::with_most_chunks(cores)
    }
}

impl Gate {
    fn with_most_chunks(most_chunks: usize) -> Self {
        Self { inside: Mutex::default(), changed: Condvar::new(), most_chunks }
    }

    /// How many chunks are inside at a time.
    pub(crate) fn most_chunks(&self) -> usize {
        self.most_chunks
    }

    /// A block comes. It is done when the pass is dropped.
    pub(crate) fn block(&self) -> BlockPass<'_> {
        self.inside.lock().blocks += 1;
        BlockPass(self)
    }

    /// A chunk comes: waits until it may begin. It is done when the pass is dropped.
    pub(crate) fn chunk(&self) -> ChunkPass<'_> {
        let mut inside = self.inside.lock();
        let done_before = inside.blocks_done;
        self.changed.wait_while(&mut inside, |inside| {
            let block_under_way = inside.blocks > 0 && inside.blocks_done == done_before;
            block_under_way || inside.chunks >= self.most_chunks
        });
        inside.chunks += 1;
        let waited = inside.blocks_done != done_before;
        ChunkPass { gate: self, waited: Cell::new(waited) }
    }
}

/// A block under way.
pub(crate) struct BlockPass<'a>(&'a Gate);

impl Drop for BlockPass<'_> {
    fn drop(&mut self) {
        let mut inside = self.0.inside.lock();
        inside.blocks -= 1;
        inside.blocks_done += 1;
        self.0.changed.notify_all();
    }
}

/// A chunk under way.
pub(crate) struct ChunkPass<'a> {
    gate: &'a Gate,
    waited: Cell<bool>,
}

impl ChunkPass<'_> {
    /// Lets a block go first that has come since. To be called often, and only with no lock held. A chunk waits for one block in all.
    pub(crate) fn make_way(&self) {
        if self.waited.get() {
            return;
        }
        let mut inside = self.gate.inside.lock();
        if inside.blocks > 0 {
            let done_before = inside.blocks_done;
            self.gate.changed.wait_while(&mut inside, |inside| inside.blocks_done == done_before);
            self.waited.set(true);
        }
    }
}

impl Drop for ChunkPass<'_> {
    fn drop(&mut self) {
        self.gate.inside.lock().chunks -= 1;
        self.gate.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;

    /// Long enough for a thread that does not wait to say so.
    const SOON: Duration = Duration::from_millis(100);

    #[test]
    fn a_chunk_waits_for_the_block_under_way_and_not_for_the_next_one() {
        let gate = &Gate::with_most_chunks(2);
        let first = gate.block();
        std::thread::scope(|scope| {
            let (inside, entered) = mpsc::channel();
            scope.spawn(move || {
                let _pass = gate.chunk();
                inside.send(()).ok();
            });
            assert!(entered.recv_timeout(SOON).is_err(), "a block is under way");
            let _second = gate.block();
            drop(first);
            assert_eq!(entered.recv(), Ok(()), "the second block came later");
        });
    }

    #[test]
    fn a_chunk_inside_makes_way_for_one_block() {
        let gate = &Gate::with_most_chunks(1);
        std::thread::scope(|scope| {
            let (go, told) = mpsc::channel();
            let (passed, has_passed) = mpsc::channel();
            scope.spawn(move || {
                let pass = gate.chunk();
                passed.send(()).ok();
                while told.recv().is_ok() {
                    pass.make_way();
                    passed.send(()).ok();
                }
            });
            assert_eq!(has_passed.recv(), Ok(()));
            go.send(()).ok();
            assert_eq!(has_passed.recv(), Ok(()), "no block has come");
            let block = gate.block();
            go.send(()).ok();
            assert!(has_passed.recv_timeout(SOON).is_err(), "a block has come");
            drop(block);
            assert_eq!(has_passed.recv(), Ok(()));
            let _another = gate.block();
            go.send(()).ok();
            assert_eq!(has_passed.recv(), Ok(()), "it has waited for one already");
            drop(go);
        });
    }

    #[test]
    fn only_so_many_chunks_are_inside() {
        let gate = &Gate::with_most_chunks(1);
        let first = gate.chunk();
        // Chunks do not keep a block out.
        drop(gate.block());
        std::thread::scope(|scope| {
            let (inside, entered) = mpsc::channel();
            scope.spawn(move || {
                let _pass = gate.chunk();
                inside.send(()).ok();
            });
            assert!(entered.recv_timeout(SOON).is_err(), "one is inside");
            drop(first);
            assert_eq!(entered.recv(), Ok(()));
        });
    }
}
