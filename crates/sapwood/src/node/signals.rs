//! Ctrl-C and SIGTERM.

use sapwood_chain::Stop;
use tokio::signal::unix::{SignalKind, signal};

/// The runtime of a command.
pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// Asks `stop` at the first Ctrl-C or SIGTERM. At the second the process ends at once: what is written is safe anyway.
pub(crate) fn stop_on_signals(stop: Stop) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        let mut next = async || {
            tokio::select! {
                _ = interrupt.recv() => "Ctrl-C",
                _ = terminate.recv() => "SIGTERM",
            }
        };
        let which = next().await;
        tracing::info!("{which}: stopping");
        stop.ask();
        next().await;
        tracing::warn!("stopping at once");
        std::process::exit(130);
    });
    Ok(())
}
