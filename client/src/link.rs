//! When to connect and when to raise the heartbeat; the state of the connection. Pure: time is a parameter.
//!
//! Failed attempts are retried with exponential back-off: 50 ms, doubled up to 2 s, each up to a half less at random.

use wire::backoff::{Backoff, fraction};
use wire::id::Incarnation;
use wire::time::Nanos;

/// Heartbeat period unless the agent requests another.
const HEARTBEAT_MS: u32 = 100;
/// Heartbeat periods that an agent may request.
const HEARTBEAT_RANGE_MS: (u32, u32) = (10, 60_000);
/// Pauses between two attempts to connect.
const BACKOFF: Backoff = Backoff::new(Nanos::from_millis(50), Nanos::from_secs(2));

/// What the I/O thread has to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct LinkActions {
    /// Raise the heartbeat.
    pub(crate) beat: bool,
    /// Try to connect.
    pub(crate) connect: bool,
    /// Close the connection, and connect again.
    pub(crate) reconnect: bool,
    /// When to poll again, at the latest.
    pub(crate) next_poll: Nanos,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Waiting { until: Nanos },
    Open { sent: u64, accepted: u64, agent: Option<Incarnation> },
}

/// The state of a service's connection, across disconnects and agent restarts.
#[derive(Debug)]
pub(crate) struct Link {
    phase: Phase,
    backoff: Backoff,
    random: u64,
    heartbeat: Nanos,
    next_beat: Nanos,
    attempts: u64,
    connections: u64,
    protocol_errors: u64,
    error: Option<String>,
}

impl Link {
    /// Not connected; the first attempt is due at once. `seed` spreads the attempts of services on one node.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            phase: Phase::Waiting { until: Nanos::ZERO },
            backoff: BACKOFF,
            random: seed | 1,
            heartbeat: Nanos::from_millis(HEARTBEAT_MS.into()),
            next_beat: Nanos::ZERO,
            attempts: 0,
            connections: 0,
            protocol_errors: 0,
            error: None,
        }
    }

    /// What to do at `now`. Missed heartbeats are not made up for.
    pub(crate) fn poll(&mut self, now: Nanos) -> LinkActions {
        let beat = self.next_beat <= now;
        if beat {
            self.next_beat = now.plus(self.heartbeat);
        }
        match self.phase {
            Phase::Waiting { until } if until <= now => {
                LinkActions { beat, connect: true, reconnect: false, next_poll: now }
            }
            Phase::Waiting { until } => {
                LinkActions { beat, connect: false, reconnect: false, next_poll: self.next_beat.min(until) }
            }
            Phase::Open { .. } => LinkActions { beat, connect: false, reconnect: false, next_poll: self.next_beat },
        }
    }

    /// An attempt to connect succeeded. Only `welcomed` resets the back-off: the agent may be dying.
    pub(crate) fn connected(&mut self) {
        self.attempts += 1;
        self.connections += 1;
        self.phase = Phase::Open { sent: 0, accepted: 0, agent: None };
    }

    /// An attempt to connect failed, or the connection was lost.
    pub(crate) fn disconnected(&mut self, now: Nanos, reason: String) {
        if matches!(self.phase, Phase::Waiting { .. }) {
            self.attempts += 1;
        }
        let random = fraction(self.draw());
        self.phase = Phase::Waiting { until: now.plus(self.backoff.pause(random)) };
        self.error = Some(reason);
    }

    /// The agent sent an invalid message.
    pub(crate) fn count_protocol_error(&mut self) {
        self.protocol_errors += 1;
    }

    /// A message was passed to the socket.
    pub(crate) fn sent(&mut self) {
        if let Phase::Open { sent, .. } = &mut self.phase {
            *sent += 1;
        }
    }

    /// The agent has accepted the hello and requests a heartbeat period (0: the default of 100 ms).
    pub(crate) fn welcomed(&mut self, by: Incarnation, heartbeat_ms: u32) {
        if let Phase::Open { agent, .. } = &mut self.phase {
            *agent = Some(by);
            self.attempts = 0;
            self.backoff.reset();
            self.error = None;
            let (shortest, longest) = HEARTBEAT_RANGE_MS;
            let millis = if heartbeat_ms == 0 { HEARTBEAT_MS } else { heartbeat_ms.clamp(shortest, longest) };
            let sooner = Nanos::from_millis(millis.into()) < self.heartbeat;
            self.heartbeat = Nanos::from_millis(millis.into());
            if sooner {
                self.next_beat = Nanos::ZERO;
            }
        }
    }

    /// The agent has put the first `messages` into effect.
    pub(crate) fn accepted(&mut self, messages: u64) {
        if let Phase::Open { sent, accepted, .. } = &mut self.phase {
            *accepted = messages.min(*sent).max(*accepted);
        }
    }

    /// The agent that has accepted every message sent; `None` before.
    pub(crate) const fn registered_with(&self) -> Option<Incarnation> {
        match self.phase {
            Phase::Open { sent, accepted, agent } if accepted == sent => agent,
            Phase::Open { .. } | Phase::Waiting { .. } => None,
        }
    }

    /// Whether a connection is open, accepted or not.
    pub(crate) const fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open { .. })
    }

    /// Attempts to connect since an agent last replied.
    pub(crate) const fn attempts(&self) -> u64 {
        self.attempts
    }

    /// Connections established so far.
    pub(crate) const fn connections(&self) -> u64 {
        self.connections
    }

    /// Connections closed after an invalid message.
    pub(crate) const fn protocol_errors(&self) -> u64 {
        self.protocol_errors
    }

    /// Why the last attempt or connection failed, if no agent has replied since.
    pub(crate) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// `pause` ± 25 % at random.
    pub(crate) fn spread(&mut self, pause: Nanos) -> Nanos {
        let half = pause.0 / 2;
        Nanos(pause.0 - half / 2 + self.draw() % half.max(1))
    }

    /// The next random number: Marsaglia's xorshift.
    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENT: Incarnation = Incarnation(7);

    /// Connects, whenever that is due first.
    fn connect(link: &mut Link) {
        assert!(link.poll(Nanos::NEVER).connect);
        link.connected();
    }

    #[test]
    fn pauses_grow_to_a_bound_and_start_again_after_an_answer() {
        let mut link = Link::new(42);
        let mut now = Nanos::ZERO;
        let mut pauses = Vec::new();
        for _ in 0..12 {
            assert!(link.poll(now).connect);
            link.disconnected(now, "nobody".into());
            let mut actions = link.poll(now);
            while !actions.connect {
                assert!(actions.next_poll > now, "it would spin");
                now = actions.next_poll;
                actions = link.poll(now);
            }
            pauses.push(now);
        }

        assert!(pauses[0] < Nanos::from_millis(100), "{pauses:?}");
        let steps: Vec<_> = pauses.windows(2).map(|pair| pair[1].since(pair[0]).unwrap()).collect();
        assert!(steps.iter().all(|step| *step <= Nanos::from_secs(2)), "{steps:?}");
        assert!(*steps.last().unwrap() >= Nanos::from_secs(1), "{steps:?}");
        assert_eq!(link.attempts(), 12);

        link.connected();
        link.welcomed(AGENT, 100);
        assert_eq!(link.attempts(), 0);
        link.disconnected(now, "gone".into());
        let again = link.poll(now.plus(Nanos::from_millis(70)));
        assert!(again.connect, "the first pause is short again");
    }

    #[test]
    fn the_heart_beats_at_the_agents_period_and_beats_that_were_missed_are_not_made_up_for() {
        let mut link = Link::new(1);
        connect(&mut link);
        let mut link = Link { next_beat: Nanos::ZERO, ..link };
        link.welcomed(AGENT, 20);

        let beats = (0..100).filter(|ms| link.poll(Nanos::from_millis(*ms)).beat).count();
        assert_eq!(beats, 5);

        assert!(link.poll(Nanos::from_secs(10)).beat);
        assert!(!link.poll(Nanos::from_secs(10)).beat);
        assert_eq!(link.poll(Nanos::from_secs(10)).next_poll, Nanos::from_millis(10_020));
    }

    #[test]
    fn an_agent_cannot_stop_the_heart_or_make_it_race() {
        for (asked, period) in [(0, 100), (1, 10), (u32::MAX, 60_000)] {
            let mut link = Link::new(1);
            connect(&mut link);
            link.welcomed(AGENT, asked);
            assert_eq!(link.heartbeat, Nanos::from_millis(period));
        }
    }

    #[test]
    fn a_service_is_registered_when_the_agent_has_accepted_everything() {
        let mut link = Link::new(1);
        assert_eq!(link.registered_with(), None);
        connect(&mut link);
        link.sent();
        link.sent();
        assert_eq!(link.registered_with(), None, "sent is not registered");

        link.welcomed(AGENT, 100);
        link.accepted(1);
        assert_eq!(link.registered_with(), None);
        link.accepted(2);
        assert_eq!(link.registered_with(), Some(AGENT));

        link.sent();
        assert_eq!(link.registered_with(), None, "there is something new");
        link.accepted(u64::MAX);
        link.accepted(0);
        assert_eq!(link.registered_with(), Some(AGENT), "counts that cannot be do no harm");

        link.disconnected(Nanos::ZERO, "end".into());
        assert_eq!(link.registered_with(), None);
    }
}
