//! Entries of the gossip log.

use std::num::NonZeroU64;
use std::sync::Arc;

use crate::tracing::{Reason, ScoreBreakdown, TraceId};
use wire::time::UnixNanos;

/// Tells runs of one node apart. Random, drawn by the caller when the run starts, and never 0. No clock is in it, so
/// that a clock that was ahead changes nothing; the order of ids means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub NonZeroU64);

/// One run of a node: its name in the cluster, and its id. A node's newest run is the one that it speaks with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Run {
    /// Name of the node, unique in the cluster.
    pub node: Arc<str>,
    /// Id of the run.
    pub id: RunId,
}

/// The decision to keep a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The tenant that owns the trace.
    pub tenant: Arc<str>,
    /// The trace to keep.
    pub trace: TraceId,
    /// Why it is kept; exported with its root span.
    pub reason: Arc<Reason>,
    /// Start of the trace, if the deciding node has the span without a parent.
    pub began: Option<UnixNanos>,
}

/// An LMAP found its service anomalous. Like [`Verdict`](crate::tracing::Verdict), with the service by name.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceVerdict {
    /// Name of the service.
    pub service: Arc<str>,
    /// Start of the anomaly.
    pub from: UnixNanos,
    /// Time of the verdict.
    pub at: UnixNanos,
    /// The score divided by γ.
    pub weight: f64,
    /// The newest row's score by operation; `None` if unknown.
    pub breakdown: Option<Arc<ScoreBreakdown>>,
    /// The verdict in words.
    pub reason: Arc<Reason>,
}

/// An operation of a service, both by name.
pub type OperationRef = (Arc<str>, Arc<str>);

/// Services that a node saw in a trace whose entry span another node has.
#[derive(Clone, Debug, PartialEq)]
pub struct PathPiece {
    /// The tenant that owns the trace.
    pub tenant: Arc<str>,
    /// Id of the trace.
    pub trace: TraceId,
    /// Names of the services.
    pub services: Vec<Arc<str>>,
    /// Operations that were requested of them.
    pub requested: Vec<OperationRef>,
}

/// Services on the path of an operation, as a node saw them lately. Sent for nodes that have just started.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownPath {
    /// The tenant that owns the traces.
    pub tenant: Arc<str>,
    /// The service of the operation.
    pub service: Arc<str>,
    /// Name of the operation.
    pub operation: Arc<str>,
    /// Names of the services on its path.
    pub services: Vec<Arc<str>>,
    /// Operations that are requested of them.
    pub requested: Vec<OperationRef>,
}

/// What an entry announces to all nodes.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A trace is kept.
    Keep(Decision),
    /// A service is anomalous.
    Verdict(ServiceVerdict),
    /// Services in one trace.
    Piece(PathPiece),
    /// Services on the path of an operation.
    Path(KnownPath),
}

/// An entry of a run's log.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// When it was appended, by the clock of the run that appended it.
    pub at: UnixNanos,
    /// The receiver's predecessor had carried it out.
    pub carried_out: bool,
    /// What it announces.
    pub item: Item,
}

/// Memory of a name beside its text, and more than its frame in a message takes.
const NAME: usize = 32;

impl Item {
    /// Approximate bytes of its names, in memory and in a message.
    pub(super) fn name_bytes(&self) -> usize {
        let names = |all: &[Arc<str>]| all.iter().map(|name| NAME + name.len()).sum::<usize>();
        let operations = |all: &[OperationRef]| all.iter().map(|(a, b)| 2 * NAME + a.len() + b.len()).sum::<usize>();
        match self {
            Self::Keep(keep) => keep.tenant.len(),
            Self::Verdict(verdict) => {
                let operations = verdict.breakdown.iter().flat_map(|breakdown| breakdown.operations.keys());
                verdict.service.len() + operations.map(|name| 2 * NAME + name.len()).sum::<usize>()
            }
            Self::Piece(piece) => piece.tenant.len() + names(&piece.services) + operations(&piece.requested),
            Self::Path(path) => {
                let own = path.tenant.len() + path.service.len() + path.operation.len();
                own + names(&path.services) + operations(&path.requested)
            }
        }
    }

    /// Its reason, which the entries of one message may share.
    pub(super) const fn reason(&self) -> Option<&Arc<Reason>> {
        match self {
            Self::Keep(keep) => Some(&keep.reason),
            Self::Verdict(verdict) => Some(&verdict.reason),
            Self::Piece(_) | Self::Path(_) => None,
        }
    }

    /// Approximate heap memory in bytes. Those that share a reason pay a part of it each.
    pub(super) fn heap_bytes(&self) -> usize {
        let shared = |reason: &Arc<Reason>| reason.heap_bytes() / Arc::strong_count(reason);
        self.name_bytes() + self.reason().map_or(0, shared)
    }
}
