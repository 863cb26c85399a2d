//! What the log has told of lately: who does the same again and again fills no log.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::{Mutex, PoisonError};

use wire::time::Nanos;

/// Time between two lines about the same event. Viewers that stay ask each second.
const AGAIN: Nanos = Nanos::from_secs(600);
/// Most events that are known, 24 bytes each. Of more, those that were told of first are told of again.
const MAX_KNOWN: usize = 1024;

/// Events, such as a call of a caller, of which each has one line in ten minutes, with how many there were.
#[derive(Debug, Default)]
pub struct RepeatedEvents(Mutex<KnownEvents>);

impl RepeatedEvents {
    /// Counts an event at `now`. How many there were since the last line, with this one; `None` as long as no line is
    /// due.
    pub fn count(&self, now: Nanos, event: impl Hash) -> Option<u64> {
        // No code under this lock panics. If one did, the state would still be usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).count(now, event)
    }
}

/// Calls that were refused: who may not, and asks again and again, fills no log.
#[derive(Debug, Default)]
pub struct RefusedCalls(RepeatedEvents);

impl RefusedCalls {
    /// Logs the `call` that `denied` says who made, unless the log has told of it lately.
    pub fn log(&self, call: &str, denied: &str, now: Nanos) {
        if let Some(calls) = self.0.count(now, (call, denied)) {
            tracing::warn!(denied, call, calls, "call refused");
        }
    }
}

#[derive(Debug, Default)]
struct KnownEvents {
    /// By the hash of the event, since names may be long. Two with one hash are told of as one.
    known: HashMap<u64, LastLine>,
    hasher: RandomState,
}

/// The last line about an event: when, and how many came since.
#[derive(Clone, Copy, Debug)]
struct LastLine {
    at: Nanos,
    since: u64,
}

impl KnownEvents {
    fn count(&mut self, now: Nanos, event: impl Hash) -> Option<u64> {
        let key = self.hasher.hash_one(event);
        let Some(last) = self.known.get_mut(&key) else {
            if self.known.len() >= MAX_KNOWN {
                self.forget_first();
            }
            self.known.insert(key, LastLine { at: now, since: 0 });
            return Some(1);
        };
        last.since += 1;
        let is_due = now.since(last.at).is_some_and(|passed| passed >= AGAIN);
        is_due.then(|| core::mem::replace(last, LastLine { at: now, since: 0 }).since)
    }

    fn forget_first(&mut self) {
        let first = self.known.iter().min_by_key(|(_, last)| last.at).map(|(&key, _)| key);
        if let Some(key) = first {
            self.known.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_caller_who_asks_each_second_one_line_in_ten_minutes_says_how_often() {
        let calls = RepeatedEvents::default();

        let lines: Vec<_> = (0..=1200).filter_map(|s| calls.count(Nanos::from_secs(s), (1, "Status"))).collect();

        assert_eq!(lines, [1, 600, 600]);
        let at = Nanos::from_secs(1201);
        assert_eq!(calls.count(at, (1, "List")), Some(1), "another call");
        assert_eq!(calls.count(at, (2, "Status")), Some(1), "another caller");
        assert_eq!(calls.count(Nanos::ZERO, (2, "Status")), None, "two threads, and their times");
    }

    #[test]
    fn of_more_callers_than_are_known_the_first_is_forgotten() {
        let calls = RepeatedEvents::default();
        let call = |s: u64| calls.count(Nanos::from_millis(s), (s, "Status"));

        assert!((0..=MAX_KNOWN as u64).all(|s| call(s) == Some(1)));

        assert_eq!(call(MAX_KNOWN as u64), None);
        assert_eq!(call(1), None);
        assert_eq!(call(0), Some(1));
        assert_eq!(calls.0.lock().unwrap().known.len(), MAX_KNOWN);
    }
}
