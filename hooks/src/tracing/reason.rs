//! Why a trace is kept, in words with units: what its root span says to whoever opens it.

use core::fmt;

use wire::metric::Statistic;
use wire::quantity::{in_seconds, quantity};
use wire::time::Nanos;

use crate::tracing::threshold::Threshold;

/// What can want a trace. The order is that of yielding where the budget is short: the last one yields first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Policy {
    /// A share of all, whatever happens.
    Floor,
    /// A span in error.
    Error,
    /// An LMAP on the operation's path found its service out of the ordinary.
    Lmap,
    /// The entry span took longer than the operation's learnt quantile.
    Latency,
    /// The service asked for it.
    Code,
}

impl Policy {
    /// All, the last one to yield first.
    pub const ALL: [Self; 5] = [Self::Floor, Self::Error, Self::Lmap, Self::Latency, Self::Code];

    /// As in configuration and in kept spans.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Error => "error",
            Self::Lmap => "lmap",
            Self::Latency => "latency",
            Self::Code => "code",
        }
    }
}

/// One metric of a verdict: what was expected and what was seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// How the column is called.
    pub title: Box<str>,
    /// Its unit in UCUM; empty if not stated.
    pub unit: Box<str>,
    /// What was seen.
    pub seen: f64,
    /// What was expected.
    pub expected: f64,
}

impl Metric {
    /// Whether the column is a mean or quantile of what was observed.
    fn is_of_a_distribution(&self) -> bool {
        let name = self.title.split_once('{').map_or(&*self.title, |(name, _)| name);
        [Statistic::Mean, Statistic::P99].into_iter().any(|statistic| name.ends_with(statistic.suffix()))
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seen, expected) = (quantity(self.seen, &self.unit), quantity(self.expected, &self.unit));
        write!(f, "{} {seen}, expected {expected}", self.title)
    }
}

/// Why a trace is kept.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// [`Policy::Floor`].
    Floor {
        /// What is to stand in `ot=th`: the floor's, or what the trace brought if that is stricter.
        threshold: Threshold,
    },
    /// [`Policy::Error`].
    Error {
        /// Whose span.
        service: Box<str>,
        /// Which one.
        operation: Box<str>,
    },
    /// [`Policy::Lmap`].
    Lmap {
        /// Whose LMAP.
        service: Box<str>,
        /// Its score.
        score: f64,
        /// Its threshold γ.
        gamma: f64,
        /// What speaks for it, the heaviest first.
        metrics: Box<[Metric]>,
    },
    /// [`Policy::Latency`].
    Latency {
        /// The entry span's operation.
        operation: Box<str>,
        /// How long it took.
        took: Nanos,
        /// What is usual: this share of requests is quicker than `usual`.
        quantile: f64,
        /// See `quantile`.
        usual: Nanos,
    },
    /// [`Policy::Code`].
    Code {
        /// What the service said.
        text: Box<str>,
    },
}

impl Reason {
    /// By how many seconds something took longer than expected, as far as means and quantiles of durations say so: the largest of them. Seconds of a
    /// processor are no delay: of them a row has no more than it is long.
    #[must_use]
    pub fn slower(&self) -> Option<f64> {
        let Self::Lmap { metrics, .. } = self else { return None };
        let durations = metrics.iter().filter(|metric| metric.is_of_a_distribution());
        let longer = durations.filter_map(|metric| in_seconds(metric.seen - metric.expected, &metric.unit));
        longer.filter(|seconds| *seconds > 0.0).max_by(f64::total_cmp)
    }

    /// What wanted it.
    #[must_use]
    pub const fn policy(&self) -> Policy {
        match self {
            Self::Floor { .. } => Policy::Floor,
            Self::Error { .. } => Policy::Error,
            Self::Lmap { .. } => Policy::Lmap,
            Self::Latency { .. } => Policy::Latency,
            Self::Code { .. } => Policy::Code,
        }
    }

    /// Whether what speaks for it most is less than usual: a service that gets less to do is not why there is less.
    #[must_use]
    pub fn says_less(&self) -> bool {
        matches!(self, Self::Lmap { metrics, .. } if metrics.first().is_some_and(|metric| metric.seen < metric.expected))
    }

    /// The sampling threshold that its spans may carry. None but the floor's: what was picked for what happened stands for nothing else.
    #[must_use]
    pub const fn threshold(&self) -> Option<Threshold> {
        match self {
            Self::Floor { threshold } => Some(*threshold),
            _ => None,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Floor { threshold } => write!(f, "one of {} %", quantity(threshold.probability() * 100.0, "")),
            Self::Error { service, operation } => write!(f, "{service}: {operation} ended in an error"),
            Self::Lmap { service, score, gamma, metrics } => {
                write!(f, "{service}: score {score:.1}, threshold {gamma:.1}")?;
                metrics.iter().try_for_each(|metric| write!(f, "; {metric}"))
            }
            Self::Latency { operation, took, quantile, usual } => {
                let (took, usual) = (quantity(took.as_secs_f64(), "s"), quantity(usual.as_secs_f64(), "s"));
                write!(f, "{operation} took {took}, {} % take less than {usual}", quantity(quantile * 100.0, ""))
            }
            Self::Code { text } => write!(f, "asked for: {text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_sentences_with_units() {
        let metric =
            Metric { title: "http.server.request.duration.p99".into(), unit: "s".into(), seen: 0.18, expected: 0.02 };
        let reasons = [
            Reason::Lmap { service: "payment".into(), score: 12.34, gamma: 4.1, metrics: [metric].into() },
            Reason::Latency {
                operation: "POST /pay".into(),
                took: Nanos::from_millis(1_200),
                quantile: 0.99,
                usual: Nanos::from_millis(80),
            },
            Reason::Error { service: "cart".into(), operation: "AddItem".into() },
            Reason::Floor { threshold: Threshold::keeping(0.01).unwrap() },
            Reason::Code { text: "refund".into() },
        ];

        let shown: Vec<_> = reasons.iter().map(Reason::to_string).collect();

        assert_eq!(
            shown,
            [
                "payment: score 12.3, threshold 4.1; http.server.request.duration.p99 180 ms, expected 20 ms",
                "POST /pay took 1.2 s, 99 % take less than 80 ms",
                "cart: AddItem ended in an error",
                "one of 1 %",
                "asked for: refund",
            ]
        );
        assert_eq!(reasons.iter().filter(|reason| reason.threshold().is_some()).count(), 1);
    }
}
