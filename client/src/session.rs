//! One service's conversation with whatever agent there is: what is said, what is heard, what became of it. Pure but for the regions that
//! [`Registry`] makes: bytes and time in, bytes out.

use std::sync::Arc;

use prost::Message as _;
use region::OwnedRegion;
use wire::frame;
use wire::id::Incarnation;
use wire::proto::registration as proto;
use wire::registration::{Hello, ServiceMessage, SlotRun};
use wire::time::Nanos;

use crate::link::{Due, Link};
use crate::problem::{Cause, shortened};
use crate::registry::Registry;

/// How much of an agent's words is kept.
const WORDS: usize = 300;

/// A frame to be sent, and the region whose descriptor goes with its first byte.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) bytes: Vec<u8>,
    pub(crate) region: Option<Arc<OwnedRegion>>,
}

/// Why a connection is of no use any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Lost {
    /// The agent ended it, or died.
    #[error("the agent closed the connection")]
    Closed,
    /// What the system said.
    #[error("{0}")]
    System(#[from] std::io::Error),
    /// Not an agent, or a broken one.
    #[error("the agent sent something that is no message: {0}")]
    Garbage(String),
}

/// All that the thread and the service share.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) registry: Registry,
    pub(crate) link: Link,
    hello: Option<Hello>,
    greeted: bool,
}

impl Session {
    /// Nothing said yet. Without a `hello` there is nothing to say ever.
    pub(crate) fn new(registry: Registry, hello: Option<Hello>, seed: u64) -> Self {
        Self { registry, link: Link::new(seed), hello, greeted: false }
    }

    /// What to do at `now`; the heart is beaten here.
    pub(crate) fn poll(&mut self, now: Nanos) -> Due {
        let due = self.link.poll(now);
        if due.beat {
            self.registry.beat();
        }
        due
    }

    /// A connection is there. Everything is said on it, from the hello on.
    pub(crate) fn connected(&mut self) {
        self.link.connected();
        self.registry.opened();
        self.greeted = false;
    }

    /// The connection is gone, or none could be made.
    pub(crate) fn lost(&mut self, now: Nanos, why: &Lost) {
        if matches!(why, Lost::Garbage(_)) {
            self.link.count_garbage();
        }
        self.link.lost(now, why.to_string());
        self.registry.closed();
    }

    /// The next frame for the connection, if there is something left to say.
    pub(crate) fn outgoing(&mut self) -> Option<Outgoing> {
        let (message, region) = if self.greeted {
            self.registry.next_message()?
        } else {
            self.greeted = true;
            (ServiceMessage::Hello(self.hello.clone()?), None)
        };
        let mut bytes = Vec::new();
        frame::encode(&proto::ServiceMessage::from(&message), &mut bytes)
            .expect("names are bounded, and the registry's messages have few enough of them for a frame");
        self.link.sent();
        Some(Outgoing { bytes, region })
    }

    /// Takes one frame of the agent. Messages of later releases are passed over.
    pub(crate) fn incoming(&mut self, frame: &[u8]) -> Result<(), Lost> {
        use proto::agent_message::Message;
        let message = proto::AgentMessage::decode(frame).map_err(|error| Lost::Garbage(error.to_string()))?;
        match message.message {
            Some(Message::Welcome(welcome)) => {
                self.link.welcomed(Incarnation(welcome.agent_incarnation), welcome.heartbeat_ms);
            }
            Some(Message::Accepted(accepted)) => self.link.accepted(accepted.messages),
            Some(Message::Released(released)) => self.registry.released(released.runs.into_iter().map(SlotRun::from)),
            Some(Message::Refused(refused)) => self.registry.problems.note(Cause::Refused {
                what: shortened(&refused.what, WORDS),
                reason: shortened(&refused.reason, WORDS),
            }),
            None => {}
        }
        Ok(())
    }

    /// The agent that knows everything there is to know; none if something is missing.
    pub(crate) fn registered_with(&self) -> Option<Incarnation> {
        self.link.registered_with().filter(|_| self.registry.all_said())
    }
}
