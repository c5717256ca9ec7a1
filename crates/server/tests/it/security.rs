//! Who may do what over gRPC, TLS, and how much one call may carry.

use std::{fs, path::Path, sync::Arc};

use crate::support::{ADMIN, Setup, Wire, origin};
use bytes::Bytes;
use sapwood_chain::{Event, events::BlockPersisted};
use sapwood_server::{
    ListenOptions, Secret, TlsFiles, Tokens,
    grpc::{
        GrpcLimits,
        proto::{self, chain_client::ChainClient, chain_event, utxo_client::UtxoClient, *},
    },
};
use sapwood_types::Height;
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, ServerName, pem::PemObject},
    },
};
use tonic::Code;

const READ: &str = "read-token-0123456789";

async fn read(wire: Wire) -> Result<(), Code> {
    let asked = UtxoClient::with_origin(wire, origin()).get_counts(GetCountsRequest {}).await;
    asked.map(drop).map_err(|status| status.code())
}

async fn change(wire: Wire) -> Result<(), Code> {
    let asked = UtxoClient::with_origin(wire, origin()).delete(DeleteRequest { txids: vec![] }).await;
    asked.map(drop).map_err(|status| status.code())
}

#[tokio::test]
async fn tokens_say_who_may_do_what() {
    let secret = |text| Some(Secret::new(text).unwrap());
    let tokens = Tokens { read: secret(READ), admin: secret(ADMIN) };
    let server = Setup { tokens, ..Setup::default() }.start().await;
    let wire = server.wire().await;
    let no_token = wire.clone();
    assert_eq!(
        (read(no_token.clone()).await, change(no_token).await),
        (Err(Code::Unauthenticated), Err(Code::Unauthenticated))
    );
    let reader = wire.clone().with_token(READ);
    assert_eq!(
        (read(reader.clone()).await, change(reader.clone()).await),
        (Ok(()), Err(Code::PermissionDenied))
    );
    let admin = wire.clone().with_token(ADMIN);
    assert_eq!((read(admin.clone()).await, change(admin).await), (Ok(()), Ok(())));
    let wrong = wire.clone().with_token("admin-token-012345678");
    assert_eq!(
        (read(wrong.clone()).await, change(wrong).await),
        (Err(Code::Unauthenticated), Err(Code::Unauthenticated))
    );

    // Streams and reflection are reading too; whether the server lives is everybody's business.
    let mut chain = ChainClient::with_origin(wire.clone(), origin());
    assert_eq!(chain.subscribe(SubscribeRequest {}).await.unwrap_err().code(), Code::Unauthenticated);
    ChainClient::with_origin(reader, origin()).subscribe(SubscribeRequest {}).await.unwrap();
    let mut health = tonic_health::pb::health_client::HealthClient::with_origin(wire, origin());
    let request = tonic_health::pb::HealthCheckRequest { service: String::new() };
    let answer = health.check(request).await.unwrap().into_inner();
    assert_eq!(answer.status(), tonic_health::pb::health_check_response::ServingStatus::Serving);
    server.end().await;
}

#[tokio::test]
async fn it_does_not_listen_elsewhere_without_a_token() {
    let elsewhere = || ListenOptions { address: "0.0.0.0:0".parse().unwrap(), ..ListenOptions::grpc() };
    let refused = Setup { listen: elsewhere(), tokens: Tokens::default(), ..Setup::default() }
        .try_start()
        .await
        .err()
        .unwrap();
    assert!(refused.to_string().contains("no token is set"), "{refused}");
    let tokens = Tokens { read: Secret::new(READ).ok(), admin: None };
    let server = Setup { listen: elsewhere(), tokens, ..Setup::default() }.start().await;
    server.end().await;
}

#[tokio::test]
async fn a_call_carries_only_so_much() {
    let limits = GrpcLimits { max_message_bytes: 4000, max_items: 100 };
    let server = Setup { limits, ..Setup::default() }.start().await;
    let mut utxo = server.utxo().await;
    let ids = |count| GetRequest { txids: vec![Bytes::from_static(&[7; 32]); count] };
    assert_eq!(utxo.get(ids(100)).await.unwrap().into_inner().records.len(), 100);
    let refused = utxo.get(ids(101)).await.unwrap_err();
    let said = (refused.code(), refused.message().to_owned());
    assert_eq!(
        said,
        (Code::InvalidArgument, "txids: has 101 items, at most 100 are taken: send several batches".into())
    );
    assert_eq!(
        utxo.get(ids(200)).await.unwrap_err().code(),
        Code::OutOfRange,
        "the message itself is too large"
    );

    // Twenty records of more than 200 bytes each do not fit into an answer of 4,000.
    for number in 0..20u8 {
        let output =
            proto::Output { value: 1, script: Bytes::from_static(&[1; 100]), ..proto::Output::default() };
        let transaction = Transaction {
            txid: Bytes::from(vec![number; 32]),
            outputs: vec![output.clone(), output],
            ..Default::default()
        };
        let new = NewTransaction { transaction: Some(transaction), ..Default::default() };
        let created = utxo.create(CreateRequest { transactions: vec![new], height: Some(1) }).await.unwrap();
        assert_eq!(created.into_inner().succeeded, 1);
    }
    let all =
        |count: u8| GetRequest { txids: (0..count).map(|number| Bytes::from(vec![number; 32])).collect() };
    assert_eq!(utxo.get(all(10)).await.unwrap().into_inner().records.len(), 10);
    let refused = utxo.get(all(20)).await.unwrap_err();
    assert!(refused.code() == Code::ResourceExhausted && refused.message().contains("fewer"), "{refused}");
    server.end().await;
}

#[tokio::test]
async fn a_slow_subscriber_learns_how_much_it_missed_and_a_stop_ends_its_stream() {
    let server = Setup { events_kept: 4, ..Setup::default() }.start().await;
    let mut events = server.chain().await.subscribe(SubscribeRequest {}).await.unwrap().into_inner();
    events.message().await.unwrap().unwrap();
    // One thread runs everything here, so nobody can listen in between.
    for height in 1..=100 {
        server.chain.events().tell(Event::BlockPersisted(BlockPersisted { height: Height(height) }));
    }
    let next = async |events: &mut tonic::Streaming<ChainEvent>| {
        events.message().await.unwrap().unwrap().event.unwrap()
    };
    match next(&mut events).await {
        chain_event::Event::Missed(missed) => {
            assert_eq!((missed.events, missed.standing.unwrap().block_persisted), (96, Some(100)));
        }
        other => panic!("{other:?}"),
    }
    for height in 97..=100 {
        assert_eq!(
            next(&mut events).await,
            chain_event::Event::BlockPersisted(proto::BlockPersisted { height })
        );
    }
    server.end().await;
    let ended = events.message().await.unwrap_err();
    assert_eq!((ended.code(), ended.message()), (Code::Unavailable, "the server is stopping"));
}

fn certificate(directory: &Path, name: &str) -> TlsFiles {
    let made = rcgen::generate_simple_self_signed(vec!["sapwood.test".to_owned()]).unwrap();
    let files = TlsFiles {
        certificate: directory.join(format!("{name}.pem")),
        key: directory.join(format!("{name}.key")),
    };
    fs::write(&files.certificate, made.cert.pem()).unwrap();
    fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    files
}

fn with_tls(files: TlsFiles) -> Setup {
    let setup = Setup::default();
    Setup { listen: ListenOptions { tls: Some(files), ..setup.listen.clone() }, ..setup }
}

/// A connection over TLS of a client that trusts just this certificate.
async fn secured(address: std::net::SocketAddr, trusted: &TlsFiles) -> std::io::Result<Wire> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&trusted.certificate).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let mut config = builder
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("sapwood.test").unwrap();
    Ok(Wire::over(TlsConnector::from(Arc::new(config)).connect(name, stream).await?).await)
}

#[tokio::test]
async fn tls_is_spoken_and_only_tls() {
    let directory = tempfile::tempdir().unwrap();
    let (ours, other) = (certificate(directory.path(), "ours"), certificate(directory.path(), "other"));
    let server = with_tls(ours.clone()).start().await;
    assert_eq!(read(secured(server.address, &ours).await.unwrap()).await, Ok(()));
    assert!(secured(server.address, &other).await.is_err(), "another certificate is not trusted");
    let plain = Wire::over(TcpStream::connect(server.address).await.unwrap()).await;
    assert!(read(plain).await.is_err(), "without TLS there is no answer");
    server.end().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_certificate_is_said_at_start() {
    let directory = tempfile::tempdir().unwrap();
    let (ours, other) = (certificate(directory.path(), "ours"), certificate(directory.path(), "other"));
    let (missing, empty) = (directory.path().join("missing"), directory.path().join("empty"));
    fs::write(&empty, "nothing here").unwrap();
    let cases = [
        (TlsFiles { certificate: missing.clone(), ..ours.clone() }, vec!["cannot read", "missing"]),
        (TlsFiles { certificate: empty.clone(), ..ours.clone() }, vec!["empty", "no certificate"]),
        (TlsFiles { key: empty, ..ours.clone() }, vec!["empty", "no private key"]),
        (TlsFiles { key: other.key, ..ours }, vec!["ours.pem", "other.key", "cannot be used together"]),
    ];
    for (files, words) in cases {
        let said = with_tls(files).try_start().await.err().unwrap().to_string();
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    }
}
