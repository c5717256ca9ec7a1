//! Why blocks could not be applied or taken back.

use sapwood_types::{BlockHash, BlockMark, Height, OutPoint, TxId};

use super::{ConflictError, InputRefusal, StoreError};

/// Why a block could not be applied. Nothing is written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// It is not the next block.
    #[error("block {hash} has height {height}, the next one is {expected}")]
    NotNext {
        /// The block.
        hash: BlockHash,
        /// Its height.
        height: Height,
        /// The height that comes next.
        expected: Height,
    },
    /// It follows another block than the last applied one.
    #[error("block {hash} at height {height} follows {parent}, but the last applied block is {last}")]
    WrongParent {
        /// The block.
        hash: BlockHash,
        /// Its height.
        height: Height,
        /// The block it follows.
        parent: BlockHash,
        /// The last applied block.
        last: BlockHash,
    },
    /// The last applied block has the greatest height there is.
    #[error(
        "block {hash} at height {height} cannot follow: the last applied block, {last}, has the last height there is"
    )]
    NoHeightLeft {
        /// The block.
        hash: BlockHash,
        /// Its height.
        height: Height,
        /// The last applied block.
        last: BlockMark,
    },
    /// The greatest number there is was given to a block. To give it to another one too would make two blocks one.
    #[error(
        "block {hash} at height {height} has no number: the greatest there is, {}, is given away, and numbers only go up. Give \
         the block one that is free (`block_id`)",
        u32::MAX
    )]
    NoBlockIdLeft {
        /// The block.
        hash: BlockHash,
        /// Its height.
        height: Height,
    },
    /// One of its transactions is wrong.
    #[error("block {hash} at height {height}: transaction {txid}: {problem}")]
    Tx {
        /// The block.
        hash: BlockHash,
        /// Its height.
        height: Height,
        /// The transaction.
        txid: TxId,
        /// What is wrong with it.
        problem: Box<TxProblem>,
    },
    /// The engine failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What is wrong with a transaction of a block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TxProblem {
    /// An input cannot be spent.
    #[error("{0}")]
    Input(InputRefusal),
    /// An input's transaction is stored but neither mined nor in this block before it.
    #[error("input {vin} ({outpoint}) spends a transaction that is neither mined nor earlier in this block")]
    ParentUnmined {
        /// The input.
        vin: u32,
        /// What it spends.
        outpoint: OutPoint,
    },
    /// An input spends what only it or a later transaction of the block makes.
    #[error("input {vin} ({outpoint}) spends what only a later transaction of the block makes")]
    OutOfOrder {
        /// The input.
        vin: u32,
        /// What it spends.
        outpoint: OutPoint,
    },
    /// The block has it twice.
    #[error("the block has it twice")]
    Twice,
    /// It is mined already, and some of its outputs are unspent (BIP 30).
    #[error("a transaction of this id is already mined and has {unspent} unspent outputs")]
    Duplicate {
        /// How many are unspent.
        unspent: u32,
    },
    /// It has no outputs.
    #[error("it has no outputs")]
    NoOutputs,
    /// It makes more than it spends.
    #[error("it spends {spends} and makes {makes}: {} more than there is", .makes - .spends)]
    MakesMore {
        /// What its inputs are worth.
        spends: u128,
        /// What its outputs are worth.
        makes: u128,
    },
    /// The coinbase takes more than the block's subsidy and fees.
    #[error("the coinbase takes {takes}, but the subsidy and the fees of the block are {allowed}")]
    TakesMore {
        /// What it takes.
        takes: u128,
        /// What it may take.
        allowed: u128,
    },
    /// It wins against an unmined transaction that cannot lose.
    #[error("its rival cannot lose: {0}")]
    Rival(Box<ConflictError>),
}

/// Why blocks could not be taken back. Nothing is changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RollbackError {
    /// No block has been applied.
    #[error("no block has been applied yet")]
    Empty,
    /// The target is not below the last applied block.
    #[error("cannot roll back to height {target}: the last applied block is {last}")]
    NotBelow {
        /// The height asked for.
        target: Height,
        /// The last applied block.
        last: BlockMark,
    },
    /// The target lies outside the window.
    #[error("cannot roll back to height {target}: the lowest height that can be reached is {floor}")]
    BelowFloor {
        /// The height asked for.
        target: Height,
        /// The lowest height that can be.
        floor: Height,
    },
    /// The block at the target height is another one.
    #[error("the block at height {target} is {found}, not {expected}")]
    OtherBlock {
        /// The height asked for.
        target: Height,
        /// The block there.
        found: BlockHash,
        /// The block expected.
        expected: BlockHash,
    },
    /// An undo record is missing although it lies inside the window.
    #[error("the undo record of height {height} is missing: the store is damaged, run `sapwood verify`")]
    UndoMissing {
        /// Which.
        height: Height,
    },
    /// A transaction could not be taken back.
    #[error("transaction {txid} cannot be taken back: {problem}")]
    Tx {
        /// Which.
        txid: TxId,
        /// Why.
        problem: Box<ConflictError>,
    },
    /// The engine failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
