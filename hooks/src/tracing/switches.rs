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
    /// Of the traces that concern a service in alarm and look as nine of ten of their operation do, the share that
    /// [`Policy::Lmap`](crate::tracing::Policy::Lmap) keeps; `None`: none of them. By the trace's id: the same on all
    /// nodes.
    pub unremarkable: Option<Threshold>,
    /// Whether [`Policy::Latency`](crate::tracing::Policy::Latency) is on.
    pub latency: bool,
    /// Whether [`Policy::Trigger`](crate::tracing::Policy::Trigger) is on.
    pub trigger: bool,
}

impl Default for Switches {
    /// All on, the floor at 1 %, and verdicts keep everything that they concern.
    fn default() -> Self {
        let (floor, unremarkable) = (Threshold::keeping(0.01).ok(), Some(Threshold::ALL));
        Self { floor, error: true, lmap: true, unremarkable, latency: true, trigger: true }
    }
}
