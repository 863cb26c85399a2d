//! Spans and triggers that do not arrive over OTLP: the agent reads them from its own rings, or operators call.

use hooks::tracing::{LookBack, OperatorRequest, OperatorRequestError, TraceId};
use wire::id::Owner;

use super::{Edge, IncomingRequest};
use crate::forwarded_headers::ForwardedHeaders;
use crate::holders::Holder;
use crate::senders::Sender;
use crate::signal::{Encoding, Signal};
use crate::tenants::DEFAULT;

/// Spans were not accepted: they are malformed, or the queue is full.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct IngestError(String);

impl Edge {
    /// Accepts the spans of `request`, an `ExportTraceServiceRequest`, as if they had arrived over OTLP. They are of
    /// the share of `owner`.
    ///
    /// # Errors
    ///
    /// [`IngestError`] if it is malformed, or the queue to the upstream is full for that owner.
    pub fn ingest_spans(&self, request: Vec<u8>, owner: Owner) -> Result<(), IngestError> {
        let (tenant, signal, encoding) = (DEFAULT, Signal::Traces, Encoding::Protobuf);
        let (body, forwarded, sender) = (request.into(), ForwardedHeaders::default(), Sender::Agent(owner));
        let rules = self.senders.load();
        let incoming = IncomingRequest { tenant, signal, encoding, body, forwarded, sender, rules };
        let mut reservation = self.tenant_state(DEFAULT).budget.reservation(Holder::Owner(owner));
        let accepted = self.ingest(incoming, &mut reservation);
        accepted.map(drop).map_err(|refusal| {
            self.counts.of(Signal::Traces).refused(refusal.why).add(1);
            self.note_refusal(&refusal);
            IngestError(refusal.text)
        })
    }

    /// A service triggers the keeping of `trace`, for `reason`. Returns `false` if the trace is decided already, if the
    /// policy is off or over budget, or if spans pass through (all are kept then).
    pub fn trigger(&self, trace: TraceId, reason: &str) -> bool {
        let now = self.clock.timestamp();
        let Some(mut tail) = self.tail(DEFAULT) else { return false };
        let granted = tail.trigger(trace, reason, now);
        self.queue_kept(DEFAULT, tail);
        granted
    }

    /// An operator asks for the traces through a service, which is named as detectors name it: where its tenant's name
    /// stands before its own, spans may have it with or without that. Returns how far back they are buffered; `None`
    /// where all spans pass through.
    ///
    /// # Errors
    ///
    /// [`OperatorRequestError`]; then nothing has changed.
    pub fn ask(&self, request: &OperatorRequest) -> Option<Result<LookBack, OperatorRequestError>> {
        let (tenant, service) = self.tenants.owner_of(&request.service);
        let short_name = Some(service).filter(|short| *short != request.service).map(str::to_owned);
        let named = OperatorRequest { short_name, ..request.clone() };
        let (mut tail, now) = (self.tail(tenant)?, self.clock.timestamp());
        Some(tail.ask(&named, now))
    }
}
