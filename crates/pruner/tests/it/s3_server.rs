//! A real S3 server on a loopback port, over a temporary directory, and trouble on the way to it.
//!
//! `s3s-fs`: it speaks the signed protocol over TCP, checks signatures, and comes from the package registry, so that nothing has to be
//! installed. In front of it each request can be denied, delayed, dropped or answered with a failure.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use parking_lot::Mutex;
use s3s::{auth::SimpleAuth, service::S3ServiceBuilder};
use s3s_fs::FileSystem;
use sapwood_pruner::{Bodies, BodyLocation, S3Config, S3Credentials};
use tempfile::TempDir;
use tokio::{net::TcpListener, task::JoinSet};

const KEY: &str = "sapwood";
const SECRET: &str = "the secret of the tests";
const BUCKET: &str = "bodies";

/// What happens to requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    None,
    /// Deleting is forbidden.
    DenyDeletes,
    /// Writing is forbidden.
    DenyPuts,
    /// Writing is answered "not found".
    NoBucket,
    /// Requests are never answered.
    Silence,
    /// Deletions are answered "not found".
    NotFound,
    /// Every answer takes its time.
    Slow(Duration),
    /// So many requests fail before one gets through.
    FailTimes(u32),
}

pub(crate) struct S3Server {
    pub(crate) directory: TempDir,
    pub(crate) trouble: Arc<Mutex<Trouble>>,
    /// Method and path of every request.
    pub(crate) seen: Arc<Mutex<Vec<String>>>,
    address: SocketAddr,
    _server: JoinSet<()>,
}

impl S3Server {
    pub(crate) async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join(BUCKET)).unwrap();
        let mut builder = S3ServiceBuilder::new(FileSystem::new(directory.path()).unwrap());
        builder.set_auth(SimpleAuth::from_single(KEY, SECRET));
        let service = builder.build();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let trouble = Arc::new(Mutex::new(Trouble::None));
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let mut server = JoinSet::new();
        let (troubled, noted) = (Arc::clone(&trouble), Arc::clone(&seen));
        server.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let (service, trouble, seen) = (service.clone(), Arc::clone(&troubled), Arc::clone(&noted));
                let answer =
                    hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                        let (service, trouble, seen) =
                            (service.clone(), Arc::clone(&trouble), Arc::clone(&seen));
                        async move {
                            seen.lock().push(format!("{} {}", request.method(), request.uri().path()));
                            match meet(&trouble, request.method()).await {
                                Some(status) => Ok(hyper::Response::builder()
                                    .status(status)
                                    .body(s3s::Body::empty())
                                    .unwrap()),
                                None => service.call(request.map(s3s::Body::from)).await,
                            }
                        }
                    });
                connections.spawn(async move {
                    // A client that goes away is no concern of the server.
                    let connection = auto::Builder::new(TokioExecutor::new());
                    let _ = connection.serve_connection(TokioIo::new(socket), answer).await;
                });
            }
        });
        S3Server { directory, trouble, seen, address, _server: server }
    }

    pub(crate) fn config(&self) -> S3Config {
        let credentials = S3Credentials { access_key_id: KEY.into(), secret_access_key: SECRET.into() };
        S3Config {
            endpoint: Some(format!("http://{}", self.address)),
            credentials: Some(credentials),
            allow_http: true,
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(20),
            retries: 2,
            ..S3Config::bucket(BUCKET)
        }
    }

    pub(crate) fn bodies(&self) -> Bodies {
        Bodies::open(&BodyLocation::S3(self.config())).unwrap()
    }

    pub(crate) fn set(&self, trouble: Trouble) {
        *self.trouble.lock() = trouble;
    }

    pub(crate) fn objects(&self) -> usize {
        fn files(directory: &std::path::Path) -> usize {
            let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
            let count = |entry: std::fs::DirEntry| {
                if entry.file_type().unwrap().is_dir() { files(&entry.path()) } else { 1 }
            };
            entries.map(count).sum()
        }
        files(&self.directory.path().join(BUCKET))
    }
}

/// The status to answer with instead of asking the server, if any.
async fn meet(trouble: &Mutex<Trouble>, method: &hyper::Method) -> Option<hyper::StatusCode> {
    let is_delete = method == hyper::Method::DELETE;
    let now = *trouble.lock();
    match now {
        Trouble::None => None,
        Trouble::DenyDeletes => is_delete.then_some(hyper::StatusCode::FORBIDDEN),
        Trouble::DenyPuts => (method == hyper::Method::PUT).then_some(hyper::StatusCode::FORBIDDEN),
        Trouble::NoBucket => (method == hyper::Method::PUT).then_some(hyper::StatusCode::NOT_FOUND),
        Trouble::NotFound => is_delete.then_some(hyper::StatusCode::NOT_FOUND),
        Trouble::Silence => std::future::pending().await,
        Trouble::Slow(delay) => {
            tokio::time::sleep(delay).await;
            None
        }
        Trouble::FailTimes(0) => None,
        Trouble::FailTimes(left) => {
            *trouble.lock() = Trouble::FailTimes(left - 1);
            Some(hyper::StatusCode::INTERNAL_SERVER_ERROR)
        }
    }
}
