//! The synthetic chain: the same every time, valid, with the figures it promises, and good enough for a store.

mod checker;
mod events;
mod options;
mod same;
mod shape;
mod source;
mod store;

use checker::Checker;
use sapwood_sources::synthetic::{Step, SyntheticChain, SyntheticOptions};

/// Makes a chain of this many steps, checks all of it, and hands each step to `look`.
fn checked(options: SyntheticOptions, steps: usize, mut look: impl FnMut(&SyntheticChain, Step)) {
    let mut checker = Checker::new(options.coinbase_maturity);
    let mut chain = SyntheticChain::new(options).unwrap();
    for _ in 0..steps {
        let beginning = chain.is_beginning();
        let step = chain.step();
        checker.step(&step, beginning);
        assert_eq!(chain.tip().map(|tip| (tip.height, tip.hash)), checker.tip());
        look(&chain, step);
    }
}

/// A small chain on which a lot happens.
fn busy(seed: u64) -> SyntheticOptions {
    SyntheticOptions {
        seed,
        txs_per_block: 20,
        first_outputs: 500,
        coinbase_maturity: 10,
        unmined_per_block: 6,
        children: 0.5,
        late: 0.1,
        late_blocks: (20, 40),
        never: 0.1,
        double_spends: 0.1,
        expire_after: 60,
        reorg_probability: 0.1,
        max_reorg_depth: 12,
        remember: 20,
        ..SyntheticOptions::default()
    }
}
