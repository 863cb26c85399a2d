//! Jobs of the detectors, to be run on another thread, and their owners.

use std::collections::{BTreeMap, VecDeque};

use lmap::Job;

/// Id of a job. Assigned by the worker, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(u64);

/// Id of a detector. Assigned by the worker, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DetectorId(pub(crate) u64);

/// Pending jobs and jobs in flight: at most one for each detector.
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

    /// The owner of job `id`.
    pub(crate) fn done(&mut self, id: JobId) -> Option<DetectorId> {
        self.owners.remove(&id)
    }

    /// Drops the jobs of detectors that do not exist any more.
    pub(crate) fn retain(&mut self, lives: impl Fn(DetectorId) -> bool) {
        self.owners.retain(|_, owner| lives(*owner));
        let owners = &self.owners;
        self.waiting.retain(|(id, _)| owners.contains_key(id));
    }
}
