//! What commands have in common: the data directory, stopping, showing progress.

mod bar;
mod directory;
mod endpoints;
mod files;
mod private;
mod reload;
mod serving;
mod signals;

pub(crate) use bar::{counting_bar, follow_bar};
pub(crate) use directory::{Directory, NodeFile, Offline};
pub(crate) use endpoints::RunningNode;
pub(crate) use files::anchor;
pub(crate) use private::{TOKEN_FILE, warn_if_configuration_is_open};
pub(crate) use reload::Reload;
pub(crate) use serving::{Parts, Serving};
pub(crate) use signals::{a_while_after, exit, runtime, stop_on_signals, stop_on_signals_of_a_service};
