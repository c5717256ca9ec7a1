//! The state of one output.

use bytes::Buf;

use crate::{
    DecodeError, Height, Spender,
    codec::{Reader, Writer},
};

/// The state of one output of a stored transaction.
///
/// A spent slot remembers when its spender was mined. It is written in the same atomic batch that mines the spender and
/// reverted in the one that unmines it, so a parent alone proves whether its children are mined, and how deep. That
/// memory outlives the child's own record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slot {
    /// Nothing spends the output.
    Unspent,
    /// The output may not be spent until it is unfrozen or reassigned.
    Frozen,
    /// The output can never be spent (it carries data only). Nothing else is kept of it, and it never counts.
    Unspendable,
    /// The output is spent.
    Spent {
        /// By which input.
        spender: Spender,
        /// The height at which the spender was mined on the longest chain, if it is mined.
        child_mined_at: Option<Height>,
    },
    /// The output was spent by a transaction that is now out of reach of any reorganisation. Who it was is forgotten.
    Settled {
        /// The height at which the spender was mined.
        child_mined_at: Height,
    },
}

impl Slot {
    /// The smallest number of bytes a slot takes.
    pub(crate) const LEAST_SIZE: usize = 1;

    const UNSPENT: u8 = 0;
    const FROZEN: u8 = 1;
    const UNSPENDABLE: u8 = 2;
    const SPENT_UNMINED: u8 = 3;
    const SPENT_MINED: u8 = 4;
    const SETTLED: u8 = 5;

    /// A slot spent by `spender`, mined or not.
    pub fn spent(spender: Spender, child_mined_at: Option<Height>) -> Self {
        Slot::Spent { spender, child_mined_at }
    }

    /// Whether the output stands in the way of its transaction's deletion: it is unspent, frozen, or spent by a
    /// transaction that is not mined.
    pub fn is_open(&self) -> bool {
        matches!(self, Slot::Unspent | Slot::Frozen | Slot::Spent { child_mined_at: None, .. })
    }

    /// Whether the output keeps even a transaction that lost against another: an unmined transaction spends it, or it is
    /// frozen.
    pub fn is_claimed(&self) -> bool {
        matches!(self, Slot::Frozen | Slot::Spent { child_mined_at: None, .. })
    }

    /// When the spender was mined, if there is one and it is.
    pub fn child_mined_at(&self) -> Option<Height> {
        match *self {
            Slot::Spent { child_mined_at, .. } => child_mined_at,
            Slot::Settled { child_mined_at } => Some(child_mined_at),
            Slot::Unspent | Slot::Frozen | Slot::Unspendable => None,
        }
    }

    /// What spends the output, if that is still known.
    pub fn spender(&self) -> Option<Spender> {
        match *self {
            Slot::Spent { spender, .. } => Some(spender),
            _ => None,
        }
    }

    /// Whether nothing spends the output and nothing forbids it.
    pub fn is_unspent(&self) -> bool {
        *self == Slot::Unspent
    }

    /// Whether the output is part of the chain's UTXO set, given that its own transaction is mined: no mined transaction
    /// spends it. An output that only an unmined transaction spends still is.
    pub fn is_coin(&self) -> bool {
        self.is_open()
    }

    /// Forgets who spent the output once the spender lies at or below `settled_below`.
    #[must_use]
    pub fn settle(self, settled_below: Height) -> Slot {
        match self {
            Slot::Spent { child_mined_at: Some(height), .. } if height <= settled_below => {
                Slot::Settled { child_mined_at: height }
            }
            other => other,
        }
    }

    /// Writes the slot.
    pub fn encode(&self, to: &mut Writer) {
        match *self {
            Slot::Unspent => to.u8(Self::UNSPENT),
            Slot::Frozen => to.u8(Self::FROZEN),
            Slot::Unspendable => to.u8(Self::UNSPENDABLE),
            Slot::Spent { spender, child_mined_at } => {
                to.u8(if child_mined_at.is_some() { Self::SPENT_MINED } else { Self::SPENT_UNMINED });
                to.bytes(&spender.child.0);
                to.varint(spender.vin.into());
                if let Some(height) = child_mined_at {
                    to.height(height);
                }
            }
            Slot::Settled { child_mined_at } => {
                to.u8(Self::SETTLED);
                to.height(child_mined_at);
            }
        }
    }

    /// Reads a slot.
    pub fn decode<B: Buf>(from: &mut Reader<B>) -> Result<Self, DecodeError> {
        const FIELD: &str = "slot";
        Ok(match from.u8(FIELD)? {
            Self::UNSPENT => Slot::Unspent,
            Self::FROZEN => Slot::Frozen,
            Self::UNSPENDABLE => Slot::Unspendable,
            tag @ (Self::SPENT_UNMINED | Self::SPENT_MINED) => {
                let spender = Spender { child: from.txid(FIELD)?, vin: from.varint_u32(FIELD)? };
                let child_mined_at = if tag == Self::SPENT_MINED { Some(from.height(FIELD)?) } else { None };
                Slot::Spent { spender, child_mined_at }
            }
            Self::SETTLED => Slot::Settled { child_mined_at: from.height(FIELD)? },
            value => return Err(DecodeError::UnknownValue { field: FIELD, value: value.into() }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TxId;

    #[test]
    fn a_spender_is_forgotten_only_once_it_is_deep_enough() {
        let spent = Slot::spent(Spender::new(TxId([7; 32]), 1), Some(Height(100)));
        assert_eq!(spent.settle(Height(99)), spent);
        assert_eq!(spent.settle(Height(100)), Slot::Settled { child_mined_at: Height(100) });
        let unmined = Slot::spent(Spender::new(TxId([7; 32]), 1), None);
        assert_eq!(unmined.settle(Height::MAX), unmined);
    }
}
