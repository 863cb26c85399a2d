//! One day's page of a ledger, and a service's line on it.

use std::collections::BTreeMap;
use std::sync::Arc;

use wire::time::Nanos;

use crate::tracing::{DiscardReason, LogPolicy, Policy, Tally};

/// A number of requests, and how many of them failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// All requests: spans without a parent, the first of their traces.
    pub all: u64,
    /// Those with status error.
    pub failed: u64,
}

/// Log records of a service on one page. Their number stands where a [`Tally`] says spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogLine {
    /// Records that arrived.
    pub seen: Tally,
    /// Records that were kept, by policy in the order of [`LogPolicy::ALL`].
    pub kept: [Tally; LogPolicy::ALL.len()],
    /// Records that were dropped or lost, by reason: each at its [`DiscardReason::place`].
    pub gone: [Tally; DiscardReason::COUNT],
}

impl LogLine {
    /// All kept records.
    #[must_use]
    pub fn kept(&self) -> Tally {
        self.kept.iter().fold(Tally::default(), |sum, tally| sum.plus(*tally))
    }

    fn add(&mut self, other: &Self) {
        self.seen += other.seen;
        let (kept, gone) = (self.kept.iter_mut().zip(other.kept), self.gone.iter_mut().zip(other.gone));
        kept.chain(gone).for_each(|(mine, theirs)| *mine += theirs);
    }
}

/// A service's line on one page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Spans that arrived.
    pub seen: Tally,
    /// Spans that were kept, by policy in the order of [`Policy::ALL`].
    pub kept: [Tally; Policy::ALL.len()],
    /// Spans that were dropped or lost, by reason: each at its [`DiscardReason::place`].
    pub gone: [Tally; DiscardReason::COUNT],
    /// Requests that began at the service.
    pub requests: Requests,
    /// Requests whose first span was kept.
    pub kept_requests: Requests,
    /// Number of alarms that began.
    pub alarms: u64,
    /// Total duration of alarms.
    pub alarm_time: Nanos,
    /// Its log records, where they are kept as traces are.
    pub logs: LogLine,
}

impl Line {
    /// All kept spans.
    #[must_use]
    pub fn kept(&self) -> Tally {
        self.kept.iter().fold(Tally::default(), |sum, tally| sum.plus(*tally))
    }

    /// All spans that no policy wanted.
    #[must_use]
    pub fn dropped(&self) -> Tally {
        self.gone_if(|why| matches!(why, DiscardReason::Dropped(_)))
    }

    /// All spans for which there was no memory, or that were invalid.
    #[must_use]
    pub fn lost(&self) -> Tally {
        self.gone_if(|why| matches!(why, DiscardReason::Lost(_)))
    }

    fn gone_if(&self, counts: impl Fn(DiscardReason) -> bool) -> Tally {
        let those = DiscardReason::all().filter(|why| counts(*why)).map(|why| self.gone[why.place()]);
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
        self.logs.add(&other.logs);
    }
}

/// The page of one day.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Days since 1970-01-01 UTC.
    pub day: u64,
    /// Lines of services, by name.
    pub services: BTreeMap<Arc<str>, Line>,
    /// Growth of cumulative counters on this day: losses by reason, bytes sent, processor time.
    pub grown: BTreeMap<Arc<str>, u64>,
}

impl Page {
    /// Merges all but the `most` services with most bytes into `other`.
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

/// The share of all traces that head sampling would keep with as many bytes, 0 to 1: the share of bytes that was kept.
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
