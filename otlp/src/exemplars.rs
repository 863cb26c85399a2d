//! Which traces were kept, told to those who count requests: a histogram points at traces that can be opened.
//!
//! A trace is kept when its spans are on their way to the upstream, and not before: one that waits, was dropped, or that other nodes still have to hear
//! of is none. That the upstream takes them is not waited for.

use hooks::paths::Exemplar;

use crate::edge::Edge;
use crate::tail::Tail;
use crate::tenants::TenantId;

/// A request of a trace that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptRequest {
    /// The service, by the name that its spans carry as `service.name`.
    pub service: String,
    /// What it calls the operation.
    pub operation: String,
    /// The trace, and how long the request took.
    pub exemplar: Exemplar,
}

impl Tail {
    /// Takes the requests of traces that were kept since the last call; the last 4,096 at the most.
    pub fn kept_requests(&mut self) -> Vec<KeptRequest> {
        let named = |kept: crate::outgoing::KeptRequest| KeptRequest {
            service: self.names.service_name(kept.service).to_owned(),
            operation: self.names.operation_name(kept.operation).to_owned(),
            exemplar: kept.exemplar,
        };
        self.outgoing.take_requests().into_iter().map(named).collect()
    }
}

impl Edge {
    /// Tells whoever counts requests what `tenant`'s tail kept. No tail is locked meanwhile.
    pub(crate) fn remember(&self, tenant: TenantId, kept: &[KeptRequest]) {
        if kept.is_empty() {
            return;
        }
        let Some(mut derived) = self.derived() else { return };
        let name = self.watched(tenant);
        for KeptRequest { service, operation, exemplar } in kept {
            derived.keep(&name(service), operation, *exemplar);
        }
    }
}
