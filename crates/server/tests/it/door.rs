//! One door policy: who may change what over gRPC, what is logged of it, and what a follower refuses.

use std::{
    fs,
    io::Write,
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::support::{ADMIN, Server, Setup, Wire, origin};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use sapwood_chain::ChainState;
use sapwood_server::{
    ListenOptions, Secret, TlsFiles, Tokens,
    grpc::{
        Feed,
        proto::{self, chain_client::ChainClient, pruner_client::PrunerClient, utxo_client::UtxoClient, *},
    },
};
use tokio::net::TcpStream;
use tonic::{Code, Status};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tower::Service as _;

/// Everything that is logged. One thread runs a test here, so it hears no other.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn listen() -> (Self, tracing::subscriber::DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing_subscriber::filter::LevelFilter::INFO)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    fn lines(&self, with: &str) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| line.contains(with)).map(str::to_owned).collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        std::io::Write::write(&mut *self.0.lock().unwrap(), bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn outpoint() -> proto::OutPoint {
    proto::OutPoint { txid: Bytes::from_static(&[7; 32]), vout: 3 }
}

/// What the trial did to a node with nothing but its address.
async fn attack(wire: &Wire) -> Vec<Status> {
    let mut utxo = UtxoClient::with_origin(wire.clone(), origin());
    let mut chain = ChainClient::with_origin(wire.clone(), origin());
    let mut pruner = PrunerClient::with_origin(wire.clone(), origin());
    let create = CreateRequest { transactions: vec![], height: Some(1) };
    let policy = SetPolicyRequest { retention: Some(1), ..SetPolicyRequest::default() };
    let assembly = SetBlockAssemblyRequest { running: Some(false), height: None };
    vec![
        utxo.freeze(FreezeRequest { outpoints: vec![outpoint()] }).await.unwrap_err(),
        utxo.create(create).await.unwrap_err(),
        pruner.set_policy(policy).await.unwrap_err(),
        chain.set_block_assembly(assembly).await.unwrap_err(),
    ]
}

#[tokio::test]
async fn c3_changes_over_grpc_need_the_admin_token_on_loopback_too() {
    let server = Setup::default().start().await;
    let wire = server.wire().await;
    for status in attack(&wire).await {
        assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    }
    for status in attack(&wire.clone().with_token("a-token-that-was-guessed")).await {
        assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    }
    let read = UtxoClient::with_origin(wire, origin()).get_counts(GetCountsRequest {}).await;
    assert!(read.is_ok(), "reading is open on loopback");
    assert!(server.pruner.holds().get("block-assembly").is_none());
    server.end().await;

    // Without any token nothing can be changed either; it used to be open to every local process.
    let server = Setup { tokens: Tokens::default(), ..Setup::default() }.start().await;
    for status in attack(&server.wire().await).await {
        assert_eq!(status.code(), Code::PermissionDenied, "{status}");
    }
    server.end().await;
}

/// The code of the problem in a status.
fn problem(status: &Status) -> ProblemCode {
    #[derive(Clone, PartialEq, prost::Message)]
    struct Rich {
        #[prost(message, repeated, tag = "3")]
        details: Vec<Any>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    struct Any {
        #[prost(bytes = "vec", tag = "2")]
        value: Vec<u8>,
    }
    use prost::Message as _;
    let rich = Rich::decode(status.details()).unwrap();
    Problem::decode(&rich.details[0].value[..]).unwrap().code()
}

#[tokio::test]
async fn c3_a_follower_takes_no_utxo_writes_and_freezes_only_if_allowed() {
    let closed =
        |utxo_admin| Setup { feed: Feed::Closed { source: "files".into(), utxo_admin }, ..Setup::default() };
    let server = closed(false).start().await;
    let before = server.chain.store().state_digest().await.unwrap();
    let mut utxo = server.utxo().await;
    let create = CreateRequest { transactions: vec![], height: Some(1) };
    let refused = utxo.create(create).await.unwrap_err();
    assert_eq!((refused.code(), problem(&refused)), (Code::FailedPrecondition, ProblemCode::NotFed));
    assert!(refused.message().contains("follows files"), "{refused}");
    let refused = utxo.freeze(FreezeRequest { outpoints: vec![outpoint()] }).await.unwrap_err();
    assert_eq!(
        (refused.code(), problem(&refused)),
        (Code::FailedPrecondition, ProblemCode::UtxoAdminDisabled)
    );
    assert!(refused.message().contains("servers.allow_utxo_admin = true"), "{refused}");
    assert_eq!(server.chain.store().state_digest().await.unwrap(), before);
    server.end().await;

    let server = closed(true).start().await;
    let answer = server.utxo().await.freeze(FreezeRequest { outpoints: vec![outpoint()] }).await.unwrap();
    assert_eq!(answer.into_inner().failed[0].code(), ProblemCode::NotFound, "it gets as far as the store");
    server.end().await;
}

#[tokio::test]
async fn c3_every_change_over_grpc_is_logged_with_who_and_what() {
    let (log, _guard) = Log::listen();
    let server = Setup::default().start().await;
    server.utxo().await.freeze(FreezeRequest { outpoints: vec![outpoint()] }).await.unwrap();
    let policy = SetPolicyRequest { retention: Some(1), ..SetPolicyRequest::default() };
    server.pruner().await.set_policy(policy).await.unwrap_err();
    server.utxo().await.get_counts(GetCountsRequest {}).await.unwrap();
    let lines = log.lines("audit");
    assert_eq!(lines.len(), 2, "reading is no change: {lines:#?}");
    let txid = "07".repeat(32);
    for words in ["127.0.0.1:", "role=\"admin\"", "sapwood.v1.Utxo/Freeze", &txid, "vout=3", "outcome=\"Ok\""]
    {
        assert!(lines[0].contains(words), "{words} is not in {}", lines[0]);
    }
    for words in ["sapwood.v1.Pruner/SetPolicy", "retention=1", "outcome=\"InvalidArgument\""] {
        assert!(lines[1].contains(words), "{words} is not in {}", lines[1]);
    }
    assert!(log.lines(ADMIN).is_empty(), "tokens are never logged");
    server.end().await;
}

#[tokio::test]
async fn l18_a_refused_token_is_logged_with_its_peer() {
    let (log, _guard) = Log::listen();
    let server = Setup::default().start().await;
    let stream = TcpStream::connect(server.address).await.unwrap();
    let peer = stream.local_addr().unwrap().to_string();
    let wire = Wire::over(stream).await.with_token("a-token-that-was-guessed");
    attack(&wire).await;
    let lines = log.lines("a request was refused");
    assert!(lines.len() == 1 && lines[0].contains(&peer), "{peer}: {lines:#?}");
    assert!(log.lines("guessed").is_empty() && log.lines("audit").is_empty());
    server.end().await;
}

#[tokio::test]
async fn m17_malformed_protobuf_is_an_invalid_argument() {
    let server = Setup::default().start().await;
    let mut wire = server.admin().await;
    for message in [&[0xff; 3][..], &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f], &[0x08]] {
        for method in ["Utxo/Get", "Utxo/Freeze", "Pruner/SetHold"] {
            let body = [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat();
            let request = Request::post(format!("{}sapwood.v1.{method}", origin()))
                .header("content-type", "application/grpc")
                .header("te", "trailers")
                .body(tonic::body::Body::new(Full::new(Bytes::from(body))))
                .unwrap();
            let answer = wire.call(request).await.unwrap();
            let at_once = answer.headers().get("grpc-status").cloned();
            let rest = answer.into_body().collect().await.unwrap();
            let later = rest.trailers().and_then(|trailers| trailers.get("grpc-status")).cloned();
            assert_eq!(at_once.or(later).unwrap(), "3", "{method} with {message:?}");
        }
    }
    server.end().await;
}

async fn health_of(server: &Server, service: &str) -> ServingStatus {
    let mut health = HealthClient::with_origin(server.wire().await, origin());
    health.check(HealthCheckRequest { service: service.into() }).await.unwrap().into_inner().status()
}

/// Polls until all services tell this.
async fn becomes(server: &Server, wanted: ServingStatus) {
    for service in ["", "sapwood.v1.Utxo", "sapwood.v1.Chain", "sapwood.v1.Pruner"] {
        let told = async {
            while health_of(server, service).await != wanted {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), told).await.expect(service);
    }
}

#[tokio::test]
async fn c1_grpc_health_follows_readiness() {
    let server = Setup { with_node: true, ..Setup::default() }.start().await;
    let sampling = server.node.keep_sampling(Duration::from_millis(20));
    becomes(&server, ServingStatus::NotServing).await;
    server.chain.events().enter(ChainState::Running);
    becomes(&server, ServingStatus::Serving).await;
    server.chain.events().enter(ChainState::Stopped);
    becomes(&server, ServingStatus::NotServing).await;
    sampling.abort();
    server.end().await;
}

/// A place of its own for one certificate after the other.
fn certificate(files: &TlsFiles) -> Vec<u8> {
    let made = rcgen::generate_simple_self_signed(vec!["sapwood.test".to_owned()]).unwrap();
    fs::write(&files.certificate, made.cert.pem()).unwrap();
    fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    made.cert.der().to_vec()
}

/// The certificate a server shows.
async fn shown(address: std::net::SocketAddr) -> Vec<u8> {
    use tokio_rustls::rustls::{
        ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
        client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        crypto::ring,
        pki_types::{CertificateDer, ServerName, UnixTime},
    };
    /// Looks at any certificate.
    #[derive(Debug)]
    struct Any;
    impl ServerCertVerifier for Any {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            ring::default_provider().signature_verification_algorithms.supported_schemes()
        }
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Any))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("sapwood.test").unwrap();
    let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

#[tokio::test]
async fn m12_a_certificate_is_read_again_and_a_bad_one_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let files =
        TlsFiles { certificate: directory.path().join("cert.pem"), key: directory.path().join("key.pem") };
    let first = certificate(&files);
    let listen = ListenOptions { tls: Some(files.clone()), ..Setup::default().listen };
    let server = Setup { listen, ..Setup::default() }.start().await;
    assert_eq!(shown(server.address).await, first);
    let second = certificate(&files);
    assert_ne!(first, second);
    assert_eq!(shown(server.address).await, first, "not before it is asked for");
    server.tls.as_ref().unwrap().reload(&files).unwrap();
    assert_eq!(shown(server.address).await, second);
    fs::write(&files.key, "torn").unwrap();
    server.tls.as_ref().unwrap().reload(&files).unwrap_err();
    assert_eq!(shown(server.address).await, second);
    server.end().await;
}

#[tokio::test]
async fn m10_health_and_the_admin_token_get_in_over_grpc_when_all_places_are_taken() {
    let listen = ListenOptions {
        max_connections: 2,
        max_connections_per_peer: 2,
        reserved_connections: 1,
        ..Setup::default().listen
    };
    let server =
        Setup { listen, tokens: Tokens { read: None, admin: Secret::new(ADMIN).ok() }, ..Setup::default() }
            .start()
            .await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let wire = server.wire().await;
        UtxoClient::with_origin(wire.clone(), origin()).get_counts(GetCountsRequest {}).await.unwrap();
        held.push(wire);
    }
    for _ in 0..3 {
        assert_eq!(health_of(&server, "").await, ServingStatus::Serving);
        server.utxo().await.delete(DeleteRequest { txids: vec![] }).await.unwrap();
        let mut stranger = UtxoClient::with_origin(server.wire().await, origin());
        let refused = stranger.get_counts(GetCountsRequest {}).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    }
    drop(held);
    server.end().await;
}
