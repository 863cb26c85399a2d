//! Counters of the endpoint. Every request and span that is not forwarded is in one of them, by reason.

use agent_runtime::Count;

use crate::Signal;

/// Why the endpoint refused a client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusalReason {
    /// Not OTLP: another path, method, content type or encoding.
    Unexpected,
    /// Cannot be decoded: cut short, not gzip, not a message.
    Malformed,
    /// Over the size limit, compressed or decompressed.
    TooLarge,
    /// Not complete in time, or the connection broke.
    Incomplete,
    /// Over the memory budget, or the queue is full: the client is asked to retry.
    Busy,
}

/// Why an accepted request did not reach the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UpstreamLoss {
    /// The queue to the upstream was full. Kept spans only: everything else is refused then.
    QueueFull,
    /// The upstream refused it, and a retry makes no sense.
    Refused,
    /// It was queued too long while the upstream was down.
    Expired,
    /// The agent ended before it was sent.
    Ended,
}

impl RefusalReason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::Unexpected, Self::Malformed, Self::TooLarge, Self::Incomplete, Self::Busy];

    /// Value of the metric label `reason`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unexpected => "foreign",
            Self::Malformed => "malformed",
            Self::TooLarge => "too_large",
            Self::Incomplete => "unfinished",
            Self::Busy => "busy",
        }
    }
}

impl UpstreamLoss {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::QueueFull, Self::Refused, Self::Expired, Self::Ended];

    /// Value of the metric label `reason`.
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

/// Counters of one signal since the start.
#[derive(Debug, Default)]
pub struct SignalCounts {
    /// Requests accepted from clients.
    pub accepted: Count,
    /// Spans, metrics or log records in accepted requests.
    pub items: Count,
    refused: [Count; RefusalReason::ALL.len()],
    /// Requests that the upstream accepted.
    pub sent: Count,
    /// Bytes of requests that the upstream accepted.
    pub sent_bytes: Count,
    /// Attempts that failed and were retried.
    pub retries: Count,
    /// Items that the upstream rejected within requests that it accepted (partial success).
    pub rejected: Count,
    /// Spans, metrics or log records that were watched and forwarded to nobody, since there is no upstream. Where they
    /// are sampled, those that were kept.
    pub unforwarded: Count,
    lost: [Count; UpstreamLoss::ALL.len()],
}

impl SignalCounts {
    /// Requests refused for the reason `why`.
    #[must_use]
    pub const fn refused(&self, why: RefusalReason) -> &Count {
        &self.refused[why as usize]
    }

    /// Requests to the upstream lost for the reason `why`.
    #[must_use]
    pub const fn lost(&self, why: UpstreamLoss) -> &Count {
        &self.lost[why as usize]
    }
}

/// Counters of the endpoint since the start.
#[derive(Debug, Default)]
pub struct Counts {
    signals: [SignalCounts; Signal::ALL.len()],
    /// Connections refused: too many, of all or of one peer, or few descriptors are left.
    pub refused_connections: Count,
    /// Errors of `accept`.
    pub accept_errors: Count,
    /// Failed TLS handshakes: no client certificate, a wrong one, or no TLS.
    pub refused_handshakes: Count,
    /// Requests whose path is no signal's.
    pub unexpected: Count,
    /// Spans whose sender may not use the name of their service: forwarded like others, and not counted as its own.
    pub unverified_spans: Count,
    /// Log records whose sender may not use the name of their service: of no service's alarm.
    pub unverified_logs: Count,
    /// Resources with metrics whose sender may not use the name of their service: forwarded, and not watched.
    pub unverified_metrics: Count,
    /// Requests with metrics that were forwarded and are not watched: too many wait already.
    pub unwatched_metrics: Count,
    /// Connections from this machine whose user is unknown.
    pub unknown_senders: Count,
    /// Kept spans that did not reach the upstream, for any reason.
    pub lost_spans: Count,
    /// Kept log records that did not reach the upstream, for any reason.
    pub lost_logs: Count,
}

impl Counts {
    /// Counters of `signal`.
    #[must_use]
    pub const fn of(&self, signal: Signal) -> &SignalCounts {
        &self.signals[signal as usize]
    }
}
