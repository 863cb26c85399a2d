//! Requests on their way to the upstream: bounded by bytes, those included that are being sent.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;
use wire::time::Nanos;

use crate::passed::Passed;
use crate::signal::{Encoding, Signal};
use crate::tenants::TenantId;

/// What a request takes beside its bytes.
const COST: usize = 128;

/// One request to the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parcel {
    pub(crate) tenant: TenantId,
    pub(crate) signal: Signal,
    pub(crate) encoding: Encoding,
    pub(crate) body: Bytes,
    /// What its client said beside it.
    pub(crate) passed: Passed,
    /// Kept spans in it; 0 where it is passed on as it came.
    pub(crate) spans: u64,
    /// When it was queued.
    pub(crate) since: Nanos,
}

impl Parcel {
    fn cost(&self) -> usize {
        self.body.len() + self.passed.bytes().len() + COST
    }
}

#[derive(Debug)]
struct State {
    waiting: VecDeque<Parcel>,
    bytes: usize,
    open: bool,
    abandoned: bool,
}

/// The queue of one tenant and signal. Whoever takes a parcel says when it is [done](Queue::done).
#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    limit: usize,
    changed: Notify,
    ending: Notify,
}

impl Queue {
    /// An empty one for `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        let state = State { waiting: VecDeque::new(), bytes: 0, open: true, abandoned: false };
        Self { state: Mutex::new(state), limit, changed: Notify::new(), ending: Notify::new() }
    }

    /// Puts `parcel` at the end, or gives it back if there is no room, or no sending any more.
    pub(crate) fn offer(&self, parcel: Parcel) -> Result<(), Parcel> {
        let mut state = self.lock();
        if !state.open || state.bytes + parcel.cost() > self.limit {
            return Err(parcel);
        }
        state.bytes += parcel.cost();
        state.waiting.push_back(parcel);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// The oldest parcel, as soon as there is one; `None` when the queue is closed and empty.
    pub(crate) async fn take(&self) -> Option<Parcel> {
        loop {
            let changed = self.changed.notified();
            {
                let mut state = self.lock();
                if let Some(parcel) = state.waiting.pop_front() {
                    if !state.waiting.is_empty() || !state.open {
                        // One notification may stand for several parcels.
                        self.changed.notify_one();
                    }
                    return Some(parcel);
                }
                if !state.open {
                    self.changed.notify_one();
                    return None;
                }
            }
            changed.await;
        }
    }

    /// A parcel that was taken is sent, or given up.
    pub(crate) fn done(&self, parcel: &Parcel) {
        self.lock().bytes -= parcel.cost();
    }

    /// Nothing more comes; what waits is still to be taken.
    pub(crate) fn close(&self) {
        self.lock().open = false;
        self.changed.notify_one();
        self.ending.notify_waiters();
    }

    /// What is being sent is to be given up, too.
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
            // From here on a notification is not missed.
            ending.as_mut().enable();
            if holds(&self.lock()) {
                return;
            }
            ending.await;
        }
    }

    /// Bytes that wait or are being sent.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics; if something did, the state is still the best there is.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parcel(bytes: usize) -> Parcel {
        let body = Bytes::from(vec![0; bytes]);
        let (signal, encoding, passed) = (Signal::Logs, Encoding::Protobuf, Passed::default());
        Parcel { tenant: 0, signal, encoding, body, passed, spans: 0, since: Nanos::ZERO }
    }

    #[tokio::test]
    async fn what_is_being_sent_still_takes_room() {
        let queue = Queue::new(2 * (100 + COST));

        queue.offer(parcel(100)).unwrap();
        queue.offer(parcel(100)).unwrap();
        assert_eq!(queue.offer(parcel(1)), Err(parcel(1)));
        let taken = queue.take().await.unwrap();
        assert_eq!(queue.offer(parcel(1)), Err(parcel(1)));
        queue.done(&taken);

        assert_eq!(queue.offer(parcel(101)), Err(parcel(101)));
        assert_eq!(queue.offer(parcel(100)), Ok(()));
        assert_eq!(queue.bytes(), 2 * (100 + COST));
    }

    #[tokio::test]
    async fn all_takers_get_what_came_at_once_and_end_when_it_is_closed() {
        let queue = std::sync::Arc::new(Queue::new(10_000));
        let take_all = |queue: std::sync::Arc<Queue>| async move {
            let mut taken = 0;
            while let Some(parcel) = queue.take().await {
                queue.done(&parcel);
                taken += 1;
            }
            taken
        };
        let takers: Vec<_> = (0..4).map(|_| tokio::spawn(take_all(std::sync::Arc::clone(&queue)))).collect();

        (0..7).for_each(|_| queue.offer(parcel(10)).unwrap());
        queue.close();
        let mut taken = 0;
        for taker in takers {
            taken += taker.await.unwrap();
        }

        assert_eq!((taken, queue.bytes()), (7, 0));
        assert!(queue.offer(parcel(1)).is_err());
        queue.closed().await;
        queue.abandon();
        queue.abandoned().await;
    }
}
