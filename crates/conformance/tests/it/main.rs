//! The integration tests of this crate, in one binary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests: to panic is how they fail"
)]

mod model_scenarios;
mod state_machine_of_the_model;
mod suite_of_the_model;
