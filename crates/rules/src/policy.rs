//! The numbers an operator chooses.

/// Blocks a record is kept after the last thing that happened to it: about two days of Bitcoin.
pub const DEFAULT_RETENTION: u32 = 288;
/// Blocks before a coinbase's outputs may be spent.
pub const DEFAULT_COINBASE_MATURITY: u32 = 100;
/// Blocks before a reassigned output may be spent, so that a wrong reassignment can still be noticed.
pub const REASSIGNMENT_DELAY: u32 = 1000;
/// Blocks for which the parents of old unmined transactions are preserved: ten days of 144 blocks.
pub const DEFAULT_PARENT_PRESERVATION: u32 = 10 * 144;

/// How long things are kept, in blocks.
///
/// What serde does not find is the default, and the unmined retention follows the retention: see [`PolicyChange::apply`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(from = "PolicyChange"))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Policy {
    /// Blocks a record is kept after it settled. 0: records are never pruned.
    pub retention: u32,
    /// How many blocks can be rolled back. At most the retention, unless that is 0.
    #[cfg_attr(feature = "schema", schema(minimum = 1))]
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

impl From<PolicyChange> for Policy {
    fn from(change: PolicyChange) -> Self {
        change.apply(&Policy::default())
    }
}

/// One number of a [`Policy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum PolicyField {
    /// [`Policy::retention`].
    Retention,
    /// [`Policy::reorg_window`].
    ReorgWindow,
    /// [`Policy::coinbase_maturity`].
    CoinbaseMaturity,
    /// [`Policy::reassignment_delay`].
    ReassignmentDelay,
    /// [`Policy::unmined_retention`].
    UnminedRetention,
    /// [`Policy::parent_preservation`].
    ParentPreservation,
}

impl PolicyField {
    /// All fields, in the order in which they are stored.
    pub const ALL: [PolicyField; 6] = [
        PolicyField::Retention,
        PolicyField::ReorgWindow,
        PolicyField::CoinbaseMaturity,
        PolicyField::ReassignmentDelay,
        PolicyField::UnminedRetention,
        PolicyField::ParentPreservation,
    ];

    /// The name used in interfaces and in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            PolicyField::Retention => "retention",
            PolicyField::ReorgWindow => "reorg_window",
            PolicyField::CoinbaseMaturity => "coinbase_maturity",
            PolicyField::ReassignmentDelay => "reassignment_delay",
            PolicyField::UnminedRetention => "unmined_retention",
            PolicyField::ParentPreservation => "parent_preservation",
        }
    }

    /// Its value in a policy.
    pub fn of(self, policy: &Policy) -> u32 {
        match self {
            PolicyField::Retention => policy.retention,
            PolicyField::ReorgWindow => policy.reorg_window,
            PolicyField::CoinbaseMaturity => policy.coinbase_maturity,
            PolicyField::ReassignmentDelay => policy.reassignment_delay,
            PolicyField::UnminedRetention => policy.unmined_retention,
            PolicyField::ParentPreservation => policy.parent_preservation,
        }
    }

    /// Sets its value in a policy.
    pub fn set(self, policy: &mut Policy, value: u32) {
        *match self {
            PolicyField::Retention => &mut policy.retention,
            PolicyField::ReorgWindow => &mut policy.reorg_window,
            PolicyField::CoinbaseMaturity => &mut policy.coinbase_maturity,
            PolicyField::ReassignmentDelay => &mut policy.reassignment_delay,
            PolicyField::UnminedRetention => &mut policy.unmined_retention,
            PolicyField::ParentPreservation => &mut policy.parent_preservation,
        } = value;
    }

    /// Whether a change of this number keeps less than before, so that something can go that was promised to stay.
    pub fn shortens(self, from: u32, to: u32) -> bool {
        match self {
            // 0 keeps every record.
            PolicyField::Retention => to != 0 && (from == 0 || to < from),
            PolicyField::ReorgWindow | PolicyField::ParentPreservation => to < from,
            PolicyField::CoinbaseMaturity
            | PolicyField::ReassignmentDelay
            | PolicyField::UnminedRetention => false,
        }
    }
}

/// A change of some numbers of a policy. What is `None` stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PolicyChange {
    /// Blocks a record is kept after it settled. 0: records are never pruned.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub retention: Option<u32>,
    /// How many blocks can be rolled back. At most the retention, unless that is 0.
    #[cfg_attr(feature = "schema", schema(minimum = 1))]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub reorg_window: Option<u32>,
    /// Blocks before a coinbase's outputs may be spent.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub coinbase_maturity: Option<u32>,
    /// Blocks before a reassigned output may be spent.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub reassignment_delay: Option<u32>,
    /// Blocks after which an unmined transaction counts as old. `None` while the old one is half of the retention: it follows the
    /// retention.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub unmined_retention: Option<u32>,
    /// Blocks for which the parents of old unmined transactions are preserved.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub parent_preservation: Option<u32>,
}

impl PolicyChange {
    /// The change that sets every number.
    pub fn to(policy: Policy) -> Self {
        Self {
            retention: Some(policy.retention),
            reorg_window: Some(policy.reorg_window),
            coinbase_maturity: Some(policy.coinbase_maturity),
            reassignment_delay: Some(policy.reassignment_delay),
            unmined_retention: Some(policy.unmined_retention),
            parent_preservation: Some(policy.parent_preservation),
        }
    }

    /// The change that makes a policy of the default one. What follows another number is left out.
    pub fn from_default(policy: Policy) -> Self {
        let unmined_retention = (!policy.unmined_follows()).then_some(policy.unmined_retention);
        Self { unmined_retention, ..Self::to(policy) }
    }

    /// Whether it sets no number.
    pub fn is_empty(&self) -> bool {
        PolicyField::ALL.iter().all(|field| self.of(*field).is_none())
    }

    /// What it sets a number to. `None` if it leaves it alone.
    pub fn of(&self, field: PolicyField) -> Option<u32> {
        match field {
            PolicyField::Retention => self.retention,
            PolicyField::ReorgWindow => self.reorg_window,
            PolicyField::CoinbaseMaturity => self.coinbase_maturity,
            PolicyField::ReassignmentDelay => self.reassignment_delay,
            PolicyField::UnminedRetention => self.unmined_retention,
            PolicyField::ParentPreservation => self.parent_preservation,
        }
    }

    /// The policy after the change. It is not checked.
    pub fn apply(&self, before: &Policy) -> Policy {
        let mut policy = *before;
        for field in PolicyField::ALL {
            if let Some(value) = self.of(field) {
                field.set(&mut policy, value);
            }
        }
        if self.unmined_retention.is_none() && before.unmined_follows() {
            policy.unmined_retention = policy.retention / 2;
        }
        policy
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
    /// The chain has rules of its own for when a coinbase can be spent.
    #[error(
        "a coinbase maturity of {found} blocks is not that of the chain: blocks would be refused or accepted against its rules. \
         Set it to {required}"
    )]
    WrongMaturity {
        /// The maturity asked for.
        found: u32,
        /// That of the chain.
        required: u32,
    },
}

impl PolicyError {
    /// The number to change.
    pub fn field(&self) -> PolicyField {
        match self {
            PolicyError::RetentionBelowWindow { .. } => PolicyField::Retention,
            PolicyError::NoWindow => PolicyField::ReorgWindow,
            PolicyError::WrongMaturity { .. } => PolicyField::CoinbaseMaturity,
        }
    }
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

    /// Whether an unmined transaction is old after half of the retention, as it is unless set.
    pub fn unmined_follows(&self) -> bool {
        self.unmined_retention == self.retention / 2
    }

    /// Refuses what is unsafe, and a coinbase maturity that is not the chain's. `None` where the chain takes any.
    pub fn validate_for(&self, maturity: Option<u32>) -> Result<(), PolicyError> {
        self.validate()?;
        match maturity {
            Some(required) if required != self.coinbase_maturity => {
                Err(PolicyError::WrongMaturity { found: self.coinbase_maturity, required })
            }
            _ => Ok(()),
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
    fn a_change_leaves_alone_what_it_does_not_name_and_the_unmined_retention_follows() {
        let change = PolicyChange { retention: Some(1000), ..PolicyChange::default() };
        let changed = change.apply(&Policy::default());
        assert_eq!(changed, Policy { retention: 1000, unmined_retention: 500, ..Policy::default() });
        let set = Policy { unmined_retention: 7, ..Policy::default() };
        assert_eq!(change.apply(&set).unmined_retention, 7, "it was set by itself");
        let both = PolicyChange { unmined_retention: Some(9), ..change };
        assert_eq!(both.apply(&Policy::default()).unmined_retention, 9);
        assert_eq!(PolicyChange::to(set).apply(&changed), set);
    }

    #[test]
    fn a_policy_is_written_as_a_change_of_the_default_without_what_follows() {
        for retention in [0, 1, 289, 1000] {
            let policy = Policy { retention, unmined_retention: retention / 2, ..Policy::default() };
            let change = PolicyChange::from_default(policy);
            assert_eq!((Policy::from(change), change.unmined_retention), (policy, None));
        }
        let set = Policy { unmined_retention: 7, ..Policy::default() };
        let change = PolicyChange::from_default(set);
        assert_eq!((Policy::from(change), change.unmined_retention), (set, Some(7)));
    }

    #[cfg(feature = "serde")]
    #[test]
    fn a_policy_is_read_with_defaults_and_an_unknown_number_is_refused() {
        let read = |text: &str| serde_json::from_str::<Policy>(text);
        let thousand = Policy { retention: 1000, unmined_retention: 500, ..Policy::default() };
        assert_eq!(read(r#"{"retention": 1000}"#).unwrap(), thousand);
        let written = serde_json::to_string(&thousand).unwrap();
        assert_eq!(read(&written).unwrap(), thousand);
        assert!(read(r#"{"retenton": 1000}"#).unwrap_err().to_string().contains("retenton"));
    }

    #[test]
    fn less_is_shorter_and_for_ever_is_longest() {
        use PolicyField::*;
        assert!(Retention.shortens(288, 287) && Retention.shortens(0, 1_000_000));
        assert!(!Retention.shortens(288, 0) && !Retention.shortens(288, 289) && !Retention.shortens(0, 0));
        assert!(ReorgWindow.shortens(2, 1) && ParentPreservation.shortens(2, 1));
        assert!(!CoinbaseMaturity.shortens(2, 1) && !UnminedRetention.shortens(2, 1));
    }

    #[test]
    fn m13_a_maturity_that_is_not_the_chains_is_refused() {
        for wrong in [0, 99, u32::MAX] {
            let policy = Policy { coinbase_maturity: wrong, ..Policy::default() };
            let refused = PolicyError::WrongMaturity { found: wrong, required: 100 };
            assert_eq!(policy.validate_for(Some(100)), Err(refused));
            assert_eq!(policy.validate_for(None), Ok(()));
        }
        assert_eq!(Policy::default().validate_for(Some(100)), Ok(()));
    }

    #[test]
    fn a_retention_below_the_window_is_refused() {
        let policy = Policy { reorg_window: 100, ..Policy::with_retention(99) };
        let refused = PolicyError::RetentionBelowWindow { retention: 99, reorg_window: 100 };
        assert_eq!(policy.validate(), Err(refused));
        assert_eq!(Policy { reorg_window: 0, ..policy }.validate(), Err(PolicyError::NoWindow));
    }
}
