//! What must hold of any state, whatever the model says.

use std::collections::{BTreeMap, BTreeSet};

use sapwood_ledger::{AddressKind, Counts, Judged};
use sapwood_rules::Verdict;
use sapwood_types::{AddressHash, Height, OutPoint, Slot, TxId, TxRecord};

use super::{look::Look, observe::Observation};
use crate::model::pruning::settled_since;

/// What is wrong with records by themselves: who holds what, who lost, and whom nobody remembers.
pub fn of_records(records: &BTreeMap<TxId, TxRecord>) -> Vec<String> {
    let mut problems = Vec::new();
    for record in records.values() {
        slots(record, records, &mut problems);
        losers(record, records, &mut problems);
    }
    problems
}

fn slots(record: &TxRecord, records: &BTreeMap<TxId, TxRecord>, problems: &mut Vec<String>) {
    for (vout, slot) in (0..).zip(&record.slots) {
        let outpoint = record.outpoint(vout);
        let Slot::Spent { spender, child_mined_at } = *slot else { continue };
        let Some(child) = records.get(&spender.child) else {
            if child_mined_at.is_none() {
                problems.push(format!(
                    "{outpoint} is spent by {spender}, neither present nor remembered as mined"
                ));
            }
            continue;
        };
        let named = child.body.inputs.get(spender.vin as usize).map(|input| input.outpoint);
        if named != Some(outpoint) {
            problems.push(format!("{outpoint} is spent by {spender}, which spends {named:?}"));
        }
        if child.head.mined_at() != child_mined_at {
            let own = child.head.mined_at();
            problems.push(format!(
                "{outpoint} says {spender} is mined at {child_mined_at:?}, itself says {own:?}"
            ));
        }
        if child.head.is_conflicting() {
            problems.push(format!("{outpoint} is held by {spender}, which has lost"));
        }
    }
}

fn losers(record: &TxRecord, records: &BTreeMap<TxId, TxRecord>, problems: &mut Vec<String>) {
    let txid = record.txid;
    if record.head.is_conflicting() && record.head.mined_at().is_some() {
        problems.push(format!("{txid} has lost and is mined"));
    }
    if record.head.mined_at().is_none() && record.head.first_unmined.is_none() {
        problems.push(format!("{txid} is unmined since nobody knows when"));
    }
    let listed: BTreeSet<&TxId> = record.head.conflicting_children.iter().collect();
    if listed.len() != record.head.conflicting_children.len() {
        problems.push(format!("{txid} lists a loser twice"));
    }
    for child in listed {
        match records.get(child) {
            None => problems.push(format!("{txid} lists {child} as a loser, which is not there")),
            Some(child) if !child.head.is_conflicting() => {
                problems.push(format!("{txid} lists {} as a loser, which it is not", child.txid));
            }
            Some(child) if child.body.inputs.iter().all(|input| input.outpoint.txid != txid) => {
                problems.push(format!("{txid} lists {} as a loser, which is no child of it", child.txid));
            }
            Some(_) => {}
        }
    }
}

/// How a store's indexes differ from its own records.
pub fn of_indexes(records: &BTreeMap<TxId, TxRecord>, seen: &Observation, look: &Look) -> Vec<String> {
    let mut problems = Vec::new();
    let mut settled: Vec<(Height, TxId)> =
        records.values().filter_map(|record| Some((settled_since(record)?, record.txid))).collect();
    settled.sort();
    let due: Vec<(Height, TxId)> = seen.all_due.iter().map(|due| (due.settled_at, due.txid)).collect();
    if due != settled {
        problems.push(format!("the due index lists {due:?}, the records say {settled:?}"));
    }
    let mut unmined: Vec<(Height, TxId)> =
        records.values().filter_map(|record| Some((record.head.unmined_since()?, record.txid))).collect();
    unmined.sort();
    let unmined: Vec<TxId> = unmined.into_iter().map(|(_, txid)| txid).collect();
    if seen.all_unmined != unmined {
        problems.push(format!("the unmined index lists {:?}, the records say {unmined:?}", seen.all_unmined));
    }
    let coins = coins(records);
    for ((kind, hash), [oldest_first, newest_first]) in look.addresses.iter().zip(&seen.by_address) {
        let here: Vec<OutPoint> =
            coins.get(&(*kind, *hash)).into_iter().flatten().map(|(_, outpoint)| *outpoint).collect();
        let listed: Vec<OutPoint> = oldest_first.iter().map(|utxo| utxo.outpoint).collect();
        let mut turned: Vec<OutPoint> = newest_first.iter().map(|utxo| utxo.outpoint).collect();
        turned.reverse();
        if listed != here || turned != here {
            problems
                .push(format!("address {hash}: listed {listed:?} and {turned:?}, the records say {here:?}"));
        }
    }
    if seen.counts.records != records.len() as u64 || seen.counts.unmined != unmined.len() as u64 {
        problems.push(format!("counted {:?}, there are {} records", seen.counts, records.len()));
    }
    let judged = |reason: &str| {
        let kept =
            |judged: &&Judged| matches!(&judged.verdict, Verdict::Kept(kept) if kept.label() == reason);
        seen.judged.iter().filter(kept).count() as u64
    };
    let Counts { locked, preserved, child_unmined, .. } = seen.counts;
    for (reason, counted) in [("locked", locked), ("preserved", preserved), ("child_unmined", child_unmined)]
    {
        if counted != judged(reason) {
            problems.push(format!("counted {counted} as {reason}, judged {}", judged(reason)));
        }
    }
    let [up_to, above, all] = seen.settled;
    if (up_to, up_to + above, all) != (seen.due.len() as u64, all, settled.len() as u64) {
        problems.push(format!("counted {:?} as settled, there are {settled:?}", seen.settled));
    }
    problems
}

type Coins = BTreeMap<(AddressKind, AddressHash), BTreeSet<(Height, OutPoint)>>;

/// Every output that an address index must list.
fn coins(records: &BTreeMap<TxId, TxRecord>) -> Coins {
    let mut coins = Coins::new();
    for record in records.values().filter(|record| !record.head.is_conflicting()) {
        for (vout, (slot, output)) in (0..).zip(record.slots.iter().zip(&record.outputs)) {
            let (Slot::Unspent | Slot::Frozen, Some(output)) = (slot, output) else { continue };
            let coin = (record.head.created_height, record.outpoint(vout));
            let address = (AddressKind::Address, AddressHash::of_script(&output.script));
            coins.entry(address).or_default().insert(coin);
            if let Some(credential) = output.credential {
                coins.entry((AddressKind::Credential, credential)).or_default().insert(coin);
            }
        }
    }
    coins
}
