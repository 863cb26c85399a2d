//! What of the endpoint was full, and who filled it: the last refusal of each bound, while it is news.

use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_runtime::Count;
use wire::time::Nanos;

/// How long a refusal is shown in the status.
const SHOWN: Nanos = Nanos::from_secs(600);

/// A bound of the endpoint of which each sender has a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// Memory of requests that are being received.
    ReceiveMemory,
    /// Requests that wait for the upstream.
    Queue,
    /// Requests with metrics that wait to be watched.
    WatchedMetrics,
    /// Services whose spans are counted for LMAPs.
    CountedServices,
    /// Names of services in traces.
    Names,
    /// Resources and scopes of what waits for a decision.
    Resources,
    /// Traces that wait for a decision.
    Traces,
}

impl Bound {
    const ALL: [Self; 7] = [
        Self::ReceiveMemory,
        Self::Queue,
        Self::WatchedMetrics,
        Self::CountedServices,
        Self::Names,
        Self::Resources,
        Self::Traces,
    ];

    /// What was refused, for the status.
    const fn refused(self) -> &'static str {
        match self {
            Self::ReceiveMemory => "requests were refused for lack of memory to receive them",
            Self::Queue => "requests were refused or lost since they had no room in the queue to the upstream",
            Self::WatchedMetrics => "metrics were not watched since too many waited",
            Self::CountedServices => "spans of further services were not counted for LMAPs",
            Self::Names => "traces of further services counted as _other",
            Self::Resources => "spans and log records with new resources were lost",
            Self::Traces => "waiting traces of one sender made room",
        }
    }
}

/// The last refusal of each bound, and how many there were.
#[derive(Debug, Default)]
pub(crate) struct FullBounds {
    counts: [Count; Bound::ALL.len()],
    last: Mutex<[Option<(Nanos, String)>; Bound::ALL.len()]>,
}

impl FullBounds {
    /// Something was refused at `now`, and `why` says who has most of the bound. The first time the log says so.
    pub(crate) fn note(&self, bound: Bound, why: &str, now: Nanos) {
        if self.counts[bound as usize].is_first() {
            tracing::warn!(why, "OTLP: {}", bound.refused());
        }
        self.last()[bound as usize] = Some((now, why.to_owned()));
    }

    /// A line for each bound of which something was refused lately.
    pub(crate) fn lines(&self, now: Nanos) -> Vec<String> {
        let last = self.last();
        let recent = Bound::ALL.into_iter().zip(last.iter().zip(&self.counts)).filter_map(|(bound, (last, count))| {
            let (at, why) = last.as_ref()?;
            let is_news = now.since(*at).is_none_or(|ago| ago < SHOWN);
            is_news.then(|| format!("otlp: {}, {} times since the start: {why}", bound.refused(), count.get()))
        });
        recent.collect()
    }

    fn last(&self) -> MutexGuard<'_, [Option<(Nanos, String)>; Bound::ALL.len()]> {
        // Nothing under this lock panics. If something did, the state would still be usable.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bound_has_a_line_of_its_own_until_it_is_no_news() {
        let full = FullBounds::default();
        for (seconds, who) in [(1, "user 7"), (2, "user 8")] {
            full.note(Bound::Queue, &format!("{who} has most"), Nanos::from_secs(seconds));
        }
        full.note(Bound::Names, "user 9 has most", Nanos::from_secs(500));

        let lines = full.lines(Nanos::from_secs(601));

        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].ends_with("the queue to the upstream, 2 times since the start: user 8 has most"), "{lines:?}");
        let lines = full.lines(Nanos::from_secs(602));
        assert!(matches!(&lines[..], [line] if line.ends_with("user 9 has most")), "{lines:?}");
    }
}
