//! One direction of a connection: in order, with random delays; when it breaks, all messages in flight are lost.

use std::collections::VecDeque;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use wire::time::Nanos;

/// Messages in flight, the oldest first.
#[derive(Debug)]
pub struct Link<M>(VecDeque<(Nanos, M)>);

impl<M> Default for Link<M> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<M> Link<M> {
    /// Sends `message`. It arrives within 60 ms, rarely within a second (within 2 ms on a quiet node), and never before
    /// an earlier one.
    pub fn send(&mut self, now: Nanos, random: &mut ChaCha8Rng, is_quiet: bool, message: M) {
        let longest = if is_quiet {
            2_000
        } else if random.random_bool(0.02) {
            1_000_000
        } else {
            60_000
        };
        let late = Nanos::from_micros(random.random_range(10..longest));
        let after = self.0.back().map_or(Nanos::ZERO, |(at, _)| *at);
        self.0.push_back((now.plus(late).max(after), message));
    }

    /// All messages in flight.
    pub fn in_flight(&self) -> impl Iterator<Item = &M> {
        self.0.iter().map(|(_, message)| message)
    }

    /// The next message that has arrived.
    pub fn receive(&mut self, now: Nanos) -> Option<M> {
        self.0.pop_front_if(|(at, _)| *at <= now).map(|(_, message)| message)
    }
}
