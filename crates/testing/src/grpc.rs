//! One HTTP/2 connection for gRPC clients.

use std::task::{Context, Poll};

use futures_util::{FutureExt as _, future::BoxFuture};
use hyper::{Request, Response, Uri, body::Incoming, client::conn::http2::SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::body::Body;

/// What requests over a [`Wire`] are addressed to.
pub fn origin() -> Uri {
    "http://sapwood".parse().unwrap()
}

/// One HTTP/2 connection, with a token or without.
#[derive(Clone)]
pub struct Wire {
    sender: SendRequest<Body>,
    token: Option<String>,
}

impl Wire {
    /// A connection to an address.
    pub async fn to(address: &str) -> Self {
        Self::over(tokio::net::TcpStream::connect(address).await.unwrap()).await
    }

    /// A connection over a stream that is open.
    pub async fn over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        Self::try_over(stream).await.unwrap()
    }

    /// The same, which may be refused.
    pub async fn try_over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> hyper::Result<Self> {
        let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self { sender, token: None })
    }

    /// The same connection, with a token.
    pub fn with_token(self, token: &str) -> Self {
        Self { token: Some(token.into()), ..self }
    }
}

impl tower::Service<Request<Body>> for Wire {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = BoxFuture<'static, hyper::Result<Response<Incoming>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.sender.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if let Some(token) = &self.token {
            request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        self.sender.send_request(request).boxed()
    }
}
