//! The service `Chain`: feed the chain, hear of it, and say how far others are.

use std::{pin::Pin, sync::Arc};

use futures_util::{Stream, stream};
use sapwood_chain::{Chain, ChainError, Stop, Told, events};
use sapwood_pruner::PrunerHandle;
use sapwood_types::Height;
use tonic::{Request, Response, Status};

use super::{
    Feed, GrpcLimits,
    convert::{applied, chain_problem, known, precondition, store_status},
    field::{BadField, InField, height, required},
    proto::{chain_event::Event, *},
    pruner::hold_refused,
};

/// The service `Chain`.
pub(crate) struct ChainService {
    pub(crate) chain: Chain,
    pub(crate) pruner: PrunerHandle,
    pub(crate) feed: Feed,
    pub(crate) limits: GrpcLimits,
    pub(crate) stop: Stop,
}

type Answer<T> = Result<Response<T>, Status>;
type EventStream = Pin<Box<dyn Stream<Item = Result<ChainEvent, Status>> + Send>>;

/// The status of a chain that could not do something.
fn status(error: &ChainError) -> Status {
    chain_problem(error).map_or_else(|status| *status, |problem| precondition(&problem))
}

#[tonic::async_trait]
impl chain_server::Chain for ChainService {
    async fn get_status(&self, _: Request<GetChainStatusRequest>) -> Answer<GetChainStatusResponse> {
        let last = self.chain.last().await.map_err(|error| status(&error))?;
        let floor = self.chain.store().rollback_floor().await.map_err(|error| store_status(&error))?;
        let figures = self.chain.figures();
        Ok(Response::new(GetChainStatusResponse {
            state: ChainState::from(self.chain.events().state()).into(),
            applied: last.map(Into::into),
            rollback_floor: known(floor),
            queued: figures.queued as u64,
            fed: matches!(self.feed, Feed::Open),
            apply: Some(figures.apply.into()),
            rollback: Some(figures.rollback.into()),
            transactions: figures.transactions,
            latest: Some(self.chain.events().latest().into()),
        }))
    }

    type SubscribeStream = EventStream;

    async fn subscribe(&self, _: Request<SubscribeRequest>) -> Answer<EventStream> {
        let events = self.chain.events().clone();
        // Heard from before it is said where things stand, so that nothing falls in between.
        let subscription = events.subscribe();
        let first = ChainEvent { event: Some(Event::Standing(events.latest().into())) };
        // Nothing is buffered here: a client that does not read lags behind on the bus, where it costs nothing.
        let rest = stream::unfold(Some((subscription, self.stop.clone())), move |state| {
            let events = events.clone();
            async move {
                let (mut subscription, stop) = state?;
                let event = match stop.or(subscription.next()).await {
                    None => return Some((Err(Status::unavailable("the server is stopping")), None)),
                    Some(None) => return None,
                    Some(Some(Told::Event(event))) => Event::from(&*event),
                    Some(Some(Told::Missed(missed))) => {
                        Event::Missed(Missed { events: missed, standing: Some(events.latest().into()) })
                    }
                };
                Some((Ok(ChainEvent { event: Some(event) }), Some((subscription, stop))))
            }
        });
        Ok(Response::new(Box::pin(stream::StreamExt::chain(stream::iter([Ok(first)]), rest))))
    }

    async fn apply_blocks(&self, request: Request<ApplyBlocksRequest>) -> Answer<ApplyBlocksResponse> {
        let blocks = self.limits.batch(request.into_inner().blocks, "blocks", Block::read)?;
        let mut answer = ApplyBlocksResponse::default();
        for (index, (block, options)) in blocks.into_iter().enumerate() {
            let height = block.height.0;
            match self.chain.apply(Arc::new(block), options).await {
                Ok(done) => answer.applied.push(applied(height, done)),
                Err(error) => {
                    let problem = chain_problem(&error).map_err(|status| *status)?;
                    answer.problem = Some(Problem { index: Some(index as u32), ..problem });
                    break;
                }
            }
        }
        Ok(Response::new(answer))
    }

    async fn roll_back(&self, request: Request<RollBackRequest>) -> Answer<RollBackResponse> {
        use roll_back_request::Target;
        let to = match required(request.into_inner().target, "target")? {
            Target::To(point) => Some(point.read().field("to")?),
            Target::Everything(true) => None,
            Target::Everything(false) => {
                return Err(BadField::new("must be true if it is given")).field("everything")?;
            }
        };
        let rolled_back = self.chain.roll_back(to).await.map_err(|error| status(&error))?;
        Ok(Response::new(rolled_back.into()))
    }

    async fn set_state(&self, request: Request<SetStateRequest>) -> Answer<SetStateResponse> {
        let request = request.into_inner();
        let known = ChainState::try_from(request.state)
            .map_err(|_| BadField::new(format!("{} is not a known state", request.state)));
        let state = known.and_then(ChainState::read).field("state")?;
        self.chain.events().enter(state);
        Ok(Response::new(SetStateResponse {}))
    }

    async fn report_block_persisted(
        &self,
        request: Request<ReportBlockPersistedRequest>,
    ) -> Answer<ReportBlockPersistedResponse> {
        let height = height(request.into_inner().height, "height")?;
        let job = self.pruner.report_persisted(height).await.map_err(hold_refused)?;
        // The pruner knows already; this is for everybody else.
        self.chain.events().tell(sapwood_chain::Event::BlockPersisted(events::BlockPersisted { height }));
        Ok(Response::new(ReportBlockPersistedResponse { job_id: job.0 }))
    }

    async fn register_consumer(
        &self,
        request: Request<RegisterConsumerRequest>,
    ) -> Answer<RegisterConsumerResponse> {
        let request = request.into_inner();
        let consumer = match request.consumer() {
            Consumer::Persister => sapwood_pruner::Consumer::Persister,
            Consumer::BlockAssembly => sapwood_pruner::Consumer::BlockAssembly,
            Consumer::Unspecified => {
                let problem = format!("{} is not a known consumer", request.consumer);
                return Err(BadField::new(problem).named("consumer"));
            }
        };
        self.pruner.register(consumer).await.map_err(hold_refused)?;
        Ok(Response::new(RegisterConsumerResponse {}))
    }

    async fn set_block_assembly(
        &self,
        request: Request<SetBlockAssemblyRequest>,
    ) -> Answer<SetBlockAssemblyResponse> {
        let SetBlockAssemblyRequest { running, height } = request.into_inner();
        let running = required(running, "running")?;
        self.pruner.report_block_assembly(running, height.map(Height)).await.map_err(hold_refused)?;
        Ok(Response::new(SetBlockAssemblyResponse {}))
    }
}
