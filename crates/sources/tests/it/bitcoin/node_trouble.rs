//! Nodes that are slow, starting, locked, broken or none at all.

use std::{fs, net::TcpListener, time::Duration};

use sapwood_sources::bitcoin::BitcoinError;
use sapwood_sources::{
    BlockSource, SourceError,
    bitcoin::{
        Auth, Network, RpcOptions, RpcSource,
        convert::ConvertError,
        rpc::{RpcClient, RpcError},
    },
};
use sapwood_types::Height;
use serde_json::{Value, json};

use sapwood_testing::fake_node::{FakeNode, LOGIN, Trouble};

use crate::bitcoin::data;

/// A node with the first three blocks of mainnet.
fn node() -> Option<FakeNode> {
    let blocks = data::first_blocks(3)?;
    let file: Vec<u8> = blocks.iter().flat_map(|block| data::record(Network::Mainnet, block)).collect();
    Some(FakeNode::new(&file, "000000006a625f06636b8bb6ac7b960a8d03705d1ace08b1a19da3fdcc99ddbd"))
}

#[tokio::test]
async fn broken_connections_and_a_full_queue_are_tried_again() {
    let Some(node) = node() else { return };
    let source = RpcSource::connect(node.options()).await.unwrap();
    let busy = Trouble::Say(503, "Work queue depth exceeded".to_owned());
    node.trouble([Trouble::Drop, Trouble::Cut, busy, Trouble::Drop]);
    assert_eq!(source.tip().await.unwrap().unwrap().height, Height(2));
    // In the middle of a block, too.
    node.trouble([Trouble::Late(Duration::from_millis(10)), Trouble::Cut]);
    assert!(source.block_at(Height(2)).await.unwrap().is_some());
}

#[tokio::test]
async fn calls_in_a_row_use_one_connection() {
    let Some(node) = node() else { return };
    let source = RpcSource::connect(node.options()).await.unwrap();
    for height in 0..3 {
        assert!(source.block_at(Height(height)).await.unwrap().is_some());
    }
    assert_eq!(node.connections(), 1);
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_refused() {
    let Some(node) = node() else { return };
    let client = RpcClient::new(node.options()).unwrap();
    node.trouble([Trouble::Say(200, "7".repeat((64 << 20) + 1))]);
    let error = client.call::<Value>("getblockchaininfo", &[]).await.unwrap_err();
    assert!(
        matches!(&error, RpcError::Unusable { problem, .. } if problem.contains("longer than 67108864 bytes")),
        "{error}"
    );
}

#[tokio::test]
async fn a_node_that_is_not_there_is_an_error_that_says_where_it_was_looked_for() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let auth = Auth::Password { user: String::new(), password: String::new() };
    let options = RpcOptions::new(Network::Mainnet, format!("http://127.0.0.1:{port}"), auth);
    let error = RpcSource::connect(RpcOptions { attempts: 2, ..options }).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, RpcError::Unreachable { attempts: 2, .. }), "{error}");
    assert!(
        error.to_string().contains(&port.to_string()) && error.to_string().contains("-server"),
        "{error}"
    );
}

#[tokio::test]
async fn a_starting_node_is_waited_for_but_not_for_ever() {
    let Some(node) = node() else { return };
    let warming = || Trouble::error(500, -28, "Loading block index…");
    node.trouble([warming(), warming()]);
    let source = RpcSource::connect(node.options()).await.unwrap();
    assert_eq!(source.tip().await.unwrap().unwrap().height, Height(2));

    node.trouble([warming(), warming()]);
    let impatient = RpcOptions { warmup: Duration::ZERO, ..node.options() };
    let error = RpcSource::connect(impatient).await.map(|_| ()).unwrap_err();
    assert!(matches!(&error, RpcError::WarmingUp { message, .. } if message.contains("Loading")), "{error}");
}

#[tokio::test]
async fn a_wrong_password_tells_where_the_cookie_lives() {
    let Some(node) = node() else { return };
    let auth = Auth::Password { user: "user".to_owned(), password: "wrong".to_owned() };
    assert!(!format!("{auth:?}").contains("wrong"));
    let error = RpcSource::connect(RpcOptions { auth, ..node.options() }).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, RpcError::Unauthorized { .. }));
    assert!(error.to_string().contains(".cookie") && !error.to_string().contains("wrong"), "{error}");
}

#[tokio::test]
async fn the_cookie_is_read_again_when_the_node_has_a_new_one() {
    let Some(node) = node() else { return };
    let directory = tempfile::tempdir().unwrap();
    let auth = Auth::cookie_in(directory.path(), Network::Mainnet);
    let options = RpcOptions { auth, ..node.options() };
    let error = RpcSource::connect(options.clone()).await.map(|_| ()).unwrap_err();
    assert!(
        matches!(&error, RpcError::Cookie { path, .. } if *path == directory.path().join(".cookie")),
        "{error}"
    );

    fs::write(directory.path().join(".cookie"), "user:secret").unwrap();
    let source = RpcSource::connect(options).await.unwrap();
    // base64 of __cookie__:new
    node.state.lock().unwrap().login = "Basic X19jb29raWVfXzpuZXc=".to_owned();
    let error = source.tip().await.unwrap_err();
    assert!(
        matches!(
            error,
            SourceError::Bitcoin(BitcoinError::Rpc(RpcError::Unauthorized { with: "cookie", .. }))
        ),
        "{error}"
    );
    fs::write(directory.path().join(".cookie"), "__cookie__:new\n").unwrap();
    assert_eq!(source.tip().await.unwrap().unwrap().height, Height(2));
    assert_ne!(node.state.lock().unwrap().login, LOGIN);
    assert_eq!(
        Auth::cookie_in(directory.path(), Network::Regtest),
        Auth::Cookie(directory.path().join("regtest/.cookie"))
    );
}

#[tokio::test]
async fn senseless_answers_are_typed_errors() {
    let Some(node) = node() else { return };
    let client = RpcClient::new(node.options()).unwrap();
    let say = |status, text: &str| Trouble::Say(status, text.to_owned());
    for trouble in [
        say(200, "<html>hello</html>"),
        say(200, ""),
        say(200, "\u{0}\u{1}"),
        say(200, "[]"),
        say(200, r#"{"result": 7, "error": null, "id": 999999}"#),
        say(200, r#"{"result": 7}"#),
        say(302, ""),
        say(404, "not here"),
        say(500, "oh"),
    ] {
        node.trouble([trouble.clone()]);
        let error = client.call::<Value>("getblockchaininfo", &[]).await.unwrap_err();
        assert!(
            matches!(error, RpcError::Unusable { method: "getblockchaininfo", .. }),
            "{trouble:?}: {error}"
        );
    }
    // The wrong kind of value.
    let error = client.call::<u32>("getblockhash", &[json!(0)]).await.unwrap_err();
    assert!(matches!(error, RpcError::Unusable { .. }), "{error}");
    node.trouble([say(403, "")]);
    let error = client.call::<Value>("getblockhash", &[json!(0)]).await.unwrap_err();
    assert!(matches!(error, RpcError::Forbidden { .. }), "{error}");
}

#[tokio::test]
async fn a_block_that_is_not_the_one_asked_for_is_refused() {
    let Some(node) = node() else { return };
    let source = RpcSource::connect(node.options()).await.unwrap();
    let one = source.hash_at(Height(1)).await.unwrap().unwrap();
    let blocks = data::first_blocks(3).unwrap();
    let hex: String = blocks[2].iter().map(|byte| format!("{byte:02x}")).collect();
    // The calls so far had the numbers 1 to 3; the header is the fourth, the block the fifth.
    let lie = json!({"result": hex, "error": null, "id": 5}).to_string();
    node.trouble([Trouble::Late(Duration::ZERO), Trouble::Say(200, lie)]);
    let error = source.block(&one).await.unwrap_err();
    assert!(
        matches!(data::cause(&error), Some(ConvertError::OtherBlock { expected, .. }) if expected == one),
        "{error}"
    );
}

#[tokio::test]
async fn a_slow_node_is_a_timeout_that_names_the_call() {
    let Some(node) = node() else { return };
    let source =
        RpcSource::connect(RpcOptions { timeout: Duration::from_millis(200), ..node.options() }).await;
    let source = source.unwrap();
    node.trouble([Trouble::Late(Duration::from_secs(3))]);
    let error = source.hash_at(Height(1)).await.unwrap_err();
    assert!(
        matches!(
            error,
            SourceError::Bitcoin(BitcoinError::Rpc(RpcError::Timeout { method: "getblockhash", .. }))
        ),
        "{error}"
    );
    // The next call does not suffer from it.
    assert!(source.hash_at(Height(1)).await.unwrap().is_some());
}

#[tokio::test]
async fn a_node_of_another_network_and_a_strange_address_are_refused() {
    let Some(node) = node() else { return };
    let options = RpcOptions { network: Network::Signet, ..node.options() };
    let error = RpcSource::connect(options).await.map(|_| ()).unwrap_err();
    assert!(
        matches!(&error, RpcError::WrongNetwork { found, wanted: Network::Signet, .. } if found == "main")
    );
    for url in [
        "127.0.0.1:8332",
        "https://127.0.0.1:8332",
        "http://user:pw@127.0.0.1:8332",
        "ftp://x",
        "",
        "http://",
    ] {
        let options = RpcOptions { url: url.to_owned(), ..node.options() };
        let error = RpcClient::new(options).map(|_| ()).unwrap_err();
        assert!(matches!(error, RpcError::BadUrl { .. }), "{url}: {error}");
        assert!(!error.to_string().contains("pw"), "l18: {error}");
    }
}
