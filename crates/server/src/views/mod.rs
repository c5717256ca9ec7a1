//! What goes out as JSON and belongs to the server. REST answers with these, and the command line prints and reads the same ones. What
//! belongs to another crate goes out as it is there: holds, jobs, plans, explanations, the policy and the pruner's status.
//!
//! Names are the same as in gRPC, in the configuration and in the metrics. Bytes are hexadecimal digits; amounts are decimal texts,
//! because not every reader of JSON keeps 64 bits.

mod block;
mod record;

pub use block::{BlockPage, BlockSummary, BlockView};
pub use record::{InputView, OutputState, OutputView, SpentBy, TxView, UtxoPage, UtxoView};

pub use crate::{
    http::{Problem, utxo_set::UtxoSetView},
    status::{
        Alert, AlertLevel, HistoryReport, Range, Readiness, StatusReport,
        report::{
            ChainReport, CountsReport, DiskPart, DiskReport, EngineReport, FeaturesReport, NodeReport,
            ProcessReport, UtxoSetReport,
        },
    },
};
