//! What a refused client is told, in the words of the protocol.

use std::time::Duration;

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Response, StatusCode, header},
};

/// Why a request was refused before it was looked into.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A token is needed and none was given.
    #[error("this needs a token: send it as `authorization: Bearer TOKEN`")]
    NoToken,
    /// The token is not one of ours.
    #[error("the token is not valid")]
    WrongToken,
    /// The read token cannot change anything.
    #[error("this changes something and needs the admin token; the token given is the read token")]
    NotAdmin,
    /// No admin token is set, so no change is taken.
    #[error(
        "this changes something and needs an admin token, and the server has none: set one in its configuration"
    )]
    AdminUnset,
    /// All ordinary connections are taken.
    #[error(
        "too many connections: until some are closed, only requests about health or with the admin token are answered"
    )]
    Busy,
    /// Too many requests on one connection.
    #[error("too many requests on this connection: at most {per_second} a second are answered")]
    TooManyRequests {
        /// How many a second are answered.
        per_second: u32,
    },
    /// It took too long.
    #[error("the request was not done within {} s and was given up", .limit.as_secs_f64())]
    Timeout {
        /// The limit.
        limit: Duration,
    },
    /// The body is too large.
    #[error("the request's body has more than {limit} bytes")]
    BodyTooLarge {
        /// The limit.
        limit: usize,
    },
}

impl Refusal {
    /// The status in plain HTTP.
    pub fn status(&self) -> StatusCode {
        match self {
            Refusal::NoToken | Refusal::WrongToken => StatusCode::UNAUTHORIZED,
            Refusal::NotAdmin | Refusal::AdminUnset => StatusCode::FORBIDDEN,
            Refusal::TooManyRequests { .. } => StatusCode::TOO_MANY_REQUESTS,
            Refusal::Timeout { .. } | Refusal::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::BodyTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        }
    }

    /// The status in gRPC.
    pub fn code(&self) -> tonic::Code {
        match self {
            Refusal::NoToken | Refusal::WrongToken => tonic::Code::Unauthenticated,
            Refusal::NotAdmin | Refusal::AdminUnset => tonic::Code::PermissionDenied,
            Refusal::TooManyRequests { .. } | Refusal::BodyTooLarge { .. } => tonic::Code::ResourceExhausted,
            Refusal::Timeout { .. } => tonic::Code::DeadlineExceeded,
            Refusal::Busy => tonic::Code::Unavailable,
        }
    }

    /// The answer to a request that came with these headers: a gRPC status to a gRPC client, problem details (RFC 9457) to all
    /// others.
    pub fn answer(&self, request: &HeaderMap) -> Response<Body> {
        if is_grpc(request) {
            return tonic::Status::new(self.code(), self.to_string()).into_http();
        }
        let status = self.status();
        let problem = serde_json::json!({
            "type": "about:blank",
            "title": status.canonical_reason().unwrap_or("Refused"),
            "status": status.as_u16(),
            "detail": self.to_string(),
        });
        let mut response = Response::new(Body::from(problem.to_string()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        match self {
            Refusal::NoToken | Refusal::WrongToken => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Refusal::TooManyRequests { .. } | Refusal::Busy => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}

/// Whether a request with these headers is gRPC.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    content_type.is_some_and(|content_type| content_type.starts_with("application/grpc"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_protocol_is_answered_in_its_own_words() {
        let mut grpc = HeaderMap::new();
        grpc.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc+proto"));
        let answer = Refusal::NoToken.answer(&grpc);
        assert_eq!(
            (answer.status(), &answer.headers()["grpc-status"]),
            (StatusCode::OK, &HeaderValue::from_static("16"))
        );
        let answer = Refusal::NoToken.answer(&HeaderMap::new());
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(answer.headers()[header::CONTENT_TYPE], "application/problem+json");
        assert_eq!(answer.headers()[header::WWW_AUTHENTICATE], "Bearer");
    }
}
