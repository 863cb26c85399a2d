//! Received spans as traces: which are whole, their reasons, and differences from the sent spans.

use std::collections::{BTreeMap, HashMap, HashSet};

use anyhow::{Context as _, Result, ensure};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind};
use otlp::Signal;
use prost::Message as _;
use support::otlp::text_of;

use super::receiver::Message;
use super::shop::PATHS;

/// Spans by their ids, each with its service.
#[derive(Clone, Debug, Default)]
pub struct Spans(HashMap<(Vec<u8>, Vec<u8>), (String, Span)>);

/// A trace with its root.
#[derive(Clone, Debug)]
pub struct Trace<'a> {
    pub root: &'a Span,
    /// Services with an entry span in it.
    pub entered: HashSet<&'a str>,
    /// Whether the parent of every span is present.
    pub joined: bool,
}

impl Spans {
    /// All spans in `messages`.
    ///
    /// # Errors
    ///
    /// A message cannot be decoded.
    pub fn of(messages: &[Message]) -> Result<Self> {
        let mut spans = HashMap::new();
        for message in messages.iter().filter(|message| message.signal == Signal::Traces) {
            let request = ExportTraceServiceRequest::decode(message.bytes.clone()).context("a request of spans")?;
            for resource in request.resource_spans {
                let attributes = resource.resource.map(|resource| resource.attributes).unwrap_or_default();
                let service = text_of(&attributes, "service.name").unwrap_or_default().to_owned();
                for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                    spans.insert((span.trace_id.clone(), span.span_id.clone()), (service.clone(), span));
                }
            }
        }
        Ok(Self(spans))
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Traces that have their root.
    pub fn traces(&self) -> Vec<Trace<'_>> {
        let mut by_id: BTreeMap<&[u8], Vec<(&str, &Span)>> = BTreeMap::new();
        for ((trace, _), (service, span)) in &self.0 {
            by_id.entry(trace).or_default().push((service, span));
        }
        by_id.values().filter_map(|spans| Trace::of(spans)).collect()
    }

    /// Whole traces of visitors' requests.
    pub fn whole(&self) -> Vec<Trace<'_>> {
        self.traces().into_iter().filter(Trace::whole).collect()
    }

    /// Compares with the `sent` spans: none is missing, and nothing differs except uview's attributes and the trace
    /// state.
    ///
    /// # Errors
    ///
    /// Names a span that is missing or differs.
    pub fn as_sent(&self, sent: &Self) -> Result<()> {
        for (id, (service, span)) in &sent.0 {
            let name = || format!("{service}: {:?}", span.name);
            let (received_service, came) = self.0.get(id).with_context(|| format!("{} did not come", name()))?;
            let (mut came, mut span) = (came.clone(), span.clone());
            came.attributes.retain(|attribute| !attribute.key.starts_with("uview."));
            // It has the sampling probability.
            came.trace_state.clear();
            span.trace_state.clear();
            ensure!((received_service, &came) == (service, &span), "{} came as {came:?} and was {span:?}", name());
        }
        ensure!(self.count() == sent.count(), "{} spans came, {} were sent", self.count(), sent.count());
        Ok(())
    }
}

impl<'a> Trace<'a> {
    /// Of one trace's spans, each with its service; `None` without a root.
    fn of(spans: &[(&'a str, &'a Span)]) -> Option<Self> {
        let root = spans.iter().find(|(_, span)| span.parent_span_id.is_empty())?.1;
        let entered = spans.iter().filter(|(_, span)| span.kind == SpanKind::Server as i32);
        let ids: HashSet<&[u8]> = spans.iter().map(|(_, span)| span.span_id.as_slice()).collect();
        let joined = |span: &Span| span.parent_span_id.is_empty() || ids.contains(span.parent_span_id.as_slice());
        let joined = spans.iter().all(|(_, span)| joined(span));
        Some(Trace { root, entered: entered.map(|(service, _)| *service).collect(), joined })
    }

    /// Whether it has an entry span of every service on the path of its request, and no parent is missing.
    pub fn whole(&self) -> bool {
        let route = PATHS.iter().find(|(route, _)| self.root.name.ends_with(route));
        self.joined && route.is_some_and(|(_, path)| path.iter().all(|service| self.entered.contains(service)))
    }

    /// Uview's reason for keeping it.
    pub fn reason(&self) -> Option<&str> {
        text_of(&self.root.attributes, "uview.reason")
    }
}

/// Counts the occurrences of each message of `signal`.
fn counted(messages: &[Message], signal: Signal) -> HashMap<&Message, usize> {
    let mut counted = HashMap::new();
    for message in messages.iter().filter(|message| message.signal == signal) {
        *counted.entry(message).or_default() += 1;
    }
    counted
}

/// Messages of one signal that were sent and came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// All that were sent, repeated ones once.
    pub messages: usize,
    /// Those of them that were sent or came more often than once: who misses a response repeats the request.
    pub repeated: usize,
}

/// Checks that `came` and `sent` have the same messages of `signal`, byte by byte.
///
/// # Errors
///
/// Some messages are missing, changed or unexpected: each with its length, and how often it came and was sent.
pub fn byte_equal(came: &[Message], sent: &[Message], signal: Signal) -> Result<Delivered> {
    let (came, sent) = (counted(came, signal), counted(sent, signal));
    let times = |messages: &HashMap<&Message, usize>, message: &Message| messages.get(message).copied().unwrap_or(0);
    let all: HashSet<&Message> = came.keys().chain(sent.keys()).copied().collect();
    let times = all.into_iter().map(|message| (message.bytes.len(), times(&came, message), times(&sent, message)));
    let times: Vec<_> = times.collect();
    let differing = times.iter().filter(|(_, came, sent)| *came.min(sent) == 0);
    let differing = differing
        .map(|(length, came, sent)| format!("one of {length} bytes came {came} times and was sent {sent} times"));
    let differing: Vec<_> = differing.collect();
    ensure!(differing.is_empty(), "of {} {}", signal.name(), differing.join(", "));
    let repeated = times.iter().filter(|(_, came, sent)| *came.max(sent) > 1).count();
    Ok(Delivered { messages: times.len(), repeated })
}

#[cfg(test)]
mod tests {
    use core::slice::from_ref;

    use bytes::Bytes;
    use opentelemetry_proto::tonic::common::v1::KeyValue;
    use support::otlp::{text as attribute, traces};

    use super::*;

    /// An entry span of `service`, called by the one of id `parent`.
    fn span(service: &str, id: u8, parent: u8, attributes: &[KeyValue]) -> Message {
        let span = Span {
            trace_id: vec![1; 16],
            span_id: vec![id; 8],
            parent_span_id: if parent == 0 { Vec::new() } else { vec![parent; 8] },
            name: "GET /pay".to_owned(),
            kind: SpanKind::Server as i32,
            attributes: attributes.to_vec(),
            ..Span::default()
        };
        let bytes = traces(service, vec![span]).encode_to_vec().into();
        Message { signal: Signal::Traces, bytes }
    }

    fn whole(messages: &[Message]) -> usize {
        Spans::of(messages).unwrap().whole().len()
    }

    #[test]
    fn a_trace_is_whole_with_every_service_of_its_way_and_every_caller() {
        let all = [span("frontend", 1, 0, &[]), span("payment", 2, 1, &[]), span("shipping", 3, 2, &[])];

        assert_eq!(whole(&all), 1);
        assert_eq!((whole(&all[..2]), whole(&all[1..])), (0, 0));
        let strayed = [all[0].clone(), all[1].clone(), span("shipping", 3, 9, &[])];
        assert_eq!(whole(&strayed), 0);
    }

    #[test]
    fn what_came_is_as_sent_but_for_what_uview_says() {
        let (sent, attributes) = (attribute("route", "/pay"), attribute("uview.reason", "slow"));
        let of = |attributes: &[KeyValue]| Spans::of(&[span("frontend", 1, 0, attributes)]).unwrap();

        assert!(of(&[sent.clone(), attributes]).as_sent(&of(from_ref(&sent))).is_ok());
        assert!(of(&[]).as_sent(&of(from_ref(&sent))).unwrap_err().to_string().contains("came as"));
        let error = Spans::default().as_sent(&of(&[sent])).unwrap_err().to_string();
        assert!(error.contains("frontend: \"GET /pay\" did not come"), "{error}");
        assert!(of(&[]).as_sent(&Spans::default()).is_err());
    }

    #[test]
    fn a_message_that_is_changed_or_lost_is_reported_and_repeated_ones_are_counted() {
        let message = |bytes: &'static [u8]| Message { signal: Signal::Logs, bytes: Bytes::from_static(bytes) };
        let (one, two) = (message(b"1"), message(b"2"));
        let sent = [one.clone(), two.clone()];
        let came = |came: &[Message]| byte_equal(came, &sent, Signal::Logs);

        assert_eq!(came(&[two.clone(), one.clone()]).unwrap(), Delivered { messages: 2, repeated: 0 });
        assert_eq!(came(&[one.clone(), two.clone(), two]).unwrap(), Delivered { messages: 2, repeated: 1 });
        let lost = came(from_ref(&one)).unwrap_err().to_string();
        assert_eq!(lost, "of logs one of 1 bytes came 0 times and was sent 1 times");
        let changed = came(&[one, message(b"33")]).unwrap_err().to_string();
        assert!(changed.contains("one of 2 bytes came 1 times and was sent 0 times"), "{changed}");
    }
}
