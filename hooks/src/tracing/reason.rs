//! Why a trace is kept, as a sentence with units: the text on its root span.

use core::fmt;

use wire::quantity::quantity;
use wire::time::Nanos;

use crate::suspects::longest_delay;
use crate::tracing::threshold::Threshold;

/// What can select a trace. The order is that of yielding when the budget is short: the last policy yields first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Policy {
    /// A fixed share of all traces.
    Floor,
    /// A span with status error.
    Error,
    /// An LMAP of a service on the operation's path raised an alarm.
    Lmap,
    /// The entry span took longer than the operation's learnt quantile.
    Latency,
    /// The service requested it; or an operator wants a share of the traces through the service, or all for a time.
    Trigger,
}

impl Policy {
    /// All policies; the first one yields last.
    pub const ALL: [Self; 5] = [Self::Floor, Self::Error, Self::Lmap, Self::Latency, Self::Trigger];

    /// The name in configuration, in metrics and on kept spans.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Error => "error",
            Self::Lmap => "lmap",
            Self::Latency => "latency",
            Self::Trigger => "trigger",
        }
    }
}

/// A metric that explains a verdict: the expected and the observed value.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Title of the column: metric, statistic and labels.
    pub title: Box<str>,
    /// UCUM unit; empty if not stated.
    pub unit: Box<str>,
    /// Observed value, in this unit.
    pub seen: f64,
    /// Expected value, in this unit.
    pub expected: f64,
    /// Whether the column is a mean or a quantile.
    pub of_distribution: bool,
    /// The replica that stands out; empty if none does.
    pub replica: Box<str>,
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seen, expected) = (quantity(self.seen, &self.unit), quantity(self.expected, &self.unit));
        write!(f, "{} {seen}, expected {expected}", self.title)?;
        if self.replica.is_empty() { Ok(()) } else { write!(f, ", replica {}", self.replica) }
    }
}

/// Why a trace is kept.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// The floor kept it ([`Policy::Floor`]).
    Floor {
        /// Threshold for `ot=th`: that of the floor, or the one that the trace brought if that is stricter.
        threshold: Threshold,
    },
    /// A span ended in an error ([`Policy::Error`]).
    Error {
        /// Service of the span.
        service: Box<str>,
        /// Operation of the span.
        operation: Box<str>,
    },
    /// An LMAP was in alarm ([`Policy::Lmap`]).
    Lmap {
        /// Service of the LMAP.
        service: Box<str>,
        /// The LMAP's score.
        score: f64,
        /// The LMAP's threshold γ.
        gamma: f64,
        /// Metrics that explain the score, the heaviest first.
        metrics: Box<[Metric]>,
        /// Address of the incident: node, slash, id; empty: unknown.
        incident: Box<str>,
    },
    /// The request was slow ([`Policy::Latency`]).
    Latency {
        /// Operation of the entry span.
        operation: Box<str>,
        /// Duration of the entry span.
        took: Nanos,
        /// Share of requests that take less than `usual`, 0 to 1.
        quantile: f64,
        /// The learnt quantile of durations.
        usual: Nanos,
    },
    /// A service or an operator requested it ([`Policy::Trigger`]).
    Trigger {
        /// Reason given by the service; or that of an operator, or the share, and who wants it.
        text: Box<str>,
    },
}

impl Reason {
    /// Approximate memory in bytes, with all texts.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let texts = match self {
            Self::Floor { .. } => 0,
            Self::Error { service, operation } => service.len() + operation.len(),
            Self::Lmap { service, metrics, incident, .. } => {
                let texts = |metric: &Metric| metric.title.len() + metric.unit.len() + metric.replica.len();
                let metric = |metric: &Metric| size_of::<Metric>() + texts(metric);
                service.len() + incident.len() + metrics.iter().map(metric).sum::<usize>()
            }
            Self::Latency { operation, .. } => operation.len(),
            Self::Trigger { text } => text.len(),
        };
        size_of::<Self>() + texts
    }

    /// By how many seconds something took longer than expected: the largest difference among means and quantiles of
    /// durations. Processor seconds are no delay: a row has no more of them than it is long.
    #[must_use]
    pub fn slower(&self) -> Option<f64> {
        let Self::Lmap { metrics, .. } = self else { return None };
        let durations = metrics.iter().filter(|metric| metric.of_distribution);
        longest_delay(durations.map(|metric| (metric.seen - metric.expected, &*metric.unit)))
    }

    /// The policy that selected the trace.
    #[must_use]
    pub const fn policy(&self) -> Policy {
        match self {
            Self::Floor { .. } => Policy::Floor,
            Self::Error { .. } => Policy::Error,
            Self::Lmap { .. } => Policy::Lmap,
            Self::Latency { .. } => Policy::Latency,
            Self::Trigger { .. } => Policy::Trigger,
        }
    }

    /// Address of the incident of the alarm; empty without an alarm, or if it is not known.
    #[must_use]
    pub fn incident(&self) -> &str {
        match self {
            Self::Lmap { incident, .. } => incident,
            _ => "",
        }
    }

    /// Whether the heaviest metric is below its expected value. A service that gets less work is not the cause of less
    /// work.
    #[must_use]
    pub fn says_less(&self) -> bool {
        matches!(self, Self::Lmap { metrics, .. } if metrics.first().is_some_and(|metric| metric.seen < metric.expected))
    }

    /// The sampling threshold that its spans may carry. Only the floor has one: traces selected because of an event
    /// represent no others.
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
            Self::Lmap { service, score, gamma, metrics, .. } => {
                write!(f, "{service}: score {score:.1}, threshold {gamma:.1}")?;
                metrics.iter().try_for_each(|metric| write!(f, "; {metric}"))
            }
            Self::Latency { operation, took, quantile, usual } => {
                let (took, usual) = (quantity(took.as_secs_f64(), "s"), quantity(usual.as_secs_f64(), "s"));
                write!(f, "{operation} took {took}, {} % take less than {usual}", quantity(quantile * 100.0, ""))
            }
            Self::Trigger { text } => write!(f, "asked for: {text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_sentences_with_units() {
        let metric = Metric {
            title: "http.server.request.duration.p99".into(),
            unit: "s".into(),
            seen: 0.18,
            expected: 0.02,
            of_distribution: true,
            replica: "payment-7f9c".into(),
        };
        let reasons = [
            Reason::Lmap {
                service: "payment".into(),
                score: 12.34,
                gamma: 4.1,
                metrics: [metric].into(),
                incident: "".into(),
            },
            Reason::Latency {
                operation: "POST /pay".into(),
                took: Nanos::from_millis(1_200),
                quantile: 0.99,
                usual: Nanos::from_millis(80),
            },
            Reason::Error { service: "cart".into(), operation: "AddItem".into() },
            Reason::Floor { threshold: Threshold::keeping(0.01).unwrap() },
            Reason::Trigger { text: "refund".into() },
        ];

        let shown: Vec<_> = reasons.iter().map(Reason::to_string).collect();

        assert_eq!(
            shown,
            [
                "payment: score 12.3, threshold 4.1; http.server.request.duration.p99 180 ms, expected 20 ms, replica payment-7f9c",
                "POST /pay took 1.2 s, 99 % take less than 80 ms",
                "cart: AddItem ended in an error",
                "one of 1 %",
                "asked for: refund",
            ]
        );
        assert_eq!(reasons.iter().filter(|reason| reason.threshold().is_some()).count(), 1);
    }
}
