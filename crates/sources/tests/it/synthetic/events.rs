//! Reorganisations, and what becomes of transactions that were seen before they were mined.

use std::collections::{BTreeMap, HashMap, HashSet};

use sapwood_sources::synthetic::{Outcome, SyntheticChain, SyntheticOptions};
use sapwood_types::{Height, OutPoint, TxId};

use crate::synthetic::{busy, checked, checker::Checker};

#[test]
fn reorganisations_have_every_depth_up_to_the_greatest() {
    let mut depths = BTreeMap::<usize, usize>::new();
    let (mut lost_txs, mut mined_again) = (0, 0);
    checked(busy(1), 3_000, |_, step| {
        if let Outcome::Reorganised { lost, made, .. } = &step.outcome {
            *depths.entry(lost.len()).or_default() += 1;
            assert_eq!(made.len(), lost.len() + 1);
            let ids = |blocks: &[std::sync::Arc<sapwood_types::Block>]| -> HashSet<TxId> {
                blocks
                    .iter()
                    .flat_map(|block| &block.txs)
                    .filter(|tx| !tx.coinbase)
                    .map(|tx| tx.txid)
                    .collect()
            };
            lost_txs += ids(lost).len();
            mined_again += ids(lost).intersection(&ids(made)).count();
        }
    });
    assert_eq!(depths.keys().copied().collect::<Vec<_>>(), (1..=12).collect::<Vec<_>>());
    let count: usize = depths.values().sum();
    assert!((240..360).contains(&count), "{count}");
    let share = mined_again as f64 / lost_txs as f64;
    assert!((0.6..0.9).contains(&share), "{share}");
}

#[test]
fn without_reorganisations_the_chain_only_grows() {
    let mut steps = 0;
    checked(SyntheticOptions { reorg_probability: 0.0, ..busy(1) }, 300, |chain, step| {
        steps += 1;
        assert!(matches!(step.outcome, Outcome::Extended(_)));
        assert_eq!(chain.tip().unwrap().height, Height(steps - 1));
    });
}

/// Follows every transaction that is seen to its end, on a chain that only grows.
#[test]
fn what_was_seen_is_mined_soon_or_late_or_never_or_loses() {
    let options = SyntheticOptions { reorg_probability: 0.0, ..busy(7) };
    let mut waiting = HashMap::<TxId, Height>::new();
    let mut delays = Vec::new();
    let (mut children, mut expired, mut lost) = (0, 0, 0);
    let mut rivals = HashMap::<TxId, TxId>::new();
    let (mut unseen_rivals, mut seen_rivals) = (0, 0);
    checked(options.clone(), 2_000, |chain, step| {
        let next = chain.tip().unwrap().height;
        for txid in &step.expired {
            let since = waiting.remove(txid).unwrap();
            expired += 1;
            assert!(next.above(since) <= options.expire_after);
        }
        for seen in &step.seen {
            match seen.rival_of {
                Some(of) => assert!(rivals.insert(seen.tx.txid, of).is_none() && waiting.contains_key(&of)),
                None => assert!(waiting.insert(seen.tx.txid, next).is_none()),
            }
            let unmined_parent = |input: &sapwood_types::Input| waiting.contains_key(&input.outpoint.txid);
            children += usize::from(seen.tx.inputs.iter().any(unmined_parent));
        }
        let mined: HashSet<TxId> = step.blocks()[0].txs.iter().map(|tx| tx.txid).collect();
        for txid in &mined {
            delays.extend(waiting.remove(txid).map(|since| next.above(since)));
        }
        let mut beaten: HashSet<TxId> = step.losers.iter().copied().collect();
        for txid in &step.losers {
            waiting.remove(txid).unwrap();
            lost += 1;
        }
        for rival in &mined {
            if let Some(of) = rivals.remove(rival) {
                assert!(beaten.remove(&of), "{rival} was mined, so {of} has lost");
                seen_rivals += 1;
            }
        }
        unseen_rivals += beaten.len();
    });
    let soon = delays.iter().filter(|delay| **delay < options.delay).count();
    let late = delays.iter().filter(|delay| (20..=40).contains(*delay)).count();
    assert!(soon > 5_000, "{soon}");
    assert!(late > 600, "{late}");
    assert!(children > 2_000, "{children}");
    assert!(expired > 600, "{expired}");
    assert!(lost > 600, "{lost}");
    assert!(seen_rivals > 200, "{seen_rivals}");
    assert!(unseen_rivals > 200, "{unseen_rivals}");
    assert!(waiting.len() < 1_500, "{} wait", waiting.len());
}

#[test]
fn late_ones_can_be_later_than_any_retention() {
    let options = SyntheticOptions {
        late: 1.0,
        never: 0.0,
        double_spends: 0.0,
        late_blocks: (300, 310),
        expire_after: 311,
        reorg_probability: 0.0,
        ..busy(2)
    };
    let mut waiting = HashMap::<TxId, Height>::new();
    let mut mined = 0;
    checked(options, 700, |chain, step| {
        let next = chain.tip().unwrap().height;
        waiting.extend(step.seen.iter().map(|seen| (seen.tx.txid, next)));
        for since in step.blocks()[0].txs.iter().filter_map(|tx| waiting.remove(&tx.txid)) {
            mined += 1;
            assert!(next.above(since) >= 300);
        }
    });
    assert!(mined > 1_000, "{mined}");
}

#[test]
fn an_output_is_held_by_one_unmined_transaction_at_a_time() {
    let mut holders = HashMap::<OutPoint, TxId>::new();
    let mut held = HashMap::<TxId, Vec<OutPoint>>::new();
    checked(SyntheticOptions { reorg_probability: 0.0, ..busy(11) }, 500, |_, step| {
        let mut let_go = |txid: &TxId, held: &mut HashMap<TxId, Vec<OutPoint>>| {
            held.remove(txid).into_iter().flatten().for_each(|outpoint| {
                holders.remove(&outpoint);
            });
        };
        step.expired.iter().for_each(|txid| let_go(txid, &mut held));
        for seen in step.seen.iter().filter(|seen| seen.rival_of.is_none()) {
            let inputs: Vec<OutPoint> = seen.tx.inputs.iter().map(|input| input.outpoint).collect();
            for outpoint in &inputs {
                let other = holders.insert(*outpoint, seen.tx.txid);
                assert_eq!(other, None, "{outpoint} is held already");
            }
            held.insert(seen.tx.txid, inputs);
        }
        let mut let_go = |txid: &TxId| {
            held.remove(txid).into_iter().flatten().for_each(|outpoint| {
                holders.remove(&outpoint);
            });
        };
        step.losers.iter().for_each(&mut let_go);
        step.blocks().iter().flat_map(|block| &block.txs).for_each(|tx| let_go(&tx.txid));
    });
}

#[test]
fn a_rejected_block_is_never_part_of_the_chain_again() {
    let options = busy(9);
    let mut chain = SyntheticChain::new(options.clone()).unwrap();
    let mut checker = Checker::new(options.coinbase_maturity);
    let step = |chain: &mut SyntheticChain, checker: &mut Checker| {
        let beginning = chain.is_beginning();
        checker.step(&chain.step(), beginning);
    };
    (0..60).for_each(|_| step(&mut chain, &mut checker));
    for depth in 0..10 {
        let tip = chain.tip().unwrap().height;
        let bad = chain.hash_at(tip.minus(depth)).unwrap();
        assert!(chain.reject(&bad));
        (0..=depth).for_each(|_| checker.take_back());
        assert_eq!(chain.tip().map(|tip| (tip.height, tip.hash)), checker.tip());
        assert!(chain.reject(&bad), "once more changes nothing");
        assert!(!chain.header(&bad).unwrap().on_best_chain);
        (0..20).for_each(|_| step(&mut chain, &mut checker));
    }
    let tip = chain.tip().unwrap().height;
    assert!(!chain.reject(&chain.hash_at(tip.minus(20)).unwrap()), "too deep");
    assert!(!chain.reject(&chain.hash_at(Height(0)).unwrap()));
    assert!(!chain.reject(&sapwood_types::BlockHash([7; 32])));
    assert_eq!(chain.tip().unwrap().height, tip);
}
