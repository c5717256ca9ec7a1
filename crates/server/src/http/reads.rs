//! What is stored: outputs, addresses, transactions.

use axum::{Json, extract::State};
use sapwood_ledger::Order;
use sapwood_pruner::Explanation;
use sapwood_rules::SpendStatus;
use sapwood_types::{Height, OutPoint, Slot, TxId};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    Problem, Service,
    extract::{self, Path, Query},
    problem::ReadProblems,
};
use crate::{
    listing::{self, MOST_LIMIT, Owner, USUAL_LIMIT, UtxoQuery},
    views::{TxView, UtxoPage, UtxoView},
};

type Answer<T> = Result<Json<T>, Problem>;

/// An output that the transaction in question is known to spend.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Spends {
    /// An output that the transaction spends, as TXID:VOUT. If the transaction is not stored, the slot of this output may remember
    /// it: then it is known to have been pruned, and the answer is 410 instead of 404. The id alone does not tell.
    #[param(pattern = "^[0-9a-fA-F]{64}:[0-9]{1,10}$")]
    spends: Option<String>,
}

/// The problem with a transaction that is not stored.
///
/// A slot names its spender only if that is stored, or was mined and pruned since: the store never deletes it otherwise. So a slot
/// that names a transaction which is not there proves that it was pruned. Without such a slot nothing is known of it.
pub(crate) async fn absent(service: &Service, txid: TxId, spends: Option<&str>) -> Result<Problem, Problem> {
    let Some(spends) = spends else {
        return Ok(Problem::not_found(format!(
            "transaction {txid} is not stored: it was never seen, was forgotten, or was pruned. If an output that it spends is \
             known, spends=TXID:VOUT tells which: ?spends= after its id in a path or on the page, --spends for a command"
        )));
    };
    let outpoint = extract::outpoint(spends)?;
    let parent = service.node.store().output(outpoint).await?;
    Ok(match parent.map(|parent| parent.slot) {
        Some(Slot::Spent { spender, child_mined_at: Some(mined_at) }) if spender.child == txid => {
            // It may have come between the two readings.
            if service.node.store().get(txid).await?.is_some() {
                return Ok(Problem::unavailable(format!(
                    "transaction {txid} was stored just now: ask again"
                )));
            }
            Problem::pruned(format!(
                "transaction {txid} was mined at height {mined_at} and has been pruned since: output {outpoint}, which it \
                 spent, remembers it"
            ))
        }
        Some(_) => Problem::not_found(format!(
            "transaction {txid} is not stored, and output {outpoint} does not remember it as its spender"
        )),
        None => Problem::not_found(format!(
            "transaction {txid} is not stored, and neither is output {outpoint}, so it is not known whether it was pruned"
        )),
    })
}

/// One output
///
/// Spent or not, as long as its transaction is stored.
#[utoipa::path(
    get, path = "/api/v1/utxos/{txid}/{vout}", tag = "Read",
    params(
        ("txid" = String, Path, description = "The id of its transaction", pattern = "^[0-9a-fA-F]{64}$"),
        ("vout" = u32, Path, description = "Its number", maximum = 4294967295u64),
        Spends,
    ),
    responses(
        (status = 200, description = "The output", body = UtxoView),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "Not stored"),
        (status = 410, body = Problem, content_type = "application/problem+json", description = "Known to have been pruned"),
        ReadProblems,
    )
)]
pub(crate) async fn utxo(
    State(service): State<Service>,
    Path((txid, vout)): Path<(String, String)>,
    Query(query): Query<Spends>,
) -> Answer<UtxoView> {
    let outpoint = OutPoint::new(extract::txid(&txid)?, extract::vout(&vout)?);
    let store = service.node.store();
    if let Some(utxo) = store.output(outpoint).await? {
        return Ok(Json(UtxoView::new(&utxo, service.kind())));
    }
    // The usual case is over; what remains may take its time.
    let status = store.spend_status(vec![outpoint], Height::GENESIS).await?.pop().transpose()?;
    if status == Some(SpendStatus::Unspendable) {
        let detail = format!("output {outpoint} can never be spent, so nothing of it is kept but its place");
        return Err(Problem::not_found(detail));
    }
    if let Some(record) = store.get(outpoint.txid).await? {
        let detail = format!("transaction {txid} has {} outputs, counted from 0", record.head.output_count);
        return Err(Problem::not_found(detail));
    }
    Err(absent(&service, outpoint.txid, query.spends.as_deref()).await?)
}

/// Which page of a listing.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageParams {
    /// How many at most.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u64>,
    /// By the height at which their records were made: `asc` unless asked otherwise.
    #[param(inline)]
    order: Option<Order>,
    /// The `cursor` of the page before. It goes with the same order.
    #[param(pattern = "^([0-9a-fA-F]{2}){1,256}$")]
    cursor: Option<String>,
}

async fn page(service: &Service, owner: Owner, query: PageParams) -> Answer<UtxoPage> {
    let kept = service.node.parts().address_index;
    let (kept, name) = match owner {
        Owner::Script(_) => (kept.address, "address"),
        Owner::Credential(_) => (kept.credential, "credential"),
    };
    if !kept {
        let detail = format!(
            "this data directory keeps no index by {name}. It is chosen when a directory is made: import into a new one with \
             --{name}-index, or set chain.{name}_index"
        );
        return Err(Problem::not_indexed(detail));
    }
    let limit = extract::limit(query.limit, USUAL_LIMIT, MOST_LIMIT)?;
    let order = query.order.unwrap_or(Order::Ascending);
    let query = UtxoQuery { owner, order, cursor: query.cursor, limit };
    Ok(Json(listing::utxos(service.node.store(), service.kind(), query).await?))
}

/// Unspent outputs of an address
///
/// In the chain's own notation (Bitcoin: base58 or bech32; other chains: hexadecimal digits), or a locking script in hexadecimal
/// digits, with `script:` before it or without.
#[utoipa::path(
    get, path = "/api/v1/addresses/{address}/utxos", tag = "Read",
    params(("address" = String, Path, description = "The address"), PageParams),
    responses(
        (status = 200, description = "One page", body = UtxoPage),
        (status = 501, body = Problem, content_type = "application/problem+json", description = "The store keeps no such index"),
        ReadProblems,
    )
)]
pub(crate) async fn address(
    State(service): State<Service>,
    Path(address): Path<String>,
    Query(query): Query<PageParams>,
) -> Answer<UtxoPage> {
    let script =
        service.kind().parse(&address).map_err(|error| Problem::bad_request(format!("address: {error}")))?;
    page(&service, Owner::Script(script), query).await
}

/// Unspent outputs of a payment credential
#[utoipa::path(
    get, path = "/api/v1/credentials/{credential}/utxos", tag = "Read",
    params(
        ("credential" = String, Path, description = "The credential: 28 bytes", pattern = "^[0-9a-fA-F]{56}$"),
        PageParams,
    ),
    responses(
        (status = 200, description = "One page", body = UtxoPage),
        (status = 501, body = Problem, content_type = "application/problem+json", description = "The store keeps no such index"),
        ReadProblems,
    )
)]
pub(crate) async fn credential(
    State(service): State<Service>,
    Path(credential): Path<String>,
    Query(query): Query<PageParams>,
) -> Answer<UtxoPage> {
    let hash = credential.parse().map_err(|error| Problem::bad_request(format!("credential: {error}")))?;
    page(&service, Owner::Credential(hash), query).await
}

/// Which outputs of a transaction.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TxParams {
    /// An output that the transaction spends, as TXID:VOUT. If the transaction is not stored, the slot of this output may remember
    /// it: then it is known to have been pruned, and the answer is 410 instead of 404. The id alone does not tell.
    #[param(pattern = "^[0-9a-fA-F]{64}:[0-9]{1,10}$")]
    spends: Option<String>,
    /// The number of the first output to show.
    #[param(default = 0, maximum = 4294967295u64)]
    from: Option<u32>,
    /// How many outputs to show.
    #[param(minimum = 1, maximum = 1000, default = 1000)]
    limit: Option<u64>,
}

/// One transaction
#[utoipa::path(
    get, path = "/api/v1/txs/{txid}", tag = "Read",
    params(("txid" = String, Path, description = "Its id", pattern = "^[0-9a-fA-F]{64}$"), TxParams),
    responses(
        (status = 200, description = "The transaction", body = TxView),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "Not stored"),
        (status = 410, body = Problem, content_type = "application/problem+json", description = "Known to have been pruned"),
        ReadProblems,
    )
)]
pub(crate) async fn tx(
    State(service): State<Service>,
    Path(txid): Path<String>,
    Query(query): Query<TxParams>,
) -> Answer<TxView> {
    let txid = extract::txid(&txid)?;
    let limit = extract::limit(query.limit, MOST_LIMIT, MOST_LIMIT)? as usize;
    match service.node.store().get(txid).await? {
        Some(record) => {
            let record = service.node.store().with_inputs(record).await?;
            Ok(Json(TxView::new(&record, query.from.unwrap_or(0), limit, service.kind())))
        }
        None => Err(absent(&service, txid, query.spends.as_deref()).await?),
    }
}

/// Why is this transaction still there?
#[utoipa::path(
    get, path = "/api/v1/txs/{txid}/explain", tag = "Read",
    params(("txid" = String, Path, description = "Its id", pattern = "^[0-9a-fA-F]{64}$"), Spends),
    responses(
        (status = 200, description = "Every guard, and the verdict", body = Explanation),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "Not stored"),
        (status = 410, body = Problem, content_type = "application/problem+json", description = "Known to have been pruned"),
        ReadProblems,
    )
)]
pub(crate) async fn explain(
    State(service): State<Service>,
    Path(txid): Path<String>,
    Query(query): Query<Spends>,
) -> Answer<Explanation> {
    let txid = extract::txid(&txid)?;
    let explanation = service.node.pruner().explain(txid).await?;
    if !explanation.stored {
        return Err(absent(&service, txid, query.spends.as_deref()).await?);
    }
    Ok(Json(explanation))
}
