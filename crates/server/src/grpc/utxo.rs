//! The service `Utxo`: every operation of the store.

use bytes::Bytes;
use prost::Message;
use sapwood_chain::Chain;
use sapwood_ledger::{
    AddressKind, AddressQuery, BatchError, BatchResult, ConflictError, Cursor, Ledger, MineRequest, Order,
    StoreError, Utxo as StoredUtxo,
};
use sapwood_pruner::PrunerHandle;
use sapwood_rules::SpendStatus;
use sapwood_types::{AddressHash, Height};
use tonic::{Request, Response, Status};

use super::{
    GrpcLimits,
    convert::{AsProblem, chain_problem, known, precondition, store_status, txids},
    field::{BadField, Checked, InField, hash, height, required},
    proto::{self, utxo_server::Utxo, *},
};
use crate::cursor::Listing;

/// The service `Utxo`.
pub(crate) struct UtxoService {
    pub(crate) store: Ledger,
    /// What keeps bodies of large transactions before it stores them.
    pub(crate) chain: Chain,
    /// What would end preservations before their time.
    pub(crate) pruner: PrunerHandle,
    pub(crate) limits: GrpcLimits,
}

type Answer<T> = Result<Response<T>, Status>;

/// Records read at once. More are read only if the answer so far is small enough.
const RECORDS_AT_ONCE: usize = 256;

impl UtxoService {
    /// Refuses an answer that is larger than a question may be.
    fn fits(&self, bytes: usize) -> Result<(), Status> {
        let limit = self.limits.max_message_bytes;
        if bytes <= limit {
            return Ok(());
        }
        Err(Status::resource_exhausted(format!(
            "the answer has more than {limit} bytes: ask for fewer items at a time"
        )))
    }

    fn answer<T: Message>(&self, answer: T) -> Answer<T> {
        self.fits(answer.encoded_len())?;
        Ok(Response::new(answer))
    }
}

/// Items that failed, or the status that ends the call.
fn failed<E: AsProblem>(error: BatchError<E>) -> Result<Vec<Problem>, Status> {
    match error {
        BatchError::Store(error) => Err(store_status(&error)),
        BatchError::Items { failed, .. } => {
            let numbered =
                |(item, error): (usize, E)| Problem { index: Some(item as u32), ..error.as_problem() };
            Ok(failed.into_iter().map(numbered).collect())
        }
    }
}

fn batch<E: AsProblem>(total: usize, result: BatchResult<(), E>) -> Answer<BatchResponse> {
    let failed = result.map_or_else(failed, |()| Ok(Vec::new()))?;
    Ok(Response::new(BatchResponse { succeeded: (total - failed.len()) as u32, failed }))
}

/// The cursor that came back, which has to be one of this list.
fn opened(listing: &Listing, cursor: Option<Bytes>) -> Checked<Option<Cursor>> {
    let open = |cursor: Bytes| listing.open(&cursor).map_err(|error| BadField::new(error.to_string()));
    cursor.map(open).transpose().field("cursor")
}

/// The cursor of the next page, as it goes out.
fn sealed(listing: &Listing, cursor: Option<Cursor>) -> Option<Bytes> {
    cursor.map(|cursor| listing.seal(&cursor))
}

fn owner(owner: Option<list_by_address_request::Owner>) -> Checked<(AddressKind, AddressHash)> {
    use list_by_address_request::Owner;
    Ok(match required(owner, "owner")? {
        Owner::Script(script) => (AddressKind::Address, AddressHash::of_script(&script)),
        Owner::AddressHash(address) => (AddressKind::Address, hash(&address).field("address_hash")?),
        Owner::Credential(credential) => (AddressKind::Credential, hash(&credential).field("credential")?),
    })
}

#[tonic::async_trait]
impl Utxo for UtxoService {
    async fn get(&self, request: Request<GetRequest>) -> Answer<GetResponse> {
        let txids = self.limits.hashes(request.into_inner().txids, "txids")?;
        let (mut records, mut size) = (Vec::with_capacity(txids.len()), 0);
        for some in txids.chunks(RECORDS_AT_ONCE) {
            for record in self.store.get_many(some.to_vec()).await.map_err(|error| store_status(&error))? {
                let record = match record {
                    Ok(None) => MaybeRecord::default(),
                    Ok(Some(record)) => {
                        let record = self.store.with_inputs(record).await;
                        let record = record.map_err(|error| store_status(&error))?;
                        MaybeRecord { record: Some(record.into()), problem: None }
                    }
                    Err(error) => MaybeRecord { record: None, problem: Some(error.as_problem()) },
                };
                size += record.encoded_len();
                records.push(record);
            }
            self.fits(size)?;
        }
        self.answer(GetResponse { records })
    }

    async fn get_outputs(&self, request: Request<GetOutputsRequest>) -> Answer<GetOutputsResponse> {
        let outpoints =
            self.limits.batch(request.into_inner().outpoints, "outpoints", proto::OutPoint::read)?;
        let outputs = self.store.outputs(outpoints).await.map_err(|error| store_status(&error))?;
        let maybe = |output: Result<Option<StoredUtxo>, StoreError>| match output {
            Ok(output) => MaybeOutput { output: output.map(Into::into), problem: None },
            Err(error) => MaybeOutput { output: None, problem: Some(error.as_problem()) },
        };
        self.answer(GetOutputsResponse { outputs: outputs.into_iter().map(maybe).collect() })
    }

    async fn get_spend_status(
        &self,
        request: Request<GetSpendStatusRequest>,
    ) -> Answer<GetSpendStatusResponse> {
        let request = request.into_inner();
        let outpoints = self.limits.batch(request.outpoints, "outpoints", proto::OutPoint::read)?;
        let at = height(request.height, "height")?;
        let statuses = self.store.spend_status(outpoints, at).await.map_err(|error| store_status(&error))?;
        let status = |status: Result<SpendStatus, StoreError>| match status {
            Ok(status) => status.into(),
            Err(error) => OutputStatus {
                status: proto::SpendStatus::Unreadable.into(),
                message: error.to_string(),
                ..OutputStatus::default()
            },
        };
        self.answer(GetSpendStatusResponse { statuses: statuses.into_iter().map(status).collect() })
    }

    async fn list_old_unmined(
        &self,
        request: Request<ListOldUnminedRequest>,
    ) -> Answer<ListOldUnminedResponse> {
        let ListOldUnminedRequest { cutoff, cursor, limit } = request.into_inner();
        let (cutoff, limit) = (height(cutoff, "cutoff")?, self.limits.page(limit)?);
        let listing = Listing::new("old_unmined", Order::Ascending, cutoff.0.to_be_bytes());
        let after = opened(&listing, cursor)?;
        let page =
            self.store.old_unmined(cutoff, after, limit).await.map_err(|error| store_status(&error))?;
        self.answer(ListOldUnminedResponse { txids: txids(&page.items), cursor: sealed(&listing, page.next) })
    }

    async fn list_unmined(&self, request: Request<ListUnminedRequest>) -> Answer<ListUnminedResponse> {
        let ListUnminedRequest { cursor, limit } = request.into_inner();
        let limit = self.limits.page(limit)?;
        let listing = Listing::new("unmined", Order::Ascending, []);
        let after = opened(&listing, cursor)?;
        let page = self.store.unmined(after, limit).await.map_err(|error| store_status(&error))?;
        let transactions = page.items.into_iter().map(Into::into).collect();
        let unreadable = page.unreadable.into_iter().map(Into::into).collect();
        self.answer(ListUnminedResponse { transactions, cursor: sealed(&listing, page.next), unreadable })
    }

    async fn list_by_address(&self, request: Request<ListByAddressRequest>) -> Answer<ListByAddressResponse> {
        let request = request.into_inner();
        let (kind, hash) = owner(request.owner)?;
        let order = match proto::Order::try_from(request.order) {
            Ok(proto::Order::Unspecified | proto::Order::Asc) => Order::Ascending,
            Ok(proto::Order::Desc) => Order::Descending,
            Err(_) => return Err(BadField::new("is not an order").named("order")),
        };
        let name = match kind {
            AddressKind::Address => "addresses",
            AddressKind::Credential => "credentials",
        };
        let listing = Listing::new(name, order, hash.0);
        let (after, limit) = (opened(&listing, request.cursor)?, self.limits.page(request.limit)?);
        let query = AddressQuery { kind, hash, order, after, limit };
        let page = self.store.by_address(query).await.map_err(|error| store_status(&error))?;
        let outputs = page.items.into_iter().map(Into::into).collect();
        let unreadable = page.unreadable.into_iter().map(Into::into).collect();
        self.answer(ListByAddressResponse { outputs, cursor: sealed(&listing, page.next), unreadable })
    }

    async fn get_counts(&self, _: Request<GetCountsRequest>) -> Answer<GetCountsResponse> {
        let counts = self.store.counts().await.map_err(|error| store_status(&error))?;
        let created = counts.created();
        let sapwood_ledger::Counts { records, unspent, unmined, spent, .. } = counts;
        Ok(Response::new(GetCountsResponse { records, unspent, unmined, spent, created }))
    }

    async fn get_utxo_set(&self, _: Request<GetUtxoSetRequest>) -> Answer<GetUtxoSetResponse> {
        let Some(set) = self.store.rolling_utxo_set().await.map_err(|error| store_status(&error))? else {
            return Ok(Response::new(GetUtxoSetResponse { set: None }));
        };
        // The hash is a few milliseconds of arithmetic.
        let converted = tokio::task::spawn_blocking(move || set.into()).await;
        let set = converted.map_err(|error| Status::internal(error.to_string()))?;
        Ok(Response::new(GetUtxoSetResponse { set: Some(set) }))
    }

    async fn get_applied(&self, _: Request<GetAppliedRequest>) -> Answer<GetAppliedResponse> {
        let applied = self.store.last_applied().await.map_err(|error| store_status(&error))?;
        let floor = self.store.rollback_floor().await.map_err(|error| store_status(&error))?;
        let (applied, rollback_floor) = (applied.map(Into::into), known(floor));
        Ok(Response::new(GetAppliedResponse { applied, rollback_floor }))
    }

    async fn create(&self, request: Request<CreateRequest>) -> Answer<BatchResponse> {
        let request = request.into_inner();
        let items = self.limits.batch(request.transactions, "transactions", NewTransaction::read)?;
        let (total, height) = (items.len(), height(request.height, "height")?);
        match self.chain.create(items, height).await {
            Ok(created) => batch(total, created),
            Err(error) => Err(chain_problem(&error)
                .map_or_else(|status| *status, |problem| Status::internal(problem.message))),
        }
    }

    async fn spend(&self, request: Request<SpendRequest>) -> Answer<BatchResponse> {
        let request = request.into_inner();
        let items = self.limits.batch(request.spends, "spends", Spend::read)?;
        let (total, height) = (items.len(), height(request.height, "height")?);
        batch(total, self.store.spend(items, height).await)
    }

    async fn unspend(&self, request: Request<UnspendRequest>) -> Answer<BatchResponse> {
        let items = self.limits.batch(request.into_inner().spends, "spends", SpendToTakeBack::read)?;
        let total = items.len();
        batch(total, self.store.unspend(items).await)
    }

    async fn set_mined(&self, request: Request<SetMinedRequest>) -> Answer<BatchResponse> {
        let request = request.into_inner();
        let txids = self.limits.hashes(request.txids, "txids")?;
        let block = required(request.block, "block")?.read().field("block")?;
        let (total, height) = (txids.len(), height(request.height, "height")?);
        let mine = MineRequest { block, unset: request.unset };
        batch(total, self.store.set_mined(txids, mine, height).await)
    }

    async fn mark_on_longest_chain(
        &self,
        request: Request<MarkOnLongestChainRequest>,
    ) -> Answer<BatchResponse> {
        let request = request.into_inner();
        let txids = self.limits.hashes(request.txids, "txids")?;
        let (on, height) = (required(request.on, "on")?, height(request.height, "height")?);
        batch(txids.len(), self.store.mark_on_longest_chain(txids, on, height).await)
    }

    async fn set_conflicting(
        &self,
        request: Request<SetConflictingRequest>,
    ) -> Answer<SetConflictingResponse> {
        let request = request.into_inner();
        let items = self.limits.hashes(request.txids, "txids")?;
        let (on, height) = (required(request.on, "on")?, height(request.height, "height")?);
        let (changed, failed) = match self.store.set_conflicting(items, on, height).await {
            Ok(changed) => (txids(&changed), Vec::new()),
            Err(error) => (Vec::new(), failed(error)?),
        };
        Ok(Response::new(SetConflictingResponse { changed, failed }))
    }

    async fn resolve_conflicts(
        &self,
        request: Request<ResolveConflictsRequest>,
    ) -> Answer<ResolveConflictsResponse> {
        let request = request.into_inner();
        let winners = self.limits.hashes(request.winners, "winners")?;
        let height = height(request.height, "height")?;
        match self.store.resolve_conflicts(winners, height).await {
            Ok(losers) => Ok(Response::new(ResolveConflictsResponse { losers: txids(&losers) })),
            Err(ConflictError::Store(error)) if !error.is_of_one_record() => Err(store_status(&error)),
            Err(error) => Err(precondition(&error.as_problem())),
        }
    }

    async fn set_locked(&self, request: Request<SetLockedRequest>) -> Answer<BatchResponse> {
        let request = request.into_inner();
        let txids = self.limits.hashes(request.txids, "txids")?;
        let on = required(request.on, "on")?;
        batch(txids.len(), self.store.set_locked(txids, on).await)
    }

    async fn freeze(&self, request: Request<FreezeRequest>) -> Answer<BatchResponse> {
        let outpoints =
            self.limits.batch(request.into_inner().outpoints, "outpoints", proto::OutPoint::read)?;
        batch(outpoints.len(), self.store.freeze(outpoints).await)
    }

    async fn unfreeze(&self, request: Request<UnfreezeRequest>) -> Answer<BatchResponse> {
        let outpoints =
            self.limits.batch(request.into_inner().outpoints, "outpoints", proto::OutPoint::read)?;
        batch(outpoints.len(), self.store.unfreeze(outpoints).await)
    }

    async fn reassign(&self, request: Request<ReassignRequest>) -> Answer<BatchResponse> {
        let request = request.into_inner();
        let items = self.limits.batch(request.outputs, "outputs", proto::Reassign::read)?;
        let (total, height) = (items.len(), height(request.height, "height")?);
        batch(total, self.store.reassign(items, height).await)
    }

    async fn preserve(&self, request: Request<PreserveRequest>) -> Answer<PreserveResponse> {
        let request = request.into_inner();
        let txids = self.limits.hashes(request.txids, "txids")?;
        let until = height(request.until, "until")?;
        match self.pruner.preserve(txids, until).await {
            Ok(present) => Ok(Response::new(PreserveResponse { present: present as u32 })),
            Err(BatchError::Store(error)) => Err(store_status(&error)),
            // It fails only with the engine.
            Err(error) => Err(Status::internal(error.to_string())),
        }
    }

    async fn expire_preservations(
        &self,
        request: Request<ExpirePreservationsRequest>,
    ) -> Answer<ExpirePreservationsResponse> {
        let request = request.into_inner();
        let (height, limit) = (height(request.height, "height")?, self.limits.page(request.limit)?);
        let last = self.store.last_applied().await.map_err(|error| store_status(&error))?;
        let over = height.min(last.map_or(Height::GENESIS, |last| last.height));
        let ended = self.store.expire_preservations(over, limit).await;
        let ended = ended.map_err(|error| store_status(&error))?;
        Ok(Response::new(ExpirePreservationsResponse { ended: ended.worked_off as u32 }))
    }

    async fn delete(&self, request: Request<DeleteRequest>) -> Answer<BatchResponse> {
        let txids = self.limits.hashes(request.into_inner().txids, "txids")?;
        batch(txids.len(), self.store.delete(txids).await)
    }
}
