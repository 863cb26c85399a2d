//! The spans of a service, by OpenTelemetry's SDK with its defaults, as in any service. Nothing here depends on uview.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator as _};
use opentelemetry::trace::{SpanKind, Status, TraceContextExt as _, Tracer as _, TracerProvider as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};

use crate::graph::{Errand, Service};
use crate::traces::{PEER, STATUS};

/// Response header with the trace id (W3C Trace Context, level 2).
pub(crate) const TRACE_RESPONSE: &str = "traceresponse";

/// Records the spans of one service.
#[derive(Clone, Debug)]
pub(crate) struct Spans {
    tracer: SdkTracer,
    provider: SdkTracerProvider,
    propagator: Arc<TraceContextPropagator>,
}

impl Spans {
    /// Sends spans to `endpoint` by OTLP/gRPC in the SDK's batches. Has to be called in a runtime, to which the
    /// exporter's connection then belongs.
    ///
    /// # Errors
    ///
    /// The endpoint is no URL. An unreachable endpoint is no error: batches are lost until it is reachable.
    pub(crate) fn to(endpoint: &str, service: Service, instance: &str) -> Result<Self, ExporterBuildError> {
        let exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint).build()?;
        let named = Resource::builder().with_service_name(service.name());
        let resource = named.with_attribute(KeyValue::new("service.instance.id", instance.to_owned())).build();
        Ok(Self::of(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build()))
    }

    /// Records no spans.
    pub(crate) fn none() -> Self {
        Self::of(SdkTracerProvider::builder().with_sampler(Sampler::AlwaysOff).build())
    }

    fn of(provider: SdkTracerProvider) -> Self {
        Self { tracer: provider.tracer("shop"), provider, propagator: Arc::default() }
    }

    /// Starts the server span of a request with `headers`.
    pub(crate) fn entered(&self, service: Service, errand: Errand, headers: &HeaderMap) -> ActiveSpan {
        let caller = self.propagator.extract_with_context(&Context::new(), &HeaderExtractor(headers));
        let route = service.path(errand);
        self.begin(SpanKind::Server, route, KeyValue::new("http.route", route), &caller)
    }

    /// Starts the client span of a call to `dependency` for `request`. Returns it with the headers of the call.
    pub(crate) fn called(&self, request: &Context, dependency: Service, errand: Errand) -> (ActiveSpan, HeaderMap) {
        let peer = KeyValue::new(PEER, dependency.name());
        let call = self.begin(SpanKind::Client, dependency.path(errand), peer, request);
        let mut headers = HeaderMap::new();
        self.propagator.inject_context(&call.0, &mut HeaderInjector(&mut headers));
        (call, headers)
    }

    fn begin(&self, kind: SpanKind, path: &str, attribute: KeyValue, parent: &Context) -> ActiveSpan {
        let span = self.tracer.span_builder(format!("GET {path}")).with_kind(kind);
        let span = span.with_attributes([KeyValue::new("http.request.method", "GET"), attribute]);
        ActiveSpan(parent.with_span(span.start_with_context(&self.tracer, parent)))
    }

    /// Sends pending spans. Blocks until they are sent, while the runtime has to run.
    pub(crate) fn flush(&self) {
        // Spans that cannot be sent are missing at the receiver, and counted there.
        let _ = self.provider.force_flush();
    }
}

/// A span that has not ended. It ends when dropped, which also happens when the client closes the connection.
#[derive(Debug)]
pub(crate) struct ActiveSpan(Context);

impl ActiveSpan {
    /// The context for child spans.
    pub(crate) const fn context(&self) -> &Context {
        &self.0
    }

    /// The response header with the trace id.
    pub(crate) fn response_header(&self) -> Option<(HeaderName, HeaderValue)> {
        let span = self.0.span();
        let of = span.span_context();
        let value = format!("00-{}-{}-{:02x}", of.trace_id(), of.span_id(), of.trace_flags().to_u8());
        Some((HeaderName::from_static(TRACE_RESPONSE), value.parse().ok()?))
    }

    /// Sets the response status. Status 4xx is part of normal operation, no error.
    pub(crate) fn answered(&self, status: u16) {
        self.0.span().set_attribute(KeyValue::new(STATUS, i64::from(status)));
        if status >= 500 {
            self.failed("responded with an error");
        }
    }

    /// Marks the span as failed.
    pub(crate) fn failed(&self, how: &'static str) {
        self.0.span().set_status(Status::error(how));
    }

    /// Ends the span.
    pub(crate) fn end(&self) {
        self.0.span().end();
    }
}

struct HeaderExtractor<'a>(&'a HeaderMap);

impl Extractor for HeaderExtractor<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

struct HeaderInjector<'a>(&'a mut HeaderMap);

impl Injector for HeaderInjector<'_> {
    fn set(&mut self, key: &str, value: String) {
        if let (Ok(name), Ok(value)) = (key.parse::<HeaderName>(), value.parse()) {
            self.0.insert(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use opentelemetry_sdk::error::OTelSdkResult;
    use opentelemetry_sdk::trace::{SpanData, SpanExporter};

    use super::*;
    use crate::traces::TraceId;

    /// An exporter that stores spans in memory.
    #[derive(Clone, Debug, Default)]
    struct MemoryExporter(Arc<Mutex<Vec<SpanData>>>);

    impl SpanExporter for MemoryExporter {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            self.0.lock().unwrap().extend(batch);
            Ok(())
        }
    }

    impl MemoryExporter {
        fn spans(&self) -> Spans {
            Spans::of(SdkTracerProvider::builder().with_simple_exporter(self.clone()).build())
        }

        fn all(&self) -> Vec<SpanData> {
            self.0.lock().unwrap().clone()
        }
    }

    #[test]
    fn one_request_is_one_trace_through_services_and_its_response_names_it() {
        let kept = MemoryExporter::default();
        let (frontend, cart) = (kept.spans(), kept.spans());

        let request = frontend.entered(Service::Frontend, Errand::Buy, &HeaderMap::new());
        let (call, headers) = frontend.called(request.context(), Service::Cart, Errand::Buy);
        let served = cart.entered(Service::Cart, Errand::Buy, &headers);
        served.answered(200);
        drop(served);
        call.answered(200);
        drop(call);
        let header = request.response_header().unwrap();
        request.end();

        let [served, call, request] = &kept.all()[..] else { panic!("{:?}", kept.all()) };
        assert_eq!((&*served.name, &*call.name, &*request.name), ("GET /take", "GET /take", "GET /checkout"));
        assert_eq!(served.parent_span_id, call.span_context.span_id());
        assert_eq!(call.parent_span_id, request.span_context.span_id());
        let id = request.span_context.trace_id();
        assert!([served, call].iter().all(|span| span.span_context.trace_id() == id));
        let named = TraceId::from_header(header.1.to_str().unwrap()).unwrap();
        assert_eq!(named.to_string(), id.to_string());
    }

    #[test]
    fn errors_of_a_server_are_errors_and_refusals_are_none() {
        let kept = MemoryExporter::default();
        for status in [200, 404, 502] {
            kept.spans().entered(Service::Store, Errand::Browse, &HeaderMap::new()).answered(status);
        }

        let failed: Vec<_> = kept.all().iter().map(|span| matches!(span.status, Status::Error { .. })).collect();

        assert_eq!(failed, [false, false, true]);
    }

    #[test]
    fn a_service_without_an_endpoint_records_no_spans() {
        let request = Spans::none().entered(Service::Store, Errand::Browse, &HeaderMap::new());

        assert!(!request.context().span().span_context().is_sampled());
    }
}
