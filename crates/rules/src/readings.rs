//! Where the documents this is built from disagree, and which reading is taken. Each one is a doc test.
//!
//! The examples build a parent of one output that was mined at 1000 and is spent by a child:
//!
//! ```
//! # use sapwood_rules::readings::example::*;
//! let parent = parent_with_child(Some(1001));
//! assert!(judge_at(1288, &parent, &[]).to_string().contains("stable at 1289"));
//! assert!(judge_at(1289, &parent, &[]).may_go());
//! ```
//!
//! # The safe height is the lower of the chain and the persister
//! One document adds the retention to the persisted height, the other does not. Read: `min(current, persisted)`. As a record
//! is due `retention` blocks after its own block at the earliest, its own block is then persisted too.
//! ```
//! # use sapwood_rules::readings::example::*;
//! let parent = parent_with_child(Some(1001)); // due at 1289
//! let persister = |persisted: u32| [hold("persister", Some(persisted + 1))];
//! assert!(!judge_at(2000, &parent, &persister(1288)).may_go());
//! assert!(judge_at(2000, &parent, &persister(1289)).may_go());
//! ```
//!
//! # "Nothing persisted yet" and "no persister" are different things
//! One number, 0, stood for both. Read: an `Option`; registered without a report blocks, not registered does not.
//! ```
//! # use sapwood_rules::readings::example::*;
//! let parent = parent_with_child(Some(1001));
//! assert!(!judge_at(2000, &parent, &[hold("persister", None)]).may_go());
//! assert!(!judge_at(2000, &parent, &[hold("persister", Some(0))]).may_go());
//! assert!(judge_at(2000, &parent, &[]).may_go());
//! ```
//!
//! # Preservation is an extra layer; verification is the guarantee
//! One document calls preserving parents critical, the other removed it. Read: both. A preserved record stays whatever else
//! is true, and an unmined child keeps its parent without any preservation.
//! ```
//! # use sapwood_rules::readings::example::*;
//! let mut parent = parent_with_child(Some(1001));
//! parent.head.preserve_until = Some(Height(5000));
//! assert!(!judge_at(2000, &parent, &[]).may_go());
//! assert!(!judge_at(u32::MAX, &parent_with_child(None), &[]).may_go());
//! ```
//!
//! # Children are verified by default
//! One document verifies always, the other has it off by default. Read: on. The rule itself needs every child to be mined
//! and deep, and the check against the children's own records runs on top.
//! ```
//! # use sapwood_rules::readings::example::*;
//! # use sapwood_rules::{ChildEvidence, verdict::check_child};
//! let parent = parent_with_child(Some(1001));
//! let check = |found| check_child(&parent.slots[0], |_| found, &context(1289, &[]));
//! assert!(check(ChildEvidence::Present { mined_at: Some(Height(1001)) }).is_ok());
//! assert!(check(ChildEvidence::Present { mined_at: None }).is_err());
//! ```
//!
//! # A missing child is unsafe, unless it is known to have been pruned after it was stable
//! Children do get pruned, so "missing" alone cannot mean unsafe. The parent's slot is what knows.
//! ```
//! # use sapwood_rules::readings::example::*;
//! # use sapwood_rules::{ChildEvidence, verdict::check_child};
//! let check = |parent: &TxRecord, at| {
//!     check_child(&parent.slots[0], |_| ChildEvidence::Absent, &context(at, &[]))
//! };
//! assert!(check(&parent_with_child(Some(1001)), 1289).is_ok());
//! assert!(check(&parent_with_child(Some(1001)), 1288).is_err());
//! assert!(check(&parent_with_child(None), 1289).is_err());
//! ```
//!
//! # The safety window is the retention
//! One document fixes it at 288. Read: whatever the retention is.
//! ```
//! # use sapwood_rules::{Policy, lifecycle::is_stable};
//! # use sapwood_types::Height;
//! assert!(!is_stable(Height(1001), Height(1010), 10));
//! assert!(is_stable(Height(1001), Height(1011), 10));
//! assert_eq!(Policy::with_retention(10).reorg_window, 10);
//! ```
//!
//! # Ten days are 1,440 blocks
//! One document says 14,400. There are 144 blocks a day.
//! ```
//! # use sapwood_rules::Policy;
//! assert_eq!(Policy::default().parent_preservation, 1440);
//! ```
//!
//! # A reassignment never expires
//! One document says no more than that. Read: the note that an output was given to another owner lasts as long as the store, so
//! its record is never due, whatever was spent and however long ago. That goes for the loser of a double spend too.
//! ```
//! # use sapwood_rules::readings::example::*;
//! # use sapwood_rules::settled_at;
//! let mut parent = parent_with_child(Some(1200));
//! assert!(judge_at(1488, &parent, &[]).may_go());
//! reassign(&mut parent, 1100);
//! assert_eq!(settled_at(parent.view()), None);
//! let verdict = judge_at(u32::MAX, &parent, &[]).to_string();
//! assert!(verdict.contains("output 0 was reassigned at height 1100"));
//! parent.head.blocks.clear();
//! parent.head.conflicting_since = Some(Height(1150));
//! parent.slots[0] = Slot::Unspent;
//! assert_eq!(judge_at(u32::MAX, &parent, &[]).to_string(), verdict);
//! ```
//!
//! # Maturity of a coinbase does not make it due
//! One document says it sets the height of deletion. A mature coinbase is a live coin.
//! ```
//! # use sapwood_rules::readings::example::*;
//! # use sapwood_rules::settled_at;
//! let mut coinbase = parent_with_child(Some(1001));
//! coinbase.head.coinbase = true;
//! coinbase.head.spending_height = Some(Height(1100));
//! coinbase.slots[0] = Slot::Unspent;
//! assert_eq!(settled_at(coinbase.view()), None);
//! assert!(!judge_at(u32::MAX, &coinbase, &[]).may_go());
//! ```

/// The parent that the examples are about.
pub mod example {
    pub use sapwood_types::{Height, Slot, TxRecord};
    use sapwood_types::{MinedIn, Output, Reassignment, Spender, Tx, TxHead, TxId, UtxoHash};

    use crate::{Hold, PruneContext, Verdict, judge, safe_height};

    /// A transaction mined at 1000 whose one output is spent by a child that is mined at that height, or not mined.
    pub fn parent_with_child(child_mined_at: Option<u32>) -> TxRecord {
        let head = TxHead {
            created_height: Height(1000),
            blocks: [MinedIn { block_id: 1, height: Height(1000), subtree: 0, on_longest_chain: true }]
                .into(),
            ..TxHead::default()
        };
        let tx = Tx {
            txid: TxId([1; 32]),
            version: 1,
            locktime: 0,
            fee: None,
            size: 100,
            coinbase: false,
            inputs: vec![],
            outputs: vec![Output::new(50, &b"script"[..])],
            raw: Default::default(),
        };
        let mut parent = TxRecord::new(&tx, head);
        let spender = Spender::new(TxId([2; 32]), 0);
        parent.slots[0] = Slot::spent(spender, child_mined_at.map(Height));
        parent
    }

    /// Notes that the output was given to another owner at that height.
    pub fn reassign(parent: &mut TxRecord, at: u32) {
        let (old, new) = (UtxoHash([3; 32]), UtxoHash([4; 32]));
        let (at, spendable_from) = (Height(at), Height(at).plus(10));
        parent.head.reassignments.push(Reassignment { vout: 0, old, new, at, spendable_from });
    }

    /// A hold that needs everything from a height on.
    pub fn hold(name: &str, keep_from: Option<u32>) -> Hold {
        Hold {
            name: name.into(),
            owner: "example".into(),
            keep_from: keep_from.map(Height),
            expires: None,
            reason: "example".into(),
        }
    }

    /// A retention of 288 and these holds.
    pub fn context(current: u32, holds: &[Hold]) -> PruneContext {
        let current = Height(current);
        PruneContext { current, safe: safe_height(current, holds, 0).height, retention: 288 }
    }

    /// The verdict at a height.
    pub fn judge_at(current: u32, record: &TxRecord, holds: &[Hold]) -> Verdict {
        judge(record.view(), &context(current, holds), None)
    }
}
