//! The conformance suite on the model: two readings of the same document, by different hands, must agree.

use sapwood_conformance::model::Models;

sapwood_conformance::conformance_suite!(Models::default());
