//! A log record as this crate sees it, and why one is kept.

use core::fmt;
use std::sync::Arc;

use wire::quantity::quantity;
use wire::time::UnixNanos;

use crate::id::{OriginId, ServiceId};
use crate::tracing::reason::Reason;
use crate::tracing::span::TraceId;
use crate::tracing::threshold::Threshold;

/// A received log record, borrowed from its request.
#[derive(Clone, Copy, Debug)]
pub struct LogRecord<'a> {
    /// The trace that it was written in; `None` outside of one.
    pub trace: Option<TraceId>,
    /// The service that wrote it.
    pub service: ServiceId,
    /// Resource and scope with which it is exported.
    pub origin: OriginId,
    /// How severe it is.
    pub severity: Severity,
    /// When it was written, by the service's clock.
    pub at: UnixNanos,
    /// The encoded record, without resource and scope.
    pub encoded: &'a [u8],
}

/// Severity number of OTLP: 1 (TRACE) to 24 (FATAL4); 0: not stated, or none of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Severity(u8);

impl Severity {
    /// The least severity of an error.
    pub const ERROR: Self = Self(17);

    /// The severity with OTLP's `number`; one that is out of range counts as not stated.
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        if number <= 24 { Self(number as u8) } else { Self(0) }
    }

    /// OTLP's number, 0 to 24.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Whether it is an error or worse.
    #[must_use]
    pub const fn is_error(self) -> bool {
        self.0 >= Self::ERROR.0
    }
}

impl fmt::Display for Severity {
    /// Its short name, such as `ERROR2`; `-` if it is not stated.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(place) = self.0.checked_sub(1) else { return f.write_str("-") };
        let names = ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"];
        f.write_str(names.get(usize::from(place / 4)).unwrap_or(&"-"))?;
        if place % 4 == 0 { Ok(()) } else { write!(f, "{}", place % 4 + 1) }
    }
}

/// What can select a log record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogPolicy {
    /// Its trace is kept, here or on another node.
    Trace,
    /// It is an error, or worse.
    Error,
    /// Its service was in alarm when it was written.
    Lmap,
    /// A fixed share of all records.
    Floor,
}

impl LogPolicy {
    /// All policies, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Trace, Self::Error, Self::Lmap, Self::Floor];

    /// The name in metrics and on kept records.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Error => "error",
            Self::Lmap => "lmap",
            Self::Floor => "floor",
        }
    }
}

/// Why a log record is kept.
#[derive(Clone, Debug, PartialEq)]
pub enum LogReason {
    /// Its trace is kept for this reason ([`LogPolicy::Trace`]).
    Trace(Arc<Reason>),
    /// It is so severe ([`LogPolicy::Error`]).
    Error(Severity),
    /// An LMAP of its service was in alarm ([`LogPolicy::Lmap`]).
    Lmap(Arc<Reason>),
    /// It is one of a share ([`LogPolicy::Floor`]).
    Floor(Threshold),
}

impl LogReason {
    /// The policy that selected the record.
    #[must_use]
    pub const fn policy(&self) -> LogPolicy {
        match self {
            Self::Trace(_) => LogPolicy::Trace,
            Self::Error(_) => LogPolicy::Error,
            Self::Lmap(_) => LogPolicy::Lmap,
            Self::Floor(_) => LogPolicy::Floor,
        }
    }

    /// Address of the incident that it belongs to: node, slash, id; empty: unknown, or none.
    #[must_use]
    pub fn incident(&self) -> &str {
        match self {
            Self::Trace(reason) | Self::Lmap(reason) => reason.incident(),
            Self::Error(_) | Self::Floor(_) => "",
        }
    }
}

impl fmt::Display for LogReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trace(reason) => write!(f, "its trace is kept: {reason}"),
            Self::Error(severity) => write!(f, "severity {severity}"),
            Self::Lmap(reason) => reason.fmt(f),
            Self::Floor(threshold) => write!(f, "one of {} %", quantity(threshold.probability() * 100.0, "")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn severities_have_otlps_short_names_and_none_is_out_of_range() {
        let shown: Vec<_> =
            [0, 1, 4, 9, 14, 17, 20, 24, 25, u64::MAX].map(|of| Severity::from_number(of).to_string()).into();

        assert_eq!(shown, ["-", "TRACE", "TRACE4", "INFO", "WARN2", "ERROR", "ERROR4", "FATAL4", "-", "-"]);
        assert!(!Severity::from_number(16).is_error() && Severity::from_number(17).is_error());
        assert!(!Severity::from_number(25).is_error(), "out of range is no error");
    }

    #[test]
    fn reasons_are_sentences_and_name_the_incident_of_an_alarm() {
        let error = Arc::new(Reason::Error { service: "payment".into(), operation: "pay".into() });
        let alarm = Arc::new(Reason::Lmap {
            service: "payment".into(),
            score: 12.0,
            gamma: 4.0,
            metrics: [].into(),
            incident: "node-3/20261127-064215-123".into(),
        });
        let floor = Threshold::keeping(0.01).unwrap();
        let reasons = [
            LogReason::Trace(error),
            LogReason::Error(Severity::from_number(21)),
            LogReason::Lmap(alarm),
            LogReason::Floor(floor),
        ];

        let shown: Vec<_> = reasons.iter().map(ToString::to_string).collect();

        let expected = [
            "its trace is kept: payment: pay ended in an error",
            "severity FATAL",
            "payment: score 12.0, threshold 4.0",
            "one of 1 %",
        ];
        assert_eq!(shown, expected);
        assert_eq!(reasons.each_ref().map(LogReason::policy), LogPolicy::ALL);
        assert_eq!(reasons.each_ref().map(LogReason::incident), ["", "", "node-3/20261127-064215-123", ""]);
    }
}
