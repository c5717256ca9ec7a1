//! What commands have in common: the data directory, stopping, showing progress.

mod bar;
mod directory;
mod files;
mod serving;
mod signals;

pub(crate) use bar::{counting_bar, follow_bar};
pub(crate) use directory::{Directory, NodeFile};
pub(crate) use files::anchor;
pub(crate) use serving::{Parts, Serving};
pub(crate) use signals::{runtime, stop_on_signals};
