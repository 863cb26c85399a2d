//! What waits to be sent to one service: bounded, so that one that does not read is closed and costs no more.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prost::Message;
use tokio::sync::Notify;

/// More than this does not wait: one largest frame and some.
const LIMIT: usize = wire::frame::MAX_FRAME_BYTES + (64 << 10);
/// How long a closed connection may take to read the rest.
const LAST_WORDS: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    closed: bool,
    overflown: bool,
}

/// What waits to be sent to one service.
#[derive(Debug, Default)]
pub struct Outbox {
    waiting: Mutex<Waiting>,
    changed: Notify,
    ended: Notify,
}

/// The service reads too slowly: what waited is dropped, the connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {LIMIT} bytes wait for a service that does not read")]
pub struct Overflow;

impl Outbox {
    /// Puts `message` behind what waits.
    ///
    /// # Errors
    ///
    /// [`Overflow`], once; nothing is taken any more.
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

    /// Nothing more is taken; what waits is still sent.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
        self.ended.notify_one();
    }

    /// What waits, as soon as something does; `None` when it is closed and empty.
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

    /// Comes when there is no more use in waiting for the service to read: at once after an overflow, soon after closing.
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
                return tokio::time::sleep(LAST_WORDS).await;
            }
            self.ended.notified().await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use wire::proto::registration::{AgentMessage, Refused, agent_message};

    use super::*;

    fn message(bytes: usize) -> AgentMessage {
        let refused = Refused { what: "x".repeat(bytes), reason: String::new() };
        AgentMessage { message: Some(agent_message::Message::Refused(refused)) }
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
