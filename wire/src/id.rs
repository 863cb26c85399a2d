//! Names of things. An id has equality, order (for maps) and hashing, and its doc says who gives it out.

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
    /// Names one LMAP on one node. Given out by the host agent, never reused during its life.
    LmapId(u32), "lmap-";
    /// Names one series (metric name and label set) of one LMAP. Given out by the host agent, never reused during its life.
    MetricId(u32), "metric-";
    /// Names one replica of a service, as long as it is connected. Given out by the host agent, never reused during its life.
    ReplicaId(u32), "replica-";
    /// Names one registered metric region. Given out by the host agent, never reused during its life.
    RegionId(u64), "region-";
    /// Names one NIC worker as configured by whoever deploys it: 0 up to the number of workers of the node.
    WorkerId(u32), "worker-";
    /// Names one registered hook. Given out by the host agent, never reused during its life.
    HookId(u32), "hook-";
    /// Tells one run of a program from the next. Drawn at random at its start.
    Incarnation(u64), "run-";
    /// Numbers a worker's configurations: every change that the host agent sends raises it by one. Meaningful only together with
    /// the [`Incarnation`] of the host agent that gave it out.
    Epoch(u64), "epoch-";
    /// Numbers the changes of one region's layout, counted by the service that owns the region.
    Generation(u64), "generation-";
}

impl Epoch {
    /// Before any configuration.
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
