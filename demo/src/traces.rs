//! The kept traces: an OTLP receiver with bounded memory, and the check whether a trace is whole.

mod receiver;
pub(crate) mod route;
mod store;

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use wire::time::Nanos;

use crate::graph::{Errand, Service};

pub(crate) use store::Store;

/// Attribute of a client span with the name of the called service.
pub(crate) const PEER: &str = "peer.service";
/// Attribute with the status of a response.
pub(crate) const STATUS: &str = "http.response.status_code";

/// The id of a trace, 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct TraceId(pub u128);

impl core::fmt::Display for TraceId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl From<TraceId> for String {
    fn from(id: TraceId) -> Self {
        id.to_string()
    }
}

/// A text that is no trace's id.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no trace's id: 32 hexadecimal digits")]
pub struct TraceIdError(String);

impl TryFrom<String> for TraceId {
    type Error = TraceIdError;

    fn try_from(text: String) -> Result<Self, TraceIdError> {
        let id = u128::from_str_radix(&text, 16).ok().filter(|_| text.len() == 32 && !text.starts_with('+'));
        id.map(Self).ok_or(TraceIdError(text))
    }
}

impl TraceId {
    /// The id in the header `traceresponse`: `00-TRACE-SPAN-FLAGS`.
    pub(crate) fn from_header(header: &str) -> Option<Self> {
        Self::try_from(header.split('-').nth(1)?.to_owned()).ok()
    }
}

/// A request from the load's log: the ground truth, independent of kept traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// Its trace; `None` if no response named it.
    pub trace: Option<TraceId>,
    /// Browse or buy.
    pub errand: Errand,
    /// Time when it was sent.
    pub started: Nanos,
    /// Time until the response.
    pub took: Nanos,
    /// Status 5xx, or no response.
    pub failed: bool,
}

/// The side of a call that a span describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The called service.
    Server,
    /// The caller; with the called service.
    Client(Service),
}

/// One span of a kept trace.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptSpan {
    /// Its span id.
    pub id: u64,
    /// Id of its parent span; `None` for a root.
    pub parent: Option<u64>,
    /// The service that recorded it.
    pub service: Service,
    /// Its name, such as `GET /pay`.
    pub name: String,
    /// Server or client side of a call.
    pub side: Side,
    /// Its start on the demo's clock.
    pub started: Nanos,
    /// Its duration in nanoseconds.
    pub took: Nanos,
    /// Status of the response; `None` without one.
    pub status: Option<u16>,
    /// Whether its status is an error.
    pub failed: bool,
    /// Of a root: the policy that selected the trace (`uview.policy`).
    pub policy: Option<String>,
    /// Of a root: the reason for keeping the trace (`uview.reason`).
    pub reason: Option<String>,
    /// Whether the agent marked the trace as incomplete (`uview.incomplete`).
    pub incomplete: bool,
    /// Its encoded length in bytes.
    pub bytes: usize,
}

/// A kept trace, whole or in part.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Its spans in the order of their arrival.
    pub spans: Vec<KeptSpan>,
}

impl Trace {
    /// The root span.
    #[must_use]
    pub fn root(&self) -> Option<&KeptSpan> {
        self.spans.iter().find(|span| span.parent.is_none())
    }

    /// Encoded bytes of its spans.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.spans.iter().map(|span| span.bytes as u64).sum()
    }

    /// Whether nothing is missing that its spans refer to: the root; the parent of each span; all client spans of a
    /// server span that completed after its calls; the server span of each client span with a response. This is the
    /// strictest check possible, since no service knows the number of spans of a whole trace.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let ids: HashSet<u64> = self.spans.iter().map(|span| span.id).collect();
        let mut called: HashMap<u64, Vec<Side>> = HashMap::new();
        for span in &self.spans {
            if let Some(parent) = span.parent {
                called.entry(parent).or_default().push(span.side);
            }
        }
        let whole = |span: &KeptSpan| {
            let below = called.get(&span.id).map_or(&[][..], Vec::as_slice);
            let asked_others = matches!(span.status, Some(200 | 502));
            !span.incomplete
                && span.parent.is_none_or(|parent| ids.contains(&parent))
                && match span.side {
                    Side::Server if asked_others => {
                        span.service.calls().iter().all(|called| below.contains(&Side::Client(*called)))
                    }
                    Side::Client(_) if span.status.is_some() => below.contains(&Side::Server),
                    Side::Server | Side::Client(_) => true,
                }
        };
        self.root().is_some() && self.spans.iter().all(whole)
    }
}

/// Counts of spans at the agent and at the demo's receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanLedger {
    /// Encoded bytes of all spans that the agent received.
    pub seen_bytes: u64,
    /// Spans that the agent received.
    pub seen_spans: u64,
    /// Encoded bytes of spans that it kept.
    pub kept_bytes: u64,
    /// Spans that it kept.
    pub kept_spans: u64,
    /// Encoded bytes of kept spans by policy.
    pub kept_bytes_by_policy: std::collections::BTreeMap<String, u64>,
    /// Traces that a policy selected but the byte budget excluded.
    pub over_budget: u64,
    /// Spans lost at the agent: memory, queues, refusals.
    pub lost_spans: u64,
    /// Spans that the receiver rejected because it was full.
    pub rejected_spans: u64,
    /// How long the agent buffers a trace for a decision.
    pub wait: Nanos,
}

#[cfg(test)]
pub(crate) mod example;
#[cfg(test)]
mod tests;
