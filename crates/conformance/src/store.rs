//! What the suite and the state machine need of a store: a [`Ledger`], or the model.
//!
//! **What lives here.** One trait with the ledger's own methods. **What may not.** Anything that only an engine has, such as its statistics or
//! copies: the model has none.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use sapwood_ledger::{
    AddressQuery, Applied, AppliedBlocks, ApplyError, ApplyOptions, BatchResult, ConflictError, Counts,
    CreateError, CreateRequest, Cursor, DeleteError, DueRecord, EachResult, Expired, FreezeError, Judged,
    Ledger, MineError, MineRequest, Page, PreserveError, PruneOutcome, PruneRequest, Reassign, ReassignError,
    RollbackError, RollbackMode, RolledBack, SpendError, SpendRequest, StoreError, UndoDropped, UnminedTx,
    Unspend, UnspendError, Utxo, UtxoProgress, UtxoSet, VerifyReport,
};
use sapwood_rules::{Policy, PruneContext, SpendStatus};
use sapwood_types::{Block, BlockHash, BlockMark, Height, OutPoint, TxId, TxRecord, Undo};

/// Called with how many records were verified, and about how many there are.
pub type VerifyProgress = Arc<dyn Fn(u64, u64) + Send + Sync>;
/// Blocks with how each is applied.
pub type Blocks = Vec<(Arc<Block>, ApplyOptions)>;
/// The block that a rollback leaves as the last one. `None` for all blocks.
pub type Target = Option<(Height, BlockHash)>;

/// Declares [`Store`], and that a ledger is one: each method is the ledger's method of that name.
macro_rules! store {
    ($(fn $name:ident(&self $(, $argument:ident: $type:ty)*) -> $answer:ty;)*) => {
        /// A store under test. [`Ledger`] documents each method.
        #[async_trait]
        pub trait Store: Send + Sync {
            $(
                #[doc = concat!("See [`Ledger::", stringify!($name), "`].")]
                async fn $name(&self $(, $argument: $type)*) -> $answer;
            )*
        }

        #[async_trait]
        impl Store for Ledger {
            $(
                async fn $name(&self $(, $argument: $type)*) -> $answer {
                    Ledger::$name(self $(, $argument)*).await
                }
            )*
        }
    };
}

store! {
    // Reading.
    fn get_many(&self, txids: Vec<TxId>) -> EachResult<Option<TxRecord>>;
    fn get(&self, txid: TxId) -> Result<Option<TxRecord>, StoreError>;
    fn with_inputs(&self, record: TxRecord) -> Result<TxRecord, StoreError>;
    fn outputs(&self, outpoints: Vec<OutPoint>) -> EachResult<Option<Utxo>>;
    fn spend_status(&self, outpoints: Vec<OutPoint>, at: Height) -> EachResult<SpendStatus>;
    fn old_unmined(&self, cutoff: Height, after: Option<Cursor>, limit: usize) -> Result<Page<TxId>, StoreError>;
    fn unmined(&self, after: Option<Cursor>, limit: usize) -> Result<Page<UnminedTx>, StoreError>;
    fn by_address(&self, query: AddressQuery) -> Result<Page<Utxo>, StoreError>;
    fn last_applied(&self) -> Result<Option<BlockMark>, StoreError>;
    fn rollback_floor(&self) -> Result<Option<Height>, StoreError>;
    fn undoable_from(&self) -> Result<Option<Height>, StoreError>;
    fn block_at(&self, height: Height) -> Result<Option<Undo>, StoreError>;
    fn counts(&self) -> Result<Counts, StoreError>;
    fn settled_between(&self, from: Height, to: Height) -> Result<u64, StoreError>;
    fn rolling_utxo_set(&self) -> Result<Option<UtxoSet>, StoreError>;
    fn note(&self, name: &str) -> Result<Option<Bytes>, StoreError>;

    // Writing.
    fn create(&self, batch: Vec<CreateRequest>, height: Height) -> BatchResult<(), CreateError>;
    fn spend(&self, batch: Vec<SpendRequest>, height: Height) -> BatchResult<(), SpendError>;
    fn unspend(&self, batch: Vec<Unspend>) -> BatchResult<(), UnspendError>;
    fn set_mined(&self, txids: Vec<TxId>, request: MineRequest, height: Height) -> BatchResult<(), MineError>;
    fn mark_on_longest_chain(&self, txids: Vec<TxId>, on: bool, height: Height) -> BatchResult<(), MineError>;
    fn set_conflicting(&self, txids: Vec<TxId>, on: bool, height: Height) -> BatchResult<Vec<TxId>, ConflictError>;
    fn resolve_conflicts(&self, winners: Vec<TxId>, height: Height) -> Result<Vec<TxId>, ConflictError>;
    fn set_locked(&self, txids: Vec<TxId>, on: bool) -> BatchResult<(), FreezeError>;
    fn freeze(&self, outpoints: Vec<OutPoint>) -> BatchResult<(), FreezeError>;
    fn unfreeze(&self, outpoints: Vec<OutPoint>) -> BatchResult<(), FreezeError>;
    fn reassign(&self, batch: Vec<Reassign>, height: Height) -> BatchResult<(), ReassignError>;
    fn preserve(&self, txids: Vec<TxId>, until: Height) -> BatchResult<usize, PreserveError>;
    fn delete(&self, txids: Vec<TxId>) -> BatchResult<(), DeleteError>;
    fn apply_block(&self, block: Arc<Block>, options: ApplyOptions) -> Result<Applied, ApplyError>;
    fn apply_blocks(&self, blocks: Blocks) -> AppliedBlocks;
    fn roll_back(&self, target: Target, mode: RollbackMode) -> Result<RolledBack, RollbackError>;
    fn put_notes(&self, notes: Vec<(String, Option<Bytes>)>) -> Result<(), StoreError>;
    fn set_policy(&self, policy: Policy) -> Result<(), StoreError>;

    // Pruning.
    fn due(&self, settled_up_to: Height, after: Option<Cursor>, limit: usize) -> Result<Page<DueRecord>, StoreError>;
    fn judge(&self, txids: Vec<TxId>, context: PruneContext, check_children: bool) -> Result<Vec<Judged>, StoreError>;
    fn prune(&self, request: PruneRequest) -> Result<PruneOutcome, StoreError>;
    fn prune_cursor(&self) -> Result<Option<Cursor>, StoreError>;
    fn preserved(&self, up_to: Height, after: Option<Cursor>, limit: usize) -> Result<Page<TxId>, StoreError>;
    fn expire_preservations(&self, height: Height, limit: usize) -> Result<Expired, StoreError>;
    fn end_preservations(&self, preserved: Vec<(TxId, Height)>) -> Result<usize, StoreError>;
    fn prune_undo(&self, from: Option<Height>, below: Height, limit: usize) -> Result<UndoDropped, StoreError>;

    // Diagnosing.
    fn state_digest(&self) -> Result<[u8; 32], StoreError>;
    fn records(&self, after: Option<Cursor>, limit: usize) -> Result<Page<TxRecord>, StoreError>;
    fn verify(&self, progress: VerifyProgress) -> Result<VerifyReport, StoreError>;
    fn utxo_set(&self, with_hash: bool, progress: UtxoProgress) -> Result<UtxoSet, StoreError>;
}
