//! Replicas of services, for who looks at what was changed.

use wire::name::{InstanceName, ServiceName};

use super::container::container_of;
use super::state::ControlPlane;

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
    /// The user who named that process, which is then not the one that registered; the kernel has not confirmed it.
    pub named_by: Option<u32>,
}

impl ControlPlane {
    /// All replicas, by service. Those that the agent has for services which are known by their spans are not among
    /// them: nobody starts them again.
    #[must_use]
    pub fn replica_facts(&self) -> Vec<ReplicaFacts> {
        let connections = self.services.values().flat_map(|service| &service.replicas);
        let connections = connections.filter_map(|&connection| self.connections.get(connection));
        let facts = connections.filter(|connection| !connection.is_own).filter_map(|connection| {
            let replica = connection.replica()?;
            // A container has numbers of its own for processes.
            let may_name = container_of(&connection.peer.cgroup).is_none();
            let observed = replica.observed.filter(|_| may_name);
            Some(ReplicaFacts {
                service: replica.service.clone(),
                instance: replica.instance.clone(),
                number: replica.id.0,
                process: observed.unwrap_or(connection.peer.pid),
                named_by: observed.map(|_| connection.peer.uid),
            })
        });
        facts.collect()
    }
}
