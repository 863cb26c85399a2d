//! Ids. An id has equality, order (for maps) and hashing. Its doc says who gives it out.

use core::fmt;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($inner:ty), $letter:literal;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($letter, "{}"), self.0)
            }
        }
    )+};
}

ids! {
    /// Id of one LMAP on one node. Given out by the host agent, never reused during its run.
    LmapId(u32), "lmap-";
    /// Id of one series (metric name and label set) of one LMAP. Given out by the host agent, never reused during its
    /// run.
    MetricId(u32), "metric-";
    /// Id of one replica of a service while it is connected. Given out by the host agent, never reused during its run.
    ReplicaId(u32), "replica-";
    /// Id of one registered metric region. Given out by the host agent, never reused during its run.
    RegionId(u64), "region-";
    /// Number of a NIC worker, as configured by the operator: 0 up to the number of workers of the node.
    WorkerId(u32), "worker-";
    /// Id of one registered hook. Given out by the host agent, never reused during its run.
    HookId(u32), "hook-";
    /// Distinguishes runs of a program. Drawn at random at its start.
    Incarnation(u64), "run-";
    /// Number of a worker's configuration: every change by the host agent raises it by one. Only meaningful with the
    /// [`Incarnation`] of that host agent.
    Epoch(u64), "epoch-";
    /// Number of changes of one region's layout, counted by the service that owns the region.
    Generation(u64), "generation-";
}

/// Who pays for what a replica takes of a node. Shares are per owner. On one machine that is a user; where several
/// tenants share a user, as in Kubernetes, it has to be something else of the process, such as its pod's cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// The host agent itself: replicas that are known by their spans only.
    Agent,
    /// All processes of the user with this uid.
    User(u32),
}

impl Owner {
    /// The owner in a message: the uid, or nothing for the agent.
    #[must_use]
    pub const fn uid(self) -> Option<u32> {
        match self {
            Self::Agent => None,
            Self::User(uid) => Some(uid),
        }
    }
}

impl From<Option<u32>> for Owner {
    fn from(uid: Option<u32>) -> Self {
        uid.map_or(Self::Agent, Self::User)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent => f.write_str("the agent"),
            Self::User(uid) => write!(f, "user {uid}"),
        }
    }
}

impl Epoch {
    /// The epoch before any configuration.
    pub const NONE: Self = Self(0);

    /// The epoch after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_shows_what_it_names() {
        assert_eq!(LmapId(7).to_string(), "lmap-7");
        assert_eq!(Epoch::NONE.next().to_string(), "epoch-1");
    }
}
