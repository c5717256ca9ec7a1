//! What callers ask for.

use std::{fmt, ops::ControlFlow, sync::Arc};

use bytes::Bytes;
use sapwood_rules::{PruneContext, spendability::SpendOverrides};
use sapwood_types::{
    AddressHash, BlockRules, External, Height, MinedIn, OutPoint, Spender, Tx, TxId, UtxoHash,
};

use crate::{
    StoreError,
    answer::{AddressKind, Cursor, Order},
};

/// Called with how many records are done and about how many there are; may end the work.
pub type UtxoProgress = Arc<dyn Fn(u64, u64) -> ControlFlow<()> + Send + Sync>;

/// Refuses a listing of no entries: its page could neither have any nor say where to go on.
///
/// # Errors
/// [`StoreError::BadOption`] for a limit of 0.
pub fn check_limit(limit: usize) -> Result<(), StoreError> {
    if limit > 0 {
        return Ok(());
    }
    Err(StoreError::BadOption { problem: "a page of 0 entries was asked for: ask for at least 1".into() })
}

/// A transaction to store. Unless it is conflicting, its inputs are spent in the same write.
#[derive(Clone, Debug)]
pub struct CreateRequest {
    /// The transaction.
    pub tx: Tx,
    /// The block it is mined in, if it is. Otherwise it is unmined since the height of the call.
    pub mined_in: Option<MinedIn>,
    /// Freeze all its outputs.
    pub frozen: bool,
    /// It is known to lose against another: it is stored, listed by its parents, and holds no output.
    pub conflicting: bool,
    /// Lock its outputs until block assembly accepts it or a block mines it.
    pub locked: bool,
    /// Take inputs whose parents are not stored on trust. For loading coins whose history is not there.
    pub trust_inputs: bool,
    /// Where its body lives, if not in the record.
    pub external: Option<External>,
    /// When it was seen, in milliseconds since 1970.
    pub created_at: u64,
}

impl CreateRequest {
    /// An unmined transaction.
    pub fn unmined(tx: Tx) -> Self {
        Self {
            tx,
            mined_in: None,
            frozen: false,
            conflicting: false,
            locked: false,
            trust_inputs: false,
            external: None,
            created_at: 0,
        }
    }

    /// A transaction that is mined in a block on the longest chain.
    pub fn mined(tx: Tx, block_id: u32, height: Height) -> Self {
        let mined_in = MinedIn { block_id, height, subtree: 0, on_longest_chain: true };
        Self { mined_in: Some(mined_in), ..Self::unmined(tx) }
    }
}

/// Spend inputs of a stored transaction: all of them, or none.
#[derive(Clone, Debug)]
pub struct SpendRequest {
    /// The transaction that spends.
    pub child: TxId,
    /// Which of its inputs.
    pub inputs: Vec<SpendInput>,
    /// Checks to pass over.
    pub overrides: SpendOverrides,
}

/// One input to spend.
#[derive(Clone, Copy, Debug)]
pub struct SpendInput {
    /// The number of the input.
    pub vin: u32,
    /// What it spends.
    pub outpoint: OutPoint,
    /// The hash the output must have, if the caller wants that checked.
    pub expected: Option<UtxoHash>,
}

/// Take a spend back.
#[derive(Clone, Copy, Debug)]
pub struct Unspend {
    /// The output.
    pub outpoint: OutPoint,
    /// Who must be spending it.
    pub spender: Spender,
}

/// Mark transactions as mined in a block, or take that back.
#[derive(Clone, Copy, Debug)]
pub struct MineRequest {
    /// The block, and whether it is on the longest chain.
    pub block: MinedIn,
    /// Take it back instead.
    pub unset: bool,
}

/// Give a frozen output to another owner.
#[derive(Clone, Debug)]
pub struct Reassign {
    /// The output.
    pub outpoint: OutPoint,
    /// The hash it must have now.
    pub expected: UtxoHash,
    /// The new owner's locking script or address bytes.
    pub script: Bytes,
    /// The new owner's payment credential, for chains that have them.
    pub credential: Option<AddressHash>,
}

/// What becomes of transactions whose block is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum RollbackMode {
    /// They are unmined again and wait for another block, as a node wants it.
    Node,
    /// Those the block brought are forgotten, as a follower of somebody else's node wants it.
    Follower,
}

/// How to apply a block.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApplyOptions {
    /// The chain's rules for this block.
    pub rules: BlockRules,
    /// The block's number in the store of the caller, if the caller numbers blocks. Otherwise the next free number is taken.
    pub block_id: Option<u32>,
    /// The records of transactions with more than so many bytes, or more than one page of outputs, say that their body lives outside.
    /// Whoever sets this has put those bodies there before: the chain does, see its `BodyKeeper`. Nothing for none.
    pub bodies_above: Option<u32>,
}

/// A page of the address index.
#[derive(Clone, Debug)]
pub struct AddressQuery {
    /// By address or by payment credential.
    pub kind: AddressKind,
    /// Which one.
    pub hash: AddressHash,
    /// Oldest or newest first.
    pub order: Order,
    /// Where the last page ended.
    pub after: Option<Cursor>,
    /// How many at most.
    pub limit: usize,
}

/// Asked whether records may still be deleted, at the last moment at which the answer counts.
#[derive(Clone)]
pub struct Permit(Arc<dyn Fn() -> bool + Send + Sync>);

impl Permit {
    /// A permit that asks this. It is called while no other write can happen, so it must neither wait nor write.
    pub fn new(may_delete: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(may_delete))
    }

    /// Whether records may be deleted now.
    pub fn is_given(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Permit")
    }
}

/// Prune settled records: judge them, and delete those that may go.
#[derive(Clone, Debug)]
pub struct PruneRequest {
    /// Which records.
    pub what: PruneWhat,
    /// What they are judged by.
    pub context: PruneContext,
    /// Read the children too, and keep the record if they do not bear out what it remembers.
    pub check_children: bool,
    /// Spare records whose body lives outside, as [`KeepReason::BodyFirst`](sapwood_rules::KeepReason::BodyFirst): the body has to go
    /// first. The cursor stays before them; delete them by [`PruneWhat::Records`] afterwards.
    pub spare_external: bool,
    /// Only judge: nothing is deleted or spared, and the cursor stays.
    pub dry_run: bool,
    /// Asked in each write, before anything is deleted. If it is not given, the write changes nothing and ends with
    /// [`StoreError::Stopped`]. `None` asks nothing.
    pub permit: Option<Permit>,
}

/// Which records to prune.
#[derive(Clone, Debug)]
pub enum PruneWhat {
    /// Settled records, the lowest height first.
    Settled {
        /// Where to begin.
        from: PruneFrom,
        /// The greatest height at which they settled.
        up_to: Height,
        /// How many to look at, at most.
        limit: usize,
        /// How many are deleted in one write, at most. The cursor moves with each.
        per_write: usize,
    },
    /// These, in one write.
    Records {
        /// Which.
        txids: Vec<TxId>,
        /// Moves the cursor in the same write: `next` of the outcome that spared them, once all that it spared is dealt with. `None` leaves it.
        cursor: Option<Cursor>,
    },
}

/// Where in the list of settled records to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PruneFrom {
    /// At the oldest. The cursor moves with what is done from there on.
    Oldest,
    /// At the ledger's cursor: where the call before got to, also in an earlier process.
    Cursor,
    /// Where an earlier outcome said that the list goes on. The ledger's cursor stays. For dry runs.
    After(Cursor),
}

impl PruneRequest {
    /// Judges and deletes these records, children checked, in one write.
    pub fn records(txids: Vec<TxId>, context: PruneContext) -> Self {
        Self::new(PruneWhat::Records { txids, cursor: None }, context)
    }

    /// Judges and deletes up to `limit` records that settled up to a height, children checked, in one write.
    pub fn settled(from: PruneFrom, up_to: Height, limit: usize, context: PruneContext) -> Self {
        Self::new(PruneWhat::Settled { from, up_to, limit, per_write: limit }, context)
    }

    fn new(what: PruneWhat, context: PruneContext) -> Self {
        Self { what, context, check_children: true, spare_external: false, dry_run: false, permit: None }
    }
}
