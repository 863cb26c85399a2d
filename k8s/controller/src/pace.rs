//! How often statuses are written. Pure: the time comes as an argument.

use core::time::Duration;
use std::collections::BTreeMap;

use resources::aggregate::ObjectKind;
use resources::plan::Key;

/// How often things are done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Intervals {
    /// It is looked whether something has changed.
    pub(crate) look: Duration,
    /// The status of one object is written at most so often.
    pub(crate) write: Duration,
    /// What was not written, since it failed or the object is newer, is tried again.
    pub(crate) again: Duration,
    /// The lease is looked at, and renewed.
    pub(crate) lease: Duration,
    /// A report is deleted once its node has not been there for so long.
    pub(crate) gone: Duration,
    /// Certificates are read again.
    pub(crate) certificates: Duration,
}

impl Default for Intervals {
    fn default() -> Self {
        Self {
            look: Duration::from_secs(1),
            write: Duration::from_secs(30),
            again: Duration::from_secs(2),
            lease: Duration::from_secs(2),
            gone: Duration::from_mins(5),
            certificates: Duration::from_mins(1),
        }
    }
}

/// An object: its kind, namespace and name.
pub(crate) type ObjectId = (ObjectKind, Key);

/// Longest pause that the API server can ask for.
const MAX_PAUSE: Duration = Duration::from_mins(2);

/// When which object may be written next.
#[derive(Debug)]
pub(crate) struct Pace {
    intervals: Intervals,
    next: BTreeMap<ObjectId, Duration>,
    paused_until: Duration,
}

impl Pace {
    /// Everything may be written at once.
    pub(crate) fn new(intervals: Intervals) -> Self {
        Self { intervals, next: BTreeMap::new(), paused_until: Duration::ZERO }
    }

    /// Whether the status of `key` may be written now.
    pub(crate) fn is_due(&self, key: &ObjectId, now: Duration) -> bool {
        now >= self.paused_until && self.next.get(key).is_none_or(|next| now >= *next)
    }

    /// It was written.
    pub(crate) fn written(&mut self, key: &ObjectId, now: Duration) {
        self.next.insert(key.clone(), now + self.intervals.write);
    }

    /// It was not written.
    pub(crate) fn failed(&mut self, key: &ObjectId, now: Duration) {
        self.next.insert(key.clone(), now + self.intervals.again);
    }

    /// The API server has enough to do.
    pub(crate) fn pause(&mut self, length: Duration, now: Duration) {
        self.paused_until = self.paused_until.max(now + length.min(MAX_PAUSE));
    }

    /// Forgets what is due anyway, so that objects that are gone leave nothing behind.
    pub(crate) fn forget_due(&mut self, now: Duration) {
        self.next.retain(|_, next| now < *next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectId {
        (ObjectKind::Lmap, ("shop".to_owned(), name.to_owned()))
    }

    #[test]
    fn an_object_is_written_every_30_s_and_what_failed_sooner() {
        let at = Duration::from_secs;
        let mut pace = Pace::new(Intervals::default());
        assert!(pace.is_due(&key("a"), at(0)));
        pace.written(&key("a"), at(100));
        pace.failed(&key("b"), at(100));

        assert_eq!([101, 129, 130].map(|now| pace.is_due(&key("a"), at(now))), [false, false, true]);
        assert_eq!([101, 102].map(|now| pace.is_due(&key("b"), at(now))), [false, true]);
        assert!(pace.is_due(&key("c"), at(101)), "another object");
        pace.forget_due(at(102));
        assert_eq!(pace.next.len(), 1);
    }

    #[test]
    fn a_pause_is_for_all_objects_never_shorter_than_asked_and_bounded() {
        let at = Duration::from_secs;
        let mut pace = Pace::new(Intervals::default());
        pace.pause(at(7), at(100));
        pace.pause(at(1), at(101));

        assert_eq!([106, 107].map(|now| pace.is_due(&key("a"), at(now))), [false, true]);
        pace.pause(Duration::MAX, at(200));
        assert_eq!([319, 320].map(|now| pace.is_due(&key("a"), at(now))), [false, true]);
    }
}
