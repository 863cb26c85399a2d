//! The state machine of the worker's queue pair: reset it, send its endpoint to the host agent, wait for the reply,
//! connect, and start over when the connection is lost. The runner carries out the effects.
//!
//! ```text
//! Unused → Down → Resetting → Requested → Connecting → Up
//!            ↑________|_________|_________|________|     after a pause, with back-off
//! ```
//!
//! Each attempt has its own number, and each connection starts at a random packet sequence number. So messages and
//! packets of an earlier attempt are not mistaken for those of this one.

use wire::backoff::Backoff;
use wire::proto::control as proto;
use wire::rdma::{Endpoint, EndpointError, PacketSequence};
use wire::time::Nanos;

use crate::effect_error::EffectError;
use crate::seeds::Seeds;

/// The first and the longest pause before the next attempt.
const BACKOFF: (Nanos, Nanos) = (Nanos::from_millis(10), Nanos::from_secs(1));
/// Timeout of a reply of the host agent, which replies at once. A reply that is not there by then was lost with its
/// connection.
const REPLY_TIMEOUT: Nanos = Nanos::from_secs(2);
/// After a connection of this length, the back-off starts over.
const STABLE_AFTER: Nanos = Nanos::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Regions are fetched over another transport, or no host agent is connected.
    Unused,
    /// Not connected until the next attempt.
    Down { again: Nanos },
    /// The device is resetting it.
    Resetting,
    /// The host agent has this end's endpoint; its reply is pending.
    Requested { until: Nanos },
    /// The device is connecting it.
    Connecting,
    /// Connected since then.
    Up { since: Nanos },
}

/// What the runner has to do with the queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuePairEffect {
    /// Reset it, with this first packet sequence number, and call
    /// [`Worker::queue_pair_reset`](crate::Worker::queue_pair_reset).
    Reset(PacketSequence),
    /// Connect it to the host agent's, and call [`Worker::queue_pair_connected`](crate::Worker::queue_pair_connected).
    Connect(Endpoint),
}

/// Why a reply of the host agent cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueuePairReplyError {
    /// The endpoint in the reply is invalid.
    #[error("the host agent named an invalid queue pair")]
    Endpoint(#[from] EndpointError),
    /// The host agent could not connect its end.
    #[error("the host agent cannot connect its queue pair: {0}")]
    Problem(String),
}

/// The state of the queue pair of one worker.
#[derive(Debug)]
pub(crate) struct QueuePair {
    state: State,
    attempt: u32,
    backoff: Backoff,
    connections: u64,
}

impl QueuePair {
    pub(crate) const fn new() -> Self {
        Self { state: State::Unused, attempt: 0, backoff: Backoff::new(BACKOFF.0, BACKOFF.1), connections: 0 }
    }

    /// The host agent has welcomed the worker: the first attempt is due now if regions are fetched over RDMA (`used`).
    pub(crate) fn welcomed(&mut self, now: Nanos, used: bool) {
        self.backoff.reset();
        self.state = if used { State::Down { again: now } } else { State::Unused };
    }

    /// The control connection is lost. A connected queue pair stays connected until it is lost itself: reads continue
    /// while the host agent hangs.
    pub(crate) fn disconnected(&mut self) {
        if !matches!(self.state, State::Up { .. }) {
            self.state = State::Unused;
        }
    }

    /// The effect that is due at `now`.
    pub(crate) fn poll(&mut self, now: Nanos, seeds: &mut Seeds) -> Option<QueuePairEffect> {
        if matches!(self.state, State::Requested { until } if until <= now) {
            self.down(now, seeds);
        }
        if !matches!(self.state, State::Down { again } if again <= now) {
            return None;
        }
        self.state = State::Resetting;
        self.attempt = self.attempt.wrapping_add(1);
        Some(QueuePairEffect::Reset(PacketSequence::from_random(seeds.draw())))
    }

    /// The time of the next [`QueuePair::poll`] that does something.
    pub(crate) const fn next(&self) -> Nanos {
        match self.state {
            State::Down { again: at } | State::Requested { until: at } => at,
            State::Unused | State::Resetting | State::Connecting | State::Up { .. } => Nanos::NEVER,
        }
    }

    /// The device has reset the queue pair, or has failed to. Returns the message for the host agent.
    pub(crate) fn reset(
        &mut self,
        now: Nanos,
        outcome: Result<Endpoint, EffectError>,
        seeds: &mut Seeds,
    ) -> Option<proto::ConnectQueuePair> {
        if self.state != State::Resetting {
            return None;
        }
        let attempt = self.attempt;
        Some(match outcome {
            Ok(worker) => {
                self.state = State::Requested { until: now.plus(REPLY_TIMEOUT) };
                proto::ConnectQueuePair { attempt, worker: Some((&worker).into()), problem: String::new() }
            }
            Err(problem) => {
                self.down(now, seeds);
                proto::ConnectQueuePair { attempt, worker: None, problem: problem.to_string() }
            }
        })
    }

    /// Takes the reply of the host agent. A reply to an earlier attempt is ignored.
    ///
    /// # Errors
    ///
    /// [`QueuePairReplyError`]; the next attempt comes after a pause.
    pub(crate) fn reply(
        &mut self,
        now: Nanos,
        reply: proto::QueuePairReply,
        seeds: &mut Seeds,
    ) -> Result<Option<QueuePairEffect>, QueuePairReplyError> {
        if !matches!(self.state, State::Requested { .. }) || reply.attempt != self.attempt {
            return Ok(None);
        }
        let host = if reply.problem.is_empty() {
            Endpoint::decode(reply.host.as_ref()).map_err(QueuePairReplyError::from)
        } else {
            Err(QueuePairReplyError::Problem(reply.problem))
        };
        match host {
            Ok(host) => {
                self.state = State::Connecting;
                Ok(Some(QueuePairEffect::Connect(host)))
            }
            Err(error) => {
                self.down(now, seeds);
                Err(error)
            }
        }
    }

    /// The device has connected the queue pair, or has failed to. Returns the message for the host agent, if there is
    /// one.
    pub(crate) fn connected(
        &mut self,
        now: Nanos,
        outcome: Result<(), EffectError>,
        seeds: &mut Seeds,
    ) -> Option<proto::ConnectQueuePair> {
        if self.state != State::Connecting {
            return None;
        }
        match outcome {
            Ok(()) => {
                self.state = State::Up { since: now };
                self.connections += 1;
                None
            }
            Err(problem) => {
                self.down(now, seeds);
                Some(proto::ConnectQueuePair { attempt: self.attempt, worker: None, problem: problem.to_string() })
            }
        }
    }

    /// A batch has failed as a whole, or an error has taken the queue pair down. Does nothing if it was not connected.
    pub(crate) fn lost(&mut self, now: Nanos, is_host_there: bool, seeds: &mut Seeds) {
        let State::Up { since } = self.state else { return };
        if now.since(since).is_some_and(|length| length >= STABLE_AFTER) {
            self.backoff.reset();
        }
        if is_host_there {
            self.down(now, seeds);
        } else {
            self.state = State::Unused;
        }
    }

    /// Whether the queue pair is connected, as far as the worker knows.
    pub(crate) const fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    /// Connections so far.
    pub(crate) const fn connections(&self) -> u64 {
        self.connections
    }

    fn down(&mut self, now: Nanos, seeds: &mut Seeds) {
        self.state = State::Down { again: now.plus(self.backoff.pause(seeds.fraction())) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::rdma::{PathMtu, QueuePairNumber};

    const LATER: Nanos = Nanos::from_secs(10);

    fn end(qpn: u32) -> Endpoint {
        Endpoint {
            qpn: QueuePairNumber::new(qpn).unwrap(),
            psn: PacketSequence::new(1).unwrap(),
            gid: Some([1; 16]),
            lid: 0,
            mtu: PathMtu::B1024,
            reads: None,
        }
    }

    fn reply(attempt: u32) -> proto::QueuePairReply {
        proto::QueuePairReply { attempt, host: Some((&end(9)).into()), problem: String::new() }
    }

    /// A queue pair whose request was sent at `now`, and the number of the attempt.
    fn requested(now: Nanos) -> (QueuePair, Seeds, u32) {
        let (mut pair, mut seeds) = (QueuePair::new(), Seeds::new(3));
        pair.welcomed(now, true);
        let attempt = request(&mut pair, &mut seeds, now);
        (pair, seeds, attempt)
    }

    fn request(pair: &mut QueuePair, seeds: &mut Seeds, now: Nanos) -> u32 {
        assert!(matches!(pair.poll(now, seeds), Some(QueuePairEffect::Reset(_))));
        let request = pair.reset(now, Ok(end(5)), seeds).unwrap();
        assert_eq!(request.worker, Some((&end(5)).into()));
        request.attempt
    }

    fn up(now: Nanos) -> (QueuePair, Seeds, u32) {
        let (mut pair, mut seeds, attempt) = requested(now);
        let connect = pair.reply(now, reply(attempt), &mut seeds).unwrap();
        assert_eq!(connect, Some(QueuePairEffect::Connect(end(9))));
        assert_eq!(pair.connected(now, Ok(()), &mut seeds), None);
        assert_eq!(pair.next(), Nanos::NEVER);
        (pair, seeds, attempt)
    }

    #[test]
    fn a_welcome_connects_it_and_a_loss_connects_it_again_as_another_attempt() {
        let (mut pair, mut seeds, first) = up(Nanos::ZERO);

        pair.lost(Nanos::ZERO, true, &mut seeds);

        assert!(pair.next() <= BACKOFF.0, "the first pause is short");
        let second = request(&mut pair, &mut seeds, LATER);
        assert_ne!(first, second);
        assert!(pair.reply(LATER, reply(second), &mut seeds).unwrap().is_some());
        pair.connected(LATER, Ok(()), &mut seeds);
        assert_eq!(pair.connections(), 2);
    }

    #[test]
    fn packet_numbers_begin_somewhere_else_each_time() {
        let (mut pair, mut seeds) = (QueuePair::new(), Seeds::new(3));
        let mut starts = std::collections::BTreeSet::new();

        for _ in 0..100 {
            pair.welcomed(Nanos::ZERO, true);
            let Some(QueuePairEffect::Reset(start)) = pair.poll(Nanos::ZERO, &mut seeds) else { panic!("no try") };
            starts.insert(start.get());
        }

        assert_eq!(starts.len(), 100);
    }

    #[test]
    fn a_reply_to_another_attempt_is_ignored() {
        let (mut pair, mut seeds, attempt) = requested(Nanos::ZERO);

        for stale in [attempt.wrapping_sub(1), attempt + 1] {
            assert_eq!(pair.reply(Nanos::ZERO, reply(stale), &mut seeds), Ok(None));
        }
        assert!(pair.reply(Nanos::ZERO, reply(attempt), &mut seeds).unwrap().is_some());
        assert_eq!(pair.reply(Nanos::ZERO, reply(attempt), &mut seeds), Ok(None), "once is enough");
    }

    #[test]
    fn a_request_without_a_reply_is_sent_again() {
        let (mut pair, mut seeds, lost) = requested(Nanos::ZERO);

        assert_eq!(pair.next(), REPLY_TIMEOUT);
        assert_eq!(pair.poll(REPLY_TIMEOUT, &mut seeds), None, "a pause comes first");
        let again = pair.next();
        assert!(REPLY_TIMEOUT < again && again <= REPLY_TIMEOUT.plus(BACKOFF.1));
        let attempt = request(&mut pair, &mut seeds, again);

        assert_eq!(pair.reply(again, reply(lost), &mut seeds), Ok(None), "the lost reply comes after all");
        assert!(pair.reply(again, reply(attempt), &mut seeds).unwrap().is_some());
    }

    #[test]
    fn a_problem_of_the_host_agent_is_returned_and_tried_again_after_longer_and_longer_pauses() {
        let (mut pair, mut seeds, mut attempt) = requested(Nanos::ZERO);
        let mut now = Nanos::ZERO;

        for longest in [10, 20, 40, 80, 160, 320, 640, 1000, 1000] {
            let problem = proto::QueuePairReply { attempt, host: None, problem: "no memory".into() };
            assert_eq!(pair.reply(now, problem, &mut seeds), Err(QueuePairReplyError::Problem("no memory".into())));
            let pause = pair.next().since(now).unwrap();
            assert!(Nanos::from_millis(longest / 2) <= pause && pause <= Nanos::from_millis(longest), "{pause}");
            now = pair.next();
            attempt = request(&mut pair, &mut seeds, now);
        }
    }

    #[test]
    fn an_absurd_queue_pair_never_reaches_the_device() {
        let (mut pair, mut seeds, attempt) = requested(Nanos::ZERO);
        let absurd = proto::QueuePair { qpn: u32::MAX, ..(&end(9)).into() };

        let refused =
            pair.reply(Nanos::ZERO, proto::QueuePairReply { host: Some(absurd), ..reply(attempt) }, &mut seeds);

        assert_eq!(refused, Err(QueuePairReplyError::Endpoint(EndpointError::QueuePair(u32::MAX))));
        assert!(pair.next() < Nanos::NEVER, "it is tried again");
    }

    #[test]
    fn a_device_that_does_not_work_is_reported_and_tried_again() {
        let (mut pair, mut seeds) = (QueuePair::new(), Seeds::new(3));
        pair.welcomed(Nanos::ZERO, true);
        assert!(pair.poll(Nanos::ZERO, &mut seeds).is_some());

        let sent = pair.reset(Nanos::ZERO, Err("the device is gone".into()), &mut seeds).unwrap();
        assert_eq!((sent.worker, sent.problem.as_str()), (None, "the device is gone"));

        let attempt = request(&mut pair, &mut seeds, LATER);
        assert!(pair.reply(LATER, reply(attempt), &mut seeds).unwrap().is_some());
        let sent = pair.connected(LATER, Err("no route".into()), &mut seeds).unwrap();
        assert_eq!(sent.problem, "no route");
        assert_eq!(pair.connections(), 0);
        request(&mut pair, &mut seeds, LATER.plus(LATER));
    }

    #[test]
    fn without_a_host_agent_a_connection_lives_on_and_a_lost_one_waits_for_the_welcome() {
        let (mut pair, mut seeds, _) = up(Nanos::ZERO);

        pair.disconnected();
        pair.lost(LATER, false, &mut seeds);

        assert_eq!(pair.next(), Nanos::NEVER);
        assert_eq!(pair.poll(LATER, &mut seeds), None);
        pair.welcomed(LATER, true);
        request(&mut pair, &mut seeds, LATER);
    }

    #[test]
    fn an_attempt_in_flight_ends_with_the_connection_to_the_host_agent() {
        let (mut pair, mut seeds, attempt) = requested(Nanos::ZERO);

        pair.disconnected();

        assert_eq!(pair.reply(Nanos::ZERO, reply(attempt), &mut seeds), Ok(None));
        assert_eq!(pair.next(), Nanos::NEVER);
    }

    #[test]
    fn a_restarted_host_agent_gets_a_request_at_once() {
        let (mut pair, mut seeds, first) = up(Nanos::ZERO);

        pair.welcomed(LATER, true);

        assert_eq!(pair.next(), LATER);
        let attempt = request(&mut pair, &mut seeds, LATER);
        assert_eq!(pair.reply(LATER, reply(first), &mut seeds), Ok(None));
        assert!(pair.reply(LATER, reply(attempt), &mut seeds).unwrap().is_some());
    }

    #[test]
    fn what_lasted_is_tried_again_soon_and_what_does_not_last_later_and_later() {
        let (mut pair, mut seeds, _) = up(Nanos::ZERO);
        let mut now = Nanos::ZERO;
        let mut pauses = Vec::new();
        for _ in 0..7 {
            pair.lost(now, true, &mut seeds);
            pauses.push(pair.next().since(now).unwrap());
            now = pair.next();
            let attempt = request(&mut pair, &mut seeds, now);
            assert!(pair.reply(now, reply(attempt), &mut seeds).unwrap().is_some());
            pair.connected(now, Ok(()), &mut seeds);
        }
        assert!(pauses.is_sorted(), "{pauses:?}");

        pair.lost(now.plus(STABLE_AFTER), true, &mut seeds);

        assert!(pair.next() <= now.plus(STABLE_AFTER).plus(BACKOFF.0));
    }

    #[test]
    fn shared_memory_needs_no_queue_pair() {
        let (mut pair, mut seeds) = (QueuePair::new(), Seeds::new(3));

        pair.welcomed(Nanos::ZERO, false);

        assert_eq!(pair.poll(LATER, &mut seeds), None);
        assert_eq!(pair.next(), Nanos::NEVER);
    }
}
