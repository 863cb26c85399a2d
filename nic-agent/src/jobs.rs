//! Jobs of the detectors that wait to be run elsewhere, and whose they are.

use std::collections::{BTreeMap, VecDeque};

use lmap::Job;

/// Names one job that was handed out. Given out by the worker, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(u64);

/// Names one detector. Given out by the worker, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DetectorId(pub(crate) u64);

/// At most one job per detector is waiting or out.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    waiting: VecDeque<(JobId, Job)>,
    owners: BTreeMap<JobId, DetectorId>,
    given_out: u64,
}

impl Jobs {
    pub(crate) fn add(&mut self, owner: DetectorId, job: Job) {
        let id = JobId(self.given_out);
        self.given_out += 1;
        self.owners.insert(id, owner);
        self.waiting.push_back((id, job));
    }

    pub(crate) fn take(&mut self) -> Option<(JobId, Job)> {
        self.waiting.pop_front()
    }

    /// Whose job `id` was.
    pub(crate) fn done(&mut self, id: JobId) -> Option<DetectorId> {
        self.owners.remove(&id)
    }

    /// Drops the jobs of detectors that are no more.
    pub(crate) fn retain(&mut self, lives: impl Fn(DetectorId) -> bool) {
        self.owners.retain(|_, owner| lives(*owner));
        let owners = &self.owners;
        self.waiting.retain(|(id, _)| owners.contains_key(id));
    }
}
