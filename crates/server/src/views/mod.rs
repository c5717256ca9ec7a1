//! Everything that goes out as JSON, in one place. REST answers with these, and the command line prints and reads the same ones.
//!
//! Names are the same as in gRPC, in the configuration and in the metrics. Bytes are hexadecimal digits; amounts are decimal texts,
//! because not every reader of JSON keeps 64 bits.

mod block;
mod record;

pub use block::{BlockPage, BlockSummary, BlockView};
pub use record::{InputView, MinedInView, OutputState, OutputView, SpentBy, TxView, UtxoPage, UtxoView};

pub use crate::{
    http::{Problem, utxo_set::UtxoSetView},
    status::{
        Alert, AlertLevel, HistoryReport, Range, Readiness, StatusReport,
        report::{
            BlockReport, ChainReport, CountsReport, DiskPart, DiskReport, DiskRoomReport, EngineReport,
            EngineWritesReport, FeaturesReport, NodeReport, ProcessReport, UtxoSetReport,
        },
    },
};
