//! Replicas of services, for who looks at what was changed.

use wire::name::{InstanceName, ServiceName};

use super::ControlPlane;

/// A replica as it has registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaFacts {
    /// The service it is of.
    pub service: ServiceName,
    /// Its own name.
    pub instance: InstanceName,
    /// Number of its registration, never given twice.
    pub number: u32,
    /// Its process; 0 if that is not known: one of the agent's own, or in another namespace.
    pub process: u32,
}

impl ControlPlane {
    /// All replicas, by service. Those that the agent has for services which are known by their spans are not among
    /// them: nobody starts them again.
    #[must_use]
    pub fn replica_facts(&self) -> Vec<ReplicaFacts> {
        let connections = self.services.values().flat_map(|service| &service.replicas);
        let others = connections.filter(|connection| !self.agent_replicas.contains(connection));
        let facts = others.filter_map(|connection| {
            let connection = self.connections.get(connection)?;
            let replica = connection.replica.as_ref()?;
            Some(ReplicaFacts {
                service: replica.service.clone(),
                instance: replica.instance.clone(),
                number: replica.id.0,
                process: connection.peer.pid,
            })
        });
        facts.collect()
    }
}
