//! The independent check: what the children's own records say.

use sapwood_rules::{ChildEvidence, KeepReason, PruneContext, Verdict, verdict::check_child};
use sapwood_types::{FirstPage, Height, Slot, TxId};

use super::{Case, unreadable};
use crate::{
    StoreError,
    core::{Core, corrupt},
    read::{Snapshot, each},
};

/// The independent check: what the own record of every child says, of every record that may go. Most children were mined
/// while this process ran, and what was written into their records is still known; the others are read.
pub(super) fn check_all(
    core: &Core,
    snapshot: &Snapshot,
    cases: &mut [Case],
    context: &PruneContext,
) -> Result<(), StoreError> {
    let mut slots: Vec<(usize, Slot)> = Vec::with_capacity(3 * cases.len());
    let mut paged: Vec<(usize, TxId)> = Vec::new();
    for (number, case) in cases.iter_mut().enumerate().filter(|(_, case)| case.judged.verdict.may_go()) {
        match &case.plain {
            Some(header) if header.summaries.is_empty() => {
                slots.extend(header.slots.iter().map(|slot| (number, *slot)));
            }
            _ => paged.push((number, case.judged.txid)),
        }
    }
    let found = snapshot.read(|set| {
        set.want(paged.iter().map(|(_, txid)| *txid));
        each(set, &paged, |set, (_, txid)| set.slots(*txid))
    })?;
    for ((number, txid), found) in paged.into_iter().zip(found) {
        match found {
            Ok(all) => slots.extend(all.into_iter().map(|slot| (number, slot))),
            Err(error) => cases[number].judged.verdict = Verdict::Kept(unreadable(txid, error)?),
        }
    }
    let child = |slot: &Slot| slot.spender().map(|spender| spender.child);
    let mined = core.mined.read();
    let known: Vec<Option<Height>> =
        slots.iter().map(|(_, slot)| child(slot).and_then(|child| mined.get(&child))).collect();
    drop(mined);
    let unknown = slots.iter().zip(&known).filter(|(_, known)| known.is_none());
    let mut to_read: Vec<TxId> = unknown.filter_map(|((_, slot), _)| child(slot)).collect();
    to_read.sort_unstable();
    to_read.dedup();
    let mut found: Vec<Result<ChildEvidence, KeepReason>> = Vec::with_capacity(to_read.len());
    for part in to_read.chunks(core.options.children_per_read.max(1)) {
        core.reached("prune-children")?;
        snapshot.each_first_page(part, |child, bytes| {
            let evidence = bytes.and_then(|bytes| match bytes {
                None => Ok(ChildEvidence::Absent),
                Some(bytes) => match FirstPage::peek_mined_at(bytes) {
                    Ok(mined_at) => Ok(ChildEvidence::Present { mined_at }),
                    Err(cause) => Err(corrupt(format!("transaction {child}"), cause)),
                },
            });
            found.push(match evidence {
                Ok(evidence) => Ok(evidence),
                Err(error) => Err(unreadable(*child, error)?),
            });
            Ok(())
        })?;
    }
    for ((number, slot), known) in slots.iter().zip(known) {
        let verdict = &mut cases[*number].judged.verdict;
        if !verdict.may_go() {
            continue;
        }
        let read = |child: &TxId| to_read.binary_search(child).ok().map(|at| &found[at]);
        if known.is_none()
            && let Some(Err(reason)) = child(slot).as_ref().and_then(read)
        {
            *verdict = Verdict::Kept(reason.clone());
            continue;
        }
        let evidence = |child: &TxId| match known {
            Some(height) => ChildEvidence::Present { mined_at: Some(height) },
            None => match read(child) {
                Some(Ok(evidence)) => *evidence,
                _ => ChildEvidence::Absent,
            },
        };
        if let Err(reason) = check_child(slot, evidence, context) {
            *verdict = Verdict::Kept(reason);
        }
    }
    Ok(())
}
