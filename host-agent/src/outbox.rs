//! Messages queued for one service. Bounded: a service that does not read is disconnected.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prost::Message;
use tokio::sync::Notify;

/// Limit in bytes: one frame of the largest size and 64 KiB.
const LIMIT: usize = wire::frame::MAX_FRAME_BYTES + (64 << 10);
/// Bytes that all outboxes may have together, besides [`FREE_BYTES`] each.
pub const ALL_BYTES: usize = 64 << 20;
/// Bytes that each may have, however many the others have.
pub const FREE_BYTES: usize = 64 << 10;
/// How long a closed connection may take to read what is queued.
const FLUSH_WITHIN: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct OutboxState {
    bytes: Vec<u8>,
    closed: bool,
    overflown: bool,
}

/// Bytes of all outboxes.
#[derive(Clone, Debug, Default)]
pub struct OutboxBudget(Arc<AtomicUsize>);

/// Messages queued for one service.
#[derive(Debug, Default)]
pub struct Outbox {
    budget: OutboxBudget,
    waiting: Mutex<OutboxState>,
    changed: Notify,
    ended: Notify,
}

/// The service reads too slowly. Its queue was dropped; its connection has to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("disconnecting slow service: more than {LIMIT} bytes are queued, or more than {ALL_BYTES} of all services")]
pub struct Overflow;

impl Outbox {
    /// An empty outbox whose bytes are of `budget`.
    #[must_use]
    pub fn of(budget: &OutboxBudget) -> Self {
        let (waiting, changed, ended) = (Mutex::default(), Notify::default(), Notify::default());
        Self { budget: budget.clone(), waiting, changed, ended }
    }

    /// Appends `message` to the queue.
    ///
    /// # Errors
    ///
    /// [`Overflow`], once. Everything pushed later is dropped silently.
    pub fn push(&self, message: &impl Message) -> Result<(), Overflow> {
        let mut waiting = self.lock();
        if waiting.closed {
            return Ok(());
        }
        let before = waiting.bytes.len();
        let after = before + message.encoded_len();
        // Relaxed: it orders nothing, and a few bytes more or less do not matter.
        let all = self.budget.0.load(Ordering::Relaxed);
        let fits = after <= LIMIT && (after <= FREE_BYTES || all <= ALL_BYTES);
        let encoded = fits && wire::frame::encode(message, &mut waiting.bytes).is_ok();
        self.budget.0.fetch_add(waiting.bytes.len() - before, Ordering::Relaxed);
        if !encoded {
            self.empty(&mut waiting);
            (waiting.closed, waiting.overflown) = (true, true);
            self.ended.notify_one();
            return Err(Overflow);
        }
        self.changed.notify_one();
        Ok(())
    }

    /// Accepts no more messages; queued ones are still sent.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
        self.ended.notify_one();
    }

    /// Waits for queued bytes and takes them. `None` once the outbox is closed and empty.
    pub async fn next(&self) -> Option<Vec<u8>> {
        loop {
            {
                let mut waiting = self.lock();
                if !waiting.bytes.is_empty() {
                    return Some(self.empty(&mut waiting));
                }
                if waiting.closed {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }

    /// Resolves when waiting for the service is pointless: at once after an overflow, `FLUSH_WITHIN` after closing.
    pub async fn expired(&self) {
        loop {
            let (closed, overflown) = {
                let waiting = self.lock();
                (waiting.closed, waiting.overflown)
            };
            if overflown {
                return;
            }
            if closed {
                return tokio::time::sleep(FLUSH_WITHIN).await;
            }
            self.ended.notified().await;
        }
    }

    /// Takes all bytes, and gives them back to the budget.
    fn empty(&self, waiting: &mut OutboxState) -> Vec<u8> {
        self.budget.0.fetch_sub(waiting.bytes.len(), Ordering::Relaxed);
        core::mem::take(&mut waiting.bytes)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, OutboxState> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        let left = self.lock().bytes.len();
        self.budget.0.fetch_sub(left, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use wire::proto::registration::{AgentMessage, Refusal, agent_message};

    use super::*;

    fn message(bytes: usize) -> AgentMessage {
        let refused = Refusal { what: "x".repeat(bytes), ..Refusal::default() };
        AgentMessage { message: Some(agent_message::Message::Refusal(refused)) }
    }

    #[tokio::test]
    async fn what_waits_is_sent_before_the_end() {
        let outbox = Outbox::default();
        outbox.push(&message(10)).unwrap();
        outbox.close();
        outbox.push(&message(10)).unwrap();

        assert!(outbox.next().await.is_some_and(|bytes| bytes.len() < 30));
        assert_eq!(outbox.next().await, None);
    }

    #[tokio::test]
    async fn a_service_that_does_not_read_is_given_up() {
        let outbox = Outbox::default();
        let pushed = (0..10_000).take_while(|_| outbox.push(&message(1000)).is_ok()).count();

        assert!((1000..1200).contains(&pushed));
        assert_eq!(outbox.push(&message(1)), Ok(()), "an overflow is told once");
        outbox.expired().await;
        assert_eq!(outbox.next().await, None);
    }

    #[test]
    fn when_all_have_too_much_only_those_with_little_are_sent_more() {
        let budget = OutboxBudget::default();
        let slow: Vec<_> = (0..70).map(|_| Outbox::of(&budget)).collect();
        let overflown = slow.iter().filter(|outbox| (0..1000).any(|_| outbox.push(&message(1000)).is_err())).count();
        let quick = Outbox::of(&budget);

        assert!((2..10).contains(&overflown), "{overflown}");
        assert!(budget.0.load(Ordering::Relaxed) <= ALL_BYTES + 2000);
        assert!((0..60).all(|_| quick.push(&message(1000)).is_ok()));
        drop((slow, quick));
        assert_eq!(budget.0.load(Ordering::Relaxed), 0);
    }
}
