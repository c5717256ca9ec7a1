//! What commands have in common: the data directory, stopping, showing progress.

mod bar;
mod directory;
mod endpoints;
mod files;
mod serving;
mod signals;

pub(crate) use bar::{counting_bar, follow_bar};
pub(crate) use directory::{Directory, NodeFile, Offline};
pub(crate) use endpoints::Endpoints;
pub(crate) use files::anchor;
pub(crate) use serving::{Parts, Serving};
pub(crate) use signals::{runtime, stop_on_signals};
