//! When a record is settled, and at which height it may go.
//!
//! *Settled* is the height of the last event that matters for a record: its own mining, the mining of its latest child, or,
//! for the loser of a double spend, the moment it lost. A record may go `retention` blocks after it settled. The store
//! indexes settled records by this height rather than by the sum, so that a new retention takes effect at once.

use sapwood_types::{Height, RecordView};

/// The height at which the record settled; nothing while anybody may still need it.
///
/// A record is settled if nothing pins it (creation under way, lock, preservation, a reassigned output) and either
/// - it is mined on the longest chain, and each output that could be spent is spent by a mined transaction: the greatest of
///   its own height and its children's; or
/// - it lost against another transaction, and no transaction spends from it: the height at which it lost.
///
/// One with a reassigned output never settles, not even as a loser: that somebody's coin was given to somebody else is noted in
/// this record and nowhere else.
pub fn settled_at(record: RecordView) -> Option<Height> {
    let head = record.head;
    let pinned = head.creating || head.locked || head.preserve_until.is_some();
    if pinned || !head.reassignments.is_empty() {
        return None;
    }
    if let Some(since) = head.conflicting_since {
        let needed = record.claimed() > 0 || record.latest_child().is_some();
        return if needed { None } else { Some(since) };
    }
    let mined_at = head.mined_at()?;
    if record.open() > 0 {
        return None;
    }
    Some(record.latest_child().map_or(mined_at, |child| child.max(mined_at)))
}

/// The height at which a record that settled at `settled` may go. With a retention of 0 it never may.
pub fn delete_at(settled: Height, retention: u32) -> Option<Height> {
    (retention > 0).then(|| settled.plus(retention))
}

/// The greatest settled height that is due at `height`; nothing if none can be.
pub fn due_up_to(height: Height, retention: u32) -> Option<Height> {
    if retention == 0 { None } else { height.0.checked_sub(retention).map(Height) }
}

/// Since when a transaction counts as unmined, if it is found unmined at `now`: the earliest height ever seen. Stamping it
/// anew on each reorganisation once restarted the protection of a whole mempool.
pub fn earliest_unmined(before: Option<Height>, now: Height) -> Height {
    before.map_or(now, |before| before.min(now))
}

/// The first height at which a coinbase made at `height` may be spent.
pub fn coinbase_spendable_from(height: Height, maturity: u32) -> Height {
    height.plus(maturity)
}

/// Whether a child mined at `mined_at` is beyond every reorganisation when the chain is at `current`.
pub fn is_stable(mined_at: Height, current: Height, retention: u32) -> bool {
    current >= mined_at.plus(retention)
}

/// Up to which height a preservation asked for until `until` lasts, given what is already promised.
pub fn preserve_until(before: Option<Height>, until: Height) -> Height {
    before.map_or(until, |before| before.max(until))
}

#[cfg(test)]
mod tests {
    use sapwood_types::{MinedIn, Output, Reassignment, Slot, Spender, Tx, TxHead, TxId, TxRecord};

    use super::*;

    fn mined(height: u32) -> TxHead {
        TxHead {
            blocks: [MinedIn { block_id: 1, height: Height(height), subtree: 0, on_longest_chain: true }]
                .into(),
            ..TxHead::default()
        }
    }

    fn record(head: TxHead, slots: &[Slot]) -> TxRecord {
        let outputs = slots.iter().map(|slot| match slot {
            Slot::Unspendable => Output::data(&b"x"[..]),
            _ => Output::new(1, &b"x"[..]),
        });
        let tx = Tx {
            txid: TxId([1; 32]),
            version: 1,
            locktime: 0,
            fee: None,
            size: 1,
            coinbase: false,
            inputs: vec![],
            outputs: outputs.collect(),
            raw: Default::default(),
        };
        TxRecord { slots: slots.into(), ..TxRecord::new(&tx, head) }
    }

    fn spent(child: u8, mined_at: Option<u32>) -> Slot {
        Slot::spent(Spender::new(TxId([child; 32]), 0), mined_at.map(Height))
    }

    #[test]
    fn mined_and_fully_spent_by_mined_children_is_settled_at_the_latest() {
        let slots = [spent(2, Some(1001)), spent(3, Some(900)), Slot::Unspendable];
        assert_eq!(settled_at(record(mined(800), &slots).view()), Some(Height(1001)));
        assert_eq!(settled_at(record(mined(2000), &slots).view()), Some(Height(2000)));
    }

    #[test]
    fn an_unmined_child_keeps_its_parent() {
        assert_eq!(settled_at(record(mined(800), &[spent(2, Some(1001)), spent(3, None)]).view()), None);
    }

    #[test]
    fn an_unspent_or_frozen_output_keeps_its_transaction() {
        assert_eq!(settled_at(record(mined(800), &[Slot::Unspent]).view()), None);
        assert_eq!(settled_at(record(mined(800), &[Slot::Frozen]).view()), None);
    }

    #[test]
    fn only_data_outputs_settle_at_once() {
        assert_eq!(settled_at(record(mined(800), &[Slot::Unspendable]).view()), Some(Height(800)));
    }

    #[test]
    fn off_the_longest_chain_is_never_settled() {
        let mut head = TxHead { first_unmined: Some(Height(5)), ..mined(800) };
        head.blocks[0].on_longest_chain = false;
        assert_eq!(settled_at(record(head, &[spent(2, Some(900))]).view()), None);
    }

    #[test]
    fn whatever_pins_a_record_unsettles_it() {
        let slots = [spent(2, Some(900))];
        for head in [
            TxHead { locked: true, ..mined(800) },
            TxHead { creating: true, ..mined(800) },
            TxHead { preserve_until: Some(Height(1)), ..mined(800) },
        ] {
            assert_eq!(settled_at(record(head, &slots).view()), None);
        }
    }

    #[test]
    fn a_loser_settles_when_nothing_spends_from_it() {
        let head = TxHead {
            first_unmined: Some(Height(5)),
            conflicting_since: Some(Height(70)),
            ..TxHead::default()
        };
        assert_eq!(settled_at(record(head.clone(), &[Slot::Unspent]).view()), Some(Height(70)));
        assert_eq!(settled_at(record(head.clone(), &[spent(2, None)]).view()), None);
        assert_eq!(settled_at(record(head.clone(), &[spent(2, Some(80))]).view()), None);
        assert_eq!(settled_at(record(head, &[Slot::Frozen]).view()), None);
    }

    #[test]
    fn a_reassigned_output_keeps_its_record_for_ever() {
        let (old, new) = Default::default();
        let noted = Reassignment { vout: 0, old, new, at: Height(820), spendable_from: Height(850) };
        let reassigned = |head: TxHead| TxHead { reassignments: vec![noted], ..head };
        assert_eq!(settled_at(record(mined(800), &[spent(2, Some(900))]).view()), Some(Height(900)));
        assert_eq!(settled_at(record(reassigned(mined(800)), &[spent(2, Some(900))]).view()), None);
        let lost = TxHead { conflicting_since: Some(Height(70)), ..TxHead::default() };
        assert_eq!(settled_at(record(reassigned(lost), &[Slot::Unspent]).view()), None);
    }

    #[test]
    fn due_heights_agree_with_delete_heights() {
        assert_eq!(delete_at(Height(1001), 288), Some(Height(1289)));
        assert_eq!(due_up_to(Height(1288), 288), Some(Height(1000)));
        assert_eq!(due_up_to(Height(1289), 288), Some(Height(1001)));
        assert_eq!(due_up_to(Height(287), 288), None);
        assert_eq!(due_up_to(Height(1000), 0), None);
        assert_eq!(delete_at(Height(1000), 0), None);
    }
}
