//! The blocks that are measured: the benchmark preset of the synthetic chain.

use std::sync::Arc;

use anyhow::ensure;
use sapwood_sources::synthetic::{Outcome, SyntheticChain, SyntheticOptions};
use sapwood_types::Block;

use super::Shape;

/// Outputs to begin with for each transaction of a block. With fewer, the first blocks would run out of what to spend.
const OUTPUTS_PER_TX: u64 = 3;

/// Makes blocks, each following the one before.
pub(super) struct Workload(SyntheticChain);

impl Workload {
    pub(super) fn new(shape: &Shape) -> anyhow::Result<Self> {
        let least = OUTPUTS_PER_TX * shape.txs as u64;
        ensure!(
            shape.outputs >= least,
            "blocks of {} transactions need --outputs {least} or more",
            shape.txs
        );
        let options = SyntheticOptions {
            seed: shape.seed,
            txs_per_block: u32::try_from(shape.txs).unwrap_or(u32::MAX),
            first_outputs: shape.outputs,
            ..SyntheticOptions::benchmark()
        };
        Ok(Self(SyntheticChain::new(options)?))
    }

    /// Whether the next block only makes outputs to begin with.
    pub(super) fn is_beginning(&self) -> bool {
        self.0.is_beginning()
    }

    pub(super) fn next_block(&mut self) -> Block {
        loop {
            // The preset has no reorganisations, so this is the first turn.
            if let Outcome::Extended(block) = self.0.step().outcome {
                return Arc::unwrap_or_clone(block);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_has_as_many_transactions_as_asked() {
        let mut workload = Workload::new(&Shape { txs: 200, outputs: 600, seed: 1 }).unwrap();
        while workload.is_beginning() {
            workload.next_block();
        }
        assert!((0..300).all(|_| workload.next_block().txs.len() == 200));
    }

    #[test]
    fn too_few_outputs_to_begin_with_are_refused() {
        let refused = Workload::new(&Shape { txs: 200, outputs: 599, seed: 1 }).err().unwrap();
        assert!(refused.to_string().contains("--outputs 600"), "{refused}");
    }
}
