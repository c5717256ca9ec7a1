//! Checking what a client sent, and naming the field that is wrong.
//!
//! The way to a field is put together only when something is wrong with it, from the inside out, so that good requests pay nothing.

use bytes::Bytes;
use sapwood_types::{AddressHash, Height};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::GrpcLimits;

/// A field is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadField {
    /// The way to it, as in `transactions[3].transaction.txid`.
    path: String,
    problem: String,
}

/// A value, or the field that is wrong.
pub(crate) type Checked<T> = Result<T, BadField>;

impl BadField {
    /// Something is wrong with the value at hand.
    pub(crate) fn new(problem: impl Into<String>) -> Self {
        Self { path: String::new(), problem: problem.into() }
    }

    /// The status, if the value at hand is this field.
    pub(crate) fn named(self, name: &str) -> Status {
        self.inside(name).into()
    }

    fn inside(mut self, outer: &str) -> Self {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{outer}{dot}{}", self.path);
        self
    }
}

impl From<BadField> for Status {
    fn from(bad: BadField) -> Self {
        let message = format!("{}: {}", bad.path, bad.problem);
        let details = ErrorDetails::with_bad_request_violation(bad.path, bad.problem);
        Status::with_error_details(Code::InvalidArgument, message, details)
    }
}

/// Says in which field a value is.
pub(crate) trait InField {
    /// In this field.
    fn field(self, name: &str) -> Self;
    /// The item of this number.
    fn item(self, number: usize) -> Self;
}

impl<T> InField for Checked<T> {
    fn field(self, name: &str) -> Self {
        self.map_err(|bad| bad.inside(name))
    }

    fn item(self, number: usize) -> Self {
        self.map_err(|bad| bad.inside(&format!("[{number}]")))
    }
}

/// A field that has to be there.
pub(crate) fn required<T>(value: Option<T>, name: &str) -> Checked<T> {
    value.ok_or_else(|| BadField::new("is required")).field(name)
}

/// A height that has to be there.
pub(crate) fn height(value: Option<u32>, name: &str) -> Checked<Height> {
    required(value, name).map(Height)
}

/// A hash of just this many bytes.
pub(crate) fn hash<const N: usize, T: From<[u8; N]>>(bytes: &Bytes) -> Checked<T> {
    let array: Result<[u8; N], _> = bytes.as_ref().try_into();
    array.map(T::from).map_err(|_| BadField::new(format!("must be {N} bytes, is {}", bytes.len())))
}

/// A credential, if there is one.
pub(crate) fn credential(bytes: Option<Bytes>) -> Checked<Option<AddressHash>> {
    bytes.as_ref().map(hash).transpose().field("credential")
}

/// Converts every item of a list.
pub(crate) fn each<T, U>(items: Vec<T>, name: &str, convert: impl Fn(T) -> Checked<U>) -> Checked<Vec<U>> {
    let item = |(number, item)| convert(item).item(number);
    items.into_iter().enumerate().map(item).collect::<Checked<Vec<U>>>().field(name)
}

impl GrpcLimits {
    /// Converts every item of a batch that is not too long.
    pub(crate) fn batch<T, U>(
        &self,
        items: Vec<T>,
        name: &str,
        convert: impl Fn(T) -> Checked<U>,
    ) -> Checked<Vec<U>> {
        if items.len() > self.max_items {
            let problem = format!(
                "has {} items, at most {} are taken: send several batches",
                items.len(),
                self.max_items
            );
            return Err(BadField::new(problem)).field(name);
        }
        each(items, name, convert)
    }

    /// Hashes, each of just this many bytes.
    pub(crate) fn hashes<const N: usize, T: From<[u8; N]>>(
        &self,
        items: Vec<Bytes>,
        name: &str,
    ) -> Checked<Vec<T>> {
        self.batch(items, name, |item| hash(&item))
    }

    /// How long a page may be.
    pub(crate) fn page(&self, limit: Option<u32>) -> Checked<usize> {
        const USUAL: usize = 1000;
        match limit {
            None => Ok(USUAL.min(self.max_items)),
            Some(limit) if limit > 0 && limit as usize <= self.max_items => Ok(limit as usize),
            Some(limit) => {
                Err(BadField::new(format!("must be 1 to {}, is {limit}", self.max_items))).field("limit")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sapwood_types::TxId;

    use super::*;

    const LIMITS: GrpcLimits = GrpcLimits { max_message_bytes: 1000, max_items: 4 };

    fn said<T: std::fmt::Debug>(checked: Checked<T>) -> String {
        Status::from(checked.unwrap_err()).message().to_owned()
    }

    #[test]
    fn the_field_is_named() {
        let good = Bytes::from_static(&[7; 32]);
        let hashes = |items: Vec<Bytes>| LIMITS.hashes::<32, TxId>(items, "txids");
        assert_eq!(hashes(vec![good.clone()]), Ok(vec![TxId([7; 32])]));
        let short = vec![good.clone(), good.clone(), good.clone(), good.slice(1..)];
        assert_eq!(said(hashes(short)), "txids[3]: must be 32 bytes, is 31");
        let five = vec![good; 5];
        assert_eq!(said(hashes(five)), "txids: has 5 items, at most 4 are taken: send several batches");
        let deep = each(vec![()], "spends", |()| required::<u32>(None, "outpoint"));
        assert_eq!(said(deep), "spends[0].outpoint: is required");
        assert_eq!(said(height(None, "height")), "height: is required");
    }

    #[test]
    fn the_field_is_named_for_programs_too() {
        let status = Status::from(required::<u32>(None, "outpoint").unwrap_err());
        let violations = status.get_details_bad_request().unwrap().field_violations;
        let named: Vec<_> =
            violations.iter().map(|one| (one.field.as_str(), one.description.as_str())).collect();
        assert_eq!(named, [("outpoint", "is required")]);
    }

    #[test]
    fn a_page_is_never_longer_than_allowed() {
        assert_eq!((LIMITS.page(None), LIMITS.page(Some(3))), (Ok(4), Ok(3)));
        assert_eq!(GrpcLimits::default().page(None), Ok(1000));
        for limit in [0, 5] {
            assert_eq!(said(LIMITS.page(Some(limit))), format!("limit: must be 1 to 4, is {limit}"));
        }
    }
}
