//! Holds: who still needs the past, kept in the store.
//!
//! One note of the store has them all, written as a whole before anybody is told that a hold is set. What a consumer reports by way of
//! an event (how far the persister is) counts at once, and is written as soon as possible: forgetting it keeps more, never less.

mod bytes;

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    sync::Arc,
};

use parking_lot::{Mutex, RwLock};
use sapwood_ledger::{Ledger, StoreError};
use sapwood_rules::Hold;
use sapwood_types::Height;
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};
#[cfg(feature = "schema")]
use utoipa::ToSchema;

use crate::{clock::Clock, text};

/// The hold of the reorganisation window. It follows from the chain, so nobody can set or release it.
pub const REORG_WINDOW: &str = "reorg-window";
/// The hold of the persister: up to which height blocks are written somewhere safe.
pub const PERSISTER: &str = "persister";
/// The hold of block assembly: up to which height it has taken blocks in.
pub const BLOCK_ASSEMBLY: &str = "block-assembly";
/// The hold of an export, alone or before a slash and a name of its own: `export/nightly`.
pub const EXPORT: &str = "export";
/// The hold of a snapshot, alone or before a slash and a name of its own.
pub const SNAPSHOT: &str = "snapshot";

/// The name of the note that has all holds.
pub const NOTE: &str = "pruner/holds";

const LONGEST_NAME: usize = 64;
const LONGEST_TEXT: usize = 512;
const MOST_HOLDS: usize = 1000;
/// The end of the year 9999. What is beyond it was given in milliseconds, or by mistake, and few programs can show it.
const LATEST_EXPIRY: u64 = 253_402_300_799;

/// What kind of thing a hold is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "schema", derive(ToSchema))]
pub enum HoldKind {
    /// How far a reorganisation can go back.
    ReorgWindow,
    /// Blocks are being written somewhere safe.
    Persister,
    /// Blocks are being taken in by block assembly.
    BlockAssembly,
    /// An export is in flight.
    Export,
    /// A snapshot is being made, or must stay usable.
    Snapshot,
    /// An operator set it.
    Operator,
}

impl HoldKind {
    /// The kind of the hold with this name.
    pub fn of(name: &str) -> Self {
        match name.split_once('/').map_or(name, |(kind, _)| kind) {
            _ if name == REORG_WINDOW => HoldKind::ReorgWindow,
            _ if name == PERSISTER => HoldKind::Persister,
            _ if name == BLOCK_ASSEMBLY => HoldKind::BlockAssembly,
            EXPORT => HoldKind::Export,
            SNAPSHOT => HoldKind::Snapshot,
            _ => HoldKind::Operator,
        }
    }
}

/// A hold and what it does at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "schema", derive(ToSchema))]
pub struct HoldStatus {
    /// The hold.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub hold: Hold,
    /// What it is for, as its name says.
    pub kind: HoldKind,
    /// It has ended by itself, and holds nothing until it is renewed.
    pub expired: bool,
    /// It is the one that decides the safe height.
    pub decides: bool,
    /// Seconds since the consumer it belongs to last reported, or since the pruner started if it has not reported since then. `None` for a
    /// hold that no consumer reports for.
    pub silent_seconds: Option<u64>,
    /// Seconds since it was set, renewed or reported for, with the same content or another, or since the pruner started if that was
    /// before. `None` for the one of the reorg window, which follows from the chain.
    pub unchanged_seconds: Option<u64>,
    /// Records that are due by age and that this hold retains, whatever other holds do. 0 before the first block.
    pub retained_records: u64,
}

impl HoldStatus {
    pub(crate) fn new(hold: &Hold, now: u64, decided_by: Option<&Hold>) -> Self {
        HoldStatus {
            kind: HoldKind::of(&hold.name),
            expired: hold.is_expired(now),
            decides: decided_by.is_some_and(|decider| decider.name == hold.name),
            hold: hold.clone(),
            silent_seconds: None,
            unchanged_seconds: None,
            retained_records: 0,
        }
    }

    /// The same, with for how long its owner has not been heard of.
    pub(crate) fn heard_by(self, holds: &Holds) -> Self {
        let unchanged_seconds =
            (self.kind != HoldKind::ReorgWindow).then(|| holds.unchanged_seconds(&self.hold.name));
        Self { silent_seconds: holds.silent_seconds(&self.hold.name), unchanged_seconds, ..self }
    }
}

impl fmt::Display for HoldStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hold { name, owner, keep_from, expires, reason } = &self.hold;
        write!(f, "{name} of {owner} ")?;
        match keep_from {
            _ if self.expired => write!(f, "has expired and holds nothing")?,
            None => write!(f, "has not reported and needs everything")?,
            Some(from) => write!(f, "needs everything from {} on", text::at(*from))?,
        }
        if let (false, Some(at)) = (self.expired, expires) {
            write!(f, ", until {}", text::time(*at))?;
        }
        write!(f, ": {reason}")?;
        if self.retained_records > 0 {
            write!(f, "; it retains {}", text::counted(self.retained_records, "due record"))?;
        }
        if self.decides { write!(f, "; it decides the safe height") } else { Ok(()) }
    }
}

/// Why a hold could not be set, renewed or released. Nothing is changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HoldError {
    /// A field is not as it should be.
    #[error("{field}: {problem}")]
    Invalid {
        /// Which field.
        field: &'static str,
        /// What is wrong with it and what would be right.
        problem: String,
    },
    /// The name belongs to a part of the program.
    #[error("the name {name} is reserved: {instead}")]
    Reserved {
        /// Which.
        name: String,
        /// What to do instead.
        instead: &'static str,
    },
    /// There is no such hold.
    #[error("there is no hold {name}: `list` shows those there are")]
    NotFound {
        /// Which.
        name: String,
    },
    /// Another owner has a hold of this name that is in force.
    #[error(
        "the hold {name} belongs to {owner}: choose another name, or release it first if {owner} no longer needs it"
    )]
    OtherOwner {
        /// Which.
        name: String,
        /// Who set it.
        owner: String,
    },
    /// There are too many.
    #[error("there are {MOST_HOLDS} holds already: release some first")]
    TooMany,
    /// The store could not write it down.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// All holds that somebody set. The one of the reorganisation window is not among them: it follows from the chain.
pub struct Holds {
    store: Ledger,
    clock: Arc<dyn Clock>,
    held: RwLock<BTreeMap<String, Hold>>,
    /// Held while a change is written, so that two changes cannot write over each other.
    writing: tokio::sync::Mutex<()>,
    /// Shared by chunks that are being deleted. Who sets a hold waits for those that do not know of it.
    under_way: tokio::sync::RwLock<()>,
    /// Expired holds that have been told about.
    told: Mutex<HashSet<String>>,
    /// When the pruner started, and when each hold was set, renewed or reported for since then.
    started: u64,
    heard: Mutex<BTreeMap<String, u64>>,
}

impl Holds {
    /// Reads the holds from the store.
    pub(crate) async fn load(store: Ledger, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        let held = match store.note(NOTE).await? {
            None => BTreeMap::new(),
            Some(note) => bytes::decode(note)
                .map_err(|cause| StoreError::Corrupt { what: format!("the note {NOTE}"), cause })?,
        };
        Ok(Self {
            store,
            started: clock.now(),
            heard: Mutex::default(),
            clock,
            held: RwLock::new(held),
            writing: tokio::sync::Mutex::default(),
            under_way: tokio::sync::RwLock::default(),
            told: Mutex::default(),
        })
    }

    /// All of them, the persister's first. Tells once about each that has expired.
    pub(crate) fn all(&self) -> Vec<Hold> {
        let mut all: Vec<Hold> = self.held.read().values().cloned().collect();
        // Of several holds at one height the first decides: name the consumer rather than an operator.
        all.sort_by_key(|hold| (HoldKind::of(&hold.name) != HoldKind::Persister, hold.name.clone()));
        self.tell_expired(&all);
        all
    }

    /// The hold of this name.
    pub fn get(&self, name: &str) -> Option<Hold> {
        self.held.read().get(name).cloned()
    }

    /// Seconds since the consumer of this name last reported, or since the pruner started. `None` if it is no consumer's name.
    pub(crate) fn silent_seconds(&self, name: &str) -> Option<u64> {
        [PERSISTER, BLOCK_ASSEMBLY].contains(&name).then(|| self.unchanged_seconds(name))
    }

    /// Seconds since the hold of this name was set, renewed or reported for, or since the pruner started.
    fn unchanged_seconds(&self, name: &str) -> u64 {
        let last = self.heard.lock().get(name).copied().unwrap_or(self.started);
        self.clock.now().saturating_sub(last)
    }

    /// Notes that the owner of a hold was heard of.
    fn hear(&self, name: &str) {
        self.heard.lock().insert(name.into(), self.clock.now());
    }

    fn tell_expired(&self, all: &[Hold]) {
        let now = self.clock.now();
        let mut told = self.told.lock();
        for hold in all {
            if !hold.is_expired(now) {
                told.remove(&hold.name);
            } else if told.insert(hold.name.clone()) {
                let (name, owner, reason) = (&hold.name, &hold.owner, &hold.reason);
                tracing::warn!(
                    name,
                    owner,
                    reason,
                    "a hold has expired and holds nothing any more; renew or release it"
                );
            }
        }
    }

    /// Changes the holds: written first, then in force.
    async fn change<T>(
        &self,
        change: impl FnOnce(&mut BTreeMap<String, Hold>) -> Result<T, HoldError>,
    ) -> Result<T, HoldError> {
        let _writing = self.writing.lock().await;
        let mut next = self.held.read().clone();
        let result = change(&mut next)?;
        if next != *self.held.read() {
            self.store.put_notes(vec![(NOTE.into(), Some(bytes::encode(&next)))]).await?;
            *self.held.write() = next;
            // Chunks that began before may still delete what this one would keep.
            drop(self.under_way.write().await);
        }
        Ok(result)
    }

    /// Held from reading the holds to the end of what is deleted by them.
    pub(crate) async fn deleting(&self) -> tokio::sync::RwLockReadGuard<'_, ()> {
        self.under_way.read().await
    }

    /// Sets a hold, in the place of one of the same name and owner. When this returns it is written down, and no record that it keeps is
    /// deleted any more: it waits for the chunk in flight. One of another owner is replaced only if it has expired.
    pub async fn set(&self, hold: Hold) -> Result<(), HoldError> {
        self.check(&hold)?;
        let name = hold.name.clone();
        let now = self.clock.now();
        self.change(|holds| {
            match holds.get(&hold.name) {
                None if holds.len() >= MOST_HOLDS => return Err(HoldError::TooMany),
                Some(held) if held.owner != hold.owner && !held.is_expired(now) => {
                    let (name, owner) = (held.name.clone(), held.owner.clone());
                    return Err(HoldError::OtherOwner { name, owner });
                }
                _ => {}
            }
            holds.insert(hold.name.clone(), hold);
            Ok(())
        })
        .await?;
        self.hear(&name);
        Ok(())
    }

    /// Moves a hold: what its owner needs now, and when it ends by itself.
    pub async fn renew(
        &self,
        name: &str,
        keep_from: Option<Height>,
        expires: Option<u64>,
    ) -> Result<Hold, HoldError> {
        refuse_reserved(name)?;
        let before = self.get(name).ok_or_else(|| HoldError::NotFound { name: name.into() })?;
        let hold = Hold { keep_from, expires, ..before };
        self.check(&hold)?;
        let renewed = self.change(|holds| match holds.get_mut(name) {
            Some(held) => {
                *held = hold.clone();
                Ok(hold)
            }
            None => Err(HoldError::NotFound { name: name.into() }),
        });
        let renewed = renewed.await?;
        self.hear(name);
        Ok(renewed)
    }

    /// Ends a hold and returns it. That of the persister or of block assembly can be released too: then that consumer counts as not
    /// registered until it reports again.
    pub async fn release(&self, name: &str) -> Result<Hold, HoldError> {
        if name == REORG_WINDOW {
            return refuse_reserved(name).and(Err(HoldError::NotFound { name: name.into() }));
        }
        let not_found = || HoldError::NotFound { name: name.into() };
        let released = self.change(|holds| holds.remove(name).ok_or_else(not_found)).await?;
        self.heard.lock().remove(name);
        Ok(released)
    }

    fn check(&self, hold: &Hold) -> Result<(), HoldError> {
        let refuse = |field, problem: String| Err(HoldError::Invalid { field, problem });
        let Hold { name, owner, reason, expires, .. } = hold;
        refuse_reserved(name)?;
        if name.is_empty() || name.len() > LONGEST_NAME {
            return refuse("name", format!("it must have 1 to {LONGEST_NAME} characters"));
        }
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_./".contains(c);
        if let Some(bad) = name.chars().find(|c| !allowed(*c)) {
            return refuse("name", format!("{bad:?} is not allowed: use a to z, 0 to 9, and - _ . /"));
        }
        if owner.is_empty() || owner.len() > LONGEST_TEXT {
            return refuse("owner", format!("say in 1 to {LONGEST_TEXT} bytes who holds it"));
        }
        if reason.is_empty() || reason.len() > LONGEST_TEXT {
            return refuse("reason", format!("say in 1 to {LONGEST_TEXT} bytes why it is held"));
        }
        let now = self.clock.now();
        if let Some(expires) = expires.filter(|expires| *expires <= now) {
            return refuse(
                "expires",
                format!("{expires} is in the past: it is {now} now, as a Unix timestamp"),
            );
        }
        if let Some(expires) = expires.filter(|expires| *expires > LATEST_EXPIRY) {
            return refuse(
                "expires",
                format!(
                    "{expires} is after the year 9999: it is a Unix timestamp in seconds, and {now} is now. Leave it out for no end"
                ),
            );
        }
        Ok(())
    }

    /// Registers a consumer. Until it reports, nothing may go. One that is registered already stays as it is.
    pub(crate) async fn register(&self, consumer: Consumer) -> Result<(), HoldError> {
        self.hear(consumer.name());
        self.change(|holds| {
            holds.entry(consumer.name().into()).or_insert_with(|| consumer.hold(None));
            Ok(())
        })
        .await
    }

    /// Notes how far a consumer is, which registers it. Counts at once, even if it cannot be written down.
    pub(crate) async fn report(&self, consumer: Consumer, height: Height) -> Result<(), HoldError> {
        let _writing = self.writing.lock().await;
        self.hear(consumer.name());
        let hold = consumer.hold(Some(height));
        self.held.write().insert(hold.name.clone(), hold);
        self.write_down().await
    }

    /// Blocks above `height` were taken back: those that come in their place are not persisted or taken in yet.
    pub(crate) async fn rolled_back(&self, height: Option<Height>) -> Result<(), HoldError> {
        let _writing = self.writing.lock().await;
        let mut changed = false;
        for consumer in [Consumer::Persister, Consumer::BlockAssembly] {
            if let Some(hold) = self.held.write().get_mut(consumer.name())
                && let Some(from) = hold.keep_from
            {
                let now = height.map_or(Height::GENESIS, Height::next).min(from);
                changed |= now != from;
                hold.keep_from = Some(now);
            }
        }
        if changed { self.write_down().await } else { Ok(()) }
    }

    async fn write_down(&self) -> Result<(), HoldError> {
        let holds = self.held.read().clone();
        Ok(self.store.put_notes(vec![(NOTE.into(), Some(bytes::encode(&holds)))]).await?)
    }
}

fn refuse_reserved(name: &str) -> Result<(), HoldError> {
    let instead = match name {
        REORG_WINDOW => "it follows from the chain; change the reorg window of the policy instead",
        PERSISTER => "report a persisted block instead, or register the persister",
        BLOCK_ASSEMBLY => "report the state of block assembly instead",
        _ => return Ok(()),
    };
    Err(HoldError::Reserved { name: name.into(), instead })
}

/// A part of the system that follows the chain and says how far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consumer {
    /// Writes blocks somewhere safe.
    Persister,
    /// Makes new blocks.
    BlockAssembly,
}

impl Consumer {
    /// The name of its hold.
    pub fn name(self) -> &'static str {
        match self {
            Consumer::Persister => PERSISTER,
            Consumer::BlockAssembly => BLOCK_ASSEMBLY,
        }
    }

    fn hold(self, done: Option<Height>) -> Hold {
        let reason = match (self, done) {
            (Consumer::Persister, None) => "it is registered and has not persisted a block yet".into(),
            (Consumer::Persister, Some(height)) => format!("blocks are persisted up to {}", text::at(height)),
            (Consumer::BlockAssembly, None) => "it is registered and has not reported yet".into(),
            (Consumer::BlockAssembly, Some(height)) => {
                format!("it has taken in blocks up to {}", text::at(height))
            }
        };
        let name = self.name().to_owned();
        Hold { owner: name.replace('-', " "), name, keep_from: done.map(Height::next), expires: None, reason }
    }
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_hold_and_its_status_have_the_same_names_in_json() {
        let hold = Hold {
            name: "export/nightly".into(),
            owner: "backup".into(),
            keep_from: Some(Height(7)),
            expires: None,
            reason: "it reads blocks".into(),
        };
        let status = HoldStatus::new(&hold, 0, Some(&hold));
        let written = serde_json::to_value(&status).unwrap();
        assert_eq!(
            written,
            json!({ "name": "export/nightly", "owner": "backup", "keep_from": 7, "expires": null, "reason": "it reads blocks",
                "kind": "export", "expired": false, "decides": true, "silent_seconds": null, "unchanged_seconds": null,
                "retained_records": 0 })
        );
        assert_eq!(serde_json::from_value::<HoldStatus>(written).unwrap(), status);
        let misspelt = json!({ "owner": "backup", "keep_form": 7, "reason": "it reads blocks" });
        let refused = serde_json::from_value::<Hold>(misspelt).unwrap_err().to_string();
        assert!(refused.contains("keep_form"), "{refused}");
    }

    #[test]
    fn any_end_of_a_hold_is_shown() {
        let until = |expires: u64| {
            let (name, owner, reason) = ("far".to_owned(), "me".to_owned(), "because".to_owned());
            HoldStatus::new(&Hold { name, owner, keep_from: None, expires: Some(expires), reason }, 0, None)
                .to_string()
        };
        assert!(until(1_794_975_948).contains(", until 2026-11-18T"), "{}", until(1_794_975_948));
        assert!(until(u64::MAX).contains("until Unix timestamp"), "{}", until(u64::MAX));
    }
}
