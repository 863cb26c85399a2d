//! The `tracing_subscriber` layer that counts spans.

use core::fmt;
use std::sync::Arc;
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;
use wire::span_record::ShortText;
use wire::time::Nanos;

use super::names::{NameSeries, Names};
use crate::client::Client;
use crate::clock::Clock;
use crate::spans::open::OpenSpans;

/// Counts spans by name, with their errors and durations ([`Client::span_metrics`]).
#[derive(Debug)]
pub struct SpanMetricsLayer {
    names: Names,
    open: OpenSpans<OpenSpan>,
    clock: Clock,
}

/// A span that has begun.
#[derive(Debug)]
struct OpenSpan {
    series: Arc<NameSeries>,
    start: Nanos,
    failed: bool,
}

impl Client {
    /// A layer that counts `tracing` spans, their errors and durations as metrics: add it to a
    /// `tracing_subscriber::registry()`. It keeps the client connected.
    #[must_use]
    pub fn span_metrics(&self) -> SpanMetricsLayer {
        SpanMetricsLayer::new(self.clone(), self.limits().label_sets_per_metric)
    }
}

impl SpanMetricsLayer {
    fn new(client: Client, most: usize) -> Self {
        Self { names: Names::new(client, most), open: OpenSpans::new(), clock: Clock::start() }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for SpanMetricsLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, _context: Context<'_, S>) {
        let mut fields = Fields { names: &self.names, series: None, failed: None };
        attributes.record(&mut fields);
        let failed = fields.failed.unwrap_or(false);
        let series = fields.series.unwrap_or_else(|| self.names.get(attributes.metadata().name()));
        let start = self.clock.now();
        let begin = |open: &mut Option<OpenSpan>| {
            *open = Some(OpenSpan { series: Arc::clone(&series), start, failed });
        };
        if !self.open.begin(id.into_non_zero_u64(), begin) {
            series.count();
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _context: Context<'_, S>) {
        // Before the lock: whatever a value's `Debug` does, it does not meet the lock.
        let mut fields = Fields { names: &self.names, series: None, failed: None };
        values.record(&mut fields);
        let Fields { series, failed, .. } = fields;
        if series.is_none() && failed.is_none() {
            return;
        }
        let change = |open: &mut OpenSpan| {
            open.failed = failed.unwrap_or(open.failed);
            if let Some(series) = series {
                open.series = series;
            }
        };
        _ = self.open.with(id.into_non_zero_u64(), change);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        if *event.metadata().level() == Level::ERROR
            && let Some(span) = context.event_span(event)
        {
            _ = self.open.with(span.id().into_non_zero_u64(), |open| open.failed = true);
        }
    }

    fn on_close(&self, id: Id, _context: Context<'_, S>) {
        let now = self.clock.now();
        self.open.end(id.into_non_zero_u64(), |open| {
            let duration = now.since(open.start).unwrap_or(Nanos::ZERO);
            open.series.close(open.failed, Duration::from_nanos(duration.0));
        });
    }
}

/// What fields say about a span's name and failure.
struct Fields<'a> {
    names: &'a Names,
    series: Option<Arc<NameSeries>>,
    failed: Option<bool>,
}

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "otel.name" => self.series = Some(self.names.get(value)),
            "otel.status_code" if value.eq_ignore_ascii_case("ok") => self.failed = Some(false),
            "otel.status_code" if value.eq_ignore_ascii_case("error") => self.failed = Some(true),
            "error" if !matches!(value, "" | "false") => self.failed = Some(true),
            _ => {}
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        if field.name() == "error" && value {
            self.failed = Some(true);
        }
    }

    fn record_error(&mut self, field: &Field, _value: &(dyn std::error::Error + 'static)) {
        if field.name() == "error" {
            self.failed = Some(true);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if matches!(field.name(), "otel.name" | "otel.status_code" | "error") {
            self.record_str(field, ShortText::of(format_args!("{value:?}")).as_str());
        }
    }
}
