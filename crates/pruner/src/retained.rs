//! What is retained although it is due, and what cannot be read.

use std::collections::BTreeMap;

use sapwood_ledger::{Ledger, StoreError, Unreadable};
use sapwood_rules::KeepReason;
use sapwood_types::{TxId, TxRecord};

/// How many records that cannot be read are named. All are counted.
const NAMED: usize = 100;

/// Reasons that the store does not count.
const FOUND_BY_LOOKING: [&str; 3] = ["unreadable", "external_body", "child_disagrees"];

/// Records that a look through the due index retained.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Retained {
    /// How many, by reason.
    by_reason: BTreeMap<&'static str, u64>,
    /// Records that cannot be read: those retained, or a child or parent of theirs.
    unreadable: BTreeMap<TxId, String>,
}

impl Retained {
    pub(crate) fn note(&mut self, reason: &KeepReason) {
        *self.by_reason.entry(reason.label()).or_default() += 1;
        if let KeepReason::Unreadable { txid, error } = reason {
            self.unreadable.insert(*txid, error.clone());
        }
    }
}

/// What was found retained or damaged when each list was last looked through.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    /// In the list of due records: by the last whole look, and what was looked at since.
    due: Retained,
    /// Old unmined transactions and their parents.
    unmined: BTreeMap<TxId, String>,
    /// Records whose preservation is over.
    preserved: BTreeMap<TxId, String>,
}

impl Found {
    pub(crate) fn set_due(&mut self, due: &Retained) {
        let known = self.unreadable();
        self.due.clone_from(due);
        self.tell_new(&known);
    }

    pub(crate) fn set_unmined(&mut self, unreadable: Vec<Unreadable>) {
        let known = self.unreadable();
        self.unmined = by_id(unreadable);
        self.tell_new(&known);
    }

    pub(crate) fn set_preserved(&mut self, unreadable: Vec<Unreadable>) {
        let known = self.unreadable();
        self.preserved = by_id(unreadable);
        self.tell_new(&known);
    }

    fn unreadable(&self) -> BTreeMap<TxId, String> {
        let lists = [&self.due.unreadable, &self.unmined, &self.preserved];
        lists.into_iter().flatten().map(|(txid, error)| (*txid, error.clone())).collect()
    }

    fn tell_new(&self, known: &BTreeMap<TxId, String>) {
        for (txid, error) in self.unreadable() {
            if !known.contains_key(&txid) {
                tracing::error!(%txid, error, "a record cannot be read: it is retained, and all else goes on");
            }
        }
    }

    /// Records that cannot be read, the first hundred by id.
    pub(crate) fn named(&self) -> Vec<Unreadable> {
        let record = |(txid, error)| Unreadable { txid, error };
        self.unreadable().into_iter().map(record).take(NAMED).collect()
    }

    /// Due records that were looked at and retained.
    pub(crate) fn due(&self) -> u64 {
        self.due.by_reason.values().sum()
    }

    /// Records retained for a reason that only looking at them finds out.
    pub(crate) fn by_reason(&self) -> BTreeMap<String, u64> {
        let found = self.due.by_reason.iter().filter(|(reason, _)| FOUND_BY_LOOKING.contains(*reason));
        let mut counts: BTreeMap<String, u64> =
            found.map(|(reason, count)| ((*reason).to_owned(), *count)).collect();
        let elsewhere = self.unmined.keys().chain(self.preserved.keys());
        let elsewhere = elsewhere.filter(|txid| !self.due.unreadable.contains_key(txid));
        let elsewhere = elsewhere.collect::<std::collections::BTreeSet<_>>().len() as u64;
        if elsewhere > 0 {
            *counts.entry("unreadable".into()).or_default() += elsewhere;
        }
        counts
    }
}

fn by_id(unreadable: Vec<Unreadable>) -> BTreeMap<TxId, String> {
    unreadable.into_iter().map(|record| (record.txid, record.error)).collect()
}

/// Those of these records that are there and can be read. Notes those that cannot.
///
/// # Errors
/// Whatever is wrong with the store rather than with a record.
pub(crate) async fn readable(
    store: &Ledger,
    txids: Vec<TxId>,
    unreadable: &mut Vec<Unreadable>,
) -> Result<Vec<TxRecord>, StoreError> {
    let mut records = Vec::with_capacity(txids.len());
    for (txid, record) in txids.iter().zip(store.get_many(txids.clone()).await?) {
        match record {
            Ok(record) => records.extend(record),
            Err(error) => unreadable.push(Unreadable { txid: *txid, error: error.to_string() }),
        }
    }
    Ok(records)
}
