//! Actions that the control plane asks the edges for.

use std::sync::Arc;

use hooks::tracing::ScoreBreakdown;
use wire::control::Verdict;
use wire::id::{Epoch, LmapId, Owner, RegionId, ReplicaId, WorkerId};
use wire::layout::RegionSize;
use wire::name::{InstanceName, ServiceName};
use wire::proto::{control, registration};
use wire::rdma::Endpoint;
use wire::time::UnixNanos;

use super::incidents::Suspicion;
use super::named_reason::NamedReason;
use super::paces::Paces;

/// Names a connection of a service or a worker. Given out by the edge, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// A verdict with the names that hooks need.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The worker that judged.
    pub worker: WorkerId,
    /// The service it is about.
    pub service: ServiceName,
    /// Wall-clock time of the tick.
    pub at: UnixNanos,
    /// The verdict itself.
    pub verdict: Verdict,
    /// Its reasons by name, without metrics that are unknown.
    pub reasons: Vec<NamedReason>,
    /// The score's parts by operation. `None` if unknown, or if a replica is silent, which concerns all operations.
    pub breakdown: Option<ScoreBreakdown>,
    /// The silent replicas by name.
    pub silent: Vec<InstanceName>,
    /// Its rank among the services in alarm; `None` without an alarm.
    pub suspicion: Option<Suspicion>,
    /// The titles of the LMAP's columns, if the verdict has features.
    pub columns: Option<Arc<[String]>>,
    /// Of an LMAP over several services, in alarm: those whose columns are among the reasons, all if none is. Empty:
    /// the service itself.
    pub concerned: Vec<ServiceName>,
}

/// Why an LMAP was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// An operator deleted it.
    Operator,
    /// The last replica of its service is gone.
    LastReplica,
}

impl Deletion {
    /// The reason, in words.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Operator => "an operator deleted it",
            Self::LastReplica => "the last replica of its service is gone",
        }
    }
}

/// Raw rows of one LMAP.
#[derive(Clone, Debug, PartialEq)]
pub struct RowBatch {
    /// The LMAP that the rows are of.
    pub lmap: LmapId,
    /// The epoch of its configuration.
    pub epoch: Epoch,
    /// The columns' titles.
    pub columns: Arc<[String]>,
    /// The rows; each has as many values as there are columns.
    pub rows: Vec<control::Row>,
}

/// An action, to be carried out in this order.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[expect(
    clippy::large_enum_variant,
    reason = "actions are few and short-lived; a box would cost each message an allocation"
)]
pub enum Action {
    /// Send `message` to a service.
    ToService {
        /// The service's connection.
        connection: ConnectionId,
        /// The message to send.
        message: registration::AgentMessage,
    },
    /// Send what is queued, then close the connection. The control plane has already forgotten it.
    CloseService {
        /// The connection to close.
        connection: ConnectionId,
    },
    /// A replica registered. If `process_metrics` is set, measure its process.
    ReplicaJoined {
        /// The connection of the replica.
        connection: ConnectionId,
        /// Its name on this node.
        replica: ReplicaId,
        /// The service it belongs to.
        service: ServiceName,
        /// Its instance name.
        instance: InstanceName,
        /// Its process id; 0 if not visible.
        pid: u32,
        /// Whether its values are about its own process.
        process_metrics: bool,
    },
    /// Read the finished spans of a replica; [`Action::ReplicaLeft`] ends it.
    ReadSpans {
        /// The connection of the replica.
        connection: ConnectionId,
        /// The service it belongs to.
        service: ServiceName,
        /// Its instance name.
        instance: InstanceName,
        /// Who pays for it.
        owner: Owner,
        /// The ring's region. Drop it once it is mapped: workers do not read it.
        region: RegionId,
        /// The size of the ring's region.
        size: RegionSize,
        /// The first record that no earlier agent has read.
        first_ticket: u64,
    },
    /// A replica is gone.
    ReplicaLeft {
        /// The connection of the replica.
        connection: ConnectionId,
    },
    /// Connect the queue pair of a worker's regions to the worker's end, and send the reply.
    ConnectQueuePair {
        /// The worker's connection, for the reply.
        connection: ConnectionId,
        /// The worker to connect.
        worker: WorkerId,
        /// The attempt, which the reply repeats.
        attempt: u32,
        /// The worker's end of the queue pair.
        peer: Endpoint,
    },
    /// Stop a worker's RDMA reads. Done when the device confirms it, and before all later actions.
    StopReading {
        /// The worker to fence.
        worker: WorkerId,
        /// True: the worker is fenced. False: its stream ended, and it may come back to the same regions.
        for_good: bool,
    },
    /// Send `message` to a worker. With RDMA, addresses and keys of regions are filled in first.
    ToWorker {
        /// The worker's connection.
        connection: ConnectionId,
        /// The worker's number.
        worker: WorkerId,
        /// The message to send.
        message: control::HostMessage,
    },
    /// Send what is queued, then close the worker's stream.
    CloseWorker {
        /// The connection to close.
        connection: ConnectionId,
    },
    /// No worker knows this region any more: deregister it from every device, then close its descriptor.
    DropRegion(RegionId),
    /// Dispatch a verdict to the hooks.
    Dispatch(Box<Event>),
    /// Hooks and watchers that follow the service go on with this LMAP.
    LmapCreated {
        /// The new LMAP.
        lmap: LmapId,
        /// The service it watches.
        service: ServiceName,
    },
    /// Tell the LMAP's hooks and watchers. Comes after its last verdict and row.
    LmapDeleted {
        /// The deleted LMAP.
        lmap: LmapId,
        /// The service it watched.
        service: ServiceName,
        /// Why it was deleted.
        deletion: Deletion,
    },
    /// Dispatch rows to the watchers.
    Rows(Box<RowBatch>),
    /// Whatever samples these services is to sample them as often, as far as it can, and all others as usual.
    Paces(Paces),
}
