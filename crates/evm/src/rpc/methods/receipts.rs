//! Receipts.

use alloy_primitives::Bytes;

use super::{Reply, transactions};
use crate::{
    block::{BlockParts, Part, ShapeError, decode_receipt},
    rpc::{
        args::Args,
        context::{Context, unreadable},
        error::RpcError,
        views::{Before, ReceiptView},
    },
    tx_index::TxEntry,
};

/// The receipt of a transaction.
pub(super) fn of_transaction(context: &Context<'_>, args: &Args) -> Reply {
    let Some((parts, index)) = transactions::find(context, args)? else { return context.reply(&()) };
    // All receipts up to it are needed: gas and logs are counted through the block.
    let receipts = views(context, &parts, index + 1)?;
    context.reply(&receipts.get(index))
}

/// The receipts of a block.
pub(super) fn of_block(context: &Context<'_>, args: &Args) -> Reply {
    args.at_most(1)?;
    let Some(parts) = context.block(args.any_block(0)?)? else { return context.reply(&()) };
    context.reply(&views(context, &parts, usize::MAX)?)
}

/// The EIP-2718 bytes of the receipts of a block.
pub(super) fn raw(context: &Context<'_>, args: &Args) -> Reply {
    args.at_most(1)?;
    let Some(parts) = context.block(args.any_block(0)?)? else { return context.reply(&()) };
    let receipts = context.receipts(parts.header.number)?;
    context.reply(&receipts.into_iter().map(Bytes::from).collect::<Vec<_>>())
}

/// The first `count` receipts of a block.
fn views(context: &Context<'_>, parts: &BlockParts, count: usize) -> Result<Vec<ReceiptView>, RpcError> {
    let number = parts.header.number;
    let receipts = context.receipts(number)?;
    let entries = context.tx_index(parts)?.entries;
    if receipts.len() != entries.len() {
        return Err(unreadable(number, "it has more or fewer receipts than transactions"));
    }
    let mut before = Before::default();
    let view = |(index, (receipt, entry)): (usize, (&bytes::Bytes, &TxEntry))| {
        let receipt = decode_receipt(receipt, index)?;
        let missing =
            ShapeError::Rlp { part: Part::Transaction(index), cause: alloy_rlp::Error::InputTooShort };
        let transaction = parts.transaction(index).ok_or(missing)??;
        let view = ReceiptView::new(context.spec(), parts, (index, entry), &transaction, &receipt, before);
        before = Before { gas: receipt.cumulative_gas_used(), logs: before.logs + receipt.logs().len() };
        Ok(view)
    };
    let views = receipts.iter().zip(&entries).enumerate().take(count).map(view);
    views.collect::<Result<_, ShapeError>>().map_err(|error| unreadable(number, error))
}
