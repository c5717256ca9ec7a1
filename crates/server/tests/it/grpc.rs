//! The services through a client: what is stored comes back, items fail on their own, streams tell what happens.

use crate::support::{Setup, origin};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use sapwood_conformance::fixtures::{address, paying, txid};
use sapwood_ledger as store;
use sapwood_server::grpc::{
    Feed,
    proto::{chain_event::Event, *},
};
use sapwood_types::Height;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tonic::{Code, body::Body};
use tower::Service as _;

fn id(number: u8) -> Bytes {
    Bytes::from(vec![number; 32])
}

fn outpoint(txid: u8, vout: u32) -> OutPoint {
    OutPoint { txid: id(txid), vout }
}

/// A transaction with two outputs that spends these.
fn tx(txid: u8, spends: &[(u8, u32)]) -> Transaction {
    let output = |value| Output { value, script: Bytes::from(vec![txid]), ..Output::default() };
    Transaction {
        txid: id(txid),
        version: 1,
        size: 100,
        coinbase: spends.is_empty(),
        inputs: spends
            .iter()
            .map(|(of, vout)| Input { txid: id(*of), vout: *vout, value: None, script: None })
            .collect(),
        outputs: vec![output(1), output(2)],
        ..Transaction::default()
    }
}

fn block(height: u32, transactions: Vec<Transaction>) -> Block {
    let hash = |height: u32| Bytes::from([&[0xb0; 28][..], &height.to_be_bytes()].concat());
    let parent = hash(height.wrapping_sub(1));
    Block { height: Some(height), hash: hash(height), parent, transactions, ..Block::default() }
}

fn create(transactions: Vec<Transaction>, height: u32) -> CreateRequest {
    let new = |transaction| NewTransaction { transaction: Some(transaction), ..NewTransaction::default() };
    CreateRequest { transactions: transactions.into_iter().map(new).collect(), height: Some(height) }
}

/// Three transactions of one owner, the second of which is damaged.
async fn with_a_damaged_record() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let txs = [1, 2, 3].map(|number| paying(&number.to_string(), &[], &["owner"]));
    let created = txs.iter().map(|tx| store::CreateRequest::unmined(tx.clone())).collect();
    crate::support::open(directory.path()).create(created, Height(3)).await.unwrap();
    let options = rocksdb::Options::default();
    let families = rocksdb::DB::list_cf(&options, directory.path()).unwrap();
    let raw = rocksdb::DB::open_cf(&options, directory.path(), families).unwrap();
    raw.put_cf(raw.cf_handle("tx").unwrap(), txs[1].txid.0, b"not a record").unwrap();
    directory
}

/// An empty message disabled pruning for good.
#[tokio::test]
async fn switch_that_is_missing_from_a_request_is_refused_by_name() {
    let server = Setup::default().start().await;
    let (mut utxo, mut chain, mut pruner) =
        (server.utxo().await, server.chain().await, server.pruner().await);
    let mined = MinedIn { block_id: 1, height: Some(1), ..MinedIn::default() };
    let refusals = [
        ("enabled", pruner.set_enabled(SetEnabledRequest::default()).await.map(drop)),
        ("running", chain.set_block_assembly(SetBlockAssemblyRequest::default()).await.map(drop)),
        ("on", utxo.set_locked(SetLockedRequest { txids: vec![id(1)], on: None }).await.map(drop)),
        (
            "on",
            utxo.set_conflicting(SetConflictingRequest { txids: vec![id(1)], on: None, height: Some(1) })
                .await
                .map(drop),
        ),
        (
            "on",
            utxo.mark_on_longest_chain(MarkOnLongestChainRequest {
                txids: vec![id(1)],
                on: None,
                height: Some(1),
            })
            .await
            .map(drop),
        ),
        (
            "block.on_longest_chain",
            utxo.set_mined(SetMinedRequest {
                txids: vec![id(1)],
                block: Some(mined),
                height: Some(1),
                ..SetMinedRequest::default()
            })
            .await
            .map(drop),
        ),
    ];
    for (field, refused) in refusals {
        let status = refused.unwrap_err();
        assert_eq!(
            (status.code(), status.message()),
            (Code::InvalidArgument, &*format!("{field}: is required"))
        );
    }
    let status = pruner.get_status(GetPrunerStatusRequest {}).await.unwrap().into_inner();
    assert!(status.enabled, "pruning is enabled as before");
    server.end().await;
}

#[tokio::test]
async fn an_unreadable_record_fails_its_own_item_and_is_named_by_every_list() {
    let directory = Some(with_a_damaged_record().await);
    let server = Setup { directory, ..Setup::default() }.start().await;
    let mut utxo = server.utxo().await;
    let txids = [1, 2, 3].map(|number| Bytes::from(txid(&number.to_string()).0.to_vec()));
    let named = |problem: &Problem| {
        assert_eq!(problem.code(), ProblemCode::StoreFailed);
        assert!(problem.message.contains("cannot be read"), "{}", problem.message);
    };

    let records = utxo.get(GetRequest { txids: txids.to_vec() }).await.unwrap().into_inner().records;
    let found: Vec<_> = records.iter().map(|item| (item.record.is_some(), item.problem.is_some())).collect();
    assert_eq!(found, [(true, false), (false, true), (true, false)]);
    named(records[1].problem.as_ref().unwrap());

    let outpoints: Vec<_> = txids.iter().map(|txid| OutPoint { txid: txid.clone(), vout: 0 }).collect();
    let request = GetOutputsRequest { outpoints: outpoints.clone() };
    let outputs = utxo.get_outputs(request).await.unwrap().into_inner().outputs;
    let found: Vec<_> = outputs.iter().map(|item| (item.output.is_some(), item.problem.is_some())).collect();
    assert_eq!(found, [(true, false), (false, true), (true, false)]);
    named(outputs[1].problem.as_ref().unwrap());

    let request = GetSpendStatusRequest { outpoints, height: Some(5) };
    let statuses = utxo.get_spend_status(request).await.unwrap().into_inner().statuses;
    let found: Vec<_> = statuses.iter().map(OutputStatus::status).collect();
    assert_eq!(found, [SpendStatus::Spendable, SpendStatus::Unreadable, SpendStatus::Spendable]);
    assert!(statuses[1].message.contains("cannot be read"), "{}", statuses[1].message);

    let unmined = utxo.list_unmined(ListUnminedRequest::default()).await.unwrap().into_inner();
    assert_eq!((unmined.transactions.len(), unmined.unreadable.len(), unmined.cursor), (2, 1, None));
    let owner = Some(list_by_address_request::Owner::AddressHash(address("owner").0.to_vec().into()));
    let request = ListByAddressRequest { owner, ..ListByAddressRequest::default() };
    let listed = utxo.list_by_address(request).await.unwrap().into_inner();
    assert_eq!((listed.outputs.len(), listed.unreadable.len(), listed.cursor), (2, 1, None));
    for problem in [&unmined.unreadable[0], &listed.unreadable[0]] {
        named(problem);
        assert_eq!(problem.txid.as_ref(), Some(&txids[1]));
    }
    server.end().await;
}

#[tokio::test]
async fn what_is_created_comes_back_and_items_fail_on_their_own() {
    let server = Setup::default().start().await;
    let mut utxo = server.utxo().await;
    let mut first = create(vec![tx(1, &[(90, 0)]), tx(2, &[])], 100);
    first.transactions[0].trust_inputs = true;
    first.transactions[1].transaction.as_mut().unwrap().coinbase = false;
    let answer = utxo.create(first).await.unwrap().into_inner();
    assert_eq!((answer.succeeded, answer.failed), (2, vec![]));

    // One is there already, one is fine, one wants what the second one took.
    let batch = create(vec![tx(1, &[]), tx(3, &[(1, 0)]), tx(4, &[(1, 0)])], 101);
    let answer = utxo.create(batch).await.unwrap().into_inner();
    let failed: Vec<_> = answer.failed.iter().map(|problem| (problem.index, problem.code())).collect();
    let expected = [(Some(0), ProblemCode::AlreadyExists), (Some(2), ProblemCode::InputsRefused)];
    assert_eq!((answer.succeeded, failed), (1, expected.to_vec()));
    let input = &answer.failed[1].inputs[0];
    assert_eq!(
        (input.code(), input.spender.clone()),
        (ProblemCode::Spent, Some(Spender { txid: id(3), vin: 0 }))
    );

    let asked = GetRequest { txids: vec![id(1), id(9), id(3)] };
    let records = utxo.get(asked).await.unwrap().into_inner().records;
    let record = records[0].record.as_ref().unwrap();
    assert_eq!((record.txid.clone(), record.unmined_since, record.mined_at), (id(1), Some(100), None));
    assert_eq!((records[1].record.is_none(), records[2].record.is_some()), (true, true));

    let status = GetSpendStatusRequest {
        outpoints: vec![outpoint(1, 0), outpoint(1, 1), outpoint(9, 0)],
        height: Some(101),
    };
    let statuses = utxo.get_spend_status(status).await.unwrap().into_inner().statuses;
    let codes: Vec<_> = statuses.iter().map(OutputStatus::status).collect();
    assert_eq!(codes, [SpendStatus::Spent, SpendStatus::Spendable, SpendStatus::NotFound]);

    let page = ListUnminedRequest { cursor: None, limit: Some(2) };
    let page = utxo.list_unmined(page).await.unwrap().into_inner();
    assert_eq!(page.transactions.len(), 2);
    let rest = ListUnminedRequest { cursor: page.cursor, limit: Some(2) };
    let rest = utxo.list_unmined(rest).await.unwrap().into_inner();
    assert_eq!((rest.transactions.len(), rest.cursor), (1, None));
    let counts = utxo.get_counts(GetCountsRequest {}).await.unwrap().into_inner();
    assert_eq!((counts.records, counts.unmined), (3, 3));
    server.end().await;
}

#[tokio::test]
async fn a_chain_is_fed_rolled_back_and_heard() {
    let server = Setup::default().start().await;
    let mut chain = server.chain().await;
    let mut events = chain.subscribe(SubscribeRequest {}).await.unwrap().into_inner();
    let first = events.message().await.unwrap().unwrap().event.unwrap();
    assert!(
        matches!(&first, Event::Standing(standing) if standing.state() == ChainState::Resetting),
        "{first:?}"
    );
    chain.set_state(SetStateRequest { state: ChainState::Running.into() }).await.unwrap();

    // The third block does not follow the second.
    let blocks =
        vec![block(100, vec![tx(1, &[])]), block(101, vec![tx(2, &[])]), block(103, vec![tx(3, &[])])];
    let answer = chain.apply_blocks(ApplyBlocksRequest { blocks }).await.unwrap().into_inner();
    assert_eq!(answer.applied.iter().map(|block| block.height).collect::<Vec<_>>(), [100, 101]);
    let problem = answer.problem.unwrap();
    assert_eq!((problem.index, problem.code(), problem.height), (Some(2), ProblemCode::NotNext, Some(102)));

    let to = ChainPoint { height: Some(100), hash: block(100, vec![]).hash };
    let back = RollBackRequest { target: Some(roll_back_request::Target::To(to)) };
    let answer = chain.roll_back(back.clone()).await.unwrap().into_inner();
    assert_eq!((answer.blocks, answer.applied.unwrap().height), (1, 100));
    let nothing = chain.roll_back(back).await.unwrap().into_inner();
    assert_eq!(nothing.blocks, 0, "it is there already");
    let to = ChainPoint { height: Some(7), hash: id(7) };
    let refused = chain
        .roll_back(RollBackRequest { target: Some(roll_back_request::Target::To(to)) })
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(!refused.details().is_empty());

    let mut heard = Vec::new();
    while heard.last() != Some(&"rolled back") {
        heard.push(match events.message().await.unwrap().unwrap().event.unwrap() {
            Event::StateChanged(_) => "state",
            Event::BlockApplied(_) => "block",
            Event::MinedSet(_) => "mined",
            Event::RolledBack(_) => "rolled back",
            other => panic!("not expected: {other:?}"),
        });
    }
    assert_eq!(heard, ["state", "block", "mined", "block", "mined", "rolled back"]);
    let status = chain.get_status(GetChainStatusRequest {}).await.unwrap().into_inner();
    assert_eq!((status.state(), status.fed, status.transactions), (ChainState::Running, true, 2));
    assert_eq!(status.applied.unwrap().height, 100);
    server.end().await;
}

#[tokio::test]
async fn a_bad_field_is_named_and_nothing_is_changed() {
    let server = Setup::default().start().await;
    let mut utxo = server.utxo().await;
    let short = GetRequest { txids: vec![id(1), id(2), id(3), id(4).slice(1..)] };
    let refused = utxo.get(short).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::InvalidArgument, "txids[3]: must be 32 bytes, is 31")
    );
    let no_height = CreateRequest { height: None, ..create(vec![tx(1, &[])], 1) };
    assert_eq!(utxo.create(no_height).await.unwrap_err().message(), "height: is required");
    let mut bad = create(vec![tx(1, &[]), tx(2, &[(1, 0)])], 1);
    bad.transactions[1].transaction.as_mut().unwrap().inputs[0].txid = Default::default();
    let refused = utxo.create(bad).await.unwrap_err();
    assert_eq!(refused.message(), "transactions[1].transaction.inputs[0].txid: must be 32 bytes, is 0");
    assert_eq!(utxo.get_counts(GetCountsRequest {}).await.unwrap().into_inner().records, 0);
    server.end().await;
}

#[tokio::test]
async fn a_node_that_follows_a_source_is_not_fed() {
    let feed = Feed::Closed { source: "a node at home".into(), utxo_admin: false };
    let server = Setup { feed, ..Setup::default() }.start().await;
    let mut chain = server.chain().await;
    let blocks = vec![block(100, vec![tx(1, &[])])];
    let to = roll_back_request::Target::Everything(true);
    let refused = [
        chain.apply_blocks(ApplyBlocksRequest { blocks }).await.unwrap_err(),
        chain.roll_back(RollBackRequest { target: Some(to) }).await.unwrap_err(),
        chain.set_state(SetStateRequest { state: ChainState::Running.into() }).await.unwrap_err(),
    ];
    for status in refused {
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().contains("follows a node at home"), "{status}");
    }
    assert!(!chain.get_status(GetChainStatusRequest {}).await.unwrap().into_inner().fed);
    server.end().await;
}

#[tokio::test]
async fn malformed_frames_are_refused_and_change_nothing() {
    let server = Setup::default().start().await;
    server.utxo().await.create(create(vec![tx(1, &[])], 100)).await.unwrap();
    let store = server.chain.store().clone();
    let before = store.state_digest().await.unwrap();
    // The head of a gRPC message: whether it is compressed, and its length.
    let framed = |compressed: u8, length: u32, message: &[u8]| {
        [&[compressed][..], &length.to_be_bytes(), message].concat()
    };
    let bodies = [
        Vec::new(),
        vec![0],
        framed(0, 100, b"too short"),
        framed(0, u32::MAX, b"never comes"),
        framed(1, 3, b"abc"),
        framed(7, 3, b"abc"),
        framed(0, 3, &[0xff; 3]),
        framed(0, 6, &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f]),
        [0x5a; 5000].to_vec(),
    ];
    let mut wire = server.wire().await;
    for body in bodies {
        for method in ["Create", "Delete", "Nothing"] {
            let request = Request::post(format!("{}sapwood.v1.Utxo/{method}", origin()))
                .header("content-type", "application/grpc")
                .header("te", "trailers")
                .body(Body::new(Full::new(Bytes::from(body.clone()))))
                .unwrap();
            let answer = wire.call(request).await.unwrap();
            let at_once = answer.headers().get("grpc-status").cloned();
            let rest = answer.into_body().collect().await.unwrap();
            let status =
                at_once.or(rest.trailers().and_then(|trailers| trailers.get("grpc-status")).cloned());
            let status = status.unwrap_or_else(|| panic!("{method} with {body:?}: no status"));
            assert_ne!(status, "0", "{method} with {} bytes was accepted", body.len());
        }
    }
    // Frames of HTTP/2 that make no sense end the connection, and only that.
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    for nonsense in [vec![0xff; 64], vec![0; 64], [&[0xff, 0xff, 0xff, 0x01, 0x00][..], &[0; 40]].concat()] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(&[&preface[..], &nonsense].concat()).await.unwrap();
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard).await;
    }
    assert_eq!(store.state_digest().await.unwrap(), before);
    server.utxo().await.get_counts(GetCountsRequest {}).await.unwrap();
    server.end().await;
}

#[tokio::test]
async fn h5_a_shorter_policy_over_grpc_says_in_its_details_what_would_be_deleted() {
    use prost::Message as _;
    let server = Setup::default().start().await;
    let mut pruner = server.pruner().await;
    let before = pruner.get_policy(GetPolicyRequest {}).await.unwrap().into_inner().policy.unwrap();
    let shorter = SetPolicyRequest { retention: Some(before.retention - 1), ..SetPolicyRequest::default() };
    // Nothing depends on the reorg window being below.
    let shorter =
        SetPolicyRequest { reorg_window: Some(before.reorg_window.min(before.retention - 1)), ..shorter };
    let refused = pruner.set_policy(shorter).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let details = tonic_types::Status::decode(refused.details()).unwrap().details;
    let names: Vec<&str> = details.iter().map(|one| one.type_url.rsplit('/').next().unwrap()).collect();
    assert_eq!(names, ["sapwood.v1.Problem", "sapwood.v1.Shortening"]);
    let problem = Problem::decode(&details[0].value[..]).unwrap();
    assert_eq!(
        (problem.code(), problem.message.as_str()),
        (ProblemCode::NeedsConfirmation, refused.message())
    );
    let shortening = Shortening::decode(&details[1].value[..]).unwrap();
    let number = shortening.numbers.iter().find(|number| number.name == "retention").unwrap();
    assert_eq!((number.now, number.then), (before.retention, before.retention - 1));
    let plan = shortening.plan.unwrap();
    assert!(plan.complete && plan.records == 0, "an empty store has nothing to delete: {plan:?}");
    let now = pruner.get_policy(GetPolicyRequest {}).await.unwrap().into_inner().policy.unwrap();
    assert_eq!(now, before, "nothing was changed");
    let confirmed = SetPolicyRequest { confirm: true, ..shorter };
    let policy = pruner.set_policy(confirmed).await.unwrap().into_inner().policy.unwrap();
    assert_eq!(policy.retention, before.retention - 1);
    let GetPolicyResponse { configured, origins, .. } =
        pruner.get_policy(GetPolicyRequest {}).await.unwrap().into_inner();
    assert_eq!(configured, Some(before));
    let retention = &origins["retention"];
    assert_eq!(retention.from, "run_time");
    assert_eq!(retention.by(), "admin from 127.0.0.1 over gRPC");
    assert!(retention.at.is_some());
    assert!(!origins.contains_key("coinbase_maturity"), "it comes from the configuration: {origins:?}");
    server.end().await;
}

#[tokio::test]
async fn m16_inputs_over_grpc_say_what_they_spend_as_long_as_it_is_stored() {
    let server = Setup::default().start().await;
    let mut utxo = server.utxo().await;
    for (transaction, height) in [(Transaction { coinbase: false, ..tx(1, &[]) }, 1), (tx(2, &[(1, 1)]), 2)] {
        let made = utxo.create(create(vec![transaction], height)).await.unwrap().into_inner();
        assert_eq!(made.failed, []);
    }
    let answer = utxo.get(GetRequest { txids: vec![id(2)] }).await.unwrap().into_inner();
    let record = answer.records[0].record.clone().unwrap();
    let input = &record.inputs[0];
    assert_eq!((input.value, input.script.clone()), (Some(2), Some(Bytes::from(vec![1]))));
    let counts = utxo.get_counts(GetCountsRequest {}).await.unwrap().into_inner();
    assert_eq!((counts.created, counts.spent, counts.unspent), (4, 1, 3));
    server.end().await;
}
