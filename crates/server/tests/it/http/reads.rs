//! What is stored.

use bitcoin::Network;
use sapwood_conformance::fixtures::{child, coin, coinbase, credential, data_output, op, paying, script};
use sapwood_ledger::AddressIndexing;
use sapwood_server::address::{ChainKind, hex};
use sapwood_types::{Output, Tx};
use serde_json::{Value, json};

use crate::http::world::{Plan, World};

#[tokio::test]
async fn an_output_is_shown_unspent_and_spent() {
    let world = World::new().await;
    let parent = coin("parent", 2);
    let spender = child("spender", &[(&parent, 1)], 1);
    world.extend(&[&parent]).await;
    world.extend(&[&spender]).await;
    let unspent = world.get(&format!("/api/v1/utxos/{}/0", parent.txid)).await.ok();
    let expected = json!({
        "txid": parent.txid.to_string(), "vout": 0, "state": "unspent", "value": "1000",
        "address": hex(&script("parent")), "script": hex(&script("parent")),
        "created_height": 0, "mined_at": 0, "coinbase": false,
    });
    assert_eq!(unspent, expected);
    let spent = world.get(&format!("/api/v1/utxos/{}/1", parent.txid)).await.ok();
    assert_eq!(spent["state"], "spent");
    assert_eq!(spent["spent_by"], json!({ "txid": spender.txid.to_string(), "vin": 0, "mined_at": 1 }));
}

#[tokio::test]
async fn what_is_not_there_is_told_apart() {
    let world = World::new().await;
    let mut tx = coin("tx", 1);
    tx.outputs.push(data_output());
    world.extend(&[&tx]).await;
    let detail = |path: String| async {
        let path = path;
        world.get(&path).await.problem(404, "not-found")
    };
    let unspendable = detail(format!("/api/v1/utxos/{}/1", tx.txid)).await;
    assert!(unspendable.contains("never be spent"), "{unspendable}");
    let beyond = detail(format!("/api/v1/utxos/{}/2", tx.txid)).await;
    assert!(beyond.contains("has 2 outputs"), "{beyond}");
    let unknown = detail(format!("/api/v1/utxos/{}/0", coin("unknown", 1).txid)).await;
    assert!(unknown.contains("is not stored") && unknown.contains("spends="), "{unknown}");
}

#[tokio::test]
async fn what_a_parent_remembers_is_410_and_nothing_else_is() {
    let world = World::new().await;
    let (parent, pruned) = world.with_a_pruned_child().await;
    for path in ["txs/{}", "txs/{}/explain", "utxos/{}/0"] {
        let path = format!("/api/v1/{}", path.replace("{}", &pruned.txid.to_string()));
        world.get(&path).await.problem(404, "not-found");
        let remembered = format!("{path}?spends={}:0", parent.txid);
        let detail = world.get(&remembered).await.problem(410, "pruned");
        assert!(detail.contains("was mined at height 1"), "{detail}");
        // The other output is unspent, and a transaction that is not stored remembers nothing.
        let other = world.get(&format!("{path}?spends={}:1", parent.txid)).await.problem(404, "not-found");
        assert!(other.contains("does not remember"), "{other}");
        let unknown = format!("{path}?spends={}:0", coin("unknown", 1).txid);
        let unknown = world.get(&unknown).await.problem(404, "not-found");
        assert!(unknown.contains("neither is output"), "{unknown}");
        world.get(&format!("{path}?spends=nonsense")).await.problem(400, "bad-request");
    }
    let never = coin("never", 1);
    world
        .get(&format!("/api/v1/txs/{}?spends={}:0", never.txid, parent.txid))
        .await
        .problem(404, "not-found");
}

async fn all_pages(world: &World, path: &str, limit: usize) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = world.get(&format!("{path}limit={limit}{cursor}")).await.ok();
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= limit);
        let key = |item: &Value| {
            (item["txid"].as_str().unwrap().to_owned(), item["created_height"].as_u64().unwrap())
        };
        found.extend(items.iter().map(key));
        match page["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return found,
        }
    }
}

#[tokio::test]
async fn an_address_is_listed_in_pages_in_both_orders() {
    let world = World::new().await;
    let paid: Vec<Tx> =
        (0..7).map(|label| paying(&format!("to alice {label}"), &[], &["alice", "bob"])).collect();
    for tx in &paid {
        world.extend(&[tx]).await;
    }
    let path = format!("/api/v1/addresses/{}/utxos?", hex(&script("alice")));
    let ascending = all_pages(&world, &path, 3).await;
    let heights: Vec<u64> = ascending.iter().map(|(_, height)| *height).collect();
    assert_eq!(heights, [0, 1, 2, 3, 4, 5, 6]);
    let mut descending = all_pages(&world, &format!("{path}order=desc&"), 2).await;
    descending.reverse();
    assert_eq!(descending, ascending);
    let page = world.get(&format!("{path}limit=7")).await.ok();
    assert_eq!((&page["value"], &page["total_value"]), (&json!("3500"), &json!("3500")), "the sum of all");
    let part = world.get(&format!("{path}limit=3")).await.ok();
    assert_eq!(
        (&part["value"], &part["total_value"]),
        (&json!("1500"), &Value::Null),
        "the sum of the page only"
    );
    assert_eq!(page["cursor"], Value::Null);
    let nobody = world.get(&format!("/api/v1/addresses/{}/utxos", hex(b"nobody"))).await.ok();
    assert_eq!(nobody, json!({ "items": [], "value": "0", "total_value": "0", "cursor": null }));
}

#[tokio::test]
async fn a_page_goes_on_where_it_was_while_blocks_come_in() {
    let world = World::new().await;
    for label in 0..4 {
        world.extend(&[&paying(&format!("before {label}"), &[], &["alice"])]).await;
    }
    let path = format!("/api/v1/addresses/{}/utxos?limit=2", hex(&script("alice")));
    let first = world.get(&path).await.ok();
    world.extend(&[&paying("after", &[], &["alice"])]).await;
    let second = world.get(&format!("{path}&cursor={}", first["cursor"].as_str().unwrap())).await.ok();
    let heights: Vec<u64> = second["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["created_height"].as_u64().unwrap())
        .collect();
    assert_eq!(heights, [2, 3]);
}

#[tokio::test]
async fn a_credential_is_listed_like_an_address() {
    let world = World::new().await;
    let mut tx = coin("tx", 0);
    tx.outputs = vec![Output { credential: Some(credential("carol")), ..Output::new(5, script("x")) }];
    world.extend(&[&tx]).await;
    let page = world.get(&format!("/api/v1/credentials/{}/utxos", credential("carol"))).await.ok();
    assert_eq!(page["items"][0]["txid"], tx.txid.to_string());
    assert_eq!(page["items"][0]["credential"], credential("carol").to_string());
    world.get("/api/v1/credentials/00/utxos").await.problem(400, "bad-request");
}

#[tokio::test]
async fn a_store_without_the_index_says_so_instead_of_finding_nothing() {
    let index = AddressIndexing { address: false, credential: false };
    let world = World::planned(Plan { index, ..Plan::default() }).await;
    world.get(&format!("/api/v1/addresses/{}/utxos", hex(b"x"))).await.problem(501, "not-indexed");
    world.get(&format!("/api/v1/credentials/{}/utxos", credential("x"))).await.problem(501, "not-indexed");
}

#[tokio::test]
async fn bitcoin_addresses_are_used_as_people_write_them() {
    let world = World::planned(Plan { kind: ChainKind::Bitcoin(Network::Bitcoin), ..Plan::default() }).await;
    const ADDRESS: &str = "bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdq";
    let script = ChainKind::Bitcoin(Network::Bitcoin).parse(ADDRESS).unwrap();
    let mut tx = coinbase("tx", 0);
    tx.outputs = vec![Output::new(u64::MAX, script.clone())];
    world.extend(&[&tx]).await;
    for address in [ADDRESS.to_owned(), format!("script:{}", hex(&script)), hex(&script)] {
        let page = world.get(&format!("/api/v1/addresses/{address}/utxos")).await.ok();
        assert_eq!(page["items"][0]["address"], ADDRESS);
        assert_eq!(page["items"][0]["value"], u64::MAX.to_string(), "every bit of an amount arrives");
    }
    let of_a_key = world.get("/api/v1/addresses/1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa/utxos").await.ok();
    assert!(
        of_a_key["note"].as_str().unwrap().contains("P2PK"),
        "an empty list says what it cannot show: {of_a_key}"
    );
    let other = world.get("/api/v1/addresses/tb1qw508d6qejxtdg4y5r3zarvary0c5xw7kxpjzsx/utxos").await;
    assert!(other.problem(400, "bad-request").contains("another network"));
}

#[tokio::test]
async fn a_transaction_is_shown_with_the_outputs_asked_for() {
    let world = World::new().await;
    let parent = coin("parent", 300);
    let spender = child("spender", &[(&parent, 299)], 1);
    world.extend(&[&parent, &spender]).await;
    let whole = world.get(&format!("/api/v1/txs/{}", parent.txid)).await.ok();
    assert_eq!(
        (whole["output_count"].as_u64(), whole["outputs"].as_array().unwrap().len()),
        (Some(300), 300)
    );
    assert_eq!((&whole["mined_at"], &whole["fee"], &whole["version"]), (&json!(0), &json!("11"), &json!(2)));
    let some = world.get(&format!("/api/v1/txs/{}?from=298&limit=5", parent.txid)).await.ok();
    let outputs = some["outputs"].as_array().unwrap();
    assert_eq!(outputs.iter().map(|output| output["vout"].as_u64().unwrap()).collect::<Vec<_>>(), [298, 299]);
    assert_eq!(outputs[1]["spent_by"]["txid"], spender.txid.to_string());
    let inputs = world.get(&format!("/api/v1/txs/{}", spender.txid)).await.ok()["inputs"].clone();
    let (value, address) = (&outputs[1]["value"], &outputs[1]["address"]);
    assert!(value.is_string() && address.is_string(), "the parent is stored: {}", outputs[1]);
    let txid = op(&parent, 299).txid.to_string();
    assert_eq!(inputs, json!([{ "txid": txid, "vout": 299, "value": value, "address": address }]));
}

#[tokio::test]
async fn a_transaction_is_explained() {
    let world = World::new().await;
    let tx = coin("tx", 2);
    world.extend(&[&tx]).await;
    let explained = world.get(&format!("/api/v1/txs/{}/explain", tx.txid)).await.ok();
    assert_eq!((&explained["prunable"], &explained["reason"]), (&json!(false), &json!("unspent")));
    assert!(explained["guards"].as_array().unwrap().iter().any(|guard| guard["retains"] == true));
}

#[tokio::test]
async fn the_engine_is_asked_by_part() {
    let world = World::new().await;
    let all = world.get("/api/v1/status/rocksdb-stats").await.ok();
    assert_eq!(all.as_array().unwrap().len(), 6);
    let one = world.get("/api/v1/status/rocksdb-stats?cf=undo").await.ok();
    assert_eq!((one.as_array().unwrap().len(), &one[0]["part"]), (1, &json!("undo")));
    assert!(one[0]["text"].as_str().unwrap().contains("Compaction"), "the engine's own report");
    let wrong = world.get("/api/v1/status/rocksdb-stats?cf=nonsense").await.problem(400, "bad-request");
    assert!(wrong.contains("the tables are"), "{wrong}");
}
