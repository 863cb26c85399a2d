//! What the control plane wants done.

use std::sync::Arc;

use hooks::tracing::Parts;
use wire::control::Verdict;
use wire::id::{Epoch, LmapId, RegionId, ReplicaId, WorkerId};
use wire::layout::RegionSize;
use wire::metric::Group;
use wire::name::{InstanceName, ServiceName};
use wire::proto::{control, registration};
use wire::rdma::Endpoint;
use wire::time::Nanos;

use super::incidents::Suspicion;

/// Names one connection, of a service or of a worker. Given out by the edge, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// A column that speaks for a score, by name.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedReason {
    /// Metric, statistic and labels.
    pub column: String,
    /// What it tells about.
    pub group: Group,
    /// Its unit; empty if not stated.
    pub unit: String,
    /// Of the squared score, 0 to 1.
    pub share: f64,
    /// What was seen, in the unit.
    pub seen: f64,
    /// What was expected, in the unit.
    pub expected: f64,
    /// How long it has stood out; zero: just now, or not at all by itself.
    pub since: Nanos,
}

/// A verdict with the names that hooks need.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Who judged.
    pub worker: WorkerId,
    /// About which service.
    pub service: ServiceName,
    /// The tick, in nanoseconds since 1970.
    pub at_unix_ns: u64,
    /// The verdict itself.
    pub verdict: Verdict,
    /// Its reasons by name; those whose metric is not known are left out.
    pub reasons: Vec<NamedReason>,
    /// What its row says by itself, by operation; `None` if that is not said, or a replica is silent: that concerns all.
    pub parts: Option<Parts>,
    /// The silent replicas by name.
    pub silent: Vec<InstanceName>,
    /// What is suspected of the service, if it is in an alarm.
    pub suspicion: Option<Suspicion>,
}

/// Raw rows of one LMAP.
#[derive(Clone, Debug, PartialEq)]
pub struct RowBatch {
    /// Whose.
    pub lmap: LmapId,
    /// Of which configuration.
    pub epoch: Epoch,
    /// Titles of the columns.
    pub columns: Arc<[String]>,
    /// The rows; each has as many values as there are columns.
    pub rows: Vec<control::Row>,
}

/// What the control plane wants done, in this order.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Action {
    /// Send this to a service.
    ToService {
        /// Over which connection.
        connection: ConnectionId,
        /// What.
        message: registration::AgentMessage,
    },
    /// Send what waits, then close the connection. The control plane has forgotten it.
    CloseService {
        /// Which.
        connection: ConnectionId,
    },
    /// A replica was taken: its process can be measured, if it tells of its process.
    ReplicaJoined {
        /// Its connection.
        connection: ConnectionId,
        /// Its name on this node.
        replica: ReplicaId,
        /// Of which service.
        service: ServiceName,
        /// Its name towards people.
        instance: InstanceName,
        /// Its process; 0 if not visible.
        pid: u32,
        /// Whether what it tells is of its process.
        process_metrics: bool,
    },
    /// Read the finished spans of a replica; [`Action::ReplicaLeft`] ends it.
    ReadSpans {
        /// Its connection.
        connection: ConnectionId,
        /// Of which service.
        service: ServiceName,
        /// Its name towards people.
        instance: InstanceName,
        /// The ring. Nobody else reads it: it may be dropped once it is mapped.
        region: RegionId,
        /// Its size.
        size: RegionSize,
        /// The first record that was not for an earlier agent.
        first_ticket: u64,
    },
    /// A replica is gone.
    ReplicaLeft {
        /// Its connection.
        connection: ConnectionId,
    },
    /// Connect the queue pair of this worker's regions to the worker's own, and send it the answer.
    ConnectQueuePair {
        /// Over which connection the answer goes.
        connection: ConnectionId,
        /// Which worker it is.
        worker: WorkerId,
        /// The number that the answer has.
        attempt: u32,
        /// The worker's end.
        peer: Endpoint,
    },
    /// This worker must not read any more by RDMA, whatever it tries: done when the device says so, and before anything that follows.
    StopReading {
        /// Which worker.
        worker: WorkerId,
        /// False: its stream has ended, and it may come back for what it had. True: it is fenced.
        for_good: bool,
    },
    /// Send this to a worker. With RDMA, regions get their addresses and keys on the way.
    ToWorker {
        /// Over which connection.
        connection: ConnectionId,
        /// Which worker it is.
        worker: WorkerId,
        /// What.
        message: control::HostMessage,
    },
    /// Send what waits, then end the worker's stream.
    CloseWorker {
        /// Which.
        connection: ConnectionId,
    },
    /// Nobody knows this region any more: take it from every device, then close its descriptor.
    DropRegion(RegionId),
    /// Give this to the hooks.
    Dispatch(Box<Event>),
    /// Give this to whoever watches rows.
    Rows(Box<RowBatch>),
}
