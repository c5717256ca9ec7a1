//! The interface of a store, split by what callers do: read, write, prune, diagnose.
//!
//! Every call takes a whole batch. In a batch of independent items those that fail change nothing and are named in
//! [`BatchError::Items`]; the others are written. Blocks are all or nothing.
//!
//! A record that cannot be read is the failure of those items that need it, and of no other. Listings name it in
//! [`Page::unreadable`].
//!
//! A listing with a limit of 0 is refused with [`StoreError::BadOption`]: see [`check_limit`].

use std::{ops::ControlFlow, path::Path, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use sapwood_rules::{Policy, PruneContext, SpendStatus};
use sapwood_types::{
    Block, BlockHash, BlockMark, Height, Input, OutPoint, Output, PrevOutput, TxId, TxRecord, Undo,
};

use crate::{
    answer::*,
    engine::{EngineWrites, TableStats},
    error::*,
    request::*,
    utxo_set::UtxoSet,
};

/// Refuses a listing of no entries: its page could neither have any nor say where to go on.
pub fn check_limit(limit: usize) -> Result<(), StoreError> {
    if limit > 0 {
        return Ok(());
    }
    Err(StoreError::BadOption { problem: "a page of 0 entries was asked for: ask for at least 1".into() })
}

/// Called with how many records are done and about how many there are; may end the work.
pub type UtxoProgress = Arc<dyn Fn(u64, u64) -> ControlFlow<()> + Send + Sync>;

/// One answer for each item asked for, in that order. One that needs a record that cannot be read is an error of its own
/// ([`StoreError::Corrupt`]) and keeps no other from being read.
pub type EachResult<T> = Result<Vec<Result<T, StoreError>>, StoreError>;

/// Everything a store can do.
pub trait Store: StoreRead + StoreWrite + StorePrune + StoreDiagnose {}
impl<T: StoreRead + StoreWrite + StorePrune + StoreDiagnose> Store for T {}

/// Reading.
#[async_trait]
pub trait StoreRead: Send + Sync {
    /// Whole records.
    async fn get_many(&self, txids: Vec<TxId>) -> EachResult<Option<TxRecord>>;

    /// One whole record.
    async fn get(&self, txid: TxId) -> Result<Option<TxRecord>, StoreError> {
        self.get_many(vec![txid]).await?.pop().unwrap_or(Ok(None))
    }

    /// A record whose inputs say all that is still known of what they spend: amount and script of every parent's output that is there.
    /// What the record itself says is kept where the parent is gone or cannot be read.
    async fn with_inputs(&self, mut record: TxRecord) -> Result<TxRecord, StoreError> {
        let is_known = |input: &&mut Input| matches!(&input.previous, Some(known) if known.script.is_some());
        let unknown: Vec<&mut Input> =
            record.body.inputs.iter_mut().filter(|input| !is_known(input)).collect();
        let found = self.outputs(unknown.iter().map(|input| input.outpoint).collect()).await?;
        for (input, utxo) in unknown.into_iter().zip(found) {
            if let Ok(Some(Utxo { output: Output { value, script, .. }, .. })) = utxo {
                let value = input.previous.as_ref().map_or(value, |known| known.value);
                input.previous = Some(PrevOutput { value, script: Some(script) });
            }
        }
        Ok(record)
    }

    /// Outputs, spent or not, as long as their record is there.
    async fn outputs(&self, outpoints: Vec<OutPoint>) -> EachResult<Option<Utxo>>;

    /// One output, spent or not, as long as its record is there.
    async fn output(&self, outpoint: OutPoint) -> Result<Option<Utxo>, StoreError> {
        self.outputs(vec![outpoint]).await?.pop().unwrap_or(Ok(None))
    }

    /// How each output looks at a height.
    async fn spend_status(&self, outpoints: Vec<OutPoint>, at: Height) -> EachResult<SpendStatus>;

    /// Transactions unmined since `cutoff` or before, oldest first. Complete: follow `next` to its end.
    async fn old_unmined(
        &self,
        cutoff: Height,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<TxId>, StoreError>;

    /// Unmined transactions that could be mined: neither conflicting nor coinbase.
    async fn unmined(&self, after: Option<Cursor>, limit: usize) -> Result<Page<UnminedTx>, StoreError>;

    /// Unspent outputs of an address or payment credential. Outputs of losing transactions are not listed.
    async fn by_address(&self, query: AddressQuery) -> Result<Page<Utxo>, StoreError>;

    /// The last applied block.
    async fn last_applied(&self) -> Result<Option<BlockMark>, StoreError>;

    /// The lowest height a rollback can reach; nothing before the first block.
    async fn rollback_floor(&self) -> Result<Option<Height>, StoreError>;

    /// The lowest block a rollback can still take back: the one above the floor, or the first one while the floor is still there. What
    /// settled there or above is not deleted. Nothing before the first block.
    async fn undoable_from(&self) -> Result<Option<Height>, StoreError>;

    /// How to take back the block at a height, if that is still known.
    async fn undo(&self, height: Height) -> Result<Option<Undo>, StoreError>;

    /// How much there is.
    async fn counts(&self) -> Result<Counts, StoreError>;

    /// Returns how many stored records settled at a height from `from` to `to`, both included, without reading any of them. 0 if `from`
    /// is above `to`.
    async fn settled_between(&self, from: Height, to: Height) -> Result<u64, StoreError>;

    /// The UTXO set, hash and all, as it was kept with each write: at once, however many coins there are. Nothing where it is
    /// not kept, or was not counted yet; [`StoreDiagnose::utxo_set`] counts.
    async fn rolling_utxo_set(&self) -> Result<Option<UtxoSet>, StoreError>;

    /// A note that another part of the program left under a name.
    async fn note(&self, name: &str) -> Result<Option<Bytes>, StoreError>;
}

/// Writing.
#[async_trait]
pub trait StoreWrite: Send + Sync {
    /// Stores transactions at the given height, and spends their inputs in the same write.
    async fn create(&self, batch: Vec<CreateRequest>, height: Height) -> BatchResult<(), CreateError>;

    /// Spends inputs of stored transactions. A repeat of the same spend is fine.
    async fn spend(&self, batch: Vec<SpendRequest>, height: Height) -> BatchResult<(), SpendError>;

    /// Takes spends back. An unspent output is fine.
    async fn unspend(&self, batch: Vec<Unspend>) -> BatchResult<(), UnspendError>;

    /// Marks transactions as mined in a block, or takes that back.
    async fn set_mined(
        &self,
        txids: Vec<TxId>,
        request: MineRequest,
        height: Height,
    ) -> BatchResult<(), MineError>;

    /// Says that the highest block of each transaction is on the longest chain, or that none of its blocks is.
    async fn mark_on_longest_chain(
        &self,
        txids: Vec<TxId>,
        on: bool,
        height: Height,
    ) -> BatchResult<(), MineError>;

    /// Marks transactions as losers together with their descendants, or takes that back for just these. Returns every
    /// transaction that changed.
    async fn set_conflicting(
        &self,
        txids: Vec<TxId>,
        on: bool,
        height: Height,
    ) -> BatchResult<Vec<TxId>, ConflictError>;

    /// Makes each transaction win against whatever unmined transactions spend its inputs. Returns the losers. All or nothing.
    async fn resolve_conflicts(&self, winners: Vec<TxId>, height: Height)
    -> Result<Vec<TxId>, ConflictError>;

    /// Locks or unlocks all outputs of transactions.
    async fn set_locked(&self, txids: Vec<TxId>, on: bool) -> BatchResult<(), FreezeError>;

    /// Freezes unspent outputs.
    async fn freeze(&self, outpoints: Vec<OutPoint>) -> BatchResult<(), FreezeError>;

    /// Unfreezes outputs.
    async fn unfreeze(&self, outpoints: Vec<OutPoint>) -> BatchResult<(), FreezeError>;

    /// Gives frozen outputs to other owners, who can spend them after a delay.
    async fn reassign(&self, batch: Vec<Reassign>, height: Height) -> BatchResult<(), ReassignError>;

    /// Forbids deletion up to a height. Absent transactions are skipped; returns how many were there.
    async fn preserve(&self, txids: Vec<TxId>, until: Height) -> BatchResult<usize, PreserveError>;

    /// Forgets unmined transactions and gives back what they spend. Absent ones are fine.
    async fn delete(&self, txids: Vec<TxId>) -> BatchResult<(), DeleteError>;

    /// Applies a block: all or nothing. It must be the one after the last applied block; the first one may have any height.
    async fn apply_block(&self, block: Arc<Block>, options: ApplyOptions) -> Result<Applied, ApplyError>;

    /// Applies blocks one after the other, up to the first that is refused: each all or nothing, each a write of its own. When the
    /// call returns, those applied are as safe as if each had been waited for. For catching up: a store may work on a block while the
    /// one before it is being written.
    async fn apply_blocks(&self, blocks: Vec<(Arc<Block>, ApplyOptions)>) -> AppliedBlocks {
        let mut done = AppliedBlocks::default();
        for (block, options) in blocks {
            match self.apply_block(block, options).await {
                Ok(applied) => done.applied.push(applied),
                Err(error) => {
                    done.refused = Some(error);
                    break;
                }
            }
        }
        done
    }

    /// Takes back all blocks above a height: all or nothing. The block there must have the given hash. With no target,
    /// takes back everything to before the first block.
    async fn roll_back(
        &self,
        target: Option<(Height, BlockHash)>,
        mode: RollbackMode,
    ) -> Result<RolledBack, RollbackError>;

    /// Leaves notes under names, or removes them, all in one durable write. They mean nothing to the store and are no part of
    /// its state: holds, jobs, how far somebody got.
    async fn put_notes(&self, notes: Vec<(String, Option<Bytes>)>) -> Result<(), StoreError>;

    /// Changes how long things are kept. Takes effect at once.
    async fn set_policy(&self, policy: Policy) -> Result<(), StoreError>;
}

/// Pruning.
#[async_trait]
pub trait StorePrune: Send + Sync {
    /// Records that settled at or below a height, oldest first.
    async fn due(
        &self,
        settled_up_to: Height,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<DueRecord>, StoreError>;

    /// Judges records without deleting anything. One that cannot be read is retained with
    /// [`KeepReason::Unreadable`](sapwood_rules::KeepReason::Unreadable) and stands in the way of no other.
    async fn judge(
        &self,
        txids: Vec<TxId>,
        context: PruneContext,
        check_children: bool,
    ) -> Result<Vec<Judged>, StoreError>;

    /// Judges records and deletes those that may go, in one write with the cursor. A record that changes meanwhile is judged
    /// again. One that cannot be read is retained, as by [`judge`](Self::judge).
    async fn delete_due(&self, request: DeleteDue) -> Result<Vec<Judged>, StoreError>;

    /// The cursor saved with the last deletions.
    async fn prune_cursor(&self) -> Result<Option<Cursor>, StoreError>;

    /// Lists records whose preservation ends at or below a height, the earliest first. A damaged list may have entries that no record has.
    async fn preserved(
        &self,
        up_to: Height,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<TxId>, StoreError>;

    /// Ends preservations up to a height, at most `limit` of them. What becomes of each record follows from its content alone. A list
    /// that was damaged may have entries that no record has; they are deleted and count too, so that a caller who repeats this comes to
    /// an end. Those of records that cannot be read stay.
    async fn expire_preservations(&self, height: Height, limit: usize) -> Result<Expired, StoreError>;

    /// Ends the preservation of each of these that is preserved up to exactly this height, and returns how many were: whoever set one
    /// can take it back once its reason is gone, without ending one that somebody else set. One that cannot be read is not ended. A
    /// store that cannot ends none.
    async fn end_preservations(&self, _preserved: Vec<(TxId, Height)>) -> Result<usize, StoreError> {
        Ok(0)
    }

    /// Drops undo records from `from` on (`None` for the lowest) and below `below`, at most `limit` of them, but never one that a
    /// rollback could need. Says where to go on.
    async fn prune_undo(
        &self,
        from: Option<Height>,
        below: Height,
        limit: usize,
    ) -> Result<UndoDropped, StoreError>;
}

/// Looking inside.
#[async_trait]
pub trait StoreDiagnose: Send + Sync {
    /// A hash of everything that can be observed. Equal states have equal hashes, whatever way led to them.
    async fn state_digest(&self) -> Result<[u8; 32], StoreError>;

    /// Whole records of everything there is, in the order of their ids. Not one moment: each page is as it is when it is asked for.
    async fn records(&self, after: Option<Cursor>, limit: usize) -> Result<Page<TxRecord>, StoreError>;

    /// Checks every record, every index and how they belong together. `progress` is called with done and estimated total.
    async fn verify(&self, progress: Arc<dyn Fn(u64, u64) + Send + Sync>)
    -> Result<VerifyReport, StoreError>;

    /// The error that every write gets at the moment, if there is one. Reads nothing and waits for nobody.
    async fn writable(&self) -> Result<(), StoreError>;

    /// Counts the UTXO set as it is at one moment, while others read and write. Reads every record. Ends early with
    /// [`StoreError::Stopped`] if `progress` says so, and soon after the call is dropped. A store that keeps the set but does
    /// not know it yet goes on from what was counted here, if that was with the hash.
    async fn utxo_set(&self, with_hash: bool, progress: UtxoProgress) -> Result<UtxoSet, StoreError>;

    /// What kind of engine it is, such as `rocksdb` or `memory`.
    fn engine_kind(&self) -> &'static str;

    /// Returns the engine's statistics by table; with a name, of that table only.
    async fn engine_stats(&self, table: Option<String>) -> Result<Vec<TableStats>, StoreError>;

    /// What the engine wrote since the store was opened. `None` for a store that does not count it.
    async fn engine_writes(&self) -> Result<Option<EngineWrites>, StoreError> {
        Ok(None)
    }

    /// The room on the disk that holds the store. `None` for a store that is on none.
    async fn disk_room(&self) -> Result<Option<DiskRoom>, StoreError> {
        Ok(None)
    }

    /// Writes a consistent copy of the store to a new directory while it runs.
    async fn checkpoint(&self, directory: &Path) -> Result<(), StoreError>;
}
