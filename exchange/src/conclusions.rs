//! Intervals that were compared and wait for the next one, which says what looked lost and was only late.

use std::collections::BTreeMap;

use crate::found::Found;
use crate::report::Report;

/// What came of intervals, until it is final.
#[derive(Debug, Default)]
pub(crate) struct Conclusions {
    /// Those of which the next one says nothing have their report.
    waiting: BTreeMap<u64, Result<Box<Found>, Report>>,
}

impl Conclusions {
    pub(crate) fn found(&mut self, found: Found) {
        self.waiting.insert(found.report.interval, Ok(Box::new(found)));
    }

    /// One that needs no other: nothing is known, or it was the receiver that compared.
    pub(crate) fn is_final(&mut self, report: Report) {
        self.waiting.insert(report.interval, Err(report));
    }

    /// The next report that is final, in the order of intervals. One that is in question may still come: those after it wait.
    pub(crate) fn next(&mut self, in_question: impl Fn(u64) -> bool, begun: Option<u64>) -> Option<Report> {
        let (&interval, _) = self.waiting.first_key_value()?;
        let after = interval.saturating_add(1);
        // An older one may still be compared.
        if (interval.saturating_sub(crate::round::MOST_ROUNDS as u64)..interval).any(&in_question) {
            return None;
        }
        let comes = in_question(after) || begun.is_none_or(|begun| begun <= interval);
        let is_open = self.waiting.get(&interval).is_some_and(Result::is_ok);
        if is_open && !self.waiting.contains_key(&after) && comes {
            return None;
        }
        self.take(interval)
    }

    /// The next report, final or not: no further interval comes.
    pub(crate) fn rest(&mut self) -> Option<Report> {
        let (&interval, _) = self.waiting.first_key_value()?;
        self.take(interval)
    }

    fn take(&mut self, interval: u64) -> Option<Report> {
        let found = match self.waiting.remove(&interval)? {
            Ok(found) => found,
            Err(report) => return Some(report),
        };
        match self.waiting.get_mut(&interval.saturating_add(1)) {
            Some(Ok(next)) => {
                let report = found.settle(Some(next));
                next.explain(report.late);
                Some(report)
            }
            _ => Some(found.settle(None)),
        }
    }
}
