//! A deadline for the bodies of requests.

use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::middleware::map_request;
use axum::{BoxError, Router};
use hyper::body::{Frame, SizeHint};
use tokio::time::{Sleep, sleep};

/// Lets the body of each request take `within` from the request's head on; then reading it fails. For calls with one
/// message: a stream of messages has no end.
pub fn with_body_deadline(router: Router, within: Duration) -> Router {
    router.layer(map_request(move |request: Request| async move {
        let limited = |body| Body::new(LimitedBody { body, deadline: Box::pin(sleep(within)), within });
        request.map(limited)
    }))
}

/// A body was not complete in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request was not complete after {0:?}")]
struct LateBody(Duration);

#[derive(Debug)]
struct LimitedBody {
    body: Body,
    deadline: Pin<Box<Sleep>>,
    within: Duration,
}

impl HttpBody for LimitedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(BoxError::from)));
        }
        ready!(self.deadline.as_mut().poll(context));
        Poll::Ready(Some(Err(LateBody(self.within).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
