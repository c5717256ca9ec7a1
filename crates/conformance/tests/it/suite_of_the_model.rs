//! The conformance suite on the model: two readings of the same document, by different hands, must agree.

use std::sync::Arc;

use async_trait::async_trait;
use sapwood_conformance::{Store, StoreFactory, model::ModelStore};
use sapwood_rules::Policy;

struct Plain;

#[async_trait]
impl StoreFactory for Plain {
    async fn fresh(&self, policy: Policy) -> Arc<dyn Store> {
        Arc::new(ModelStore::new(policy))
    }
}

sapwood_conformance::conformance_suite!(Plain);
