//! Errors as RFC 9457 wants them told.

use axum::{
    Json,
    extract::rejection::{BytesRejection, JsonRejection, PathRejection, QueryRejection},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use sapwood_ledger::{EngineError, StoreError};
use sapwood_pruner::{HoldError, Plan, PrunerError};
use serde::{Deserialize, Serialize};
use utoipa::{IntoResponses, ToSchema};

use crate::{Refusal, listing::ListError};

/// What went wrong (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// What kind of problem it is: `urn:sapwood:problem:` and a short fixed name.
    #[serde(rename = "type")]
    #[schema(example = "urn:sapwood:problem:not-found")]
    pub kind: String,
    /// The kind in words.
    pub title: String,
    /// The status of the answer.
    pub status: u16,
    /// What happened this time, and what to do about it.
    pub detail: String,
    /// What a change of the policy would delete, for the problem `needs-confirmation`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Box<Plan>>,
}

/// The kinds of problem: status, short fixed name, title.
macro_rules! kinds {
    ($($(#[$doc:meta])* $function:ident = $status:ident, $name:literal, $title:literal;)*) => {
        impl Problem {
            $($(#[$doc])*
            pub fn $function(detail: impl Into<String>) -> Self {
                Self {
                    kind: concat!("urn:sapwood:problem:", $name).into(),
                    title: $title.into(),
                    status: StatusCode::$status.as_u16(),
                    detail: detail.into(),
                    plan: None,
                }
            })*
        }
    };
}

kinds! {
    /// Something in the request cannot be read.
    bad_request = BAD_REQUEST, "bad-request", "The request cannot be read";
    /// A cursor is not one of the list it was given for.
    bad_cursor = BAD_REQUEST, "bad-cursor", "The cursor does not belong to this list";
    /// A token is missing or wrong.
    unauthorized = UNAUTHORIZED, "unauthorized", "A token is needed";
    /// The token is not enough.
    forbidden = FORBIDDEN, "forbidden", "Not allowed";
    /// There is nothing like that.
    not_found = NOT_FOUND, "not-found", "Not found";
    /// There is no page at this path.
    no_such_path = NOT_FOUND, "no-such-path", "No such path";
    /// The path does not do this.
    method_not_allowed = METHOD_NOT_ALLOWED, "method-not-allowed", "Method not allowed";
    /// It cannot be done as things are.
    conflict = CONFLICT, "conflict", "Not possible as things are";
    /// It deletes something, and was not confirmed.
    needs_confirmation = CONFLICT, "needs-confirmation", "A confirmation is needed";
    /// It was there and has been pruned.
    pruned = GONE, "pruned", "Pruned";
    /// The body is too large.
    too_large = PAYLOAD_TOO_LARGE, "too-large", "The body is too large";
    /// The body is not JSON.
    unsupported_media_type = UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", "The body is not JSON";
    /// The request was meant for another server.
    misdirected = MISDIRECTED_REQUEST, "misdirected", "Meant for another server";
    /// It can be read, but a value is not allowed.
    not_allowed_value = UNPROCESSABLE_ENTITY, "not-allowed-value", "A value is not allowed";
    /// Too many requests.
    too_many_requests = TOO_MANY_REQUESTS, "too-many-requests", "Too many requests";
    /// Something broke here.
    internal = INTERNAL_SERVER_ERROR, "internal", "Internal error";
    /// The store keeps no such index.
    not_indexed = NOT_IMPLEMENTED, "not-indexed", "No such index is kept";
    /// It cannot be done now.
    unavailable = SERVICE_UNAVAILABLE, "unavailable", "Not available now";
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let detail = refusal.to_string();
        match refusal {
            Refusal::NoToken | Refusal::WrongToken => Problem::unauthorized(detail),
            Refusal::NotAdmin | Refusal::AdminUnset => Problem::forbidden(detail),
            Refusal::TooManyRequests { .. } => Problem::too_many_requests(detail),
            Refusal::Timeout { .. } | Refusal::Busy => Problem::unavailable(detail),
            Refusal::BodyTooLarge { .. } => Problem::too_large(detail),
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::BadOption { problem } => Problem::bad_request(problem),
            StoreError::Poisoned { .. }
            | StoreError::NoRoom { .. }
            | StoreError::Engine(EngineError::ReadOnly { .. }) => Problem::unavailable(error.to_string()),
            _ => {
                tracing::error!(%error, "a request failed");
                Problem::internal(error.to_string())
            }
        }
    }
}

impl From<ListError> for Problem {
    fn from(error: ListError) -> Self {
        match error {
            ListError::Limit { .. } => Problem::not_allowed_value(error.to_string()),
            ListError::Cursor(_) => Problem::bad_cursor(error.to_string()),
            ListError::Store(error) => error.into(),
        }
    }
}

impl From<PrunerError> for Problem {
    fn from(error: PrunerError) -> Self {
        let detail = error.to_string();
        match error {
            PrunerError::Options(_) | PrunerError::HeightZero => Problem::not_allowed_value(detail),
            PrunerError::Disabled | PrunerError::JobOver { .. } => Problem::conflict(detail),
            PrunerError::Shortens(shortening) => {
                Problem { plan: Some(Box::new(shortening.plan)), ..Problem::needs_confirmation(detail) }
            }
            PrunerError::Stopped => Problem::unavailable(detail),
            PrunerError::NoSuchJob { .. } => Problem::not_found(detail),
            PrunerError::Store(error) => error.into(),
        }
    }
}

impl From<HoldError> for Problem {
    fn from(error: HoldError) -> Self {
        let detail = error.to_string();
        match error {
            HoldError::Invalid { .. } => Problem::not_allowed_value(detail),
            HoldError::Reserved { .. } | HoldError::OtherOwner { .. } | HoldError::TooMany => {
                Problem::conflict(detail)
            }
            HoldError::NotFound { .. } => Problem::not_found(detail),
            HoldError::Store(error) => error.into(),
        }
    }
}

impl From<PathRejection> for Problem {
    fn from(rejection: PathRejection) -> Self {
        Problem::bad_request(rejection.body_text())
    }
}

impl From<QueryRejection> for Problem {
    fn from(rejection: QueryRejection) -> Self {
        Problem::bad_request(rejection.body_text())
    }
}

impl From<BytesRejection> for Problem {
    fn from(rejection: BytesRejection) -> Self {
        match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Problem::too_large(rejection.body_text()),
            _ => Problem::bad_request(rejection.body_text()),
        }
    }
}

impl From<JsonRejection> for Problem {
    fn from(rejection: JsonRejection) -> Self {
        let detail = rejection.body_text();
        match rejection {
            JsonRejection::JsonDataError(_) => Problem::not_allowed_value(detail),
            JsonRejection::MissingJsonContentType(_) => Problem::unsupported_media_type(detail),
            JsonRejection::BytesRejection(rejection) => rejection.into(),
            _ => Problem::bad_request(detail),
        }
    }
}

/// What every reading request may be answered with.
#[derive(IntoResponses)]
#[allow(dead_code, reason = "documents the answers, is never made")]
pub enum ReadProblems {
    /// The request cannot be read.
    #[response(status = 400, content_type = "application/problem+json")]
    BadRequest(Problem),
    /// A token is needed.
    #[response(status = 401, content_type = "application/problem+json")]
    Unauthorized(Problem),
    /// Asked for by a name that is not this server's.
    #[response(status = 421, content_type = "application/problem+json")]
    Misdirected(Problem),
    /// A value is not allowed.
    #[response(status = 422, content_type = "application/problem+json")]
    NotAllowedValue(Problem),
    /// Too many requests on this connection.
    #[response(status = 429, content_type = "application/problem+json")]
    TooManyRequests(Problem),
    /// Something broke.
    #[response(status = 500, content_type = "application/problem+json")]
    Internal(Problem),
    /// Not available now.
    #[response(status = 503, content_type = "application/problem+json")]
    Unavailable(Problem),
}

/// What every request that changes something may be answered with, besides [`ReadProblems`].
#[derive(IntoResponses)]
#[allow(dead_code, reason = "documents the answers, is never made")]
pub enum AdminProblems {
    /// The admin token is needed.
    #[response(status = 403, content_type = "application/problem+json")]
    Forbidden(Problem),
    /// It cannot be done as things are.
    #[response(status = 409, content_type = "application/problem+json")]
    Conflict(Problem),
    /// The body is too large.
    #[response(status = 413, content_type = "application/problem+json")]
    TooLarge(Problem),
    /// The body is not JSON.
    #[response(status = 415, content_type = "application/problem+json")]
    UnsupportedMediaType(Problem),
}
