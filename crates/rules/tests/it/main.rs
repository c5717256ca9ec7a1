//! The timelines of the safe-deletion document, told by the rules alone.

use sapwood_rules::{KeepReason, Verdict, readings::example::*};
use sapwood_types::{Spender, TxId};

#[test]
fn child_mined_at_1001_keeps_the_parent_at_1288_and_lets_it_go_at_1289() {
    let parent = parent_with_child(Some(1001));
    let reason = KeepReason::ChildUnstable {
        child: Some(TxId([2; 32])),
        mined_at: Height(1001),
        stable_at: Height(1289),
    };
    assert_eq!(judge_at(1288, &parent, &[]), Verdict::Kept(reason));
    assert_eq!(judge_at(1289, &parent, &[]), Verdict::MayGo { due_at: Height(1289) });
}

#[test]
fn child_mined_late_at_1500_lets_the_parent_go_at_1788() {
    let parent = parent_with_child(Some(1500));
    assert!(!judge_at(1787, &parent, &[]).may_go());
    assert!(judge_at(1788, &parent, &[]).may_go());
}

#[test]
fn child_never_mined_keeps_its_parent_for_ever() {
    let reason = KeepReason::ChildUnmined { child: Some(TxId([2; 32])) };
    assert_eq!(judge_at(u32::MAX, &parent_with_child(None), &[]), Verdict::Kept(reason));
}

#[test]
fn child_orphaned_at_1200_and_mined_again_at_1300_lets_the_parent_go_at_1588() {
    assert!(!judge_at(1288, &parent_with_child(None), &[]).may_go());
    let again = parent_with_child(Some(1300));
    assert!(!judge_at(1587, &again, &[]).may_go());
    assert!(judge_at(1588, &again, &[]).may_go());
}

#[test]
fn of_two_children_the_later_one_decides_even_if_the_first_is_long_forgotten() {
    let mut parent = parent_with_child(Some(1100));
    parent.head.output_count = 2;
    parent.slots =
        [Slot::Settled { child_mined_at: Height(1100) }, Slot::spent(Spender::new(TxId([3; 32]), 0), None)]
            .into();
    assert_eq!(
        judge_at(9000, &parent, &[]),
        Verdict::Kept(KeepReason::ChildUnmined { child: Some(TxId([3; 32])) })
    );
    parent.slots[1] = Slot::spent(Spender::new(TxId([3; 32]), 0), Some(Height(9000)));
    assert!(!judge_at(9287, &parent, &[]).may_go());
    assert!(judge_at(9288, &parent, &[]).may_go());
}
