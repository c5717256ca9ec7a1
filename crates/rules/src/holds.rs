//! Holds: who still needs the past.

use sapwood_types::Height;

/// A consumer's claim on history.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Hold {
    /// Its name, for example `persister`. A request that names the hold elsewhere may leave it out.
    #[cfg_attr(feature = "serde", serde(default))]
    pub name: String,
    /// Who set it.
    pub owner: String,
    /// The first height the owner still needs. `None`: the owner has not reported, and needs everything.
    pub keep_from: Option<Height>,
    /// When it ends by itself, as a Unix timestamp. `None`: it has no end.
    pub expires: Option<u64>,
    /// Why, for people.
    pub reason: String,
}

impl Hold {
    /// Whether it has ended at `now`, in seconds since 1970.
    pub fn is_expired(&self, now: u64) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    /// The greatest height up to which it lets things go; nothing if it lets nothing go.
    pub fn lets_go_up_to(&self) -> Option<Height> {
        self.keep_from?.0.checked_sub(1).map(Height)
    }
}

/// Up to which height deletion is safe, and who decided it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SafeHeight {
    /// What is due at or below this height may go. Nothing means nothing may.
    pub height: Option<Height>,
    /// The hold that decided it. Nothing if it is the chain's own height.
    pub decided_by: Option<Hold>,
    /// Holds that have expired and are no longer counted. They are shown, never dropped in silence.
    pub expired: Vec<String>,
}

impl SafeHeight {
    /// No holds: whatever is due at the current height may go.
    pub fn at(current: Height) -> Self {
        Self { height: Some(current), decided_by: None, expired: Vec::new() }
    }

    /// Whether something due at `height` may go.
    pub fn allows(&self, height: Height) -> bool {
        self.height.is_some_and(|safe| height <= safe)
    }
}

/// The lowest height that the chain and every hold that has not expired at `now` let go.
pub fn safe_height(current: Height, holds: &[Hold], now: u64) -> SafeHeight {
    let mut safe = SafeHeight::at(current);
    for hold in holds {
        if hold.is_expired(now) {
            safe.expired.push(hold.name.clone());
        } else if hold.lets_go_up_to() < safe.height {
            safe.height = hold.lets_go_up_to();
            safe.decided_by = Some(hold.clone());
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(name: &str, keep_from: Option<u32>) -> Hold {
        Hold {
            name: name.into(),
            owner: "test".into(),
            keep_from: keep_from.map(Height),
            expires: None,
            reason: "because".into(),
        }
    }

    #[test]
    fn the_lowest_hold_decides() {
        let holds = [hold("export", Some(90)), hold("persister", Some(96)), hold("snapshot", Some(200))];
        let safe = safe_height(Height(100), &holds, 0);
        assert_eq!(safe.height, Some(Height(89)));
        assert_eq!(safe.decided_by, Some(holds[0].clone()));
        assert!(safe.allows(Height(89)) && !safe.allows(Height(90)));
    }

    #[test]
    fn a_consumer_that_has_not_reported_blocks_everything() {
        let safe = safe_height(Height(100), &[hold("persister", None), hold("export", Some(5))], 0);
        assert_eq!(safe.height, None);
        assert_eq!(safe.decided_by.as_ref().map(|hold| hold.name.as_str()), Some("persister"));
        assert!(!safe.allows(Height(0)));
    }

    #[test]
    fn a_consumer_at_height_zero_is_not_an_absent_one() {
        let needs_all = safe_height(Height(100), &[hold("persister", Some(0))], 0);
        assert_eq!(needs_all.height, None);
        assert_eq!(safe_height(Height(100), &[], 0), SafeHeight::at(Height(100)));
    }

    #[test]
    fn an_expired_hold_lets_go_and_is_named() {
        let expiring = Hold { expires: Some(10), ..hold("operator", Some(1)) };
        assert_eq!(safe_height(Height(100), std::slice::from_ref(&expiring), 9).height, Some(Height(0)));
        let after = safe_height(Height(100), &[expiring], 10);
        assert_eq!(after.height, Some(Height(100)));
        assert_eq!(after.expired, ["operator"]);
    }
}
