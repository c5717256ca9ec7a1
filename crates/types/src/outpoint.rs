//! Which output, and which input spends it.

use std::{fmt, str::FromStr};

use crate::{PAGE_SIZE, TxId};

/// One output of one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutPoint {
    /// The transaction that made the output.
    pub txid: TxId,
    /// The output's number in it.
    pub vout: u32,
}

impl OutPoint {
    /// Output `vout` of `txid`.
    pub fn new(txid: TxId, vout: u32) -> Self {
        Self { txid, vout }
    }

    /// The page that holds the output's slot.
    pub fn page(&self) -> u32 {
        self.vout / PAGE_SIZE
    }

    /// The slot's place on its page.
    pub fn place(&self) -> usize {
        (self.vout % PAGE_SIZE) as usize
    }
}

impl fmt::Display for OutPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.txid, self.vout)
    }
}

/// A text does not name an output.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} does not name an output: write it as TXID:NUMBER")]
pub struct ParseOutPointError {
    text: String,
}

impl FromStr for OutPoint {
    type Err = ParseOutPointError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (txid, vout) = text.split_once(':')?;
            Some(OutPoint::new(txid.parse().ok()?, vout.parse().ok()?))
        };
        parse().ok_or_else(|| ParseOutPointError { text: text.into() })
    }
}

/// One input of one transaction: what spends an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spender {
    /// The transaction that spends.
    pub child: TxId,
    /// The number of its input.
    pub vin: u32,
}

impl Spender {
    /// Input `vin` of `child`.
    pub fn new(child: TxId, vin: u32) -> Self {
        Self { child, vin }
    }
}

impl fmt::Display for Spender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "input {} of {}", self.vin, self.child)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outpoint_is_read_as_it_is_written() {
        let outpoint = OutPoint::new(TxId([0xab; 32]), 7);
        assert_eq!(outpoint.to_string().parse(), Ok(outpoint));
        for wrong in ["", "7", "ab:7", &"ab".repeat(32), &format!("{}:-1", "ab".repeat(32))] {
            assert!(wrong.parse::<OutPoint>().is_err(), "{wrong}");
        }
    }
}
