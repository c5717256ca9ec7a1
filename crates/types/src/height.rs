//! Block heights, with arithmetic that cannot wrap.

use std::fmt;

/// The height of a block. Additions and subtractions saturate: a height that wrapped around would make everything due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Height(pub u32);

impl Height {
    /// The first block.
    pub const GENESIS: Height = Height(0);
    /// The greatest height there can be.
    pub const MAX: Height = Height(u32::MAX);

    /// The height `blocks` further on.
    #[must_use]
    pub fn plus(self, blocks: u32) -> Height {
        Height(self.0.saturating_add(blocks))
    }

    /// The height `blocks` before, or the first block.
    #[must_use]
    pub fn minus(self, blocks: u32) -> Height {
        Height(self.0.saturating_sub(blocks))
    }

    /// The next height.
    #[must_use]
    pub fn next(self) -> Height {
        self.plus(1)
    }

    /// How many blocks this height lies above `lower`; nothing if it lies below.
    #[must_use]
    pub fn above(self, lower: Height) -> u32 {
        self.0.saturating_sub(lower.0)
    }
}

impl From<Height> for u64 {
    fn from(height: Height) -> Self {
        height.0.into()
    }
}

impl fmt::Display for Height {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_instead_of_wrapping() {
        assert_eq!(Height::MAX.plus(1), Height::MAX);
        assert_eq!(Height(3).minus(4), Height::GENESIS);
        assert_eq!(Height(3).above(Height(4)), 0);
    }
}
