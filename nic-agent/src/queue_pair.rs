//! The worker's queue pair, as far as it is decided and not done: reset it, tell the host agent, wait for the answer, connect, and begin
//! again whenever it is lost.
//!
//! ```text
//! Unused → Down → Resetting → Asked → Connecting → Up
//!            ↑________|_________|_________|________|     after a pause that grows while nothing works
//! ```
//!
//! Every try has a number of its own, and every connection packet numbers that begin at a random place, so that nothing of an earlier one
//! is taken for a part of this one.

use wire::proto::control as proto;
use wire::rdma::{Endpoint, EndpointError, PacketSequence};
use wire::time::Nanos;

use crate::backoff::{Backoff, Seeds};

/// The first and the longest pause before the next try.
const PAUSE: (Nanos, Nanos) = (Nanos::from_millis(10), Nanos::from_secs(1));
/// How long an answer of the host agent may take. It is given at once; one that has not come by then was lost with its connection.
const PATIENCE: Nanos = Nanos::from_secs(2);
/// A connection that lasts so long was a good one: the next pause is the first again.
const GOOD: Nanos = Nanos::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Regions are fetched some other way, or nobody is there to connect to.
    Unused,
    /// Not connected until the next try.
    Down { again: Nanos },
    /// The device is to reset it.
    Resetting,
    /// The host agent knows our end; its own is waited for.
    Asked { until: Nanos },
    /// The device is to connect it.
    Connecting,
    /// Connected.
    Up { since: Nanos },
}

/// What is to be done with the queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuePairEffect {
    /// Reset it, with this start of its packet numbers, and tell [`Worker::queue_pair_reset`](crate::Worker::queue_pair_reset).
    Reset(PacketSequence),
    /// Connect it to the host agent's, and tell [`Worker::queue_pair_connected`](crate::Worker::queue_pair_connected).
    Connect(Endpoint),
}

/// Why an answer of the host agent was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// No queue pair can be what it names.
    #[error("the host agent names a queue pair that cannot be")]
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
        Self { state: State::Unused, attempt: 0, backoff: Backoff::new(PAUSE.0, PAUSE.1), connections: 0 }
    }

    /// The host agent has welcomed the worker: whatever was before, the first try is due now, if regions are fetched over it.
    pub(crate) fn welcomed(&mut self, now: Nanos, used: bool) {
        self.backoff.reset();
        self.state = if used { State::Down { again: now } } else { State::Unused };
    }

    /// The host agent cannot be asked any more. What is connected stays so until it is lost: reading goes on while an agent hangs.
    pub(crate) fn disconnected(&mut self) {
        if !matches!(self.state, State::Up { .. }) {
            self.state = State::Unused;
        }
    }

    /// What is to be done at `now`.
    pub(crate) fn poll(&mut self, now: Nanos, seeds: &mut Seeds) -> Option<QueuePairEffect> {
        if matches!(self.state, State::Asked { until } if until <= now) {
            self.down(now, seeds);
        }
        if !matches!(self.state, State::Down { again } if again <= now) {
            return None;
        }
        self.state = State::Resetting;
        self.attempt = self.attempt.wrapping_add(1);
        Some(QueuePairEffect::Reset(PacketSequence::from_random(seeds.draw())))
    }

    /// When [`QueuePair::poll`] has something to do.
    pub(crate) const fn next(&self) -> Nanos {
        match self.state {
            State::Down { again: at } | State::Asked { until: at } => at,
            State::Unused | State::Resetting | State::Connecting | State::Up { .. } => Nanos::NEVER,
        }
    }

    /// The device has reset it, or could not. Returns what to tell the host agent.
    pub(crate) fn reset(
        &mut self,
        now: Nanos,
        outcome: Result<Endpoint, String>,
        seeds: &mut Seeds,
    ) -> Option<proto::ConnectQueuePair> {
        if self.state != State::Resetting {
            return None;
        }
        let attempt = self.attempt;
        Some(match outcome {
            Ok(worker) => {
                self.state = State::Asked { until: now.plus(PATIENCE) };
                proto::ConnectQueuePair { attempt, worker: Some((&worker).into()), problem: String::new() }
            }
            Err(problem) => {
                self.down(now, seeds);
                proto::ConnectQueuePair { attempt, worker: None, problem }
            }
        })
    }

    /// The host agent has answered. An answer that nobody waits for is none: it is from before the last loss.
    ///
    /// # Errors
    ///
    /// [`AnswerError`]; the next try comes after a pause.
    pub(crate) fn answer(
        &mut self,
        now: Nanos,
        answer: proto::QueuePairAnswer,
        seeds: &mut Seeds,
    ) -> Result<Option<QueuePairEffect>, AnswerError> {
        if !matches!(self.state, State::Asked { .. }) || answer.attempt != self.attempt {
            return Ok(None);
        }
        let host = if answer.problem.is_empty() {
            Endpoint::decode(answer.host.as_ref()).map_err(AnswerError::from)
        } else {
            Err(AnswerError::Problem(answer.problem))
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

    /// The device has connected it, or could not. Returns what to tell the host agent.
    pub(crate) fn connected(
        &mut self,
        now: Nanos,
        outcome: Result<(), String>,
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
                Some(proto::ConnectQueuePair { attempt: self.attempt, worker: None, problem })
            }
        }
    }

    /// A batch has failed as a whole, or an error has taken the queue pair down. Without a connection it was not there to be lost.
    pub(crate) fn lost(&mut self, now: Nanos, is_host_there: bool, seeds: &mut Seeds) {
        let State::Up { since } = self.state else { return };
        if now.since(since).is_some_and(|length| length >= GOOD) {
            self.backoff.reset();
        }
        if is_host_there {
            self.down(now, seeds);
        } else {
            self.state = State::Unused;
        }
    }

    /// Whether it is connected, as far as is known.
    pub(crate) const fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    /// How often it was connected.
    pub(crate) const fn connections(&self) -> u64 {
        self.connections
    }

    fn down(&mut self, now: Nanos, seeds: &mut Seeds) {
        self.state = State::Down { again: now.plus(self.backoff.pause(seeds.draw())) };
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

    fn answer(attempt: u32) -> proto::QueuePairAnswer {
        proto::QueuePairAnswer { attempt, host: Some((&end(9)).into()), problem: String::new() }
    }

    /// A queue pair whose host agent was asked at `now`, and the attempt.
    fn asked(now: Nanos) -> (QueuePair, Seeds, u32) {
        let (mut pair, mut seeds) = (QueuePair::new(), Seeds::new(3));
        pair.welcomed(now, true);
        let attempt = ask(&mut pair, &mut seeds, now);
        (pair, seeds, attempt)
    }

    fn ask(pair: &mut QueuePair, seeds: &mut Seeds, now: Nanos) -> u32 {
        assert!(matches!(pair.poll(now, seeds), Some(QueuePairEffect::Reset(_))));
        let asks = pair.reset(now, Ok(end(5)), seeds).unwrap();
        assert_eq!(asks.worker, Some((&end(5)).into()));
        asks.attempt
    }

    fn up(now: Nanos) -> (QueuePair, Seeds, u32) {
        let (mut pair, mut seeds, attempt) = asked(now);
        let connect = pair.answer(now, answer(attempt), &mut seeds).unwrap();
        assert_eq!(connect, Some(QueuePairEffect::Connect(end(9))));
        assert_eq!(pair.connected(now, Ok(()), &mut seeds), None);
        assert_eq!(pair.next(), Nanos::NEVER);
        (pair, seeds, attempt)
    }

    #[test]
    fn a_welcome_connects_it_and_a_loss_connects_it_again_as_another_attempt() {
        let (mut pair, mut seeds, first) = up(Nanos::ZERO);

        pair.lost(Nanos::ZERO, true, &mut seeds);

        assert!(pair.next() <= PAUSE.0, "the first pause is short");
        let second = ask(&mut pair, &mut seeds, LATER);
        assert_ne!(first, second);
        assert!(pair.answer(LATER, answer(second), &mut seeds).unwrap().is_some());
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
    fn an_answer_to_another_attempt_is_none() {
        let (mut pair, mut seeds, attempt) = asked(Nanos::ZERO);

        for stale in [attempt.wrapping_sub(1), attempt + 1] {
            assert_eq!(pair.answer(Nanos::ZERO, answer(stale), &mut seeds), Ok(None));
        }
        assert!(pair.answer(Nanos::ZERO, answer(attempt), &mut seeds).unwrap().is_some());
        assert_eq!(pair.answer(Nanos::ZERO, answer(attempt), &mut seeds), Ok(None), "once is enough");
    }

    #[test]
    fn an_answer_that_does_not_come_is_asked_for_again() {
        let (mut pair, mut seeds, lost) = asked(Nanos::ZERO);

        assert_eq!(pair.next(), PATIENCE);
        assert_eq!(pair.poll(PATIENCE, &mut seeds), None, "a pause comes first");
        let again = pair.next();
        assert!(PATIENCE < again && again <= PATIENCE.plus(PAUSE.1));
        let attempt = ask(&mut pair, &mut seeds, again);

        assert_eq!(pair.answer(again, answer(lost), &mut seeds), Ok(None), "the lost answer comes after all");
        assert!(pair.answer(again, answer(attempt), &mut seeds).unwrap().is_some());
    }

    #[test]
    fn a_problem_of_the_host_agent_is_told_and_tried_again_after_longer_and_longer_pauses() {
        let (mut pair, mut seeds, mut attempt) = asked(Nanos::ZERO);
        let mut now = Nanos::ZERO;

        for longest in [10, 20, 40, 80, 160, 320, 640, 1000, 1000] {
            let problem = proto::QueuePairAnswer { attempt, host: None, problem: "no memory".into() };
            assert_eq!(pair.answer(now, problem, &mut seeds), Err(AnswerError::Problem("no memory".into())));
            let pause = pair.next().since(now).unwrap();
            assert!(Nanos::from_millis(longest / 2) <= pause && pause <= Nanos::from_millis(longest), "{pause}");
            now = pair.next();
            attempt = ask(&mut pair, &mut seeds, now);
        }
    }

    #[test]
    fn an_absurd_queue_pair_never_reaches_the_device() {
        let (mut pair, mut seeds, attempt) = asked(Nanos::ZERO);
        let absurd = proto::QueuePair { qpn: u32::MAX, ..(&end(9)).into() };

        let refused =
            pair.answer(Nanos::ZERO, proto::QueuePairAnswer { host: Some(absurd), ..answer(attempt) }, &mut seeds);

        assert_eq!(refused, Err(AnswerError::Endpoint(EndpointError::QueuePair(u32::MAX))));
        assert!(pair.next() < Nanos::NEVER, "it is tried again");
    }

    #[test]
    fn a_device_that_does_not_work_is_told_of_and_tried_again() {
        let (mut pair, mut seeds) = (QueuePair::new(), Seeds::new(3));
        pair.welcomed(Nanos::ZERO, true);
        assert!(pair.poll(Nanos::ZERO, &mut seeds).is_some());

        let told = pair.reset(Nanos::ZERO, Err("the device is gone".into()), &mut seeds).unwrap();
        assert_eq!((told.worker, told.problem.as_str()), (None, "the device is gone"));

        let attempt = ask(&mut pair, &mut seeds, LATER);
        assert!(pair.answer(LATER, answer(attempt), &mut seeds).unwrap().is_some());
        let told = pair.connected(LATER, Err("no route".into()), &mut seeds).unwrap();
        assert_eq!(told.problem, "no route");
        assert_eq!(pair.connections(), 0);
        ask(&mut pair, &mut seeds, LATER.plus(LATER));
    }

    #[test]
    fn without_a_host_agent_a_connection_lives_on_and_a_lost_one_waits_for_the_welcome() {
        let (mut pair, mut seeds, _) = up(Nanos::ZERO);

        pair.disconnected();
        pair.lost(LATER, false, &mut seeds);

        assert_eq!(pair.next(), Nanos::NEVER);
        assert_eq!(pair.poll(LATER, &mut seeds), None);
        pair.welcomed(LATER, true);
        ask(&mut pair, &mut seeds, LATER);
    }

    #[test]
    fn an_attempt_that_is_under_way_ends_with_the_connection_to_the_host_agent() {
        let (mut pair, mut seeds, attempt) = asked(Nanos::ZERO);

        pair.disconnected();

        assert_eq!(pair.answer(Nanos::ZERO, answer(attempt), &mut seeds), Ok(None));
        assert_eq!(pair.next(), Nanos::NEVER);
    }

    #[test]
    fn a_restarted_host_agent_is_asked_at_once() {
        let (mut pair, mut seeds, first) = up(Nanos::ZERO);

        pair.welcomed(LATER, true);

        assert_eq!(pair.next(), LATER);
        let attempt = ask(&mut pair, &mut seeds, LATER);
        assert_eq!(pair.answer(LATER, answer(first), &mut seeds), Ok(None));
        assert!(pair.answer(LATER, answer(attempt), &mut seeds).unwrap().is_some());
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
            let attempt = ask(&mut pair, &mut seeds, now);
            assert!(pair.answer(now, answer(attempt), &mut seeds).unwrap().is_some());
            pair.connected(now, Ok(()), &mut seeds);
        }
        assert!(pauses.is_sorted(), "{pauses:?}");

        pair.lost(now.plus(GOOD), true, &mut seeds);

        assert!(pair.next() <= now.plus(GOOD).plus(PAUSE.0));
    }

    #[test]
    fn shared_memory_needs_no_queue_pair() {
        let (mut pair, mut seeds) = (QueuePair::new(), Seeds::new(3));

        pair.welcomed(Nanos::ZERO, false);

        assert_eq!(pair.poll(LATER, &mut seeds), None);
        assert_eq!(pair.next(), Nanos::NEVER);
    }
}
