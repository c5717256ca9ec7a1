//! The pruner service: when to prune, what holds it back, and what it did.
