//! Messages queued for one service. Bounded: a service that does not read is disconnected.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prost::Message;
use tokio::sync::Notify;

/// Limit in bytes: one frame of the largest size and 64 KiB.
const LIMIT: usize = wire::frame::MAX_FRAME_BYTES + (64 << 10);
/// How long a closed connection may take to read what is queued.
const FLUSH_WITHIN: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct OutboxState {
    bytes: Vec<u8>,
    closed: bool,
    overflown: bool,
}

/// Messages queued for one service.
#[derive(Debug, Default)]
pub struct Outbox {
    waiting: Mutex<OutboxState>,
    changed: Notify,
    ended: Notify,
}

/// The service reads too slowly. Its queue was dropped; its connection has to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("disconnecting slow service: more than {LIMIT} bytes are queued")]
pub struct Overflow;

impl Outbox {
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
        let fits = waiting.bytes.len() + message.encoded_len() <= LIMIT;
        if !fits || wire::frame::encode(message, &mut waiting.bytes).is_err() {
            waiting.bytes = Vec::new();
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
                    return Some(core::mem::take(&mut waiting.bytes));
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

    fn lock(&self) -> std::sync::MutexGuard<'_, OutboxState> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use wire::proto::registration::{AgentMessage, Refusal, agent_message};

    use super::*;

    fn message(bytes: usize) -> AgentMessage {
        let refused = Refusal { what: "x".repeat(bytes), reason: String::new() };
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
}
