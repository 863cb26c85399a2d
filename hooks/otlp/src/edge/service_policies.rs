//! Policies of single services, which change while the endpoint runs.

use std::sync::Arc;

use hooks::tracing::{ServicePolicies, Switches};

use super::Edge;
use crate::tenants::DEFAULT;

impl Edge {
    /// Which policies of tail sampling are on; `None` where all spans pass through.
    #[must_use]
    pub fn switches(&self) -> Option<Switches> {
        self.tail(DEFAULT).map(|tail| *tail.policies().switches())
    }

    /// From now on `services` hold, for the traces of all tenants. Without effect where all spans pass through.
    pub fn set_service_policies(&self, services: &Arc<ServicePolicies>) {
        for (tenant, _) in self.tenants() {
            if let Some(mut tail) = self.tail(tenant) {
                tail.set_service_policies(Arc::clone(services));
            }
        }
    }
}
