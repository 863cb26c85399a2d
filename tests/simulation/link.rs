//! One direction of a connection: in order, late by a random time, and gone at once with all that was under way.

use std::collections::VecDeque;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use wire::time::Nanos;

/// What is under way, oldest first.
#[derive(Debug)]
pub struct Link<M>(VecDeque<(Nanos, M)>);

impl<M> Default for Link<M> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<M> Link<M> {
    /// Sends `message`: it arrives within 60 ms, rarely within a second, never before what was sent earlier.
    pub fn send(&mut self, now: Nanos, random: &mut ChaCha8Rng, message: M) {
        let longest = if random.random_bool(0.02) { 1_000_000 } else { 60_000 };
        let late = Nanos::from_micros(random.random_range(10..longest));
        let after = self.0.back().map_or(Nanos::ZERO, |(at, _)| *at);
        self.0.push_back((now.plus(late).max(after), message));
    }

    /// What is under way.
    pub fn under_way(&self) -> impl Iterator<Item = &M> {
        self.0.iter().map(|(_, message)| message)
    }

    /// The next message that has arrived.
    pub fn receive(&mut self, now: Nanos) -> Option<M> {
        self.0.pop_front_if(|(at, _)| *at <= now).map(|(_, message)| message)
    }
}
