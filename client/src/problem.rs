//! Problems that the client reports in its status instead of failing.

use std::fmt;

use wire::metric::AggregationError;
use wire::name::NameError;
use wire::printable::is_printable;

/// Different problems that are kept; further ones are only counted.
const KEPT: usize = 64;

/// A problem, and how often it occurred.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What went wrong, with a remedy where there is one.
    pub cause: Cause,
    /// How often it occurred, at least 1.
    pub times: u64,
}

/// The causes of a [`Problem`]. Handles always work; a *detached* handle is one that no agent reads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The service's own name or labels are invalid: the service is not registered.
    #[error("the service cannot be registered: {0}")]
    Service(NameError),
    /// A metric's name, label or unit is invalid. Its handle is detached.
    #[error("metric {metric:?} is not registered: {cause}")]
    Name {
        /// The metric's name as passed, shortened to 64 characters.
        metric: String,
        /// What is wrong with the name.
        cause: NameError,
    },
    /// A metric's declared aggregation is none that a service may declare. Its handle is detached.
    #[error("metric {metric} is not registered: {cause}")]
    Aggregation {
        /// The metric's name.
        metric: String,
        /// What is wrong with the aggregation.
        cause: AggregationError,
    },
    /// A histogram of OpenTelemetry came with all values since the start: the exporter takes those of an interval. It
    /// is left out.
    #[error("histogram {metric} has cumulative temporality; ask for delta temporality")]
    Cumulative {
        /// The metric's name.
        metric: String,
    },
    /// The name is registered with another kind, unit or scale. The later handle is detached.
    #[error("metric {metric} is not registered as {requested}: it is {registered} already")]
    Conflict {
        /// The metric's name.
        metric: String,
        /// The kind, unit and scale that it is registered with.
        registered: String,
        /// The kind, unit and scale that the later registration requests.
        requested: String,
    },
    /// One metric has too many label sets. Further ones share one series.
    #[error(
        "metric {metric} has more than {limit} label sets: further ones count together as otel.metric.overflow=\"true\""
    )]
    LabelSets {
        /// The metric's name.
        metric: String,
        /// The limit, [`Limits::label_sets_per_metric`](crate::Limits::label_sets_per_metric).
        limit: usize,
    },
    /// Too many series. Handles beyond the limit are detached.
    #[error("more than {limit} series: further ones are not registered (see Limits::series)")]
    Series {
        /// The limit, [`Limits::series`](crate::Limits::series).
        limit: usize,
    },
    /// All regions are full. Further handles are detached.
    #[error("{limit} regions are full: further series are not registered (see Limits::regions)")]
    Regions {
        /// The limit, [`Limits::regions`](crate::Limits::regions).
        limit: usize,
    },
    /// Shared memory cannot be allocated. The handle is detached; the next registration tries again.
    #[error("no shared memory: {0}")]
    Memory(String),
    /// The I/O thread cannot be started. Values are counted, but the service is not registered.
    #[error("cannot start the I/O thread: {0}")]
    Thread(String),
    /// Registered in a child after fork. The handle is detached. Connect again in the child.
    #[error("registered after fork: connect again in the child process")]
    Forked,
    /// The agent rejected a message.
    #[error("the agent refuses {what}: {reason}")]
    Refused {
        /// `hello`, a region, or a series.
        what: String,
        /// The agent's reason, shortened to 300 characters.
        reason: String,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cause)?;
        if self.times > 1 { write!(f, " ({} times)", self.times) } else { Ok(()) }
    }
}

/// The problems of a client: each once, at most 64 of them.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    kept: Vec<Problem>,
    more: u64,
}

impl Problems {
    /// Records one occurrence of `cause`.
    pub(crate) fn note(&mut self, cause: Cause) {
        if let Some(known) = self.kept.iter_mut().find(|known| known.cause == cause) {
            known.times += 1;
        } else if self.kept.len() < KEPT {
            self.kept.push(Problem { cause, times: 1 });
        } else {
            self.more += 1;
        }
    }

    /// Forgets what an agent refused: the next agent may accept it.
    pub(crate) fn forget_refusals(&mut self) {
        self.kept.retain(|problem| !matches!(problem.cause, Cause::Refused { .. }));
    }

    pub(crate) fn kept(&self) -> &[Problem] {
        &self.kept
    }

    /// Occurrences of problems beyond the 64 that are kept.
    pub(crate) const fn more(&self) -> u64 {
        self.more
    }
}

/// `text` without characters that are not printable, at most `characters` long: for text of unknown origin.
pub(crate) fn shortened(text: &str, characters: usize) -> String {
    text.chars().filter(|c| is_printable(*c)).take(characters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_that_comes_again_is_counted_and_stands_once() {
        let mut problems = Problems::default();

        for _ in 0..100_000 {
            problems.note(Cause::Series { limit: 4096 });
        }

        assert_eq!(problems.kept().len(), 1);
        assert!(problems.kept()[0].to_string().ends_with("(100000 times)"));
    }

    #[test]
    fn only_so_many_different_problems_are_kept() {
        let mut problems = Problems::default();

        for limit in 0..1000 {
            problems.note(Cause::Series { limit });
        }

        assert_eq!(problems.kept().len(), KEPT);
        assert_eq!(problems.more(), 1000 - KEPT as u64);
    }

    #[test]
    fn an_agents_refusals_end_with_it() {
        let mut problems = Problems::default();
        problems.note(Cause::Refused { what: "hello".into(), reason: "no".into() });
        problems.note(Cause::Forked);

        problems.forget_refusals();

        assert_eq!(problems.kept(), [Problem { cause: Cause::Forked, times: 1 }]);
    }
}
