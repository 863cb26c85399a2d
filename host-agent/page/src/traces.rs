//! KeepReason traces, within a budget of bytes: the newest, whole as far as their spans have come by.
//!
//! *Memory*: [`SPAN_BYTES`] a span and its texts, [`TRACE_BYTES`] a trace. [`Traces::bytes`] counts it. When it is
//! full, the trace that began to arrive first makes room.

use std::collections::{BTreeMap, VecDeque};

use wire::time::UnixNanos;

use crate::shown::shortened;

/// Bytes of a span beside its texts.
pub const SPAN_BYTES: usize = size_of::<Span>() + 32;
/// Bytes of a trace beside its spans: its entries in two tables.
pub const TRACE_BYTES: usize = 256;
/// Spans of one trace; further ones are counted.
pub const MAX_SPANS: usize = 512;
/// Characters of a name.
const MAX_NAME: usize = 200;
/// Characters of a reason, which names several metrics.
const MAX_REASON: usize = 1_000;

/// On which side of a call a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It answers a request.
    Server,
    /// It calls another service.
    Client,
    /// Neither is known.
    Other,
}

/// Whether a span ended in an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// It ended without an error.
    Fine,
    /// It ended in an error.
    Failed,
}

/// A span of a kept trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Its id within the trace.
    pub id: u64,
    /// Id of its parent; `None` for a root.
    pub parent: Option<u64>,
    /// Service that recorded it.
    pub service: Box<str>,
    /// Name of its operation.
    pub name: Box<str>,
    /// Its side of a call.
    pub side: Side,
    /// When it began.
    pub start: UnixNanos,
    /// Its end, by the clock of the same service; may be before the start.
    pub end: UnixNanos,
    /// Whether it failed.
    pub outcome: Outcome,
    /// Why its trace is kept: policy and reason. Of a root, or of the span that stands for one.
    pub kept: Option<KeepReason>,
}

/// Why a trace is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepReason {
    /// The policy's name, such as `lmap`.
    pub policy: Box<str>,
    /// The reason, a sentence.
    pub reason: Box<str>,
    /// Address of the incident that it is about; empty: none.
    pub incident: Box<str>,
}

impl Span {
    /// The same span with texts that can be shown and are not too long.
    fn bounded(mut self) -> Self {
        (self.service, self.name) = (shown(&self.service, MAX_NAME), shown(&self.name, MAX_NAME));
        let kept = self.kept.map(|KeepReason { policy, reason, incident }| KeepReason {
            policy: shown(&policy, MAX_NAME),
            reason: shown(&reason, MAX_REASON),
            incident: shown(&incident, MAX_NAME),
        });
        Self { kept, ..self }
    }

    fn bytes(&self) -> usize {
        let kept = self.kept.as_ref().map_or(0, |kept| kept.policy.len() + kept.reason.len() + kept.incident.len());
        SPAN_BYTES + self.service.len() + self.name.len() + kept
    }
}

/// `text` in one printable line of at most `most` characters.
fn shown(text: &str, most: usize) -> Box<str> {
    shortened(text, most).into()
}

/// A kept trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Its spans, as they came.
    pub spans: Vec<Span>,
    /// Spans that did not fit.
    pub cut: u32,
}

impl Trace {
    /// The root; without one, the span that began first. `None` without any span.
    #[must_use]
    pub fn root(&self) -> Option<&Span> {
        let root = self.spans.iter().find(|span| span.parent.is_none());
        root.or_else(|| self.spans.iter().min_by_key(|span| span.start))
    }

    /// Why it is kept.
    #[must_use]
    pub fn kept(&self) -> Option<&KeepReason> {
        self.spans.iter().find_map(|span| span.kept.as_ref())
    }

    /// Its first start and its last end, which is not before; both 1970 without spans.
    #[must_use]
    pub fn extent(&self) -> (UnixNanos, UnixNanos) {
        let start = self.spans.iter().map(|span| span.start).min().unwrap_or_default();
        (start, self.spans.iter().map(|span| span.end).max().unwrap_or(start).max(start))
    }

    /// Whether a span of it failed.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.spans.iter().map(|span| span.outcome).max().unwrap_or(Outcome::Fine)
    }

    fn bytes(&self) -> usize {
        TRACE_BYTES + self.spans.iter().map(Span::bytes).sum::<usize>()
    }
}

/// The newest kept traces.
#[derive(Clone, Debug)]
pub struct Traces {
    budget: usize,
    bytes: usize,
    by_id: BTreeMap<u128, Trace>,
    /// Ids in the order in which traces began to arrive.
    order: VecDeque<u128>,
    taken: u64,
}

impl Traces {
    /// No traces, and room for `budget` bytes.
    #[must_use]
    pub const fn new(budget: usize) -> Self {
        Self { budget, bytes: 0, by_id: BTreeMap::new(), order: VecDeque::new(), taken: 0 }
    }

    /// Adds a span of `trace`. One that is known by its id is not added twice: an export may be repeated.
    pub fn add(&mut self, trace: u128, span: Span) {
        let span = span.bounded();
        let is_new = !self.by_id.contains_key(&trace);
        if is_new {
            self.order.push_back(trace);
            self.bytes += TRACE_BYTES;
            self.taken += 1;
        }
        let of = self.by_id.entry(trace).or_default();
        if of.spans.iter().any(|known| known.id == span.id) {
            return;
        }
        if of.spans.len() >= MAX_SPANS {
            of.cut = of.cut.saturating_add(1);
            return;
        }
        self.bytes += span.bytes();
        of.spans.push(span);
        while self.bytes > self.budget
            && let Some(oldest) = self.order.pop_front()
        {
            let gone = self.by_id.remove(&oldest);
            self.bytes -= gone.as_ref().map_or(0, Trace::bytes);
        }
    }

    /// The trace with this id.
    #[must_use]
    pub fn get(&self, trace: u128) -> Option<&Trace> {
        self.by_id.get(&trace)
    }

    /// All traces and their ids, the newest first.
    pub fn newest(&self) -> impl Iterator<Item = (u128, &Trace)> {
        self.order.iter().rev().filter_map(|id| Some((*id, self.by_id.get(id)?)))
    }

    /// Traces that were taken since the start: it changes when there is a new one.
    #[must_use]
    pub const fn taken(&self) -> u64 {
        self.taken
    }

    /// Bytes that they take.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn span(id: u64, parent: Option<u64>, start: u64) -> Span {
        Span {
            id,
            parent,
            service: "cart".into(),
            name: "GET /".into(),
            side: Side::Server,
            start: UnixNanos(start),
            end: UnixNanos(start + 10),
            outcome: Outcome::Fine,
            kept: None,
        }
    }

    #[test]
    fn a_trace_is_put_together_from_its_spans_in_any_order() {
        let mut traces = Traces::new(1 << 20);
        let kept = KeepReason { policy: "lmap".into(), reason: "payment: score 12".into(), incident: "".into() };
        traces.add(7, Span { outcome: Outcome::Failed, ..span(2, Some(1), 105) });
        traces.add(7, span(2, Some(1), 105));
        traces.add(7, Span { kept: Some(kept.clone()), ..span(1, None, 100) });
        traces.add(8, span(1, Some(9), 300));

        let trace = traces.get(7).unwrap();
        assert_eq!(
            (trace.spans.len(), trace.root().unwrap().id, trace.extent()),
            (2, 1, (UnixNanos(100), UnixNanos(115)))
        );
        assert_eq!((trace.kept(), trace.outcome()), (Some(&kept), Outcome::Failed));
        assert_eq!(traces.newest().map(|(id, _)| id).collect::<Vec<_>>(), [8, 7]);
        assert_eq!((traces.get(8).unwrap().root().unwrap().id, traces.taken()), (1, 2));
    }

    #[test]
    fn names_are_one_printable_line_and_not_too_long() {
        let mut traces = Traces::new(1 << 20);
        let name = format!("\u{1b}[2J\n{}", "x".repeat(10_000)).into();
        traces.add(7, Span { name, ..span(1, None, 0) });

        let name = &traces.get(7).unwrap().spans[0].name;
        assert!(name.starts_with("\\u{1b}[2J\\u{a}xxx") && name.ends_with("x…"), "{name}");
        assert_eq!(name.chars().count(), MAX_NAME + 1);
    }

    #[test]
    fn a_trace_without_end_is_cut_and_that_is_counted() {
        let mut traces = Traces::new(1 << 20);
        (0..600).for_each(|id| traces.add(7, span(id, None, id)));

        let trace = traces.get(7).unwrap();
        assert_eq!((trace.spans.len(), trace.cut), (MAX_SPANS, 88));
    }

    proptest! {
        #[test]
        fn the_oldest_make_room_and_the_account_is_right(
            budget in 0..20_000_usize,
            spans in proptest::collection::vec((0..30_u128, 0..20_u64), 1..400),
        ) {
            let mut traces = Traces::new(budget);
            for (trace, id) in spans {
                traces.add(trace, span(id, None, id));
                let counted: usize = traces.by_id.values().map(Trace::bytes).sum();
                prop_assert_eq!(traces.bytes(), counted);
                prop_assert!(traces.bytes() <= budget);
                prop_assert_eq!(traces.order.len(), traces.by_id.len());
            }
        }
    }
}
