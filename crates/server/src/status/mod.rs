//! The one place where figures are put together: a [`StatusReport`], made once a second, and what it was over time.
//!
//! - [`report`]: what is told, and nothing else. REST, metrics and the page show this.
//! - `sample`: reads it off the store, the chain and the pruner. `disk`: what the files take.
//! - [`history`]: the last ten minutes second by second, the last day minute by minute.
//! - [`source`]: how the node and its source get on.
//! - [`alerts`]: what an operator should look at, and whether the node is ready. Pure.

pub mod alerts;
mod disk;
pub mod history;
pub mod report;
mod sample;
pub mod source;

pub use alerts::{Alert, AlertLevel, Readiness};
pub use history::{History, HistoryReport, Range};
pub use report::StatusReport;
pub use sample::Sampler;
pub use source::SourceReport;
