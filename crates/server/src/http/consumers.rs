//! Consumers: parts of the system that follow the chain and say how far they are.

use axum::{Json, extract::State, http::StatusCode};
use sapwood_chain::{Event, events};
use sapwood_pruner::{Consumer, HoldStatus};
use sapwood_types::Height;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    Problem, Service,
    extract::{Admin, MaybeBody, Path},
    problem::{AdminProblems, ReadProblems},
    prune::hold_named,
};

/// How far a consumer is.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConsumerRequest {
    /// All blocks up to this height are persisted, or taken in. `None`: as reported before; if it has never reported a height, no record
    /// is prunable.
    height: Option<u32>,
    /// Whether block assembly is running. While it is not, no record is pruned. Only for block assembly, and true unless given.
    running: Option<bool>,
}

fn consumer(name: &str) -> Result<Consumer, Problem> {
    [Consumer::Persister, Consumer::BlockAssembly]
        .into_iter()
        .find(|consumer| consumer.name() == name)
        .ok_or_else(|| {
            Problem::not_found(format!(
                "there is no consumer {name}: there are `persister` and `block-assembly`"
            ))
        })
}

/// Register a consumer, or say how far it is
///
/// From then on no record is pruned that it has not passed. It stays so after a restart, until the consumer is released.
#[utoipa::path(
    put, path = "/api/v1/consumers/{consumer}", tag = "Holds", security(("admin" = [])),
    params(("consumer" = String, Path, description = "`persister` or `block-assembly`")),
    request_body(content = Option<ConsumerRequest>),
    responses(
        (status = 200, description = "Its hold", body = HoldStatus),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "No such consumer"),
        ReadProblems, AdminProblems,
    )
)]
pub(crate) async fn report(
    State(service): State<Service>,
    Path(name): Path<String>,
    _admin: Admin,
    MaybeBody(request): MaybeBody<ConsumerRequest>,
) -> Result<Json<HoldStatus>, Problem> {
    let pruner = service.node.pruner();
    let height = request.height.map(Height);
    match (consumer(&name)?, request.running, height) {
        (Consumer::Persister, Some(_), _) => {
            return Err(Problem::not_allowed_value(
                "running: only block assembly says whether it is running",
            ));
        }
        (Consumer::Persister, None, Some(height)) => {
            pruner.report_persisted(height).await?;
            // The pruner knows already; this is for everybody else.
            let persisted = Event::BlockPersisted(events::BlockPersisted { height });
            service.node.parts().chain.events().tell(persisted);
        }
        (Consumer::Persister, None, None) => pruner.register(Consumer::Persister).await?,
        (Consumer::BlockAssembly, running, height) => {
            pruner.report_block_assembly(running.unwrap_or(true), height).await?;
        }
    }
    tracing::info!(consumer = name, height = request.height, "a consumer reported over HTTP");
    service.node.sample().await;
    hold_named(&service, &name).await
}

/// Release a consumer
///
/// It counts as not registered until it reports again.
#[utoipa::path(
    delete, path = "/api/v1/consumers/{consumer}", tag = "Holds", security(("admin" = [])),
    params(("consumer" = String, Path, description = "`persister` or `block-assembly`")),
    responses(
        (status = 204, description = "It is released"),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "No such consumer, or not registered"),
        ReadProblems, AdminProblems,
    )
)]
pub(crate) async fn release(
    State(service): State<Service>,
    Path(name): Path<String>,
    _admin: Admin,
) -> Result<StatusCode, Problem> {
    let consumer = consumer(&name)?;
    service.node.pruner().holds().release(consumer.name()).await?;
    tracing::info!(consumer = name, "a consumer was released over HTTP");
    service.node.sample().await;
    Ok(StatusCode::NO_CONTENT)
}
