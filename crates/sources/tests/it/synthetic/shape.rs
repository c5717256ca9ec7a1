//! The figures of a real chain.

use std::collections::HashMap;

use sapwood_sources::synthetic::SyntheticOptions;
use sapwood_types::{Block, Height, PAGE_SIZE, TxBody, TxId, codec::Writer};

use crate::synthetic::checked;

/// What there was to count.
#[derive(Default)]
struct Figures {
    txs: usize,
    inputs: usize,
    outputs: usize,
    recent: usize,
    single_or_double: usize,
    two_outputs: usize,
    consolidations: usize,
    several_pages: usize,
    big: usize,
    data: usize,
    old: usize,
    coinbases_spent: usize,
    scripts: HashMap<bytes::Bytes, usize>,
    made_at: HashMap<TxId, (Height, bool)>,
}

impl Figures {
    fn add(&mut self, block: &Block, count: bool) {
        for tx in &block.txs {
            self.made_at.insert(tx.txid, (block.height, tx.coinbase));
        }
        for tx in block.txs.iter().skip(1).filter(|_| count) {
            self.txs += 1;
            self.inputs += tx.inputs.len();
            self.outputs += tx.outputs.len();
            self.single_or_double += usize::from(tx.inputs.len() <= 2);
            self.two_outputs += usize::from(tx.outputs.len() == 2);
            self.consolidations += usize::from((20..=200).contains(&tx.inputs.len()));
            self.several_pages += usize::from(tx.outputs.len() > PAGE_SIZE as usize);
            self.data += usize::from(tx.outputs.iter().any(|output| !output.spendable));
            let mut body = Writer::with_capacity(64);
            TxBody::encode_tx(tx, &mut body);
            self.big += usize::from(body.finish().len() > 32 * 1024);
            for input in &tx.inputs {
                let (made_at, coinbase) = self.made_at[&input.outpoint.txid];
                let age = block.height.above(made_at);
                self.recent += usize::from(age <= 50);
                self.old += usize::from(age > 500);
                self.coinbases_spent += usize::from(coinbase);
            }
            for output in tx.outputs.iter().filter(|output| output.spendable) {
                *self.scripts.entry(output.script.clone()).or_default() += 1;
            }
        }
    }

    fn share(&self, part: usize) -> f64 {
        part as f64 / self.txs as f64
    }
}

#[test]
fn default_chain_has_the_figures_of_a_real_one() {
    let mut figures = Figures::default();
    let mut top = None;
    // Plenty to spend, so that nothing is ever short.
    let options =
        SyntheticOptions { first_outputs: 50_000, reorg_probability: 0.0, ..SyntheticOptions::default() };
    checked(options, 1_500, |chain, step| {
        top = chain.address(0);
        step.blocks().iter().for_each(|block| figures.add(block, block.height >= Height(200)));
    });
    assert_eq!(figures.txs, 99 * 1_300);
    assert!((2.2..3.2).contains(&figures.share(figures.inputs)), "{}", figures.share(figures.inputs));
    assert!((2.5..3.5).contains(&figures.share(figures.outputs)), "{}", figures.share(figures.outputs));
    assert!(figures.share(figures.single_or_double) > 0.7);
    assert!(figures.share(figures.two_outputs) > 0.6);
    assert!((0.003..0.008).contains(&figures.share(figures.consolidations)));
    assert!((0.001..0.004).contains(&figures.share(figures.several_pages)));
    assert!((0.04..0.06).contains(&figures.share(figures.data)));
    assert!(figures.big > 5, "{}", figures.big);
    let recent = figures.recent as f64 / figures.inputs as f64;
    assert!((0.65..0.75).contains(&recent), "{recent}");
    assert!(figures.old > 1_000, "{}", figures.old);
    assert!(figures.coinbases_spent > 1_000, "{}", figures.coinbases_spent);
    // The address of the first rank is the most frequent, and it is paid far more often than most.
    let paid = figures.scripts[&top.unwrap()];
    assert_eq!(figures.scripts.values().max(), Some(&paid));
    assert!(paid as f64 > 0.03 * figures.outputs as f64, "{paid} of {}", figures.outputs);
    let once = figures.scripts.values().filter(|times| **times == 1).count();
    assert!(once as f64 > 0.3 * figures.outputs as f64);
}

#[test]
fn benchmark_blocks_are_what_they_promise() {
    let mut figures = Figures::default();
    let options =
        SyntheticOptions { first_outputs: 200_000, txs_per_block: 1_000, ..SyntheticOptions::benchmark() };
    let mut blocks = 0;
    checked(options, 60, |chain, step| {
        let count = chain.began_at() != Some(step.blocks()[0].height) && !chain.is_beginning();
        blocks += usize::from(count);
        assert!(step.seen.is_empty() && step.expired.is_empty() && step.losers.is_empty());
        assert_eq!(chain.remembered(), 0);
        figures.add(&step.blocks()[0], count);
    });
    assert_eq!(figures.txs, 999 * blocks);
    assert!(blocks > 30);
    assert!((1.9..2.1).contains(&figures.share(figures.inputs)));
    assert!((2.1..2.3).contains(&figures.share(figures.outputs)));
    let recent = figures.recent as f64 / figures.inputs as f64;
    assert!(recent > 0.65, "{recent}");
    assert_eq!(figures.data + figures.several_pages + figures.consolidations + figures.big, 0);
    assert!(figures.scripts.values().all(|times| *times == 1));
}

#[test]
fn outputs_stay_below_what_was_asked() {
    let options = SyntheticOptions { most_outputs: 6_000, ..SyntheticOptions::default() };
    let mut most = 0;
    checked(options, 1_000, |chain, _| most = chain.spendable_outputs().max(most));
    assert!((6_000..12_000).contains(&most), "{most}");
}
