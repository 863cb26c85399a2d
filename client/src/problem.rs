//! What went wrong without anybody having been stopped by it.

use std::fmt;

use wire::name::NameError;

/// How many different problems are kept; further ones are counted.
const KEPT: usize = 64;

/// Something that went wrong, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What.
    pub cause: Cause,
    /// How often, at least once.
    pub times: u64,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The service's own name or labels: no agent can be told of it.
    #[error("the service cannot be registered: {0}")]
    Service(NameError),
    /// A metric's name, label or unit. Its handle works, nobody reads it.
    #[error("metric {metric:?} is not registered: {cause}")]
    Name {
        /// The metric's name as given, shortened.
        metric: String,
        /// What is wrong with it.
        cause: NameError,
    },
    /// A metric of that name means something else. The later handle works, nobody reads it.
    #[error("metric {metric} is not registered as {asked}: it is {registered} already")]
    Conflict {
        /// The metric's name.
        metric: String,
        /// What it is.
        registered: String,
        /// What was asked for later.
        asked: String,
    },
    /// One metric has too many label sets. Further ones count together.
    #[error(
        "metric {metric} has more than {limit} label sets: further ones count together as otel.metric.overflow=\"true\""
    )]
    LabelSets {
        /// The metric's name.
        metric: String,
        /// How many it may have.
        limit: usize,
    },
    /// Too many series. Handles beyond work, nobody reads them.
    #[error("more than {limit} series: further ones are not registered (see Limits::series)")]
    Series {
        /// How many there may be.
        limit: usize,
    },
    /// No room in shared memory. Handles beyond work, nobody reads them.
    #[error("{limit} regions are full: further series are not registered (see Limits::regions)")]
    Regions {
        /// How many there may be.
        limit: usize,
    },
    /// No shared memory. Handles work, nobody reads them; the next registration tries again.
    #[error("no shared memory: {0}")]
    Memory(String),
    /// No thread, or nothing to wake it by. Values are counted, no agent is told.
    #[error("cannot talk to an agent: {0}")]
    Thread(String),
    /// Registered in a child after fork. Its handle works, nobody reads it. Connect again in the child.
    #[error("registered after fork: connect again in the child process")]
    Forked,
    /// The agent does not take something.
    #[error("the agent refuses {what}: {reason}")]
    Refused {
        /// `hello`, a region, or a series.
        what: String,
        /// The agent's words, shortened.
        reason: String,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cause)?;
        if self.times > 1 { write!(f, " ({} times)", self.times) } else { Ok(()) }
    }
}

/// The problems of a client, each once, bounded in number.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    kept: Vec<Problem>,
    more: u64,
}

impl Problems {
    /// Keeps or counts `cause`.
    pub(crate) fn note(&mut self, cause: Cause) {
        if let Some(known) = self.kept.iter_mut().find(|known| known.cause == cause) {
            known.times += 1;
        } else if self.kept.len() < KEPT {
            self.kept.push(Problem { cause, times: 1 });
        } else {
            self.more += 1;
        }
    }

    /// What an agent refused is another one's to take.
    pub(crate) fn forget_refusals(&mut self) {
        self.kept.retain(|problem| !matches!(problem.cause, Cause::Refused { .. }));
    }

    pub(crate) fn kept(&self) -> &[Problem] {
        &self.kept
    }

    /// Problems that were not kept.
    pub(crate) const fn more(&self) -> u64 {
        self.more
    }
}

/// At most `characters` of `text`, for text of unknown length and origin.
pub(crate) fn shortened(text: &str, characters: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(characters).collect()
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
