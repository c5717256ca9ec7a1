//! Accepting connections, for every server of this crate.
//!
//! # What protects the server
//! - At most [`ListenOptions::max_connections`], and [`ListenOptions::max_connections_per_peer`] from one address. What comes on top gets one of
//!   [`ListenOptions::reserved_connections`], where one request is answered if it is about health or has the admin token.
//! - The TLS handshake, the first bytes and the head of every HTTP/1 request have to arrive within
//!   [`ListenOptions::header_timeout`]. An HTTP/2 connection is asked now and then whether it still lives.
//! - A client that takes nothing off the line for [`ListenOptions::stall_timeout`] is dropped.
//! - A request is given up after [`ListenOptions::request_timeout`], its body is limited, and a connection has a rate.
//!
//! # Stopping
//! No new connections; those that are idle are closed; requests in flight get a limited time, and then their connections are
//! dropped.

mod bucket;
mod guard;
mod reserve;
mod tls;

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, Request, Response, header},
};
use http_body_util::Limited;
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use sapwood_chain::Stop;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};
use tower::ServiceExt;

pub use self::tls::{TlsError, TlsFiles, TlsReload};
use self::{
    bucket::Bucket,
    guard::{FirstBytes, Guarded},
    reserve::{Reserve, ReservedPlace},
};
use crate::{
    Access, Refusal,
    places::{Full, Place, Places},
    seldom::Seldom,
};

/// How to listen.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// Where. With port 0 the system chooses one.
    pub address: SocketAddr,
    /// Certificate and key, to speak TLS. None by default.
    pub tls: Option<TlsFiles>,
    /// Take HTTP/2 only. On for gRPC: a browser cannot be made to speak it without TLS.
    pub http2_only: bool,
    /// Connections at a time: 1,024 by default.
    pub max_connections: usize,
    /// Connections at a time from one address, or from one network of version 6: 512 by default.
    pub max_connections_per_peer: usize,
    /// Further connections for requests about health or with the admin token, for when there is no other place: 32 by default.
    pub reserved_connections: usize,
    /// How long the TLS handshake, the first bytes and the head of a request may take: 10 s by default. An idle HTTP/1
    /// connection is closed after this too.
    pub header_timeout: Duration,
    /// How long a request may take until its answer begins: 60 s by default. Streams may go on for ever.
    pub request_timeout: Duration,
    /// How long a client may take nothing off the line: 60 s by default.
    pub stall_timeout: Duration,
    /// How often an HTTP/2 client is asked whether it lives: every 30 s by default.
    pub ping_every: Duration,
    /// Bytes of a request's body: 1 MiB by default for HTTP. No limit for gRPC, which limits each message instead.
    pub max_body: Option<usize>,
    /// Requests a second on one connection: 5,000 by default, and as many at once.
    pub requests_per_second: u32,
    /// Requests at a time on one HTTP/2 connection: 128 by default.
    pub max_streams: u32,
}

impl ListenOptions {
    /// The defaults for gRPC.
    pub fn grpc() -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 8096)),
            tls: None,
            http2_only: true,
            max_connections: 1024,
            max_connections_per_peer: 512,
            reserved_connections: 32,
            header_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(60),
            stall_timeout: Duration::from_secs(60),
            ping_every: Duration::from_secs(30),
            max_body: None,
            requests_per_second: 5000,
            max_streams: 128,
        }
    }

    /// The defaults for HTTP.
    pub fn http() -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 8097)),
            http2_only: false,
            max_body: Some(1 << 20),
            ..Self::grpc()
        }
    }
}

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address cannot be had.
    #[error("cannot listen on {address}: {cause}{}", bind_hint(.cause))]
    Bind {
        /// Where.
        address: SocketAddr,
        /// Why not.
        cause: io::Error,
    },
    /// Certificate or key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

fn bind_hint(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::AddrInUse => ". Another program listens there: stop it, or choose another port",
        io::ErrorKind::PermissionDenied => ". Ports below 1024 need privileges: choose a higher one",
        io::ErrorKind::AddrNotAvailable => ". No interface of this machine has that address",
        _ => "",
    }
}

/// The address of the client that sent a request; an extension of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// A socket that listens and does not accept yet.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    tls: Option<TlsReload>,
    options: ListenOptions,
    access: Option<Arc<Access>>,
}

impl Listener {
    /// Begins to listen. Certificate and key are read now, so that what is wrong with them shows at start.
    pub async fn bind(options: ListenOptions) -> Result<Self, ListenError> {
        let alpn: &[&str] = if options.http2_only { &["h2"] } else { &["h2", "http/1.1"] };
        let tls = options.tls.as_ref().map(|files| TlsReload::load(files, alpn)).transpose()?;
        let failed = |cause| ListenError::Bind { address: options.address, cause };
        let socket = TcpListener::bind(options.address).await.map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        Ok(Self { socket, address, tls, options, access: None })
    }

    /// The same, where requests with the admin token are answered when there are too many connections.
    pub fn with_access(self, access: Arc<Access>) -> Self {
        Self { access: Some(access), ..self }
    }

    /// What reads the certificate again. `None` without TLS.
    pub fn tls(&self) -> Option<TlsReload> {
        self.tls.clone()
    }

    /// Where it listens: with port 0 asked for, the port that was chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts connections and answers requests until `stop` is asked, then finishes what is in flight within `stop_within`.
    pub async fn serve(self, router: Router, stop: Stop, stop_within: Duration) {
        let places = Places::new(self.options.max_connections, self.options.max_connections_per_peer);
        let reserve = Reserve::new(self.options.reserved_connections);
        let shared = Arc::new(Connections {
            router,
            tls: self.tls,
            options: self.options,
            access: self.access,
            stop: stop.clone(),
            failed: Seldom::default(),
            refused: Seldom::default(),
        });
        let (full, accept_failed) = (Seldom::default(), Seldom::default());
        let mut tasks = JoinSet::new();
        while let Some(accepted) = stop.or(self.socket.accept()).await {
            while tasks.try_join_next().is_some() {}
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    if let Some(times) = accept_failed.say() {
                        tracing::warn!(%error, times, "a connection could not be accepted");
                    }
                    // Too many open files, most likely: give others time to close some.
                    let _ = stop.or(tokio::time::sleep(Duration::from_millis(100))).await;
                    continue;
                }
            };
            let place = match places.take(Some(peer.ip())) {
                Ok(place) => Seat::Ordinary(place),
                Err(why) => {
                    if let Some(times) = full.say() {
                        let limit = match why {
                            Full::All => shared.options.max_connections,
                            Full::OfThisPeer => shared.options.max_connections_per_peer,
                        };
                        let whose = if why == Full::All { "all peers" } else { "this peer" };
                        tracing::warn!(
                            %peer, limit, whose, times,
                            "too many connections: only requests about health or with the admin token are answered"
                        );
                    }
                    match reserve.take() {
                        Some(place) => Seat::Reserved(place.into()),
                        None => continue,
                    }
                }
            };
            tasks.spawn(Arc::clone(&shared).connection(stream, peer, place));
        }
        drop(self.socket);
        let finished = timeout(stop_within, async { while tasks.join_next().await.is_some() {} }).await;
        if finished.is_err() {
            tracing::warn!(
                connections = tasks.len(),
                ?stop_within,
                "connections were dropped to stop in time"
            );
            tasks.shutdown().await;
        }
    }
}

/// Where a connection sits, for as long as it lasts.
enum Seat {
    Ordinary(#[expect(dead_code, reason = "it counts until it is dropped")] Place),
    Reserved(Arc<ReservedPlace>),
}

/// What all connections of a server share.
struct Connections {
    router: Router,
    tls: Option<TlsReload>,
    options: ListenOptions,
    access: Option<Arc<Access>>,
    stop: Stop,
    failed: Seldom,
    refused: Seldom,
}

type ConnectionError = Box<dyn std::error::Error + Send + Sync>;

/// A client did not say in time what it wants.
#[derive(Debug, thiserror::Error)]
#[error("the client said nothing useful within {0:?}")]
struct TooSlow(Duration);

impl Connections {
    async fn connection(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, seat: Seat) {
        let served = match &seat {
            Seat::Ordinary(_) => self.serve(stream, peer, None).await,
            Seat::Reserved(place) => tokio::select! {
                served = self.serve(stream, peer, Some(place)) => served,
                () = place.until_evicted() => return,
            },
        };
        if let Err(error) = served {
            // Browsers open connections for later and say nothing on them.
            if error.is::<TooSlow>() || error.downcast_ref().is_some_and(hyper::Error::is_timeout) {
                tracing::debug!(%peer, error, "an idle connection was closed");
                return;
            }
            match self.failed.say() {
                Some(times) => tracing::info!(%peer, error, times, "a connection failed"),
                None => tracing::debug!(%peer, error, "a connection failed"),
            }
        }
    }

    async fn serve(
        self: &Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        reserved: Option<&Arc<ReservedPlace>>,
    ) -> Result<(), ConnectionError> {
        // Answers are small and clients wait for them.
        stream.set_nodelay(true)?;
        match &self.tls {
            None => self.http(stream, peer, reserved).await,
            Some(tls) => {
                let Some(secured) = self.in_time(tls.accept(stream)).await? else { return Ok(()) };
                self.http(secured?, peer, reserved).await
            }
        }
    }

    /// What came of it, within the time a client has to say what it wants. Nothing if the server stops.
    async fn in_time<T>(&self, work: impl Future<Output = T>) -> Result<Option<T>, ConnectionError> {
        let limit = self.options.header_timeout;
        match self.stop.or(timeout(limit, work)).await {
            Some(Err(_)) => Err(TooSlow(limit).into()),
            Some(Ok(result)) => Ok(Some(result)),
            None => Ok(None),
        }
    }

    async fn http<S>(
        self: &Arc<Self>,
        mut stream: S,
        peer: SocketAddr,
        reserved: Option<&Arc<ReservedPlace>>,
    ) -> Result<(), ConnectionError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Some(first) = self.in_time(FirstBytes::read(&mut stream)).await? else { return Ok(()) };
        let first = first?;
        if first.is_empty() {
            return Ok(());
        }
        if self.options.http2_only && !first.is_http2() {
            stream.write_all(wrong_protocol().as_bytes()).await?;
            return Ok(stream.shutdown().await?);
        }
        let io = TokioIo::new(Guarded::new(stream, first, self.options.stall_timeout));
        let builder = self.builder();
        let shared = Arc::clone(self);
        let bucket = Arc::new(Bucket::new(self.options.requests_per_second, Instant::now()));
        let place = reserved.cloned();
        let service = hyper::service::service_fn(move |request| {
            Arc::clone(&shared).answer(request, peer, Arc::clone(&bucket), place.clone())
        });
        let connection = builder.serve_connection(io, service);
        tokio::pin!(connection);
        let answered_once = async {
            match reserved {
                Some(place) => place.until_asked().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            done = connection.as_mut() => return done,
            () = self.stop.asked() => {}
            () = answered_once => {}
        }
        connection.as_mut().graceful_shutdown();
        connection.await
    }

    fn builder(&self) -> auto::Builder<TokioExecutor> {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        let options = &self.options;
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(options.header_timeout)
            .max_buf_size(64 << 10);
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(options.ping_every)
            .keep_alive_timeout(options.header_timeout)
            .max_concurrent_streams(options.max_streams)
            .max_header_list_size(16 << 10);
        builder
    }

    async fn answer(
        self: Arc<Self>,
        mut request: Request<Incoming>,
        peer: SocketAddr,
        bucket: Arc<Bucket>,
        reserved: Option<Arc<ReservedPlace>>,
    ) -> Result<Response<Body>, Infallible> {
        if let Some(place) = reserved {
            let belongs = self.belongs_in_the_reserve(&request);
            place.asked(belongs);
            if !belongs {
                return Ok(self.refuse(Refusal::Busy, peer, request.headers()));
            }
        }
        if !bucket.take(Instant::now()) {
            return Ok(self.refuse(
                Refusal::TooManyRequests { per_second: bucket.per_second() },
                peer,
                request.headers(),
            ));
        }
        request.extensions_mut().insert(Peer(peer));
        let request = match self.options.max_body {
            None => request.map(Body::new),
            Some(limit) => {
                let length =
                    request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
                if length
                    .and_then(|length| length.parse().ok())
                    .is_some_and(|length: u64| length > limit as u64)
                {
                    return Ok(self.refuse(Refusal::BodyTooLarge { limit }, peer, request.headers()));
                }
                request.map(|body| Body::new(Limited::new(body, limit)))
            }
        };
        let limit = self.options.request_timeout;
        let headers = request.headers().clone();
        match timeout(limit, self.router.clone().oneshot(request)).await {
            Ok(answered) => answered,
            Err(_) => Ok(self.refuse(Refusal::Timeout { limit }, peer, &headers)),
        }
    }

    /// Whether a request is about health or has the admin token.
    fn belongs_in_the_reserve(&self, request: &Request<Incoming>) -> bool {
        let path = request.uri().path();
        let health = path.starts_with("/health/") || path.starts_with("/grpc.health.v1.Health/");
        health || self.access.as_ref().is_some_and(|access| access.is_admin(request.headers()))
    }

    fn refuse(&self, refusal: Refusal, peer: SocketAddr, request: &HeaderMap) -> Response<Body> {
        if let Some(times) = self.refused.say() {
            tracing::warn!(%peer, %refusal, times, "a request was refused");
        }
        refusal.answer(request)
    }
}

/// For a browser on the port of gRPC.
fn wrong_protocol() -> String {
    let text = "This port speaks gRPC, which is HTTP/2. The status page is on the HTTP port.\n";
    let length = text.len();
    format!(
        "HTTP/1.1 426 Upgrade Required\r\nupgrade: h2c\r\nconnection: upgrade, close\r\ncontent-type: text/plain\r\n\
         content-length: {length}\r\n\r\n{text}"
    )
}
