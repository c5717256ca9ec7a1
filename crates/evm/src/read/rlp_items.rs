//! RLP lists one behind another.

use bytes::Bytes;

use super::{
    MAX_ITEM_BYTES,
    error::{Fault, ImportError},
    input::Input,
};

/// A file of RLP lists.
#[derive(Debug)]
pub(crate) struct RlpItems {
    input: Input,
    what: &'static str,
}

impl RlpItems {
    /// Reads lists, each of which is a `what`.
    pub(crate) fn new(input: Input, what: &'static str) -> Self {
        Self { input, what }
    }

    /// Returns the next list with its own header, and where it begins. `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, Bytes)>, ImportError> {
        let offset = self.input.offset();
        if self.input.at_end()? {
            return Ok(None);
        }
        let mut bytes = Vec::with_capacity(64);
        let length = self.header(offset, &mut bytes)?;
        if length > MAX_ITEM_BYTES {
            let fault = Fault::TooLong { what: self.what, length, limit: MAX_ITEM_BYTES };
            return Err(self.input.error(offset, fault));
        }
        self.input.read(self.what, length, &mut bytes)?;
        Ok(Some((offset, bytes.into())))
    }

    /// Reads the header of a list into `bytes` and returns the length of its payload.
    fn header(&mut self, offset: u64, bytes: &mut Vec<u8>) -> Result<u64, ImportError> {
        let [first] = self.input.array(self.what)?;
        bytes.push(first);
        let fail = |input: &Input, cause| input.error(offset, Fault::Rlp { what: self.what, cause });
        match first {
            0xc0..=0xf7 => Ok((first - 0xc0).into()),
            0xf8.. => {
                self.input.read(self.what, (first - 0xf7).into(), bytes)?;
                let digits = bytes.get(1..).unwrap_or_default();
                let length = digits.iter().fold(0, |length: u64, digit| length << 8 | u64::from(*digit));
                if digits.first() == Some(&0) || length < 56 {
                    return Err(fail(&self.input, alloy_rlp::Error::NonCanonicalSize));
                }
                Ok(length)
            }
            _ => Err(fail(&self.input, alloy_rlp::Error::UnexpectedString)),
        }
    }

    pub(crate) fn error(&self, offset: u64, fault: Fault) -> ImportError {
        self.input.error(offset, fault)
    }

    /// The position of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.input.offset()
    }
}
