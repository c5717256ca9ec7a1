//! Blocks, as far back as they can be rolled back: what their undo records tell.

use std::collections::HashMap;

use axum::{Json, extract::State};
use sapwood_chain::block_times;
use sapwood_ledger::{Ledger, Order};
use sapwood_types::{BlockHash, Height, Undo};
use serde::Deserialize;
use tokio::sync::Mutex;
use utoipa::IntoParams;

use super::{
    Problem, Service,
    extract::{self, Path, Query},
    problem::ReadProblems,
};
use crate::{
    listing,
    views::{BlockPage, BlockView},
};

type Answer<T> = Result<Json<T>, Problem>;

/// Where blocks were seen, by hash. What it says is checked against the block itself, so entries may be out of date.
#[derive(Default)]
pub(crate) struct BlockHeights(Mutex<HashMap<BlockHash, Height>>);

impl BlockHeights {
    /// The undo record of the block of a hash. `None` if it is not one that can be rolled back.
    async fn find(&self, store: &Ledger, hash: BlockHash) -> Result<Option<Undo>, Problem> {
        // One walk at a time: requests that wait use its result.
        let mut known = self.0.lock().await;
        let of = |undo: Option<Undo>| undo.filter(|undo| undo.block.hash == hash);
        if let Some(height) = known.get(&hash) {
            return Ok(of(store.block_at(*height).await?));
        }
        let floor = store.undoable_from().await?;
        let mut next = store.last_applied().await?;
        // Down from the last block to the first one that was seen before: below it nothing is new.
        while let Some(mark) = next {
            if known.insert(mark.hash, mark.height).is_some() || floor.is_none_or(|floor| mark.height < floor)
            {
                break;
            }
            next = store.block_at(mark.height).await?.and_then(|undo| undo.previous);
        }
        known.retain(|_, height| floor.is_some_and(|floor| *height >= floor));
        match known.get(&hash) {
            Some(height) => Ok(of(store.block_at(*height).await?)),
            None => Ok(None),
        }
    }
}

/// Which page of the blocks.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct BlocksParams {
    /// How many at most.
    #[param(minimum = 1, maximum = 100, default = 20)]
    limit: Option<u64>,
    /// By height: `desc`, the newest first, unless asked otherwise.
    #[param(inline)]
    order: Option<Order>,
    /// The `cursor` of the page before. It goes with the same order.
    #[param(pattern = "^([0-9a-fA-F]{2}){1,256}$")]
    cursor: Option<String>,
}

/// The blocks that can still be rolled back
///
/// Of older ones nothing is kept but what their transactions became.
#[utoipa::path(
    get, path = "/api/v1/blocks", tag = "Read", params(BlocksParams),
    responses((status = 200, description = "One page", body = BlockPage), ReadProblems)
)]
pub(crate) async fn blocks(
    State(service): State<Service>,
    Query(query): Query<BlocksParams>,
) -> Answer<BlockPage> {
    let limit = extract::limit(query.limit, 20, 100)? as usize;
    let order = query.order.unwrap_or(Order::Descending);
    let store = service.node.store();
    Ok(Json(listing::blocks(store, order, query.cursor.as_deref(), limit).await?))
}

/// Which transactions of a block.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct BlockParams {
    /// The number of the first transaction to name.
    #[param(default = 0, maximum = 4294967295u64)]
    from: Option<u32>,
    /// How many transactions to name.
    #[param(minimum = 1, maximum = 10000, default = 1000)]
    limit: Option<u64>,
}

/// One block
///
/// By its height on the applied chain, or by its hash, as long as it can be rolled back.
#[utoipa::path(
    get, path = "/api/v1/blocks/{block}", tag = "Read",
    params(
        ("block" = String, Path, description = "Its height or its hash", pattern = "^([0-9]{1,10}|[0-9a-fA-F]{64})$"),
        BlockParams,
    ),
    responses(
        (status = 200, description = "The block", body = BlockView),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "Not an applied block, or not kept any more"),
        (status = 410, body = Problem, content_type = "application/problem+json", description = "Applied, and so deep that nothing of it is kept"),
        ReadProblems,
    )
)]
pub(crate) async fn block(
    State(service): State<Service>,
    Path(text): Path<String>,
    Query(query): Query<BlockParams>,
) -> Answer<BlockView> {
    let limit = extract::limit(query.limit, 1000, 10_000)? as usize;
    let from = query.from.unwrap_or(0) as usize;
    let store = service.node.store().clone();
    let undo = if text.len() == 64 {
        let hash = text.parse().map_err(|error| Problem::bad_request(format!("block: {error}")))?;
        service.block_heights.find(&store, hash).await?.ok_or_else(|| {
            Problem::not_found(format!(
                "block {text} is not among those that can still be rolled back: it was never applied, is not on the applied \
                 chain, or lies so deep that nothing of it is kept"
            ))
        })?
    } else {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let height = if digits { text.parse().ok().map(Height) } else { None };
        let height = height.ok_or_else(|| {
            Problem::bad_request("block: it is a height, or a hash of 64 hexadecimal digits")
        })?;
        match store.block_at(height).await? {
            Some(undo) => undo,
            None => return Err(not_kept(&store, height).await?),
        }
    };
    let blocks = [undo];
    let time = block_times::of(&store, &blocks).await?.pop().flatten();
    Ok(Json(BlockView::new(&blocks[0], time, from, limit)))
}

/// The problem with a height of which no block is kept.
async fn not_kept(store: &Ledger, height: Height) -> Result<Problem, Problem> {
    let (floor, last) = (store.undoable_from().await?, store.last_applied().await?);
    Ok(match (floor, last) {
        (Some(floor), Some(_)) if height < floor => Problem::pruned(format!(
            "block {height} can no longer be rolled back, so nothing of it is kept: the lowest block that is kept is {floor}"
        )),
        (_, Some(last)) => {
            Problem::not_found(format!("there is no block {height}: the last applied one is {}", last.height))
        }
        _ => Problem::not_found("no block has been applied yet"),
    })
}
