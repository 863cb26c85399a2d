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

/// Who pays for what a replica takes of a node. Shares are per owner: a user, or a pod or container, since one tenant's
/// containers have many users, and those of several tenants the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// The host agent itself: replicas that are known by their spans only.
    Agent,
    /// All processes of the user with this uid.
    User(u32),
    /// All processes of a pod, or of a container without one, by the first 128 bits of its id.
    Container([u8; 16]),
}

impl Owner {
    /// The owner in a message: the uid, if it is a user.
    #[must_use]
    pub const fn uid(self) -> Option<u32> {
        match self {
            Self::Agent | Self::Container(_) => None,
            Self::User(uid) => Some(uid),
        }
    }

    /// The owner in a message: the id of a container; empty if it is none.
    #[must_use]
    pub fn container(self) -> Vec<u8> {
        match self {
            Self::Container(id) => id.to_vec(),
            Self::Agent | Self::User(_) => Vec::new(),
        }
    }

    /// The owner of a message: a container, if it names one, else a user; neither is the agent.
    #[must_use]
    pub fn of(uid: Option<u32>, container: &[u8]) -> Self {
        match container.try_into() {
            Ok(id) => Self::Container(id),
            Err(_) => uid.map_or(Self::Agent, Self::User),
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent => f.write_str("the agent"),
            Self::User(uid) => write!(f, "user {uid}"),
            Self::Container(id) => write!(f, "container {:032x}", u128::from_be_bytes(*id)),
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
    fn an_owner_is_the_same_after_a_message() {
        for owner in [Owner::Agent, Owner::User(0), Owner::User(1000), Owner::Container([7; 16])] {
            assert_eq!(Owner::of(owner.uid(), &owner.container()), owner);
        }
        assert_eq!(Owner::of(Some(1), &[1, 2, 3]), Owner::User(1), "no id of a container");
        assert_eq!(Owner::Container([0xab; 16]).to_string(), format!("container {}", "ab".repeat(16)));
    }

    #[test]
    fn an_id_shows_what_it_names() {
        assert_eq!(LmapId(7).to_string(), "lmap-7");
        assert_eq!(Epoch::NONE.next().to_string(), "epoch-1");
    }
}
