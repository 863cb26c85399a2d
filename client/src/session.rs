//! The registration protocol from the service's side: which messages to send, how to react to the agent's.
//!
//! Pure except for the regions that [`Registry`] creates: bytes and time in, bytes out.

use std::sync::Arc;

use prost::Message as _;
use region::OwnedRegion;
use wire::frame;
use wire::id::Incarnation;
use wire::proto::registration as proto;
use wire::registration::{Hello, ServiceMessage, SlotRun};
use wire::time::Nanos;

use crate::link::{Link, LinkActions};
use crate::problem::{Cause, shortened};
use crate::registry::Registry;
use crate::spans::RingState;
use crate::subjects::Subjects;

/// The shortest and the longest time after which the agent is asked again for what it has refused.
const ASK_AGAIN: (Nanos, Nanos) = (Nanos::from_secs(10), Nanos::from_secs(600));
/// What the name of a refused region begins with.
const REGION: &str = "region ";
/// Characters kept of an agent's refusal.
const MAX_REFUSAL_CHARS: usize = 300;

/// A frame to send, and the region whose descriptor is sent with its first byte.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) bytes: Vec<u8>,
    pub(crate) region: Option<Arc<OwnedRegion>>,
}

/// Why a connection ended or could not be established.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Disconnect {
    /// The agent closed it, or died.
    #[error("the agent closed the connection")]
    Closed,
    /// The agent is asked again for a region that it has refused.
    #[error("the agent may take now what it has refused")]
    Again,
    /// A system call failed.
    #[error("{0}")]
    System(#[from] std::io::Error),
    /// The peer is not an agent, or a faulty one.
    #[error("the agent sent an invalid message: {0}")]
    Protocol(String),
}

/// The state shared by the I/O thread and the service.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) registry: Registry,
    pub(crate) link: Link,
    pub(crate) rings: RingState,
    pub(crate) subjects: Subjects,
    hello: Option<Hello>,
    hello_sent: bool,
    /// The agent reads values only when a heartbeat counter has changed, so it is raised on `changed`, not on a timer.
    beats_on_change: bool,
    /// What the agent may take later.
    refused: Option<RefusedForNow>,
}

/// Something that the agent has refused for now.
#[derive(Clone, Copy, Debug)]
struct RefusedForNow {
    wait: Nanos,
    /// When it is asked again; `None` until the clock is known.
    at: Option<Nanos>,
    /// A region was refused: without another connection nothing of it can be sent again.
    is_region: bool,
}

impl Session {
    /// A session without a connection. Without a `hello` it sends nothing.
    pub(crate) fn new(registry: Registry, hello: Option<Hello>, seed: u64) -> Self {
        Self {
            registry,
            link: Link::new(seed),
            rings: RingState::default(),
            subjects: Subjects::default(),
            beats_on_change: tells_times(hello.as_ref()),
            hello,
            hello_sent: false,
            refused: None,
        }
    }

    /// What to do at `now`. Raises the heartbeat if that is due.
    pub(crate) fn poll(&mut self, now: Nanos) -> LinkActions {
        let mut due = self.link.poll(now);
        self.ask_again(now, &mut due);
        if due.beat {
            if !self.beats_on_change {
                self.registry.beat();
            }
            self.rings.beat();
        }
        due
    }

    /// Asks the agent again for what it has refused, once it may take that.
    fn ask_again(&mut self, now: Nanos, due: &mut LinkActions) {
        let Some(refused) = &mut self.refused else { return };
        let (shortest, longest) = ASK_AGAIN;
        let wait = refused.wait.clamp(shortest, longest);
        let at = *refused.at.get_or_insert_with(|| now.plus(self.link.spread(wait)));
        if at > now {
            due.next_poll = due.next_poll.min(at);
            return;
        }
        due.reconnect = refused.is_region;
        self.refused = None;
        if !due.reconnect {
            self.registry.announce_again();
        }
    }

    /// The service has changed its values: raises the heartbeat, unless the agent expects it on a timer.
    pub(crate) fn changed(&self) {
        if self.beats_on_change {
            self.registry.beat();
        }
    }

    /// All values were measured at `time`: the heartbeat tells it, unless the agent expects that on a timer.
    pub(crate) fn sampled(&self, time: Nanos) {
        if self.beats_on_change {
            self.registry.sampled(time);
        }
    }

    /// A connection was established. Everything is sent on it, beginning with the hello.
    pub(crate) fn connected(&mut self) {
        self.link.connected();
        self.registry.opened();
        self.rings.opened();
        self.subjects.closed();
        // A time that is told is none if the heart also beats by itself. An earlier agent says so in a moment.
        (self.hello_sent, self.beats_on_change, self.refused) = (false, tells_times(self.hello.as_ref()), None);
    }

    /// The connection was lost, or an attempt to connect failed.
    pub(crate) fn disconnected(&mut self, now: Nanos, why: &Disconnect) {
        if matches!(why, Disconnect::Protocol(_)) {
            self.link.count_protocol_error();
        }
        self.link.disconnected(now, why.to_string());
        self.registry.closed();
        self.rings.closed();
        self.subjects.closed();
        self.refused = None;
    }

    /// The next frame to send, if there is one.
    pub(crate) fn outgoing(&mut self) -> Option<Outgoing> {
        let (message, region) = if self.hello_sent {
            let message = self.rings.next_message().or_else(|| self.registry.next_message());
            message.or_else(|| self.subjects.next_message().map(|message| (message, None)))?
        } else {
            self.hello_sent = true;
            (ServiceMessage::Hello(self.hello.clone()?), None)
        };
        let mut bytes = Vec::new();
        frame::encode(&proto::ServiceMessage::from(&message), &mut bytes)
            .expect("names are bounded, and the registry's messages have few enough of them for a frame");
        self.link.sent();
        Some(Outgoing { bytes, region })
    }

    /// Handles one frame from the agent. Unknown messages, of later releases, are ignored.
    pub(crate) fn incoming(&mut self, frame: &[u8]) -> Result<(), Disconnect> {
        use proto::agent_message::Message;
        let message = proto::AgentMessage::decode(frame).map_err(|error| Disconnect::Protocol(error.to_string()))?;
        match message.message {
            Some(Message::Welcome(welcome)) => {
                self.subjects.welcomed(welcome.takes_subjects);
                self.link.welcomed(Incarnation(welcome.agent_incarnation), welcome.heartbeat_ms);
                let changes = self.hello.as_ref().is_some_and(|hello| hello.changes_every.is_some());
                self.beats_on_change = changes && welcome.awaits_changes;
            }
            Some(Message::Acknowledgement(accepted)) => self.link.accepted(accepted.messages),
            Some(Message::Release(released)) => self.registry.released(released.runs.into_iter().map(SlotRun::from)),
            Some(Message::Refusal(refused)) => self.note_refusal(&refused),
            None => {}
        }
        Ok(())
    }

    fn note_refusal(&mut self, refusal: &proto::Refusal) {
        if refusal.retry_after_ms > 0 {
            let wait = Nanos::from_millis(refusal.retry_after_ms.into());
            let refused = self.refused.get_or_insert(RefusedForNow { wait, at: None, is_region: false });
            refused.is_region |= refusal.what.starts_with(REGION);
        }
        self.registry.problems.note(Cause::Refused {
            what: shortened(&refusal.what, MAX_REFUSAL_CHARS),
            reason: shortened(&refusal.reason, MAX_REFUSAL_CHARS),
        });
    }

    /// The agent that has accepted everything; `None` if something is not sent or not accepted.
    pub(crate) fn registered_with(&self) -> Option<Incarnation> {
        self.link.registered_with().filter(|_| self.registry.is_synced() && self.rings.is_synced())
    }
}

/// Whether heartbeat words tell when values were measured.
fn tells_times(hello: Option<&Hello>) -> bool {
    hello.is_some_and(|hello| hello.fastest.is_some())
}

#[cfg(test)]
#[cfg(not(miri))] // Needs memfd, which Miri does not have.
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use wire::frame::{Frames, MAX_FRAME_BYTES};
    use wire::histogram::Scale;
    use wire::metric::{Group, Kind};

    use super::*;
    use crate::metric_spec::MetricSpec;
    use crate::service::{Limits, Service};

    fn session() -> Session {
        let hello = Service::new("payment").hello("payment-1").unwrap();
        Session::new(Registry::new("payment", Limits::default()), Some(hello), 1)
    }

    fn spec(name: String) -> MetricSpec {
        let kind = Kind::Histogram(Scale::DEFAULT);
        let (labels, group, shards) = (Vec::new(), Group::Service, wire::registration::Shards::ONE);
        MetricSpec {
            name,
            labels,
            kind,
            unit: None,
            group,
            parts_per_unit: 1,
            shards,
            aggregation: None,
            read_every_ms: 0,
        }
    }

    /// All messages not yet sent, as an agent decodes them.
    fn drain(session: &mut Session) -> Vec<ServiceMessage> {
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
        let _ = session.registry.register(&spec("a".into()), false);

        for _ in 0..2 {
            session.connected();
            let messages = drain(&mut session);
            assert!(matches!(
                messages[..],
                [ServiceMessage::Hello(_), ServiceMessage::AddRegion { .. }, ServiceMessage::AddSeries(_)]
            ));
            assert_eq!(session.registered_with(), None, "nothing is accepted");
            session.disconnected(Nanos::ZERO, &Disconnect::Closed);
        }
    }

    /// The heartbeat counter of the first region.
    fn beats(session: &Session) -> u64 {
        session.registry.heartbeats().next().unwrap()
    }

    /// A session of a service whose values change every second, welcomed by an agent that waits for that, or by one of
    /// an earlier release.
    fn welcomed(awaits_changes: bool) -> Session {
        welcomed_as(&Service::new("network.way").changes_every(Duration::from_secs(1)), awaits_changes)
    }

    fn welcomed_as(service: &Service, awaits_changes: bool) -> Session {
        let mut session = Session::new(Registry::new("network.way", Limits::default()), service.hello("way-1").ok(), 1);
        let _ = session.registry.register(&spec("a".into()), false);
        session.connected();
        let welcome = proto::Welcome { agent_incarnation: 1, heartbeat_ms: 100, awaits_changes, takes_subjects: true };
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
        session.disconnected(Nanos::from_secs(10), &Disconnect::Closed);
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
    fn the_heart_of_what_tells_when_it_was_measured_shows_that_time_and_nothing_else() {
        let service = Service::new("redis").changes_every(Duration::from_secs(1)).fastest(Duration::from_millis(100));
        let mut session = welcomed_as(&service, true);

        session.sampled(Nanos::from_millis(30));
        let _ = session.poll(Nanos::from_secs(10));
        assert_eq!(beats(&session), 30_000);

        // Until the next agent has said something, too.
        session.disconnected(Nanos::from_secs(10), &Disconnect::Closed);
        session.connected();
        let _ = session.poll(Nanos::from_secs(20));
        session.sampled(Nanos::from_millis(50));
        assert_eq!(beats(&session), 50_000);

        let mut earlier = welcomed_as(&service, false);
        let before = beats(&earlier);
        let _ = earlier.poll(Nanos::from_secs(10));
        earlier.sampled(Nanos::from_secs(10));
        assert_eq!(beats(&earlier), before + 1, "an earlier agent sees it beat as ever");
    }

    /// The agent refuses `what` for so long.
    fn refuse(session: &mut Session, what: &str, retry_after_ms: u32) {
        let refusal = proto::Refusal { what: what.into(), reason: "too fast".into(), retry_after_ms };
        let message = proto::AgentMessage { message: Some(proto::agent_message::Message::Refusal(refusal)) };
        session.incoming(&message.encode_to_vec()).unwrap();
    }

    #[test]
    fn series_that_were_refused_for_now_are_sent_again_at_a_slow_beat() {
        let mut session = session();
        for name in ["a", "b"] {
            let _ = session.registry.register(&spec(name.into()), false);
        }
        session.connected();
        let _ = drain(&mut session);

        refuse(&mut session, "b", 0);
        let _ = session.poll(Nanos::from_secs(1000));
        assert_eq!(drain(&mut session), [], "it is of no use");

        let mut sent = Vec::new();
        refuse(&mut session, "b", 7);
        for second in 1000..1040 {
            let actions = session.poll(Nanos::from_secs(second));
            assert!(!actions.connect && !actions.reconnect);
            let messages = drain(&mut session);
            if messages.is_empty() {
                continue;
            }
            assert!(matches!(&messages[..], [ServiceMessage::AddSeries(series)] if series.len() == 2), "{messages:?}");
            assert_eq!(session.registry.problems.kept().len(), 0);
            sent.push(second);
            refuse(&mut session, "b", 7);
        }
        assert!((2..=4).contains(&sent.len()), "{sent:?}");

        refuse(&mut session, "region 1", 7);
        assert!(session.poll(Nanos::from_secs(1060)).reconnect, "the region has to be sent again, too");
        session.disconnected(Nanos::from_secs(1060), &Disconnect::Again);
        session.connected();
        assert!(!session.poll(Nanos::from_secs(2000)).reconnect);
    }

    #[test]
    fn the_longest_names_fit_their_frames() {
        let mut session = session();
        for n in 0..200 {
            let labels = (0..16).map(|l| (format!("{l:a>128}"), "\u{1f980}".repeat(64))).collect();
            let longest = MetricSpec { labels, unit: Some("u".repeat(63)), ..spec(format!("{n:m>255}")) };
            assert!(session.registry.register(&longest, false).series.is_some());
        }

        session.connected();
        let messages = drain(&mut session);

        let announced = messages.iter().map(|message| match message {
            ServiceMessage::AddSeries(series) => series.len(),
            _ => 0,
        });
        assert_eq!(announced.sum::<usize>(), 200);
    }

    proptest! {
        #[test]
        fn any_frame_is_taken_or_is_garbage_and_nothing_that_is_used_is_given_up(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..20)) {
            let mut session = session();
            let binding = session.registry.register(&spec("a".into()), false);
            session.connected();
            let _ = drain(&mut session);

            for frame in &frames {
                let _ = session.incoming(frame);
            }

            let again = session.registry.register(&spec("a".into()), false);
            let other = session.registry.register(&spec("b".into()), false);
            prop_assert!(again.run.same(&binding.run) && !other.run.same(&binding.run));
        }
    }
}
