//! Progress on a terminal. Where there is none, nothing is drawn; the log tells now and then.

use std::{sync::Arc, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};
use sapwood_chain::Progress;
use tokio::{sync::watch, task::JoinHandle};

const COUNTING: &str = "{prefix} {wide_bar} {human_pos} of {human_len} {eta_precise} to go";

fn styled(template: &str, prefix: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::no_length().with_style(style).with_prefix(prefix.to_owned())
}

/// A bar for work that says how much is done and how much there is.
pub(crate) fn counting_bar(what: &str) -> (ProgressBar, Arc<dyn Fn(u64, u64) + Send + Sync>) {
    let bar = styled(COUNTING, what);
    let shown = bar.clone();
    let show = Arc::new(move |done: u64, total: u64| {
        shown.set_length(total.max(done));
        shown.set_position(done);
    });
    (bar, show)
}

/// A bar that shows how far a follower is, until the returned task is aborted.
pub(crate) fn follow_bar(mut progress: watch::Receiver<Progress>) -> (ProgressBar, JoinHandle<()>) {
    let bar = styled("{wide_bar} {msg}", "");
    let shown = bar.clone();
    let task = tokio::spawn(async move {
        while progress.changed().await.is_ok() {
            let now = progress.borrow_and_update().clone();
            let height = now.height.map_or(0, |height| u64::from(height.0) + 1);
            shown.set_length(height + now.behind());
            shown.set_position(height);
            shown.set_message(now.to_string());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    (bar, task)
}
