//! Blocks, and how much is in them.

use alloy_primitives::{Bytes, U64};

use super::Reply;
use crate::{
    block::BlockParts,
    rpc::{
        args::{Args, BlockRef},
        context::{Context, unreadable},
        views::BlockView,
    },
};

/// A block, with hashes of its transactions or with the transactions themselves.
pub(super) fn block(context: &Context<'_>, args: &Args, block: BlockRef) -> Reply {
    let full = args.at_most(2)?.flag(1)?;
    let Some(parts) = context.block(block)? else { return context.reply(&()) };
    let index = context.tx_index(&parts)?;
    let view =
        BlockView::new(&parts, &index, full).map_err(|error| unreadable(parts.header.number, error))?;
    context.reply(&view)
}

/// How many transactions a block has.
pub(super) fn transactions(context: &Context<'_>, args: &Args, block: BlockRef) -> Reply {
    of_block(context, args, block, |parts| U64::from(parts.transactions.len()))
}

/// How many uncles a block has.
pub(super) fn uncles(context: &Context<'_>, args: &Args, block: BlockRef) -> Reply {
    of_block(context, args, block, |parts| U64::from(parts.ommers.len()))
}

/// An uncle of a block.
pub(super) fn uncle(context: &Context<'_>, args: &Args, block: BlockRef) -> Reply {
    let index = args.at_most(2)?.quantity(1)?;
    let Some(parts) = context.block(block)? else { return context.reply(&()) };
    let uncle = usize::try_from(index).ok().and_then(|index| parts.ommer(index));
    let Some(uncle) = uncle else { return context.reply(&()) };
    let (header, hash) = uncle.map_err(|error| unreadable(parts.header.number, error))?;
    context.reply(&BlockView::uncle(&header, hash))
}

/// The RLP of a block.
pub(super) fn raw_block(context: &Context<'_>, args: &Args) -> Reply {
    of_block(context, args, args.any_block(0)?, |parts| Bytes::from(parts.rlp))
}

/// The RLP of a header.
pub(super) fn raw_header(context: &Context<'_>, args: &Args) -> Reply {
    of_block(context, args, args.any_block(0)?, |parts| Bytes::from(parts.header_rlp))
}

/// Something about a block, or `null`.
fn of_block<T: serde::Serialize>(
    context: &Context<'_>,
    args: &Args,
    block: BlockRef,
    what: impl FnOnce(BlockParts) -> T,
) -> Reply {
    args.at_most(1)?;
    context.reply(&context.block(block)?.map(what))
}
