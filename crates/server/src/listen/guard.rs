//! A connection under guard: its first bytes are looked at, and a client that takes nothing off the line is dropped.

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf},
    time::{Instant, Sleep},
};

/// What every HTTP/2 connection begins with.
const HTTP2: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The first bytes of a connection: as many as it takes to tell HTTP/2 from HTTP/1.
#[derive(Debug, Default)]
pub(super) struct FirstBytes {
    bytes: [u8; HTTP2.len()],
    read: usize,
    given: usize,
}

impl FirstBytes {
    /// Reads them. None at all if the client hung up.
    pub(super) async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let mut first = Self::default();
        while first.read < HTTP2.len() && HTTP2.starts_with(&first.bytes[..first.read]) {
            match from.read(&mut first.bytes[first.read..]).await? {
                0 => break,
                read => first.read += read,
            }
        }
        Ok(first)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.read == 0
    }

    pub(super) fn is_http2(&self) -> bool {
        self.bytes[..self.read] == HTTP2[..]
    }

    fn give(&mut self, to: &mut ReadBuf<'_>) -> bool {
        let left = &self.bytes[self.given..self.read];
        let given = left.len().min(to.remaining());
        to.put_slice(&left[..given]);
        self.given += given;
        given > 0
    }
}

/// A stream whose first bytes were read already, and which fails when nothing can be written to it for too long.
pub(super) struct Guarded<S> {
    stream: S,
    first: FirstBytes,
    limit: Duration,
    /// Runs while the client takes nothing.
    stalled: Pin<Box<Sleep>>,
    is_stalled: bool,
}

impl<S> Guarded<S> {
    pub(super) fn new(stream: S, first: FirstBytes, limit: Duration) -> Self {
        Self { stream, first, limit, stalled: Box::pin(tokio::time::sleep(limit)), is_stalled: false }
    }

    /// Lets a write wait, but not for ever.
    fn watch<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.is_stalled = false;
            return written;
        }
        if !self.is_stalled {
            self.is_stalled = true;
            self.stalled.as_mut().reset(Instant::now() + self.limit);
        }
        ready!(self.stalled.as_mut().poll(cx));
        let problem = format!("the client took nothing off the line for {:?}", self.limit);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, problem)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.give(buf) {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.watch(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.watch(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.watch(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.watch(cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn the_first_bytes_tell_the_protocol_and_are_read_again() {
        for (sent, http2) in [(&HTTP2[..], true), (b"PRI * HTTP/1.1\r\n", false), (b"POST / HTTP/1.1", false)]
        {
            let (mut client, mut server) = tokio::io::duplex(7);
            let send = async {
                client.write_all(sent).await.unwrap();
                client.write_all(b" and more").await.unwrap();
                drop(client);
            };
            let receive = async {
                let first = FirstBytes::read(&mut server).await.unwrap();
                assert_eq!((first.is_http2(), first.is_empty()), (http2, false));
                let mut all = Vec::new();
                Guarded::new(server, first, Duration::from_secs(60)).read_to_end(&mut all).await.unwrap();
                assert_eq!(all, [sent, b" and more"].concat());
            };
            tokio::join!(send, receive);
        }
        let (client, mut server) = tokio::io::duplex(7);
        drop(client);
        assert!(FirstBytes::read(&mut server).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_client_that_takes_nothing_is_dropped() {
        let (mut client, server) = tokio::io::duplex(4);
        let mut guarded = Guarded::new(server, FirstBytes::default(), Duration::from_millis(20));
        guarded.write_all(b"1234").await.unwrap();
        let error = guarded.write_all(b"5").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        client.read_exact(&mut [0; 4]).await.unwrap();
        guarded.write_all(b"5").await.expect("it goes on once the client takes something");
    }
}
