//! May this output be spent? Checked in the documented order, so that every backend gives the same answer.

use std::fmt;

use sapwood_types::{Height, Slot, Spender, TxHead, UtxoHash};

/// Why an output may not be spent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpendRefusal {
    /// The transaction is not in the store.
    #[error("the transaction that made this output is not known")]
    NotFound,
    /// The record is not complete yet.
    #[error("the record of the transaction that made this output is still being written")]
    Creating,
    /// The transaction lost against another.
    #[error("the transaction that made this output conflicts with another since height {since}")]
    Conflicting {
        /// Since when.
        since: Height,
    },
    /// The transaction is locked.
    #[error("the transaction that made this output is locked")]
    Locked,
    /// A coinbase that has not matured.
    #[error("this coinbase output may be spent from height {spendable_from} on, not at {height}")]
    Immature {
        /// The first height that may.
        spendable_from: Height,
        /// The height asked for.
        height: Height,
    },
    /// The transaction has no output of that number.
    #[error("the transaction has only {outputs} outputs")]
    NoSuchOutput {
        /// How many it has.
        outputs: u32,
    },
    /// The output carries data only.
    #[error("this output can never be spent")]
    Unspendable,
    /// The spender expects another owner or amount.
    #[error("this output's hash is {actual}, the spender expects {expected}")]
    HashMismatch {
        /// The hash the output has.
        actual: UtxoHash,
        /// The hash the spender expects.
        expected: UtxoHash,
    },
    /// The output was reassigned and has to wait.
    #[error("this output was reassigned and may be spent from height {spendable_from} on, not at {height}")]
    Reassigned {
        /// The first height that may.
        spendable_from: Height,
        /// The height asked for.
        height: Height,
    },
    /// The output is frozen.
    #[error("this output is frozen")]
    Frozen,
    /// Another transaction spends it.
    #[error("this output is already spent by {by}")]
    Spent {
        /// By whom.
        by: Spender,
        /// When that was mined, if it is.
        mined_at: Option<Height>,
    },
    /// It was spent so long ago that only the height is remembered.
    #[error("this output was spent at height {mined_at}, beyond every reorganisation")]
    SpentAndSettled {
        /// When the spender was mined.
        mined_at: Height,
    },
    /// The same transaction spent it, was mined, and has been pruned since. To accept the spend again would bring a dead
    /// transaction back with fresh outputs.
    #[error("{by} spent this output, was mined at height {mined_at} and has been pruned since")]
    SpenderPruned {
        /// By whom.
        by: Spender,
        /// When it was mined.
        mined_at: Height,
    },
}

/// Which checks a spend may pass over. Only conflict resolution does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpendOverrides {
    /// Spend from a transaction that lost.
    pub ignore_conflicting: bool,
    /// Spend from a locked transaction.
    pub ignore_locked: bool,
}

/// The checks of the record, before any slot is looked at.
pub fn check_record(head: &TxHead, height: Height, overrides: SpendOverrides) -> Result<(), SpendRefusal> {
    if head.creating {
        return Err(SpendRefusal::Creating);
    }
    if let Some(since) = head.conflicting_since.filter(|_| !overrides.ignore_conflicting) {
        return Err(SpendRefusal::Conflicting { since });
    }
    if head.locked && !overrides.ignore_locked {
        return Err(SpendRefusal::Locked);
    }
    match head.spending_height {
        Some(spendable_from) if height < spendable_from => {
            Err(SpendRefusal::Immature { spendable_from, height })
        }
        _ => Ok(()),
    }
}

/// What a spend does to a slot that allows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotSpend {
    /// The output becomes spent.
    New,
    /// This very input spends it already: nothing changes. If the spender is mined, its record must still be there, or it
    /// has been pruned and must not come back.
    Repeat {
        /// When the spender was mined, if it is.
        mined_at: Option<Height>,
    },
}

/// The checks of one slot, after [`check_record`].
pub fn check_slot(
    head: &TxHead,
    vout: u32,
    slot: Option<&Slot>,
    spender: Spender,
    height: Height,
) -> Result<SlotSpend, SpendRefusal> {
    let Some(slot) = slot else {
        return Err(SpendRefusal::NoSuchOutput { outputs: head.output_count });
    };
    if let Some(spendable_from) = head.reassigned_until(vout).filter(|from| height < *from) {
        return Err(SpendRefusal::Reassigned { spendable_from, height });
    }
    match *slot {
        Slot::Unspent => Ok(SlotSpend::New),
        Slot::Spent { spender: by, child_mined_at } if by == spender => {
            Ok(SlotSpend::Repeat { mined_at: child_mined_at })
        }
        Slot::Spent { spender: by, child_mined_at } => {
            Err(SpendRefusal::Spent { by, mined_at: child_mined_at })
        }
        Slot::Settled { child_mined_at } => Err(SpendRefusal::SpentAndSettled { mined_at: child_mined_at }),
        Slot::Frozen => Err(SpendRefusal::Frozen),
        Slot::Unspendable => Err(SpendRefusal::Unspendable),
    }
}

/// The state of an output as a reader sees it. Where several apply, the first in this order is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpendStatus {
    /// Its transaction is locked.
    Locked,
    /// Its transaction lost against another.
    Conflicting {
        /// Since when.
        since: Height,
    },
    /// It is frozen.
    Frozen,
    /// It may not be spent yet: a young coinbase, or a reassignment.
    Immature {
        /// The first height that may.
        spendable_from: Height,
    },
    /// It is spent.
    Spent {
        /// By whom, if that is still known.
        by: Option<Spender>,
        /// When the spender was mined, if it is.
        mined_at: Option<Height>,
    },
    /// It can be spent now.
    Spendable,
    /// It can never be spent.
    Unspendable,
    /// There is no such transaction or output.
    NotFound,
}

/// How an output looks at `height`.
pub fn status(head: &TxHead, vout: u32, slot: Option<&Slot>, height: Height) -> SpendStatus {
    let Some(slot) = slot else { return SpendStatus::NotFound };
    if *slot == Slot::Unspendable {
        return SpendStatus::Unspendable;
    }
    if head.locked {
        return SpendStatus::Locked;
    }
    if let Some(since) = head.conflicting_since {
        return SpendStatus::Conflicting { since };
    }
    if *slot == Slot::Frozen {
        return SpendStatus::Frozen;
    }
    let wait = head.spending_height.max(head.reassigned_until(vout));
    if let Some(spendable_from) = wait.filter(|from| height < *from) {
        return SpendStatus::Immature { spendable_from };
    }
    match *slot {
        Slot::Unspent => SpendStatus::Spendable,
        ref spent => SpendStatus::Spent { by: spent.spender(), mined_at: spent.child_mined_at() },
    }
}

impl fmt::Display for SpendStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpendStatus::Locked => write!(f, "locked"),
            SpendStatus::Conflicting { since } => write!(f, "conflicting since height {since}"),
            SpendStatus::Frozen => write!(f, "frozen"),
            SpendStatus::Immature { spendable_from } => write!(f, "immature until height {spendable_from}"),
            SpendStatus::Spent { by: Some(by), mined_at: Some(height) } => {
                write!(f, "spent by {by}, mined at height {height}")
            }
            SpendStatus::Spent { by: Some(by), mined_at: None } => write!(f, "spent by {by}, not mined"),
            SpendStatus::Spent { by: None, mined_at: Some(height) } => write!(f, "spent at height {height}"),
            SpendStatus::Spent { by: None, mined_at: None } => write!(f, "spent"),
            SpendStatus::Spendable => write!(f, "spendable"),
            SpendStatus::Unspendable => write!(f, "never spendable"),
            SpendStatus::NotFound => write!(f, "not found"),
        }
    }
}

#[cfg(test)]
mod tests {
    use sapwood_types::TxId;

    use super::*;

    const ME: Spender = Spender { child: TxId([1; 32]), vin: 0 };
    const RIVAL: Spender = Spender { child: TxId([2; 32]), vin: 0 };

    fn everything_wrong() -> TxHead {
        TxHead {
            creating: true,
            conflicting_since: Some(Height(5)),
            locked: true,
            spending_height: Some(Height(200)),
            ..TxHead::default()
        }
    }

    #[test]
    fn record_checks_come_in_the_documented_order() {
        let mut head = everything_wrong();
        let check = |head: &TxHead| check_record(head, Height(199), SpendOverrides::default());
        assert_eq!(check(&head), Err(SpendRefusal::Creating));
        head.creating = false;
        assert_eq!(check(&head), Err(SpendRefusal::Conflicting { since: Height(5) }));
        head.conflicting_since = None;
        assert_eq!(check(&head), Err(SpendRefusal::Locked));
        head.locked = false;
        let immature = SpendRefusal::Immature { spendable_from: Height(200), height: Height(199) };
        assert_eq!(check(&head), Err(immature));
        assert_eq!(check_record(&head, Height(200), SpendOverrides::default()), Ok(()), "equality passes");
    }

    #[test]
    fn overrides_pass_over_conflict_and_lock_only() {
        let head = TxHead { creating: false, ..everything_wrong() };
        let overrides = SpendOverrides { ignore_conflicting: true, ignore_locked: true };
        assert!(matches!(check_record(&head, Height(1), overrides), Err(SpendRefusal::Immature { .. })));
        assert_eq!(check_record(&head, Height(200), overrides), Ok(()));
    }

    #[test]
    fn a_repeat_is_the_same_36_bytes() {
        let slot = Slot::spent(ME, None);
        let check = |spender| check_slot(&TxHead::default(), 0, Some(&slot), spender, Height(1));
        assert_eq!(check(ME), Ok(SlotSpend::Repeat { mined_at: None }));
        assert_eq!(check(RIVAL), Err(SpendRefusal::Spent { by: ME, mined_at: None }));
        let other_input = Spender { vin: 1, ..ME };
        assert_eq!(check(other_input), Err(SpendRefusal::Spent { by: ME, mined_at: None }));
    }

    #[test]
    fn status_shows_the_first_that_applies() {
        let mut head = everything_wrong();
        let look = |head: &TxHead, slot: Slot| status(head, 0, Some(&slot), Height(1));
        assert_eq!(look(&head, Slot::Frozen), SpendStatus::Locked);
        head.locked = false;
        assert_eq!(look(&head, Slot::Frozen), SpendStatus::Conflicting { since: Height(5) });
        head.conflicting_since = None;
        assert_eq!(look(&head, Slot::Frozen), SpendStatus::Frozen);
        assert_eq!(look(&head, Slot::Unspent), SpendStatus::Immature { spendable_from: Height(200) });
        head.spending_height = None;
        assert_eq!(look(&head, Slot::Unspent), SpendStatus::Spendable);
        let spent = SpendStatus::Spent { by: Some(ME), mined_at: None };
        assert_eq!(look(&head, Slot::spent(ME, None)), spent);
    }
}
