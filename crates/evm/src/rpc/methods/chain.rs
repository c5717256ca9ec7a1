//! What is known about the chain and the archive as a whole.

use alloy_primitives::{B256, U64};
use serde::Serialize;

use super::Reply;
use crate::rpc::{args::Args, context::Context};

/// Name and version of this program.
pub(super) fn client_version(context: &Context<'_>, args: &Args) -> Reply {
    args.at_most(0)?;
    context.reply(&concat!("sapwood/v", env!("CARGO_PKG_VERSION")))
}

/// The network id, which is the chain id as a decimal number.
pub(super) fn net_version(context: &Context<'_>, args: &Args) -> Reply {
    args.at_most(0)?;
    context.reply(&context.spec().chain_id.to_string())
}

/// The chain id.
pub(super) fn chain_id(context: &Context<'_>, args: &Args) -> Reply {
    args.at_most(0)?;
    context.reply(&U64::from(context.spec().chain_id))
}

/// The number of the newest block.
pub(super) fn block_number(context: &Context<'_>, args: &Args) -> Reply {
    args.at_most(0)?;
    context.reply(&U64::from(context.bounds()?.head.number))
}

/// How far the archive is behind its source, or `false`.
pub(super) fn syncing(context: &Context<'_>, args: &Args) -> Reply {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Progress {
        starting_block: U64,
        current_block: U64,
        highest_block: U64,
    }
    args.at_most(0)?;
    let bounds = context.bounds()?;
    match bounds.syncing {
        None => context.reply(&false),
        Some(syncing) => context.reply(&Progress {
            starting_block: U64::from(syncing.starting),
            current_block: U64::from(bounds.head.number),
            highest_block: U64::from(syncing.highest),
        }),
    }
}

/// Which methods can be asked about which blocks.
pub(super) fn capabilities(context: &Context<'_>, args: &Args) -> Reply {
    args.at_most(0)?;
    let bounds = context.bounds()?;
    let retention_blocks = bounds.retention_blocks.map(U64::from);
    let kept = Resource {
        disabled: false,
        oldest_block: Some(U64::from(bounds.earliest)),
        delete_strategy: retention_blocks
            .map(|retention_blocks| DeleteStrategy { kind: "window", retention_blocks }),
    };
    let disabled = Resource { disabled: true, oldest_block: None, delete_strategy: None };
    let receipts = if bounds.receipts { kept } else { disabled };
    context.reply(&Capabilities {
        head: Head { number: U64::from(bounds.head.number), hash: bounds.head.hash },
        state: disabled,
        tx: kept,
        logs: receipts,
        receipts,
        blocks: kept,
        stateproofs: disabled,
    })
}

#[derive(Serialize)]
struct Capabilities {
    head: Head,
    state: Resource,
    tx: Resource,
    logs: Resource,
    receipts: Resource,
    blocks: Resource,
    stateproofs: Resource,
}

#[derive(Serialize)]
struct Head {
    number: U64,
    hash: B256,
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
struct Resource {
    disabled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_block: Option<U64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delete_strategy: Option<DeleteStrategy>,
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
struct DeleteStrategy {
    #[serde(rename = "type")]
    kind: &'static str,
    retention_blocks: U64,
}
