//! The same options give the same chain, and the chain is valid whatever the seed.

use proptest::{
    prelude::{ProptestConfig, any},
    proptest,
};
use sapwood_sources::synthetic::{Outcome, SyntheticChain, SyntheticOptions};
use sapwood_types::{BlockHash, Height};

use crate::synthetic::{busy, checked};

/// The block at height 50 of the default chain. If it changes, every benchmark and simulation measures another chain than
/// before: say so in the changelog.
const GOLDEN: &str = "84d7812ddcf17ad29e24be34f0f2be4d30f8137d2f49d133563bd3d0ed5c968a";

#[test]
fn default_chain_is_the_one_it_always_was() {
    let mut chain = SyntheticChain::new(SyntheticOptions::default()).unwrap();
    while chain.tip().is_none_or(|tip| tip.height < Height(50)) {
        chain.step();
    }
    assert_eq!(chain.hash_at(Height(50)).unwrap().to_string(), GOLDEN);
}

fn everything(options: SyntheticOptions, steps: usize) -> String {
    let mut chain = SyntheticChain::new(options).unwrap();
    (0..steps).map(|_| format!("{:?}\n", chain.step())).collect()
}

#[test]
fn same_options_give_the_same_steps_and_another_seed_others() {
    let first = everything(busy(3), 150);
    assert_eq!(first, everything(busy(3), 150));
    assert_ne!(first, everything(busy(4), 150));
}

#[test]
fn blocks_of_two_branches_at_one_height_differ() {
    let mut seen = std::collections::HashSet::<BlockHash>::new();
    checked(busy(5), 300, |_, step| {
        if let Outcome::Reorganised { lost, .. } = &step.outcome {
            assert!(lost.iter().all(|block| seen.contains(&block.hash)));
        }
        assert!(step.blocks().iter().all(|block| seen.insert(block.hash)));
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_chain_is_valid(
        seed in any::<u64>(),
        txs_per_block in 1_u32..40,
        first_outputs in 0_u64..400,
        most_outputs in 400_u64..2_000,
        coinbase_maturity in 0_u32..30,
        unmined in 0_u32..20,
        reorg_probability in 0.0..0.5,
        max_reorg_depth in 1_u32..20,
        share in 0.0..0.33,
    ) {
        let options = SyntheticOptions {
            txs_per_block,
            first_outputs,
            most_outputs,
            coinbase_maturity,
            unmined_per_block: unmined.min(txs_per_block / 2),
            reorg_probability,
            max_reorg_depth,
            consolidations: share,
            batches: share,
            late: share,
            never: share,
            double_spends: share,
            children: share,
            ..busy(seed)
        };
        checked(options, 150, |_, _| {});
    }
}
