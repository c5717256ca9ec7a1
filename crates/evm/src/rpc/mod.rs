//! The Ethereum JSON-RPC methods that need no state.
//!
//! What lives here: requests as bytes in, responses as bytes out. Transport, authentication and the size of a request are the server's;
//! methods that are not Ethereum's come through [`ExtraMethods`].
//!
//! # Correctness
//! What is not found or pending is `null`. What was pruned is an error with the code 4444 and never `null`, and so is a range of which
//! any block was pruned: no answer is silently shorter than asked for. Block 0 is never pruned. A request costs a bounded number of bytes
//! read and written ([`Limits`]).

mod args;
mod context;
mod envelope;
mod error;
mod methods;
mod views;

use std::sync::Arc;

use serde_json::value::RawValue;

pub use self::error::RpcError;
use self::{
    args::Args,
    context::{Budget, Context},
    envelope::Call,
};
use crate::store::EvmBlocks;

/// What one request may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many requests a batch has at most.
    pub batch: usize,
    /// How many blocks `eth_getLogs` looks at.
    pub log_blocks: u64,
    /// How many bytes of blocks, receipts and indexes one request reads from the store; a batch as a whole. Every read counts 4 KiB at
    /// least.
    pub read_bytes: u64,
    /// How long the response is, in bytes; that of a batch as a whole.
    pub response_bytes: usize,
}

impl Default for Limits {
    /// What go-ethereum allows for batches, and what a small machine reads and sends within seconds.
    fn default() -> Self {
        Self { batch: 1000, log_blocks: 10_000, read_bytes: 1 << 30, response_bytes: 64 << 20 }
    }
}

/// Methods that are not Ethereum's, such as `sapwood_…`.
pub trait ExtraMethods: Send + Sync {
    /// Calls a method. `None` if there is no method of this name.
    ///
    /// `params` are as the client sent them: absent, a list or an object.
    fn call(&self, method: &str, params: Option<&RawValue>) -> Option<Result<serde_json::Value, RpcError>>;
}

/// Answers JSON-RPC requests.
#[derive(Clone, Default)]
pub struct Rpc {
    limits: Limits,
    extra: Option<Arc<dyn ExtraMethods>>,
}

impl std::fmt::Debug for Rpc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let extra = self.extra.is_some();
        f.debug_struct("Rpc").field("limits", &self.limits).field("extra", &extra).finish()
    }
}

impl Rpc {
    /// Creates one with limits.
    pub fn new(limits: Limits) -> Self {
        Self { limits, extra: None }
    }

    /// Adds methods.
    #[must_use]
    pub fn with_methods(self, extra: Arc<dyn ExtraMethods>) -> Self {
        Self { extra: Some(extra), ..self }
    }

    /// Answers a request or a batch of them. The response is empty if none is due, because all of them are notifications.
    pub fn handle(&self, blocks: &dyn EvmBlocks, request: &[u8]) -> Vec<u8> {
        let Ok(request) = serde_json::from_slice::<&RawValue>(request) else {
            return envelope::failure(None, &RpcError::parse());
        };
        if !request.get().starts_with('[') {
            let budget = Budget::new(&self.limits);
            return self.one(blocks, request, &budget).unwrap_or_default();
        }
        let Ok(batch) = serde_json::from_str::<Vec<&RawValue>>(request.get()) else {
            return envelope::failure(None, &RpcError::parse());
        };
        self.batch(blocks, &batch)
    }

    fn batch(&self, blocks: &dyn EvmBlocks, batch: &[&RawValue]) -> Vec<u8> {
        if batch.is_empty() {
            return envelope::failure(None, &RpcError::invalid_request("empty batch"));
        }
        if batch.len() > self.limits.batch {
            let limit = self.limits.batch;
            let message = format!("batch too large: {} requests, at most {limit} are answered", batch.len());
            return envelope::failure(None, &RpcError::invalid_request(message));
        }
        let mut responses = vec![b'['];
        let mut budget = Budget::new(&self.limits);
        for request in batch {
            budget.room = self.limits.response_bytes.saturating_sub(responses.len());
            let Some(response) = self.one(blocks, request, &budget) else { continue };
            if responses.len() > 1 {
                responses.push(b',');
            }
            responses.extend(response);
        }
        if responses.len() == 1 {
            return Vec::new();
        }
        responses.push(b']');
        responses
    }

    /// Answers one request. `None` if it is a notification.
    fn one(&self, blocks: &dyn EvmBlocks, request: &RawValue, budget: &Budget) -> Option<Vec<u8>> {
        let call = match Call::parse(request) {
            Ok(call) => call,
            Err((id, error)) => return Some(envelope::failure(id, &error)),
        };
        let result = self.call(blocks, &call, budget);
        let id = call.id?;
        Some(match result {
            Ok(result) => envelope::success(id, &result),
            Err(error) => envelope::failure(Some(id), &error),
        })
    }

    fn call(&self, blocks: &dyn EvmBlocks, call: &Call<'_>, budget: &Budget) -> Result<Vec<u8>, RpcError> {
        let context = Context { blocks, limits: &self.limits, budget };
        if let Some(method) = methods::find(&call.method) {
            return method(&context, &Args::parse(call.params)?);
        }
        let extra = self.extra.as_ref().and_then(|extra| extra.call(&call.method, call.params));
        let result = extra.ok_or_else(|| RpcError::no_method(&call.method))??;
        context.reply(&result)
    }
}
