//! Reports before they are final. A compared interval waits for the next one, which tells late packets from lost ones.

use std::collections::BTreeMap;

use crate::comparison::Comparison;
use crate::report::Report;

/// The result of one interval.
#[derive(Debug)]
enum Conclusion {
    /// Needs the next interval to tell late packets from lost ones.
    Compared(Box<Comparison>),
    /// Needs no other interval: nothing is known, or the receiver computed the report.
    Final(Report),
}

/// Results of intervals whose reports have not been taken yet.
#[derive(Debug, Default)]
pub(crate) struct Conclusions {
    pending: BTreeMap<u64, Conclusion>,
}

impl Conclusions {
    pub(crate) fn add_comparison(&mut self, comparison: Comparison) {
        self.pending.insert(comparison.report.interval, Conclusion::Compared(Box::new(comparison)));
    }

    /// Adds a report that needs no other interval.
    pub(crate) fn add_final(&mut self, report: Report) {
        self.pending.insert(report.interval, Conclusion::Final(report));
    }

    /// The next final report, in the order of intervals. `in_progress` says whether an interval is still being
    /// compared; later reports wait for it. `last` is the last interval that has ended.
    pub(crate) fn next(&mut self, in_progress: impl Fn(u64) -> bool, last: Option<u64>) -> Option<Report> {
        let (&interval, first) = self.pending.first_key_value()?;
        let after = interval.saturating_add(1);
        // An older one may still be compared.
        if (interval.saturating_sub(crate::round::MAX_ROUNDS as u64)..interval).any(&in_progress) {
            return None;
        }
        let successor_expected = in_progress(after) || last.is_none_or(|last| last <= interval);
        let needs_successor = matches!(first, Conclusion::Compared(_));
        if needs_successor && !self.pending.contains_key(&after) && successor_expected {
            return None;
        }
        self.take(interval)
    }

    /// The next report, final or not. For the end of a run, when no further interval comes.
    pub(crate) fn drain(&mut self) -> Option<Report> {
        let (&interval, _) = self.pending.first_key_value()?;
        self.take(interval)
    }

    fn take(&mut self, interval: u64) -> Option<Report> {
        let comparison = match self.pending.remove(&interval)? {
            Conclusion::Compared(comparison) => comparison,
            Conclusion::Final(report) => return Some(report),
        };
        match self.pending.get_mut(&interval.saturating_add(1)) {
            Some(Conclusion::Compared(next)) => {
                let report = comparison.settle(Some(next));
                next.subtract_late(report.late);
                Some(report)
            }
            _ => Some(comparison.settle(None)),
        }
    }
}
