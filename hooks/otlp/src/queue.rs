//! Requests queued for the upstream: bounded by bytes, requests in flight included, of which one sender may have three
//! times what is free.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_runtime::shares::{ShareError, Shares};
use bytes::Bytes;
use tokio::sync::Notify;
use wire::time::Nanos;

use crate::forwarded_headers::ForwardedHeaders;
use crate::holders::Holder;
use crate::signal::{Encoding, Signal};
use crate::tenants::TenantId;

/// Bookkeeping bytes per request, beside its own.
const COST: usize = 128;

/// One request to the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UpstreamRequest {
    pub(crate) tenant: TenantId,
    pub(crate) signal: Signal,
    pub(crate) encoding: Encoding,
    pub(crate) body: Bytes,
    /// Forwarded headers of its client.
    pub(crate) forwarded: ForwardedHeaders,
    /// Whose share of the queue it is of.
    pub(crate) holder: Holder,
    /// Number of kept spans or log records in it; 0 where they pass through.
    pub(crate) spans: u64,
    /// When it was queued, monotonic.
    pub(crate) since: Nanos,
}

impl UpstreamRequest {
    fn cost(&self) -> u64 {
        (self.body.len() + self.forwarded.bytes().len() + COST) as u64
    }
}

/// A request that is not queued.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RefusedRequest {
    pub(crate) request: UpstreamRequest,
    pub(crate) why: QueueError,
}

/// Why a request is not queued.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QueueError {
    /// Nothing is queued any more.
    #[error("the queue to the upstream is closed: the agent is ending")]
    Closed,
    /// The sender has its share of it.
    #[error("the queue to the upstream is full: {0}")]
    Full(ShareError<Holder>),
}

#[derive(Debug)]
struct State {
    waiting: VecDeque<UpstreamRequest>,
    shares: Shares<Holder>,
    open: bool,
    abandoned: bool,
}

/// The queue of one tenant and signal. A sender that takes a request reports when it is [done](Queue::done).
#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Notify,
    ending: Notify,
}

impl Queue {
    /// An empty queue for `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        let shares = Shares::new("bytes that wait for the upstream", "otlp.queue_bytes", limit as u64);
        let state = State { waiting: VecDeque::new(), shares, open: true, abandoned: false };
        Self { state: Mutex::new(state), changed: Notify::new(), ending: Notify::new() }
    }

    /// Appends `request`, or returns it if the queue is closed, or full for its sender.
    pub(crate) fn offer(&self, request: UpstreamRequest) -> Result<(), Box<RefusedRequest>> {
        let mut state = self.lock();
        if !state.open {
            return Err(Box::new(RefusedRequest { request, why: QueueError::Closed }));
        }
        if let Err(error) = state.shares.take(request.holder.clone(), request.cost()) {
            return Err(Box::new(RefusedRequest { request, why: QueueError::Full(error) }));
        }
        state.waiting.push_back(request);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits for the oldest request; `None` when the queue is closed and empty.
    pub(crate) async fn take(&self) -> Option<UpstreamRequest> {
        loop {
            let changed = self.changed.notified();
            {
                let mut state = self.lock();
                if let Some(request) = state.waiting.pop_front() {
                    if !state.waiting.is_empty() || !state.open {
                        // One notification may stand for several requests.
                        self.changed.notify_one();
                    }
                    return Some(request);
                }
                if !state.open {
                    self.changed.notify_one();
                    return None;
                }
            }
            changed.await;
        }
    }

    /// A request that was taken is sent, or lost.
    pub(crate) fn done(&self, request: &UpstreamRequest) {
        self.lock().shares.release(&request.holder, request.cost());
    }

    /// Accepts nothing more; what is queued can still be taken.
    pub(crate) fn close(&self) {
        self.lock().open = false;
        self.changed.notify_one();
        self.ending.notify_waiters();
    }

    /// Requests in flight are given up, too.
    pub(crate) fn abandon(&self) {
        self.lock().abandoned = true;
        self.ending.notify_waiters();
    }

    /// Resolves when the queue is closed.
    pub(crate) async fn closed(&self) {
        self.until(|state| !state.open).await;
    }

    /// Resolves when the queue is abandoned.
    pub(crate) async fn abandoned(&self) {
        self.until(|state| state.abandoned).await;
    }

    async fn until(&self, holds: impl Fn(&State) -> bool) {
        loop {
            let mut ending = core::pin::pin!(self.ending.notified());
            // From here on no notification is missed.
            ending.as_mut().enable();
            if holds(&self.lock()) {
                return;
            }
            ending.await;
        }
    }

    /// Bytes queued or in flight.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().shares.used() as usize
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under this lock panics. If something did, the state would still be usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use wire::id::Owner;

    use super::*;

    fn request(uid: u32, bytes: usize) -> UpstreamRequest {
        let body = Bytes::from(vec![0; bytes]);
        let (signal, encoding, forwarded) = (Signal::Logs, Encoding::Protobuf, ForwardedHeaders::default());
        let holder = Holder::Owner(Owner::User(uid));
        UpstreamRequest { tenant: 0, signal, encoding, body, forwarded, holder, spans: 0, since: Nanos::ZERO }
    }

    /// Why `request` is not queued, and the request itself.
    fn refused(queue: &Queue, request: UpstreamRequest) -> String {
        let same = request.clone();
        let refused = queue.offer(request).unwrap_err();
        assert_eq!(refused.request, same);
        refused.why.to_string()
    }

    #[tokio::test]
    async fn what_is_being_sent_still_takes_room_and_one_sender_leaves_some_to_others() {
        let queue = Queue::new(4 * (100 + COST));
        for _ in 0..3 {
            queue.offer(request(7, 100)).unwrap();
        }
        let why = refused(&queue, request(7, 1));
        assert!(why.contains("user 7 would have 813 of 912 bytes that wait for the upstream"), "{why}");

        let taken = queue.take().await.unwrap();
        refused(&queue, request(7, 1));
        queue.offer(request(8, 0)).unwrap();
        let why = refused(&queue, request(8, 0));
        assert!(why.contains("user 7 has most, 684: release some, or raise otlp.queue_bytes"), "{why}");

        queue.done(&taken);
        queue.offer(request(8, 0)).unwrap();
        assert_eq!(queue.bytes(), 2 * (100 + COST) + 2 * COST);
    }

    #[tokio::test]
    async fn all_takers_get_what_came_at_once_and_end_when_it_is_closed() {
        let queue = std::sync::Arc::new(Queue::new(10_000));
        let take_all = |queue: std::sync::Arc<Queue>| async move {
            let mut taken = 0;
            while let Some(request) = queue.take().await {
                queue.done(&request);
                taken += 1;
            }
            taken
        };
        let takers: Vec<_> = (0..4).map(|_| tokio::spawn(take_all(std::sync::Arc::clone(&queue)))).collect();

        (0..7).for_each(|_| queue.offer(request(7, 10)).unwrap());
        queue.close();
        let mut taken = 0;
        for taker in takers {
            taken += taker.await.unwrap();
        }

        assert_eq!((taken, queue.bytes()), (7, 0));
        assert!(refused(&queue, request(7, 1)).contains("the agent is ending"));
        queue.closed().await;
        queue.abandon();
        queue.abandoned().await;
    }
}
