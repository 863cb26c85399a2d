//! Connections of services: who is at the other end, which replica each has, and which are awaited for something.
//!
//! A connection of a process is awaited for a hello until it has a replica. Those of the agent's own replicas have one
//! from the start, and are awaited for nothing.

use std::collections::{BTreeMap, BTreeSet};

use wire::time::Nanos;

use super::action::ConnectionId;
use super::pod_identity::PodIdentity;
use super::replica::Replica;
use super::settings::Peer;

/// A service's connection, before and after its hello.
#[derive(Debug)]
pub struct Connection {
    /// The process; that of an own replica has number 0.
    pub peer: Peer,
    /// What its pod says about it.
    pub pod: PodIdentity,
    /// Whether the agent itself registered it.
    pub is_own: bool,
    /// Number of frames received.
    messages: u64,
    /// When it has to have said hello.
    hello_by: Nanos,
    replica: Option<Replica>,
}

impl Connection {
    /// What it registered; `None` before its hello.
    pub const fn replica(&self) -> Option<&Replica> {
        self.replica.as_ref()
    }

    /// What it registered, once it is closed.
    pub fn into_replica(self) -> Option<Replica> {
        self.replica
    }
}

/// All connections of services.
#[derive(Debug, Default)]
pub struct Connections {
    all: BTreeMap<ConnectionId, Connection>,
    /// Exactly those without a replica, by when they have to have said hello.
    awaited: BTreeSet<(Nanos, ConnectionId)>,
    /// Open ones with messages whose number was not acknowledged.
    unacknowledged: BTreeSet<ConnectionId>,
}

impl Connections {
    /// A process connected; its hello is awaited until `hello_by`.
    pub fn open(&mut self, id: ConnectionId, peer: Peer, hello_by: Nanos) {
        let pod = PodIdentity::Unwatched;
        self.all.insert(id, Connection { peer, pod, is_own: false, messages: 0, hello_by, replica: None });
        self.awaited.insert((hello_by, id));
    }

    /// The agent itself registers `replica`.
    pub fn open_own(&mut self, id: ConnectionId, replica: Replica) {
        let (peer, pod) = (Peer { pid: 0, uid: 0, cgroup: String::new() }, PodIdentity::Unwatched);
        let (messages, hello_by) = (0, Nanos::NEVER);
        self.all.insert(id, Connection { peer, pod, is_own: true, messages, hello_by, replica: Some(replica) });
    }

    /// Closes a connection. Nothing is awaited of it any more. `None` if it is not open.
    pub fn close(&mut self, id: ConnectionId) -> Option<Connection> {
        let closed = self.all.remove(&id)?;
        self.awaited.remove(&(closed.hello_by, id));
        self.unacknowledged.remove(&id);
        Some(closed)
    }

    /// Its hello was accepted: it is `replica` from now on.
    pub fn register(&mut self, id: ConnectionId, replica: Replica) {
        if let Some(connection) = self.all.get_mut(&id) {
            connection.replica = Some(replica);
            self.awaited.remove(&(connection.hello_by, id));
        }
    }

    /// What its pod says about its process.
    pub fn set_pod(&mut self, id: ConnectionId, pod: PodIdentity) {
        if let Some(connection) = self.all.get_mut(&id) {
            connection.pod = pod;
        }
    }

    /// Counts a message. Returns whether the connection has a replica; `None` if it is not open.
    pub fn count_message(&mut self, id: ConnectionId) -> Option<bool> {
        let connection = self.all.get_mut(&id)?;
        connection.messages += 1;
        Some(connection.replica.is_some())
    }

    /// Its messages are in effect, and to be acknowledged, unless it is closed.
    pub fn acknowledge_later(&mut self, id: ConnectionId) {
        if self.all.contains_key(&id) {
            self.unacknowledged.insert(id);
        }
    }

    /// The connections that are to be told how many of their messages are in effect, with that number; once.
    pub fn take_unacknowledged(&mut self) -> impl Iterator<Item = (ConnectionId, u64)> {
        let ids = core::mem::take(&mut self.unacknowledged);
        ids.into_iter().filter_map(|id| Some((id, self.all.get(&id)?.messages)))
    }

    /// The first connection that has not said hello by `now`.
    pub fn late(&self, now: Nanos) -> Option<ConnectionId> {
        self.awaited.first().filter(|(hello_by, _)| *hello_by <= now).map(|&(_, id)| id)
    }

    /// When the next hello is due; `None` if none is awaited.
    pub fn next_hello(&self) -> Option<Nanos> {
        self.awaited.first().map(|&(hello_by, _)| hello_by)
    }

    /// An open connection.
    pub fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.all.get(&id)
    }

    /// What a connection registered.
    pub fn replica(&self, id: ConnectionId) -> Option<&Replica> {
        self.all.get(&id)?.replica.as_ref()
    }

    /// What a connection registered, to be changed.
    pub fn replica_mut(&mut self, id: ConnectionId) -> Option<&mut Replica> {
        self.all.get_mut(&id)?.replica.as_mut()
    }

    /// What these connections registered, in their order.
    pub fn replicas_of(&self, ids: &BTreeSet<ConnectionId>) -> impl Iterator<Item = &Replica> {
        ids.iter().filter_map(|id| self.replica(*id))
    }

    /// What all connections registered.
    pub fn replicas(&self) -> impl Iterator<Item = &Replica> {
        self.all.values().filter_map(Connection::replica)
    }
}

#[cfg(test)]
mod tests {
    use wire::id::{Owner, ReplicaId};
    use wire::name::{InstanceName, ServiceName};

    use super::*;

    const FIRST: ConnectionId = ConnectionId(1);
    const SECOND: ConnectionId = ConnectionId(2);

    fn peer() -> Peer {
        Peer { pid: 7, uid: 0, cgroup: String::new() }
    }

    fn replica() -> Replica {
        let (service, instance) = (ServiceName::new("cart").unwrap(), InstanceName::new("cart-1").unwrap());
        Replica::new(ReplicaId(1), service, instance, Owner::Agent)
    }

    #[test]
    fn a_hello_is_awaited_of_those_without_a_replica_and_of_nobody_who_left() {
        let mut connections = Connections::default();
        connections.open(FIRST, peer(), Nanos(10));
        connections.open(SECOND, peer(), Nanos(5));
        connections.open_own(ConnectionId(3), replica());

        assert_eq!((connections.next_hello(), connections.late(Nanos(4))), (Some(Nanos(5)), None));
        assert_eq!(connections.late(Nanos(5)), Some(SECOND));

        connections.close(SECOND);
        assert_eq!(connections.next_hello(), Some(Nanos(10)));

        connections.register(FIRST, replica());
        assert_eq!((connections.next_hello(), connections.late(Nanos::NEVER)), (None, None));
        assert_eq!(connections.replicas().count(), 2);
    }

    #[test]
    fn messages_are_acknowledged_once_and_only_to_those_that_are_open() {
        let mut connections = Connections::default();
        connections.open(FIRST, peer(), Nanos(10));
        connections.open(SECOND, peer(), Nanos(10));

        for id in [FIRST, FIRST, SECOND] {
            assert_eq!(connections.count_message(id), Some(false));
            connections.acknowledge_later(id);
        }
        connections.close(SECOND);
        connections.acknowledge_later(SECOND);

        assert_eq!(connections.take_unacknowledged().collect::<Vec<_>>(), [(FIRST, 2)]);
        assert_eq!(connections.take_unacknowledged().count(), 0);
        assert_eq!(connections.count_message(SECOND), None);
    }
}
