//! What a connection is used for, and how long it may rest: before its first request, with a reply that nobody takes,
//! without any request. hyper-util reads the first bytes, which say whether it is HTTP/2, without any limit. Those of
//! hyper begin afterwards, and over HTTP/2 replies to pings satisfy them, whatever else the peer does not do.

use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::{Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::time::{Instant, sleep_until};

use crate::clock::timer_now;

/// Longest piece of a reply that the connection is given at a time. A peer that reads takes each in time.
const PIECE_BYTES: usize = 16 << 10;

/// How long a connection may rest.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Until its first request has come.
    pub first_request: Duration,
    /// Until a piece of a reply, 16 KiB of it, has been written; `None`: for ever.
    pub reply: Option<Duration>,
    /// Without a request that is being answered; `None`: for ever.
    pub idle: Option<Duration>,
}

/// Why a connection is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overdue {
    /// Its first request did not come.
    FirstRequest,
    /// It did not take a reply.
    Reply,
    /// It had no request for long.
    Idle,
}

/// Requests of one connection, and what was not written of their replies. Clones are of the same connection.
#[derive(Clone, Debug)]
pub struct Exchanges(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    has_begun: bool,
    /// Requests that are being answered.
    open: usize,
    /// Since when there is none.
    quiet_since: Instant,
    /// Pieces of replies that have not been written, by their numbers, which rise: since when.
    unwritten: BTreeMap<u64, Instant>,
    pieces: u64,
}

impl Default for Exchanges {
    /// Those of a connection that begins now.
    fn default() -> Self {
        let quiet_since = timer_now();
        let unwritten = BTreeMap::new();
        Self(Arc::new(Mutex::new(State { has_begun: false, open: 0, quiet_since, unwritten, pieces: 0 })))
    }
}

impl Exchanges {
    /// To be called at the begin of each request.
    #[must_use = "the request has ended once this is dropped"]
    pub fn begin(&self) -> Exchange {
        let mut state = self.lock();
        (state.has_begun, state.open) = (true, state.open + 1);
        drop(state);
        Exchange(self.clone())
    }

    /// Drives `connection` to its end. Needs a tokio runtime with time.
    ///
    /// # Errors
    ///
    /// [`Overdue`] if it has rested longer than `patience` allows. It is dropped then, and what it held is free.
    pub async fn within<C: Future>(self, patience: Patience, connection: C) -> Result<C::Output, Overdue> {
        tokio::select! {
            biased;
            output = connection => Ok(output),
            why = self.overdue(patience) => Err(why),
        }
    }

    /// Resolves once the connection has rested too long.
    async fn overdue(&self, patience: Patience) -> Overdue {
        loop {
            let now = timer_now();
            let due = self.due(patience);
            if let Some((_, why)) = due.filter(|(at, _)| *at <= now) {
                return why;
            }
            // What begins from now on is due no sooner.
            let later = [patience.reply, patience.idle].into_iter().flatten().min().map(|limit| now + limit);
            match due.map(|(at, _)| at).into_iter().chain(later).min() {
                Some(at) => sleep_until(at).await,
                None => core::future::pending().await,
            }
        }
    }

    /// What is due first, as things are: when, and why.
    fn due(&self, patience: Patience) -> Option<(Instant, Overdue)> {
        let state = self.lock();
        if !state.has_begun {
            return Some((state.quiet_since + patience.first_request, Overdue::FirstRequest));
        }
        let oldest = state.unwritten.values().next().copied();
        let reply = oldest.zip(patience.reply).map(|(since, limit)| (since + limit, Overdue::Reply));
        let idle = patience.idle.filter(|_| state.open == 0);
        let idle = idle.map(|limit| (state.quiet_since + limit, Overdue::Idle));
        drop(state);
        reply.into_iter().chain(idle).min_by_key(|(at, _)| *at)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code under this lock panics. If one did, the state would still be usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that is being answered, until this is dropped.
#[derive(Debug)]
pub struct Exchange(Exchanges);

impl Exchange {
    /// The `body` of the reply, which ends this exchange. Each piece of it has to be written in time.
    pub fn reply<B: HttpBody<Data = Bytes> + Unpin>(self, body: B) -> WatchedBody<B> {
        WatchedBody { body, rest: Bytes::new(), exchange: self }
    }

    /// `bytes`, whose way to the connection is watched.
    fn piece(&self, bytes: Bytes) -> Bytes {
        let exchanges = self.0.clone();
        let mut state = exchanges.lock();
        let number = state.pieces;
        state.pieces += 1;
        state.unwritten.insert(number, timer_now());
        drop(state);
        Bytes::from_owner(Piece { bytes, number, exchanges })
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.open = state.open.saturating_sub(1);
        state.quiet_since = timer_now();
    }
}

/// A piece of a reply. The connection drops it when it has been written.
struct Piece {
    bytes: Bytes,
    number: u64,
    exchanges: Exchanges,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.exchanges.lock().unwritten.remove(&self.number);
    }
}

/// The body of a reply, in pieces whose way to the connection is watched.
#[derive(Debug)]
pub struct WatchedBody<B> {
    body: B,
    /// What is left of a frame.
    rest: Bytes,
    exchange: Exchange,
}

impl<B: HttpBody<Data = Bytes> + Unpin> HttpBody for WatchedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if self.rest.is_empty() {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                ended => return Poll::Ready(ended),
            };
            match frame.into_data() {
                Ok(data) => self.rest = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let length = self.rest.len().min(PIECE_BYTES);
        let piece = self.rest.split_to(length);
        Poll::Ready(Some(Ok(Frame::data(self.exchange.piece(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        longer(&self.body.size_hint(), self.rest.len() as u64)
    }
}

/// The size of a body, and of `more` bytes before it.
pub(super) fn longer(body: &SizeHint, more: u64) -> SizeHint {
    let mut whole = SizeHint::new();
    whole.set_lower(body.lower().saturating_add(more));
    if let Some(upper) = body.upper() {
        whole.set_upper(upper.saturating_add(more));
    }
    whole
}

#[cfg(test)]
mod tests {
    use core::future::pending;

    use axum::body::Body;
    use tokio::time::sleep;

    use super::*;

    const FIRST: Duration = Duration::from_secs(20);
    const REPLY: Duration = Duration::from_secs(10);
    const IDLE: Duration = Duration::from_mins(10);
    const PATIENCE: Patience = Patience { first_request: FIRST, reply: Some(REPLY), idle: Some(IDLE) };
    const FOR_STREAMS: Patience = Patience { first_request: FIRST, reply: None, idle: None };

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_request_is_given_up_at_the_limit() {
        for patience in [PATIENCE, FOR_STREAMS] {
            let began = timer_now();

            assert_eq!(Exchanges::default().within(patience, pending::<()>()).await, Err(Overdue::FirstRequest));

            assert_eq!(began.elapsed(), FIRST);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_with_a_request_lasts_beyond_the_limit_of_the_first_one() {
        for patience in [PATIENCE, FOR_STREAMS] {
            let exchanges = Exchanges::default();
            let begun = exchanges.clone();
            let connection = async move {
                sleep(FIRST / 2).await;
                drop(begun.begin());
                sleep(FIRST).await;
                "its end"
            };

            assert_eq!(exchanges.within(patience, connection).await, Ok("its end"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_piece_that_nobody_takes_ends_the_connection_whatever_else_is_written() {
        let exchanges = Exchanges::default();
        let exchange = exchanges.begin();
        let began = timer_now();
        let connection = async {
            sleep(Duration::from_secs(3)).await;
            let _stuck = exchange.piece(Bytes::from_static(b"stuck"));
            loop {
                drop(exchange.piece(Bytes::from_static(b"written")));
                sleep(Duration::from_secs(1)).await;
            }
        };

        let ended: Result<(), _> = exchanges.clone().within(PATIENCE, connection).await;

        assert_eq!((ended, began.elapsed()), (Err(Overdue::Reply), Duration::from_secs(13)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_nobody_uses_ends_and_one_with_an_open_request_does_not() {
        let exchanges = Exchanges::default();
        let begun = exchanges.clone();
        let began = timer_now();
        let connection = async move {
            let exchange = begun.begin();
            sleep(2 * IDLE).await;
            drop(exchange);
            pending::<()>().await;
        };

        assert_eq!(exchanges.within(PATIENCE, connection).await, Err(Overdue::Idle));

        assert_eq!(began.elapsed(), 3 * IDLE);
    }

    #[tokio::test]
    async fn a_reply_is_the_same_in_pieces() {
        let exchanges = Exchanges::default();
        let text: Vec<u8> = (0..5 * PIECE_BYTES / 2).map(|at| at as u8).collect();
        let body = Body::new(exchanges.begin().reply(Body::from(text.clone())));
        assert_eq!(body.size_hint().exact(), Some(text.len() as u64));

        let read = axum::body::to_bytes(body, usize::MAX).await.unwrap();

        assert!(read == text, "{} bytes", read.len());
        let state = exchanges.lock();
        assert_eq!((state.open, state.unwritten.len(), state.pieces), (0, 0, 3));
    }
}
