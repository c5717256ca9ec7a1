//! The description of the API.

use axum::Json;
use utoipa::{
    Modify, OpenApi,
    openapi::{
        ObjectBuilder, RefOr, Schema,
        schema::AnyOfBuilder,
        security::{Http, HttpAuthScheme, SecurityScheme},
    },
};

use super::{blocks, consumers, events, policy, prune, reads, state, utxo_set, verify};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Sapwood",
        description = "A pruning UTXO store. Bytes are hexadecimal digits, heights are numbers, amounts are decimal texts in the \
                       chain's smallest unit, times are Unix timestamps in seconds, or in milliseconds where the name says so. Errors are problem details \
                       (RFC 9457). What changes something needs the admin token: `authorization: Bearer TOKEN`.",
        license(name = "MIT OR Apache-2.0"),
    ),
    paths(
        state::status, state::rocksdb_stats, state::history, state::access, state::metrics, state::live, state::ready,
        reads::utxo, reads::address, reads::credential, reads::tx, reads::explain,
        prune::status, prune::prune_now, prune::plan, prune::jobs, prune::job, prune::enabled, prune::set_enabled,
        prune::cancel, policy::policy, policy::change_policy, blocks::blocks, blocks::block,
        consumers::report, consumers::release,
        prune::holds, prune::hold, prune::set_hold, prune::release_hold,
        events::events,
        verify::begin, verify::found, verify::body,
        utxo_set::utxo_set, utxo_set::count,
    ),
    modifiers(&Tokens, &PartsOfOthers),
    tags(
        (name = "Status", description = "How the node is doing"),
        (name = "Read", description = "What is stored"),
        (name = "Prune", description = "What the pruner does"),
        (name = "Holds", description = "Which consumers still need history"),
        (name = "Health", description = "For what restarts the node or sends it requests"),
    )
)]
struct Api;

struct Tokens;

impl Modify for Tokens {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let components = openapi.components.get_or_insert_default();
        for name in ["read", "admin"] {
            components.add_security_scheme(name, SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
        }
    }
}

struct PartsOfOthers;

/// What a derived schema cannot say of a type whose fields are among those of another.
impl Modify for PartsOfOthers {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let schemas = &mut openapi.components.get_or_insert_default().schemas;
        // A hold is part of its status, which has more fields. That a request with unknown fields is refused cannot be said of both.
        if let Some(RefOr::T(Schema::Object(hold))) = schemas.get_mut("Hold") {
            hold.additional_properties = None;
        }
        // The fields of a set that is not known are absent, not null.
        if let Some(RefOr::T(Schema::AllOf(view))) = schemas.get_mut("UtxoSetView") {
            for item in &mut view.items {
                if let RefOr::T(Schema::OneOf(set)) = item
                    && let Some(set) = set.items.iter().find(|item| matches!(item, RefOr::Ref(_)))
                {
                    let or_none = AnyOfBuilder::new().item(set.clone()).item(ObjectBuilder::new());
                    *item = RefOr::T(Schema::AnyOf(or_none.build()));
                }
            }
        }
    }
}

/// The OpenAPI document.
pub fn document() -> utoipa::openapi::OpenApi {
    Api::openapi()
}

pub(crate) async fn serve() -> Json<utoipa::openapi::OpenApi> {
    Json(document())
}
