//! The methods.

mod blocks;
mod chain;
mod fees;
mod fork_config;
mod logs;
mod receipts;
mod transactions;

use super::{args::Args, context::Context, error::RpcError};

type Reply = Result<Vec<u8>, RpcError>;
type Method = fn(&Context<'_>, &Args) -> Reply;

/// Finds a method by its name. `None` if there is none.
pub(crate) fn find(name: &str) -> Option<Method> {
    Some(match name {
        "web3_clientVersion" => chain::client_version,
        "net_version" => chain::net_version,
        "eth_chainId" => chain::chain_id,
        "eth_blockNumber" => chain::block_number,
        "eth_syncing" => chain::syncing,
        "eth_capabilities" => chain::capabilities,
        "eth_config" => fork_config::config,
        "eth_getBlockByNumber" => |context, args| blocks::block(context, args, args.block(0)?),
        "eth_getBlockByHash" => |context, args| blocks::block(context, args, args.block_hash(0)?),
        "eth_getBlockTransactionCountByNumber" => {
            |context, args| blocks::transactions(context, args, args.block(0)?)
        }
        "eth_getBlockTransactionCountByHash" => {
            |context, args| blocks::transactions(context, args, args.block_hash(0)?)
        }
        "eth_getUncleCountByBlockNumber" => |context, args| blocks::uncles(context, args, args.block(0)?),
        "eth_getUncleCountByBlockHash" => |context, args| blocks::uncles(context, args, args.block_hash(0)?),
        "eth_getUncleByBlockNumberAndIndex" => |context, args| blocks::uncle(context, args, args.block(0)?),
        "eth_getUncleByBlockHashAndIndex" => {
            |context, args| blocks::uncle(context, args, args.block_hash(0)?)
        }
        "eth_getTransactionByHash" => transactions::by_hash,
        "eth_getTransactionByBlockNumberAndIndex" => {
            |context, args| transactions::by_index(context, args, args.block(0)?)
        }
        "eth_getTransactionByBlockHashAndIndex" => {
            |context, args| transactions::by_index(context, args, args.block_hash(0)?)
        }
        "eth_getTransactionReceipt" => receipts::of_transaction,
        "eth_getBlockReceipts" => receipts::of_block,
        "eth_getLogs" => logs::logs,
        "eth_baseFee" => fees::base_fee,
        "eth_blobBaseFee" => fees::blob_base_fee,
        "eth_feeHistory" => fees::history,
        "debug_getRawBlock" => blocks::raw_block,
        "debug_getRawHeader" => blocks::raw_header,
        "debug_getRawReceipts" => receipts::raw,
        "debug_getRawTransaction" => transactions::raw,
        _ => return None,
    })
}
