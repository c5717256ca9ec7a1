//! What the outside sees: gRPC, REST, metrics and the status page.
