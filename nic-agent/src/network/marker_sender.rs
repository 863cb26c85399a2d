//! Sends the frames that begin intervals in switches, at the ends of the clock's intervals.

use std::thread;
use std::time::Duration;

use agent_runtime::clock::unix_now;
use packets::ring::FrameSender;
use packets::switch::markers;
use wire::time::{Nanos, UnixNanos};

use super::interface::Stop;
use super::interval::{WallInterval, interval_number};
use crate::error::chain;

/// The longest sleep, which bounds how long the agent takes to end, and how late a step of the clock is noticed.
const WAIT: Duration = Duration::from_millis(20);
/// An interface that takes no frames is logged at the first interval and every so many intervals.
const WARN_EVERY: u32 = 60;

/// Sends them from one interface.
#[derive(Debug)]
pub(super) struct MarkerSender {
    interface: String,
    length: Nanos,
    interval: WallInterval,
    sender: Option<FrameSender>,
    /// Intervals in a row of which none was sent.
    failed: u32,
}

impl MarkerSender {
    /// None is sent yet, of intervals of this length, which is not zero.
    pub(super) fn new(interface: &str, length: Nanos) -> Self {
        let interval = WallInterval::new(length);
        Self { interface: interface.to_owned(), length, interval, sender: None, failed: 0 }
    }

    /// Sends them at the begin of each interval, until `stop` is set.
    pub(super) fn run(mut self, stop: &Stop) {
        while !stop.is_set() {
            self.poll(unix_now());
            thread::sleep(WAIT.min(self.left(unix_now()).into()));
        }
    }

    /// The time from `now` until the next ones are due.
    fn left(&self, now: UnixNanos) -> Nanos {
        self.interval.left(now)
    }

    /// Sends those of the interval that `now` is in, once.
    fn poll(&mut self, now: UnixNanos) {
        if self.interval.end(now).is_none() {
            return;
        }
        match self.send(interval_number(now, self.length)) {
            Ok(()) => self.failed = 0,
            Err(error) => {
                // The interface may be another one of this name by then.
                self.sender = None;
                if self.failed.is_multiple_of(WARN_EVERY) {
                    let (interface, why) = (&self.interface, chain(&*error));
                    tracing::warn!(interface, why, "no interval begins in the switches: trying again");
                }
                self.failed = self.failed.saturating_add(1);
            }
        }
    }

    fn send(&mut self, interval: u64) -> Result<(), Box<dyn core::error::Error>> {
        let open = match self.sender.take() {
            Some(open) => open,
            None => FrameSender::open(&self.interface)?,
        };
        let sender = self.sender.insert(open);
        for number in markers::numbers(interval) {
            sender.send(&markers::frame(number))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_there_is_not_is_tried_again_at_the_next_interval() {
        let second = Nanos::from_secs(1);
        let mut sender = MarkerSender::new("no such one", second);
        for (millis, failed) in [(5_300, 1), (5_900, 1), (6_000, 2), (6_100, 2), (7_000, 3)] {
            sender.poll(UnixNanos::from_millis(millis));
            assert_eq!(sender.failed, failed, "at {millis} ms");
        }
        assert_eq!(sender.left(UnixNanos::from_millis(7_100)), Nanos::from_millis(900));
    }
}
