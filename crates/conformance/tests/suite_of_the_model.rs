//! The conformance suite on the model: two readings of the same document, by different hands, must agree.

use async_trait::async_trait;
use sapwood_conformance::{StoreFactory, model::ModelStore};
use sapwood_rules::Policy;

struct Plain;

#[async_trait]
impl StoreFactory for Plain {
    type Store = ModelStore;
    async fn fresh(&self, policy: Policy) -> ModelStore {
        ModelStore::new(policy)
    }
}

sapwood_conformance::conformance_suite!(Plain);
