//! What the edge counts: every request and every span that does not go on is in one of these, by reason.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Signal;

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refused {
    /// No OTLP: another path, method, type or encoding.
    Foreign,
    /// OTLP that cannot be read: cut short, no gzip, no message.
    Malformed,
    /// Longer than a request may be, packed or unpacked.
    TooLarge,
    /// It did not come to its end in time, or broke off.
    Unfinished,
    /// There is no room now: the client is told to come again.
    Busy,
}

/// Why something that was taken did not reach the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lost {
    /// The queue to the upstream was full: kept spans only, since everything else is refused then.
    QueueFull,
    /// The upstream refused it for good.
    Refused,
    /// It waited too long for an upstream that is down.
    Expired,
    /// The agent ended before it was sent.
    Ended,
}

impl Refused {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Foreign, Self::Malformed, Self::TooLarge, Self::Unfinished, Self::Busy];

    /// As a label of a metric.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Foreign => "foreign",
            Self::Malformed => "malformed",
            Self::TooLarge => "too_large",
            Self::Unfinished => "unfinished",
            Self::Busy => "busy",
        }
    }
}

impl Lost {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::QueueFull, Self::Refused, Self::Expired, Self::Ended];

    /// As a label of a metric.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::Refused => "refused",
            Self::Expired => "expired",
            Self::Ended => "ended",
        }
    }
}

/// A counter that many may add to.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// So many more.
    pub(crate) fn add(&self, many: u64) {
        // Relaxed: it orders nothing.
        self.0.fetch_add(many, Ordering::Relaxed);
    }

    /// How many.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What is counted of one signal, since the start.
#[derive(Debug, Default)]
pub struct SignalCounts {
    /// Requests taken from clients.
    pub taken: Count,
    /// Spans, metrics or log records in them.
    pub items: Count,
    refused: [Count; Refused::ALL.len()],
    /// Requests that the upstream took.
    pub sent: Count,
    /// Bytes of them.
    pub sent_bytes: Count,
    /// Attempts that failed and were made again.
    pub retries: Count,
    /// Items of requests that the upstream took, but these it did not.
    pub rejected: Count,
    lost: [Count; Lost::ALL.len()],
}

impl SignalCounts {
    /// Requests refused for this reason.
    #[must_use]
    pub const fn refused(&self, why: Refused) -> &Count {
        &self.refused[why as usize]
    }

    /// Requests to the upstream that were lost for this reason.
    #[must_use]
    pub const fn lost(&self, why: Lost) -> &Count {
        &self.lost[why as usize]
    }
}

/// What is counted, since the start.
#[derive(Debug, Default)]
pub struct Counts {
    signals: [SignalCounts; Signal::ALL.len()],
    /// Connections that were refused because there were too many.
    pub refused_connections: Count,
    /// Connections that could not be accepted.
    pub accept_errors: Count,
    /// Connections that were to be inside of TLS and did not come to be: no certificate, a wrong one, or no TLS.
    pub refused_handshakes: Count,
    /// Requests that name no signal.
    pub foreign: Count,
    /// Kept spans that were lost on their way to the upstream, for any of the reasons.
    pub lost_spans: Count,
}

impl Counts {
    /// What is counted of `signal`.
    #[must_use]
    pub const fn of(&self, signal: Signal) -> &SignalCounts {
        &self.signals[signal as usize]
    }
}
