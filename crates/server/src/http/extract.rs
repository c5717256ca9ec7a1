//! What handlers take out of a request, with problems for what cannot be taken.

use axum::{
    extract::{FromRequest, FromRequestParts, Request},
    http::request::Parts,
};
use sapwood_types::{OutPoint, TxId};
use serde::de::DeserializeOwned;

use super::{Problem, Service};
use crate::{Caller, Need, audit};

/// Parts of the path.
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let axum::extract::Path(value) = axum::extract::Path::from_request_parts(parts, state).await?;
        Ok(Self(value))
    }
}

/// What stands behind the question mark.
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let axum::extract::Query(value) = axum::extract::Query::from_request_parts(parts, state).await?;
        Ok(Self(value))
    }
}

/// A JSON body.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let whole = axum::body::Bytes::from_request(Request::from_parts(parts.clone(), body), state).await?;
        // Fields would be filled in their order.
        let is_list = whole.trim_ascii_start().starts_with(b"[");
        let axum::Json(value) =
            axum::Json::from_request(Request::from_parts(parts, whole.into()), state).await?;
        if is_list {
            return Err(Problem::not_allowed_value("the body has to be a JSON object, not a list"));
        }
        Ok(Self(value))
    }
}

/// A JSON body that may be left out.
pub(crate) struct MaybeBody<T>(pub(crate) T);

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequest<S> for MaybeBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let whole = axum::body::Bytes::from_request(Request::from_parts(parts.clone(), body), state).await?;
        if whole.is_empty() {
            return Ok(Self(T::default()));
        }
        let request = Request::from_parts(parts, whole.into());
        let Body(value) = Body::<Option<T>>::from_request(request, state).await?;
        Ok(Self(value.unwrap_or_default()))
    }
}

/// Only who has the admin token gets past this.
pub(crate) struct Admin(pub(crate) Caller);

impl FromRequestParts<Service> for Admin {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Problem> {
        let caller = service.access.check(&parts.headers, &parts.extensions, Need::Admin)?;
        audit::caller_is(caller);
        Ok(Self(caller))
    }
}

/// The id of a transaction.
pub(crate) fn txid(text: &str) -> Result<TxId, Problem> {
    text.parse().map_err(|error| Problem::bad_request(format!("txid: {error}")))
}

/// The number of an output.
pub(crate) fn vout(text: &str) -> Result<u32, Problem> {
    // The number of an output as a chain writes it: digits only.
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = if digits { text.parse().ok() } else { None };
    number.ok_or_else(|| Problem::bad_request("vout: it is a whole number from 0 to 4294967295"))
}

/// An output, written as its transaction's id, a colon and its number.
pub(crate) fn outpoint(text: &str) -> Result<OutPoint, Problem> {
    let form = || Problem::bad_request("spends: an output is written as TXID:VOUT");
    let (tx, number) = text.split_once(':').ok_or_else(form)?;
    Ok(OutPoint::new(txid(tx)?, vout(number)?))
}

/// How many entries of a list are asked for.
pub(crate) fn limit(asked: Option<u64>, usual: u64, most: u64) -> Result<u64, Problem> {
    match asked.unwrap_or(usual) {
        limit if (1..=most).contains(&limit) => Ok(limit),
        limit => Err(Problem::not_allowed_value(format!("limit: it is {limit}; ask for 1 to {most}"))),
    }
}
