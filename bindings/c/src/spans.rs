//! Spans, requests to keep a trace, and what values are about.
#![expect(unsafe_code, reason = "symbols without mangled names")]

use std::ffi::c_int;
use std::mem::MaybeUninit;

use client::{EnteredSpan, Span, SpanKind, TraceContext, TraceId};

use crate::arguments::{Buffer, RESERVED, Text, check_reserved};
use crate::outcome::{Misuse, Outcome, guarded, guarded_or};
use crate::service::ServiceHandle;

/// `uview_span`: a span that has begun, of which C sees nothing.
#[derive(Debug)]
pub struct SpanHandle {
    span: Span,
    /// While a thread works in it.
    entered: Option<EnteredSpan>,
}

/// `uview_span_options`: what a span is like, all of it optional.
#[repr(C)]
#[derive(Debug)]
pub struct SpanOptions<'a> {
    parent: Option<&'a SpanHandle>,
    traceparent: Text,
    tracestate: Text,
    kind: c_int,
    reserved: [u64; RESERVED],
}

/// Work within the service.
pub(crate) const SPAN_INTERNAL: c_int = 1;
/// A request that the service answers.
pub(crate) const SPAN_SERVER: c_int = 2;
/// A request that the service makes.
pub(crate) const SPAN_CLIENT: c_int = 3;
/// A message that the service sends.
pub(crate) const SPAN_PRODUCER: c_int = 4;
/// A message that the service receives.
pub(crate) const SPAN_CONSUMER: c_int = 5;

fn kind_of(number: c_int) -> Result<SpanKind, Misuse> {
    match number {
        0 | SPAN_INTERNAL => Ok(SpanKind::Internal),
        SPAN_SERVER => Ok(SpanKind::Server),
        SPAN_CLIENT => Ok(SpanKind::Client),
        SPAN_PRODUCER => Ok(SpanKind::Producer),
        SPAN_CONSUMER => Ok(SpanKind::Consumer),
        _ => Err(Misuse::OutOfRange(format!("no kind of span has the number {number}: UVIEW_SPAN_INTERNAL and so on"))),
    }
}

impl SpanOptions<'_> {
    fn apply(&self, span: &mut Span) -> Result<(), Misuse> {
        check_reserved(self.reserved)?;
        span.set_kind(kind_of(self.kind)?);
        let (parent, state) = (self.traceparent.optional("traceparent")?, self.tracestate.optional("tracestate")?);
        let caller = TraceContext::extract(|name| if name == "traceparent" { parent } else { state });
        if let Some(above) = self.parent.map_or(caller, |parent| parent.span.context()) {
            span.set_parent(&above);
        }
        Ok(())
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_span_begin(
    service: Option<&ServiceHandle>,
    name: Text,
    options: Option<&SpanOptions<'_>>,
    begun: Option<&mut MaybeUninit<Option<Box<SpanHandle>>>>,
) -> c_int {
    guarded(|| {
        let place = begun.ok_or(Misuse::Null("begun"))?;
        place.write(None);
        let service = service.ok_or(Misuse::Null("service"))?;
        let mut span = service.client.span(name.required("name")?);
        if let Some(options) = options
            && let Err(misuse) = options.apply(&mut span)
        {
            span.discard();
            return Err(misuse);
        }
        let recorded = span.is_recorded();
        place.write(Some(Box::new(SpanHandle { span, entered: None })));
        let why = "there is no shared memory for spans: uview_status_text says why";
        Ok(if recorded { Outcome::Done } else { Outcome::Detached(why.to_owned()) })
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_span_enter(span: Option<&mut SpanHandle>) {
    guarded_or((), || {
        if let Some(handle) = span {
            handle.entered = Some(handle.span.enter());
        }
    });
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_span_leave(span: Option<&mut SpanHandle>) {
    guarded_or((), || {
        if let Some(handle) = span {
            drop(handle.entered.take());
        }
    });
}

/// Changes a span by what `say` finds in its arguments.
fn change(span: Option<&mut SpanHandle>, say: impl FnOnce(&mut Span) -> Result<(), Misuse>) -> c_int {
    guarded(|| {
        if let Some(span) = span {
            say(&mut span.span)?;
        }
        Ok(Outcome::Done)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_span_text(span: Option<&mut SpanHandle>, key: Text, value: Text) -> c_int {
    change(span, |span| {
        span.set_text(key.required("key")?, value.required("value")?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_span_integer(span: Option<&mut SpanHandle>, key: Text, value: i64) -> c_int {
    change(span, |span| {
        span.set_integer(key.required("key")?, value);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_span_double(span: Option<&mut SpanHandle>, key: Text, value: f64) -> c_int {
    change(span, |span| {
        span.set_float(key.required("key")?, value);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_span_event(span: Option<&mut SpanHandle>, name: Text) -> c_int {
    change(span, |span| {
        span.event(name.required("name")?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_span_event_text(span: Option<&mut SpanHandle>, key: Text, value: Text) -> c_int {
    change(span, |span| {
        span.last_event().set_text(key.required("key")?, value.required("value")?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_span_event_integer(span: Option<&mut SpanHandle>, key: Text, value: i64) -> c_int {
    change(span, |span| {
        span.last_event().set_integer(key.required("key")?, value);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_span_event_double(span: Option<&mut SpanHandle>, key: Text, value: f64) -> c_int {
    change(span, |span| {
        span.last_event().set_float(key.required("key")?, value);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_span_fail(span: Option<&mut SpanHandle>, message: Text) -> c_int {
    change(span, |span| {
        span.fail(message.optional("message")?.unwrap_or_default());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_span_keep(span: Option<&mut SpanHandle>, reason: Text) -> c_int {
    change(span, |span| {
        span.keep(reason.required("reason")?);
        Ok(())
    })
}

/// Copies the header `wanted` of the span's context, and gives its length.
fn header(span: Option<&SpanHandle>, wanted: &str, buffer: Buffer, size: usize) -> usize {
    guarded_or(0, || {
        let mut text = String::new();
        if let Some(context) = span.and_then(|span| span.span.context()) {
            context.inject(|name, value| {
                if name == wanted {
                    value.clone_into(&mut text);
                }
            });
        }
        buffer.fill(&text, size);
        text.len()
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_span_traceparent(span: Option<&SpanHandle>, buffer: Buffer, size: usize) -> usize {
    header(span, "traceparent", buffer, size)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_span_tracestate(span: Option<&SpanHandle>, buffer: Buffer, size: usize) -> usize {
    header(span, "tracestate", buffer, size)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_span_end(span: Option<Box<SpanHandle>>) {
    guarded_or((), || drop(span));
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_trigger(service: Option<&ServiceHandle>, trace: Text, reason: Text) -> c_int {
    guarded(|| {
        let service = service.ok_or(Misuse::Null("service"))?;
        let trace = trace.required("trace")?.parse::<TraceId>();
        let trace = trace.map_err(|error| Misuse::OutOfRange(error.to_string()))?;
        service.client.trigger(trace, reason.required("reason")?);
        Ok(Outcome::Done)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_set_subject(service: Option<&ServiceHandle>, metric: Text, text: Text) -> c_int {
    guarded(|| {
        let service = service.ok_or(Misuse::Null("service"))?;
        service.client.set_subject(metric.required("metric")?, text.optional("text")?.unwrap_or_default());
        Ok(Outcome::Done)
    })
}
