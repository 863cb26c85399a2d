//! Operations that pass through this endpoint, and which of them are anomalous.

use wire::time::Nanos;

use super::Edge;
use crate::tail::{AnomalousOperation, OperationPath};
use crate::tenants::{DEFAULT, TenantId};

impl Edge {
    /// Operations of the default tenant that were anomalous within the last 15 s. Also the age of the first verdict
    /// since the last call: operations that are new in the list are so because of that verdict or a later one.
    #[must_use]
    pub fn anomalous_operations(&self) -> (Vec<AnomalousOperation>, Nanos) {
        let now = self.clock.timestamp();
        let tail = self.observer().or_else(|| self.tail(DEFAULT));
        tail.map(|mut tail| tail.anomalous_operations(now)).unwrap_or_default()
    }

    /// All known operations of `tenant` with the services on their paths; `None` where its spans are not analysed.
    #[must_use]
    pub fn operations(&self, tenant: TenantId) -> Option<Vec<OperationPath>> {
        let tail = self.tail(tenant).or_else(|| self.observer().filter(|_| tenant == DEFAULT))?;
        Some(tail.operations(self.now()))
    }
}
