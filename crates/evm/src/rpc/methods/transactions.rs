//! Transactions.

use alloy_primitives::Bytes;

use super::Reply;
use crate::{
    block::BlockParts,
    rpc::{
        args::{Args, BlockRef},
        context::{Context, unreadable},
        error::RpcError,
        views::TransactionView,
    },
};

/// A transaction by its hash.
pub(super) fn by_hash(context: &Context<'_>, args: &Args) -> Reply {
    match find(context, args)? {
        Some((parts, index)) => reply(context, &parts, index),
        None => context.reply(&()),
    }
}

/// A transaction by its place in a block.
pub(super) fn by_index(context: &Context<'_>, args: &Args, block: BlockRef) -> Reply {
    let index = args.at_most(2)?.quantity(1)?;
    match (context.block(block)?, usize::try_from(index)) {
        (Some(parts), Ok(index)) => reply(context, &parts, index),
        _ => context.reply(&()),
    }
}

/// The EIP-2718 bytes of a transaction.
pub(super) fn raw(context: &Context<'_>, args: &Args) -> Reply {
    let found = find(context, args)?;
    let bytes = found.and_then(|(parts, index)| parts.transactions.get(index).cloned());
    context.reply(&bytes.map(Bytes::from))
}

/// Finds the block that a transaction is in, and its place there.
pub(super) fn find(context: &Context<'_>, args: &Args) -> Result<Option<(BlockParts, usize)>, RpcError> {
    let hash = args.at_most(1)?.hash(0)?;
    let Some(place) = context.transaction(&hash)? else { return Ok(None) };
    let parts = context.block(BlockRef::Number(place.number))?;
    Ok(parts.map(|parts| (parts, place.index)))
}

fn reply(context: &Context<'_>, parts: &BlockParts, index: usize) -> Reply {
    let entries = context.tx_index(parts)?.entries;
    let view = entries.get(index).and_then(|entry| TransactionView::new(parts, index, entry));
    let view = view.transpose().map_err(|error| unreadable(parts.header.number, error))?;
    context.reply(&view)
}
