//! Kept traces as exemplars for the span metrics: a histogram points at traces that can be opened.
//!
//! A trace counts as kept when its spans are queued for the upstream, not before: one that is pending, was dropped, or
//! is held back until another node knows it, is no exemplar. Whether the upstream accepts it is not waited for.

use hooks::paths::Exemplar;

use super::TailSampler;
use crate::export_buffer;

/// A request of a kept trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptRequest {
    /// The service, named as in `service.name` of its spans.
    pub service: String,
    /// The operation, named as in its spans.
    pub operation: String,
    /// The trace, and how long the request took.
    pub exemplar: Exemplar,
    /// Address of the incident for whose alarm the trace was kept: node, slash, id; empty: none.
    pub incident: String,
}

impl TailSampler {
    /// Drains the requests of traces that were kept since the last call, 4,096 at most: the newest.
    pub fn take_kept_requests(&mut self) -> Vec<KeptRequest> {
        let named = |kept: export_buffer::KeptRequest| KeptRequest {
            service: self.names.service_name(kept.service).to_owned(),
            operation: self.names.operation_name(kept.operation).to_owned(),
            exemplar: kept.exemplar,
            incident: kept.incident.into(),
        };
        self.export_buffer.take_requests().into_iter().map(named).collect()
    }
}
