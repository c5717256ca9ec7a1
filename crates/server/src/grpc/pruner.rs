//! The service `Pruner`: what it does, what holds it back, and why a record is still there.

use std::{
    collections::VecDeque,
    pin::Pin,
    time::{SystemTime, UNIX_EPOCH},
};

use futures_util::{Stream, stream};
use sapwood_chain::Stop;
use sapwood_ledger::Ledger;
use sapwood_pruner::{HoldError, JobId, PrunerError, PrunerHandle};
use sapwood_types::Height;
use tokio::sync::broadcast::error::RecvError;
use tonic::{Request, Response, Status};

use super::{
    GrpcLimits,
    convert::{shortening, store_status},
    field::{BadField, InField, hash, required},
    proto::{pruner_server::Pruner, watch_jobs_response::Event, *},
};
use crate::Caller;

/// Due records a plan looks at, unless told otherwise.
const PLANNED: u64 = 100_000;

/// The service `Pruner`.
pub(crate) struct PrunerService {
    pub(crate) pruner: PrunerHandle,
    pub(crate) store: Ledger,
    pub(crate) limits: GrpcLimits,
    pub(crate) stop: Stop,
}

type Answer<T> = Result<Response<T>, Status>;
type JobStream = Pin<Box<dyn Stream<Item = Result<WatchJobsResponse, Status>> + Send>>;

fn refused(error: PrunerError) -> Status {
    match error {
        PrunerError::Store(error) => store_status(&error),
        PrunerError::HeightZero => BadField::new(error.to_string()).named("height"),
        PrunerError::Options(_) => Status::invalid_argument(error.to_string()),
        PrunerError::Shortens(shortened) => shortening(&shortened),
        PrunerError::Disabled | PrunerError::JobOver { .. } => Status::failed_precondition(error.to_string()),
        PrunerError::NoSuchJob { .. } => Status::not_found(error.to_string()),
        PrunerError::Stopped => Status::unavailable(error.to_string()),
    }
}

pub(super) fn hold_refused(error: HoldError) -> Status {
    match error {
        HoldError::Store(error) => store_status(&error),
        HoldError::Invalid { field, problem } => BadField::new(problem).named(field),
        HoldError::Reserved { .. } => BadField::new(error.to_string()).named("name"),
        HoldError::OtherOwner { .. } => Status::failed_precondition(error.to_string()),
        HoldError::NotFound { .. } => Status::not_found(error.to_string()),
        HoldError::TooMany => Status::resource_exhausted(error.to_string()),
    }
}

impl PrunerService {
    /// A hold as it is now.
    async fn hold(&self, name: &str) -> Result<Option<Hold>, Status> {
        let holds = self.pruner.list_holds().await.map_err(|error| store_status(&error))?;
        Ok(holds.into_iter().find(|status| status.hold.name == name).map(Into::into))
    }
}

#[tonic::async_trait]
impl Pruner for PrunerService {
    async fn health(&self, _: Request<HealthRequest>) -> Answer<HealthResponse> {
        let (ok, details) = match (self.store.writable().await, self.pruner.status().await) {
            (Err(error), _) | (_, Err(error)) => (false, error.to_string()),
            (Ok(()), Ok(status)) => match status.last_job.and_then(|job| job.error) {
                None => (true, status.state),
                Some(error) => (false, format!("the last job failed: {error}")),
            },
        };
        let timestamp_ms =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        Ok(Response::new(HealthResponse { ok, details, timestamp_ms }))
    }

    async fn get_status(&self, _: Request<GetPrunerStatusRequest>) -> Answer<GetPrunerStatusResponse> {
        let status = self.pruner.status().await.map_err(|error| store_status(&error))?;
        Ok(Response::new(status.into()))
    }

    async fn plan(&self, request: Request<PlanRequest>) -> Answer<PlanResponse> {
        let PlanRequest { height, limit } = request.into_inner();
        let limit = limit.unwrap_or(PLANNED);
        if limit == 0 {
            return Err(BadField::new("must be at least 1").named("limit"));
        }
        let plan = self.pruner.plan(height.map(Height), limit).await.map_err(|error| store_status(&error))?;
        Ok(Response::new(plan.into()))
    }

    async fn explain(&self, request: Request<ExplainRequest>) -> Answer<ExplainResponse> {
        let txid = hash(&request.into_inner().txid).field("txid")?;
        let explanation = self.pruner.explain(txid).await.map_err(|error| store_status(&error))?;
        Ok(Response::new(explanation.into()))
    }

    async fn list_jobs(&self, request: Request<ListJobsRequest>) -> Answer<ListJobsResponse> {
        let limit = self.limits.page(request.into_inner().limit)?;
        let jobs = self.pruner.jobs(limit).into_iter().map(Into::into).collect();
        Ok(Response::new(ListJobsResponse { jobs }))
    }

    type WatchJobsStream = JobStream;

    async fn watch_jobs(&self, _: Request<WatchJobsRequest>) -> Answer<JobStream> {
        // Watched before the list is made, so that no change falls in between.
        let changes = self.pruner.watch_jobs();
        let mut now = self.pruner.jobs(usize::MAX);
        now.retain(|job| !job.state.is_over());
        now.reverse();
        let state = Some((VecDeque::from(now), changes, self.stop.clone()));
        let jobs = stream::unfold(state, |state| async move {
            let (mut now, mut changes, stop) = state?;
            let event = match now.pop_front() {
                Some(job) => Event::Job(job.into()),
                None => match stop.or(changes.recv()).await {
                    None => return Some((Err(Status::unavailable("the server is stopping")), None)),
                    Some(Ok(job)) => Event::Job(job.into()),
                    Some(Err(RecvError::Lagged(missed))) => Event::Missed(missed),
                    Some(Err(RecvError::Closed)) => return None,
                },
            };
            Some((Ok(WatchJobsResponse { event: Some(event) }), Some((now, changes, stop))))
        });
        Ok(Response::new(Box::pin(jobs)))
    }

    async fn list_holds(&self, _: Request<ListHoldsRequest>) -> Answer<ListHoldsResponse> {
        let holds = self.pruner.list_holds().await.map_err(|error| store_status(&error))?;
        Ok(Response::new(ListHoldsResponse { holds: holds.into_iter().map(Into::into).collect() }))
    }

    async fn get_policy(&self, _: Request<GetPolicyRequest>) -> Answer<GetPolicyResponse> {
        Ok(Response::new((&self.pruner.policy_state()).into()))
    }

    async fn prune(&self, request: Request<PruneRequest>) -> Answer<PruneResponse> {
        let PruneRequest { height, wait } = request.into_inner();
        let id = self.pruner.prune_now(height.map(Height)).map_err(refused)?;
        let job = if wait { self.pruner.wait(id).await } else { self.pruner.job(id) };
        // It is forgotten only if a thousand others came after it.
        let job = job.ok_or_else(|| refused(PrunerError::NoSuchJob { job: id }))?;
        Ok(Response::new(PruneResponse { job: Some(job.into()) }))
    }

    async fn cancel_job(&self, request: Request<CancelJobRequest>) -> Answer<CancelJobResponse> {
        self.pruner.cancel(JobId(request.into_inner().id)).map_err(refused)?;
        Ok(Response::new(CancelJobResponse {}))
    }

    async fn set_hold(&self, request: Request<SetHoldRequest>) -> Answer<SetHoldResponse> {
        let SetHoldRequest { name, owner, keep_from, expires, reason } = request.into_inner();
        let keep_from = keep_from.map(Height);
        let hold = sapwood_rules::Hold { name: name.clone(), owner, keep_from, expires, reason };
        self.pruner.holds().set(hold).await.map_err(hold_refused)?;
        Ok(Response::new(SetHoldResponse { hold: self.hold(&name).await? }))
    }

    async fn renew_hold(&self, request: Request<RenewHoldRequest>) -> Answer<RenewHoldResponse> {
        let RenewHoldRequest { name, keep_from, expires } = request.into_inner();
        let before = self.pruner.holds().get(&name);
        let (from, until) = before.map_or((None, None), |hold| (hold.keep_from, hold.expires));
        let (from, expires) = (keep_from.map(Height).or(from), expires.or(until));
        self.pruner.holds().renew(&name, from, expires).await.map_err(hold_refused)?;
        Ok(Response::new(RenewHoldResponse { hold: self.hold(&name).await? }))
    }

    async fn release_hold(&self, request: Request<ReleaseHoldRequest>) -> Answer<ReleaseHoldResponse> {
        self.pruner.holds().release(&request.into_inner().name).await.map_err(hold_refused)?;
        Ok(Response::new(ReleaseHoldResponse {}))
    }

    async fn set_enabled(&self, request: Request<SetEnabledRequest>) -> Answer<SetEnabledResponse> {
        let done = match required(request.into_inner().enabled, "enabled")? {
            true => self.pruner.enable().await,
            false => self.pruner.disable().await,
        };
        done.map_err(|error| store_status(&error))?;
        Ok(Response::new(SetEnabledResponse {}))
    }

    async fn set_policy(&self, request: Request<SetPolicyRequest>) -> Answer<SetPolicyResponse> {
        let by =
            request.extensions().get::<Caller>().map_or_else(|| "gRPC".into(), |caller| caller.over("gRPC"));
        let request = request.into_inner();
        let changed = self.pruner.change_policy(request.change(), &by, request.confirm).await;
        let state = changed.map_err(refused)?;
        Ok(Response::new(SetPolicyResponse { policy: Some(state.policy().into()) }))
    }
}
