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
use crate::spans::Rings;

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
    pub(crate) rings: Rings,
    hello: Option<Hello>,
    greeted: bool,
    /// The agent looks at values when heartbeat words have changed, and only then.
    awaited: bool,
}

impl Session {
    /// Nothing said yet. Without a `hello` there is nothing to say ever.
    pub(crate) fn new(registry: Registry, hello: Option<Hello>, seed: u64) -> Self {
        Self { registry, link: Link::new(seed), rings: Rings::default(), hello, greeted: false, awaited: false }
    }

    /// What to do at `now`; the heart is beaten here.
    pub(crate) fn poll(&mut self, now: Nanos) -> Due {
        let due = self.link.poll(now);
        if due.beat {
            if !self.awaited {
                self.registry.beat();
            }
            self.rings.beat();
        }
        due
    }

    /// Values have changed. For an agent that does not wait for that, the heart beats as it always does.
    pub(crate) fn changed(&self) {
        if self.awaited {
            self.registry.beat();
        }
    }

    /// A connection is there. Everything is said on it, from the hello on.
    pub(crate) fn connected(&mut self) {
        self.link.connected();
        self.registry.opened();
        self.rings.opened();
        (self.greeted, self.awaited) = (false, false);
    }

    /// The connection is gone, or none could be made.
    pub(crate) fn lost(&mut self, now: Nanos, why: &Lost) {
        if matches!(why, Lost::Garbage(_)) {
            self.link.count_garbage();
        }
        self.link.lost(now, why.to_string());
        self.registry.closed();
        self.rings.closed();
    }

    /// The next frame for the connection, if there is something left to say.
    pub(crate) fn outgoing(&mut self) -> Option<Outgoing> {
        let (message, region) = if self.greeted {
            self.rings.next_message().or_else(|| self.registry.next_message())?
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
                let changes = self.hello.as_ref().is_some_and(|hello| hello.changes_every.is_some());
                self.awaited = changes && welcome.awaits_changes;
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
        self.link.registered_with().filter(|_| self.registry.all_said() && self.rings.all_said())
    }
}

#[cfg(test)]
#[cfg(not(miri))] // Memory of the system, which Miri does not have.
mod tests {
    use proptest::prelude::*;
    use wire::frame::{Frames, MAX_FRAME_BYTES};
    use wire::histogram::Scale;
    use wire::metric::{Group, Kind};

    use super::*;
    use crate::registration::Asked;
    use crate::service::{Limits, Service};

    fn session() -> Session {
        let hello = Service::new("payment").hello("payment-1").unwrap();
        Session::new(Registry::new("payment", Limits::default()), Some(hello), 1)
    }

    fn asked(name: String) -> Asked {
        let kind = Kind::Histogram(Scale::DEFAULT);
        Asked { name, labels: Vec::new(), kind, unit: None, group: Group::Service, parts_per_unit: 1 }
    }

    /// Every message that is left to say, as an agent reads it.
    fn said(session: &mut Session) -> Vec<ServiceMessage> {
        let mut frames = Frames::default();
        let mut messages = Vec::new();
        while let Some(outgoing) = session.outgoing() {
            assert!(outgoing.bytes.len() <= MAX_FRAME_BYTES / 2);
            frames.push(&outgoing.bytes);
            let message = ServiceMessage::decode(frames.next_frame().unwrap().unwrap()).unwrap();
            assert_eq!(outgoing.region.is_some(), matches!(message, ServiceMessage::AddRegion { .. }));
            messages.push(message);
        }
        messages
    }

    #[test]
    fn a_hello_comes_first_on_every_connection_and_only_there() {
        let mut session = session();
        let _ = session.registry.register(&asked("a".into()), false);

        for _ in 0..2 {
            session.connected();
            let messages = said(&mut session);
            assert!(matches!(
                messages[..],
                [ServiceMessage::Hello(_), ServiceMessage::AddRegion { .. }, ServiceMessage::AddSeries(_)]
            ));
            assert_eq!(session.registered_with(), None, "nothing is accepted");
            session.lost(Nanos::ZERO, &Lost::Closed);
        }
    }

    /// How often the heart of the first region has beaten.
    fn beats(session: &Session) -> u64 {
        session.registry.heartbeats().next().unwrap()
    }

    /// A session of a service whose values change every second, welcomed by an agent that waits for that, or by one of an earlier release.
    fn welcomed(awaits_changes: bool) -> Session {
        let service = Service::new("network.way").changes_every(std::time::Duration::from_secs(1));
        let mut session = Session::new(Registry::new("network.way", Limits::default()), service.hello("way-1").ok(), 1);
        let _ = session.registry.register(&asked("a".into()), false);
        session.connected();
        let welcome = proto::Welcome { agent_incarnation: 1, heartbeat_ms: 100, awaits_changes };
        let message = proto::AgentMessage { message: Some(proto::agent_message::Message::Welcome(welcome)) };
        session.incoming(&message.encode_to_vec()).unwrap();
        session
    }

    #[test]
    fn where_the_agent_waits_for_changes_the_heart_beats_with_them_and_not_between() {
        let mut session = welcomed(true);
        let before = beats(&session);

        let _ = session.poll(Nanos::from_secs(10));
        assert_eq!(beats(&session), before);
        session.changed();
        assert_eq!(beats(&session), before + 1);

        // The next agent may be an earlier one, until it has said something.
        session.lost(Nanos::from_secs(10), &Lost::Closed);
        session.connected();
        let _ = session.poll(Nanos::from_secs(20));
        assert_eq!(beats(&session), before + 2);
    }

    #[test]
    fn an_agent_that_knows_nothing_of_changes_sees_the_heart_beat_as_ever() {
        let mut session = welcomed(false);
        let before = beats(&session);

        let _ = session.poll(Nanos::from_secs(10));
        session.changed();

        assert_eq!(beats(&session), before + 1);
    }

    #[test]
    fn the_longest_names_fit_their_frames() {
        let mut session = session();
        for n in 0..200 {
            let labels = (0..16).map(|l| (format!("{l:a>128}"), "\u{1f980}".repeat(64))).collect();
            let longest = Asked { labels, unit: Some("u".repeat(63)), ..asked(format!("{n:m>255}")) };
            assert!(session.registry.register(&longest, false).series.is_some());
        }

        session.connected();
        let messages = said(&mut session);

        let told = messages.iter().map(|message| match message {
            ServiceMessage::AddSeries(series) => series.len(),
            _ => 0,
        });
        assert_eq!(told.sum::<usize>(), 200);
    }

    proptest! {
        #[test]
        fn any_frame_is_taken_or_is_garbage_and_nothing_that_is_used_is_given_up(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..20)) {
            let mut session = session();
            let parts = session.registry.register(&asked("a".into()), false);
            session.connected();
            let _ = said(&mut session);

            for frame in &frames {
                let _ = session.incoming(frame);
            }

            let again = session.registry.register(&asked("a".into()), false);
            let other = session.registry.register(&asked("b".into()), false);
            prop_assert!(again.run.same(&parts.run) && !other.run.same(&parts.run));
        }
    }
}
