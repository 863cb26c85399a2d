//! Where the agent's kept traces go in the test: OTLP by HTTP, listening in the cluster's network.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::net::TcpListener;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message as _;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use support::sink;

/// Most spans that are kept: of a test that keeps too much, the newest.
const MAX_SPANS: usize = 10_000;

/// A span that arrived, with the texts of its attributes and of its origin's.
#[derive(Clone, Debug, Default)]
pub struct Span {
    /// The trace's id.
    pub trace: Vec<u8>,
    /// Attributes of the span.
    pub attributes: BTreeMap<String, String>,
    /// Attributes of the resource.
    pub resource: BTreeMap<String, String>,
}

/// Spans that arrived so far.
#[derive(Clone, Debug, Default)]
pub struct Upstream(Arc<Mutex<VecDeque<Span>>>);

impl Upstream {
    /// Listens at `address` in the network namespace that the file `network` names.
    ///
    /// # Errors
    ///
    /// The namespace cannot be entered, or the address is in use.
    pub fn listen(network: &Path, address: &str) -> Result<Self> {
        let listener = std::thread::scope(|scope| {
            let bind = || -> Result<TcpListener> {
                // A socket stays in the namespace in which it was made; this thread ends.
                let file = File::open(network).with_context(|| network.display().to_string())?;
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
                TcpListener::bind(address).with_context(|| address.to_owned())
            };
            scope.spawn(bind).join().ok().context("the thread that listens ended")?
        })?;
        let upstream = Self::default();
        let arrived = upstream.clone();
        sink::serve_at(listener, move || {
            let arrived = arrived.clone();
            move |body: &[u8]| arrived.take(body)
        })?;
        Ok(upstream)
    }

    fn take(&self, body: &[u8]) {
        // Metrics and logs go elsewhere in the same way, and are none of its business.
        let Ok(request) = ExportTraceServiceRequest::decode(body) else { return };
        let mut spans = self.lock();
        for group in request.resource_spans {
            let resource = texts(&group.resource.unwrap_or_default().attributes);
            for span in group.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                if spans.len() >= MAX_SPANS {
                    spans.pop_front();
                }
                let attributes = texts(&span.attributes);
                spans.push_back(Span { trace: span.trace_id, attributes, resource: resource.clone() });
            }
        }
    }

    /// All spans of each trace that has arrived, by trace.
    pub fn traces(&self) -> BTreeMap<Vec<u8>, Vec<Span>> {
        let mut traces: BTreeMap<_, Vec<Span>> = BTreeMap::new();
        for span in self.lock().iter() {
            traces.entry(span.trace.clone()).or_default().push(span.clone());
        }
        traces
    }

    /// Forgets what has arrived.
    pub fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Span>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |attribute: &KeyValue| match attribute.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some((attribute.key.clone(), text.clone())),
        _ => None,
    };
    attributes.iter().filter_map(text).collect()
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::resource::v1::Resource;
    use opentelemetry_proto::tonic::trace::v1 as otlp;
    use support::otlp::text;

    use super::*;

    #[test]
    fn spans_of_a_trace_are_together_with_what_their_origins_say() {
        let group = |pod: &str, trace: u8| {
            let span = otlp::Span {
                trace_id: vec![trace; 16],
                attributes: vec![text("uview.reason", "an error")],
                ..otlp::Span::default()
            };
            otlp::ResourceSpans {
                resource: Some(Resource { attributes: vec![text("k8s.pod.name", pod)], ..Resource::default() }),
                scope_spans: vec![otlp::ScopeSpans { spans: vec![span], ..otlp::ScopeSpans::default() }],
                ..otlp::ResourceSpans::default()
            }
        };
        let upstream = Upstream::default();

        for groups in [vec![group("payment-1", 1), group("payment-2", 2)], vec![group("store-1", 1)]] {
            upstream.take(&ExportTraceServiceRequest { resource_spans: groups }.encode_to_vec());
        }
        upstream.take(b"not OTLP");

        let traces = upstream.traces();
        let pods: Vec<_> = traces[&vec![1; 16]].iter().map(|span| span.resource["k8s.pod.name"].as_str()).collect();
        assert_eq!((traces.len(), pods), (2, vec!["payment-1", "store-1"]));
        assert_eq!(traces[&vec![2; 16]][0].attributes["uview.reason"], "an error");
        upstream.clear();
        assert!(upstream.traces().is_empty());
    }

    #[test]
    fn of_too_many_spans_the_newest_are_there() {
        let upstream = Upstream::default();
        let span = |trace: u8| otlp::Span { trace_id: vec![trace; 16], ..otlp::Span::default() };
        let spans: Vec<_> = core::iter::once(span(1)).chain(vec![span(2); MAX_SPANS - 1]).chain([span(3)]).collect();
        let scope = otlp::ScopeSpans { spans, ..otlp::ScopeSpans::default() };
        let group = otlp::ResourceSpans { scope_spans: vec![scope], ..otlp::ResourceSpans::default() };

        upstream.take(&ExportTraceServiceRequest { resource_spans: vec![group] }.encode_to_vec());

        let traces: Vec<_> = upstream.traces().into_keys().map(|trace| trace[0]).collect();
        assert_eq!(traces, [2, 3]);
    }
}
