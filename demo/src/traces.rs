//! Traces that were kept, where they come to: an OTLP receiver with bounded memory, and whether a trace is whole.

mod receiver;
pub(crate) mod route;
mod store;

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use wire::time::Nanos;

use crate::graph::{Errand, Service};

pub(crate) use store::Store;

/// The attribute of a call that names whom it asks.
pub(crate) const PEER: &str = "peer.service";
/// The attribute with an answer's status.
pub(crate) const STATUS: &str = "http.response.status_code";

/// A trace's id.
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
    /// The one that the header `traceresponse` names: `00-TRACE-SPAN-FLAGS`.
    pub(crate) fn told(header: &str) -> Option<Self> {
        Self::try_from(header.split('-').nth(1)?.to_owned()).ok()
    }
}

/// A request as its visitor saw it: what is true of it, whatever was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// Its trace; `None` if there was no answer that could name it.
    pub trace: Option<TraceId>,
    /// What was wanted.
    pub errand: Errand,
    /// When it was sent.
    pub started: Nanos,
    /// How long the answer took.
    pub took: Nanos,
    /// Answered with an error of the server, or not at all.
    pub failed: bool,
}

/// Which side of a call a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Who was asked.
    Server,
    /// Who asks, and whom.
    Client(Service),
}

/// One span of a kept trace.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptSpan {
    /// Its id.
    pub id: u64,
    /// Its caller's; `None` for a root.
    pub parent: Option<u64>,
    /// Whose it is.
    pub service: Service,
    /// Its name, such as `GET /pay`.
    pub name: String,
    /// Which side of a call.
    pub side: Side,
    /// When it began, on the demo's clock.
    pub started: Nanos,
    /// How long it lasted.
    pub took: Nanos,
    /// What was answered, if anything was.
    pub status: Option<u16>,
    /// It is in error.
    pub failed: bool,
    /// A root: what wanted the trace.
    pub policy: Option<String>,
    /// A root: why, in words.
    pub reason: Option<String>,
    /// The agent says that something is missing.
    pub incomplete: bool,
    /// Its encoded length.
    pub bytes: usize,
}

/// A trace that was kept, or some of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Its spans in the order in which they came.
    pub spans: Vec<KeptSpan>,
}

impl Trace {
    /// The span that nobody called.
    #[must_use]
    pub fn root(&self) -> Option<&KeptSpan> {
        self.spans.iter().find(|span| span.parent.is_none())
    }

    /// Encoded bytes of its spans.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.spans.iter().map(|span| span.bytes as u64).sum()
    }

    /// Whether everything is there that has to be, going by what its spans say of each other: the root; each one's caller; for a request that
    /// was answered after asking others, all the calls that a service makes; for a call that was answered, the request at the other side. The
    /// services know how many spans they made only together, so this is as much as can be known.
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

/// What the agent counted of spans, and what of them came to the demo's receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// Encoded bytes of all spans that the agent saw.
    pub seen_bytes: u64,
    /// Spans that the agent saw.
    pub seen_spans: u64,
    /// Encoded bytes of spans that it kept.
    pub kept_bytes: u64,
    /// Spans that it kept.
    pub kept_spans: u64,
    /// Kept bytes by policy.
    pub kept_bytes_by_policy: std::collections::BTreeMap<String, u64>,
    /// Traces that some policy wanted and that the budget had no room for.
    pub over_budget: u64,
    /// Spans that were lost: memory, queues, refusals.
    pub lost_spans: u64,
    /// Spans that came to the receiver and found no room.
    pub no_room: u64,
    /// How long the agent lets a trace wait for a decision.
    pub wait: Nanos,
}

#[cfg(test)]
pub(crate) mod example;
#[cfg(test)]
mod tests;
