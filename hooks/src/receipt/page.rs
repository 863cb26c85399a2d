//! A day's page, and a service's line on it.

use std::collections::BTreeMap;
use std::sync::Arc;

use wire::time::Nanos;

use crate::tracing::{Gone, Policy, Tally};

/// So many of something, and how many of them failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// All: spans without a parent, each a trace's first.
    pub all: u64,
    /// Of them in error.
    pub failed: u64,
}

/// A service's line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Spans that came.
    pub seen: Tally,
    /// Spans that were kept, by which policy, as [`Policy::ALL`].
    pub kept: [Tally; Policy::ALL.len()],
    /// Spans that were dropped or lost, by reason: each at its [`Gone::place`].
    pub gone: [Tally; Gone::COUNT],
    /// Requests that began at the service.
    pub requests: Requests,
    /// Those of which the first span was kept.
    pub kept_requests: Requests,
    /// Alarms that began.
    pub alarms: u64,
    /// How long alarms were on.
    pub alarm_time: Nanos,
}

impl Line {
    /// All that was kept.
    #[must_use]
    pub fn kept(&self) -> Tally {
        self.kept.iter().fold(Tally::default(), |sum, tally| sum.plus(*tally))
    }

    /// All that nobody wanted.
    #[must_use]
    pub fn dropped(&self) -> Tally {
        self.gone_if(|why| matches!(why, Gone::Dropped(_)))
    }

    /// All that would have waited, had there been room or sense in it.
    #[must_use]
    pub fn lost(&self) -> Tally {
        self.gone_if(|why| matches!(why, Gone::Lost(_)))
    }

    fn gone_if(&self, counts: impl Fn(Gone) -> bool) -> Tally {
        let those = Gone::all().filter(|why| counts(*why)).map(|why| self.gone[why.place()]);
        those.fold(Tally::default(), Tally::plus)
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.seen += other.seen;
        for (mine, theirs) in self.gone.iter_mut().zip(other.gone) {
            *mine += theirs;
        }
        for (mine, theirs) in self.kept.iter_mut().zip(other.kept) {
            *mine += theirs;
        }
        for (mine, theirs) in [(&mut self.requests, other.requests), (&mut self.kept_requests, other.kept_requests)] {
            mine.all += theirs.all;
            mine.failed += theirs.failed;
        }
        self.alarms += other.alarms;
        self.alarm_time = self.alarm_time.plus(other.alarm_time);
    }
}

/// A day's page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Days since 1970.
    pub day: u64,
    /// Services by name.
    pub services: BTreeMap<Arc<str>, Line>,
    /// What grew on this day of what only grows: losses by reason, bytes sent, processor time.
    pub grown: BTreeMap<Arc<str>, u64>,
}

impl Page {
    /// Puts all but the `most` services of which most bytes came together as `other`.
    pub(super) fn bound(&mut self, most: usize, other: &Arc<str>) {
        let named = self.services.iter().filter(|(name, _)| *name != other);
        let mut by_bytes: Vec<_> = named.map(|(name, line)| (line.seen.bytes, Arc::clone(name))).collect();
        by_bytes.sort_unstable_by(|a, b| b.cmp(a));
        for (_, name) in by_bytes.into_iter().skip(most) {
            if let Some(line) = self.services.remove(&name) {
                self.services.entry(Arc::clone(other)).or_default().add(&line);
            }
        }
    }
}

/// What head sampling would have kept at the same bytes: of everything the share that was kept of bytes, whatever happened to it.
#[must_use]
pub fn head_share(line: &Line) -> f64 {
    if line.seen.bytes == 0 { 0.0 } else { (line.kept().bytes as f64 / line.seen.bytes as f64).min(1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_services_are_put_together_where_there_are_too_many() {
        let line = |bytes| Line { seen: Tally { spans: 1, bytes }, ..Line::default() };
        let services =
            [("a", 1), ("b", 30), ("c", 2), ("d", 20), ("_other", 5)].map(|(name, bytes)| (name.into(), line(bytes)));
        let mut page = Page { services: services.into(), ..Page::default() };

        page.bound(2, &"_other".into());

        let left: Vec<_> = page.services.iter().map(|(name, line)| (&**name, line.seen.bytes)).collect();
        assert_eq!(left, [("_other", 8), ("b", 30), ("d", 20)]);
    }

    #[test]
    fn head_sampling_at_the_same_bytes_keeps_that_share_of_everything() {
        let mut line = Line { seen: Tally { spans: 10, bytes: 1_000 }, ..Line::default() };
        assert_eq!(head_share(&line), 0.0);
        line.kept[0] = Tally { spans: 1, bytes: 50 };
        assert_eq!(head_share(&line), 0.05);
        assert_eq!(head_share(&Line::default()), 0.0);
    }
}
