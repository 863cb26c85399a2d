//! Why a trace is kept, in words with units: what its root span says to whoever opens it.

use core::fmt;
use std::borrow::Cow;

use wire::quantity::quantity;
use wire::time::Nanos;

use crate::paths::OTHER;
use crate::tracing::threshold::Threshold;

/// The label with which a column says which operation it counts, as it stands in titles.
const OPERATION: &str = "span.name=\"";

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
    /// Whether it differs from what was expected by more than a quarter of that: what is named beside it may be there by chance.
    fn stands_out(&self) -> bool {
        (self.seen - self.expected).abs() > self.expected.abs() / 4.0
    }

    /// The operation that its column is about, where that is one of many: the value of its label `span.name`.
    fn operation(&self) -> Option<Cow<'_, str>> {
        let (before, value) = self.title.split_once(OPERATION)?;
        if !before.ends_with(['{', ',']) {
            return None;
        }
        if let Some((plain, _)) = value.split_once('"')
            && !plain.contains('\\')
        {
            return Some(Cow::Borrowed(plain));
        }
        let (mut name, mut rest) = (String::new(), value.chars());
        loop {
            match rest.next()? {
                '"' => return Some(Cow::Owned(name)),
                '\\' => name.push(rest.next()?),
                other => name.push(other),
            }
        }
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

    /// Whether it is about other operations of its service than `operation`, and about nothing else: all that stands out are columns of theirs. Only
    /// the heaviest columns are named; if all of these stand out, others may as well, and nothing is spared.
    #[must_use]
    pub fn spares(&self, operation: &str) -> bool {
        let Self::Lmap { metrics, .. } = self else { return false };
        let mut standing = metrics.iter().filter(|metric| metric.stands_out()).peekable();
        let all_named = metrics.iter().any(|metric| !metric.stands_out());
        let other = |name: Cow<'_, str>| name != operation && name != OTHER;
        all_named && standing.peek().is_some() && standing.all(|metric| metric.operation().is_some_and(other))
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

    fn lmap(metrics: &[(&str, f64, f64)]) -> Reason {
        let metric = |(title, seen, expected): &(&str, f64, f64)| Metric {
            title: (*title).into(),
            unit: "".into(),
            seen: *seen,
            expected: *expected,
        };
        Reason::Lmap {
            service: "frontend".into(),
            score: 9.0,
            gamma: 3.0,
            metrics: metrics.iter().map(metric).collect(),
        }
    }

    #[test]
    fn a_verdict_spares_operations_that_nothing_which_stands_out_is_about() {
        let pay = ("duration.mean{span.name=\"POST /pay\"}", 0.18, 0.02);
        let chance = ("duration.count{span.name=\"GET /list\"}", 5.0, 5.02);
        let reason = lmap(&[pay, chance]);

        assert!(reason.spares("GET /list") && !reason.spares("POST /pay"));
        assert!(!lmap(&[pay, pay]).spares("GET /list"), "who knows what is not named");
        assert!(!lmap(&[pay, ("process.cpu", 0.9, 0.2), chance]).spares("GET /list"), "about the whole service, too");
        assert!(!lmap(&[pay, ("calls{peer=\"x\",span.name=\"GET /list\"}", 0.0, 3.0), chance]).spares("GET /list"));
        assert!(!lmap(&[("calls{span.name=\"_other\"}", 9.0, 3.0), chance]).spares("GET /list"), "who knows which");
        assert!(!lmap(&[chance]).spares("POST /pay"), "nothing stands out by itself");
        assert!(!lmap(&[("calls{of.span.name=\"GET /list\"}", 9.0, 3.0), chance]).spares("POST /pay"), "another label");
        let quoted = format!("calls{{span.name={:?}}}", "say \"a\\b\"");
        assert!(!lmap(&[(&quoted, 9.0, 3.0), chance]).spares("say \"a\\b\""));
        assert!(lmap(&[(&quoted, 9.0, 3.0), chance]).spares("say a"));
        assert!(!lmap(&[("calls{span.name=\"cut", 9.0, 3.0), chance]).spares("cut"));
    }

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
