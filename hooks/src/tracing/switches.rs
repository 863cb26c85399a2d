//! Which policies are on.

use crate::tracing::threshold::Threshold;

/// Which policies are on.
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own, as in the configuration file")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switches {
    /// [`Policy::Floor`](crate::tracing::Policy::Floor), and the share that it keeps. The same on all nodes.
    pub floor: Option<Threshold>,
    /// Whether [`Policy::Error`](crate::tracing::Policy::Error) is on.
    pub error: bool,
    /// Whether [`Policy::Lmap`](crate::tracing::Policy::Lmap) is on.
    pub lmap: bool,
    /// Whether [`Policy::Latency`](crate::tracing::Policy::Latency) is on.
    pub latency: bool,
    /// Whether [`Policy::Trigger`](crate::tracing::Policy::Trigger) is on.
    pub trigger: bool,
}

impl Default for Switches {
    /// All on, the floor at 1 %.
    fn default() -> Self {
        Self { floor: Threshold::keeping(0.01).ok(), error: true, lmap: true, latency: true, trigger: true }
    }
}
