//! Lists of unspent outputs and of blocks: what REST answers with, and what the command line prints.

use bytes::Bytes;
use sapwood_chain::block_times;
use sapwood_ledger::{AddressKind, AddressQuery, Cursor, Ledger, Order, StoreError, Unreadable};
use sapwood_types::{AddressHash, Height};

use crate::{
    address::ChainKind,
    cursor::{CursorError, Listing},
    views::{BlockPage, BlockSummary, UtxoPage, UtxoView},
};

/// How many outputs a page has unless asked otherwise.
pub const USUAL_LIMIT: u64 = 100;
/// How many outputs a page has at most.
pub const MOST_LIMIT: u64 = 1000;

/// Whose outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Those locked by a script, or paid to the bytes of an address: see [`ChainKind::parse`].
    Script(Bytes),
    /// Those of a payment credential.
    Credential(AddressHash),
}

/// Which page of the unspent outputs of an owner.
#[derive(Clone, Debug)]
pub struct UtxoQuery {
    /// Whose.
    pub owner: Owner,
    /// By the height at which the records were made.
    pub order: Order,
    /// The `cursor` of the page before, in hexadecimal digits. `None` for the first page.
    pub cursor: Option<String>,
    /// How many at most: 1 to [`MOST_LIMIT`].
    pub limit: u64,
}

/// Why a page cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The limit is not allowed.
    #[error("limit: it is {limit}; ask for 1 to {MOST_LIMIT}")]
    Limit {
        /// What was asked for.
        limit: u64,
    },
    /// The cursor is not one of this list.
    #[error("cursor: {0}")]
    Cursor(#[from] CursorError),
    /// The store could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Names the records that are missing from a page.
fn not_readable(unreadable: &[Unreadable]) -> String {
    let named: Vec<&str> = unreadable.iter().map(|record| record.error.as_str()).collect();
    format!("Not shown, as they cannot be read: {}", named.join("; "))
}

/// A page of the unspent outputs of an owner.
///
/// # Errors
/// [`ListError`] if the limit or the cursor is not allowed, or the store cannot be read or keeps no such index.
pub async fn utxos(store: &Ledger, chain: &ChainKind, query: UtxoQuery) -> Result<UtxoPage, ListError> {
    let UtxoQuery { owner, order, cursor, limit } = query;
    if !(1..=MOST_LIMIT).contains(&limit) {
        return Err(ListError::Limit { limit });
    }
    let (kind, name, hash) = match &owner {
        Owner::Script(script) => (AddressKind::Address, "addresses", AddressHash::of_script(script)),
        Owner::Credential(credential) => (AddressKind::Credential, "credentials", *credential),
    };
    let listing = Listing::new(name, order, hash.0);
    let after = listing.open_hex(cursor.as_deref())?;
    let page = store.by_address(AddressQuery { kind, hash, order, after, limit: limit as usize }).await?;
    let value: u128 = page.items.iter().map(|utxo| u128::from(utxo.output.value)).sum();
    let whole = cursor.is_none() && page.next.is_none() && page.unreadable.is_empty();
    let note = match &owner {
        _ if !page.unreadable.is_empty() => Some(not_readable(&page.unreadable)),
        Owner::Script(script) if page.items.is_empty() => chain.not_listed(script).map(str::to_owned),
        _ => None,
    };
    Ok(UtxoPage {
        items: page.items.iter().map(|utxo| UtxoView::new(utxo, chain)).collect(),
        value: value.to_string(),
        total_value: whole.then(|| value.to_string()),
        note,
        cursor: page.next.map(|next| listing.seal_hex(&next)),
    })
}

/// A page of the blocks that can be rolled back, by height, with at most `limit` of them (at least 1).
///
/// # Errors
/// [`ListError`] if the cursor is not allowed, or the store cannot be read.
pub(crate) async fn blocks(
    store: &Ledger,
    order: Order,
    cursor: Option<&str>,
    limit: usize,
) -> Result<BlockPage, ListError> {
    let listing = Listing::new("blocks", order, []);
    let after = match listing.open_hex(cursor)? {
        None => None,
        Some(Cursor(key)) => {
            let key = key.as_ref().try_into().map_err(|_| CursorError::NotOfThisList)?;
            Some(u32::from_be_bytes(key))
        }
    };
    let (floor, last) = (store.undoable_from().await?, store.last_applied().await?);
    let (Some(floor), Some(last)) = (floor, last) else {
        return Ok(BlockPage { items: Vec::new(), cursor: None });
    };
    let (floor, end) = (floor.0, last.height.0.saturating_add(1));
    let heights: Vec<u32> = match order {
        Order::Ascending => {
            let start = after.map_or(floor, |after| after.saturating_add(1).max(floor));
            (start..end).take(limit + 1).collect()
        }
        Order::Descending => {
            let end = after.map_or(end, |after| after.min(end));
            (floor..end).rev().take(limit + 1).collect()
        }
    };
    let mut found = Vec::with_capacity(limit);
    for height in heights.iter().take(limit) {
        // One that was rolled back meanwhile is left out.
        found.extend(store.block_at(Height(*height)).await?);
    }
    let times = block_times::of(store, &found).await?;
    let next = heights.get(limit - 1).filter(|_| heights.len() > limit);
    let seal = |height: &u32| listing.seal_hex(&Cursor(Bytes::copy_from_slice(&height.to_be_bytes())));
    Ok(BlockPage {
        items: found.iter().zip(times).map(|(undo, time)| BlockSummary::new(undo, time)).collect(),
        cursor: next.map(seal),
    })
}
