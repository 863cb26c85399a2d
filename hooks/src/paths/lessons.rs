//! Requests that wait to be learnt. Whether one was made during an alarm is known only later: spans come in batches, what is derived of them is read
//! some seconds after requests ended, and an alarm begins some rows after its cause.

use std::collections::VecDeque;

use wire::time::Nanos;

use crate::id::OperationId;
use crate::time::UnixNanos;

/// So long; enough for rows of up to 10 s.
const WAIT: Nanos = Nanos::from_secs(30);
/// Requests that wait, 48 bytes each: all of 2,000 per second. Those that come while so many wait are not learnt: which ones has nothing to do with how
/// long they took.
const MOST: usize = 1 << 16;

/// What is to be learnt of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lesson {
    /// What was asked for.
    pub operation: OperationId,
    /// When it began.
    pub start: UnixNanos,
    /// When it ended.
    pub end: UnixNanos,
    /// How long it took.
    pub took: Nanos,
}

/// Those that wait, in the order in which they came.
#[derive(Debug, Default)]
pub struct Lessons {
    waiting: VecDeque<(Nanos, Lesson)>,
    passed_over: u64,
}

impl Lessons {
    /// A request came at `now`.
    pub fn add(&mut self, lesson: Lesson, now: Nanos) {
        if self.waiting.len() >= MOST {
            self.passed_over += 1;
        } else {
            self.waiting.push_back((now, lesson));
        }
    }

    /// Takes one that has waited for 30 s by `now`.
    pub fn due(&mut self, now: Nanos) -> Option<Lesson> {
        let (came, lesson) = *self.waiting.front()?;
        now.since(came).filter(|waited| *waited >= WAIT)?;
        self.waiting.pop_front();
        Some(lesson)
    }

    /// Requests that were not learnt, because too many waited.
    #[must_use]
    pub const fn passed_over(&self) -> u64 {
        self.passed_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_wait_for_thirty_seconds_and_no_more_than_there_is_room_for() {
        let mut lessons = Lessons::default();
        let lesson = |second| {
            let (start, end) = (UnixNanos::from_secs(second), UnixNanos::from_secs(second + 1));
            Lesson { operation: OperationId(1), start, end, took: Nanos::from_secs(1) }
        };
        lessons.add(lesson(1), Nanos::from_secs(1));
        (0..MOST).for_each(|_| lessons.add(lesson(2), Nanos::from_secs(2)));

        assert_eq!(lessons.passed_over(), 1);
        assert_eq!(lessons.due(Nanos(30_999_999_999)), None);
        assert_eq!(lessons.due(Nanos::from_secs(31)), Some(lesson(1)));
        assert_eq!(lessons.due(Nanos::from_secs(31)), None);
        assert_eq!((0..).map_while(|_| lessons.due(Nanos::from_secs(32))).count(), MOST - 1);
    }
}
