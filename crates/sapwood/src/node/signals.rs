//! Ctrl-C, SIGTERM and SIGHUP, and the way out.

use std::{
    io::Write as _,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use sapwood_chain::Stop;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How long threads get that read a file or a device when the command is over.
const LAST_READS: Duration = Duration::from_secs(5);

/// How long calls to an object store get once the command is asked to stop.
const LAST_CALLS: Duration = Duration::from_secs(3);

/// The runtime of a command.
pub(crate) struct CommandRuntime(tokio::runtime::Runtime);

/// The runtime of a command.
pub(crate) fn runtime() -> anyhow::Result<CommandRuntime> {
    Ok(CommandRuntime(tokio::runtime::Builder::new_multi_thread().enable_all().build()?))
}

impl CommandRuntime {
    /// Runs a command to its end. What it left behind on other threads gets a few seconds and is then left alone, so that a file or device
    /// that does not answer cannot keep the process.
    pub(crate) fn block_on<T>(self, work: impl Future<Output = T>) -> T {
        let result = self.0.block_on(work);
        self.0.shutdown_timeout(LAST_READS);
        result
    }
}

/// Asked a few seconds after `stop` is: for what may be ended half-way, but is better brought to its end.
pub(crate) fn a_while_after(stop: &Stop) -> Stop {
    let (stop, later) = (stop.clone(), Stop::default());
    let asks = later.clone();
    tokio::spawn(async move {
        stop.asked().await;
        tokio::time::sleep(LAST_CALLS).await;
        asks.ask();
    });
    later
}

/// What stopped a command: the exit code that shells have for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoppedBy(Arc<AtomicU8>);

impl StoppedBy {
    fn note(&self, signal: SignalKind) {
        // Signals are below 64. The first one counts.
        let code = 128 + signal.as_raw_value() as u8;
        let _ = self.0.compare_exchange(0, code, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The exit code of a command that ended early: 128 and the number of the signal, 130 for Ctrl-C and 143 for SIGTERM. 0 if there was none.
    pub(crate) fn code(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Asks `stop` at the first Ctrl-C, SIGTERM or SIGHUP. At the second the process ends at once: what is written is safe anyway.
pub(crate) fn stop_on_signals(stop: Stop) -> anyhow::Result<StoppedBy> {
    let mut hangups = signal(SignalKind::hangup())?;
    let (hung_up, stopped_by) = (stop.clone(), StoppedBy::default());
    let by = stopped_by.clone();
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            if !hung_up.is_asked() {
                tracing::info!("SIGHUP: stopping");
                by.note(SignalKind::hangup());
                hung_up.ask();
            }
        }
    });
    stop_on_all_but_hangup(stop, stopped_by.clone())?;
    Ok(stopped_by)
}

/// The same for a service, which is not stopped by SIGHUP. Returns what hears of those; they do nothing before it is listened to.
pub(crate) fn stop_on_signals_of_a_service(stop: Stop) -> anyhow::Result<Signal> {
    let hangups = signal(SignalKind::hangup())?;
    stop_on_all_but_hangup(stop, StoppedBy::default())?;
    Ok(hangups)
}

fn stop_on_all_but_hangup(stop: Stop, stopped_by: StoppedBy) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        let mut next = async || {
            tokio::select! {
                _ = interrupt.recv() => ("Ctrl-C", SignalKind::interrupt()),
                _ = terminate.recv() => ("SIGTERM", SignalKind::terminate()),
            }
        };
        let (which, signal) = next().await;
        tracing::info!("{which}: stopping");
        stopped_by.note(signal);
        stop.ask();
        let (which, _) = next().await;
        tracing::warn!("{which} again: stopping at once");
        exit(130);
    });
    Ok(())
}

/// Ends the process now, whatever its threads do. The usual way out would run the engine's destructors under their feet, which ends in
/// an abort now and then.
pub(crate) fn exit(code: u8) -> ! {
    // A reader that has gone does not matter any more.
    let _ = std::io::stdout().flush();
    let _ = std::io::stderr().flush();
    signal_hook::low_level::exit(code.into())
}
