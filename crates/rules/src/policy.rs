//! The numbers an operator chooses.

/// Blocks a record is kept after the last thing that happened to it: about two days of Bitcoin.
pub const DEFAULT_RETENTION: u32 = 288;
/// Blocks before a coinbase's outputs may be spent.
pub const DEFAULT_COINBASE_MATURITY: u32 = 100;
/// Blocks before a reassigned output may be spent, so that a wrong reassignment can still be noticed.
pub const REASSIGNMENT_DELAY: u32 = 1000;
/// Blocks for which the parents of old unmined transactions are preserved: ten days of 144 blocks.
pub const DEFAULT_PARENT_PRESERVATION: u32 = 10 * 144;

/// How long things are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Blocks a record is kept after it settled. Nothing (0) keeps every record for ever.
    pub retention: u32,
    /// How deep a reorganisation can be taken back. Undo data is kept this far.
    pub reorg_window: u32,
    /// Blocks before a coinbase's outputs may be spent.
    pub coinbase_maturity: u32,
    /// Blocks before a reassigned output may be spent.
    pub reassignment_delay: u32,
    /// Blocks after which an unmined transaction counts as old, and its parents are preserved.
    pub unmined_retention: u32,
    /// Blocks for which those parents are preserved.
    pub parent_preservation: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self::with_retention(DEFAULT_RETENTION)
    }
}

/// Why a policy is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Records could go while a reorganisation still needs them.
    #[error(
        "a retention of {retention} blocks is less than the reorg window of {reorg_window}: a reorganisation inside the \
         window could need a record that is gone. Raise the retention to at least {reorg_window}, or lower the window"
    )]
    RetentionBelowWindow {
        /// The retention asked for.
        retention: u32,
        /// The window asked for.
        reorg_window: u32,
    },
    /// No reorganisation could be taken back at all.
    #[error("a reorg window of 0 blocks cannot take back even one block: set it to at least 1")]
    NoWindow,
}

impl Policy {
    /// The defaults that go with a retention: the window is the retention, and an unmined transaction is old after half.
    pub fn with_retention(retention: u32) -> Self {
        Policy {
            retention,
            reorg_window: retention.max(1),
            coinbase_maturity: DEFAULT_COINBASE_MATURITY,
            reassignment_delay: REASSIGNMENT_DELAY,
            unmined_retention: retention / 2,
            parent_preservation: DEFAULT_PARENT_PRESERVATION,
        }
    }

    /// Refuses what is unsafe.
    pub fn validate(&self) -> Result<(), PolicyError> {
        if self.reorg_window == 0 {
            return Err(PolicyError::NoWindow);
        }
        if self.retention != 0 && self.retention < self.reorg_window {
            return Err(PolicyError::RetentionBelowWindow {
                retention: self.retention,
                reorg_window: self.reorg_window,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_safe_for_any_retention() {
        for retention in [0, 1, 2, 288, u32::MAX] {
            assert_eq!(Policy::with_retention(retention).validate(), Ok(()), "retention {retention}");
        }
    }

    #[test]
    fn a_retention_below_the_window_is_refused() {
        let policy = Policy { reorg_window: 100, ..Policy::with_retention(99) };
        let refused = PolicyError::RetentionBelowWindow { retention: 99, reorg_window: 100 };
        assert_eq!(policy.validate(), Err(refused));
        assert_eq!(Policy { reorg_window: 0, ..policy }.validate(), Err(PolicyError::NoWindow));
    }
}
