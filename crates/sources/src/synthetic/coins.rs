//! What can be spent, by age.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
};

use sapwood_types::{OutPoint, TxId};

use super::random::Random;

/// Spends younger than this many blocks are "recent".
const RECENT_BLOCKS: usize = 50;
/// The probability that an input spends a recent output.
const RECENT: f64 = 0.7;
/// Of those that do not, how many spend from the remembered blocks rather than from all before, where there are both.
const MIDDLE: f64 = 0.5;

/// An output that can be spent. There may be tens of millions, so it is packed: 44 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coin {
    txid: TxId,
    vout: u32,
    value: [u8; 8],
}

impl Coin {
    pub(super) fn new(outpoint: OutPoint, value: u64) -> Self {
        Self { txid: outpoint.txid, vout: outpoint.vout, value: value.to_ne_bytes() }
    }

    pub(super) fn outpoint(&self) -> OutPoint {
        OutPoint::new(self.txid, self.vout)
    }

    pub(super) fn value(&self) -> u64 {
        u64::from_ne_bytes(self.value)
    }
}

/// Where a coin was taken from, and where it is given back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A block so old that its height does not matter any more.
    Old,
    /// The block at this height.
    Block(u32),
    /// The coinbase at this height.
    Coinbase(u32),
    /// A transaction that is not mined.
    Unmined,
}

impl Origin {
    /// Whether a chain that ends at this height has the coin.
    pub(super) fn is_mined_by(self, height: u32) -> bool {
        match self {
            Origin::Old => true,
            Origin::Block(at) | Origin::Coinbase(at) => at <= height,
            Origin::Unmined => false,
        }
    }
}

/// A coin that somebody spends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub(super) coin: Coin,
    pub(super) origin: Origin,
}

/// Everything mined that can be spent and is not held by an unmined transaction.
pub(super) struct Coins {
    /// What each of the newest blocks made, oldest first.
    blocks: VecDeque<Vec<Coin>>,
    /// How many of them to hold apart: they may be taken back.
    apart: usize,
    /// The height of the block after the last of them.
    next: u32,
    /// What the block in hand made so far. Not to be spent yet.
    in_hand: Vec<Coin>,
    /// What all blocks before made.
    old: Bag,
    /// One for each block, held apart because they have to mature.
    coinbases: BTreeMap<u32, Coin>,
    count: u64,
}

impl Coins {
    /// None so far. Blocks can be taken back if no more than `remember` follow.
    pub(super) fn new(remember: u32) -> Self {
        Self {
            blocks: VecDeque::new(),
            apart: RECENT_BLOCKS.max(remember as usize),
            next: 0,
            in_hand: Vec::new(),
            old: Bag::default(),
            coinbases: BTreeMap::new(),
            count: 0,
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.count + self.coinbases.len() as u64
    }

    /// A coin from before the block in hand, of an age as on a real chain. Nothing if there is none.
    pub(super) fn take(&mut self, random: &mut Random) -> Option<Taken> {
        let all = self.blocks.len();
        let recent = RECENT_BLOCKS.min(all);
        if random.chance(RECENT)
            && let Some(taken) = self.take_from_blocks(0..recent, random)
        {
            return Some(taken);
        }
        let middle = all > recent && random.chance(MIDDLE);
        if middle && let Some(taken) = self.take_from_blocks(recent..all, random) {
            return Some(taken);
        }
        if let Some(coin) = self.old.take(random) {
            self.count -= 1;
            return Some(Taken { coin, origin: Origin::Old });
        }
        self.take_from_blocks(recent..all, random).or_else(|| self.take_from_blocks(0..recent, random))
    }

    /// A coin of any of the blocks of these ages.
    fn take_from_blocks(&mut self, ages: Range<usize>, random: &mut Random) -> Option<Taken> {
        let first = ages.start + random.place(ages.len());
        let age = (first..ages.end).chain(ages.start..first).find(|age| {
            let block = self.blocks.len().checked_sub(age + 1).and_then(|at| self.blocks.get(at));
            block.is_some_and(|block| !block.is_empty())
        })?;
        let at = self.blocks.len() - 1 - age;
        let block = self.blocks.get_mut(at)?;
        let coin = block.swap_remove(random.place(block.len()));
        self.count -= 1;
        Some(Taken { coin, origin: Origin::Block(self.lowest() + at as u32) })
    }

    /// A coinbase made at or below a height.
    pub(super) fn take_coinbase(&mut self, up_to: u32, random: &mut Random) -> Option<Taken> {
        let (lowest, _) = self.coinbases.first_key_value()?;
        let drawn = random.between(*lowest, up_to.max(*lowest));
        let height = *self.coinbases.range(..=up_to.min(drawn)).next_back()?.0;
        let coin = self.coinbases.remove(&height)?;
        Some(Taken { coin, origin: Origin::Coinbase(height) })
    }

    /// Somebody does not spend a mined coin after all.
    pub(super) fn give_back(&mut self, taken: Taken) {
        match taken.origin {
            Origin::Coinbase(height) => {
                self.coinbases.insert(height, taken.coin);
                return;
            }
            Origin::Block(height) if height == self.next => self.in_hand.push(taken.coin),
            Origin::Block(height) => {
                let at = height.checked_sub(self.lowest());
                match at.and_then(|at| self.blocks.get_mut(at as usize)) {
                    Some(block) => block.push(taken.coin),
                    None => self.old.push(taken.coin),
                }
            }
            Origin::Old => self.old.push(taken.coin),
            Origin::Unmined => return,
        }
        self.count += 1;
    }

    /// The block in hand makes a coin.
    pub(super) fn make(&mut self, coin: Coin) {
        self.in_hand.push(coin);
        self.count += 1;
    }

    /// The block in hand is done.
    pub(super) fn end_block(&mut self, coinbase: Coin) {
        self.coinbases.insert(self.next, coinbase);
        // The next block will make about as much.
        let next = Vec::with_capacity(self.in_hand.len());
        self.blocks.push_back(std::mem::replace(&mut self.in_hand, next));
        self.next += 1;
        if self.blocks.len() > self.apart {
            self.blocks.pop_front().into_iter().flatten().for_each(|coin| self.old.push(coin));
        }
    }

    /// Forgets what the blocks above a height made.
    pub(super) fn cut_above(&mut self, height: u32) {
        while self.next > height + 1
            && let Some(made) = self.blocks.pop_back()
        {
            self.count -= made.len() as u64;
            self.next -= 1;
            self.coinbases.remove(&self.next);
        }
    }

    fn lowest(&self) -> u32 {
        self.next - self.blocks.len() as u32
    }
}

/// Coins in no order. It grows piece by piece, so it never holds two copies of itself.
#[derive(Default)]
struct Bag {
    pieces: Vec<Vec<Coin>>,
}

/// Coins in a piece: under 3 MiB.
const PIECE: usize = 1 << 16;

impl Bag {
    fn len(&self) -> usize {
        self.pieces.last().map_or(0, |last| (self.pieces.len() - 1) * PIECE + last.len())
    }

    fn push(&mut self, coin: Coin) {
        match self.pieces.last_mut() {
            Some(last) if last.len() < PIECE => last.push(coin),
            _ => self.pieces.push(vec![coin]),
        }
    }

    /// Takes any one, and puts the last in its place.
    fn take(&mut self, random: &mut Random) -> Option<Coin> {
        let at = random.place(self.len());
        let last = self.pieces.last_mut()?.pop()?;
        if self.pieces.last().is_some_and(Vec::is_empty) {
            self.pieces.pop();
        }
        match self.pieces.get_mut(at / PIECE).and_then(|piece| piece.get_mut(at % PIECE)) {
            Some(coin) => Some(std::mem::replace(coin, last)),
            None => Some(last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coin(number: u64) -> Coin {
        Coin::new(OutPoint::new(TxId::default(), number as u32), number)
    }

    #[test]
    fn a_coin_is_44_bytes() {
        assert_eq!(size_of::<Coin>(), 44);
    }

    #[test]
    fn a_bag_gives_each_coin_once() {
        let (mut bag, mut random) = (Bag::default(), Random::new(1));
        let count = PIECE as u64 * 2 + 5;
        (0..count).for_each(|number| bag.push(coin(number)));
        assert_eq!(bag.len() as u64, count);
        let mut taken: Vec<u64> = std::iter::from_fn(|| bag.take(&mut random)).map(|c| c.value()).collect();
        taken.sort_unstable();
        assert!(taken.into_iter().eq(0..count));
        assert_eq!(bag.len(), 0);
    }

    #[test]
    fn what_is_given_back_is_where_it_was() {
        let mut coins = Coins::new(100);
        for height in 0..120 {
            (0..10).for_each(|n| coins.make(coin(height * 10 + n)));
            coins.end_block(coin(9_000 + height));
        }
        let mut random = Random::new(3);
        let taken: Vec<Taken> = std::iter::from_fn(|| coins.take(&mut random)).collect();
        assert_eq!((taken.len(), coins.count), (1_200, 0));
        for taken in &taken {
            let made_at = (taken.coin.value() / 10) as u32;
            let expected = if made_at < 20 { Origin::Old } else { Origin::Block(made_at) };
            assert_eq!(taken.origin, expected);
            coins.give_back(*taken);
        }
        coins.cut_above(109);
        assert_eq!((coins.next, coins.count), (110, 1_100));
        assert!((20..110).all(|height| coins.blocks[height - 20].len() == 10));
        assert_eq!(coins.coinbases.len(), 110);
    }

    #[test]
    fn coinbases_are_taken_up_to_a_height() {
        let mut coins = Coins::new(0);
        (0..20).for_each(|height| coins.end_block(coin(height)));
        let mut random = Random::new(3);
        let mut taken: Vec<u64> = std::iter::from_fn(|| coins.take_coinbase(7, &mut random))
            .map(|taken| taken.coin.value())
            .collect();
        taken.sort_unstable();
        assert_eq!(taken, [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
