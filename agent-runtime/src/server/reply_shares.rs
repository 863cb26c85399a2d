//! Requests that are being read, and replies that wait for their readers, bounded in bytes, with a share for each peer.

use core::fmt;
use core::future::poll_fn;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::Extensions;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::{BoxError, Router};
use hyper::body::{Frame, SizeHint};
use tonic::Status;

use crate::access::Identity;
use crate::shares::{ShareError, Shares};

type OnRefusal = Box<dyn Fn(&ShareError<String>) + Send + Sync>;

/// Encoded requests that are being read, and replies that have not been sent, by who called.
///
/// A request counts as far as it has come, until it is decoded
/// ([`with_bounded_requests`](super::with_bounded_requests)). A reply is encoded as soon as there is one, and counts
/// from then on until it has been written to the connection: until the connection asks for what comes after it. Of a
/// stream, one message counts at a time.
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

    async fn answer(self: Arc<Self>, request: Request, next: Next) -> Response {
        let owner = owner(request.extensions());
        let has_room = self.lock().check(owner.clone(), 0);
        if let Err(error) = has_room {
            return self.refuse(&error).into_http();
        }
        let (head, body) = next.run(request).await.into_parts();
        let mut held = HeldBody { first: None, body, slot: self.slot(owner) };
        match held.encode().await {
            Ok(()) => Response::from_parts(head, Body::new(held)),
            Err(status) => status.into_http(),
        }
    }
}

/// Bounds the replies of `router` by `shares`. Each request has to have an [`Identity`]; those without share one.
pub fn with_reply_shares(router: Router, shares: &Arc<ReplyShares>) -> Router {
    let shares = Arc::clone(shares);
    router.layer(from_fn(move |request: Request, next: Next| Arc::clone(&shares).answer(request, next)))
}

/// Who pays for a call whose head has these extensions.
pub(super) fn owner(extensions: &Extensions) -> String {
    extensions.get::<Identity>().map_or_else(|| "somebody".to_owned(), ToString::to_string)
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

/// The body of a reply, with its first message, encoded.
#[derive(Debug)]
struct HeldBody {
    first: Option<Polled>,
    body: Body,
    slot: Slot,
}

impl HeldBody {
    /// Encodes what there is: before, it is a message in memory of a size that nobody knows.
    async fn encode(&mut self) -> Result<(), Status> {
        let Self { body, slot, first } = self;
        let polled = poll_fn(|context| Poll::Ready(Pin::new(&mut *body).poll_frame(context))).await;
        if let Poll::Ready(polled) = polled {
            slot.hold(length(polled.as_ref()))?;
            *first = Some(polled.map(|frame| frame.map_err(BoxError::from)));
        }
        Ok(())
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
        // More is asked for once the message before has been sent.
        match self.slot.hold(length(polled.as_ref())) {
            Ok(()) => Poll::Ready(polled.map(|frame| frame.map_err(BoxError::from))),
            Err(status) => Poll::Ready(Some(Err(status.into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.first.is_none() { self.body.size_hint() } else { SizeHint::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use axum::routing::get;
    use tower_service::Service as _;

    use super::*;

    const REPLY: usize = 1 << 20;

    fn call(router: &Router, uid: u32) -> Response {
        let mut request = Request::new(Body::empty());
        request.extensions_mut().insert(Identity::User { uid, groups: Vec::new() });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(router.clone().call(request)).unwrap()
    }

    fn is_refused(response: &Response) -> bool {
        let status = response.headers().get("grpc-status").and_then(|status| status.to_str().ok());
        status == Some("8")
    }

    /// Reads all of it, as a connection does.
    fn read(response: Response) -> usize {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(axum::body::to_bytes(response.into_body(), usize::MAX)).unwrap().len()
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
    fn of_a_stream_one_message_counts_at_a_time() {
        let shares = ReplyShares::new(4 * REPLY as u64, |_| {});
        let messages = || (0..100).map(|_| Ok::<_, std::io::Error>(vec![7_u8; REPLY]));
        let body = move || async move { Body::from_stream(tokio_stream::iter(messages())) };
        let router = with_reply_shares(Router::new().route("/", get(body)), &shares);

        assert_eq!(read(call(&router, 1000)), 100 * REPLY);
        assert_eq!(shares.used(), 0);
    }
}
