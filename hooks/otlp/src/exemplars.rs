//! Passes kept traces to the span metrics as exemplars: a histogram points at traces that can be opened.
//!
//! A trace counts as kept when its spans are queued for the upstream, not before: one that is pending, was dropped, or
//! is held back until another node knows it, is no exemplar. Whether the upstream accepts it is not waited for.

use hooks::paths::Exemplar;

use crate::edge::Edge;
use crate::tail::TailSampler;
use crate::tenants::TenantId;

/// A request of a kept trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptRequest {
    /// The service, named as in `service.name` of its spans.
    pub service: String,
    /// The operation, named as in its spans.
    pub operation: String,
    /// The trace, and how long the request took.
    pub exemplar: Exemplar,
}

impl TailSampler {
    /// Drains the requests of traces that were kept since the last call, 4,096 at most: the newest.
    pub fn take_kept_requests(&mut self) -> Vec<KeptRequest> {
        let named = |kept: crate::export_buffer::KeptRequest| KeptRequest {
            service: self.names.service_name(kept.service).to_owned(),
            operation: self.names.operation_name(kept.operation).to_owned(),
            exemplar: kept.exemplar,
        };
        self.export_buffer.take_requests().into_iter().map(named).collect()
    }
}

impl Edge {
    /// Records what `tenant`'s tail sampler kept as exemplars. No tail sampler is locked meanwhile.
    pub(crate) fn record_kept(&self, tenant: TenantId, kept: &[KeptRequest]) {
        if kept.is_empty() {
            return;
        }
        let Some(mut span_metrics) = self.span_metrics() else { return };
        let name = self.detector_name(tenant);
        for KeptRequest { service, operation, exemplar } in kept {
            span_metrics.keep_exemplar(&name(service), operation, *exemplar);
        }
    }
}
