//! Requests that are being read, and replies that wait for their readers, bounded in bytes, with a share for each peer.

use core::fmt;
use core::future::poll_fn;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::{Extensions, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::{BoxError, Router};
use hyper::body::{Frame, SizeHint};
use tonic::Status;

use super::exchanges::longer;
use crate::access::Identity;
use crate::peers::Peer;
use crate::shares::{ShareError, Shares};

type OnRefusal = Box<dyn Fn(&ShareError<String>) + Send + Sync>;

/// Encoded requests that are being read, and replies that have not been sent, by who called.
///
/// A request counts as far as it has come, until it is decoded
/// ([`with_bounded_requests`](super::with_bounded_requests)). A reply is encoded as soon as there is one. It counts
/// from then on as long as its bytes are in memory, whoever has them: over HTTP/2, a window of one byte makes the
/// connection take all of it. Of a stream, each message counts until it has been written.
pub struct ReplyShares {
    held: Mutex<Shares<String>>,
    on_refusal: OnRefusal,
}

impl fmt::Debug for ReplyShares {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ReplyShares").field("held", &self.lock().used()).finish_non_exhaustive()
    }
}

impl ReplyShares {
    /// At most `limit` bytes of all peers together, of which one may have three times what is free. `on_refusal` is
    /// told of each call that is refused.
    #[must_use]
    pub fn new(limit: u64, on_refusal: impl Fn(&ShareError<String>) + Send + Sync + 'static) -> Arc<Self> {
        let held = Mutex::new(Shares::new(
            "bytes of requests and of replies that were not read",
            "the speed of reading",
            limit,
        ));
        Arc::new(Self { held, on_refusal: Box::new(on_refusal) })
    }

    /// Bytes of all requests that are being read, and of replies that have not been sent.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.lock().used()
    }

    /// A part of them for `owner`; nothing yet.
    pub(super) fn slot(self: &Arc<Self>, owner: String) -> Slot {
        Slot { shares: Arc::clone(self), owner, bytes: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, Shares<String>> {
        // No code under this lock panics. If one did, the state would still be usable.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refuse(&self, error: &ShareError<String>) -> Status {
        (self.on_refusal)(error);
        Status::resource_exhausted(error.to_string())
    }

    async fn answer(self: Arc<Self>, request: Request, next: Next) -> Result<Response, Status> {
        let owner = owner(request.extensions());
        let has_room = self.lock().check(owner.clone(), 0);
        has_room.map_err(|error| self.refuse(&error))?;
        let (head, body) = next.run(request).await.into_parts();
        let mut held = HeldBody { first: None, body, shares: self, owner };
        held.encode().await?;
        Ok(Response::from_parts(head, Body::new(held)))
    }
}

/// Bounds the replies of `router`, which answers gRPC calls, by `shares`. Who pays is the [`Identity`] of a request, or
/// the [`Peer`] of one that has none or is anyone's; those without both share.
pub fn with_reply_shares(router: Router, shares: &Arc<ReplyShares>) -> Router {
    let shares = Arc::clone(shares);
    router.layer(from_fn(move |request: Request, next: Next| {
        let answer = Arc::clone(&shares).answer(request, next);
        async move { answer.await.unwrap_or_else(Status::into_http) }
    }))
}

/// The same for pages: who has its share is told so by the status 503.
pub fn with_page_shares(router: Router, shares: &Arc<ReplyShares>) -> Router {
    let shares = Arc::clone(shares);
    router.layer(from_fn(move |request: Request, next: Next| {
        let answer = Arc::clone(&shares).answer(request, next);
        async move { answer.await.unwrap_or_else(|refused| unavailable(&refused)) }
    }))
}

fn unavailable(refused: &Status) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", refused.message())).into_response()
}

/// Who pays for a call whose head has these extensions.
pub(super) fn owner(extensions: &Extensions) -> String {
    match (extensions.get::<Identity>(), extensions.get::<Peer>()) {
        (None | Some(Identity::Anyone), Some(peer)) => peer.to_string(),
        (Some(identity), _) => identity.to_string(),
        (None, None) => "somebody".to_owned(),
    }
}

/// What one request or reply holds, given back on drop.
#[derive(Debug)]
pub(super) struct Slot {
    shares: Arc<ReplyShares>,
    owner: String,
    bytes: u64,
}

impl Slot {
    /// Holds `bytes` in place of what it held before.
    pub(super) fn hold(&mut self, bytes: u64) -> Result<(), Status> {
        let mut held = self.shares.lock();
        held.release(&self.owner, self.bytes);
        self.bytes = 0;
        let taken = held.take(self.owner.clone(), bytes);
        drop(held);
        taken.map_err(|error| self.shares.refuse(&error))?;
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.shares.lock().release(&self.owner, self.bytes);
    }
}

type Polled = Option<Result<Frame<Bytes>, BoxError>>;

/// Bytes of a reply, which count until they are dropped.
struct HeldBytes {
    bytes: Bytes,
    _slot: Slot,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The body of a reply, with its first message, encoded.
#[derive(Debug)]
struct HeldBody {
    first: Option<Polled>,
    body: Body,
    shares: Arc<ReplyShares>,
    owner: String,
}

impl HeldBody {
    /// Encodes what there is: before, it is a message in memory of a size that nobody knows.
    async fn encode(&mut self) -> Result<(), Status> {
        let body = &mut self.body;
        let polled = poll_fn(|context| Poll::Ready(Pin::new(&mut *body).poll_frame(context))).await;
        if let Poll::Ready(polled) = polled {
            self.first = Some(self.hold(polled)?);
        }
        Ok(())
    }

    /// What was `polled`, which counts from now on.
    fn hold(&self, polled: Option<Result<Frame<Bytes>, axum::Error>>) -> Result<Polled, Status> {
        let frame = match polled {
            Some(Ok(frame)) => frame,
            ended => return Ok(ended.map(|ended| ended.map_err(BoxError::from))),
        };
        let frame = match frame.into_data() {
            Ok(bytes) => {
                let mut slot = self.shares.slot(self.owner.clone());
                slot.hold(bytes.len() as u64)?;
                Frame::data(Bytes::from_owner(HeldBytes { bytes, _slot: slot }))
            }
            Err(trailers) => trailers,
        };
        Ok(Some(Ok(frame)))
    }
}

fn length<E>(polled: Option<&Result<Frame<Bytes>, E>>) -> u64 {
    let Some(Ok(frame)) = polled else { return 0 };
    frame.data_ref().map_or(0, |data| data.len() as u64)
}

impl HttpBody for HeldBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Polled> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(first);
        }
        let polled = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(self.hold(polled).unwrap_or_else(|status| Some(Err(status.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        longer(&self.body.size_hint(), self.first.as_ref().map_or(0, |polled| length(polled.as_ref())))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use axum::routing::get;
    use http_body_util::BodyExt as _;
    use tower_service::Service as _;

    use super::*;

    const REPLY: usize = 1 << 20;

    fn call(router: &Router, uid: u32) -> Response {
        let mut request = Request::new(Body::empty());
        request.extensions_mut().insert(Identity::User { uid, groups: Vec::new() });
        send(router, request)
    }

    fn send(router: &Router, request: Request) -> Response {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(router.clone().call(request)).unwrap()
    }

    fn is_refused(response: &Response) -> bool {
        let status = response.headers().get("grpc-status").and_then(|status| status.to_str().ok());
        status == Some("8")
    }

    /// Reads all of it, as a connection does: what was written is dropped.
    fn read(response: Response) -> usize {
        let (mut body, mut length) = (response.into_body(), 0);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        while let Some(frame) = runtime.block_on(body.frame()) {
            length += frame.unwrap().into_data().unwrap().len();
        }
        length
    }

    #[test]
    fn who_does_not_read_replies_gets_no_more_than_a_share_and_others_are_answered() {
        let refused = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&refused);
        let shares = ReplyShares::new(8 * REPLY as u64, move |_| _ = count.fetch_add(1, Ordering::Relaxed));
        let router = Router::new().route("/", get(|| async { vec![7_u8; REPLY] }));
        let router = with_reply_shares(router, &shares);

        let mut unread: Vec<_> = (0..20).map(|_| call(&router, 1000)).filter(|reply| !is_refused(reply)).collect();

        // Three quarters.
        assert_eq!((unread.len(), shares.used()), (6, 6 * REPLY as u64));
        assert_eq!(refused.load(Ordering::Relaxed), 14);
        let other = call(&router, 1001);
        assert!(!is_refused(&other), "somebody else is answered");
        assert_eq!(read(other), REPLY);
        assert_eq!(shares.used(), 6 * REPLY as u64, "what was read is given back");

        assert_eq!(read(unread.pop().unwrap()), REPLY);
        assert!(!is_refused(&call(&router, 1000)), "who reads is answered again");
        unread.clear();
        assert_eq!(shares.used(), 0, "what was dropped is given back");
    }

    #[test]
    fn who_is_anyone_pays_as_the_peer_that_it_is_and_pages_say_that_they_are_unavailable() {
        let shares = ReplyShares::new(4 * REPLY as u64, |_| {});
        let router = Router::new().route("/", get(|| async { vec![7_u8; REPLY] }));
        let router = with_page_shares(router, &shares);
        let call = |uid| {
            let mut request = Request::new(Body::empty());
            request.extensions_mut().insert(Identity::Anyone);
            request.extensions_mut().insert(Peer::User(uid));
            send(&router, request)
        };

        let unread: Vec<_> = (0..3).map(|_| call(1000)).collect();
        let refused = call(1000);

        assert!(unread.iter().all(|reply| reply.status() == StatusCode::OK));
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        let why = refused.into_body();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let why = runtime.block_on(axum::body::to_bytes(why, 4096)).unwrap();
        assert!(why.starts_with(b"user 1000 would have"), "{why:?}");
        drop(unread);
        let (one, other) = (call(1000), call(1001));
        assert_eq!((one.status(), other.status()), (StatusCode::OK, StatusCode::OK));
    }

    #[test]
    fn bytes_count_until_whoever_has_them_drops_them_and_the_length_of_a_page_is_known() {
        let shares = ReplyShares::new(4 * REPLY as u64, |_| {});
        let router = Router::new().route("/", get(|| async { vec![7_u8; REPLY] }));
        let mut body = call(&with_page_shares(router, &shares), 1000).into_body();
        assert_eq!(body.size_hint().exact(), Some(REPLY as u64));

        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut bytes = runtime.block_on(body.frame()).unwrap().unwrap().into_data().unwrap();
        assert!(body.is_end_stream());
        drop(body);

        assert_eq!(shares.used(), REPLY as u64, "the connection has them");
        let last = bytes.split_off(REPLY - 1);
        drop(bytes);
        assert_eq!(shares.used(), REPLY as u64, "a part keeps all of it in memory");
        drop(last);
        assert_eq!(shares.used(), 0);
    }

    #[test]
    fn of_a_stream_each_message_counts_until_it_is_written() {
        let shares = ReplyShares::new(4 * REPLY as u64, |_| {});
        let messages = || (0..100).map(|_| Ok::<_, std::io::Error>(vec![7_u8; REPLY]));
        let body = move || async move { Body::from_stream(tokio_stream::iter(messages())) };
        let router = with_reply_shares(Router::new().route("/", get(body)), &shares);

        assert_eq!(read(call(&router, 1000)), 100 * REPLY);
        assert_eq!(shares.used(), 0);
    }
}
