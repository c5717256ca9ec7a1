//! When blocks were made, by their own account.
//!
//! The records a block brought know it, and are there for as long as the block can be rolled back.

use sapwood_ledger::{Ledger, StoreError};
use sapwood_types::{Height, Undo};

/// Returns the time of each block as a Unix timestamp. `None` for one that brought no new transaction.
///
/// # Errors
/// If the store fails.
pub async fn of(store: &Ledger, blocks: &[Undo]) -> Result<Vec<Option<u64>>, StoreError> {
    let firsts: Vec<_> = blocks.iter().filter_map(|undo| undo.created.first().copied()).collect();
    let mut records = store.get_many(firsts).await?.into_iter();
    let mut time = |undo: &Undo| {
        undo.created.first()?;
        Some(records.next()?.ok()??.head.created_at / 1000)
    };
    Ok(blocks.iter().map(&mut time).collect())
}

/// Returns the time of the block at a height as a Unix timestamp. `None` if it cannot be rolled back, or brought no new transaction.
///
/// # Errors
/// If the store fails.
pub async fn at(store: &Ledger, height: Height) -> Result<Option<u64>, StoreError> {
    let Some(undo) = store.block_at(height).await? else { return Ok(None) };
    Ok(of(store, &[undo]).await?.pop().flatten())
}
