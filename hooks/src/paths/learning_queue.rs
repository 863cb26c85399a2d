//! Finished requests that wait until they are learnt. Whether one was made during an alarm is known only later: spans
//! arrive in batches, LMAPs read metrics derived from them some seconds after the requests, and an alarm begins some
//! rows after its cause.

use std::collections::VecDeque;

use wire::time::{Nanos, UnixNanos};

use crate::id::OperationId;

/// Waiting time; enough for rows of up to 10 s.
const WAIT: Nanos = Nanos::from_secs(30);
/// Largest number of waiting requests, 48 bytes each: all of 2,000 per second. Requests beyond that are not learnt;
/// which ones does not depend on their duration.
const MAX: usize = 1 << 16;

/// A request to be learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinishedRequest {
    /// The requested operation.
    pub operation: OperationId,
    /// When it began, by wall clock.
    pub start: UnixNanos,
    /// When it ended, by wall clock.
    pub end: UnixNanos,
    /// Duration of the request.
    pub took: Nanos,
}

/// Waiting requests, in order of arrival.
#[derive(Debug, Default)]
pub struct LearningQueue {
    waiting: VecDeque<(Nanos, FinishedRequest)>,
    passed_over: u64,
}

impl LearningQueue {
    /// Adds a request at `now`.
    pub fn add(&mut self, request: FinishedRequest, now: Nanos) {
        if self.waiting.len() >= MAX {
            self.passed_over += 1;
        } else {
            self.waiting.push_back((now, request));
        }
    }

    /// Takes a request that has waited for 30 s by `now`.
    pub fn due(&mut self, now: Nanos) -> Option<FinishedRequest> {
        let (came, request) = *self.waiting.front()?;
        now.since(came).filter(|waited| *waited >= WAIT)?;
        self.waiting.pop_front();
        Some(request)
    }

    /// Requests that were not learnt because too many were waiting.
    #[must_use]
    pub const fn passed_over(&self) -> u64 {
        self.passed_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_wait_for_thirty_seconds_and_at_most_65536_of_them() {
        let mut learning_queue = LearningQueue::default();
        let request = |second| {
            let (start, end) = (UnixNanos::from_secs(second), UnixNanos::from_secs(second + 1));
            FinishedRequest { operation: OperationId(1), start, end, took: Nanos::from_secs(1) }
        };
        learning_queue.add(request(1), Nanos::from_secs(1));
        (0..MAX).for_each(|_| learning_queue.add(request(2), Nanos::from_secs(2)));

        assert_eq!(learning_queue.passed_over(), 1);
        assert_eq!(learning_queue.due(Nanos(30_999_999_999)), None);
        assert_eq!(learning_queue.due(Nanos::from_secs(31)), Some(request(1)));
        assert_eq!(learning_queue.due(Nanos::from_secs(31)), None);
        assert_eq!((0..).map_while(|_| learning_queue.due(Nanos::from_secs(32))).count(), MAX - 1);
    }
}
