//! What is around a call: JSON-RPC 2.0.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::error::RpcError;

/// A well-formed request.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    /// What the response repeats. `None` if the request is a notification.
    pub(crate) id: Option<&'a RawValue>,
    pub(crate) method: Cow<'a, str>,
    pub(crate) params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(default, borrow, deserialize_with = "present")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "present")]
    method: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "present")]
    params: Option<&'a RawValue>,
}

/// `null` is present, which `Option` alone would not say.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

impl<'a> Call<'a> {
    /// Reads a request. An error comes with the id to answer with, as far as there is one.
    pub(crate) fn parse(request: &'a RawValue) -> Result<Self, (Option<&'a RawValue>, RpcError)> {
        let fields: Fields<'a> = serde_json::from_str(request.get())
            .map_err(|_| (None, RpcError::invalid_request("invalid request")))?;
        let scalar = |id: &&RawValue| !id.get().starts_with(['{', '[', 't', 'f']);
        if fields.id.is_some_and(|id| !scalar(&id)) {
            return Err((None, RpcError::invalid_request("the id is neither a number nor a text")));
        }
        let fail = |message| (fields.id, RpcError::invalid_request(message));
        if fields.jsonrpc.and_then(text).as_deref() != Some("2.0") {
            return Err(fail("invalid request: \"jsonrpc\" is not \"2.0\""));
        }
        let method = fields.method.and_then(text).ok_or_else(|| fail("invalid request: no method"))?;
        Ok(Self { id: fields.id, method, params: fields.params.filter(|params| params.get() != "null") })
    }
}

fn text(raw: &RawValue) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str::<Text<'_>>(raw.get()).ok().map(|text| text.0)
}

/// A response with a result, which is JSON already.
pub(crate) fn success(id: &RawValue, result: &[u8]) -> Vec<u8> {
    let start = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":", id.get());
    [start.as_bytes(), result, b"}"].concat()
}

/// A response with an error. Without an id it is that of a request that could not be read.
pub(crate) fn failure(id: Option<&RawValue>, error: &RpcError) -> Vec<u8> {
    #[derive(Serialize)]
    struct Failure<'a> {
        jsonrpc: &'static str,
        id: Option<&'a RawValue>,
        error: &'a RpcError,
    }
    // Texts and numbers: there is nothing that JSON could not hold.
    serde_json::to_vec(&Failure { jsonrpc: "2.0", id, error }).unwrap_or_default()
}
