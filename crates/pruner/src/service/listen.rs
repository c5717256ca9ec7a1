//! Events, the chain's state and the timer: what makes the pruner look.

use sapwood_chain::{Event, Subscription, Told};
use sapwood_types::BlockMark;
use tokio::time::{Instant, MissedTickBehavior};

use super::{Shared, said};
use crate::{holds::PERSISTER, jobs::Trigger};

/// Hears events, watches the chain's state and the time.
pub(super) async fn listen(shared: &Shared, mut heard: Subscription) {
    let mut state = shared.events.watch_state();
    let mut stopping = shared.stopping.subscribe();
    let mut timer = shared.options.look_every.map(|every| {
        let mut timer = tokio::time::interval_at(Instant::now() + every, every);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        timer
    });
    loop {
        let tick = async {
            match &mut timer {
                Some(timer) => _ = timer.tick().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = said(&mut stopping) => return,
            told = heard.next() => match told {
                Some(Told::Event(event)) => hear(shared, &event).await,
                Some(Told::Missed(events)) => catch_up(shared, events).await,
                // The bus lives as long as this.
                None => return,
            },
            _ = state.changed() => {
                shared.interrupted.notify_waiters();
                shared.resume_if_wanted();
            }
            () = tick => shared.trigger(Trigger::Timer, None, true),
        }
    }
}

async fn hear(shared: &Shared, event: &Event) {
    match event {
        Event::BlockPersisted(persisted) => {
            shared.persisted(persisted.height).await;
            shared.trigger(Trigger::BlockPersisted, Some(persisted.height), false);
        }
        Event::MinedSet(block) => block_mined(shared, block),
        Event::RolledBack(rolled_back) => {
            let to = rolled_back.to.map(|block| block.height);
            if let Err(error) = shared.holds.rolled_back(to).await {
                shared.metrics.failed("holds");
                tracing::error!(%error, "that blocks are no longer persisted could not be written down");
            }
        }
        Event::BlockApplied(_)
        | Event::ReorgStarted(_)
        | Event::ReorgFinished(_)
        | Event::StateChanged(_) => {}
    }
}

/// A block is a reason to prune only while no persister is registered: else what it needs might go.
fn block_mined(shared: &Shared, block: &BlockMark) {
    if shared.holds.get(PERSISTER).is_none() {
        shared.trigger(Trigger::BlockMined, Some(block.height), false);
    }
}

/// Too many events came at once. The latest of each kind say where things stand.
async fn catch_up(shared: &Shared, missed: u64) {
    tracing::debug!(missed, "events were missed; going by the latest of each kind");
    let latest = shared.events.latest();
    if let Some(persisted) = latest.block_persisted {
        hear(shared, &Event::BlockPersisted(persisted)).await;
    }
    if let Some(rolled_back) = latest.rolled_back {
        // Which came first is not known. To take the persister for less far than it is keeps more, and its next report mends it.
        hear(shared, &Event::RolledBack(rolled_back)).await;
    }
    if let Some(block) = latest.mined_set {
        block_mined(shared, &block);
    }
}
