//! The parameters of a method.

use alloy_primitives::B256;
use serde_json::{Value, value::RawValue};

use super::error::RpcError;

/// Parameters by position.
#[derive(Debug)]
pub(crate) struct Args(Vec<Value>);

/// A block as a client names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockRef {
    Number(u64),
    Tag(Tag),
    Hash(B256),
}

/// A block by its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    Earliest,
    Latest,
    Safe,
    Finalized,
    Pending,
}

impl Args {
    pub(crate) fn parse(params: Option<&RawValue>) -> Result<Self, RpcError> {
        let Some(params) = params else { return Ok(Self(Vec::new())) };
        let args = serde_json::from_str(params.get());
        args.map(Self).map_err(|_| RpcError::invalid_params("the parameters are not a list"))
    }

    /// Fails if there are more than `most`.
    pub(crate) fn at_most(&self, most: usize) -> Result<&Self, RpcError> {
        if self.0.len() <= most {
            return Ok(self);
        }
        Err(RpcError::invalid_params(format!("too many arguments, want at most {most}")))
    }

    /// Returns a parameter. `None` if it is absent or `null`.
    pub(crate) fn optional(&self, index: usize) -> Option<&Value> {
        self.0.get(index).filter(|value| !value.is_null())
    }

    /// Returns a parameter that has to be there.
    pub(crate) fn required(&self, index: usize) -> Result<&Value, RpcError> {
        self.optional(index)
            .ok_or_else(|| RpcError::invalid_params(format!("missing value for required argument {index}")))
    }

    /// Returns a parameter that `read` makes sense of.
    pub(crate) fn read<T>(
        &self,
        index: usize,
        read: impl FnOnce(&Value) -> Result<T, String>,
    ) -> Result<T, RpcError> {
        let fail = |problem| RpcError::invalid_params(format!("invalid argument {index}: {problem}"));
        self.required(index).and_then(|value| read(value).map_err(fail))
    }

    pub(crate) fn hash(&self, index: usize) -> Result<B256, RpcError> {
        self.read(index, hash)
    }

    pub(crate) fn quantity(&self, index: usize) -> Result<u64, RpcError> {
        self.read(index, quantity)
    }

    pub(crate) fn flag(&self, index: usize) -> Result<bool, RpcError> {
        self.read(index, |value| value.as_bool().ok_or_else(|| "not a boolean".to_owned()))
    }

    /// A block by number or tag.
    pub(crate) fn block(&self, index: usize) -> Result<BlockRef, RpcError> {
        self.read(index, block)
    }

    /// A block by hash.
    pub(crate) fn block_hash(&self, index: usize) -> Result<BlockRef, RpcError> {
        self.hash(index).map(BlockRef::Hash)
    }

    /// A block by number, tag or hash, also as an object (EIP-1898).
    pub(crate) fn any_block(&self, index: usize) -> Result<BlockRef, RpcError> {
        self.read(index, |value| match value {
            Value::String(text) if text.len() == 66 => hash(value).map(BlockRef::Hash),
            Value::Object(object) => match (object.get("blockHash"), object.get("blockNumber")) {
                (Some(value), None) => hash(value).map(BlockRef::Hash),
                (None, Some(value)) => block(value),
                _ => Err("either blockHash or blockNumber is needed, and not both".to_owned()),
            },
            value => block(value),
        })
    }
}

/// A number as Ethereum writes it: `0x` and hexadecimal digits without leading zeros.
pub(crate) fn quantity(value: &Value) -> Result<u64, String> {
    let digits = hex_digits(value)?;
    match digits {
        "" => Err("hex string \"0x\"".to_owned()),
        "0" => Ok(0),
        digits if digits.starts_with('0') => Err("hex number with leading zero digits".to_owned()),
        digits if digits.len() > 16 => Err("hex number > 64 bits".to_owned()),
        digits => u64::from_str_radix(digits, 16).map_err(|_| "invalid hex string".to_owned()),
    }
}

/// A hash: `0x` and 64 hexadecimal digits.
pub(crate) fn hash(value: &Value) -> Result<B256, String> {
    fixed(value).map(B256::new)
}

/// `N` bytes: `0x` and two hexadecimal digits for each.
pub(crate) fn fixed<const N: usize>(value: &Value) -> Result<[u8; N], String> {
    let digits = hex_digits(value)?;
    if digits.len() != 2 * N {
        return Err(format!("hex string has length {}, want {}", digits.len(), 2 * N));
    }
    let mut bytes = [0; N];
    match alloy_primitives::hex::decode_to_slice(digits, &mut bytes) {
        Ok(()) => Ok(bytes),
        Err(_) => Err("invalid hex string".to_owned()),
    }
}

/// The digits after `0x`. A sign is no digit, though `from_str_radix` takes one.
fn hex_digits(value: &Value) -> Result<&str, String> {
    let text = value.as_str().ok_or("not a hex string")?;
    let digits = text.strip_prefix("0x").ok_or("hex string without 0x prefix")?;
    match digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        true => Ok(digits),
        false => Err("invalid hex string".to_owned()),
    }
}

/// A block by number or tag.
pub(crate) fn block(value: &Value) -> Result<BlockRef, String> {
    Ok(BlockRef::Tag(match value.as_str() {
        Some("earliest") => Tag::Earliest,
        Some("latest") => Tag::Latest,
        Some("safe") => Tag::Safe,
        Some("finalized") => Tag::Finalized,
        Some("pending") => Tag::Pending,
        _ => return quantity(value).map(BlockRef::Number),
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quantity_has_one_form() {
        assert_eq!(quantity(&json!("0x0")), Ok(0));
        assert_eq!(quantity(&json!("0xFf")), Ok(255));
        assert_eq!(quantity(&json!("0xffffffffffffffff")), Ok(u64::MAX));
        let refused =
            ["", "0", "2", "0x", "0x00", "0x01", "0x-1", "0x+1", "0xg", "0x10000000000000000", "0X1"];
        for text in refused {
            assert!(quantity(&json!(text)).is_err(), "{text:?}");
        }
        assert!(quantity(&json!(1)).is_err());
    }

    #[test]
    fn hash_has_64_digits() {
        let text = format!("0x{}", "aB".repeat(32));
        assert_eq!(hash(&json!(text)), Ok(B256::repeat_byte(0xab)));
        assert!(hash(&json!(text[2..])).is_err());
        assert!(hash(&json!(text[..65])).is_err());
        assert!(hash(&json!(text.replace('a', "g"))).is_err());
    }

    #[test]
    fn block_is_named_in_any_way() {
        let args = |value: Value| Args(vec![value]).any_block(0);
        let text = format!("0x{}", "12".repeat(32));
        let by_hash = Ok(BlockRef::Hash(B256::repeat_byte(0x12)));
        assert_eq!(args(json!(text)), by_hash);
        assert_eq!(args(json!({ "blockHash": text, "requireCanonical": true })), by_hash);
        assert_eq!(args(json!({ "blockNumber": "0x5" })), Ok(BlockRef::Number(5)));
        assert_eq!(args(json!("finalized")), Ok(BlockRef::Tag(Tag::Finalized)));
        assert!(args(json!({ "blockNumber": "0x5", "blockHash": text })).is_err());
        assert!(args(json!("newest")).is_err());
        assert!(args(json!(null)).is_err());
    }
}
