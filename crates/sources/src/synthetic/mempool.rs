//! Transactions that were seen and are not mined.

use std::collections::{BTreeMap, HashMap};

use sapwood_types::{OutPoint, Tx, TxId};

use super::{
    coins::{Coin, Coins, Origin, Taken},
    random::Random,
};

/// What will become of an unmined transaction.
#[derive(Clone, Debug)]
pub(super) enum Fate {
    /// It is mined at this height, or as soon as there is room.
    Mined { at: u32 },
    /// This rival, which spends the same first output, is mined instead of it.
    Loses { at: u32, rival: Box<Tx> },
    /// Nothing, until nobody remembers it.
    Never,
}

/// An unmined transaction.
pub(super) struct Unmined {
    pub(super) tx: Tx,
    /// What it spends, in the order of its inputs.
    pub(super) spends: Vec<Taken>,
    pub(super) fate: Fate,
    /// When it is forgotten, if it is never mined.
    pub(super) expires: u32,
    /// The outputs no other unmined transaction spends.
    free: Vec<u32>,
    /// Who spends the others, by number. Some may be gone.
    children: Vec<u64>,
}

impl Unmined {
    pub(super) fn new(tx: Tx, spends: Vec<Taken>, fate: Fate, expires: u32) -> Self {
        let free =
            (0..).zip(&tx.outputs).filter(|(_, output)| output.spendable).map(|(vout, _)| vout).collect();
        Self { tx, spends, fate, expires, free, children: Vec::new() }
    }

    /// The coins that nobody spends yet.
    pub(super) fn free_coins(&self) -> impl Iterator<Item = Coin> + '_ {
        self.free.iter().filter_map(|vout| self.coin(*vout))
    }

    fn coin(&self, vout: u32) -> Option<Coin> {
        let output = self.tx.outputs.get(vout as usize)?;
        Some(Coin::new(OutPoint::new(self.tx.txid, vout), output.value))
    }
}

/// All unmined transactions, numbered so that parents come before children.
pub(super) struct Mempool {
    entries: BTreeMap<u64, Unmined>,
    numbers: HashMap<TxId, u64>,
    next: u64,
    /// Which are mined or beaten by a rival at a height.
    due: BTreeMap<u32, Vec<u64>>,
    /// Which are forgotten at a height.
    expiring: BTreeMap<u32, Vec<u64>>,
    coinbase_maturity: u32,
}

impl Mempool {
    pub(super) fn new(coinbase_maturity: u32) -> Self {
        Self {
            entries: BTreeMap::new(),
            numbers: HashMap::new(),
            next: 0,
            due: BTreeMap::new(),
            expiring: BTreeMap::new(),
            coinbase_maturity,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds a transaction whose unmined parents are here. It is mined no earlier than they are, and if they never are, neither
    /// is it.
    pub(super) fn insert(&mut self, mut new: Unmined) {
        let number = self.next;
        self.next += 1;
        for spent in &new.spends {
            let spendable_from = match spent.origin {
                Origin::Coinbase(height) => Some(height.saturating_add(self.coinbase_maturity)),
                Origin::Unmined => self.take_from_parent(spent.coin.outpoint(), number),
                Origin::Old | Origin::Block(_) => continue,
            };
            match (&mut new.fate, spendable_from) {
                (Fate::Mined { at } | Fate::Loses { at, .. }, Some(from)) => *at = from.max(*at),
                (fate, _) => *fate = Fate::Never,
            }
        }
        match new.fate {
            Fate::Mined { at } | Fate::Loses { at, .. } => self.due.entry(at).or_default().push(number),
            Fate::Never => self.expiring.entry(new.expires).or_default().push(number),
        }
        self.numbers.insert(new.tx.txid, number);
        self.entries.insert(number, new);
    }

    /// Lets a child spend an output of its parent. Returns when the parent is mined, if it will be.
    fn take_from_parent(&mut self, outpoint: OutPoint, child: u64) -> Option<u32> {
        let parent = self.entries.get_mut(self.numbers.get(&outpoint.txid)?)?;
        parent.free.retain(|vout| *vout != outpoint.vout);
        parent.children.push(child);
        match parent.fate {
            Fate::Mined { at } => Some(at),
            Fate::Loses { .. } | Fate::Never => None,
        }
    }

    /// An output of some unmined transaction that no other spends. It is taken when the child is inserted.
    pub(super) fn free_output(&self, random: &mut Random) -> Option<Taken> {
        let (first, _) = self.entries.first_key_value()?;
        let drawn = first + random.below(self.next - first);
        let (_, parent) = self.entries.range(drawn..).next()?;
        let vout = parent.free.get(random.place(parent.free.len()))?;
        Some(Taken { coin: parent.coin(*vout)?, origin: Origin::Unmined })
    }

    /// What is due at a height, parents before children.
    pub(super) fn due(&mut self, height: u32) -> Vec<u64> {
        take_up_to(&mut self.due, height)
    }

    /// Puts off what was due.
    pub(super) fn put_off(&mut self, number: u64, to: u32) {
        self.due.entry(to).or_default().push(number);
    }

    pub(super) fn fate(&self, number: u64) -> Option<&Fate> {
        self.entries.get(&number).map(|entry| &entry.fate)
    }

    /// Takes out a transaction that is mined at a height. Its children spend mined coins from now on.
    pub(super) fn mine(&mut self, number: u64, height: u32) -> Option<Unmined> {
        let mined = self.entries.remove(&number)?;
        self.numbers.remove(&mined.tx.txid);
        for child in &mined.children {
            let Some(child) = self.entries.get_mut(child) else { continue };
            for spent in &mut child.spends {
                if spent.coin.outpoint().txid == mined.tx.txid {
                    spent.origin = Origin::Block(height);
                }
            }
        }
        Some(mined)
    }

    /// Lets a rival win: returns it, what it spends, and the losers. Nothing if that is not mined yet.
    pub(super) fn beat(&mut self, number: u64, coins: &mut Coins) -> Option<(Tx, Taken, Vec<TxId>)> {
        let loser = self.entries.get_mut(&number)?;
        let first = loser.spends.first().filter(|spent| spent.origin != Origin::Unmined).copied()?;
        let Fate::Loses { rival, .. } = &loser.fate else { return None };
        let rival = rival.as_ref().clone();
        loser.spends.remove(0);
        Some((rival, first, self.remove(number, coins)))
    }

    /// Forgets what nobody remembers any more at a height. Returns it, children before parents.
    pub(super) fn expire(&mut self, height: u32, coins: &mut Coins) -> Vec<TxId> {
        let expiring = take_up_to(&mut self.expiring, height);
        expiring.into_iter().flat_map(|number| self.remove(number, coins)).collect()
    }

    /// Removes a transaction with its descendants, and gives back what they spend. Returns them, children before parents.
    fn remove(&mut self, number: u64, coins: &mut Coins) -> Vec<TxId> {
        let (mut found, mut next) = (Vec::new(), vec![number]);
        while let Some(number) = next.pop() {
            if let Some(entry) = self.entries.get(&number) {
                found.push(number);
                next.extend(&entry.children);
            }
        }
        // One can descend in several ways.
        found.sort_unstable();
        found.dedup();
        let mut removed = Vec::with_capacity(found.len());
        for number in found.into_iter().rev() {
            let Some(entry) = self.entries.remove(&number) else { continue };
            self.numbers.remove(&entry.tx.txid);
            entry.spends.into_iter().for_each(|spent| self.give_back(spent, coins));
            removed.push(entry.tx.txid);
        }
        removed
    }

    /// Somebody does not spend a coin after all.
    pub(super) fn give_back(&mut self, spent: Taken, coins: &mut Coins) {
        let outpoint = spent.coin.outpoint();
        let parent = self.numbers.get(&outpoint.txid).and_then(|number| self.entries.get_mut(number));
        match (spent.origin, parent) {
            (Origin::Unmined, Some(parent)) => parent.free.push(outpoint.vout),
            (Origin::Unmined, None) => {}
            _ => coins.give_back(spent),
        }
    }

    /// Takes out everything, parents before children.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Unmined> + use<> {
        self.numbers.clear();
        self.due.clear();
        self.expiring.clear();
        std::mem::take(&mut self.entries).into_values()
    }
}

fn take_up_to(calendar: &mut BTreeMap<u32, Vec<u64>>, height: u32) -> Vec<u64> {
    let mut due = Vec::new();
    while let Some(first) = calendar.first_entry().filter(|first| *first.key() <= height) {
        due.extend(first.remove());
    }
    due.sort_unstable();
    due
}
