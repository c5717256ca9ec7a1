//! What a synthetic chain looks like.

/// What a synthetic chain looks like. The same options give the same chain.
#[derive(Clone, Debug, PartialEq)]
pub struct SyntheticOptions {
    /// Where chance begins.
    pub seed: u64,
    /// Transactions in a block, the coinbase among them. A block has fewer if there is nothing left to spend.
    pub txs_per_block: u32,
    /// Outputs to begin with. The first blocks make them out of nothing, in transactions without inputs.
    pub first_outputs: u64,
    /// Above this many spendable outputs, transactions make no more outputs than they spend.
    pub most_outputs: u64,
    /// Blocks until a coinbase can be spent.
    pub coinbase_maturity: u32,
    /// How many addresses are paid again and again. The first ones by far the most often, as in Zipf's law.
    pub addresses: u32,
    /// The share of outputs that pay one of them. The others pay an address of their own.
    pub repeated_addresses: f64,
    /// The share of transactions that gather 20 to 200 inputs into one output.
    pub consolidations: f64,
    /// The share of transactions that pay 130 to 600 recipients.
    pub batches: f64,
    /// The share of transactions with over a thousand inputs, whose body is above 32 KiB even without scripts.
    pub big: f64,
    /// The share of transactions with a data output, which can never be spent.
    pub data: f64,
    /// Transactions seen before they are mined, for each step of the chain.
    pub unmined_per_block: u32,
    /// The most blocks until an ordinary one of them is mined.
    pub delay: u32,
    /// The share of them that spend an output of another unmined transaction.
    pub children: f64,
    /// The share of them that are mined late.
    pub late: f64,
    /// How many blocks later that is, at least and at most. Beyond the retention of what is tested, if that is the point.
    pub late_blocks: (u32, u32),
    /// The share of them that are never mined.
    pub never: f64,
    /// The share of them that lose against a rival in a block.
    pub double_spends: f64,
    /// After how many blocks everybody forgets a transaction that is never mined. Then others can spend what it spent.
    pub expire_after: u32,
    /// How likely a step is a reorganisation.
    pub reorg_probability: f64,
    /// The most blocks a reorganisation takes back.
    pub max_reorg_depth: u32,
    /// The share of what a reorganisation took back that its new branch mines again. Others follow later, lose against a
    /// rival, or are never mined.
    pub mined_again: f64,
    /// How many of the newest blocks are remembered: they can be read, and taken back.
    pub remember: u32,
}

impl Default for SyntheticOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            txs_per_block: 100,
            first_outputs: 5_000,
            most_outputs: 1_000_000,
            coinbase_maturity: 100,
            addresses: 1_000,
            repeated_addresses: 0.5,
            consolidations: 0.005,
            batches: 0.002,
            big: 0.000_2,
            data: 0.05,
            unmined_per_block: 20,
            delay: 6,
            children: 0.2,
            late: 0.03,
            late_blocks: (100, 400),
            never: 0.02,
            double_spends: 0.02,
            expire_after: 2_016,
            reorg_probability: 0.01,
            max_reorg_depth: 6,
            mined_again: 0.8,
            remember: 1_000,
        }
    }
}

/// Why options make no chain.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OptionsError {
    /// A share or a probability is not one.
    #[error("`{name}` is {value}, but has to be from 0 to 1")]
    NotAShare {
        /// The option.
        name: &'static str,
        /// What it says.
        value: f64,
    },
    /// Shares of the same thing are more than all of it.
    #[error("`{names}` are shares of the same transactions, but are {sum} together: make them at most 1")]
    TooMuch {
        /// The options.
        names: &'static str,
        /// Their sum.
        sum: f64,
    },
    /// A number is out of its range.
    #[error("`{name}` is {value}, but has to be from {least} to {most}")]
    OutOfRange {
        /// The option.
        name: &'static str,
        /// What it says.
        value: u64,
        /// The least that makes sense.
        least: u64,
        /// The most that makes sense.
        most: u64,
    },
    /// More transactions are seen than blocks have room for.
    #[error(
        "`unmined_per_block` is {unmined}, but a block of {room} transactions cannot keep up with that: make it at most \
         half of `txs_per_block`"
    )]
    NoRoom {
        /// How many are seen for each block.
        unmined: u32,
        /// Transactions in a block.
        room: u32,
    },
    /// A reorganisation would take back more than is remembered.
    #[error("`max_reorg_depth` is {depth}, but only {remember} blocks are remembered: raise `remember`")]
    TooDeep {
        /// The most blocks to take back.
        depth: u32,
        /// How many are remembered.
        remember: u32,
    },
}

/// The most transactions of a block. More than any chain has; beyond it a typing error is more likely.
pub const MOST_TXS: u32 = 1_000_000;

impl SyntheticOptions {
    /// The blocks that benchmarks apply: 4,000 transactions of 2 inputs and 2.2 outputs on average, 70 % of the inputs from the
    /// last 50 blocks, starting from a million outputs. Nothing else happens, and no block is remembered.
    pub fn benchmark() -> Self {
        Self {
            txs_per_block: 4_000,
            first_outputs: 1_000_000,
            most_outputs: u64::MAX,
            addresses: 0,
            repeated_addresses: 0.0,
            consolidations: 0.0,
            batches: 0.0,
            big: 0.0,
            data: 0.0,
            unmined_per_block: 0,
            reorg_probability: 0.0,
            max_reorg_depth: 0,
            remember: 0,
            ..Self::default()
        }
    }

    /// Checks that a chain can be made of them.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let shares = [
            ("repeated_addresses", self.repeated_addresses),
            ("consolidations", self.consolidations),
            ("batches", self.batches),
            ("big", self.big),
            ("data", self.data),
            ("children", self.children),
            ("late", self.late),
            ("never", self.never),
            ("double_spends", self.double_spends),
            ("reorg_probability", self.reorg_probability),
            ("mined_again", self.mined_again),
        ];
        for (name, value) in shares {
            // Not a number is in no range either.
            if !(0.0..=1.0).contains(&value) {
                return Err(OptionsError::NotAShare { name, value });
            }
        }
        at_most_all("consolidations, batches, big", self.consolidations + self.batches + self.big)?;
        at_most_all("late, never, double_spends", self.late + self.never + self.double_spends)?;
        in_range("txs_per_block", self.txs_per_block.into(), 1, MOST_TXS.into())?;
        in_range("most_outputs", self.most_outputs, self.first_outputs, u64::MAX)?;
        let fewest_addresses = u64::from(self.repeated_addresses > 0.0);
        in_range("addresses", self.addresses.into(), fewest_addresses, u32::MAX.into())?;
        let (soonest, latest) = self.late_blocks;
        in_range("delay", self.delay.into(), 1, soonest.into())?;
        in_range("late_blocks", soonest.into(), 1, latest.into())?;
        in_range("expire_after", self.expire_after.into(), u64::from(latest) + 1, u32::MAX.into())?;
        if self.unmined_per_block > self.txs_per_block / 2 {
            return Err(OptionsError::NoRoom { unmined: self.unmined_per_block, room: self.txs_per_block });
        }
        let least_depth = u64::from(self.reorg_probability > 0.0);
        in_range("max_reorg_depth", self.max_reorg_depth.into(), least_depth, u32::MAX.into())?;
        if self.max_reorg_depth > self.remember {
            return Err(OptionsError::TooDeep { depth: self.max_reorg_depth, remember: self.remember });
        }
        Ok(())
    }
}

fn at_most_all(names: &'static str, sum: f64) -> Result<(), OptionsError> {
    if sum <= 1.0 { Ok(()) } else { Err(OptionsError::TooMuch { names, sum }) }
}

pub(super) fn in_range(name: &'static str, value: u64, least: u64, most: u64) -> Result<(), OptionsError> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(OptionsError::OutOfRange { name, value, least, most })
    }
}
