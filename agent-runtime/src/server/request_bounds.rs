//! Requests, bounded before they are read: who may send one at all, how long it may be, how long it may take, and what
//! all that are being read may hold.

use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::request::Parts;
use axum::middleware::{Next, from_fn};
use axum::{BoxError, Router};
use hyper::body::{Frame, SizeHint};
use tokio::time::{Sleep, sleep};
use tonic::Status;

use super::reply_shares::{ReplyShares, Slot, owner};

/// The head of a request that may be read.
#[derive(Debug)]
pub struct AdmittedRequest {
    /// The head, perhaps with more extensions.
    pub head: Parts,
    /// Maximum bytes of the body.
    pub bytes: usize,
}

/// Bounds the requests of `router`. `admit` sees the head of each, and refuses it or says how long the body may be:
/// nothing of the body is read before. From then on the body has to come `within` this time, and what has come counts
/// for the sender in `shares`. For calls with one message: a stream of messages has no end.
pub fn with_bounded_requests<A, F>(router: Router, within: Duration, shares: &Arc<ReplyShares>, admit: A) -> Router
where
    A: Fn(Parts) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<AdmittedRequest, Status>> + Send,
{
    let shares = Arc::clone(shares);
    router.layer(from_fn(move |request: Request, next: Next| {
        let (shares, admit) = (Arc::clone(&shares), admit.clone());
        async move {
            let (head, body) = request.into_parts();
            match admit(head).await {
                Ok(AdmittedRequest { head, bytes }) => {
                    let slot = shares.slot(owner(&head.extensions));
                    let deadline = Box::pin(sleep(within));
                    let body = BoundedBody { body, deadline, within, received: 0, limit: bytes, slot };
                    next.run(Request::from_parts(head, Body::new(body))).await
                }
                Err(status) => status.into_http(),
            }
        }
    }))
}

#[derive(Debug)]
struct BoundedBody {
    body: Body,
    deadline: Pin<Box<Sleep>>,
    within: Duration,
    received: usize,
    limit: usize,
    slot: Slot,
}

impl BoundedBody {
    /// Counts the bytes of a frame that has come.
    fn count(&mut self, bytes: usize) -> Result<(), Status> {
        let Self { received, limit, .. } = *self;
        self.received = received.saturating_add(bytes);
        if self.received > limit {
            return Err(Status::out_of_range(format!("the request has more than {limit} bytes, which is its limit")));
        }
        self.slot.hold(self.received as u64)
    }
}

impl HttpBody for BoundedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            let Some(Ok(frame)) = frame else { return Poll::Ready(frame.map(|frame| frame.map_err(BoxError::from))) };
            let counted = self.count(frame.data_ref().map_or(0, Bytes::len));
            return Poll::Ready(Some(counted.map(|()| frame).map_err(BoxError::from)));
        }
        ready!(self.deadline.as_mut().poll(context));
        let late = format!("the request was not complete after {:?}", self.within);
        Poll::Ready(Some(Err(Status::deadline_exceeded(late).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use axum::response::Response;
    use axum::routing::post;
    use tokio::sync::mpsc;
    use tokio_stream::wrappers::ReceiverStream;
    use tower_service::Service as _;

    use super::*;
    use crate::access::Identity;

    const CHUNK: usize = 1 << 10;
    /// No chunk waits for room.
    const CHUNKS: usize = 16;

    fn user(uid: u32) -> Identity {
        Identity::User { uid, groups: Vec::new() }
    }

    /// Answers how long the body was, or why it cannot be read. User 7 may send nothing.
    fn router(shares: &Arc<ReplyShares>, within: Duration) -> Router {
        let length = async |body: Body| match axum::body::to_bytes(body, usize::MAX).await {
            Ok(bytes) => bytes.len().to_string(),
            Err(error) => error.to_string(),
        };
        with_bounded_requests(Router::new().route("/", post(length)), within, shares, async |head: Parts| {
            if head.extensions.get::<Identity>() == Some(&user(7)) {
                return Err(Status::permission_denied("user 7 may not"));
            }
            Ok(AdmittedRequest { head, bytes: 8 * CHUNK })
        })
    }

    async fn call(router: Router, uid: u32, body: Body) -> Response {
        let mut request = Request::post("/").body(body).unwrap();
        request.extensions_mut().insert(user(uid));
        let mut router = router;
        router.call(request).await.unwrap()
    }

    async fn text(response: Response) -> String {
        String::from_utf8(axum::body::to_bytes(response.into_body(), CHUNK).await.unwrap().to_vec()).unwrap()
    }

    type Chunks = mpsc::Sender<Result<Vec<u8>, std::io::Error>>;

    /// A body of `chunks`, which goes on as long as the sender is kept.
    fn body(chunks: usize) -> (Chunks, Body) {
        let (sender, receiver) = mpsc::channel(CHUNKS);
        (0..chunks).for_each(|_| sender.try_send(Ok(vec![7; CHUNK])).unwrap());
        (sender, Body::from_stream(ReceiverStream::new(receiver)))
    }

    #[tokio::test]
    async fn of_who_may_not_call_no_byte_is_read() {
        let router = router(&ReplyShares::new(1 << 20, |_| {}), Duration::from_mins(1));
        let is_read = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_read);
        let chunks = core::iter::repeat_with(move || {
            seen.store(true, Ordering::Relaxed);
            Ok::<_, std::io::Error>(vec![7_u8; CHUNK])
        });
        let endless = Body::from_stream(tokio_stream::iter(chunks));

        let refused = call(router.clone(), 7, endless).await;

        assert_eq!(refused.headers().get("grpc-status").unwrap(), "7");
        assert!(!is_read.load(Ordering::Relaxed));
        let (sender, few) = body(2);
        drop(sender);
        assert_eq!(text(call(router, 1, few).await).await, "2048");
    }

    #[tokio::test]
    async fn a_body_that_is_too_long_or_does_not_come_is_given_up() {
        let router = router(&ReplyShares::new(1 << 20, |_| {}), Duration::from_millis(50));
        let ((_kept, long), (_also, half)) = (body(9), body(1));

        let long = text(call(router.clone(), 1, long).await).await;
        let half = text(call(router, 1, half).await).await;

        assert!(long.contains("more than 8192 bytes"), "{long}");
        assert!(half.contains("the request was not complete after 50ms"), "{half}");
    }

    #[tokio::test]
    async fn what_is_being_read_counts_for_its_sender_and_others_are_read() {
        let shares = ReplyShares::new(8 * CHUNK as u64, |_| {});
        let router = router(&shares, Duration::from_mins(1));
        let (sender, greedy) = body(6);
        let greedy = tokio::spawn(call(router.clone(), 1, greedy));
        // Three quarters.
        while shares.used() < 6 * CHUNK as u64 {
            tokio::task::yield_now().await;
        }
        let (end, other) = body(1);
        drop(end);

        assert_eq!(text(call(router, 2, other).await).await, "1024", "another user has its own share");
        sender.send(Ok(vec![7; CHUNK])).await.unwrap();
        let greedy = text(greedy.await.unwrap()).await;

        assert!(greedy.contains("user 1 would have 7168 of 8192"), "{greedy}");
        assert_eq!(shares.used(), 0, "what was given up is given back");
    }
}
