//! Cursors as they go out and come back.
//!
//! A store's own cursor is a key of its index and says nothing about which list it belongs to. What goes out is that key with a
//! short check over it and over the list: its name, its order and what it was asked for. A text that was made up, was changed, or
//! belongs to another list or to the other order is refused instead of being taken as some place in this list.

use bytes::Bytes;
use sapwood_ledger::{Cursor, Order};
use sapwood_types::AddressHash;

use crate::address::{bytes_of_hex, hex};

/// Bytes of the check before the store's own cursor.
const CHECK: usize = 8;
/// Bytes a cursor has at most.
const LONGEST: usize = 256;

/// Which list, in which order, of what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    name: &'static str,
    order: Order,
    of: Vec<u8>,
}

/// Why a cursor is not one of this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CursorError {
    /// It was made up, changed, or belongs to another list.
    #[error(
        "it is not a cursor of this list: give the `cursor` of the page before, unchanged, or none for the first page"
    )]
    NotOfThisList,
    /// It belongs to the same list in the other order.
    #[error(
        "it belongs to this list in the other order: go on with the order it was given for, or begin again without it"
    )]
    OtherOrder,
}

impl Listing {
    /// The list of a name in an order, of what was asked for.
    pub fn new(name: &'static str, order: Order, of: impl Into<Vec<u8>>) -> Self {
        Self { name, order, of: of.into() }
    }

    fn check(&self, order: Order, cursor: &[u8]) -> [u8; CHECK] {
        let order: &[u8] = match order {
            Order::Ascending => b"asc",
            Order::Descending => b"desc",
        };
        let parts = [self.name.as_bytes(), order, &self.of, cursor];
        // Each part after its length, so that no two lists have the same bytes.
        let mut all = Vec::new();
        for part in parts {
            all.extend_from_slice(&(part.len() as u64).to_be_bytes());
            all.extend_from_slice(part);
        }
        let mut check = [0; CHECK];
        check.copy_from_slice(&AddressHash::of_script(&all).0[..CHECK]);
        check
    }

    /// A cursor of the store, as it goes out.
    pub fn seal(&self, cursor: &Cursor) -> Bytes {
        [&self.check(self.order, &cursor.0)[..], &cursor.0].concat().into()
    }

    /// The same in hexadecimal digits.
    pub fn seal_hex(&self, cursor: &Cursor) -> String {
        hex(&self.seal(cursor))
    }

    /// The cursor of the store in hexadecimal digits that came back. `None` if none did: the first page is asked for.
    ///
    /// # Errors
    /// As [`Listing::open`].
    pub fn open_hex(&self, sealed: Option<&str>) -> Result<Option<Cursor>, CursorError> {
        let Some(text) = sealed else { return Ok(None) };
        let bytes = bytes_of_hex(text).map_err(|_| CursorError::NotOfThisList)?;
        self.open(&bytes).map(Some)
    }

    /// The cursor of the store in what came back.
    ///
    /// # Errors
    /// [`CursorError`] if it is not one that [`Listing::seal`] made for this list.
    pub fn open(&self, sealed: &Bytes) -> Result<Cursor, CursorError> {
        let Some((check, cursor)) = sealed.split_first_chunk::<CHECK>() else {
            return Err(CursorError::NotOfThisList);
        };
        if cursor.is_empty() || sealed.len() > LONGEST {
            return Err(CursorError::NotOfThisList);
        }
        if self.check(self.order, cursor) == *check {
            return Ok(Cursor(sealed.slice(CHECK..)));
        }
        let other = match self.order {
            Order::Ascending => Order::Descending,
            Order::Descending => Order::Ascending,
        };
        let of_other_order = self.check(other, cursor) == *check;
        Err(if of_other_order { CursorError::OtherOrder } else { CursorError::NotOfThisList })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(order: Order, of: &[u8]) -> Listing {
        Listing::new("addresses", order, of)
    }

    #[test]
    fn m17_a_cursor_comes_back_only_to_its_own_list_and_order() {
        let mine = listing(Order::Ascending, b"alice");
        let cursor = Cursor(Bytes::from_static(b"a key of the index"));
        let sealed = mine.seal(&cursor);
        assert_eq!(mine.open(&sealed), Ok(cursor));
        assert_eq!(listing(Order::Descending, b"alice").open(&sealed), Err(CursorError::OtherOrder));
        assert_eq!(listing(Order::Ascending, b"bob").open(&sealed), Err(CursorError::NotOfThisList));
        let elsewhere = Listing::new("credentials", Order::Ascending, b"alice");
        assert_eq!(elsewhere.open(&sealed), Err(CursorError::NotOfThisList));
    }

    #[test]
    fn m17_garbage_is_refused_whatever_it_is() {
        let mine = listing(Order::Ascending, b"alice");
        let sealed = mine.seal(&Cursor(Bytes::from_static(b"key")));
        for byte in 0..sealed.len() {
            let mut changed = sealed.to_vec();
            changed[byte] ^= 1;
            assert_eq!(mine.open(&changed.into()), Err(CursorError::NotOfThisList), "byte {byte}");
        }
        for length in 0..sealed.len() {
            assert_eq!(mine.open(&sealed.slice(..length)), Err(CursorError::NotOfThisList), "{length} bytes");
        }
        assert_eq!(mine.open(&Bytes::from(vec![0; 10_000])), Err(CursorError::NotOfThisList));
    }
}
