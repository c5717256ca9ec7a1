//! Size classes.

/// The least size of a class, and what each is a multiple of: blocks of a file system, so that a region can be punched
/// out.
const GRAIN: u32 = 4096;
/// The greatest size of a class.
const GREATEST: u32 = 1 << 30;
/// How many classes there can be.
const MOST: usize = 32;

/// The sizes that regions have, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "Vec<u32>", into = "Vec<u32>"))]
pub struct Classes(Vec<u32>);

/// A list of classes cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClassError {
    /// There are none, or too many.
    #[error("{found} size classes: name 1 to {MOST}")]
    Count {
        /// How many there are.
        found: usize,
    },
    /// A class has a size that is not possible.
    #[error("a size class of {class} bytes: each has to be a multiple of {GRAIN} and at most {GREATEST}")]
    Size {
        /// The class.
        class: u32,
    },
    /// A class is not larger than the one before.
    #[error(
        "the size class of {class} bytes comes after one of {before}: list them in ascending order, each once"
    )]
    Order {
        /// The class.
        class: u32,
        /// The one before.
        before: u32,
    },
}

impl Default for Classes {
    /// 64 KiB to 4 MiB in powers of two.
    fn default() -> Self {
        Self((16..=22).map(|power| 1 << power).collect())
    }
}

impl TryFrom<Vec<u32>> for Classes {
    type Error = ClassError;

    fn try_from(classes: Vec<u32>) -> Result<Self, ClassError> {
        if classes.is_empty() || classes.len() > MOST {
            return Err(ClassError::Count { found: classes.len() });
        }
        if let Some(class) =
            classes.iter().find(|class| **class == 0 || **class % GRAIN != 0 || **class > GREATEST)
        {
            return Err(ClassError::Size { class: *class });
        }
        match classes.windows(2).find(|pair| pair[0] >= pair[1]) {
            Some(pair) => Err(ClassError::Order { class: pair[1], before: pair[0] }),
            None => Ok(Self(classes)),
        }
    }
}

impl From<Classes> for Vec<u32> {
    fn from(classes: Classes) -> Self {
        classes.0
    }
}

impl Classes {
    /// Returns the sizes in ascending order.
    pub fn sizes(&self) -> &[u32] {
        &self.0
    }

    /// Returns the largest class.
    pub fn largest(&self) -> u32 {
        self.0.last().copied().unwrap_or(GRAIN)
    }

    /// Returns the smallest class that holds `len` bytes. `None` if none does.
    pub fn fit(&self, len: u32) -> Option<u32> {
        self.0.get(self.0.partition_point(|class| *class < len)).copied()
    }

    /// Splits a payload into pieces and the class of each: full regions of the largest class, then the rest. An empty
    /// payload has no pieces.
    pub fn split(&self, len: u32) -> impl Iterator<Item = (u32, u32)> {
        let largest = self.largest();
        let rest = len % largest;
        let full = (0..len / largest).map(move |_| (largest, largest));
        full.chain(self.fit(rest).filter(|_| rest > 0).map(|class| (rest, class)))
    }

    /// Returns the bytes of the regions that a payload takes.
    pub fn space(&self, len: u32) -> u64 {
        self.split(len).map(|(_, class)| u64::from(class)).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn default_classes_are_those_of_the_documents() {
        let classes = Classes::default();
        assert_eq!(classes.sizes(), [64, 128, 256, 512, 1024, 2048, 4096].map(|kib: u32| kib << 10));
        assert_eq!(classes.fit(1), Some(64 << 10));
        assert_eq!(classes.fit(64 << 10), Some(64 << 10), "a class holds a blob of its own size");
        assert_eq!(classes.fit((64 << 10) + 1), Some(128 << 10));
        assert_eq!(classes.fit((4 << 20) + 1), None);
    }

    #[test]
    fn larger_payload_is_chained() {
        let pieces: Vec<_> = Classes::default().split((9 << 20) + 5).collect();
        assert_eq!(pieces, [(4 << 20, 4 << 20), (4 << 20, 4 << 20), ((1 << 20) + 5, 2 << 20)]);
        assert_eq!(Classes::default().split(8 << 20).count(), 2, "nothing is left over");
        assert_eq!(Classes::default().split(0).count(), 0);
    }

    #[test]
    fn impossible_classes_are_refused() {
        let refused = |classes: &[u32]| Classes::try_from(classes.to_vec()).unwrap_err();
        assert_eq!(refused(&[]), ClassError::Count { found: 0 });
        assert_eq!(refused(&[0]), ClassError::Size { class: 0 });
        assert_eq!(refused(&[5000]), ClassError::Size { class: 5000 });
        assert_eq!(refused(&[1 << 31]), ClassError::Size { class: 1 << 31 });
        assert_eq!(refused(&[8192, 4096]), ClassError::Order { class: 4096, before: 8192 });
        assert_eq!(refused(&[4096, 4096]), ClassError::Order { class: 4096, before: 4096 });
    }

    proptest! {
        #[test]
        fn pieces_hold_the_payload_in_the_smallest_classes(len in 0_u32..40 << 20) {
            let classes = Classes::default();
            let pieces: Vec<_> = classes.split(len).collect();
            prop_assert_eq!(pieces.iter().map(|(len, _)| len).sum::<u32>(), len);
            for (len, class) in pieces {
                prop_assert!(len > 0);
                prop_assert_eq!(classes.fit(len), Some(class));
            }
        }
    }
}
