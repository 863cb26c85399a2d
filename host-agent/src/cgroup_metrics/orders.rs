//! What the thread is told while it runs.

use std::sync::mpsc::Sender;

use sources::cgroup::pattern::Pattern;

use crate::control_plane::Paces;

/// An order to the thread.
#[derive(Debug)]
pub(super) enum CgroupOrder {
    /// Read what these patterns name, and no more what others named.
    Read(Vec<Pattern>),
    /// Read the cgroups of these services as often as those are fetched.
    Follow(Paces),
    /// End after the round that runs.
    End,
}

/// Tells the thread which cgroups to read. Clones tell the same one.
#[derive(Clone, Debug)]
pub(crate) struct PatternSender(pub(super) Sender<CgroupOrder>);

impl PatternSender {
    /// Has the thread read what `patterns` name, in place of what others named.
    pub(crate) fn send(&self, patterns: Vec<Pattern>) {
        // At a shutdown, nobody takes it.
        _ = self.0.send(CgroupOrder::Read(patterns));
    }
}

/// Tells the thread which services are fetched faster.
#[derive(Clone, Debug)]
pub(crate) struct PaceSender(pub(super) Sender<CgroupOrder>);

impl PaceSender {
    /// Has the thread read the cgroups of these services as often as those are fetched, and the others as usual.
    pub(crate) fn send(&self, paces: Paces) {
        // At a shutdown, nobody takes it.
        _ = self.0.send(CgroupOrder::Follow(paces));
    }
}
