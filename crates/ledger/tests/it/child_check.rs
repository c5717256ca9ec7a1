//! The check of children goes by their own records.

use sapwood_conformance::fixtures::{block_hash, burn, coin, context, mined_in};
use sapwood_ledger::{
    MineRequest, PruneRequest, RollbackMode,
    engine::{Engine, Table},
};
use sapwood_rules::{ChildEvidence, KeepReason, Verdict};
use sapwood_types::{FirstPage, Height, Scratch, Slot, Spender, Tx};

use crate::World;

/// Makes a parent in the engine say that its only output was spent at 2, behind the back of all that is in memory.
fn forge(world: &World, parent: &Tx, child: &Tx) {
    let mut page = None;
    let view = world.engine.view().unwrap();
    view.get_many(Table::Tx, &[&parent.txid.0], &mut |_, value| {
        let bytes = value.unwrap().unwrap();
        page = Some(FirstPage::new(bytes));
    })
    .unwrap();
    drop(view);
    let page = page.unwrap();
    let mut header = page.header().unwrap();
    header.slots[0] = Slot::spent(Spender::new(child.txid, 0), Some(Height(2)));
    let forged = page.with_slots(&header, &mut Scratch::default());
    world.engine.damage(Table::Tx, &parent.txid.0, Some(forged.bytes()));
}

/// What is known of mined heights follows every way in which a child stops being mined, or is mined elsewhere. The parent's memory is
/// forged, so only the check of the child itself stands between it and deletion.
#[tokio::test]
async fn forged_parent_is_retained_because_its_child_disagrees() {
    let to_1 = Some((Height(1), block_hash("1")));
    for (way, found) in [("rolled back", None), ("unset", None), ("mined elsewhere", Some(Height(3)))] {
        let world = World::new();
        let ledger = &world.ledger;
        let (parent, child) = (coin("parent", 1), burn("child", &[(&coin("parent", 1), 0)]));
        world.apply(1, vec![parent.clone()]).await;
        world.apply(2, vec![child.clone()]).await;
        match way {
            "unset" => {
                let request = MineRequest { block: mined_in(2, 2), unset: true };
                ledger.set_mined(vec![child.txid], request, Height(3)).await.unwrap();
            }
            _ => _ = ledger.roll_back(to_1, RollbackMode::Node).await.unwrap(),
        }
        let last = ledger.last_applied().await.unwrap().unwrap().height.0;
        for height in last + 1..=12 {
            let again = way == "mined elsewhere" && height == 3;
            world.apply(height, again.then(|| child.clone()).into_iter().collect()).await;
        }
        forge(&world, &parent, &child);
        let request = PruneRequest::records(vec![parent.txid], context(12, 5, &[]));
        let verdict = ledger.prune(request).await.unwrap().judged.remove(0).verdict;
        let disagrees = KeepReason::ChildDisagrees {
            child: child.txid,
            remembered: Some(Height(2)),
            found: ChildEvidence::Present { mined_at: found },
        };
        assert_eq!(verdict, Verdict::Kept(disagrees), "{way}");
    }
}
