//! Passes over a request's spans once, for all who need them.

use std::borrow::Cow;

use crate::codec::{Group, WireError, scan};
use hooks::id::ServiceId;
use wire::time::Timestamp;

use crate::forwarded_headers::ForwardedHeaders;
use crate::holders::Holder;
use crate::origins::Delivery;
use crate::senders::{SenderCheck, UNKNOWN, UNVERIFIED};
use crate::span_metrics::SpanMetrics;
use crate::tail::{IngestCounts, Source, TailSampler};

/// What holds for all spans of one group.
struct GroupContext<'a> {
    group: Group<'a>,
    /// Its service, if the sender may not use that name.
    unverified: Option<&'a str>,
    span_metrics: Option<ServiceId>,
    source: Option<Source>,
}

/// Passes the spans of `request` to `span_metrics`, which knows services by detector names, and to `tail`, with the
/// client's forwarded headers. Without a tail sampler the counts are zero. What `check` does not let its sender send is
/// in no service's metrics, and of the service [`UNVERIFIED`] for the tail sampler.
///
/// # Errors
///
/// [`WireError`] if the request is malformed; then nothing was passed on.
pub(crate) fn walk<N: Fn(&str) -> Cow<'_, str>>(
    request: &[u8],
    mut span_metrics: Option<(&mut SpanMetrics, N)>,
    mut tail: Option<(&mut TailSampler, &ForwardedHeaders)>,
    mut check: Option<&mut SenderCheck<'_>>,
    now: Timestamp,
) -> Result<IngestCounts, WireError> {
    let mut counts = IngestCounts::default();
    // A pod's own service, whatever the spans say: once per request.
    let own = check.as_ref().and_then(|check| check.service()).map(Cow::into_owned);
    let pod = check.as_ref().and_then(|check| check.sender.pod()).cloned();
    let holder = check.as_ref().map_or(Holder::AGENT, |check| check.sender.holder());
    let mut last: Option<GroupContext<'_>> = None;
    scan(request, |group, span| {
        if last.as_ref().is_none_or(|context| !context.group.is(group)) {
            let claimed = group.service_name().unwrap_or(UNKNOWN);
            let service = own.as_deref().unwrap_or(claimed);
            let is_verified = own.is_some() || check.as_ref().is_none_or(|check| check.may_send(service));
            let counted = if is_verified { service } else { UNVERIFIED };
            last = Some(GroupContext {
                group: *group,
                unverified: (!is_verified).then_some(claimed),
                span_metrics: span_metrics
                    .as_mut()
                    .filter(|_| is_verified)
                    .and_then(|(span_metrics, name)| span_metrics.service_of(&holder, &name(service), now.monotonic)),
                source: tail.as_mut().map(|(tail, forwarded)| {
                    let delivery = Delivery { forwarded, pod: pod.as_deref(), holder: &holder };
                    tail.source(counted, group, &delivery, now.monotonic)
                }),
            });
        }
        let Some(context) = &last else { return };
        match (context.unverified, &mut check, &mut span_metrics, &span) {
            (Some(service), Some(check), ..) => check.refuse(service),
            (None, _, Some((span_metrics, _)), Ok(span)) => span_metrics.record_span(context.span_metrics, span, now),
            _ => {}
        }
        if let (Some((tail, _)), Some(source)) = (tail.as_mut(), context.source) {
            tail.ingest_span(&span, source, &mut counts, now);
        }
    })?;
    Ok(counts)
}

impl TailSampler {
    /// Ingests an `ExportTraceServiceRequest`.
    ///
    /// # Errors
    ///
    /// [`WireError`] if it is malformed; then nothing of it was ingested.
    pub fn ingest(&mut self, request: &[u8], now: Timestamp) -> Result<IngestCounts, WireError> {
        walk(request, None::<(_, fn(&str) -> Cow<'_, str>)>, Some((self, &ForwardedHeaders::default())), None, now)
    }
}
