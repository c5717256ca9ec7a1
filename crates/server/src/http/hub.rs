//! What was told lately, numbered, so that a client that was away can go on where it was.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use sapwood_chain::{Events, Told};
use sapwood_pruner::{Job, JobId, JobState, PrunerHandle};
use serde_json::Value;
use tokio::sync::{broadcast, watch};

use super::events::told;

/// How many events are kept for clients that come back.
pub(crate) const KEPT: usize = 1024;

/// One thing that was told.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Entry {
    /// An event: its name and its content.
    Event(&'static str, Value),
    /// The bus was too fast for this many.
    Missed(u64),
}

/// What was told lately.
#[derive(Debug)]
pub(crate) struct Hub {
    /// Tells the events of this process apart from those of the one before.
    epoch: u64,
    entries: Mutex<VecDeque<(u64, Entry)>>,
    /// The number of the newest entry; 0 if there is none.
    newest: watch::Sender<u64>,
}

/// The number after the id of an event, if it is one of this process.
pub(crate) enum Place {
    /// Go on after this number.
    After(u64),
    /// The id is of another process, or no id at all.
    Elsewhere,
}

impl Hub {
    /// Hears everything from now on, until the bus or the pruner is no more. It keeps neither of them.
    pub(crate) fn start(events: &Events, pruner: &PrunerHandle) -> Arc<Self> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let hub = Arc::new(Self {
            epoch: since.as_millis() as u64,
            entries: Mutex::default(),
            newest: watch::channel(0).0,
        });
        let (mut events, mut jobs) = (events.subscribe(), pruner.watch_jobs());
        let weak = Arc::downgrade(&hub);
        tokio::spawn(async move {
            let mut states = HashMap::new();
            loop {
                let entry = tokio::select! {
                    next = events.next() => match next {
                        None => return,
                        Some(Told::Missed(events)) => Some(Entry::Missed(events)),
                        Some(Told::Event(event)) => {
                            let (name, content) = told(&event);
                            Some(Entry::Event(name, content))
                        }
                    },
                    job = jobs.recv() => match job {
                        Ok(job) => changed(&mut states, &job),
                        Err(broadcast::error::RecvError::Lagged(events)) => Some(Entry::Missed(events)),
                        Err(broadcast::error::RecvError::Closed) => return,
                    },
                };
                let Some(hub) = weak.upgrade() else { return };
                entry.into_iter().for_each(|entry| hub.push(entry));
            }
        });
        hub
    }

    fn push(&self, entry: Entry) {
        let mut entries = self.entries.lock();
        let number = *self.newest.borrow() + 1;
        if entries.len() == KEPT {
            entries.pop_front();
        }
        entries.push_back((number, entry));
        self.newest.send_replace(number);
    }

    /// The number of the newest event.
    pub(crate) fn newest(&self) -> u64 {
        *self.newest.borrow()
    }

    /// Hears of newer ones.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// The id of an event, as a client gives it back.
    pub(crate) fn id(&self, number: u64) -> String {
        format!("{}-{number}", self.epoch)
    }

    /// What an id that a client gives back stands for.
    pub(crate) fn place(&self, id: &str) -> Place {
        let numbers = id
            .split_once('-')
            .and_then(|(epoch, number)| Some((epoch.parse::<u64>().ok()?, number.parse::<u64>().ok()?)));
        match numbers {
            Some((epoch, number)) if epoch == self.epoch && number <= self.newest() => Place::After(number),
            _ => Place::Elsewhere,
        }
    }

    /// The first event after a number, with its own number. If it is not kept any more, how many are missing and the number
    /// to go on after. `None` if there is none yet.
    pub(crate) fn after(&self, number: u64) -> Option<(u64, Entry)> {
        let entries = self.entries.lock();
        let (oldest, _) = entries.front()?;
        if number + 1 < *oldest {
            return Some((oldest - 1, Entry::Missed(oldest - 1 - number)));
        }
        entries.get((number + 1 - oldest) as usize).cloned()
    }
}

/// The event of a job, if it is in another state than when it was last told of.
fn changed(states: &mut HashMap<JobId, JobState>, job: &Job) -> Option<Entry> {
    let before = if job.state.is_over() { states.remove(&job.id) } else { states.insert(job.id, job.state) };
    let content = || serde_json::to_value(job).unwrap_or(Value::Null);
    (before != Some(job.state)).then(|| Entry::Event("prune_job", content()))
}
