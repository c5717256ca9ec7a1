//! A chain that is made up: seeded, deterministic, and with the figures of a real one.
//!
//! For tests, benchmarks, simulations and the demo. The same options give the same bytes, on every machine and whatever the
//! timing of the calls, because every decision is drawn from one stream of random numbers in the order of the calls.
//!
//! **What lives here.** [`SyntheticChain`], which makes the chain one [`Step`] at a time; [`SyntheticSource`], the same chain as
//! a [`BlockSource`](crate::BlockSource); [`SyntheticOptions`], what the chain looks like. **What may not.** Any clock, any
//! source of chance from outside, any floating-point function whose result differs between machines.
//!
//! # What the chain has
//! - Transactions mostly of one or two inputs and two outputs; now and then consolidations of hundreds of inputs, payments to
//!   hundreds of recipients (more than one page of outputs), transactions whose body is above 32 KiB, and data outputs.
//! - 70 % of inputs spend what was made in the last 50 blocks; the others reach back to the beginning.
//! - Amounts add up: a transaction pays a fee of what it does not pass on, and the coinbase takes subsidy and fees.
//! - Addresses that are paid again and again, a few of them very often.
//! - Transactions that are seen before they are mined, most of which are mined a few blocks later, some late, some never; and
//!   some that lose against a rival which spends the same output. They have children, too.
//! - Reorganisations. What the losing branch had mined is mostly mined again.
//!
//! # What it has not
//! Proof of work and signatures: nobody here checks them. A transaction's id is that of its Bitcoin form with empty input
//! scripts; a block's hash is that of a Bitcoin header which commits to its transactions.
//!
//! # Layers
//! - `random`, `options`: chance, and what to do with it.
//! - `coins`: what can be spent, by age. `mempool`: what was seen and is not mined.
//! - `maker`: transactions out of coins. `block`: a block out of transactions.
//! - `chain`: one step after another. `archive`: which blocks are remembered. `source`: all of it behind the interface.
//!
//! # Correctness
//! A coin is in one place: spendable, held by one unmined transaction, or spent. Taking a block back gives each coin it spent to
//! where it came from and turns its transactions into unmined ones, so the next block is made as if the one taken back had
//! never been. The tests replay what comes out on a checker that shares no code with it.

mod archive;
mod block;
mod chain;
mod coins;
mod maker;
mod mempool;
mod options;
mod random;
mod source;

pub use chain::{Outcome, Seen, Step, SyntheticChain};
pub use maker::subsidy;
pub use options::{MOST_TXS, OptionsError, SyntheticOptions};
pub use source::SyntheticSource;
