//! Errors as clients see them.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Value, json};

/// Why a request was not answered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RpcError {
    /// What kind of error.
    pub code: i64,
    /// What happened, for people.
    pub message: Cow<'static, str>,
    /// What happened, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl RpcError {
    /// An error without data.
    pub fn new(code: i64, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// The request is not JSON.
    pub(crate) fn parse() -> Self {
        Self::new(-32700, "parse error")
    }

    /// The request is JSON, but not a request.
    pub(crate) fn invalid_request(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(-32600, message)
    }

    /// There is no such method here.
    pub(crate) fn no_method(method: &str) -> Self {
        Self::new(-32601, format!("the method {method} does not exist/is not available"))
    }

    /// A parameter is not what the method takes.
    pub fn invalid_params(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(-32602, message)
    }

    /// The store failed, or holds what cannot be read.
    pub(crate) fn internal(error: impl std::fmt::Display) -> Self {
        Self::new(-32603, error.to_string())
    }

    /// The request costs more than it may.
    pub(crate) fn limit(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(-32005, message)
    }

    /// What was asked for is not there, and `null` would say something else.
    pub(crate) fn unavailable(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(-32002, message)
    }

    /// There is no block of that name.
    pub(crate) fn unknown_block(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(-39001, message)
    }

    /// What was asked for was pruned (EIP-4444).
    pub fn pruned(requested: Option<u64>, earliest: u64) -> Self {
        let message = match requested {
            Some(requested) => {
                format!("pruned history unavailable: requested {requested}, earliest available {earliest}")
            }
            None => format!("pruned history unavailable: earliest available {earliest}"),
        };
        let data = Some(json!({ "requested": requested, "earliest": earliest }));
        Self { code: 4444, message: message.into(), data }
    }
}
