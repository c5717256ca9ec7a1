//! Every change that comes in over REST or gRPC, in the log: who asked for it, what it was, and what came of it.
//!
//! One line for each, of level `info` with the target `audit`. A change that was refused for its token is no change; that is logged by
//! [`Access`](crate::Access). The log has no tokens: they travel in a header, and only bodies are shown.

use std::{future::Future, sync::Arc};

use axum::{body::Body, extract::Request, middleware::Next, response::Response};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;

use crate::{Caller, access::Shown, refusal::is_grpc};

/// Bytes of a body that are looked at. What is larger is told by its size.
const LOOKED_AT: usize = 16 << 10;
/// Characters of the arguments that are logged.
const SHOWN: usize = 400;

tokio::task_local! {
    /// Who asks for the change that is being made, once that is known.
    static CALLER: Arc<Mutex<Option<Caller>>>;
}

/// Says who asks for the change that the current request makes. Until then it is not logged.
pub(crate) fn caller_is(caller: Caller) {
    // Outside of a request there is no one to name.
    let _ = CALLER.try_with(|slot| *slot.lock() = Some(caller));
}

/// The beginning of a request's body, copied while it is read.
#[derive(Clone, Default)]
pub(crate) struct Copied(Arc<Mutex<(Vec<u8>, usize)>>);

impl Copied {
    /// The same request, whose body is copied while it is read.
    pub(crate) fn of(request: Request) -> (Request, Self) {
        let copied = Self::default();
        let copy = copied.clone();
        let request = request.map(|body| {
            Body::new(body.map_frame(move |frame| {
                if let Some(data) = frame.data_ref() {
                    let (bytes, length) = &mut *copy.0.lock();
                    *length += data.len();
                    bytes.extend_from_slice(&data[..data.len().min(LOOKED_AT - bytes.len())]);
                }
                frame
            }))
        });
        (request, copied)
    }

    /// The body in words, as far as it was read.
    fn show(&self, decode: impl FnOnce(&[u8]) -> Option<String>) -> String {
        let (bytes, length) = &*self.0.lock();
        let whole = *length == bytes.len();
        match decode(bytes).filter(|_| whole) {
            Some(text) => shorten(text),
            None => format!("{length} bytes"),
        }
    }
}

fn shorten(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(SHOWN) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// A change that is being made. Logged when it is dropped, so that one that is given up half-way is logged as well.
struct Change<F: FnOnce(&[u8]) -> Option<String>> {
    door: &'static str,
    operation: String,
    caller: Arc<Mutex<Option<Caller>>>,
    copied: Copied,
    decode: Option<F>,
    outcome: String,
}

impl<F: FnOnce(&[u8]) -> Option<String>> Drop for Change<F> {
    fn drop(&mut self) {
        let (Some(caller), Some(decode)) = (*self.caller.lock(), self.decode.take()) else { return };
        if !tracing::enabled!(target: "audit", tracing::Level::INFO) {
            return;
        }
        let arguments = self.copied.show(decode);
        tracing::info!(
            target: "audit",
            peer = %Shown(caller.peer),
            role = caller.role.name(),
            door = self.door,
            operation = self.operation,
            arguments,
            outcome = self.outcome,
            "a change was asked for"
        );
    }
}

/// Has a change made, and logs it. `decode` puts the body of the request into words.
pub(crate) async fn watch(
    door: &'static str,
    operation: String,
    caller: Option<Caller>,
    copied: Copied,
    decode: impl FnOnce(&[u8]) -> Option<String>,
    work: impl Future<Output = Response>,
) -> Response {
    let caller = Arc::new(Mutex::new(caller));
    let mut change = Change {
        door,
        operation,
        caller: Arc::clone(&caller),
        copied,
        decode: Some(decode),
        outcome: "given up: the client hung up, or it took too long".into(),
    };
    let response = CALLER.scope(caller, work).await;
    change.outcome = outcome(&response);
    response
}

/// What came of it, in the words of the protocol.
fn outcome(response: &Response) -> String {
    if !is_grpc(response.headers()) {
        return response.status().as_u16().to_string();
    }
    // Only a call that failed has its status in the headers.
    let code = response.headers().get("grpc-status").map(|code| tonic::Code::from_bytes(code.as_bytes()));
    format!("{:?}", code.unwrap_or(tonic::Code::Ok))
}

/// Logs every change over HTTP: each request that may change something and that passed the check for the admin token.
pub(crate) async fn http(request: Request, next: Next) -> Response {
    if request.method().is_safe() {
        return next.run(request).await;
    }
    let operation = format!("{} {}", request.method(), request.uri());
    let (request, copied) = Copied::of(request);
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_owned);
    watch("http", operation, None, copied, text, next.run(request)).await
}
