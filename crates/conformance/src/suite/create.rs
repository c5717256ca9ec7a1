//! Storing transactions.

use bytes::Bytes;
use sapwood_ledger::{Counts, CreateError, CreateRequest, InputRefusal};
use sapwood_rules::{SpendRefusal, SpendStatus};
use sapwood_types::{
    External, Height, Input, OutPoint, Output, PrevOutput, Slot, Tx, TxHead, TxRecord, UtxoHash,
};

use super::{StoreFactory, Subject, failures};
use crate::fixtures::*;

/// A stored transaction comes back whole, with everything it was stored with.
pub async fn what_is_stored_comes_back_whole(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 1);
    s.add_mined(&parent, 3).await;
    let mut tx = child("rich", &[(&parent, 0)], 1);
    tx.fee = None;
    tx.locktime = u32::MAX;
    tx.version = 0x8000_0001;
    tx.inputs[0].previous = Some(PrevOutput { value: 1_000, script: Some(script("parent")) });
    tx.outputs.push(Output {
        extra: Bytes::from(vec![7; 5_000]),
        credential: Some(credential("rich")),
        ..Output::new(u64::MAX, Bytes::new())
    });
    tx.outputs.push(data_output());
    let request = CreateRequest {
        locked: true,
        external: Some(External::Tx),
        created_at: 1_234_567,
        ..CreateRequest::unmined(tx.clone())
    };
    s.try_add(request, 9).await.expect("create");

    let head = TxHead {
        locked: true,
        external: Some(External::Tx),
        created_height: Height(9),
        created_at: 1_234_567,
        first_unmined: Some(Height(9)),
        ..TxHead::default()
    };
    let expected = TxRecord::new(&tx, head);
    assert_eq!(expected.slots, [Slot::Unspent, Slot::Unspent, Slot::Unspendable], "the case itself");
    assert_eq!(s.record(&tx).await, expected);
    s.sound().await;
}

/// Records come in the order asked for, absent ones as nothing, repeated ones repeatedly.
pub async fn get_many_answers_in_the_order_asked_for(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let (a, b, absent) = (coin("a", 1), coin("b", 2), coin("absent", 1));
    s.add(&a, 1).await;
    s.add_mined(&b, 2).await;
    let found = s.records(&[&b, &absent, &a, &b]).await;
    let found: Vec<_> = found.into_iter().map(|record| record.map(|record| record.txid)).collect();
    assert_eq!(found, [Some(b.txid), None, Some(a.txid), Some(b.txid)]);
    assert_eq!(s.get_many(vec![]).await, Ok(vec![]), "nothing asked, nothing answered");
    assert_eq!(
        s.counts().await,
        Ok(Counts { records: 2, unspent: 3, unmined: 1, spent: 0, ..Counts::default() })
    );
    s.sound().await;
}

/// A second create of the same id is refused and changes nothing, whatever it says.
pub async fn a_duplicate_is_refused(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let tx = coin("tx", 2);
    s.add(&tx, 4).await;
    let before = s.digest().await;
    let exists = Err(CreateError::Exists { txid: tx.txid });
    assert_eq!(s.try_add(CreateRequest::unmined(tx.clone()), 4).await, exists);
    assert_eq!(s.try_add(CreateRequest::mined(tx.clone(), 1, Height(5)), 5).await, exists, "nor as mined");
    let other_content = Tx { outputs: coin("other", 3).outputs, ..tx.clone() };
    assert_eq!(s.try_add(CreateRequest::unmined(other_content), 5).await, exists, "nor with other content");
    s.assert_unchanged(before, "a duplicate create").await;
    s.sound().await;
}

/// In one batch, too, the second of two equal transactions is refused; its neighbours are written.
pub async fn a_duplicate_in_one_batch_is_refused_alone(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let (a, b) = (coin("a", 1), coin("b", 1));
    let batch = [&a, &a, &b].map(|tx| CreateRequest::unmined(tx.clone())).to_vec();
    let failed = failures(s.create(batch, Height(1)).await, 3);
    assert_eq!(failed, [(1, CreateError::Exists { txid: a.txid })]);
    assert!(s.has(&a).await && s.has(&b).await, "the other two items are written");
    s.sound().await;
}

/// A transaction without outputs is refused.
pub async fn no_outputs_is_refused(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let before = s.digest().await;
    let tx = coin("nothing", 0);
    let refused = Err(CreateError::NoOutputs { txid: tx.txid });
    assert_eq!(s.try_add(CreateRequest::unmined(tx), 1).await, refused);
    s.assert_unchanged(before, "a refused create").await;
    s.sound().await;
}

/// Storing a transaction spends its inputs in the same write.
pub async fn create_holds_the_inputs(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let (p, q) = (coin("p", 3), coin("q", 1));
    s.add_mined(&p, 1).await;
    s.add_mined(&q, 1).await;
    let unmined = child("unmined", &[(&q, 0), (&p, 2)], 1);
    s.add(&unmined, 2).await;
    let mined = child("mined", &[(&p, 0)], 1);
    s.add_mined(&mined, 3).await;
    assert_eq!(s.slot(&q, 0).await, spent(&unmined, 0, None));
    assert_eq!(
        s.record(&p).await.slots,
        [spent(&mined, 0, Some(3)), Slot::Unspent, spent(&unmined, 1, None),]
    );
    let counts =
        Counts { records: 4, unspent: 3, unmined: 1, spent: 3, child_unmined: 1, ..Counts::default() };
    assert_eq!(s.counts().await, Ok(counts), "one of p's, and one of each child's");
    s.sound().await;
}

/// Every input that cannot be spent is named with its own reason, in order, and none of the good ones is held.
pub async fn every_bad_input_is_named(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let good = coin("good", 1);
    let (taken, frozen, locked, loser) =
        (coin("taken", 1), coin("frozen", 1), coin("locked", 1), coin("loser", 1));
    let (young, absent) = (coinbase("young", 1), coin("absent", 1));
    let with_data = Tx { outputs: vec![data_output()], ..coin("data", 0) };
    for tx in [&good, &taken, &frozen, &young, &with_data] {
        s.add_mined(tx, 10).await;
    }
    s.add(&locked, 10).await;
    s.add_loser(&loser, 10).await;
    let rival = child("rival", &[(&taken, 0)], 1);
    s.add(&rival, 10).await;
    s.freeze(vec![op(&frozen, 0)]).await.expect("freeze");
    s.set_locked(vec![locked.txid], true).await.expect("lock");
    let before = s.digest().await;

    let greedy = child(
        "greedy",
        &[
            (&good, 0),
            (&absent, 0),
            (&taken, 0),
            (&frozen, 0),
            (&good, 1),
            (&locked, 0),
            (&loser, 0),
            (&young, 0),
            (&with_data, 0),
            (&good, 0),
        ],
        1,
    );
    let refusals = [
        (1, SpendRefusal::NotFound),
        (2, SpendRefusal::Spent { by: by(&rival, 0), mined_at: None }),
        (3, SpendRefusal::Frozen),
        (4, SpendRefusal::NoSuchOutput { outputs: 1 }),
        (5, SpendRefusal::Locked),
        (6, SpendRefusal::Conflicting { since: Height(10) }),
        (7, SpendRefusal::Immature { spendable_from: Height(13), height: Height(12) }),
        (8, SpendRefusal::Unspendable),
        (9, SpendRefusal::Spent { by: by(&greedy, 0), mined_at: None }),
    ];
    let inputs = refusals.map(|(vin, refusal)| InputRefusal {
        vin,
        outpoint: greedy.inputs[vin as usize].outpoint,
        refusal,
    });
    let refused = CreateError::Inputs { txid: greedy.txid, inputs: inputs.to_vec() };
    assert_eq!(s.try_add(CreateRequest::unmined(greedy.clone()), 12).await, Err(refused));
    s.assert_unchanged(before, "a create with bad inputs").await;
    s.sound().await;
}

/// A batch may build on itself, in order: a child after its parent, but not before.
pub async fn a_batch_may_build_on_itself_in_order(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 2);
    let early = child("early", &[(&parent, 0)], 1);
    let late = child("late", &[(&parent, 1)], 1);
    let grandchild = child("grandchild", &[(&late, 0)], 1);
    let batch = [&early, &parent, &late, &grandchild].map(|tx| CreateRequest::unmined(tx.clone())).to_vec();
    let failed = failures(s.create(batch, Height(1)).await, 4);
    let refusal = InputRefusal { vin: 0, outpoint: op(&parent, 0), refusal: SpendRefusal::NotFound };
    assert_eq!(failed, [(0, CreateError::Inputs { txid: early.txid, inputs: vec![refusal] })]);
    assert_eq!(s.record(&parent).await.slots, [Slot::Unspent, spent(&late, 0, None)]);
    assert_eq!(s.slot(&late, 0).await, spent(&grandchild, 0, None));
    assert!(!s.has(&early).await, "what failed is not there");
    s.sound().await;
}

/// Of two rivals in one batch the first wins, and the second is told by whom it lost.
pub async fn of_two_rivals_in_one_batch_the_first_wins(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 1);
    s.add_mined(&parent, 1).await;
    let (first, second) = (child("first", &[(&parent, 0)], 1), child("second", &[(&parent, 0)], 1));
    let batch = [&first, &second].map(|tx| CreateRequest::unmined(tx.clone())).to_vec();
    let failed = failures(s.create(batch, Height(2)).await, 2);
    let refusal = SpendRefusal::Spent { by: by(&first, 0), mined_at: None };
    let inputs = vec![InputRefusal { vin: 0, outpoint: op(&parent, 0), refusal }];
    assert_eq!(failed, [(1, CreateError::Inputs { txid: second.txid, inputs })]);
    assert_eq!(s.slot(&parent, 0).await, spent(&first, 0, None));
    s.sound().await;
}

/// Mined on the longest chain: it is mined at its block's height, never unmined, and not locked although that was asked.
pub async fn created_as_mined(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let tx = coin("tx", 1);
    let request = CreateRequest { locked: true, ..CreateRequest::mined(tx.clone(), 4, Height(7)) };
    s.try_add(request, 9).await.expect("create");
    let head = TxHead {
        created_height: Height(7),
        blocks: [mined_in(4, 7)].into(),
        output_count: 1,
        ..TxHead::default()
    };
    assert_eq!(s.head(&tx).await, head);
    assert_eq!(s.old_unmined_all(Height::MAX).await, []);
    s.sound().await;
}

/// Mined off the longest chain: the block is noted, but the transaction is unmined since the call, and stays locked.
pub async fn created_on_a_fork_is_unmined(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 1);
    s.add_mined(&parent, 1).await;
    let tx = child("tx", &[(&parent, 0)], 1);
    let request =
        CreateRequest { mined_in: Some(forked_in(4, 7)), locked: true, ..CreateRequest::unmined(tx.clone()) };
    s.try_add(request, 9).await.expect("create");
    let head = s.head(&tx).await;
    assert_eq!(head.blocks.as_slice(), [forked_in(4, 7)]);
    assert_eq!(head.first_unmined, Some(Height(9)));
    assert!(head.locked, "only the longest chain unlocks it");
    assert_eq!(s.slot(&parent, 0).await, spent(&tx, 0, None), "a fork does not count as mined");
    assert_eq!(s.old_unmined_all(Height(9)).await, [tx.txid]);
    s.sound().await;
}

/// Stored as frozen: every output that could be spent is frozen, on every page.
pub async fn created_frozen(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let mut tx = coin("tx", 129);
    tx.outputs[1] = data_output();
    let request = CreateRequest { frozen: true, ..CreateRequest::mined(tx.clone(), 1, Height(1)) };
    s.try_add(request, 1).await.expect("create");
    let mut expected = vec![Slot::Frozen; 129];
    expected[1] = Slot::Unspendable;
    assert_eq!(s.record(&tx).await.slots, expected);
    let thief = child("thief", &[(&tx, 128)], 1);
    let inputs = vec![InputRefusal { vin: 0, outpoint: op(&tx, 128), refusal: SpendRefusal::Frozen }];
    let refused = CreateError::Inputs { txid: thief.txid, inputs };
    assert_eq!(s.try_add(CreateRequest::unmined(thief), 2).await, Err(refused));
    s.sound().await;
}

/// Stored as a loser: it holds nothing and checks nothing, its parents that are there list it, and nobody can spend from it.
pub async fn created_conflicting(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let (parent, absent) = (coin("parent", 2), coin("absent", 1));
    s.add_mined(&parent, 1).await;
    let winner = child("winner", &[(&parent, 0)], 1);
    s.add(&winner, 2).await;
    let loser = child("loser", &[(&parent, 0), (&parent, 1), (&absent, 0)], 1);
    s.add_loser(&loser, 4).await;
    let record = s.record(&loser).await;
    assert_eq!(record.head.conflicting_since, Some(Height(4)));
    assert_eq!(record.head.first_unmined, Some(Height(4)));
    let parent_now = s.record(&parent).await;
    assert_eq!(parent_now.slots, [spent(&winner, 0, None), Slot::Unspent], "a loser holds nothing");
    assert_eq!(
        parent_now.head.conflicting_children,
        [loser.txid],
        "and is listed once, although it wanted two outputs"
    );
    assert!(!s.has(&absent).await, "an absent parent is not made");
    assert_eq!(s.settled(&loser).await, Some(4), "it settled when it lost");
    let heir = child("heir", &[(&loser, 0)], 1);
    let refusal = SpendRefusal::Conflicting { since: Height(4) };
    let inputs = vec![InputRefusal { vin: 0, outpoint: op(&loser, 0), refusal }];
    let refused = CreateError::Inputs { txid: heir.txid, inputs };
    assert_eq!(s.try_add(CreateRequest::unmined(heir), 5).await, Err(refused));
    let status = s.spend_status(vec![op(&loser, 0)], Height(5)).await;
    assert_eq!(status, Ok(vec![SpendStatus::Conflicting { since: Height(4) }]));
    s.sound().await;
}

/// Conflicting and mined cannot both be: it is stored as conflicting, and its block as one of a fork.
pub async fn created_conflicting_and_mined_is_conflicting(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parent = coin("parent", 1);
    s.add_mined(&parent, 1).await;
    let tx = child("tx", &[(&parent, 0)], 1);
    let request = CreateRequest { conflicting: true, ..CreateRequest::mined(tx.clone(), 3, Height(3)) };
    s.try_add(request, 3).await.expect("create");
    let head = s.head(&tx).await;
    assert_eq!(head.blocks.as_slice(), [forked_in(3, 3)]);
    assert_eq!(head.conflicting_since, Some(Height(3)));
    assert_eq!(head.first_unmined, Some(Height(3)));
    assert_eq!(s.slot(&parent, 0).await, Slot::Unspent);
    s.sound().await;
}

/// On trust, inputs may be absent: for coins whose history is not stored. Those that are there are checked and held all the
/// same.
pub async fn trusted_inputs_may_be_absent(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let (parent, absent) = (coin("parent", 2), coin("absent", 1));
    s.add_mined(&parent, 1).await;
    let tx = child("tx", &[(&parent, 0), (&absent, 3)], 1);
    let request = CreateRequest { trust_inputs: true, ..CreateRequest::mined(tx.clone(), 2, Height(2)) };
    s.try_add(request, 2).await.expect("create");
    assert_eq!(s.record(&parent).await.slots, [spent(&tx, 0, Some(2)), Slot::Unspent]);
    assert!(!s.has(&absent).await, "an absent parent is not made");
    assert_eq!(s.record(&tx).await.body.inputs, [Input::of(op(&parent, 0)), Input::of(op(&absent, 3))]);
    let before = s.digest().await;
    let rival = child("rival", &[(&absent, 3), (&parent, 0), (&parent, 1)], 1);
    let request = CreateRequest { trust_inputs: true, ..CreateRequest::unmined(rival.clone()) };
    let refusal = SpendRefusal::Spent { by: by(&tx, 0), mined_at: Some(Height(2)) };
    let inputs = vec![InputRefusal { vin: 1, outpoint: op(&parent, 0), refusal }];
    assert_eq!(s.try_add(request, 3).await, Err(CreateError::Inputs { txid: rival.txid, inputs }));
    s.assert_unchanged(before, "a refused create").await;
    s.sound().await;
}

/// A coinbase matures from the height at which it was made: its block's, not the caller's.
pub async fn coinbase_matures_from_its_block(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let (mined, unmined) = (coinbase("mined", 1), coinbase("unmined", 1));
    s.try_add(CreateRequest::mined(mined.clone(), 1, Height(20)), 25).await.expect("create");
    s.add(&unmined, 25).await;
    assert_eq!(s.head(&mined).await.spending_height, Some(Height(23)));
    assert_eq!(s.head(&unmined).await.spending_height, Some(Height(28)));
    assert_eq!(s.settled(&mined).await, None, "a mature coinbase is a live coin");
    s.sound().await;
}

/// An output worth nothing is an output like any other; one that only carries data is not kept and never counts.
pub async fn zero_value_outputs_count_and_data_outputs_do_not(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let outputs = vec![Output::new(0, script("zero")), data_output(), Output::new(5, script("five"))];
    let tx = Tx { outputs: outputs.clone(), ..coin("tx", 0) };
    s.add_mined(&tx, 1).await;
    let record = s.record(&tx).await;
    assert_eq!(record.slots, [Slot::Unspent, Slot::Unspendable, Slot::Unspent]);
    assert_eq!(record.outputs, [Some(outputs[0].clone()), None, Some(outputs[2].clone())]);
    assert_eq!(record.head.output_count, 3);
    assert_eq!(s.counts().await.map(|counts| counts.unspent), Ok(2));
    let status = s.spend_status((0..4).map(|vout| op(&tx, vout)).collect(), Height(1)).await;
    use SpendStatus::*;
    assert_eq!(status, Ok(vec![Spendable, Unspendable, Spendable, NotFound]));
    let spender = child("spender", &[(&tx, 0), (&tx, 2)], 1);
    s.add_mined(&spender, 2).await;
    assert_eq!(s.settled(&tx).await, Some(2), "the data output keeps nothing");
    s.sound().await;
}

/// Outputs are found one by one, spent or not, with what they belong to.
pub async fn outputs_are_found_one_by_one(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let mut tx = coinbase("tx", 3);
    tx.outputs[1] = data_output();
    s.add_mined(&tx, 4).await;
    let spender = child("spender", &[(&tx, 2)], 1);
    s.add(&spender, 9).await;
    let wanted = vec![op(&tx, 2), op(&tx, 1), op(&tx, 3), OutPoint::new(txid("absent"), 0), op(&spender, 0)];
    let found = s.outputs(wanted).await.expect("outputs");
    let [spent_one, data, beyond, absent, unmined] = &found[..] else {
        panic!("five asked, {} answered", found.len())
    };
    let expected = sapwood_ledger::Utxo {
        outpoint: op(&tx, 2),
        output: tx.outputs[2].clone(),
        slot: spent(&spender, 0, None),
        created_height: Height(4),
        mined_at: Some(Height(4)),
        coinbase: true,
    };
    assert_eq!(spent_one.as_ref(), Some(&expected));
    assert_eq!([data, beyond, absent], [&None; 3], "neither kept nor there");
    let unmined = unmined.as_ref().expect("an unmined transaction's output");
    assert_eq!((unmined.mined_at, unmined.created_height, unmined.coinbase), (None, Height(9), false));
    s.sound().await;
}

/// A thousand transactions are made, spent and read back.
pub async fn a_thousand_made_spent_and_read_back(factory: &dyn StoreFactory) {
    let s = Subject::new(factory, small()).await;
    let parents: Vec<_> = (0..1_000).map(|number| coin(&format!("parent {number}"), 2)).collect();
    let batch = parents.iter().map(|tx| CreateRequest::mined(tx.clone(), 1, Height(1))).collect();
    s.create(batch, Height(1)).await.expect("create");
    let children: Vec<_> = (0..1_000u32)
        .map(|number| child(&format!("child {number}"), &[(&parents[number as usize], number % 2)], 1))
        .collect();
    let batch = children.iter().map(|tx| CreateRequest::unmined(tx.clone())).collect();
    s.create(batch, Height(2)).await.expect("create");
    let found = s.records(&parents.iter().collect::<Vec<_>>()).await;
    for ((number, record), spender) in (0..).zip(found).zip(&children) {
        let record = record.unwrap_or_else(|| panic!("parent {number} is missing"));
        let mut expected = [Slot::Unspent; 2];
        expected[number % 2] = spent(spender, 0, None);
        assert_eq!(record.slots, expected, "parent {number}");
        assert_eq!(record.outputs[1].as_ref().map(|output| output.utxo_hash(record.outpoint(1))), {
            let made: &Tx = &parents[number];
            Some(UtxoHash::of(&made.txid, 1, &made.outputs[1].script, made.outputs[1].value))
        });
    }
    assert_eq!(
        s.counts().await,
        Ok(Counts { records: 2_000, unspent: 2_000, unmined: 1_000, spent: 1_000, ..Counts::default() })
    );
    s.sound().await;
}
